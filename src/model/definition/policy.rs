//! Policies for the defaults of subscription fields that a definition omits, such as `role` and `key`.

use crate::model::subscription::Role;

/// Default role of a subscription that omits `role`: trigger for the listed schema names, and context for all other subscriptions.
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
    /// Creates a policy by which subscriptions to these schema names are triggers by default.
    ///
    /// Subscriptions with another schema name, or without one, are context subscriptions by
    /// default.
    #[must_use]
    pub fn triggers<T: Into<String>>(schemas: impl IntoIterator<Item = T>) -> Self {
        Self {
            triggers: schemas.into_iter().map(Into::into).collect(),
        }
    }

    /// Creates the policy for older definitions, in which subscriptions may omit `role`.
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

/// Default key of a context subscription that omits `key`, by its schema name, and the default number of fetched breadcrumbs.
///
/// See [`RolePolicy`] for an example.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyPolicy {
    names: Vec<(String, String)>,
    underscores: bool,
    limit: Option<usize>,
}

impl KeyPolicy {
    /// Creates a policy without default keys, by which context subscriptions that omit `key` have no key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the default key of the context subscriptions whose selector has the schema name `schema`.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Subscriptions;
    /// use universal_executor::model::{DefinitionOptions, KeyPolicy};
    ///
    /// let keys = KeyPolicy::new().name("web.page.v1", "page").others_with_underscores();
    /// let options = DefinitionOptions::default().keys(keys);
    /// let definition = json!([
    ///     {"schema_name": "web.page.v1", "role": "context"},
    ///     {"schema_name": "price.v1", "role": "context"},
    /// ]);
    ///
    /// let read = Subscriptions::from_json_with(&definition, &options)?;
    /// let names: Vec<_> = read.sources().filter_map(|source| source.name()).collect();
    /// assert_eq!(names, ["page", "price_v1"]);
    /// # Ok::<(), universal_executor::model::DefinitionError>(())
    /// ```
    #[must_use]
    pub fn name(mut self, schema: impl Into<String>, key: impl Into<String>) -> Self {
        self.names.push((schema.into(), key.into()));
        self
    }

    /// Makes the policy derive the default keys of subscriptions from schema names, with an underscore for each dot. Applies to
    /// the schema names without a key from [`name`](Self::name).
    #[must_use]
    pub fn others_with_underscores(mut self) -> Self {
        self.underscores = true;
        self
    }

    /// Sets the default maximum number of breadcrumbs that a context subscription fetches, for all fetch methods.
    ///
    /// Applies to a subscription whose definition has no limit.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Creates the policy for older definitions, in which context subscriptions may omit `key`. Its default limit of a fetch is 1.
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
