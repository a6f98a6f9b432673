use super::policy::{KeyPolicy, RolePolicy};
use super::{MAX_CONDITIONS, MAX_REGEXES};

/// Limits, defaults and modes for reading definitions of subscriptions.
///
/// Pass the options to [`Subscriptions::from_json_with`](crate::Subscriptions::from_json_with).
/// Lower the limits for definitions from untrusted authors.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::Subscriptions;
/// use universal_executor::model::DefinitionOptions;
///
/// let options = DefinitionOptions::default().strict().max_limit(50);
/// let definition = json!([
///     {"schema_name": "order.v1", "role": "trigger"},
///     {"schema_name": "price.v1", "role": "context", "fetch": {"method": "recent", "limit": 80}},
/// ]);
///
/// let error = Subscriptions::from_json_with(&definition, &options).unwrap_err();
/// assert_eq!((error.subscription(), error.field()), (Some(1), "fetch.limit"));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DefinitionOptions {
    /// The highest number that a definition may state as the maximum number of breadcrumbs of a fetch (`limit` or `nn`). Defaults
    /// to 1,000.
    pub max_limit: usize,
    /// The maximum number of subscriptions of one executor. Defaults to 256.
    pub max_subscriptions: usize,
    /// The maximum number of conditions in the subscriptions of one executor, or in the approval rules of one agent. Defaults to
    /// 1,000.
    pub max_conditions: usize,
    /// The maximum number of regular expressions (`matches`) in the subscriptions of one executor, or in the approval rules of
    /// one agent. Defaults to 100.
    pub max_regexes: usize,
    /// The policy for the default role of a subscription that omits `role`. With `None`, the default, a missing role is an error.
    pub roles: Option<RolePolicy>,
    /// The policy for the default key of a context subscription that omits `key`. With `None`, the default, the schema name is the key.
    pub keys: Option<KeyPolicy>,
    /// If `true`, an unknown field of an agent, tool, workflow or subscription definition is an error. If `false`, it is a
    /// warning, and the field has no effect. Defaults to `false`.
    pub strict: bool,
    /// If `true`, agent, tool and other definitions are read by the rules of an RCRT (Right Context Right Time) server. See
    /// [`rcrt`](Self::rcrt). Defaults to `false`.
    pub rcrt: bool,
}

impl Default for DefinitionOptions {
    fn default() -> Self {
        Self {
            max_limit: 1_000,
            max_subscriptions: 256,
            max_conditions: MAX_CONDITIONS,
            max_regexes: MAX_REGEXES,
            roles: None,
            keys: None,
            strict: false,
            rcrt: false,
        }
    }
}

impl DefinitionOptions {
    /// Sets the highest number that a definition may state as the maximum number of breadcrumbs of a fetch (`limit` or `nn`).
    ///
    /// Defaults to 1,000. The number of fetched breadcrumbs bounds the memory of a run.
    #[must_use]
    pub fn max_limit(mut self, limit: usize) -> Self {
        self.max_limit = limit;
        self
    }

    /// Sets the maximum number of subscriptions of one executor.
    ///
    /// Defaults to 256.
    #[must_use]
    pub fn max_subscriptions(mut self, most: usize) -> Self {
        self.max_subscriptions = most;
        self
    }

    /// Sets the maximum number of conditions in the subscriptions of one executor, or in the approval rules of one agent.
    ///
    /// Defaults to 1,000.
    #[must_use]
    pub fn max_conditions(mut self, most: usize) -> Self {
        self.max_conditions = most;
        self
    }

    /// Sets the maximum number of regular expressions (`matches`) in the subscriptions of one executor, or in the approval rules
    /// of one agent.
    ///
    /// Defaults to 100. Each regular expression takes up to 256 KiB of memory.
    #[must_use]
    pub fn max_regexes(mut self, most: usize) -> Self {
        self.max_regexes = most;
        self
    }

    /// Sets the policy for the default role of subscriptions that omit `role`.
    ///
    /// Defaults to no policy: a subscription without `role` is an error.
    #[must_use]
    pub fn roles(mut self, policy: RolePolicy) -> Self {
        self.roles = Some(policy);
        self
    }

    /// Sets the policy for the default key of context subscriptions that omit `key`.
    ///
    /// Defaults to no policy: the schema name is the key.
    #[must_use]
    pub fn keys(mut self, policy: KeyPolicy) -> Self {
        self.keys = Some(policy);
        self
    }

    /// Makes each unknown field of an agent, tool, workflow or subscription definition an error. Use this mode for definitions in
    /// files, whose authors can fix the errors.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Subscriptions;
    /// use universal_executor::model::DefinitionOptions;
    ///
    /// let definition = json!([{"schema_name": "order.v1", "role": "trigger", "colour": "red"}]);
    /// assert!(Subscriptions::from_json(&definition).is_ok());
    /// let strict = DefinitionOptions::default().strict();
    /// assert!(Subscriptions::from_json_with(&definition, &strict).is_err());
    /// ```
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Applies the rules of an RCRT (Right Context Right Time) server to agent, tool and other definitions that are read with these
    /// options.
    ///
    /// - The field `llm_config_id` names the configuration of the model tool. See
    ///   [`Services::model_tool`](crate::Services::model_tool).
    /// - An agent with `"can_create_breadcrumbs": true` and without `responds_with` may create breadcrumbs of every schema by its
    ///   [actions](crate::agent#actions), except protected ones. Its tools may write `agent.response.v1` only.
    /// - An agent with `can_create_breadcrumbs` may request tools
    ///   [in its answers](crate::agent#tool-requests-in-an-answer).
    /// - An agent with `"can_create_breadcrumbs": true`, without `tools` and without `"can_use_tools": false` may call every tool that
    ///   the service registers for its agents. It calls them by breadcrumbs, unless the definition has `tool_calls`.
    ///
    /// Protected schemas are definitions, requests, answers of people and tools, dead letters, parts of sessions, and all
    /// schemas whose names start with `tool.`, `user.` or `system.`.
    ///
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::AgentDefinition;
    /// use universal_executor::model::DefinitionOptions;
    ///
    /// let definition = json!({
    ///     "agent_id": "note-tagger", "system_prompt": "Tag the note.",
    ///     "capabilities": {"can_create_breadcrumbs": true},
    ///     "subscriptions": [{"schema_name": "note.v1", "role": "trigger"}],
    /// });
    ///
    /// let rcrt = AgentDefinition::from_json_with(&definition, &DefinitionOptions::default().rcrt())?;
    ///
    /// assert!(rcrt.creates_any_schema);
    /// assert!(!AgentDefinition::from_json(&definition)?.creates_any_schema);
    /// # Ok::<(), universal_executor::agent::AgentError>(())
    /// ```
    #[must_use]
    pub fn rcrt(mut self) -> Self {
        self.rcrt = true;
        self
    }
}
