//! Execution of a claimed run: assembles the context, then calls `execute` and `respond` while heartbeats extend the lease.

use super::claimed_run::{ClaimedRun, store_error};
use super::context::ExecutionContext;
use super::error::ExecutorError;
use super::handle::{CancelGuard, RunHandle, Terms};
use super::lease_requests::LeaseHolder;
use super::outcome::{Response, Suspension};
use super::provenance::Stamp;
use super::resumed::Resumed;
use super::turn_events::TurnEvents;
use super::{UniversalExecutor, heartbeat, runtime_context};
use crate::clock::within;
use crate::model::{Breadcrumb, MAX_DEPTH, dismantle, size_within};
use crate::store::{Saved, StoreError};
use futures::FutureExt as _;
use serde_json::Value;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;
use tracing::Instrument as _;

/// Result of an executor's `execute` and `respond` together: a response, or a request to suspend the run.
pub(super) enum Answer {
    Response(Response),
    Suspension(Box<Suspension>),
}

impl<E: UniversalExecutor + ?Sized> ClaimedRun<'_, E> {
    /// Assembles the run's context, and calls `execute` and `respond`, while heartbeats extend the lease. An error comes with a
    /// flag that is `true` if `execute` was called.
    pub(super) async fn answer(
        &self,
        trigger: &Arc<Breadcrumb>,
        alias: Option<String>,
        stamp: &Arc<Stamp>,
        turn_events: Option<Arc<TurnEvents>>,
    ) -> Result<Answer, (ExecutorError, bool)> {
        let handle = self
            .handle(turn_events, stamp)
            .await
            .map_err(|error| (error, false))?;
        let _cancelled_when_dropped = CancelGuard(Arc::clone(&handle));
        let shared_handle = Arc::clone(&handle);
        let started = AtomicBool::new(false);
        let work = async {
            let context = self.executor.assemble_context(trigger).await?;
            let after = self.executor.profile().timeout;
            let now = self.lease.granted_at + self.claimed.elapsed();
            // The handle is new, so both cells are empty.
            handle.deadline.get_or_init(|| now + after);
            handle.began.get_or_init(|| (now, Instant::now()));
            if let Some(scope) = &handle.scope {
                scope.record_execute();
            }
            let context = context.bound_to(handle, alias);
            started.store(true, Ordering::Relaxed);
            let span = tracing::debug_span!("execute", executor = self.executor.id(), trigger = %trigger.id);
            let response = self.executor.execute_and_respond(trigger, &context);
            match within(after, response.instrument(span)).await {
                Some(response) => answer_of(response),
                None => Err(ExecutorError::Timeout { after }),
            }
        };
        let guarded = AssertUnwindSafe(work).catch_unwind();
        let holder = LeaseHolder {
            store: self.executor.store(),
            ledger: self.store.durable_ledger(),
            lease: &self.lease,
            hints: shared_handle
                .scope
                .as_ref()
                .map(|scope| &*scope.store.hints),
            read_timeout: self.executor.profile().source_timeout,
        };
        let serve = self.serve(&shared_handle, holder);
        let answer = match self.held_lease().during(serve, guarded).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => Err(ExecutorError::Panicked {
                message: panic_message(&*panic),
            }),
            Err(heartbeat::LeaseLost) => Err(ExecutorError::LeaseLost {
                run: self.lease.run.clone(),
            }),
        };
        if let Some(events) = &shared_handle.turn_events
            && !matches!(answer, Err(ExecutorError::LeaseLost { .. }))
        {
            let lease = self.lease.run.lease;
            Box::pin(events.finish(self.executor.store(), lease)).await;
        }
        answer.map_err(|error| (error, started.into_inner()))
    }

    /// Performs the store operations that the run's execution context requests, and writes the run's chat turn events, until this
    /// future is dropped.
    async fn serve(&self, handle: &RunHandle, holder: LeaseHolder<'_>) {
        let serve = handle.lease_requests.serve(holder);
        match &handle.turn_events {
            None => serve.await,
            // Turns are rare compared to other runs, so their future is boxed.
            Some(events) => {
                let write = events.drive(self.executor.store());
                Box::pin(async { tokio::join!(serve, write) }).await;
            }
        }
    }

    async fn handle(
        &self,
        turn_events: Option<Arc<TurnEvents>>,
        stamp: &Arc<Stamp>,
    ) -> Result<Arc<RunHandle>, ExecutorError> {
        let profile = self.executor.profile();
        let terms = Terms {
            stamp: Arc::clone(stamp),
            responds_with: profile.responds_with.clone(),
            lease: self.lease.clone(),
            in_ledger: self.store.is_durable(),
        };
        let resumed = match &self.saved {
            Some(saved) => Some(Box::pin(self.resumed(saved)).await?),
            None => None,
        };
        Ok(Arc::new(RunHandle {
            terms: Some(terms),
            tenant: self.executor.store().tenant().to_owned(),
            attempt: self.attempt,
            scope: runtime_context::scope(),
            turn_events,
            ..RunHandle::detached(resumed)
        }))
    }

    async fn resumed(&self, saved: &Saved) -> Result<Resumed, ExecutorError> {
        let with = match saved.with {
            None => None,
            Some(id) => match self.executor.store().get(id).await {
                Ok(found) => Some(found),
                Err(StoreError::NotFound { tombstone, .. }) => tombstone,
                Err(error) => {
                    return Err(store_error("read the breadcrumb that woke the run")(error));
                }
            },
        };
        Ok(Resumed {
            state: saved.state.clone(),
            with,
        })
    }
}

/// Calls `execute`, then `respond`: the default of [`UniversalExecutor::execute_and_respond`].
pub(super) async fn execute_and_respond<E: UniversalExecutor + ?Sized>(
    executor: &E,
    trigger: &Breadcrumb,
    context: &ExecutionContext,
) -> Result<Response, ExecutorError> {
    let output = executor.execute(trigger, context).await;
    let output = check_depth(output.map_err(ExecutorError::Execute)?)?;
    let response = executor.respond(trigger, output).await;
    response.map_err(ExecutorError::Respond)
}

/// Converts the result of `execute_and_respond` to an [`Answer`]. If `execute` returned a [`Suspension`] as its error, the result is an
/// answer.
fn answer_of(response: Result<Response, ExecutorError>) -> Result<Answer, ExecutorError> {
    match response {
        Ok(response) => Ok(Answer::Response(response)),
        Err(ExecutorError::Execute(error)) => match error.downcast::<Suspension>() {
            Ok(suspension) => Ok(Answer::Suspension(suspension)),
            Err(error) => Err(ExecutorError::Execute(error)),
        },
        Err(error) => Err(error),
    }
}

/// Returns the output of `execute`, or an error if the output nests so deep that recursive code would overflow the stack.
fn check_depth(output: Value) -> Result<Value, ExecutorError> {
    let Err(too_deep) = size_within(&output, MAX_DEPTH) else {
        return Ok(output);
    };
    dismantle(output);
    let reason = format!("the output of execute {too_deep}");
    Err(ExecutorError::BadResponse { reason })
}

pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    crate::error::excerpt(text.unwrap_or("the panic value is not a string"), 256).into_owned()
}
