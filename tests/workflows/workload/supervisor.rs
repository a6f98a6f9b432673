//! The supervisor: turns run in order, sessions run in parallel, everything is bounded, and workloads are always closed.

use crate::workload::{Setup, agent, code, flow, grammar, parrot, says, setup, setup_on};
use serde_json::json;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use universal_executor::store::mock::MockBreadcrumbStore;
use universal_executor::workload::{
    Definition, EventStream, Meta, NativeDefinition, Restart, RunCx, SubscriberItem,
    SupervisorBuilder, SupervisorError, TurnStatus, Workload, WorkloadError, WorkloadMessage,
};
use universal_executor::{BoxError, BreadcrumbStore, Json, MemoryStore, Services, async_trait};

fn nothing() -> Setup {
    setup(&says([]), &MemoryStore::default())
}

fn on<D: Definition + 'static>(definition: D) -> SupervisorBuilder {
    nothing().supervisor(Arc::new(definition))
}

/// A workload that reports its start and ends once a test permits it.
pub(crate) struct Gate {
    begun: Arc<Semaphore>,
    pub(crate) open: Arc<Semaphore>,
    /// The received messages, in the order in which the turns started.
    told: Arc<Mutex<Vec<String>>>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let closed = || Arc::new(Semaphore::new(0));
        Self {
            begun: closed(),
            open: closed(),
            told: Arc::default(),
        }
    }

    pub(crate) fn definition(&self) -> NativeDefinition {
        let (begun, open) = (Arc::clone(&self.begun), Arc::clone(&self.open));
        let told = Arc::clone(&self.told);
        NativeDefinition::new("gate", move |_, message| {
            let (begun, open) = (Arc::clone(&begun), Arc::clone(&open));
            let message: WorkloadMessage = message.unwrap_or_default();
            told.lock().unwrap().push(message.text());
            async move {
                begun.add_permits(1);
                open.acquire().await?.forget();
                Ok(message.content)
            }
        })
    }

    /// Waits until this number of turns have started.
    pub(crate) async fn begun(&self, many: u32) {
        self.begun.acquire_many(many).await.unwrap().forget();
    }
}

#[tokio::test]
async fn turns_of_one_session_go_in_order_and_sessions_side_by_side() {
    let gate = Gate::new();
    let supervisor = on(gate.definition()).build().unwrap();

    let first = supervisor.send("one", "1").unwrap();
    let second = supervisor.send("one", "2").unwrap();
    let other = supervisor.send("two", "3").unwrap();
    gate.begun(2).await;
    assert_eq!(gate.begun.available_permits(), 0);
    assert_eq!(
        (supervisor.health().active, supervisor.health().waiting),
        (2, 1)
    );

    gate.open.add_permits(3);
    let outcomes =
        [first, second, other].map(universal_executor::workload::SupervisedTurn::outcome);
    let texts = futures::future::join_all(outcomes).await;

    let texts: Vec<_> = texts
        .iter()
        .map(|outcome| outcome.final_text().unwrap())
        .collect();
    assert_eq!(texts, ["1", "2", "3"]);
    let told = gate.told.lock().unwrap().clone();
    let of_one: Vec<_> = told.iter().filter(|told| *told != "3").collect();
    assert_eq!(of_one, ["1", "2"]);
    supervisor.close().await;
    assert_eq!(
        (supervisor.health().active, supervisor.health().ended),
        (0, 3)
    );
}

#[test]
fn an_invalid_workload_definition_is_refused_when_the_supervisor_is_built() {
    let no_model = Setup::new(Services::new(), Arc::new(MemoryStore::default()));

    let error = no_model.supervisor(Arc::new(agent())).build();

    let error = error.err().unwrap();
    assert!(matches!(error, WorkloadError::Definition { .. }), "{error}");
}

#[tokio::test]
async fn a_message_beyond_the_queue_limits_is_refused() {
    let gate = Gate::new();
    let supervisor = on(gate.definition())
        .queue(1, 2)
        .concurrency(1)
        .build()
        .unwrap();
    let _running = supervisor.send("one", "1").unwrap();
    gate.begun(1).await;
    let _waiting = supervisor.send("one", "2").unwrap();
    let _other = supervisor.send("two", "3").unwrap();

    let of_session = supervisor.send("one", "4").err();
    let of_all = supervisor.send("three", "5").err();
    let no_name = supervisor.send("", "6").err();

    assert_eq!(of_all, Some(SupervisorError::Full { limit: 2 }));
    assert_eq!(of_session, of_all);
    assert!(matches!(
        no_name,
        Some(SupervisorError::BadSession { found: 0, .. })
    ));
    supervisor.cancel("two");
    let of_session = supervisor.send("one", "4").err();
    assert!(matches!(
        of_session,
        Some(SupervisorError::SessionFull { limit: 1, .. })
    ));
}

#[tokio::test]
async fn a_supervisor_that_lets_no_turn_wait_takes_one_at_a_time() {
    let gate = Gate::new();
    let supervisor = on(gate.definition()).queue(0, 0).build().unwrap();

    let first = supervisor.send("one", "1").unwrap();
    let at_once = supervisor.send("one", "2").err();
    gate.begun(1).await;
    gate.open.add_permits(1);

    assert_eq!(at_once, Some(SupervisorError::Full { limit: 1 }));
    assert_eq!(first.outcome().await.final_text().as_deref(), Some("1"));
}

#[tokio::test]
async fn all_subscribers_receive_the_same_items_and_a_slow_one_its_missed_count() {
    let talks = NativeDefinition::new("talks", |cx: RunCx, _| async move {
        for number in 0..10 {
            cx.say(number.to_string()).await;
        }
        Ok(json!("done"))
    });
    let supervisor = on(talks).buffer(4).build().unwrap();
    let mut slow = supervisor.subscribe("one").unwrap();
    let mut as_slow = supervisor.subscribe("one").unwrap();
    let mut other = supervisor.subscribe("two").unwrap();

    supervisor.send("one", "go").unwrap().outcome().await;
    supervisor.close().await;

    let mut heard = Vec::new();
    while let Some(next) = slow.next().await {
        assert_eq!(as_slow.next().await.as_ref(), Some(&next));
        heard.push(next);
    }
    assert_eq!(heard[0], SubscriberItem::Missed(8));
    assert_eq!(heard.len(), 5);
    assert_eq!(other.next().await, None);
}

#[tokio::test]
async fn a_subscriber_receives_all_events_of_a_turn() {
    let setup = setup(&parrot(), &MemoryStore::default());
    let supervisor = setup.supervisor(Arc::new(agent())).build().unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();

    let turn = supervisor.send("one", "hi").unwrap();
    let run = turn.run().to_owned();
    turn.outcome().await;
    supervisor.close().await;

    let mut events = Vec::new();
    while let Some(SubscriberItem::Event(event)) = subscriber.next().await {
        events.push((*event).clone());
    }
    grammar::check(&events);
    assert_eq!(&*events[0].run, run);
}

/// A workload that never ends and counts how often it is closed.
pub(crate) struct Endless {
    meta: Meta,
    begun: Arc<Notify>,
    closed: Arc<AtomicUsize>,
}

impl Definition for Endless {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn check(&self, _: &Services, _: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError> {
        Ok(())
    }

    fn instantiate(
        &self,
        _: &Services,
        _: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Box<dyn Workload>, BoxError> {
        Ok(Box::new(Going(
            Arc::clone(&self.begun),
            Arc::clone(&self.closed),
        )))
    }
}

struct Going(Arc<Notify>, Arc<AtomicUsize>);

#[async_trait]
impl Workload for Going {
    fn run(&mut self, cx: RunCx, _: Option<WorkloadMessage>) -> EventStream<'_> {
        self.0.notify_one();
        cx.stream(std::future::pending())
    }

    async fn close(&mut self) -> Result<(), BoxError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Err("it is stuck".into())
    }
}

pub(crate) fn endless() -> (Endless, Arc<Notify>, Arc<AtomicUsize>) {
    let (begun, closed) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let endless = Endless {
        meta: Meta::new("endless"),
        begun: Arc::clone(&begun),
        closed: Arc::clone(&closed),
    };
    (endless, begun, closed)
}

#[tokio::test]
async fn a_cancelled_turn_is_closed_and_its_waiting_successors_are_dropped() {
    let (endless, begun, closed) = endless();
    let supervisor = on(endless).build().unwrap();
    let running = supervisor.send("one", "1").unwrap();
    let waiting = supervisor.send("one", "2").unwrap();
    begun.notified().await;

    supervisor.cancel("one");
    let (running, waiting) = futures::join!(running.outcome(), waiting.outcome());

    assert_eq!(
        (running.status, waiting.status),
        (TurnStatus::Cancelled, TurnStatus::Cancelled)
    );
    assert!(running.not_closed.unwrap().to_string().contains("endless"));
    assert_eq!(closed.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_closing_supervisor_stops_slow_turns_and_refuses_new_ones() {
    let (endless, begun, closed) = endless();
    let supervisor = on(endless)
        .drain_timeout(Duration::from_secs(3))
        .build()
        .unwrap();
    let mut subscriber = supervisor.subscribe("two").unwrap();
    let mut of_turn = supervisor.subscribe("one").unwrap();
    let turn = supervisor.send("one", "1").unwrap();
    begun.notified().await;

    supervisor.close().await;

    assert_eq!(turn.outcome().await.status, TurnStatus::Cancelled);
    assert_eq!(closed.load(Ordering::SeqCst), 1);
    assert_eq!(
        supervisor.send("one", "2").err(),
        Some(SupervisorError::Closed)
    );
    assert_eq!(subscriber.next().await, None);
    for _ in ["it began", "it was stopped"] {
        assert!(matches!(
            of_turn.next().await,
            Some(SubscriberItem::Event(_))
        ));
    }
    let nothing_more = tokio::time::timeout(Duration::from_secs(60), of_turn.next());
    assert_eq!(nothing_more.await, Ok(None));
}

#[tokio::test]
async fn a_dropped_supervisor_stops_and_closes_running_turns() {
    let (endless, begun, closed) = endless();
    let supervisor = on(endless).build().unwrap();
    let turn = supervisor.send("one", "1").unwrap();
    begun.notified().await;

    drop(supervisor);

    assert_eq!(turn.outcome().await.status, TurnStatus::Cancelled);
    assert_eq!(closed.load(Ordering::SeqCst), 1);
}

/// Creates a workload that fails this number of times, with an error or a panic, and then succeeds.
fn failing(times: usize, panics: bool) -> (NativeDefinition, Arc<AtomicUsize>) {
    let tried = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tried);
    let definition = NativeDefinition::new("failing", move |_, _| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(!panics || number >= times, "planned panic");
            match number < times {
                true => Err("not yet".into()),
                false => Ok(Json::from(json!("done"))),
            }
        }
    });
    (definition, tried)
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_tried_again_as_often_as_it_may_be() {
    let attempts = |attempts| Restart {
        attempts: NonZeroU32::new(attempts).unwrap(),
        ..Restart::default()
    };
    for (panics, may, status) in [
        (false, 3, ""),
        (true, 3, ""),
        (false, 2, "failed"),
        (true, 1, "panic"),
    ] {
        let (definition, tried) = failing(2, panics);
        let supervisor = on(definition).restart(attempts(may)).build().unwrap();

        let outcome = supervisor.send("one", "go").unwrap().outcome().await;

        assert_eq!(code(&outcome.status), status, "{outcome:?}");
        assert_eq!(tried.load(Ordering::SeqCst), may as usize);
        assert_eq!(supervisor.health().restarted, u64::from(may) - 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_fails_the_turn_and_the_supervisor_still_closes() {
    // This store expects no call and panics at the first one.
    let broken = setup_on(&says([]), Arc::new(MockBreadcrumbStore::new()));
    let (definition, _) = failing(0, false);
    let supervisor = broken.supervisor(Arc::new(definition)).build().unwrap();

    let outcome = supervisor.send("one", "go").unwrap().outcome().await;
    let closed = tokio::time::timeout(Duration::from_secs(60), supervisor.close()).await;

    assert_eq!(code(&outcome.status), "panic", "{outcome:?}");
    assert_eq!(closed, Ok(()));
    assert_eq!(supervisor.health().active, 0);
}

#[tokio::test(start_paused = true)]
async fn between_two_attempts_no_more_than_a_minute_passes() {
    let (definition, _) = failing(8, false);
    let restart = Restart {
        attempts: NonZeroU32::new(9).unwrap(),
        ..Restart::default()
    };
    let supervisor = on(definition).restart(restart).build().unwrap();
    let begun = tokio::time::Instant::now();

    let outcome = supervisor.send("one", "go").unwrap().outcome().await;

    assert_eq!(code(&outcome.status), "", "{outcome:?}");
    // The first six delays take 63 seconds in total, and each further delay one minute.
    assert_eq!(begun.elapsed().as_secs(), 63 + 2 * 60);
}

#[tokio::test]
async fn the_output_of_a_turn_is_its_returned_value_or_the_last_answer_of_its_flow() {
    let steps = |last| {
        flow(json!({
            "agents": {"a": {"instruction": "One."}, "b": {"instruction": "Two."}},
            "flows": {"main": {"steps": [{"agent": "a"}, {"flow": "sub"}, {"agent": "b"}, last]},
                      "sub": {"steps": [{"return": "of the sub-flow"}]}},
        }))
    };
    let with = steps(json!({"return": "returned"}));
    let without = steps(json!({"set": {"x": 1}}));
    for (definition, expected) in [(with, "returned"), (without, "said: hi")] {
        let setup = setup(&parrot(), &MemoryStore::default());
        let supervisor = setup.supervisor(Arc::new(definition)).build().unwrap();

        let outcome = supervisor.send("one", "hi").unwrap().outcome().await;

        assert_eq!(
            outcome.final_text().as_deref(),
            Some(expected),
            "{outcome:?}"
        );
    }
}
