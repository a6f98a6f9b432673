//! What stands in for what a definition leaves out. Data, and only where the caller asks for it.

use crate::model::subscription::Role;

/// The role of a subscription that names none: a trigger if it is about one of these schemas, else a context.
///
/// ```
/// use serde_json::json;
/// use universal_executor::model::{DefinitionOptions, KeyPolicy, RolePolicy};
/// use universal_executor::{Role, Subscriptions};
///
/// let older = DefinitionOptions::default().roles(RolePolicy::older()).keys(KeyPolicy::older());
/// let definition = json!([{"schema_name": "user.message.v1"}, {"schema_name": "browser.page.context.v1"}]);
///
/// let read = Subscriptions::from_json_with(&definition, &older)?;
///
/// assert_eq!(read.as_slice()[0].role, Role::Trigger);
/// assert_eq!(read.as_slice()[1].key.as_deref(), Some("browser_context"));
/// # Ok::<(), universal_executor::model::DefinitionError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RolePolicy {
    triggers: Vec<String>,
}

impl RolePolicy {
    /// These schemas are triggers.
    #[must_use]
    pub fn triggers<T: Into<String>>(schemas: impl IntoIterator<Item = T>) -> Self {
        Self {
            triggers: schemas.into_iter().map(Into::into).collect(),
        }
    }

    /// What definitions relied on before they named roles.
    #[must_use]
    pub fn older() -> Self {
        Self::triggers([
            "user.message.v1",
            "agent.context.v1",
            "tool.request.v1",
            "system.message.v1",
        ])
    }

    pub(super) fn role_of(&self, schema: Option<&str>) -> Role {
        match schema.is_some_and(|schema| self.triggers.iter().any(|known| known == schema)) {
            true => Role::Trigger,
            false => Role::Context,
        }
    }
}

/// The key of a context subscription that names none, by its schema, and how many breadcrumbs are fetched where nothing says so.
///
/// See [`RolePolicy`] for an example.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyPolicy {
    names: Vec<(String, String)>,
    underscores: bool,
    limit: Option<usize>,
}

impl KeyPolicy {
    /// No key for any schema yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the key of a schema.
    #[must_use]
    pub fn name(mut self, schema: impl Into<String>, key: impl Into<String>) -> Self {
        self.names.push((schema.into(), key.into()));
        self
    }

    /// Makes the keys of all other schemas of their names, with underscores for the dots.
    #[must_use]
    pub fn others_with_underscores(mut self) -> Self {
        self.underscores = true;
        self
    }

    /// Sets how many breadcrumbs are fetched where the subscription does not say, whatever the method.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// What definitions relied on before they named keys.
    #[must_use]
    pub fn older() -> Self {
        const NAMES: [(&str, &str); 7] = [
            ("user.message.v1", "user_message"),
            ("agent.response.v1", "agent_responses"),
            ("tool.response.v1", "tool_results"),
            ("tool.catalog.v1", "tool_catalog"),
            ("browser.page.context.v1", "browser_context"),
            ("agent.def.v1", "agent_definition"),
            ("context.config.v1", "context_config"),
        ];
        let named = NAMES
            .into_iter()
            .fold(Self::new(), |policy, (schema, key)| {
                policy.name(schema, key)
            });
        named.others_with_underscores().limit(1)
    }

    pub(super) fn key_of(&self, schema: Option<&str>) -> Option<String> {
        let schema = schema?;
        let named = self.names.iter().find(|(known, _)| known == schema);
        match named {
            Some((_, key)) => Some(key.clone()),
            None => self.underscores.then(|| schema.replace('.', "_")),
        }
    }

    pub(super) fn default_limit(&self) -> Option<usize> {
        self.limit
    }
}
