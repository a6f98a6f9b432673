//! Who wrote what, and because of what: stamped by the library, whatever `respond` put there.

use super::profile::Profile;
use crate::model::{Breadcrumb, Json};
use crate::store::{Lineage, Write};
use serde_json::{Map, Value, json};

/// The tags a response inherits from its trigger.
const SESSION: &str = "session:";
/// The field of a context that says who wrote it.
const CREATOR: &str = "creator";

/// What everything written because of one trigger carries.
#[derive(Clone, Debug)]
pub(super) struct Stamp {
    executor: String,
    creator: Value,
    session_tags: Vec<String>,
}

impl Stamp {
    pub(super) fn new(
        executor: &str,
        profile: &Profile,
        trigger: &Breadcrumb,
        lineage: &Lineage,
    ) -> Self {
        let next = lineage.next();
        let mut creator = Map::new();
        creator.insert("type".into(), json!(profile.kind));
        creator.insert("id".into(), json!(executor));
        let own_name = match &*profile.kind {
            "agent" => Some("agent_id"),
            "tool" => Some("tool"),
            "workflow" => Some("workflow"),
            _ => None,
        };
        if let Some(field) = own_name {
            creator.insert(field.into(), json!(executor));
        }
        creator.insert("trigger_id".into(), json!(trigger.id));
        creator.insert("trigger_version".into(), json!(trigger.version));
        creator.insert("correlation_id".into(), json!(next.correlation_id));
        creator.insert("hops".into(), json!(next.hops));
        if let Some(definition) = &profile.definition {
            creator.insert("definition".into(), json!(definition));
        }
        let session_tags = trigger
            .tags
            .iter()
            .filter(|tag| tag.starts_with(SESSION))
            .cloned()
            .collect();
        Self {
            executor: executor.to_owned(),
            creator: creator.into(),
            session_tags,
        }
    }

    pub(super) fn creator(&self) -> Json {
        self.creator.clone().into()
    }

    pub(super) fn session_tags(&self) -> &[String] {
        &self.session_tags
    }

    /// The write with creator, author and session tags.
    ///
    /// # Errors
    /// A sentence that says what to change, if the context is not an object.
    pub(super) fn apply(&self, index: usize, write: Write) -> Result<Write, String> {
        match write {
            Write::Create(mut new) => {
                new.context = self.signed(index, new.context)?;
                self.add_session_tags(&mut new.tags);
                new.created_by = Some(self.executor.clone());
                Ok(Write::Create(new))
            }
            Write::Update {
                id,
                version,
                mut patch,
            } => {
                if let Some(context) = patch.context.take() {
                    patch.context = Some(self.signed(index, context)?);
                }
                if let Some(tags) = &mut patch.tags {
                    self.add_session_tags(tags);
                }
                patch.updated_by = Some(self.executor.clone());
                Ok(Write::Update { id, version, patch })
            }
            Write::Delete { id, by: _ } => Ok(Write::Delete {
                id,
                by: Some(self.executor.clone()),
            }),
        }
    }

    fn signed(&self, index: usize, context: Json) -> Result<Json, String> {
        match context.into_value() {
            Value::Object(mut fields) => {
                fields.insert(CREATOR.to_owned(), self.creator.clone());
                Ok(Value::Object(fields).into())
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(format!(
                "the context of write {index} is not an object, so it cannot carry its creator; put it under a key"
            )),
        }
    }

    fn add_session_tags(&self, tags: &mut Vec<String>) {
        for tag in &self.session_tags {
            if !tags.contains(tag) {
                tags.push(tag.clone());
            }
        }
    }
}

/// Where a trigger came from by its own word: all there is to go by without a ledger.
pub(super) fn claimed_lineage(trigger: &Breadcrumb) -> Lineage {
    let creator = trigger.context.get(CREATOR);
    let hops = creator.and_then(|creator| creator.get("hops")?.as_u64());
    let correlation = creator.and_then(|creator| creator.get("correlation_id")?.as_str());
    match (hops, correlation) {
        (Some(hops), Some(correlation)) => {
            Lineage::new(correlation, u32::try_from(hops).unwrap_or(u32::MAX))
        }
        (Some(_) | None, _) => Lineage::origin(trigger.id),
    }
}

/// Whether an executor wrote a trigger, by the trigger's own word: all there is to go by without a ledger.
pub(super) fn claims_to_be_from(trigger: &Breadcrumb, executor: &str) -> bool {
    const NAMES: [&str; 4] = ["id", "agent_id", "tool", "workflow"];
    let creator = trigger.context.get(CREATOR);
    let named =
        |name: &str| creator.and_then(|creator| creator.get(name)?.as_str()) == Some(executor);
    trigger.author() == Some(executor) || NAMES.into_iter().any(named)
}
