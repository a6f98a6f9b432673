use super::{Definition, Workload};
use crate::error::BoxError;
use crate::services::Services;
use crate::store::BreadcrumbStore;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Default timeout for closing a workload.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Collection of workloads that are closed together.
///
/// The scope closes each workload once, in the order of creation. A workload that fails, panics or times out does not
/// prevent the others from being closed. A scope that is dropped before it was closed closes its workloads in a spawned
/// task. Needs a tokio runtime with time enabled.
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::workflow::Workflow;
/// use universal_executor::workload::{FlowDefinition, WorkloadScope};
/// use universal_executor::{BreadcrumbStore, MemoryStore, Services};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
/// let echo = Workflow::from_json(&json!({"flows": {"main": {"steps": [{"return": "${input}"}]}}}))?;
/// let echo = FlowDefinition::new("echo", echo)?;
/// let mut scope = WorkloadScope::default();
/// let _echo = scope.instantiate(&echo, &Services::new(), &store)?;
/// scope.close().await?;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct WorkloadScope {
    workloads: Vec<(String, Box<dyn Workload>)>,
    close_timeout: Duration,
}

/// Error returned when workloads could not be closed. The closing of each workload was attempted.
///
/// Its message has the names, and not the errors, which can contain secrets. The workloads were
/// dropped.
#[derive(Debug, thiserror::Error)]
#[error("{} of {tried} workloads could not be closed: {}", failures.len(), names(failures))]
#[non_exhaustive]
pub struct CloseError {
    /// The number of workloads whose closing was attempted, including the failures.
    pub tried: usize,
    /// The names of the workloads that could not be closed, each with its error.
    pub failures: Vec<(String, BoxError)>,
}

impl CloseError {
    /// Logs the names of the workloads that could not be closed, without their errors, which may contain secrets.
    pub(super) fn log(&self, run: Option<&str>) {
        tracing::warn!(
            run,
            tried = self.tried,
            failed = self.failures.len(),
            workloads = names(&self.failures),
            "closing workloads failed or timed out, so resources that they hold outside of the process may remain"
        );
    }
}

fn names(failures: &[(String, BoxError)]) -> String {
    let names: Vec<&str> = failures.iter().map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

impl Default for WorkloadScope {
    fn default() -> Self {
        Self {
            workloads: Vec::new(),
            close_timeout: CLOSE_TIMEOUT,
        }
    }
}

impl WorkloadScope {
    /// Sets the timeout for closing each workload in this collection of workloads. Defaults to 30 s. A workload that
    /// takes longer is dropped, and is listed in [`CloseError`].
    #[must_use]
    pub const fn close_timeout(mut self, timeout: Duration) -> Self {
        self.close_timeout = timeout;
        self
    }

    /// Creates a workload and adds it to this collection, which closes all its workloads together. The scope closes the
    /// workload in [`close`](Self::close), or when the scope is dropped.
    ///
    /// # Errors
    /// Returns the error of [`Definition::instantiate`].
    pub fn instantiate(
        &mut self,
        definition: &dyn Definition,
        services: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<&mut dyn Workload, BoxError> {
        let workload = definition.instantiate(services, store)?;
        Ok(self.add(definition.meta().name.clone(), workload))
    }

    /// Adds a workload to this collection, which closes all its workloads together. The scope closes the workload in
    /// [`close`](Self::close), or when the scope is dropped.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        workload: Box<dyn Workload>,
    ) -> &mut dyn Workload {
        self.workloads.push((name.into(), workload));
        let at = self.workloads.len() - 1;
        #[expect(
            clippy::indexing_slicing,
            reason = "the element was pushed right before"
        )]
        &mut *self.workloads[at].1
    }

    /// Returns the number of workloads in this collection that are not closed yet.
    #[must_use]
    pub fn open(&self) -> usize {
        self.workloads.len()
    }

    /// Closes all workloads in this collection. Does nothing if they are already closed.
    ///
    /// # Errors
    /// Returns a [`CloseError`] with all workloads that could not be closed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the workloads that are not closed yet are dropped without being closed.
    pub async fn close(&mut self) -> Result<(), CloseError> {
        close(std::mem::take(&mut self.workloads), self.close_timeout).await
    }
}

async fn close(
    workloads: Vec<(String, Box<dyn Workload>)>,
    close_timeout: Duration,
) -> Result<(), CloseError> {
    let tried = workloads.len();
    let mut failures = Vec::new();
    for (name, mut workload) in workloads {
        // `close` may panic before it returns a future, and the workload may panic when it is dropped.
        let closed = async move { timeout(close_timeout, workload.close()).await };
        match AssertUnwindSafe(closed).catch_unwind().await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => failures.push((name, error)),
            Ok(Err(_)) => {
                failures.push((name, format!("timed out after {close_timeout:?}").into()))
            }
            Err(_) => failures.push((name, "panicked".into())),
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(CloseError { tried, failures }),
    }
}

impl Drop for WorkloadScope {
    fn drop(&mut self) {
        if self.workloads.is_empty() {
            return;
        }
        let workloads = std::mem::take(&mut self.workloads);
        match Handle::try_current() {
            Ok(handle) => {
                let closed = close(workloads, self.close_timeout);
                drop(handle.spawn(async move {
                    if let Err(error) = closed.await {
                        error.log(None);
                    }
                }));
            }
            Err(_) => tracing::warn!(
                workloads = workloads.len(),
                "workloads dropped without being closed, because no tokio runtime is running"
            ),
        }
    }
}

impl fmt::Debug for WorkloadScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.workloads.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

/// Creates a workload, runs `work` with it, and closes it, even if `work` fails or panics.
///
/// # Errors
/// Returns the error of the definition or of `work`, otherwise a [`CloseError`] if the workload could not be closed.
///
/// # Panics
/// Panics if `work` panics, after the workload was closed.
///
/// # Cancel safety
/// If the future is dropped while `work` runs, the workload is closed in a spawned task.
///
/// Use it to run a workload once, without a session and an executor. Nothing is saved, so a crash
/// loses the run.
///
/// # Examples
/// ```
/// use futures::StreamExt;
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::workflow::Workflow;
/// use universal_executor::workload::{FlowDefinition, RunCx, WorkloadEventKind, with_workload};
/// use universal_executor::{
///     BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb, Services,
/// };
///
/// let flows = json!({"main": {"steps": [{"return": "Hello, ${input}!"}]}});
/// let greeter = Workflow::from_json(&json!({"flows": flows}))?;
/// let greeter = FlowDefinition::new("greeter", greeter)?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
/// let trigger = NewBreadcrumb::new("user.message.v1");
/// let cx = RunCx::new("run-1", ExecutionContext::for_trigger(trigger));
/// let last = with_workload(&greeter, &Services::new(), &store, |workload| {
///     Box::pin(async move {
///         let events: Vec<_> = workload.run(cx, Some("Ann".into())).collect().await;
///         Ok(events.last().map(|event| event.kind.clone()))
///     })
/// })
/// .await?;
///
/// let output = json!("Hello, Ann!").into();
/// assert_eq!(last, Some(WorkloadEventKind::Final { output }));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub async fn with_workload<T>(
    definition: &dyn Definition,
    services: &Services,
    store: &Arc<dyn BreadcrumbStore>,
    work: impl for<'w> FnOnce(&'w mut dyn Workload) -> BoxFuture<'w, Result<T, BoxError>>,
) -> Result<T, BoxError> {
    let mut scope = WorkloadScope::default();
    let workload = scope.instantiate(definition, services, store)?;
    let done = AssertUnwindSafe(work(workload)).catch_unwind().await;
    let closed = scope.close().await;
    match done {
        Ok(done) => {
            let done = done?;
            closed?;
            Ok(done)
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{EventStream, RunCx, WorkloadMessage};
    use async_trait::async_trait;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counted {
        closed: Arc<AtomicUsize>,
        fails: bool,
    }

    #[async_trait]
    impl Workload for Counted {
        fn run(&mut self, cx: RunCx, _: Option<WorkloadMessage>) -> EventStream<'_> {
            cx.stream(std::future::pending())
        }

        async fn close(&mut self) -> Result<(), BoxError> {
            self.closed.fetch_add(1, Ordering::Relaxed);
            match self.fails {
                true => Err("close failed".into()),
                false => Ok(()),
            }
        }
    }

    fn three(closed: &Arc<AtomicUsize>) -> WorkloadScope {
        let mut scope = WorkloadScope::default();
        for (name, fails) in [("one", false), ("two", true), ("three", false)] {
            let closed = Arc::clone(closed);
            scope.add(name, Box::new(Counted { closed, fails }));
        }
        scope
    }

    #[tokio::test]
    async fn a_workload_that_fails_to_close_does_not_prevent_closing_the_others() {
        let closed = Arc::default();
        let mut scope = three(&closed);

        let error = scope.close().await.unwrap_err();
        let again = scope.close().await;

        assert_eq!(
            error.to_string(),
            "1 of 3 workloads could not be closed: two"
        );
        assert!(again.is_ok());
        assert_eq!(closed.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_dropped_scope_closes_its_workloads() {
        let closed = Arc::default();

        drop(three(&closed));
        tokio::task::yield_now().await;

        assert_eq!(closed.load(Ordering::Relaxed), 3);
    }
}
