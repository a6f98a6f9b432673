//! Handle of a runtime that runs on a tokio task.

use super::{RunReport, Runtime, RuntimeError};
use futures::stream;
use std::fmt;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

/// A started [`Runtime`], which runs on a tokio task. Created by [`RuntimeBuilder::start`](super::RuntimeBuilder::start).
///
/// Dropping the handle requests a graceful stop: the task finishes the running work within
/// [`drain_timeout`](super::RuntimeBuilder::drain_timeout), while tokio runs.
///
/// The task ends with the tokio runtime that [`start`](super::RuntimeBuilder::start) was called in.
/// A program that returns from `main` without [`stop`](Self::stop) drops its running work; another
/// worker continues the work when the leases expire.
///
/// # Examples
/// ```
/// use universal_executor::{MemoryStore, Response, Runtime, Subscription, executor};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Ok(Response::none()) });
/// let store = MemoryStore::default();
///
/// let running = Runtime::on(&store).executor(clerk).start().await?;
/// assert!(running.runtime().health().ready);
///
/// let report = running.stop().await?;
/// assert_eq!(report.dropped, 0);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[must_use = "dropping it stops the runtime"]
pub struct Running {
    runtime: Arc<Runtime>,
    stop: CancellationToken,
    task: JoinHandle<Result<RunReport, RuntimeError>>,
}

impl Running {
    /// Starts a runtime on a tokio task. Returns once every subscription to the event source is active.
    ///
    /// # Errors
    /// The errors of [`Runtime::run_until`].
    pub(super) async fn start(runtime: Runtime) -> Result<Self, RuntimeError> {
        let runtime = Arc::new(runtime);
        let stop = CancellationToken::new();
        let (started, is_started) = oneshot::channel();
        let task = {
            let (runtime, stop) = (Arc::clone(&runtime), stop.clone());
            tokio::spawn(async move {
                let signals = stream::once(stop.cancelled_owned());
                runtime.run(signals, true, Some(started)).await
            })
        };
        let running = Self {
            runtime,
            stop,
            task,
        };
        match is_started.await {
            Ok(()) => Ok(running),
            // The task ended before the start.
            Err(_) => match running.ended().await {
                Ok(_) => Err(RuntimeError::NotStarted),
                Err(error) => Err(error),
            },
        }
    }

    /// Stops the runtime and returns a report of the handled events and runs. The runtime claims no more runs, and finishes the
    /// running ones within the drain timeout.
    ///
    /// Call this at the end of the program. It returns when the running work has ended, at the
    /// latest a few seconds after the drain timeout (25 s by default).
    ///
    /// # Errors
    /// [`RuntimeError::Task`] if the task panicked or tokio shut down.
    ///
    /// # Cancel safety
    /// If this future is dropped, the runtime stops anyway, but its report is lost.
    pub async fn stop(self) -> Result<RunReport, RuntimeError> {
        self.stop.cancel();
        self.ended().await
    }

    /// Waits for an end of the runtime other than by [`stop`](Self::stop). Only a failure of its tokio task causes such an end.
    ///
    /// Use this next to a server, to end the program if the runtime fails.
    ///
    /// # Errors
    /// [`RuntimeError::Task`] if the task panicked or tokio shut down.
    ///
    /// # Cancel safety
    /// Dropping this future stops the runtime.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::runtime::{Running, RuntimeError};
    ///
    /// /// Runs a server until it ends, or until the runtime fails.
    /// async fn run<S>(running: Running, server: S) -> Result<(), RuntimeError>
    /// where
    ///     S: Future<Output = ()>,
    /// {
    ///     tokio::select! {
    ///         ended = running.ended() => ended.map(drop),
    ///         () = server => Ok(()), // the drop of `running.ended()` stops the runtime
    ///     }
    /// }
    /// ```
    pub async fn ended(mut self) -> Result<RunReport, RuntimeError> {
        (&mut self.task).await.map_err(ended)?
    }

    /// Returns the runtime, for example for its [`health`](Runtime::health).
    ///
    /// Also use it for [`wait_for`](Runtime::wait_for), [`redo`](Runtime::redo) and
    /// [`pause`](Runtime::pause). A clone of the `Arc` does not keep the task running.
    #[must_use]
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }
}

fn ended(error: JoinError) -> RuntimeError {
    RuntimeError::Task {
        source: error.into(),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.runtime).finish()
    }
}
