//! A registered tool whose name and schemas are valid, with the checks that run in every call of the tool.

#[cfg(feature = "agents")]
use super::RemoteTool;
use super::outcome::{self, OUTPUT_DEPTH, Refusal};
#[cfg(feature = "workflows")]
use super::renamed::Renaming;
use super::schema::Checker;
use super::{Tool, ToolContext, ToolError, ToolSpec};
use crate::clock::within;
use crate::error::{BoxError, excerpt};
use crate::machine::ToolOutcome;
use crate::model::{dismantle, size_within};
use futures::FutureExt as _;
use serde_json::Value;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct Entry {
    pub(super) tool: Arc<dyn Tool>,
    /// The tool with its name and description from the registration, even if a workflow definition renames the tool.
    #[cfg(feature = "agents")]
    pub(super) registered: Arc<dyn Tool>,
    /// The source location of the tool's registration.
    pub(super) location: &'static Location<'static>,
    /// The description of the tool for a model, created once and shared.
    pub(super) spec: ToolSpec,
    input: Checker,
    output: Option<Checker>,
    /// One permit for each concurrent call of the tool, or `None` without a limit.
    semaphore: Option<Arc<Semaphore>>,
}

impl Entry {
    /// Checks the name of a tool, and compiles its schemas.
    pub(super) fn new(
        tool: Arc<dyn Tool>,
        location: &'static Location<'static>,
    ) -> Result<Self, ToolError> {
        if !is_name(tool.name()) {
            return Err(ToolError::BadName {
                name: excerpt(tool.name(), 80).into_owned(),
            });
        }
        let compile = |which, schema: &Value| {
            Checker::compile(schema).map_err(|reason| ToolError::BadSchema {
                name: tool.name().to_owned(),
                which,
                reason,
            })
        };
        let settings = tool.settings();
        let input = compile("input", tool.input_schema())?;
        let output = settings.output_schema.as_ref();
        let output = output.map(|schema| compile("output", schema)).transpose()?;
        let semaphore = settings.max_concurrent.map(|calls| {
            let permits = calls.get().min(Semaphore::MAX_PERMITS);
            Arc::new(Semaphore::new(permits))
        });
        Ok(Self {
            spec: ToolSpec::of(&*tool),
            #[cfg(feature = "agents")]
            registered: Arc::clone(&tool),
            tool,
            location,
            input,
            output,
            semaphore,
        })
    }

    /// Returns the registered tool as a remote tool, which another service serves.
    #[cfg(feature = "agents")]
    pub(super) fn as_remote(&self) -> Self {
        Self {
            tool: Arc::new(RemoteTool::of(&*self.tool)),
            registered: Arc::clone(&self.registered),
            location: self.location,
            spec: self.spec.clone(),
            input: self.input.clone(),
            output: self.output.clone(),
            // The service that serves the tool limits the concurrent calls.
            semaphore: None,
        }
    }

    /// Returns the registered tool under another name. Both names share the limit on concurrent calls.
    #[cfg(feature = "workflows")]
    pub(super) fn renamed(&self, renaming: &Renaming<'_>) -> Result<Self, ToolError> {
        if !is_name(renaming.name) {
            return Err(ToolError::BadName {
                name: excerpt(renaming.name, 80).into_owned(),
            });
        }
        let tool = renaming.apply(Arc::clone(&self.tool));
        Ok(Self {
            spec: ToolSpec::of(&tool),
            tool: Arc::new(tool),
            registered: Arc::clone(&self.registered),
            location: self.location,
            input: self.input.clone(),
            output: self.output.clone(),
            semaphore: self.semaphore.clone(),
        })
    }

    /// Checks the input of a call against the input schema of the tool.
    pub(super) fn check_input(&self, input: &Value) -> Result<(), Refusal> {
        self.input.check(input).map_err(|reason| {
            let message = format!("the input does not fit the schema: {reason}");
            Refusal::new("invalid_input", message)
        })
    }

    /// Calls the tool, or refuses the call if the input is invalid or a needed approval is missing. Checks the input before the
    /// call and the output after the call. This is the only function that refuses a call without a needed approval.
    ///
    /// `time` is the timeout of the call. The caller enforces it.
    pub(super) async fn work(
        &self,
        input: Value,
        context: ToolContext,
        time: Duration,
        approval: ApprovalState,
    ) -> Result<Value, BoxError> {
        let mut rules = self.tool.settings().approvals.iter();
        if approval == ApprovalState::Missing && rules.any(|rule| rule.applies_to(&input)) {
            return Err(Refusal::new("approval_required", APPROVAL_REQUIRED).into());
        }
        self.check_input(&input)?;
        let permit = self.acquire_permit(time).await?.map(Arc::new);
        let context = context.with_permit(permit.as_ref());
        let output = self.tool.call(input, context).await?;
        match self.refuse(&output) {
            None => Ok(output),
            Some(refusal) => {
                dismantle(output);
                Err(refusal.into())
            }
        }
    }

    /// Calls the tool within the run of another executor. Errors, panics and timeouts become outcomes, so the run continues.
    pub(super) async fn call(
        &self,
        input: Value,
        context: ToolContext,
        approval: ApprovalState,
    ) -> ToolOutcome {
        let time = self.tool.settings().timeout;
        let work = AssertUnwindSafe(self.work(input, context, time, approval)).catch_unwind();
        match within(time, work).await {
            Some(Ok(called)) => outcome::of(called),
            // The message of a panic may contain a secret.
            Some(Err(_)) => outcome::error("panic", "the tool panicked"),
            None => {
                let message =
                    format!("the tool had no result within {time:?}; it may have done its work");
                outcome::error("timeout", message)
            }
        }
    }

    /// Waits for one of the tool's permits for concurrent calls, for at most half of the timeout. Returns `None` without a limit.
    ///
    /// The permit is released when the call ends, or when a blocking function returns, which may be later. A call that waited longer
    /// would hardly end in the remaining time, and an error before the call is better than an unknown outcome.
    async fn acquire_permit(
        &self,
        time: Duration,
    ) -> Result<Option<OwnedSemaphorePermit>, BoxError> {
        let Some(semaphore) = &self.semaphore else {
            return Ok(None);
        };
        let permit = Arc::clone(semaphore).acquire_owned();
        match within(time / 2, permit).await {
            Some(permit) => Ok(Some(permit?)),
            None => {
                let message = "the tool already has the maximum number of concurrent calls; it was not called, so retry later";
                Err(Refusal::new(BUSY, message).into())
            }
        }
    }

    /// Returns the reason why an output of the tool cannot be used as a result, or `None` if it can.
    pub(super) fn refuse(&self, output: &Value) -> Option<Refusal> {
        let limit = self.tool.settings().max_output_bytes;
        let size = match size_within(output, OUTPUT_DEPTH) {
            Ok(size) => size,
            Err(unfit) => {
                let message = format!("the output {unfit}");
                return Some(Refusal::new("output_too_large", message));
            }
        };
        if size > limit {
            let message = format!("the output has {size} bytes where at most {limit} are allowed");
            return Some(Refusal::new("output_too_large", message));
        }
        let reason = self.output.as_ref()?.check(output).err()?;
        let message =
            format!("the tool is broken, because its output does not fit its schema: {reason}");
        Some(Refusal::new("invalid_output", message))
    }
}

/// Approval of a tool call by a person, as known to the caller of the tool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ApprovalState {
    /// No person has approved the tool call, or the caller does not know of an approval.
    Missing,
    /// The tool call needs no further approval: a person has approved the call, or no approval is required.
    Given,
}

/// Error code of a tool call that waited too long for a permit under the tool's limit on concurrent calls.
pub(super) const BUSY: &str = "busy";

const APPROVAL_REQUIRED: &str =
    "a person has to approve this call and nobody has; the tool was not called, so ask one first";

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.tool.name()).finish()
    }
}

pub(crate) fn is_name(name: &str) -> bool {
    let allowed =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    (1..=64).contains(&name.len()) && name.chars().all(allowed)
}
