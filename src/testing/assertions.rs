//! Assertions of tests on the runs of executors in a store.

use super::error::describe;
use crate::client::Client;
use crate::error::Chain;
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::store::{Run, RunFilter, RunState, StoreError, StoreWithEvents};
use std::panic::Location;
use std::sync::Arc;

/// Asserts that an executor has responded to a trigger. Returns the breadcrumbs that its run wrote, in order: questions of an agent come
/// first, and the last breadcrumb is the response. Breadcrumbs that were deleted since are omitted.
///
/// The assertion is about the newest version of the trigger that has a run of the executor.
///
/// Call it after [`TestStore::run_until_idle`](super::TestStore::run_until_idle).
///
/// # Panics
/// Panics if the run is in another state or does not exist, with the state and the cause of the run, and with the explanation of
/// [`Client::explain`].
///
/// # Examples
/// ```
/// use universal_executor::testing::{TestStore, assert_responded};
/// use universal_executor::{
///     BreadcrumbStoreExt, NewBreadcrumb, Response, Runtime, Subscription, executor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = TestStore::new()?;
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
/// let worker = Runtime::on(&store).executor(clerk).build()?;
/// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
/// store.run_until_idle(&worker).await?;
///
/// let responses = assert_responded(&store, "clerk", order.id).await;
/// assert_eq!(responses[0].schema_name.as_deref(), Some("receipt.v1"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[track_caller]
pub fn assert_responded<'a, S: StoreWithEvents>(
    store: &'a S,
    executor: &'a str,
    trigger: BreadcrumbId,
) -> impl Future<Output = Vec<Arc<Breadcrumb>>> {
    let assertion = Assertion::new(store, executor, trigger);
    async move {
        let is_done = |run: &Run| run.state == RunState::Done;
        let run = assertion.run("has responded", is_done).await;
        assertion.written(&run).await
    }
}

/// Asserts that the run of an executor on a trigger has failed with a certain error code. Returns the run.
///
/// `code` is the code of the dead letter, for example `error` for an error without a code, or `cancelled`. The assertion is about
/// the newest version of the trigger that has a run of the executor.
///
/// # Panics
/// As [`assert_responded`], and if the run has another code.
///
/// # Examples
/// ```
/// use universal_executor::testing::{TestStore, assert_failed};
/// use universal_executor::{
///     BreadcrumbStoreExt, NewBreadcrumb, Runtime, Subscription, executor, permanent,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = TestStore::new()?;
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Err(permanent("the order has no items")) });
/// let worker = Runtime::on(&store).executor(clerk).build()?;
/// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
/// store.run_until_idle(&worker).await?;
///
/// let run = assert_failed(&store, "clerk", order.id, "error").await;
/// assert_eq!(run.code.as_deref(), Some("error"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[track_caller]
pub fn assert_failed<'a, S: StoreWithEvents>(
    store: &'a S,
    executor: &'a str,
    trigger: BreadcrumbId,
    code: &'a str,
) -> impl Future<Output = Run> {
    let assertion = Assertion::new(store, executor, trigger);
    async move {
        let has_failed =
            |run: &Run| run.state == RunState::Failed && run.code.as_deref() == Some(code);
        let expected = format!("has failed with code {code:?}");
        assertion.run(&expected, has_failed).await
    }
}

/// Asserts that the run of an executor on a trigger is suspended. Returns the run. Its field [`wake`](Run::wake) has the breadcrumbs
/// and the time that the run waits for.
///
/// The assertion is about the newest version of the trigger that has a run of the executor.
///
/// [`TestStore`](super::TestStore) has an example. Continue the run with a breadcrumb that matches
/// the wake, or with [`TestStore::advance`](super::TestStore::advance).
///
/// # Panics
/// As [`assert_responded`].
#[track_caller]
pub fn assert_suspended<'a, S: StoreWithEvents>(
    store: &'a S,
    executor: &'a str,
    trigger: BreadcrumbId,
) -> impl Future<Output = Run> {
    let assertion = Assertion::new(store, executor, trigger);
    async move {
        let is_suspended = |run: &Run| run.state == RunState::Suspended;
        assertion.run("is suspended", is_suspended).await
    }
}

/// An assertion of a test on the run of an executor on a trigger.
struct Assertion<'a, S> {
    store: &'a S,
    executor: &'a str,
    trigger: BreadcrumbId,
    /// The source location of the assertion in the test, which is part of the failure message.
    location: &'static Location<'static>,
}

impl<'a, S: StoreWithEvents> Assertion<'a, S> {
    #[track_caller]
    fn new(store: &'a S, executor: &'a str, trigger: BreadcrumbId) -> Self {
        Self {
            store,
            executor,
            trigger,
            location: Location::caller(),
        }
    }

    /// Returns the run if its state is as the test expects, and panics otherwise.
    async fn run(&self, expected: &str, is_expected: impl Fn(&Run) -> bool) -> Run {
        let found = match self.newest().await {
            Ok(Some(run)) if is_expected(&run) => return run,
            Ok(Some(run)) => describe(&run),
            Ok(None) => format!(
                "executor {:?} has no run on {}",
                self.executor, self.trigger
            ),
            Err(error) => format!("the runs cannot be read: {}", Chain(&error)),
        };
        let explanation = self.explanation().await;
        let problem = format!("expected a run that {expected}: {found}");
        self.fail(&problem, &explanation)
    }

    /// Returns the executor's run on the newest version of the trigger.
    async fn newest(&self) -> Result<Option<Run>, StoreError> {
        let ledger = self.store.ledger().ok_or(StoreError::Unsupported {
            store: "the store of the test",
            operation: "runs without a ledger",
        })?;
        let filter = RunFilter::all()
            .executor(self.executor)
            .trigger(self.trigger);
        let runs = ledger.runs(&filter).await?.into_iter();
        Ok(runs.max_by_key(|run| run.run.trigger_version))
    }

    /// Returns the breadcrumbs that a run wrote, as the store has them.
    async fn written(&self, run: &Run) -> Vec<Arc<Breadcrumb>> {
        let mut written = Vec::with_capacity(run.written.len());
        for id in &run.written {
            match self.store.get(*id).await {
                Ok(breadcrumb) => written.push(breadcrumb),
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => {
                    let problem = format!("cannot read the response of {}", run.run);
                    self.fail(&problem, &Chain(&error).to_string())
                }
            }
        }
        written
    }

    /// Returns a text that says which executors run on the trigger, and why the others do not, for the message of a failed
    /// assertion.
    async fn explanation(&self) -> String {
        match Client::new(self.store).explain(self.trigger).await {
            Ok(report) => report.to_string(),
            Err(error) => format!("the trigger cannot be explained: {}", Chain(&error)),
        }
    }

    #[expect(clippy::panic, reason = "an assertion that fails ends its test")]
    fn fail(&self, problem: &str, explanation: &str) -> ! {
        panic!("{problem}\n{explanation}\nasserted at {}", self.location)
    }
}
