use super::Approval;
use crate::executor::{Profile, RetryPolicy};
use serde_json::Value;
use std::num::NonZeroUsize;
use std::sync::LazyLock;
use std::time::Duration;

/// Settings of a tool, such as timeout, retry safety and limits. They apply to every caller and every way to call the tool.
///
/// Tools of [`json_tool`](super::json_tool), `tool_fn`,
/// [`json_tool_blocking`](super::json_tool_blocking) and [`remote_tool`](super::remote_tool) have
/// one method for each setting. A type that implements [`Tool`](super::Tool) stores its settings
/// and returns them from [`settings`](super::Tool::settings).
///
/// # Examples
/// ```
/// use std::num::NonZeroUsize;
/// use std::time::Duration;
/// use universal_executor::tool::{RetrySafety, ToolSettings};
///
/// let mut settings = ToolSettings::default();
/// assert_eq!(settings.timeout, Duration::from_secs(30));
/// assert_eq!(settings.retry, RetrySafety::Once);
/// assert_eq!(settings.max_output_bytes, 128 * 1024);
///
/// settings.timeout = Duration::from_secs(5);
/// settings.max_concurrent = NonZeroUsize::new(4);
/// settings.permission_tags = vec!["egress".to_owned()];
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolSettings {
    /// Timeout of a tool call, including the wait for a permit of [`max_concurrent`](Self::max_concurrent). Defaults to 30 s.
    ///
    /// A call that exceeds the timeout is answered with the error `timeout` in the run of an agent.
    /// In a [`ToolExecutor`](super::ToolExecutor) or [`ToolDispatcher`](super::ToolDispatcher),
    /// [`retry`](Self::retry) decides whether the call is repeated.
    pub timeout: Duration,
    /// Maximum number of concurrent calls of the tool in this process, or `None` (the default) for no limit.
    ///
    /// Each registration of the tool, and each executor for it, has its own limit. Clones of a registry share the limit. To have a
    /// single limit, register the tool once and pass the registry to all callers. A blocking function counts until it returns, even
    /// after its call has timed out.
    ///
    /// A call waits for a permit for at most half of its timeout. Within the run of an agent, the model then receives the error `busy`.
    /// The run of a request is retried later, except for a tool that runs [at most once](RetrySafety::AtMostOnce), whose request is
    /// answered with the error `busy`.
    pub max_concurrent: Option<NonZeroUsize>,
    /// Rule that decides if an interrupted tool call is retried. Defaults to [`RetrySafety::Once`].
    pub retry: RetrySafety,
    /// User-defined tags for the capabilities of a tool, such as `egress` or `destructive`, by which the permissions of a caller
    /// allow tools. See [`ToolPermissions`](super::ToolPermissions).
    ///
    /// Defaults to no tags.
    pub permission_tags: Vec<String>,
    /// The JSON Schema of the tool's output, or `None` (the default) for any output.
    ///
    /// Outputs are checked only with the feature `validate`. An output that does not match is
    /// replaced by the error `invalid_output`. An invalid schema is
    /// [`ToolError::BadSchema`](super::ToolError::BadSchema) at the registration.
    pub output_schema: Option<Value>,
    /// Maximum size of the tool's output in bytes. A larger output is an error. Defaults to 128 KiB, which is also the maximum size
    /// of a result that an agent saves.
    pub max_output_bytes: usize,
    /// The rules that select the calls of the tool that need the approval of a person. Defaults to no rules.
    ///
    /// A call without a needed approval is answered with the error `approval_required`, for every way to call the tool. An agent or a
    /// flow asks a person before it makes such a call. The author of a request need not be a person, so a
    /// [`ToolExecutor`](super::ToolExecutor) and a [`ToolDispatcher`](super::ToolDispatcher) also answer such a request with the error,
    /// unless [`trusting_requests`](super::ToolExecutor::trusting_requests) is set.
    pub approvals: Vec<Approval>,
    /// If `true`, the calling agent uses the output of the tool as the agent's own answer. Defaults to `false`.
    ///
    /// An agent that calls such a tool ends with the output of the tool and does not call its model again, unless the model calls other
    /// tools in the same turn. An error does not end the run: the model receives the error as from any other tool. Requests in breadcrumbs
    /// are answered as usual.
    ///
    /// For tool requests that a model writes as JSON, `"return_to_llm": false` has the same meaning.
    pub returns_to_user: bool,
    /// If `true`, an agent writes a `tool.request.v1` and waits for the `tool.response.v1`, instead of calling the tool in its own
    /// process. Defaults to `false`. Use this setting for a slow tool. A [`remote_tool`](super::remote_tool) has the setting.
    pub over_breadcrumbs: bool,
    /// The process that serves the tool. Set by the constructor of the tool.
    pub(super) served_by: ServedBy,
}

/// Process that serves a tool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ServedBy {
    /// This process serves the tool.
    ThisProcess,
    /// Another service serves the tool, and answers the tool requests.
    OtherService,
}

/// Rule that decides if a tool call is retried after a crash of its worker, a timeout or a panic. The variants are in order of
/// strictness.
///
/// The decision applies to a request, which has its own run, and to a call that was in flight when the worker of an agent's run was
/// lost. Nothing else is retried in an agent's run: after a timeout, a panic or [`retry_after`](crate::retry_after), the model receives
/// an error, and may make another call with another ID. A run that is [redone](crate::RunLedger::redo) repeats its calls regardless of
/// this setting.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::tool::{RetrySafety, Tool, json_tool};
///
/// let tool = || json_tool("pay", "Pays.", json!({}), |_, _| async { Ok(json!("paid")) });
///
/// assert_eq!(tool().settings().retry, RetrySafety::Once);
/// assert_eq!(tool().idempotent().settings().retry, RetrySafety::Idempotent);
/// assert_eq!(tool().at_most_once().settings().retry, RetrySafety::AtMostOnce);
/// assert!(RetrySafety::Idempotent < RetrySafety::Once);
/// assert!(RetrySafety::Once < RetrySafety::AtMostOnce);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum RetrySafety {
    /// Repeated calls of the tool do no harm, so an interrupted call is retried with the same
    /// [key](super::ToolContext::idempotency_key).
    ///
    /// Use it for reads, and for writes to services that accept the key. A request has up to 5
    /// attempts, see [`RetryPolicy`](crate::executor::RetryPolicy) for the delays between them.
    Idempotent,
    /// An interrupted tool call is not retried, and the requester receives an error, for example `outcome_unknown` after a crash.
    /// This is the default.
    ///
    /// A tool that returns [`retry_after`](crate::retry_after) declares that it did nothing, and is called again. A tool whose runtime
    /// shuts down may also be called again.
    #[default]
    Once,
    /// An interrupted tool call is not retried, and a request is never executed again, not even after
    /// [`retry_after`](crate::retry_after) or a shutdown of the runtime. Only a tool that [suspends](crate::suspend) the run of
    /// its request is called again, to resume. Needs a store with a run ledger.
    AtMostOnce,
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            max_concurrent: None,
            retry: RetrySafety::default(),
            permission_tags: Vec::new(),
            output_schema: None,
            max_output_bytes: 128 << 10,
            approvals: Vec::new(),
            returns_to_user: false,
            over_breadcrumbs: false,
            served_by: ServedBy::ThisProcess,
        }
    }
}

impl ToolSettings {
    /// Returns the default settings, for a tool that does not override `settings`.
    pub(super) fn standard() -> &'static Self {
        static STANDARD: LazyLock<ToolSettings> = LazyLock::new(ToolSettings::default);
        &STANDARD
    }

    /// Returns an executor's profile with the timeout and the retries of these tool settings.
    pub(super) fn apply(&self, profile: Profile) -> Profile {
        self.retry.apply(profile.timeout(self.timeout))
    }
}

impl RetrySafety {
    /// Returns `true` if a tool call is repeated although an earlier attempt may have made the call. Otherwise the outcome of the call is
    /// unknown.
    #[cfg(feature = "agents")]
    pub(crate) fn allows_repeat(self) -> bool {
        self <= Self::Idempotent
    }

    pub(super) fn apply(self, profile: Profile) -> Profile {
        match self {
            Self::Idempotent => profile.retry(RetryPolicy::default()),
            Self::Once => profile.retry(RetryPolicy::never()),
            Self::AtMostOnce => profile.retry(RetryPolicy::never()).at_most_once(),
        }
    }
}

/// Implements the builder methods for the settings of a tool type.
macro_rules! with_settings {
    ($tool:ty) => {
        impl $tool {
            /// Sets the timeout of a tool call, including the wait for a permit of `max_concurrent`. Defaults to 30 s.
            ///
            /// See [`ToolSettings::timeout`]($crate::tool::ToolSettings::timeout) for the result of
            /// a longer call.
            #[must_use]
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.settings.timeout = timeout;
                self
            }

            /// Sets the maximum number of concurrent calls of the tool in this process. Defaults to no limit. See
            /// [`ToolSettings::max_concurrent`]($crate::tool::ToolSettings::max_concurrent) for the scope of the limit and for calls
            /// beyond it.
            #[must_use]
            pub fn max_concurrent(mut self, calls: std::num::NonZeroUsize) -> Self {
                self.settings.max_concurrent = Some(calls);
                self
            }

            /// Declares that repeated calls of the tool do no harm, so that a call is retried after a crash, a timeout or a
            /// panic.
            ///
            /// Without this method, an interrupted call is not repeated. See
            /// [`RetrySafety`]($crate::tool::RetrySafety).
            #[must_use]
            pub fn idempotent(mut self) -> Self {
                self.settings.retry = $crate::tool::RetrySafety::Idempotent;
                self
            }

            /// Never calls the tool a second time for one request: see
            /// [`RetrySafety::AtMostOnce`]($crate::tool::RetrySafety::AtMostOnce).
            ///
            /// A [`ToolExecutor`]($crate::tool::ToolExecutor) for the tool needs a store with a run
            /// ledger.
            #[must_use]
            pub fn at_most_once(mut self) -> Self {
                self.settings.retry = $crate::tool::RetrySafety::AtMostOnce;
                self
            }

            /// Adds tags for the capabilities of a tool call, such as `egress`: see
            /// [`ToolPermissions`]($crate::tool::ToolPermissions).
            ///
            /// A second call adds to the tags of the first.
            #[must_use]
            pub fn permission_tags<T: Into<String>>(
                mut self,
                tags: impl IntoIterator<Item = T>,
            ) -> Self {
                let tags = tags.into_iter().map(Into::into);
                self.settings.permission_tags.extend(tags);
                self
            }

            /// Sets the JSON Schema of the tool's output.
            ///
            /// Outputs are checked only with the feature `validate`. Defaults to no schema: any
            /// output passes.
            #[must_use]
            pub fn output_schema(mut self, schema: serde_json::Value) -> Self {
                self.settings.output_schema = Some(schema);
                self
            }

            /// Sets the maximum size of the tool's output in bytes. A larger output is an error. Defaults to 128 KiB.
            #[must_use]
            pub fn max_output_bytes(mut self, bytes: usize) -> Self {
                self.settings.max_output_bytes = bytes;
                self
            }

            /// Adds a rule that selects calls of the tool that need the approval of a person: see
            /// [`ToolSettings::approvals`]($crate::tool::ToolSettings::approvals).
            ///
            /// A second call adds a second rule. A call needs an approval if at least one rule
            /// applies to it.
            #[must_use]
            pub fn needs_approval(mut self, rule: $crate::tool::Approval) -> Self {
                self.settings.approvals.push(rule);
                self
            }

            /// Makes the result of the tool the answer of the calling agent: see
            /// [`ToolSettings::returns_to_user`]($crate::tool::ToolSettings::returns_to_user).
            #[must_use]
            pub fn returns_to_user(mut self) -> Self {
                self.settings.returns_to_user = true;
                self
            }

            /// Makes agents call the tool with a request breadcrumb, and wait for the response: see
            /// [`ToolSettings::over_breadcrumbs`]($crate::tool::ToolSettings::over_breadcrumbs).
            #[must_use]
            pub fn over_breadcrumbs(mut self) -> Self {
                self.settings.over_breadcrumbs = true;
                self
            }
        }
    };
}

pub(crate) use with_settings;
