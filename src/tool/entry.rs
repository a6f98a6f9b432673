//! A tool that was checked, and what every way to call it goes through.

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
    /// The tool as the service registered it, without the name and description that a definition gives it.
    #[cfg(feature = "agents")]
    pub(super) registered: Arc<dyn Tool>,
    /// Where it was registered.
    pub(super) place: &'static Location<'static>,
    /// What a model is told of it, made once and shared from then on.
    pub(super) spec: ToolSpec,
    input: Checker,
    output: Option<Checker>,
    /// One permit for each call that may go on at a time.
    slots: Option<Arc<Semaphore>>,
}

impl Entry {
    /// Checks a tool: its name, its schemas.
    pub(super) fn new(
        tool: Arc<dyn Tool>,
        place: &'static Location<'static>,
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
        let slots = settings.max_concurrent.map(|calls| {
            let permits = calls.get().min(Semaphore::MAX_PERMITS);
            Arc::new(Semaphore::new(permits))
        });
        Ok(Self {
            spec: ToolSpec::of(&*tool),
            #[cfg(feature = "agents")]
            registered: Arc::clone(&tool),
            tool,
            place,
            input,
            output,
            slots,
        })
    }

    /// The same tool, as one that another service serves.
    #[cfg(feature = "agents")]
    pub(super) fn elsewhere(&self) -> Self {
        Self {
            tool: Arc::new(RemoteTool::of(&*self.tool)),
            registered: Arc::clone(&self.registered),
            place: self.place,
            spec: self.spec.clone(),
            input: self.input.clone(),
            output: self.output.clone(),
            // Who serves it has places for its calls.
            slots: None,
        }
    }

    /// The same tool under another name, with the same limits.
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
            place: self.place,
            input: self.input.clone(),
            output: self.output.clone(),
            slots: self.slots.clone(),
        })
    }

    /// Whether it may be called with this.
    pub(super) fn check_input(&self, input: &Value) -> Result<(), Refusal> {
        self.input.check(input).map_err(|reason| {
            let message = format!("the input does not fit the schema: {reason}");
            Refusal::new("invalid_input", message)
        })
    }

    /// Calls the tool: its input is checked before, its output after. A call that needs an approval and has none is refused
    /// here and nowhere else. The time it has is the caller's to keep.
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
        let slot = self.slot(time).await?.map(Arc::new);
        let context = context.in_slot(slot.as_ref());
        let output = self.tool.call(input, context).await?;
        match self.refuse(&output) {
            None => Ok(output),
            Some(refusal) => {
                dismantle(output);
                Err(refusal.into())
            }
        }
    }

    /// Calls the tool within somebody else's run: however it ends, the run goes on.
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
            // What a panic says may be a secret.
            Some(Err(_)) => outcome::error("panic", "the tool panicked"),
            None => {
                let message =
                    format!("the tool had no result within {time:?}; it may have done its work");
                outcome::error("timeout", message)
            }
        }
    }

    /// A place among the calls that may go on, in turn. It is given back when this call ends or is given up, or when a
    /// function on a thread has returned, which may be later. A call that has waited for half of its time would hardly end
    /// in what is left of it, and one that never began is better off with an error than with an unknown outcome.
    async fn slot(&self, time: Duration) -> Result<Option<OwnedSemaphorePermit>, BoxError> {
        let Some(slots) = &self.slots else {
            return Ok(None);
        };
        let turn = Arc::clone(slots).acquire_owned();
        match within(time / 2, turn).await {
            Some(permit) => Ok(Some(permit?)),
            None => {
                let message = "the tool has as many calls as it takes at a time; it was not called, try again later";
                Err(Refusal::new(BUSY, message).into())
            }
        }
    }

    /// Why an output is none that could be handed on, if so.
    pub(super) fn refuse(&self, output: &Value) -> Option<Refusal> {
        let most = self.tool.settings().max_output_bytes;
        let size = match size_within(output, OUTPUT_DEPTH) {
            Ok(size) => size,
            Err(unfit) => {
                let message = format!("the output {unfit}");
                return Some(Refusal::new("output_too_large", message));
            }
        };
        if size > most {
            let message = format!("the output has {size} bytes where at most {most} are allowed");
            return Some(Refusal::new("output_too_large", message));
        }
        let reason = self.output.as_ref()?.check(output).err()?;
        let message = format!("the tool is broken, its output does not fit its schema: {reason}");
        Some(Refusal::new("invalid_output", message))
    }
}

/// The approval of a call, as far as its caller knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ApprovalState {
    /// No person has approved the tool call, or the code that makes the call does not know whether someone has.
    Missing,
    /// A person has approved the call, if it needs an approval.
    Given,
}

/// The code of a call that did not get its turn.
pub(super) const BUSY: &str = "busy";

const APPROVAL_REQUIRED: &str =
    "a person has to approve this call and nobody has; the tool was not called, so ask one first";

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.tool.name()).finish()
    }
}

fn is_name(name: &str) -> bool {
    let allowed =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    (1..=64).contains(&name.len()) && name.chars().all(allowed)
}
