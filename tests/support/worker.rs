//! Workers on a test's store that stop or die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::yield_now;
use universal_executor::runtime::{RunReport, Running, RuntimeBuilder, RuntimeError};
use universal_executor::store::conformance::StoreUnderTest;
use universal_executor::store::{Fault, Faulty, Moment, Operation, StoreWithEvents};
use universal_executor::{BoxError, Runtime};

/// A subject whose stores have events, for tests in which several workers share a store.
pub(crate) trait SubjectWithEvents: StoreUnderTest<Store: StoreWithEvents> {}

impl<S: StoreUnderTest<Store: StoreWithEvents>> SubjectWithEvents for S {}

/// A running runtime that can be killed.
pub(crate) struct Worker {
    running: Running,
    is_dead: Arc<AtomicBool>,
    /// Number of store calls that have started and not returned.
    in_flight: Arc<AtomicUsize>,
}

impl Worker {
    /// Starts a worker. `add` adds the executors. Its second argument is the worker's store handle.
    pub(crate) async fn start<S: StoreWithEvents>(
        store: &S,
        add: impl FnOnce(RuntimeBuilder, &Faulty<S>) -> Result<RuntimeBuilder, BoxError>,
    ) -> Result<Self, BoxError> {
        let is_dead = Arc::new(AtomicBool::new(false));
        let in_flight = Arc::new(AtomicUsize::new(0));
        let (dies, calls) = (Arc::clone(&is_dead), Arc::clone(&in_flight));
        let own = Faulty::new(store.clone(), move |operation, moment| {
            let fault = match dies.load(Ordering::SeqCst) {
                true => Fault::Hang,
                false => Fault::None,
            };
            match (operation, moment) {
                // Calls of the source wait for events, so they are not counted.
                (Operation::Subscribe | Operation::Next | Operation::Ack, _) => {}
                (_, Moment::Before) if fault == Fault::Hang => {}
                (_, Moment::Before) => drop(calls.fetch_add(1, Ordering::SeqCst)),
                (_, Moment::After) => drop(calls.fetch_sub(1, Ordering::SeqCst)),
            }
            fault
        });
        let events = own.beside(store.event_source());
        let builder = Runtime::on_source(&own, events).drain_timeout(Duration::ZERO);
        let running = add(builder, &own)?.start().await?;
        Ok(Self {
            running,
            is_dead,
            in_flight,
        })
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        self.running.runtime()
    }

    /// Stops the worker. Work that still runs after the drain timeout is dropped, and its leases are released.
    pub(crate) async fn stop(self) -> Result<RunReport, RuntimeError> {
        self.running.stop().await
    }

    /// Kills the worker: nothing that it does from now on reaches the store. Its leases stay until they expire, and its record
    /// counts as live for 30 s. Calls that have already reached the store take effect before this function returns, so that the test
    /// can move the store's clock afterwards.
    pub(crate) async fn kill(self) {
        /// Maximum number of scheduler turns to wait for calls in flight. Without a limit, a failed call that stays counted would block.
        const TURNS: usize = 200_000;
        self.is_dead.store(true, Ordering::SeqCst);
        for _ in 0..TURNS {
            if self.in_flight.load(Ordering::SeqCst) == 0 {
                break;
            }
            yield_now().await;
        }
        drop(self.running);
    }
}
