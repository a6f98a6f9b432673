//! Origin data on the writes of a run: the author, the session tags, and the field `creator`, which names the run's executor and
//! trigger.

use super::profile::Profile;
use crate::error::excerpt;
use crate::model::{
    Breadcrumb, BreadcrumbId, Json, MAX_DEPTH, SESSION_TAG, is_reserved_schema, is_reserved_tag,
};
use crate::store::{Lineage, Write};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;

/// The field of a breadcrumb's context that names the origin of the write.
const CREATOR: &str = "creator";

/// Origin of all writes of one run: the executor, the trigger and the chain of runs (correlation ID and hop count).
#[derive(Clone, Debug)]
pub(super) struct Stamp {
    kind: Cow<'static, str>,
    executor: Arc<str>,
    definition: Option<String>,
    trigger: Arc<Breadcrumb>,
    /// The correlation ID of the chain of runs, and the hop count of the breadcrumbs that the run writes: one more than the
    /// trigger's.
    lineage: Lineage,
}

impl Stamp {
    pub(super) fn new(
        executor: Arc<str>,
        profile: &Profile,
        trigger: &Arc<Breadcrumb>,
        lineage: &Lineage,
    ) -> Self {
        Self {
            kind: profile.kind.clone(),
            executor,
            definition: profile.definition.clone(),
            trigger: Arc::clone(trigger),
            lineage: lineage.next(),
        }
    }

    /// Returns the value of the field `creator`, which names the run's executor and trigger in the context of each breadcrumb
    /// that the run writes.
    pub(super) fn creator(&self) -> Value {
        let mut creator = Map::new();
        let mut field = |name: &str, value: Value| creator.insert(name.to_owned(), value);
        field("type", self.kind.as_ref().into());
        field("id", (&*self.executor).into());
        let name_field = match &*self.kind {
            "agent" => Some("agent_id"),
            "tool" => Some("tool"),
            "workflow" => Some("workflow"),
            _ => None,
        };
        if let Some(name) = name_field {
            field(name, (&*self.executor).into());
        }
        field("trigger_id", self.trigger.id.to_string().into());
        field("trigger_version", self.trigger.version.into());
        field("correlation_id", (&*self.lineage.correlation_id).into());
        field("hops", self.lineage.hops.into());
        if let Some(definition) = &self.definition {
            field("definition", definition.as_str().into());
        }
        creator.into()
    }

    /// Returns `true` if a breadcrumb names this executor in `created_by` or in `creator`. A server may set `created_by` itself, so
    /// `creator` counts as well.
    fn has_created(&self, found: &Breadcrumb) -> bool {
        let creator = found.context.get(CREATOR);
        let named = creator.and_then(|creator| creator.get("id")?.as_str());
        [found.created_by.as_deref(), named].contains(&Some(&self.executor))
    }

    /// Returns `true` if a breadcrumb names this executor and this trigger as its origin.
    ///
    /// Another writer can copy these names. They are reliable only in a first version that this executor wrote.
    pub(super) fn is_of_run(&self, found: &Breadcrumb) -> bool {
        trigger_of(found) == Some(self.trigger.id) && self.has_created(found)
    }

    /// Returns the ID of the run's executor.
    pub(super) fn executor(&self) -> &str {
        &self.executor
    }

    /// Returns the correlation ID, which all runs of a chain share.
    #[cfg(feature = "agents")]
    pub(super) fn correlation_id(&self) -> &str {
        &self.lineage.correlation_id
    }

    /// Returns the session tags of the trigger, which a response inherits.
    pub(super) fn session_tags(&self) -> impl Iterator<Item = &String> {
        self.trigger
            .tags
            .iter()
            .filter(|tag| tag.starts_with(SESSION_TAG))
    }

    /// Returns a run's write with three additions: the field `creator`, the author and the session tags.
    ///
    /// # Errors
    /// A sentence with the problem and a remedy if the context is not an object or nests too deeply, if a new breadcrumb has a
    /// reserved tag, or if a patch sets a reserved schema. The caller checks the tags of a patch against the stored breadcrumb.
    pub(super) fn apply(&self, index: usize, write: Write) -> Result<Write, String> {
        match write {
            Write::Create(mut new) => {
                if let Some(tag) = new.tags.iter().find(|tag| is_reserved_tag(tag)) {
                    return Err(format!(
                        "write {index} has the tag {:?}, but tags that start with \"ux:\" are reserved for the library; \
                         rename it",
                        excerpt(tag, 80)
                    ));
                }
                new.context = self.with_creator(index, new.context)?;
                self.add_session_tags(&mut new.tags);
                new.created_by = Some((*self.executor).into());
                Ok(Write::Create(new))
            }
            Write::Update {
                id,
                version,
                mut patch,
            } => {
                if let Some(schema) = patch.schema_name.as_deref()
                    && is_reserved_schema(schema)
                {
                    return Err(format!(
                        "write {index} changes the schema of breadcrumb {id} to {:?}, but a breadcrumb of another schema \
                         cannot become a request or an answer; create a new breadcrumb",
                        excerpt(schema, 80)
                    ));
                }
                if let Some(context) = patch.context.take() {
                    patch.context = Some(self.with_creator(index, context)?);
                }
                if let Some(tags) = &mut patch.tags {
                    self.add_session_tags(tags);
                }
                patch.updated_by = Some((*self.executor).into());
                Ok(Write::Update { id, version, patch })
            }
            Write::Delete { id, by: _ } => Ok(Write::Delete {
                id,
                by: Some((*self.executor).into()),
            }),
        }
    }

    fn with_creator(&self, index: usize, context: Json) -> Result<Json, String> {
        // Checked first, because converting deeply nested JSON to a value overflows the stack.
        if context.size() == usize::MAX {
            return Err(format!(
                "the context of write {index} nests too deeply; reduce it to at most {MAX_DEPTH} levels"
            ));
        }
        if !context.is_object() {
            return Err(format!(
                "the context of write {index} is not an object, so the field `creator` cannot be added; put the value under a key"
            ));
        }
        let mut with_creator = context.into_value();
        if let Value::Object(fields) = &mut with_creator {
            fields.insert(CREATOR.to_owned(), self.creator());
        }
        Ok(with_creator.into())
    }

    /// Adds those session tags of the trigger that a write lacks, up to the maximum number of tags of a breadcrumb. The store
    /// would refuse a write with more tags, and a trigger with many tags would get no answer.
    fn add_session_tags(&self, tags: &mut Vec<String>) {
        let short = |tag: &&String| tag.len() <= Breadcrumb::MAX_TAG_BYTES;
        for tag in self.session_tags().filter(short) {
            if tags.len() >= Breadcrumb::MAX_TAGS {
                return;
            }
            if !tags.contains(tag) {
                tags.push(tag.clone());
            }
        }
    }
}

/// Returns `true` if the context of a breadcrumb has the field `creator`. Every context that a run writes has the field.
#[cfg(feature = "agents")]
pub(super) fn has_creator(found: &Breadcrumb) -> bool {
    found.context.get(CREATOR).is_some()
}

/// Returns the ID of the trigger in the `creator` of a breadcrumb, or `None` without a valid ID.
pub(super) fn trigger_of(found: &Breadcrumb) -> Option<BreadcrumbId> {
    let creator = found.context.get(CREATOR)?;
    creator.get("trigger_id")?.as_str()?.parse().ok()
}

/// Returns the correlation ID and hop count from the field `creator` of a trigger, for a store whose ledger does not record these
/// values. The `creator` can be forged.
pub(super) fn claimed_lineage(trigger: &Breadcrumb) -> Lineage {
    /// Maximum length of a correlation ID in characters. The ID is copied to every write of the chain.
    const MAX_CORRELATION_CHARS: usize = 128;
    let creator = trigger.context.get(CREATOR);
    let hops = creator.and_then(|creator| creator.get("hops")?.as_u64());
    let correlation = creator.and_then(|creator| creator.get("correlation_id")?.as_str());
    let is_short = |correlation: &&str| correlation.chars().nth(MAX_CORRELATION_CHARS).is_none();
    match (hops, correlation) {
        (Some(hops), Some(correlation)) => {
            let hops = u32::try_from(hops).unwrap_or(u32::MAX);
            match Some(correlation).filter(is_short) {
                Some(correlation) => Lineage::new(correlation, hops),
                None => Lineage::new(trigger.id.to_string(), hops),
            }
        }
        (Some(_) | None, _) => Lineage::origin(trigger.id),
    }
}

/// Returns `true` if a trigger names this executor as its author or creator, for a store whose ledger records no writers.
pub(super) fn claims_to_be_from(trigger: &Breadcrumb, executor: &str) -> bool {
    const NAMES: [&str; 4] = ["id", "agent_id", "tool", "workflow"];
    let creator = trigger.context.get(CREATOR);
    let named =
        |name: &str| creator.and_then(|creator| creator.get(name)?.as_str()) == Some(executor);
    trigger.author() == Some(executor) || NAMES.into_iter().any(named)
}
