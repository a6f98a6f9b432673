//! Driver of flows: executes the steps that the interpreter returns, and reports their outcomes to it.

mod agent;
mod agent_run;
mod approvals;
mod assembly;
mod assembly_error;
mod attempt;
mod attempt_end;
mod checkpoint;
mod control;
mod conversations;
mod event;
mod guard;
mod model;
mod model_tap;
mod next_check;
mod outcome;
mod pinned_definitions;
mod poll;
mod run_options;
mod saving;
mod size_limits;
mod step;
mod step_breadcrumbs;
mod wait_matches;
mod waiting;
mod yielding;

pub use assembly::Assembly;
pub use assembly_error::AssemblyError;
pub use checkpoint::FlowStateError;
pub use control::Control;
pub(crate) use conversations::{Answered, Conversations};
pub use event::{EventSink, StepEvent, StepEventKind};
pub use run_options::{Driven, RunOptions};

use super::FlowRun;
use crate::error::{BoxError, permanent};
use crate::executor::ExecutionContext;
use attempt::Drive;
use checkpoint::SavedCheckpoint;
use std::sync::Arc;

/// Schema of the breadcrumbs with the events of a flow run.
pub(crate) const PROGRESS: &str = "workflow.progress.v1";

/// Maximum number of steps that the interpreter begins before the driver yields to other tasks and polls for control orders
/// (cancel, pause or resume).
const STRIDE: u64 = 256;

impl Assembly {
    /// Runs a flow until it ends or is suspended.
    ///
    /// If the context has a [saved state](ExecutionContext::resumed), the run continues from there, with the definition with which it
    /// began. The run ID is the [idempotency key](ExecutionContext::idempotency_key) of the context. The context saves the state before
    /// a step begins and after a step ends. On a store without a ledger nothing is saved, and a retry starts the flow from the beginning.
    ///
    /// # Errors
    /// Returns a [`FlowStateError`] if the state is too large or cannot be read, and errors of the store or the lease. A failure of a step
    /// is not an error: the flow handles it.
    ///
    /// # Cancel safety
    /// All work happens within this future. Dropping it stops the run, and a retry continues from the last saved state. Steps that were in
    /// flight then begin again, as the section [What a driver does](crate::workflow#what-a-driver-does) describes.
    pub async fn drive(
        &self,
        context: &ExecutionContext,
        options: RunOptions,
    ) -> Result<Driven, BoxError> {
        let Some(resumed) = context.resumed() else {
            return self.begin(context, options).await;
        };
        let unreadable = |error| permanent(FlowStateError::Unreadable(error));
        let saved: SavedCheckpoint = resumed.state.parse().map_err(unreadable)?;
        if saved.progress.definition() == self.workflow().hash() {
            return self.resume(context, options, saved).await;
        }
        match self.with_pinned_definition(&saved.progress).await? {
            Ok(pinned) => pinned.resume(context, options, saved).await,
            Err(refused) => Ok(Driven::Refused(refused)),
        }
    }

    async fn begin(
        &self,
        context: &ExecutionContext,
        options: RunOptions,
    ) -> Result<Driven, BoxError> {
        let key = context.idempotency_key();
        let (flow, input) = (&options.flow, options.input.clone());
        let workflow = Arc::clone(self.workflow());
        let (run, next) = match FlowRun::begin_in_strides(STRIDE, workflow, flow, key, input) {
            Ok(begun) => begun,
            Err(refused) => return Ok(Driven::Refused(refused)),
        };
        let mut drive = Drive::new(self, context, options, run);
        Box::pin(drive.mark_existing()).await?;
        drive.apply(next);
        // A control order can exist before the run begins.
        Box::pin(drive.poll()).await?;
        drive.run().await
    }

    async fn resume(
        &self,
        context: &ExecutionContext,
        options: RunOptions,
        saved: SavedCheckpoint,
    ) -> Result<Driven, BoxError> {
        let run = match FlowRun::restore(Arc::clone(self.workflow()), saved.progress) {
            Ok(run) => run.in_strides(STRIDE),
            Err(refused) => return Ok(Driven::Refused(refused)),
        };
        let mut drive = Drive::new(self, context, options, run);
        (
            drive.checkpoints,
            drive.poll_progress,
            drive.ended_breadcrumbs,
        ) = (saved.steps, saved.looked, saved.lines);
        drive.restore_steps();
        Box::pin(drive.poll()).await?;
        drive.run().await
    }
}
