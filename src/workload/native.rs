use super::cx::{RunCx, WorkloadMessage};
use super::event::WorkloadEventKind;
use super::stream::EventStream;
use super::{Definition, Meta, Workload};
use crate::classes::class_of;
use crate::error::{BoxError, Retry};
use crate::executor::Suspension;
use crate::model::Json;
use crate::services::Services;
use crate::store::{BreadcrumbStore, Commit};
use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::fmt;
use std::sync::Arc;

type Work = dyn Fn(RunCx, Option<WorkloadMessage>) -> BoxFuture<'static, Result<Json, BoxError>>
    + Send
    + Sync;

/// Definition of a workload that is written in Rust: each run calls a closure. The closure emits events through its [`RunCx`], and returns the output
/// of the run.
///
/// An error ends the run. [`permanent`](crate::permanent) and [`retry_after`](crate::retry_after) decide whether the
/// run is retried. Events and responses do not contain the text of the error; the log and the dead letter of a retried
/// error do. [`suspend`](crate::suspend) suspends the run.
///
/// ```
/// use futures::StreamExt;
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::model::Timestamp;
/// use universal_executor::workload::{Definition, NativeDefinition, RunCx, WorkloadEventKind};
/// use universal_executor::{
///     BreadcrumbId, BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb, Services,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let shout = NativeDefinition::new("shout", |cx: RunCx, message| async move {
///     cx.say("Well: ").await;
///     Ok(json!(message.unwrap_or_default().text().to_uppercase()))
/// });
/// let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
/// let mut workload = shout.instantiate(&Services::new(), &store)?;
/// let message = NewBreadcrumb::new("user.message.v1").first_version(BreadcrumbId::NIL, Timestamp::from_micros(0));
/// let cx = RunCx::new("run-1", ExecutionContext::for_trigger(message));
///
/// let mut events: Vec<_> = workload.run(cx, Some("hi".into())).collect().await;
/// let end = events.pop().map(|event| event.kind);
/// assert_eq!(end, Some(WorkloadEventKind::Final { output: json!("HI").into() }));
/// workload.close().await?;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone)]
pub struct NativeDefinition {
    meta: Meta,
    work: Arc<Work>,
}

impl NativeDefinition {
    /// Creates a workload definition with a name and a closure.
    ///
    /// The closure receives the context of the run and the message, or `None` if it continues a
    /// suspended run. Its output is a value that converts to [`Json`]. A closure starts from its
    /// beginning in each attempt.
    #[must_use]
    pub fn new<F, W, J>(name: impl Into<String>, work: F) -> Self
    where
        F: Fn(RunCx, Option<WorkloadMessage>) -> W + Send + Sync + 'static,
        W: Future<Output = Result<J, BoxError>> + Send + 'static,
        J: Into<Json>,
    {
        Self {
            meta: Meta::new(name),
            work: Arc::new(move |cx, message| {
                let work = work(cx, message);
                async move { work.await.map(Into::into) }.boxed()
            }),
        }
    }

    /// Sets the purpose of the workload.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.meta = self.meta.description(description);
        self
    }
}

impl Definition for NativeDefinition {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn check(&self, _: &Services, _: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError> {
        Ok(())
    }

    fn instantiate(
        &self,
        _: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Box<dyn Workload>, BoxError> {
        Ok(Box::new(Native {
            name: self.meta.name.clone(),
            work: Arc::clone(&self.work),
            store: Arc::clone(store),
        }))
    }
}

impl fmt::Debug for NativeDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeDefinition")
            .field("name", &self.meta.name)
            .finish_non_exhaustive()
    }
}

struct Native {
    name: String,
    work: Arc<Work>,
    store: Arc<dyn BreadcrumbStore>,
}

#[async_trait]
impl Workload for Native {
    fn run(&mut self, cx: RunCx, message: Option<WorkloadMessage>) -> EventStream<'_> {
        let stream = cx.clone();
        stream.stream(async move {
            match (self.work)(cx.clone(), message).await {
                Ok(output) => WorkloadEventKind::Final { output },
                Err(error) => match error.downcast::<Suspension>() {
                    Ok(suspension) => self.suspended(&cx, *suspension).await,
                    Err(error) => self.end_with_error(&cx, error),
                },
            }
        })
    }

    async fn close(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Error of a workload's closure. The text of the closure's error can contain secrets. The response to a trigger has only this message. The
/// log and the dead letter also have the source.
#[derive(Debug, thiserror::Error)]
#[error(
    "the Rust function of workload {name:?} failed; for the cause, see the log of the worker or the dead letter of the run"
)]
struct ClosureFailed {
    name: String,
    source: BoxError,
}

impl Native {
    /// Creates the last event of a workload run whose closure failed with an error. An error that is not retried is the closure's own
    /// outcome; any other is returned to the executor of the run, with its source.
    fn end_with_error(&self, cx: &RunCx, error: BoxError) -> WorkloadEventKind {
        match class_of(error.as_ref()).retry() {
            Retry::Never => WorkloadEventKind::of_error(&error),
            Retry::After(_) => {
                let failed = ClosureFailed {
                    name: self.name.clone(),
                    source: error,
                };
                cx.fail(failed.into())
            }
        }
    }

    async fn suspended(&self, cx: &RunCx, suspension: Suspension) -> WorkloadEventKind {
        let (wake, state, response) = suspension.into_parts();
        let writes = response.into_writes();
        if !writes.is_empty() {
            let store = cx.context().bound_store(Arc::clone(&self.store));
            if let Err(error) = store.commit(Commit::from(writes)).await {
                return self.end_with_error(cx, error.into());
            }
        }
        WorkloadEventKind::Suspended { wake, state }
    }
}
