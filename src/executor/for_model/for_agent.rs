//! Parts of a context that an agent presents to its model separately: the words of the user, and the trigger's ID, version and
//! tags.

use super::user_text::{FIELDS, text_in_field};
use super::{ContextBudget, ModelContext, ModelItem, ModelSource};
use crate::model::{Breadcrumb, Json};
use serde_json::{Map, Value, json};

impl ModelContext {
    /// Appends a context source with the ID, version and tags of the trigger, for a model that writes breadcrumbs about the
    /// trigger. A budget omits this source after all others.
    pub(crate) fn with_identity_of(mut self, trigger: &Breadcrumb) -> Self {
        let identity = json!({"id": trigger.id, "version": trigger.version, "tags": trigger.tags});
        self.sources.push(ModelSource {
            key: "trigger_breadcrumb".to_owned(),
            items: vec![ModelItem {
                id: trigger.id,
                version: trigger.version,
                schema_name: trigger.schema_name.clone(),
                updated_at: trigger.updated_at,
                context: identity.into(),
            }],
            is_one: true,
            required: false,
            priority: i64::MAX,
        });
        self
    }

    /// Removes the words of the user from a chat message that is the trigger, and returns the words. The other fields of the trigger remain
    /// as data.
    ///
    /// Returns `None`, and leaves the context unchanged, if the trigger has no words that a model may see.
    pub(crate) fn take_user_text(&mut self) -> Option<String> {
        let context = &self.trigger.context;
        let found = FIELDS.into_iter().find_map(|field| {
            let words = text_in_field(context, field)?;
            Some((words.to_owned(), without(context, field)))
        });
        let (words, rest) = found?;
        self.trigger.context = rest.into();
        self.user_text_removed = true;
        Some(words)
    }

    /// Removes the user's words from the field `field` of a request that is the trigger, and returns the words. The other fields, which
    /// name the agent itself, are dropped.
    pub(crate) fn take_request(&mut self, field: &str) -> Option<String> {
        let words = text_in_field(&self.trigger.context, field)?.to_owned();
        self.trigger.context = Value::Object(Map::new()).into();
        self.user_text_removed = true;
        Some(words)
    }

    /// Returns `true` if the rendered context would have no section for the trigger or a source, and no note on a missing source.
    pub(crate) fn is_empty(&self) -> bool {
        let mut sources = self.sources.iter();
        !self.shows_trigger()
            && self.missing.is_empty()
            && !sources.any(|source| source.is_shown(source.items.len()))
    }
}

impl ContextBudget {
    /// Returns the limits of the budget as the field `context_budget` of an agent definition. Values without a limit are omitted.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let limits = [
            ("tokens", self.tokens),
            ("bytes", self.bytes),
            ("items_per_source", self.items_per_source),
        ];
        let limits = limits.into_iter().filter(|(_, limit)| *limit < usize::MAX);
        limits
            .map(|(name, limit)| (name.to_owned(), limit.into()))
            .collect()
    }
}

fn without(context: &Json, field: &str) -> Value {
    let mut rest = context.clone().into_value();
    if let Value::Object(fields) = &mut rest {
        fields.remove(field);
    }
    rest
}
