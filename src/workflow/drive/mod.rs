//! Runs of flows, done: the interpreter says which steps are due, the driver does them and tells.

mod agent;
mod approvals;
mod asked;
mod assembly;
mod assembly_error;
mod attempt;
mod attempt_end;
mod control;
mod conversations;
mod ended;
mod event;
mod former;
mod guard;
mod heard;
mod kept;
mod leave;
mod look;
mod marks;
mod model;
mod next_check;
mod order;
mod room;
mod saving;
mod step;
mod wait_matches;
mod waiting;

pub use assembly::Assembly;
pub use assembly_error::AssemblyError;
pub use control::Control;
pub(crate) use conversations::{Answered, Conversations};
pub use event::{EventSink, StepEvent, StepEventKind};
pub use kept::FlowStateError;
pub use order::{Driven, RunOptions};

use super::FlowRun;
use crate::error::{BoxError, permanent};
use crate::executor::ExecutionContext;
use attempt::Drive;
use kept::Saved;
use std::sync::Arc;

/// The schema of what tells how far a run is.
pub(crate) const PROGRESS: &str = "workflow.progress.v1";

/// How many steps begin at a time before others on the thread, and orders, have their turn.
const STRIDE: u64 = 256;

impl Assembly {
    /// Runs a flow until it ends, or waits for others; from where it was if the context [goes on](ExecutionContext::resumed)
    /// with something, and with the definition that it began with.
    ///
    /// All is done within this future: dropping it stops the run where it is. The run is called by the
    /// [key](ExecutionContext::idempotency_key) of the context, and saved in it after each step, before anything is done that
    /// rests on that; where nothing can be saved it begins anew when it is tried again.
    ///
    /// # Errors
    /// [`FlowStateError`]; what is wrong with the store or the lease. What goes wrong in a step is told to the flow, which decides.
    pub async fn drive(
        &self,
        context: &ExecutionContext,
        options: RunOptions,
    ) -> Result<Driven, BoxError> {
        let Some(resumed) = context.resumed() else {
            return self.begin(context, options).await;
        };
        let unreadable = |error| permanent(FlowStateError::Unreadable(error));
        let saved: Saved = resumed.state.parse().map_err(unreadable)?;
        if saved.progress.definition() == self.workflow().hash() {
            return self.go_on(context, options, saved).await;
        }
        match self.former(&saved.progress).await? {
            Ok(former) => former.go_on(context, options, saved).await,
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
        // An order may have been given before the run began.
        Box::pin(drive.look()).await?;
        drive.run().await
    }

    async fn go_on(
        &self,
        context: &ExecutionContext,
        options: RunOptions,
        saved: Saved,
    ) -> Result<Driven, BoxError> {
        let run = match FlowRun::restore(Arc::clone(self.workflow()), saved.progress) {
            Ok(run) => run.in_strides(STRIDE),
            Err(refused) => return Ok(Driven::Refused(refused)),
        };
        let mut drive = Drive::new(self, context, options, run);
        (drive.kept, drive.looked, drive.lines) = (saved.steps, saved.looked, saved.lines);
        drive.take_up();
        Box::pin(drive.look()).await?;
        drive.run().await
    }
}
