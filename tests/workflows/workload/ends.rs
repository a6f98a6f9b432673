//! The events about the end of a session's turns: subscribers receive one true end for each turn.

use crate::workload::supervisor::{Gate, endless};
use crate::workload::{Setup, alone, code, flow, grammar, parrot, says, setup};
use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use universal_executor::agent;
use universal_executor::store::{Fault, Faulty, Moment, Operation, Wake};
use universal_executor::workflow::{FlowEventKind, StepPath};
use universal_executor::workload::{
    Conversation, Definition, FlowDefinition, LogEntry, NativeDefinition, Restart, RunCx,
    SessionStore, Subscriber, SubscriberItem, SupervisorBuilder, TurnStatus, WorkloadEvent,
    WorkloadEventKind,
};
use universal_executor::{
    BoxError, BreadcrumbStore, MemoryStore, NewBreadcrumb, Services, permanent, suspend,
};

fn on(definition: impl Definition + 'static, store: Arc<dyn BreadcrumbStore>) -> SupervisorBuilder {
    Setup::new(Services::new(), store).supervisor(Arc::new(definition))
}

fn attempts(attempts: u32) -> Restart {
    Restart {
        attempts: NonZeroU32::new(attempts).unwrap(),
        ..Restart::default()
    }
}

/// Returns the events that a subscriber can read without waiting.
fn so_far(subscriber: &mut Subscriber) -> Vec<WorkloadEvent> {
    let mut events = Vec::new();
    while let Some(Some(SubscriberItem::Event(event))) = subscriber.next().now_or_never() {
        events.push((*event).clone());
    }
    events
}

/// Splits events into streams in the order of their ends. A run that has waited has several streams.
fn streams(events: Vec<WorkloadEvent>) -> Vec<Vec<WorkloadEvent>> {
    let mut open: BTreeMap<Arc<str>, Vec<WorkloadEvent>> = BTreeMap::new();
    let mut ended = Vec::new();
    for event in events {
        let run = Arc::clone(&event.run);
        let is_end = event.kind.is_end();
        open.entry(Arc::clone(&run)).or_default().push(event);
        if is_end {
            ended.extend(open.remove(&run));
        }
    }
    assert!(open.is_empty(), "streams without an end: {open:?}");
    ended
}

fn kinds(events: &[WorkloadEvent]) -> Vec<WorkloadEventKind> {
    events.iter().map(|event| event.kind.clone()).collect()
}

fn end(status: &TurnStatus) -> WorkloadEventKind {
    match status.clone() {
        TurnStatus::Completed { output } => WorkloadEventKind::Final { output },
        TurnStatus::Failed { failure, retry } => WorkloadEventKind::Error { failure, retry },
        TurnStatus::Suspended { wake, state } => WorkloadEventKind::Suspended { wake, state },
        _ => WorkloadEventKind::failed("cancelled", "the turn was stopped"),
    }
}

#[tokio::test]
async fn one_end_event_precedes_the_outcome_of_a_stopped_or_dropped_turn() {
    let (endless, begun, _) = endless();
    let supervisor = on(endless, Arc::new(MemoryStore::default()))
        .build()
        .unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();
    let turns = ["1", "2", "3"].map(|message| supervisor.send("one", message).unwrap());
    begun.notified().await;

    supervisor.cancel("one");
    let outcomes = join_all(turns.map(universal_executor::workload::SupervisedTurn::outcome)).await;

    let told = streams(so_far(&mut subscriber));
    assert_eq!(told.len(), 3);
    for outcome in &outcomes {
        let stream = told.iter().find(|told| told[0].run == outcome.run).unwrap();
        grammar::check(stream);
        assert_eq!(
            kinds(stream),
            [WorkloadEventKind::Started, end(&TurnStatus::Cancelled)]
        );
    }
}

#[tokio::test]
async fn an_end_event_is_sent_for_each_turn_that_never_starts() {
    let gate = Gate::new();
    let store = Arc::new(MemoryStore::default());
    let supervisor = on(gate.definition(), store).concurrency(1).build().unwrap();
    let mut one = supervisor.subscribe("one").unwrap();
    let mut two = supervisor.subscribe("two").unwrap();
    let _running = supervisor.send("one", "1").unwrap();
    gate.begun(1).await;

    let no_place = supervisor.send("two", "2").unwrap();
    tokio::task::yield_now().await;
    supervisor.cancel("two");
    assert_eq!(no_place.outcome().await.status, TurnStatus::Cancelled);
    gate.open.add_permits(1);
    let nothing = supervisor.resume("one").unwrap().outcome().await;

    assert_eq!(code(&nothing.status), "not_suspended");
    let no_place = streams(so_far(&mut two));
    assert_eq!(
        kinds(&no_place[0]),
        [WorkloadEventKind::Started, end(&TurnStatus::Cancelled)]
    );
    let told = streams(so_far(&mut one));
    assert_eq!(
        kinds(&told[1]),
        [WorkloadEventKind::Started, end(&nothing.status)]
    );
    assert_eq!(told[1][0].run, nothing.run);
}

#[tokio::test]
async fn an_end_event_is_sent_for_each_turn_stopped_by_closing_the_supervisor() {
    let (endless, begun, _) = endless();
    let supervisor = on(endless, Arc::new(MemoryStore::default()))
        .drain_timeout(Duration::ZERO)
        .build()
        .unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();
    for message in ["1", "2"] {
        supervisor.send("one", message).unwrap();
    }
    begun.notified().await;

    supervisor.close().await;

    let told = streams(so_far(&mut subscriber));
    assert_eq!(told.len(), 2);
    for stream in &told {
        grammar::check(stream);
        assert_eq!(
            stream.last().unwrap().kind,
            end(&TurnStatus::Cancelled),
            "{stream:?}"
        );
    }
}

/// Adds to a session as another client.
async fn add(session: &Conversation) {
    let log = session.load().await.unwrap();
    let messages = vec![agent::ChatMessage::user("in between")];
    let said = LogEntry::Said { messages };
    session.append(&log, "other", said).await.unwrap();
}

#[tokio::test]
async fn a_turn_that_the_session_cannot_save_is_never_reported_as_completed() {
    let store = Arc::new(MemoryStore::default());
    let session = SessionStore::new(Arc::clone(&store) as _).session("one");
    let behind = session.clone();
    let late = NativeDefinition::new("late", move |_, _| {
        let session = behind.clone();
        async move {
            add(&session).await;
            Ok(json!("done"))
        }
    });
    let supervisor = on(late, store).build().unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();

    let outcome = supervisor.send("one", "go").unwrap().outcome().await;

    assert_eq!(code(&outcome.status), "session");
    let told = so_far(&mut subscriber);
    assert_eq!(
        kinds(&told),
        [WorkloadEventKind::Started, end(&outcome.status)]
    );
}

/// Returns a store with slow commits, except the first, which creates the session, and a notification for each slow commit.
fn slow_commits(takes: Fault) -> (Arc<Faulty<MemoryStore>>, Arc<Notify>) {
    let begun = Arc::new(Notify::new());
    let (notes, commits) = (Arc::clone(&begun), AtomicUsize::new(0));
    let plan = move |operation, moment| match (operation, moment) {
        (Operation::Commit, Moment::Before) if commits.fetch_add(1, Ordering::SeqCst) > 0 => {
            notes.notify_one();
            takes
        }
        _ => Fault::None,
    };
    (Arc::new(Faulty::new(MemoryStore::default(), plan)), begun)
}

fn echo() -> NativeDefinition {
    NativeDefinition::new("echo", |_, message| async move {
        Ok(message.unwrap_or_default().content)
    })
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_turn_is_reported_only_after_the_session_has_saved_it() {
    let (store, begun) = slow_commits(Fault::Delay(Duration::from_secs(5)));
    let supervisor = on(echo(), store).build().unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();
    let turn = supervisor.send("one", "go").unwrap();
    begun.notified().await;

    let before = kinds(&so_far(&mut subscriber));
    assert_eq!(before, [WorkloadEventKind::Started]);
    let heard = subscriber.next().await;
    let log = supervisor
        .sessions()
        .session("one")
        .load()
        .now_or_never()
        .unwrap();

    assert!(
        matches!(heard, Some(SubscriberItem::Event(event)) if event.kind.is_end()),
        "expected the end of the turn"
    );
    assert_eq!(log.unwrap().messages().len(), 2);
    assert_eq!(turn.outcome().await.final_text().as_deref(), Some("go"));
}

#[tokio::test(start_paused = true)]
async fn a_turn_cancelled_while_it_is_saved_is_saved_and_reported_as_completed() {
    let (store, begun) = slow_commits(Fault::Delay(Duration::from_secs(5)));
    let supervisor = on(echo(), store).build().unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();
    let turn = supervisor.send("one", "go").unwrap();
    begun.notified().await;

    supervisor.cancel("one");
    let outcome = turn.outcome().await;

    assert_eq!(
        outcome.final_text().as_deref(),
        Some("go"),
        "{:?}",
        outcome.status
    );
    let told = so_far(&mut subscriber);
    assert_eq!(told.last().unwrap().kind, end(&outcome.status));
    let log = supervisor.sessions().session("one").load().await.unwrap();
    assert_eq!(log.messages().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_stopped_while_the_store_hangs_ends_all_the_same() {
    let (store, begun) = slow_commits(Fault::Hang);
    let supervisor = on(echo(), store)
        .close_timeout(Duration::from_secs(3))
        .build()
        .unwrap();
    let turn = supervisor.send("one", "go").unwrap();
    begun.notified().await;
    let stopped = tokio::time::Instant::now();

    supervisor.cancel("one");
    let outcome = tokio::time::timeout(Duration::from_secs(60), turn.outcome()).await;

    let outcome = outcome.unwrap();
    assert_eq!(code(&outcome.status), "session", "{outcome:?}");
    assert_eq!(stopped.elapsed(), Duration::from_secs(3));
}

#[tokio::test]
async fn running_steps_of_a_cancelled_turn_are_reported_as_cancelled() {
    let stuck = universal_executor::tool::json_tool("stuck", "Hangs.", json!({}), |_, _| async {
        std::future::pending::<Result<Value, BoxError>>().await
    });
    let tools = universal_executor::tool::ToolRegistry::default().with(stuck);
    let services = Services::new().tools(tools.unwrap());
    let setup = Setup::new(services, Arc::new(MemoryStore::default()));
    let definition: FlowDefinition = flow(json!({
        "tools": {"stuck": {}},
        "flows": {"main": {"steps": [{"parallel": [{"tool": "stuck"}, {"tool": "stuck"}]}]}},
    }));
    let supervisor = setup.supervisor(Arc::new(definition)).build().unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();
    let turn = supervisor.send("one", "go").unwrap();
    let mut told = Vec::new();
    let began = |told: &[WorkloadEvent]| {
        let began = WorkloadEventKind::Step(FlowEventKind::Started);
        told.iter().filter(|event| event.kind == began).count()
    };
    while began(&told) < 3 {
        if let Some(SubscriberItem::Event(event)) = subscriber.next().await {
            told.push((*event).clone());
        }
    }

    supervisor.cancel("one");
    turn.outcome().await;

    told.extend(so_far(&mut subscriber));
    grammar::check(&told);
    let cancelled = WorkloadEventKind::Step(FlowEventKind::Cancelled);
    let cancelled = told.iter().filter(|event| event.kind == cancelled);
    assert_eq!(cancelled.count(), began(&told));
}

#[tokio::test(start_paused = true)]
async fn a_retried_turn_is_reported_as_one_event_stream() {
    let tried = Arc::new(Mutex::new(0));
    let twice = NativeDefinition::new("twice", move |cx: RunCx, _| {
        let mut tried = tried.lock().unwrap();
        *tried += 1;
        let is_first = *tried == 1;
        async move {
            let began = WorkloadEventKind::Step(FlowEventKind::Started);
            cx.tell(&StepPath::new("main"), began).await;
            match is_first {
                true => Err("not yet".into()),
                false => {
                    let ended = WorkloadEventKind::Step(FlowEventKind::Finished);
                    cx.tell(&StepPath::new("main"), ended).await;
                    Ok(json!("done"))
                }
            }
        }
    });
    let supervisor = on(twice, Arc::new(MemoryStore::default()))
        .restart(attempts(2))
        .build()
        .unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();

    let outcome = supervisor.send("one", "go").unwrap().outcome().await;

    let told = so_far(&mut subscriber);
    grammar::check(&told);
    let WorkloadEventKind::Restarted { attempt, after, .. } = &told[3].kind else {
        panic!("{told:?}")
    };
    assert_eq!((*attempt, *after), (2, Duration::from_secs(1)));
    let step = |kind| WorkloadEventKind::Step(kind);
    assert_eq!(
        kinds(&told[1..3]),
        [step(FlowEventKind::Started), step(FlowEventKind::Cancelled)]
    );
    assert_eq!(
        kinds(&told[4..]),
        [
            step(FlowEventKind::Started),
            step(FlowEventKind::Finished),
            end(&outcome.status)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_retried_turn_does_not_resume_another_suspended_turn() {
    let store = Arc::new(MemoryStore::default());
    let session = SessionStore::new(Arc::clone(&store) as _).session("one");
    let behind = session.clone();
    let definition = NativeDefinition::new("waits", move |cx: RunCx, _| {
        let session = behind.clone();
        async move {
            if cx.context().resumed().is_none() {
                let wake = Wake::at(universal_executor::model::Timestamp::from_micros(0));
                return Err::<Value, _>(suspend(wake, json!(1)).into());
            }
            // Another client continues the session and leaves another turn waiting.
            add(&session).await;
            let trigger = NewBreadcrumb::new("user.message.v1").into();
            let waits = LogEntry::Suspended {
                message: "other".into(),
                trigger: Box::new(trigger),
                state: json!(2).into(),
            };
            let log = session.load().await?;
            session.append(&log, "another", waits).await?;
            Err("not yet".into())
        }
    });
    let supervisor = on(definition, store).restart(attempts(2)).build().unwrap();
    let waits = supervisor.send("one", "go").unwrap().outcome().await;
    let mut subscriber = supervisor.subscribe("one").unwrap();

    let outcome = supervisor.resume("one").unwrap().outcome().await;

    assert_eq!(code(&outcome.status), "not_suspended", "{outcome:?}");
    assert_eq!(outcome.run, waits.run);
    let told = so_far(&mut subscriber);
    grammar::check(&told);
    assert_eq!(told[0].run, waits.run);
    let log = session.load().await.unwrap();
    let last = log.entries().next_back();
    assert!(matches!(last, Some(LogEntry::Suspended { .. })), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_its_next_attempt_leaves_its_place_to_others() {
    let begun = Arc::new(Semaphore::new(0));
    let begins = Arc::clone(&begun);
    let fails = NativeDefinition::new("fails", move |_, message| {
        begins.add_permits(1);
        async move {
            match message.unwrap_or_default().text().as_str() {
                "fail" => Err("not yet".into()),
                _ => Ok(json!("done")),
            }
        }
    });
    let restart = Restart {
        delay: Duration::from_secs(3600),
        ..attempts(2)
    };
    let supervisor = on(fails, Arc::new(MemoryStore::default()))
        .concurrency(1)
        .restart(restart)
        .build()
        .unwrap();
    let now = tokio::time::Instant::now();
    let failing = supervisor.send("one", "fail").unwrap();
    begun.acquire().await.unwrap().forget();

    let other = supervisor.send("two", "go").unwrap().outcome().await;

    assert_eq!(other.final_text().as_deref(), Some("done"));
    assert!(now.elapsed() < restart.delay);
    assert_eq!(code(&failing.outcome().await.status), "failed");
    assert_eq!(supervisor.health().restarted, 1);
}

#[tokio::test]
async fn a_workload_cannot_report_the_start_or_end_of_its_run() {
    use universal_executor::Json;
    let lies = NativeDefinition::new("lies", |cx: RunCx, _| async move {
        let output = Json::default();
        for kind in [
            WorkloadEventKind::Started,
            WorkloadEventKind::Final { output },
        ] {
            cx.tell(&StepPath::new(""), kind).await;
        }
        Ok(json!("done"))
    });
    let Setup { services, store } = setup(&says([]), &MemoryStore::default());
    let mut workload = lies.instantiate(&services, &store).unwrap();

    let told: Vec<_> = workload.run(alone("run-1"), None).collect().await;

    grammar::check(&told);
    assert_eq!(told.len(), 2);
}

/// The course of an attempt: nested steps start, some of them end, and then the attempt ends.
#[derive(Clone, Debug)]
struct Attempt {
    begin: usize,
    end: usize,
    comes: Comes,
}

#[derive(Clone, Copy, Debug)]
enum Comes {
    Done,
    Fails,
    FailsForGood,
    Panics,
    Waits,
    /// Another client adds to the session meanwhile.
    IsLate,
    /// The attempt hangs until it is stopped.
    Hangs,
}

fn any_turn() -> impl Strategy<Value = Vec<Attempt>> {
    let comes = prop::sample::select(vec![
        Comes::Done,
        Comes::Fails,
        Comes::FailsForGood,
        Comes::Panics,
        Comes::Waits,
        Comes::IsLate,
        Comes::Hangs,
    ]);
    let attempt = (0..4_usize, 0..4_usize, comes).prop_map(|(begin, end, comes)| Attempt {
        begin,
        end: end.min(begin),
        comes,
    });
    prop::collection::vec(attempt, 1..4)
}

/// Creates a workload that follows a script of turns and attempts. The message is the number of the turn.
fn scripted(
    turns: Vec<Vec<Attempt>>,
    session: Conversation,
    hangs: Arc<Notify>,
) -> NativeDefinition {
    let turns = turns.into_iter().map(VecDeque::from).collect::<Vec<_>>();
    let turns = Mutex::new(turns);
    NativeDefinition::new("scripted", move |cx: RunCx, message| {
        let number: usize = message.unwrap_or_default().text().parse().unwrap();
        let attempt = turns.lock().unwrap()[number].pop_front();
        let (session, hangs) = (session.clone(), Arc::clone(&hangs));
        async move {
            let Some(Attempt { begin, end, comes }) = attempt else {
                return Ok(json!("done"));
            };
            let paths = (1..=begin).map(|depth| StepPath::new(vec!["0"; depth].join("/")));
            let paths: Vec<_> = paths.collect();
            for path in &paths {
                let kind = WorkloadEventKind::Step(FlowEventKind::Started);
                cx.tell(path, kind).await;
            }
            for path in paths.iter().rev().take(end) {
                let kind = WorkloadEventKind::Step(FlowEventKind::Finished);
                cx.tell(path, kind).await;
            }
            match comes {
                // A successful attempt must end all its started steps.
                Comes::Done => {
                    for path in paths.iter().rev().skip(end) {
                        let kind = WorkloadEventKind::Step(FlowEventKind::Finished);
                        cx.tell(path, kind).await;
                    }
                    Ok(json!("done"))
                }
                Comes::Fails => Err("not yet".into()),
                Comes::FailsForGood => Err(permanent("never")),
                // `resume_unwind` prints no panic message.
                Comes::Panics => std::panic::resume_unwind(Box::new(())),
                Comes::Waits => Err(suspend(
                    Wake::at(universal_executor::model::Timestamp::from_micros(0)),
                    json!(begin),
                )
                .into()),
                Comes::IsLate => {
                    add(&session).await;
                    Ok(json!("done"))
                }
                Comes::Hangs => {
                    hangs.notify_one();
                    std::future::pending().await
                }
            }
        }
    })
}

/// Runs turns in one session one after another, including resumed turns, and cancels turns that hang.
async fn any_turns(turns: Vec<Vec<Attempt>>, resumes: usize) {
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let session = SessionStore::new(Arc::clone(&store)).session("one");
    let hangs = Arc::new(Notify::new());
    let many = turns.len();
    let definition = scripted(turns, session.clone(), Arc::clone(&hangs));
    let supervisor = on(definition, store).restart(attempts(3)).build().unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();
    let turns: Vec<_> = (0..many)
        .flat_map(|number| {
            let sent = supervisor.send("one", number.to_string()).unwrap();
            let resumed = (0..resumes).map(|_| supervisor.resume("one").unwrap());
            [sent].into_iter().chain(resumed).collect::<Vec<_>>()
        })
        .collect();

    let mut outcomes = join_all(turns.into_iter().map(|turn| turn.outcome()));
    let outcomes = loop {
        tokio::select! {
            biased;
            outcomes = &mut outcomes => break outcomes,
            () = hangs.notified() => supervisor.cancel("one"),
        }
    };
    supervisor.close().await;

    let told = streams(so_far(&mut subscriber));
    let mut ends: Vec<_> = told
        .iter()
        .map(|stream| {
            grammar::check(stream);
            let last = stream.last().unwrap();
            (last.run.to_string(), format!("{:?}", last.kind))
        })
        .collect();
    let mut expected: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            let end = end(&outcome.status);
            (outcome.run.to_string(), format!("{end:?}"))
        })
        .collect();
    ends.sort();
    expected.sort();
    assert_eq!(ends, expected);
    let finals = expected.iter().filter(|(_, end)| end.starts_with("Final"));
    let log = session.load().await.unwrap();
    let done = log.messages();
    let kept = done.iter().filter(|said| said.text() == "done").count();
    assert_eq!(kept, finals.count(), "{log:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn each_turn_is_one_event_stream_whose_end_matches_its_outcome(
        turns in prop::collection::vec(any_turn(), 1..4), resumes in 0..3_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(any_turns(turns, resumes));
    }
}

#[tokio::test]
async fn an_agent_subscriber_receives_one_end_event_per_turn() {
    let setup = setup(&parrot(), &MemoryStore::default());
    let agent = Arc::new(crate::workload::agent());
    let supervisor = setup.supervisor(agent).build().unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();

    supervisor.send("one", "hi").unwrap().outcome().await;
    supervisor.resume("one").unwrap().outcome().await;

    let told = streams(so_far(&mut subscriber));
    assert_eq!(told.len(), 2);
    told.iter().for_each(|stream| grammar::check(stream));
}
