//! A worker that lives, dies or pauses its executors, and a gate that blocks work until a test releases it.

use crate::client::LONG;
use crate::worker::{SubjectWithEvents, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use universal_executor::agent::{ChatModel, ChatRequest, ChatResponse, ModelError};
use universal_executor::client::{Cascade, Client, ReplyError, RequestHandle};
use universal_executor::runtime::RuntimeBuilder;
use universal_executor::store::{Faulty, RunEnd, RunQuery, RunState};
use universal_executor::{BoxError, BreadcrumbId, NewBreadcrumb, async_trait};

/// The lease of blocked runs. Their worker detects a cancellation within a third of it.
pub(super) const LEASE: Duration = Duration::from_secs(3);

/// The condition of the worker when a run is cancelled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Condition {
    Alive,
    /// The worker is killed before the cancellation, and another worker starts afterwards.
    Dead,
    /// The worker's executors are paused before the cancellation and resumed afterwards.
    Paused,
}

impl Condition {
    pub(super) const ALL: [Self; 3] = [Self::Alive, Self::Dead, Self::Paused];
}

/// Work that blocks until it is released, counts its starts, and reports the drop of its future.
#[derive(Clone, Default)]
pub(super) struct Block(Arc<Gate>);

#[derive(Default)]
struct Gate {
    started: AtomicUsize,
    start_notice: Notify,
    dropped: Notify,
    is_open: watch::Sender<bool>,
}

/// Reports the drop of a future.
struct Passing(Arc<Gate>);

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.dropped.notify_one();
    }
}

impl Block {
    pub(super) async fn pass(self) {
        let mut is_open = self.0.is_open.subscribe();
        self.0.started.fetch_add(1, Ordering::SeqCst);
        let _passing = Passing(Arc::clone(&self.0));
        self.0.start_notice.notify_one();
        // The gate has the sender, so only its release ends the wait.
        drop(is_open.wait_for(|is_open| *is_open).await);
    }

    pub(super) fn release(&self) {
        self.0.is_open.send_replace(true);
    }

    pub(super) fn started(&self) -> usize {
        self.0.started.load(Ordering::SeqCst)
    }

    pub(super) async fn wait_until_started(&self) -> Result<(), BoxError> {
        Ok(timeout(LONG, self.0.start_notice.notified()).await?)
    }

    pub(super) async fn dropped(&self) -> Result<(), BoxError> {
        Ok(timeout(LONG, self.0.dropped.notified()).await?)
    }
}

/// A model that blocks before each answer.
pub(super) struct BlockedModel(pub(super) Block);

#[async_trait]
impl ChatModel for BlockedModel {
    async fn chat(&self, _: &ChatRequest) -> Result<ChatResponse, ModelError> {
        self.0.clone().pass().await;
        Ok(ChatResponse::new("Done."))
    }
}

/// A worker in a condition, on a fresh store, with a client.
pub(super) struct CancelHarness<'s, S: SubjectWithEvents, A> {
    subject: &'s S,
    pub(super) store: S::Store,
    pub(super) client: Client,
    condition: Condition,
    /// The running worker, or `None` after it was killed.
    worker: Option<Worker>,
    /// A function that adds the executors to a worker's runtime.
    add: A,
    /// The breadcrumbs that the cancelled run wrote before its cancellation.
    written: Vec<BreadcrumbId>,
}

impl<'s, S, A> CancelHarness<'s, S, A>
where
    S: SubjectWithEvents,
    A: Fn(RuntimeBuilder, &Faulty<S::Store>) -> Result<RuntimeBuilder, BoxError>,
{
    pub(super) async fn start(
        subject: &'s S,
        condition: Condition,
        add: A,
    ) -> Result<Self, BoxError> {
        let store = subject.fresh().await;
        let worker = Worker::start(&store, &add).await?;
        Ok(Self {
            client: Client::new(&store),
            worker: Some(worker),
            written: Vec::new(),
            subject,
            store,
            condition,
            add,
        })
    }

    pub(super) fn worker(&self) -> Result<&Worker, BoxError> {
        Ok(self.worker.as_ref().ok_or("the worker was killed")?)
    }

    pub(super) async fn send(
        &self,
        executor: &str,
        trigger: NewBreadcrumb,
    ) -> Result<RequestHandle, BoxError> {
        Ok(self.client.request(executor, trigger).send().await?)
    }

    /// Returns the most recently enqueued run of an executor as a request.
    pub(super) async fn run_of(&self, executor: &str) -> Result<RequestHandle, BoxError> {
        let query = RunQuery::all().executor(executor);
        let runs = self.client.runs(&query).await?.runs;
        // Runs of earlier requests have ended.
        let open = runs.iter().find(|run| !run.state.is_over());
        let run = open.or(runs.first()).ok_or("no run")?.run.clone();
        let id = format!("{}:{}:{executor}", run.trigger_id, run.trigger_version);
        Ok(self.client.attach(&id)?)
    }

    /// Puts the worker and the executors into the stage's condition.
    pub(super) async fn apply_condition(&mut self, executors: &[&str]) -> Result<(), BoxError> {
        match self.condition {
            Condition::Alive => {}
            Condition::Dead => {
                let worker = self.worker.take();
                worker.ok_or("the worker was killed")?.kill().await;
            }
            Condition::Paused => {
                for executor in executors {
                    assert!(self.worker()?.runtime().pause(executor).await?);
                }
            }
        }
        Ok(())
    }

    /// Cancels a run while its requester waits for it. Returns the number of runs that the cancellation ended.
    pub(super) async fn cancel(
        &mut self,
        request: &RequestHandle,
        cascade: Cascade,
    ) -> Result<usize, BoxError> {
        let cancel = self.client.cancel(request.run(), cascade);
        let (waited, ended) = tokio::join!(request.wait(LONG), cancel);
        let error = waited.err().ok_or("a cancelled run has a reply")?;
        let is_cancelled = matches!(error, ReplyError::Cancelled { .. });
        assert!(is_cancelled, "{:?}: {error:?}", self.condition);
        self.written = self.assert_cancelled(request).await?;
        Ok(ended?)
    }

    /// Fails unless a run ended as cancelled and no question is open. Returns the breadcrumbs that the run wrote.
    pub(super) async fn assert_cancelled(
        &self,
        request: &RequestHandle,
    ) -> Result<Vec<BreadcrumbId>, BoxError> {
        let condition = self.condition;
        let run = self.client.run(request.run()).await?.ok_or("no run")?;
        assert_eq!(
            (run.state, run.code.as_deref()),
            (RunState::Failed, Some(RunEnd::CANCELLED)),
            "{condition:?}"
        );
        let again = self.client.cancel(request.run(), Cascade::Run).await?;
        assert_eq!(again, 0, "{condition:?}: a second cancellation ends no run");
        let open = self.client.questions().open().await?;
        assert!(open.is_empty(), "{condition:?}: {open:?}");
        Ok(run.written)
    }

    /// Restores the usual condition: a live worker, and no paused executor.
    pub(super) async fn recover(&mut self, executors: &[&str]) -> Result<(), BoxError> {
        match self.condition {
            Condition::Alive => {}
            Condition::Dead => {
                // After this, another worker could claim a run that the dead worker still holds.
                self.subject.advance_clock(LEASE * 2).await;
                self.worker = Some(Worker::start(&self.store, &self.add).await?);
            }
            Condition::Paused => {
                for executor in executors {
                    assert!(self.worker()?.runtime().resume(executor).await?);
                }
            }
        }
        Ok(())
    }

    /// Waits for the reply to another request. All runs of its executor that were due earlier have started by then.
    pub(super) async fn works(
        &self,
        executor: &str,
        trigger: NewBreadcrumb,
    ) -> Result<(), BoxError> {
        self.send(executor, trigger).await?.wait(LONG).await?;
        Ok(())
    }

    /// Stops the worker. Fails unless the cancelled run is unchanged since its cancellation.
    pub(super) async fn finish(mut self, request: &RequestHandle) -> Result<(), BoxError> {
        let worker = self.worker.take().ok_or("the worker was killed")?;
        worker.stop().await?;
        assert_eq!(self.assert_cancelled(request).await?, self.written);
        Ok(())
    }
}
