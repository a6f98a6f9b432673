//! Workers that stop or die, on the store of a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use universal_executor::runtime::{RunReport, Running, RuntimeBuilder, RuntimeError};
use universal_executor::store::conformance::Subject;
use universal_executor::store::{Fault, Faulty, StoreWithEvents};
use universal_executor::{BoxError, Runtime};

/// A store that workers share.
pub(crate) trait SubjectWithEvents: Subject<Store: StoreWithEvents> {}

impl<S: Subject<Store: StoreWithEvents>> SubjectWithEvents for S {}

/// A started runtime that can be killed.
pub(crate) struct Worker {
    running: Running,
    is_dead: Arc<AtomicBool>,
}

impl Worker {
    /// Starts a worker. `add` adds the executors; its second argument is the store handle of the worker.
    pub(crate) async fn start<S: StoreWithEvents>(
        store: &S,
        add: impl FnOnce(RuntimeBuilder, &Faulty<S>) -> Result<RuntimeBuilder, BoxError>,
    ) -> Result<Self, BoxError> {
        let is_dead = Arc::new(AtomicBool::new(false));
        let dies = Arc::clone(&is_dead);
        let own = Faulty::new(store.clone(), move |_, _| {
            match dies.load(Ordering::SeqCst) {
                true => Fault::Hang,
                false => Fault::None,
            }
        });
        let events = own.beside(store.event_source());
        let builder = Runtime::on_source(&own, events).drain_timeout(Duration::ZERO);
        let running = add(builder, &own)?.start().await?;
        Ok(Self { running, is_dead })
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        self.running.runtime()
    }

    /// Stops the worker. Work that runs after the drain timeout is dropped, and its leases are released.
    pub(crate) async fn stop(self) -> Result<RunReport, RuntimeError> {
        self.running.stop().await
    }

    /// Kills the worker: nothing that it does from now on reaches the store. Its leases stay until they expire, and its record
    /// counts as live for 30 s. A call that has reached the store can still take effect.
    pub(crate) fn kill(self) {
        self.is_dead.store(true, Ordering::SeqCst);
        drop(self.running);
    }
}
