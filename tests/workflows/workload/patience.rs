//! Timeouts: work that hangs blocks neither a session nor a supervisor without end.

use crate::workload::{Setup, says, setup};
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use universal_executor::store::{Fault, Faulty, Moment, Operation};
use universal_executor::workload::{
    Definition, EventStream, Meta, RunCx, TurnStatus, Workload, WorkloadEventKind, WorkloadMessage,
    WorkloadScope,
};
use universal_executor::{BoxError, BreadcrumbStore, Json, MemoryStore, Services, async_trait};

const PATIENCE: Duration = Duration::from_secs(3);

fn done(cx: &RunCx) -> EventStream<'static> {
    let output = Json::default();
    cx.stream(async { WorkloadEventKind::Final { output } })
}

/// A workload that never finishes closing.
struct Stuck(Meta);

struct Open;

#[async_trait]
impl Workload for Open {
    fn run(&mut self, cx: RunCx, _: Option<WorkloadMessage>) -> EventStream<'_> {
        done(&cx)
    }

    async fn close(&mut self) -> Result<(), BoxError> {
        pending().await
    }
}

impl Definition for Stuck {
    fn meta(&self) -> &Meta {
        &self.0
    }

    fn check(&self, _: &Services, _: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError> {
        Ok(())
    }

    fn instantiate(
        &self,
        _: &Services,
        _: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Box<dyn Workload>, BoxError> {
        Ok(Box::new(Open))
    }
}

fn stuck() -> Arc<Stuck> {
    Arc::new(Stuck(Meta::new("stuck")))
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_exceeds_its_close_timeout_is_dropped_and_reported_as_open() {
    let setup = setup(&says([]), &MemoryStore::default());
    let supervisor = setup
        .supervisor(stuck())
        .close_timeout(PATIENCE)
        .build()
        .unwrap();
    let begun = Instant::now();

    let first = supervisor.send("one", "1").unwrap();
    let second = supervisor.send("one", "2").unwrap();
    let (first, second) = futures::join!(first.outcome(), second.outcome());

    for outcome in [first, second] {
        assert!(
            matches!(outcome.status, TurnStatus::Completed { .. }),
            "{outcome:?}"
        );
        let not_closed = outcome.not_closed.unwrap();
        assert_eq!(not_closed.failures[0].0, "stuck");
        assert_eq!(not_closed.failures[0].1.to_string(), "timed out after 3s");
    }
    assert_eq!(begun.elapsed(), PATIENCE * 2);
}

#[tokio::test(start_paused = true)]
async fn a_workload_has_a_default_close_timeout_of_thirty_seconds() {
    let setup = setup(&says([]), &MemoryStore::default());
    let supervisor = setup.supervisor(stuck()).build().unwrap();
    let begun = Instant::now();

    supervisor.send("one", "1").unwrap().outcome().await;
    let of_supervisor = begun.elapsed();
    let mut scope = WorkloadScope::default();
    let Setup { services, store } = &setup;
    scope.instantiate(&*stuck(), services, store).unwrap();
    let not_closed = scope.close().await;

    assert!(not_closed.is_err());
    assert_eq!(of_supervisor, Duration::from_secs(30));
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_does_not_close_in_time_does_not_keep_the_others_open() {
    let closed = Arc::new(AtomicUsize::new(0));
    let mut scope = WorkloadScope::default().close_timeout(PATIENCE);
    scope.add("stuck", Box::new(Open));
    scope.add("panics", Box::new(Hasty));
    scope.add("closes", Box::new(Closes(Arc::clone(&closed))));

    let error = scope.close().await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "2 of 3 workloads could not be closed: stuck, panics"
    );
    assert_eq!(closed.load(Ordering::SeqCst), 1);
}

struct Closes(Arc<AtomicUsize>);

#[async_trait]
impl Workload for Closes {
    fn run(&mut self, cx: RunCx, _: Option<WorkloadMessage>) -> EventStream<'_> {
        done(&cx)
    }

    async fn close(&mut self) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A workload that panics before it returns its event stream.
struct Hasty;

impl Workload for Hasty {
    fn run(&mut self, cx: RunCx, _: Option<WorkloadMessage>) -> EventStream<'_> {
        done(&cx)
    }

    fn close<'w, 'c>(
        &'w mut self,
    ) -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send + 'c>>
    where
        'w: 'c,
        Self: 'c,
    {
        std::panic::resume_unwind(Box::new(()))
    }
}

/// Returns a setup whose store hangs on reads, and a notification for each read.
fn hangs() -> (Setup, Arc<Notify>) {
    let asked = Arc::new(Notify::new());
    let notes = Arc::clone(&asked);
    let store = Faulty::new(MemoryStore::default(), move |operation, moment| {
        match (operation, moment) {
            (Operation::Search, Moment::Before) => {
                notes.notify_one();
                Fault::Hang
            }
            _ => Fault::None,
        }
    });
    (Setup::new(Services::new(), Arc::new(store)), asked)
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_session_cannot_be_read_can_be_stopped() {
    let (setup, asked) = hangs();
    let supervisor = setup.supervisor(stuck()).build().unwrap();
    let turn = supervisor.send("one", "1").unwrap();
    asked.notified().await;

    supervisor.cancel("one");

    let outcome = tokio::time::timeout(PATIENCE, turn.outcome()).await;
    assert_eq!(outcome.unwrap().status, TurnStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_whose_store_hangs_can_be_closed() {
    let (setup, asked) = hangs();
    let supervisor = setup
        .supervisor(stuck())
        .drain_timeout(PATIENCE)
        .build()
        .unwrap();
    let turn = supervisor.send("one", "1").unwrap();
    asked.notified().await;

    let closed = tokio::time::timeout(PATIENCE * 2, supervisor.close()).await;

    assert_eq!(closed, Ok(()));
    assert_eq!(turn.outcome().await.status, TurnStatus::Cancelled);
}
