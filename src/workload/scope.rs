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

/// The default time limit for a workload to close.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Workloads that were made, so that all of them are closed in the end.
///
/// The scope closes each workload once, in the order of creation. A workload that fails, panics or times out does not prevent the
/// others from being closed. A scope that is dropped before it was closed closes its workloads in a spawned task. Needs a tokio
/// runtime with time enabled.
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
    open: Vec<(String, Box<dyn Workload>)>,
    patience: Duration,
}

/// Workloads could not be closed as they should. All of them were tried.
#[derive(Debug, thiserror::Error)]
#[error("{} of {tried} workloads could not be closed: {}", failures.len(), names(failures))]
#[non_exhaustive]
pub struct CloseError {
    /// The number of workloads that the scope tried to close.
    pub tried: usize,
    /// The names of the workloads that could not be closed, each with its error.
    pub failures: Vec<(String, BoxError)>,
}

impl CloseError {
    /// Logs the names of the workloads: their errors can contain anything.
    pub(super) fn log(&self, run: Option<&str>) {
        tracing::warn!(
            run,
            tried = self.tried,
            failed = self.failures.len(),
            workloads = names(&self.failures),
            "cannot close all workloads"
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
            open: Vec::new(),
            patience: PATIENCE,
        }
    }
}

impl WorkloadScope {
    /// Sets how long each workload has to close; 30 seconds by default. One that takes longer is dropped, and is among those that
    /// were [not closed](CloseError).
    #[must_use]
    pub const fn close_timeout(mut self, timeout: Duration) -> Self {
        self.patience = timeout;
        self
    }

    /// Makes a workload, to be closed with the others.
    ///
    /// # Errors
    /// The error of [`Definition::instantiate`].
    pub fn instantiate(
        &mut self,
        definition: &dyn Definition,
        services: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<&mut dyn Workload, BoxError> {
        let made = definition.instantiate(services, store)?;
        Ok(self.add(definition.meta().name.clone(), made))
    }

    /// Adds a workload, to be closed with the others.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        workload: Box<dyn Workload>,
    ) -> &mut dyn Workload {
        self.open.push((name.into(), workload));
        let at = self.open.len() - 1;
        #[expect(clippy::indexing_slicing, reason = "it was pushed right before")]
        &mut *self.open[at].1
    }

    /// Returns the number of workloads that are still to be closed.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Closes all. Does nothing if they are closed already.
    ///
    /// # Errors
    /// [`CloseError`] has all that went wrong.
    pub async fn close(&mut self) -> Result<(), CloseError> {
        close(std::mem::take(&mut self.open), self.patience).await
    }
}

async fn close(
    open: Vec<(String, Box<dyn Workload>)>,
    patience: Duration,
) -> Result<(), CloseError> {
    let tried = open.len();
    let mut failures = Vec::new();
    for (name, mut workload) in open {
        // It may panic before it gives something to wait for, and when it is dropped.
        let closed = async move { timeout(patience, workload.close()).await };
        match AssertUnwindSafe(closed).catch_unwind().await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => failures.push((name, error)),
            Ok(Err(_)) => failures.push((name, format!("it took longer than {patience:?}").into())),
            Err(_) => failures.push((name, "it panicked".into())),
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(CloseError { tried, failures }),
    }
}

impl Drop for WorkloadScope {
    fn drop(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let open = std::mem::take(&mut self.open);
        match Handle::try_current() {
            Ok(handle) => {
                let closed = close(open, self.patience);
                drop(handle.spawn(async move {
                    if let Err(error) = closed.await {
                        error.log(None);
                    }
                }));
            }
            Err(_) => tracing::warn!(
                left = open.len(),
                "workloads were dropped without being closed"
            ),
        }
    }
}

impl fmt::Debug for WorkloadScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.open.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

/// Makes a workload, lets something be done with it, and closes it, however that ends.
///
/// # Errors
/// The error of the definition or of the work, otherwise [`CloseError`].
///
/// # Panics
/// If the work does, once the workload is closed.
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
                true => Err("it is stuck".into()),
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
    async fn one_that_cannot_be_closed_does_not_stop_the_others_and_closing_again_does_nothing() {
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
    async fn what_is_dropped_is_closed_all_the_same() {
        let closed = Arc::default();

        drop(three(&closed));
        tokio::task::yield_now().await;

        assert_eq!(closed.load(Ordering::Relaxed), 3);
    }
}
