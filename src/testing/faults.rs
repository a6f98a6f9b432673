//! Switches with which a test injects faults into a worker's store.

use crate::store::{Fault, Moment, Operation};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Switches with which a test makes calls of one worker's store handle fail. A clone controls the same switches.
///
/// [`TestStore::with_faults`](super::TestStore::with_faults) returns a handle with these faults. Calls of the test on the
/// [`TestStore`](super::TestStore) itself have none of them.
///
/// | to fail | use |
/// |---|---|
/// | the next commits of responses | `fail_next(Operation::Commit, n)` |
/// | the next claims of due runs | `fail_next(Operation::ClaimNext, n)` |
/// | the answers of commits that succeed | `lose_next(Operation::Commit, n)` |
/// | a worker, as `kill -9` does | `crash_at(Operation::Commit, Moment::Before)` |
///
/// ```
/// use std::time::Duration;
/// use universal_executor::testing::{Faults, Operation, TestStore, assert_responded};
/// use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, Response, Runtime, Subscription, executor};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let (store, faults) = (TestStore::new()?, Faults::new());
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
/// let worker = Runtime::on(&store.with_faults(&faults)).executor(clerk).build()?;
/// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
///
/// faults.fail_next(Operation::Commit, 1);
/// assert_eq!(store.run_until_idle(&worker).await?.postponed, 1);
///
/// store.advance(Duration::from_secs(60)).await?;
/// store.run_until_idle(&worker).await?;
/// assert_eq!(assert_responded(&store, "clerk", order.id).await.len(), 1);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Default)]
pub struct Faults(Arc<Inner>);

#[derive(Default)]
struct Inner {
    switches: Mutex<Switches>,
    /// Notification that is sent when the worker with these faults crashes.
    crashed: Notify,
}

#[derive(Debug, Default)]
struct Switches {
    /// Remaining number of calls that will fail, for each store operation and moment of the failure (before or after the call has
    /// its effect).
    failing: HashMap<(Operation, Moment), usize>,
    crash_at: Option<(Operation, Moment)>,
    has_crashed: bool,
    injected: usize,
}

impl Faults {
    /// Creates fault switches for a worker's store, without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next `n` calls of a store operation fail before they have an effect. Replaces the number of an earlier `fail_next`.
    ///
    /// The error is one that the worker retries.
    pub fn fail_next(&self, operation: Operation, n: usize) {
        let call = (operation, Moment::Before);
        self.switches().failing.insert(call, n);
    }

    /// Makes the next `n` successful calls of a store operation return an error after their effect, so that the worker loses the answers.
    /// Replaces the number of an earlier `lose_next`.
    ///
    /// Use it to test that a repeated commit does not respond twice.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::testing::{Faults, Operation};
    ///
    /// let faults = Faults::new();
    /// faults.lose_next(Operation::Commit, 1);
    /// assert_eq!(faults.injected(), 0);
    /// faults.clear();
    /// ```
    pub fn lose_next(&self, operation: Operation, n: usize) {
        let call = (operation, Moment::After);
        self.switches().failing.insert(call, n);
    }

    /// Makes the worker crash at the next call of a store operation, before or after the call has its effect. To crash at a later call,
    /// call this method at a moment of the run: a tool that sets `Operation::Save, Moment::Before` crashes before its result is saved.
    ///
    /// After the crash, no call of the handle has an effect or returns, so leases remain until they expire.
    /// [`TestStore::run_until_crash`](super::TestStore::run_until_crash) drops the worker. Build the next worker on another handle.
    ///
    /// [`TestStore::run_until_crash`](super::TestStore::run_until_crash) has an example.
    pub fn crash_at(&self, operation: Operation, moment: Moment) {
        self.switches().crash_at = Some((operation, moment));
    }

    /// Resets all fault switches of the worker's store. A worker that has crashed stays down.
    ///
    /// [`injected`](Self::injected) is not reset.
    pub fn clear(&self) {
        let mut switches = self.switches();
        switches.failing.clear();
        switches.crash_at = None;
    }

    /// Returns the number of store calls that failed because of these faults. Calls after the crash are not counted.
    #[must_use]
    pub fn injected(&self) -> usize {
        self.switches().injected
    }

    /// Returns the fault that the switches inject into one store call.
    pub(super) fn decide(&self, operation: Operation, moment: Moment) -> Fault {
        let mut switches = self.switches();
        if switches.has_crashed {
            return Fault::Hang;
        }
        if switches.crash_at == Some((operation, moment)) {
            switches.has_crashed = true;
            drop(switches);
            self.0.crashed.notify_waiters();
            return Fault::Hang;
        }
        let remaining = switches.failing.get_mut(&(operation, moment));
        let Some(remaining) = remaining.filter(|remaining| **remaining > 0) else {
            return Fault::None;
        };
        *remaining -= 1;
        switches.injected += 1;
        Fault::Fail
    }

    /// Waits until the worker with these faults crashes.
    pub(super) async fn wait_for_crash(&self) {
        loop {
            let crashed = self.0.crashed.notified();
            if self.has_crashed() {
                return;
            }
            crashed.await;
        }
    }

    /// Returns the store call at which the worker will crash, or `None` if the test has planned no crash.
    pub(super) fn planned_crash(&self) -> Option<(Operation, Moment)> {
        self.switches().crash_at
    }

    fn has_crashed(&self) -> bool {
        self.switches().has_crashed
    }

    fn switches(&self) -> MutexGuard<'_, Switches> {
        let switches = &self.0.switches;
        switches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&*self.switches()).finish()
    }
}
