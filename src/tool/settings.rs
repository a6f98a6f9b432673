use super::Approval;
use crate::executor::{Profile, RetryPolicy};
use serde_json::Value;
use std::num::NonZeroUsize;
use std::sync::LazyLock;
use std::time::Duration;

/// How a tool wants to be called; stands with the tool, and holds whoever calls it and by whichever way.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolSettings {
    /// How long a call may take, the wait for its turn included; 30 s by default.
    pub timeout: Duration,
    /// How many calls of it go on at a time in this process; any number if absent.
    ///
    /// They are counted for each time the tool is registered or made an executor; clones of a registry count together. To
    /// have one limit register the tool once, and give the registry to all who call it. A function that blocks counts
    /// until it has returned, although its time may be up long before.
    ///
    /// A call waits for half of its time at the most. Within a run of an agent the model is then told `busy`. A request is
    /// given back and tried again later, that of a tool that runs [at most once](RetrySafety::AtMostOnce) apart, which is
    /// answered with `busy`.
    pub max_concurrent: Option<NonZeroUsize>,
    /// Whether an interrupted call is made again.
    pub retry: RetrySafety,
    /// User-defined capabilities of a call, such as `egress` or `destructive`: see [`ToolPermissions`](super::ToolPermissions).
    pub permission_tags: Vec<String>,
    /// The JSON Schema of its output, if it has one.
    pub output_schema: Option<Value>,
    /// The most bytes of its output; 128 KiB by default, as much as an agent keeps of one result. More is an error.
    pub max_output_bytes: usize,
    /// The rules about calls that need the approval of a person; none by default.
    ///
    /// A call that needs an approval and has none is answered with the error `approval_required`, by whichever way it comes. An
    /// agent or a flow asks a person before it makes such a call. The author of a request need not be a person, so a
    /// [`ToolExecutor`](super::ToolExecutor) and a [`ToolDispatcher`](super::ToolDispatcher) answer it with the error too,
    /// unless they are told that whoever writes requests has asked: see
    /// [`trusting_requests`](super::ToolExecutor::trusting_requests).
    pub approvals: Vec<Approval>,
    /// Whether its result is the answer of the run that calls it; false by default.
    ///
    /// An agent that calls such a tool ends with its output and does not ask its model again. An error does not end the
    /// run, but is told to the model as that of any other tool. A request by a breadcrumb is answered as ever.
    ///
    /// In requests for tools that a model writes as JSON the same is said by `"return_to_llm": false`.
    pub returns_to_user: bool,
    /// Whether an agent reaches it by a `tool.request.v1` and waits for the `tool.response.v1`, in place of calling it in
    /// its own process; false by default. That is for a tool that takes long, or that is served elsewhere: see
    /// [`remote_tool`](super::remote_tool).
    pub over_breadcrumbs: bool,
    /// Where it does its work. Set by who makes the tool, for nobody else to change.
    pub(super) place: Place,
}

/// Where a tool does its work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// In this process.
    Here,
    /// In another service, which serves the requests for it.
    Elsewhere,
}

/// Whether a call is made again after its worker crashed, its time was up or it panicked. In order of caution.
///
/// It says what becomes of a request, which is a run of its own, and of a call that was under way when the worker of an
/// agent's run was lost. In an agent's run nothing else is made again: a timeout, a panic or
/// [`retry_after`](crate::retry_after) is an error that the model sees, and which may lead it to another call, of another
/// id. A run that is [redone](crate::RunLedger::redo) makes its calls anew, whatever stands here.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum RetrySafety {
    /// Calling it twice does no harm: it is tried again, with the same
    /// [key](super::ToolContext::idempotency_key).
    Idempotent,
    /// It is not: whoever asked learns that the outcome is unknown. A tool that returns
    /// [`retry_after`](crate::retry_after) says of itself that it did nothing, and is called again; so may be one whose
    /// runtime is shut down. The default.
    #[default]
    Once,
    /// As [`Once`](Self::Once), and a request is not executed again either because the tool says of itself that it did
    /// nothing, or because its runtime is shut down. Only a tool that [suspends](crate::suspend) the run of its request is
    /// called again, to go on. Needs a store with a run ledger.
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
            place: Place::Here,
        }
    }
}

impl ToolSettings {
    /// Those of a tool that says nothing about itself.
    pub(super) fn standard() -> &'static Self {
        static STANDARD: LazyLock<ToolSettings> = LazyLock::new(ToolSettings::default);
        &STANDARD
    }

    /// A profile as these settings ask for.
    pub(super) fn apply(&self, profile: Profile) -> Profile {
        self.retry.apply(profile.timeout(self.timeout))
    }
}

impl RetrySafety {
    /// Whether a call that may have been made is made again. If not, its outcome is unknown.
    #[cfg(feature = "agents")]
    pub(crate) fn may_be_made_again(self) -> bool {
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

/// The methods by which a tool made of a function is given its settings.
macro_rules! with_settings {
    ($tool:ty) => {
        impl $tool {
            /// Sets how long a call may take, the wait for its turn included; 30 s by default.
            #[must_use]
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.settings.timeout = timeout;
                self
            }

            /// Sets how many calls of it go on at a time in this process; any number by default. See
            /// [`ToolSettings::max_concurrent`]($crate::tool::ToolSettings::max_concurrent) for what counts, and what
            /// becomes of a call that does not get its turn.
            #[must_use]
            pub fn max_concurrent(mut self, calls: std::num::NonZeroUsize) -> Self {
                self.settings.max_concurrent = Some(calls);
                self
            }

            /// Says that calling it twice does no harm: after a crash, a timeout or a panic it is tried again.
            #[must_use]
            pub fn idempotent(mut self) -> Self {
                self.settings.retry = $crate::tool::RetrySafety::Idempotent;
                self
            }

            /// Does not call it again for one request once it may have begun: see
            /// [`RetrySafety::AtMostOnce`]($crate::tool::RetrySafety::AtMostOnce).
            #[must_use]
            pub fn at_most_once(mut self) -> Self {
                self.settings.retry = $crate::tool::RetrySafety::AtMostOnce;
                self
            }

            /// Adds tags for the capabilities of a call, such as `egress`: see [`ToolPermissions`]($crate::tool::ToolPermissions).
            #[must_use]
            pub fn permission_tags<T: Into<String>>(
                mut self,
                tags: impl IntoIterator<Item = T>,
            ) -> Self {
                let tags = tags.into_iter().map(Into::into);
                self.settings.permission_tags.extend(tags);
                self
            }

            /// Sets the JSON Schema of its output.
            #[must_use]
            pub fn output_schema(mut self, schema: serde_json::Value) -> Self {
                self.settings.output_schema = Some(schema);
                self
            }

            /// Sets the most bytes of its output; 128 KiB by default. More is an error.
            #[must_use]
            pub fn max_output_bytes(mut self, bytes: usize) -> Self {
                self.settings.max_output_bytes = bytes;
                self
            }

            /// Adds a rule about calls that need the approval of a person: see
            /// [`ToolSettings::approvals`]($crate::tool::ToolSettings::approvals).
            #[must_use]
            pub fn needs_approval(mut self, rule: $crate::tool::Approval) -> Self {
                self.settings.approvals.push(rule);
                self
            }

            /// Says that its result is the answer of the run that calls it: see
            /// [`ToolSettings::returns_to_user`]($crate::tool::ToolSettings::returns_to_user).
            #[must_use]
            pub fn returns_to_user(mut self) -> Self {
                self.settings.returns_to_user = true;
                self
            }

            /// Says that an agent reaches it by a request and waits for the response: see
            /// [`ToolSettings::over_breadcrumbs`]($crate::tool::ToolSettings::over_breadcrumbs).
            #[must_use]
            pub fn over_breadcrumbs(mut self) -> Self {
                self.settings.over_breadcrumbs = true;
                self
            }
        }
    };
}

pub(super) use with_settings;
