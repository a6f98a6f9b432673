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

    /// Stops the runtime and returns its report. The runtime claims no more runs, and finishes the running ones within the drain
    /// timeout.
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

    /// Waits until the runtime ends without a stop, which only a failure of its tokio task can cause.
    ///
    /// # Errors
    /// [`RuntimeError::Task`] if the task panicked or tokio shut down.
    ///
    /// # Cancel safety
    /// Dropping this future stops the runtime.
    pub async fn ended(mut self) -> Result<RunReport, RuntimeError> {
        (&mut self.task).await.map_err(ended)?
    }

    /// Returns the runtime, for example for its [`health`](Runtime::health).
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
