//! Executors on the server, without and with a separate ledger.

use super::server::{Fault, Match, Server};
use super::store;
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use universal_executor::model::Timestamp;
use universal_executor::source::StartAt;
use universal_executor::store::{
    Claim, Claimed, Commit, Fault as Injected, Faulty, Query, RunEnd, RunRef, Write,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, EventSource as _,
    ExecutionContext, MemoryStore, NewBreadcrumb, Outcome, RcrtStore, Response, RunLedger, Runtime,
    Selector, Subscription, Subscriptions, UniversalExecutor, WithLedger, async_trait,
};

struct Echo<S> {
    subscriptions: Subscriptions,
    store: S,
}

impl<S: BreadcrumbStore> Echo<S> {
    fn on(store: S) -> Self {
        let subscriptions = Subscriptions::new(vec![Subscription::trigger("question.v1")]).unwrap();
        Self {
            subscriptions,
            store,
        }
    }
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Echo<S> {
    fn id(&self) -> &str {
        "echo"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, trigger: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"echo": *trigger.context}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(
            NewBreadcrumb::new("answer.v1").context(output),
        ))
    }
}

async fn answers(store: &RcrtStore) -> usize {
    store
        .search(&Query::new(Selector::schema("answer.v1")).limit(100))
        .await
        .unwrap()
        .len()
}

#[tokio::test]
async fn a_redelivered_event_is_answered_once_without_a_ledger() {
    let server = Server::start().await;
    let store = store(&server);
    let echo = Echo::on(store.clone());
    let question = store
        .create(NewBreadcrumb::new("question.v1"))
        .await
        .unwrap();
    server.fail(Match("POST", "/breadcrumbs"), Fault::DoAndClose);

    let event = Event::created(&question);
    let first = echo.process_event(&event).await.unwrap();

    assert!(matches!(first, Outcome::Responded { .. }), "{first:?}");
    for _ in 0..2 {
        let again = echo.process_event(&event).await.unwrap();
        assert!(matches!(again, Outcome::AlreadyDone { .. }), "{again:?}");
    }
    assert_eq!(answers(&store).await, 1);
}

#[tokio::test]
async fn an_answer_of_an_earlier_process_is_not_written_again() {
    let server = Server::start().await;
    let store = store(&server);
    let question = store
        .create(NewBreadcrumb::new("question.v1"))
        .await
        .unwrap();
    let event = Event::created(&question);
    let first = Echo::on(store.clone()).process_event(&event).await.unwrap();

    // A store with another identity has a separate ledger in memory, like a new process.
    let restarted = Faulty::new(store.clone(), |_, _| Injected::None);
    let echo = Echo::on(restarted);
    let outcomes = [
        echo.process_event(&event).await.unwrap(),
        echo.process_event(&event).await.unwrap(),
    ];

    let Outcome::Responded { written: expected } = first else {
        panic!("{first:?}")
    };
    for outcome in outcomes {
        let Outcome::AlreadyDone { written, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(written, expected);
    }
    assert_eq!(answers(&store).await, 1);
}

#[tokio::test]
async fn a_trigger_that_comes_again_late_is_not_executed_again() {
    let store = store(&Server::start().await);
    let echo = Echo::on(store.clone());
    let question = store
        .create(NewBreadcrumb::new("question.v1"))
        .await
        .unwrap();
    let first = echo
        .process_event(&Event::created(&question))
        .await
        .unwrap();
    let late = Event {
        updated_at: Timestamp::UNIX_EPOCH,
        ..Event::created(&question)
    };

    let again = echo.process_event(&late).await.unwrap();

    let Outcome::Responded { written: first } = first else {
        panic!("{first:?}")
    };
    let Outcome::AlreadyDone { written, .. } = again else {
        panic!("{again:?}")
    };
    assert_eq!(written, first);
}

#[tokio::test]
async fn a_worker_that_died_before_its_run_ended_has_answered_once() {
    let store = store(&Server::start().await);
    let runs = MemoryStore::default();
    let both = WithLedger::new(store.clone(), runs.clone());
    let question = store
        .create(NewBreadcrumb::new("question.v1"))
        .await
        .unwrap();
    let run = RunRef::new("echo", question.id, 1);
    let claim = runs.claim(&run, None).await.unwrap();
    let Claim::Granted(Claimed { lease, .. }) = claim else {
        panic!("{claim:?}")
    };
    let answer = Write::Create(NewBreadcrumb::new("answer.v1"));
    // The worker writes the answer like `WithLedger`, and dies before it ends its run.
    let end = Some((lease.clone(), RunEnd::Done));
    store
        .commit(Commit {
            writes: vec![answer],
            end,
        })
        .await
        .unwrap();
    runs.release(lease).await.unwrap();

    let outcome = Echo::on(both.clone())
        .process_event(&Event::created(&question))
        .await
        .unwrap();
    let again = Echo::on(both)
        .process_event(&Event::created(&question))
        .await
        .unwrap();

    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    assert!(matches!(again, Outcome::AlreadyDone { .. }), "{again:?}");
    assert_eq!(answers(&store).await, 1);
}

#[tokio::test]
async fn a_runtime_answers_each_question_once_despite_events_missing_from_the_stream() {
    const QUESTIONS: usize = 12;
    let server = Server::start().await;
    server.ways(|ways| ways.copies = 2);
    let store = super::builder(&server, super::OWNER)
        .check_every(Duration::from_millis(50))
        .build()
        .unwrap();
    let both = WithLedger::new(store.clone(), MemoryStore::default());
    let runtime = Runtime::builder(store.events())
        .executor(Echo::on(both))
        .build()
        .unwrap();
    let asked = async {
        // The stream is open once a subscription exists.
        let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
        let mut answered = 0;
        for n in 0..QUESTIONS {
            server.ways(|ways| ways.is_deaf = n % 3 == 2);
            if n % 4 == 3 {
                server.cut();
            }
            store
                .create(NewBreadcrumb::new("question.v1"))
                .await
                .unwrap();
        }
        server.ways(|ways| ways.is_deaf = false);
        while answered < QUESTIONS {
            if let Ok(delivery) = events.next().await.unwrap() {
                answered += usize::from(delivery.event.schema_name.as_deref() == Some("answer.v1"));
            }
        }
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!(answers(&store).await, QUESTIONS, "{report:?}");
}
