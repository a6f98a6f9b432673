//! The promises of sessions, regardless of the store.

use super::Store;
use crate::workload::supervisor::Gate;
use crate::workload::{Setup, asked, code, flow, history, parrot, says, setup_on};
use futures::StreamExt as _;
use futures::future::join_all;
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::sync::Arc;
use tokio::sync::{Barrier, Semaphore};
use universal_executor::agent::{
    ChatMessage, ChatRequest, ChatResponse, ScriptedModel, Speaker, ToolCall,
};
use universal_executor::model::Timestamp;
use universal_executor::store::{Query, StoreError};
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::workflow::{MayRetry, StepPath};
use universal_executor::workload::{
    Conversation, Definition, FlowDefinition, Log, LogEntry, NativeDefinition, Restart, RunCx,
    SessionError, SessionStore, SubscriberItem, Supervisor, TurnOutcome, TurnStatus,
    WorkloadEventKind,
};
use universal_executor::{
    Breadcrumb, BreadcrumbId, ExecutionContext, NewBreadcrumb, Selector, Services, Wake, suspend,
};

fn sessions(store: &Store) -> SessionStore {
    SessionStore::new(Arc::clone(store))
}

fn said(text: &str) -> LogEntry {
    let messages = vec![
        ChatMessage::user(text),
        ChatMessage::assistant(format!("to {text}")),
    ];
    LogEntry::Said { messages }
}

async fn add(session: &Conversation, turn: &str) {
    let log = session.load().await.unwrap();
    session.append(&log, turn, said(turn)).await.unwrap();
}

fn texts(log: &Log) -> Vec<String> {
    let messages = log.messages();
    let texts = messages.iter().map(crate::workload::said);
    texts.map(std::borrow::Cow::into_owned).collect()
}

/// Returns the current messages of a session, joined.
async fn now(session: &Conversation) -> String {
    texts(&session.load().await.unwrap()).join("|")
}

fn supervisor(definition: FlowDefinition, model: &Arc<ScriptedModel>, store: &Store) -> Supervisor {
    let setup = setup_on(model, Arc::clone(store));
    setup.supervisor(Arc::new(definition)).build().unwrap()
}

async fn turn(supervisor: &Supervisor, message: &str) -> TurnOutcome {
    supervisor.send("one", message).unwrap().outcome().await
}

/// Creates a flow with an agent that answers, followed by one more step.
fn agent_then(last: &Value) -> FlowDefinition {
    flow(json!({
        "agents": {"a": {"instruction": "Help."}},
        "flows": {"main": {"steps": [{"agent": "a"}, last]}},
    }))
}

pub(super) async fn entries_are_read_in_append_order(store: Store) {
    let session = sessions(&store).session("one");
    let empty = session.load().await.unwrap();

    for turn in ["a", "b", "c"] {
        add(&session, turn).await;
    }

    let log = sessions(&store).session("one").load().await.unwrap();
    assert_eq!(texts(&log).join("|"), "a|to a|b|to b|c|to c");
    assert_eq!((empty.version(), empty.entries().len()), (0, 0));
    assert_eq!(log.entries().len(), 3);
    assert!(log.version() > 3, "{log:?}");
}

pub(super) async fn an_append_after_an_incomplete_read_is_a_conflict(store: Store) {
    let session = sessions(&store).session("one");
    add(&session, "a").await;
    let read_by_both = session.load().await.unwrap();

    let in_time = session.append(&read_by_both, "b", said("b")).await;
    let late = session.append(&read_by_both, "c", said("c")).await;

    assert!(in_time.is_ok(), "{in_time:?}");
    assert!(
        matches!(late, Err(SessionError::Conflict { .. })),
        "{late:?}"
    );
    assert_eq!(now(&session).await, "a|to a|b|to b");
}

pub(super) async fn at_most_one_of_several_concurrent_session_starts_succeeds(store: Store) {
    let session = sessions(&store).session("one");
    let empty = session.load().await.unwrap();
    let names: Vec<_> = (0..8).map(|number| format!("turn {number}")).collect();

    let all = names
        .iter()
        .map(|name| session.append(&empty, name, said(name)));
    let all = join_all(all).await;

    let in_time: Vec<_> = names
        .iter()
        .zip(&all)
        .filter_map(|(name, done)| done.is_ok().then_some(format!("{name}|to {name}")))
        .collect();
    assert!(in_time.len() <= 1, "{all:?}");
    assert_eq!(now(&session).await, in_time.concat());
    // If all of them conflicted, the session can still be started.
    add(&session, "next").await;
    assert!(now(&session).await.ends_with("next|to next"));
}

pub(super) async fn each_concurrent_append_is_stored_once_and_has_read_all_earlier_ones(
    store: Store,
) {
    const MANY: usize = 6;
    let session = sessions(&store).session("one");

    // Each one retries until it succeeds, and adds the number of entries that it has read.
    let all = (0..MANY).map(|number| {
        let (session, turn) = (session.clone(), format!("turn {number}"));
        async move {
            let mut is_late = true;
            for _ in 0..100 {
                let log = session.load().await.unwrap();
                let found = said(&log.entries().len().to_string());
                let added = session.append(&log, &turn, found).await;
                is_late = matches!(added, Err(SessionError::Conflict { .. }));
                if !is_late {
                    added.unwrap();
                    break;
                }
                tokio::task::yield_now().await;
            }
            assert!(!is_late, "{turn} conflicted in every attempt");
        }
    });
    join_all(all).await;

    let log = session.load().await.unwrap();
    let found: Vec<_> = texts(&log).into_iter().step_by(2).collect();
    let expected: Vec<_> = (0..MANY).map(|number| number.to_string()).collect();
    assert_eq!(found, expected);
}

pub(super) async fn the_last_append_of_a_turn_replaces_its_earlier_ones(store: Store) {
    let session = sessions(&store).session("one");
    for turn in ["a", "b"] {
        add(&session, turn).await;
    }

    let log = session.load().await.unwrap();
    session.append(&log, "a", said("again")).await.unwrap();

    assert_eq!(now(&session).await, "b|to b|again|to again");
}

pub(super) async fn sessions_and_agents_with_similar_names_are_separate(store: Store) {
    let sessions = sessions(&store);
    let child = |session: &Conversation, path: &str| session.child(&StepPath::new(path));
    let (one, other) = (sessions.session("one"), sessions.session("onemain"));
    let all = [
        one.clone(),
        other.clone(),
        child(&one, "main/0"),
        child(&one, "main/0#1"),
        child(&one, "main/0#1/0"),
        child(&other, "/0"),
    ];

    for (number, session) in all.iter().enumerate() {
        add(session, &number.to_string()).await;
    }

    for (number, session) in all.iter().enumerate() {
        assert_eq!(now(session).await, format!("{number}|to {number}"));
    }
}

pub(super) async fn a_turn_that_fails_adds_nothing(store: Store) {
    let model = parrot();
    let fails = supervisor(agent_then(&json!({"fail": "No."})), &model, &store);
    let ends = supervisor(agent_then(&json!({"return": "done"})), &model, &store);

    let failed = turn(&fails, "first").await;
    let log = ends.sessions().session("one").load().await.unwrap();
    turn(&ends, "second").await;
    turn(&ends, "third").await;

    assert_eq!(code(&failed.status), "failed", "{failed:?}");
    assert_eq!(log.entries().len(), 0);
    let requests = model.requests();
    assert_eq!(history(&requests[1]), [""; 0]);
    // First the session's messages, then the agent's messages from the turn that succeeded.
    let shown = history(&requests[2]).join("|");
    assert_eq!(shown, "second|done|second|said: second");
}

pub(super) async fn messages_of_an_agent_are_matched_to_their_turn_at_any_age(store: Store) {
    let model = parrot();
    let ends = supervisor(agent_then(&json!({"return": "done"})), &model, &store);
    let fails = supervisor(agent_then(&json!({"fail": "No."})), &model, &store);
    // In this flow, the agent is at another step, and the session is shortened before its model request.
    let other = flow(json!({
        "agents": {"a": {"instruction": "Help."}},
        "policies": {"compaction": {"method": "truncate", "at_tokens": 1, "keep": 2}},
        "flows": {"main": {"steps": [{"set": {"x": 1}}, {"agent": "a"}, {"return": "short"}]}},
    }));
    let other = supervisor(other, &model, &store);

    turn(&ends, "first").await;
    turn(&fails, "lost").await;
    for message in ["second", "third", "fourth"] {
        turn(&other, message).await;
    }
    turn(&ends, "last").await;

    let shown = history(model.requests().last().unwrap()).join("|");
    assert_eq!(shown, "third|short|fourth|short|first|said: first");
}

/// Runs a turn without adding it to the session's log, as if the worker were lost at that moment.
async fn all_but_the_end(
    definition: &FlowDefinition,
    model: &Arc<ScriptedModel>,
    session: &Conversation,
    store: &Store,
) {
    let message = NewBreadcrumb::new("user.message.v1");
    let message = message.first_version(BreadcrumbId::NIL, Timestamp::from_micros(0));
    let cx = RunCx::new("again", ExecutionContext::for_trigger(message));
    let setup = setup_on(model, Arc::clone(store));
    let mut workload = definition
        .instantiate(&setup.services, &setup.store)
        .unwrap();
    let events = workload.run(cx.session(session.clone()), Some("third".into()));
    assert_eq!(
        crate::workload::output(&events.collect::<Vec<_>>().await),
        "done"
    );
    workload.close().await.unwrap();
}

pub(super) async fn a_repeated_turn_is_shown_the_same_history(store: Store) {
    for (name, at_tokens) in [("whole", 10_000), ("short", 8)] {
        let model = parrot();
        let definition = flow(json!({
            "agents": {"a": {"instruction": "Help."}},
            "policies": {"compaction": {"method": "truncate", "at_tokens": at_tokens, "keep": 2}},
            "flows": {"main": {"steps": [{"agent": "a"}, {"return": "done"}]}},
        }));
        let session = sessions(&store).session(name);
        let supervisor = supervisor(agent_then(&json!({"return": "done"})), &model, &store);
        for message in ["first", "second"] {
            supervisor.send(name, message).unwrap().outcome().await;
        }

        // The worker is lost twice before the session has the turn, and once before the run has ended.
        all_but_the_end(&definition, &model, &session, &store).await;
        all_but_the_end(&definition, &model, &session, &store).await;
        let log = session.load().await.unwrap();
        session.append(&log, "again", said("third")).await.unwrap();
        all_but_the_end(&definition, &model, &session, &store).await;

        let requests = model.requests();
        let shown = history(&requests[2]).join("|");
        assert!(shown.contains("second|said: second"), "{name}: {shown}");
        assert_eq!(history(&requests[3]).join("|"), shown, "{name}");
        assert_eq!(history(&requests[4]).join("|"), shown, "{name}");
        let child = session.child(&StepPath::new("main/0")).load().await;
        assert!(
            texts(&child.unwrap())
                .join("|")
                .ends_with("|third|said: third")
        );
    }
}

/// Creates a model that calls a tool and then answers "done".
fn doubling() -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::answering(|number, request| {
        let call = ToolCall::new(number.to_string(), "double", json!({"n": 2}));
        Ok(match request.messages.last().unwrap().speaker {
            Speaker::Tool => ChatResponse::new("done"),
            _ => ChatResponse::calling(vec![call]),
        })
    }))
}

/// Returns the number of tool calls in a request. Fails unless each call is followed by its result.
fn calls(request: &ChatRequest) -> usize {
    let mut open: Vec<&str> = Vec::new();
    let mut calls = 0;
    for message in &request.messages {
        if let Some(id) = message.call_id() {
            let place = open.iter().position(|open| *open == id).unwrap();
            open.remove(place);
            continue;
        }
        assert_eq!(open, [""; 0], "{request:?}");
        open.extend(message.tool_calls().iter().map(|call| &*call.id));
        calls += message.tool_calls().len();
    }
    assert_eq!(open, [""; 0], "{request:?}");
    calls
}

pub(super) async fn a_long_conversation_is_truncated_between_turns_and_the_result_is_saved(
    store: Store,
) {
    let model = doubling();
    let talks = |policies: Value| {
        flow(json!({
            "tools": {"double": {}},
            "agents": {"main": {"instruction": "Help.", "tools": ["double"]}},
            "policies": policies,
        }))
    };
    // A turn has four messages, so five messages end in the middle of a turn.
    let short = json!({"compaction": {"method": "truncate", "at_tokens": 12, "keep": 5}});
    let first = supervisor(talks(short), &model, &store);
    let mut heard = first.subscribe("one").unwrap();

    for message in ["aaaa", "bbbb", "cccc"] {
        turn(&first, message).await;
    }
    first.close().await;
    let other = supervisor(talks(json!({})), &model, &store);
    turn(&other, "dddd").await;

    let mut cut = Vec::new();
    while let Some(heard) = heard.next().await {
        let SubscriberItem::Event(event) = heard else {
            continue;
        };
        if let WorkloadEventKind::Compacted { left_out, .. } = event.kind {
            cut.push(left_out);
        }
    }
    assert_eq!(cut, [1]);
    let requests = model.requests();
    let shown = [0, 2, 4, 6].map(|at| history(&requests[at]).join("|"));
    assert_eq!(shown[0], "");
    assert_eq!(shown[1], "aaaa||4|done");
    assert_eq!(shown[2], "bbbb||4|done");
    // A flow without this policy reads the shortened conversation and the later messages.
    assert_eq!(shown[3], "bbbb||4|done|cccc||4|done");
    let calls: Vec<_> = requests.iter().map(calls).collect();
    assert_eq!(calls, [0, 1, 1, 2, 1, 2, 2, 3]);
}

pub(super) async fn a_summary_replaces_the_omitted_turns(store: Store) {
    let model = Arc::new(ScriptedModel::answering(|_, request| {
        let is_summary = request.messages[0].text().starts_with("Sum up");
        Ok(ChatResponse::new(match is_summary {
            true => "They counted.".to_owned(),
            false => format!("to {}", asked(request)),
        }))
    }));
    let definition = flow(json!({
        "agents": {"main": {"instruction": "Help."}},
        "policies": {"compaction": {"method": "summarise", "at_tokens": 4, "keep": 2}},
    }));
    let supervisor = supervisor(definition, &model, &store);

    for message in ["one", "two", "three"] {
        turn(&supervisor, message).await;
    }

    let session = supervisor.sessions().session("one");
    let expected = "They counted.|two|to two|three|to three";
    assert_eq!(now(&session).await, expected);
}

pub(super) async fn agents_side_by_side_in_a_long_session_are_not_in_each_others_way(store: Store) {
    let definition = flow(json!({
        "agents": {"a": {"instruction": "Help."}},
        "policies": {"compaction": {"method": "truncate", "at_tokens": 1, "keep": 2}},
        "flows": {"main": {"steps": [
            {"parallel": [{"agent": "a"}, {"agent": "a"}, {"agent": "a"}]}, {"return": "done"},
        ]}},
    }));
    let supervisor = supervisor(definition, &parrot(), &store);

    for message in ["one", "two", "three", "four"] {
        let outcome = turn(&supervisor, message).await;

        assert_eq!(outcome.final_text().as_deref(), Some("done"), "{outcome:?}");
    }
}

pub(super) async fn two_supervisors_cannot_interleave_a_session(store: Store) {
    add(&sessions(&store).session("one"), "before").await;
    let gate = Gate::new();
    let both = [0, 1].map(|_| {
        let setup = setup_on(&says([]), Arc::clone(&store));
        setup
            .supervisor(Arc::new(gate.definition()))
            .build()
            .unwrap()
    });

    let turns = both
        .each_ref()
        .map(|supervisor| supervisor.send("one", "hi").unwrap());
    gate.begun(2).await;
    gate.open.add_permits(2);
    let outcomes = join_all(turns.map(universal_executor::workload::SupervisedTurn::outcome)).await;

    let failed: Vec<_> = outcomes
        .iter()
        .map(|outcome| code(&outcome.status))
        .filter(|code| !code.is_empty())
        .collect();
    assert_eq!(failed, ["session"]);
    let log = both[0].sessions().session("one").load().await.unwrap();
    assert_eq!(texts(&log).join("|"), "before|to before|hi|hi");
}

pub(super) async fn only_one_of_two_concurrent_suspended_turns_is_saved(store: Store) {
    add(&sessions(&store).session("one"), "before").await;
    let begun = Arc::new(Barrier::new(2));
    let both = [0, 1].map(|_| {
        let begun = Arc::clone(&begun);
        let waits = NativeDefinition::new("waits", move |_, _| {
            let begun = Arc::clone(&begun);
            async move {
                begun.wait().await;
                Err::<Value, _>(suspend(Wake::on(Selector::schema("answer.v1")), json!(1)).into())
            }
        });
        let setup = setup_on(&says([]), Arc::clone(&store));
        setup.supervisor(Arc::new(waits)).build().unwrap()
    });

    let turns = both.each_ref().map(|supervisor| turn(supervisor, "hi"));
    let outcomes = join_all(turns).await;

    let codes: Vec<_> = outcomes
        .iter()
        .map(|outcome| code(&outcome.status))
        .collect();
    assert!(
        codes == ["session", ""] || codes == ["", "session"],
        "{outcomes:?}"
    );
    let log = both[0].sessions().session("one").load().await.unwrap();
    assert_eq!(log.entries().len(), 2);
}

/// Returns all stored breadcrumbs of sessions.
async fn kept(store: &Store) -> Vec<Arc<Breadcrumb>> {
    let mut kept = Vec::new();
    for schema in ["session.log.v1", "session.entry.v1"] {
        let query = Query::new(Selector::schema(schema)).limit(1_000);
        kept.extend(store.search(&query).await.unwrap());
    }
    kept
}

async fn is_of(store: &Store, session: &str) -> Vec<Arc<Breadcrumb>> {
    let all = kept(store).await.into_iter();
    all.filter(|one| one.context.text("session") == Some(session))
        .collect()
}

pub(super) async fn a_deleted_session_is_gone_with_all_of_its_messages(store: Store) {
    let sessions = sessions(&store);
    let (one, other) = (sessions.session("one"), sessions.session("onemain"));
    let agent = StepPath::new("main/0");
    // More entries than one deletion step removes.
    for turn in 0..40 {
        add(&one, &turn.to_string()).await;
    }
    for session in [&one.child(&agent), &other, &other.child(&agent)] {
        add(session, "kept").await;
    }
    let was = is_of(&store, "one").await;

    let deleted = sessions.delete("one").await.unwrap();
    let again = sessions.delete("one").await.unwrap();

    assert_eq!((was.len(), deleted, again), (43, 43, 0));
    assert!(is_of(&store, "one").await.is_empty());
    assert_eq!(
        (now(&one).await, now(&one.child(&agent)).await),
        <_>::default()
    );
    for session in [&other, &other.child(&agent)] {
        assert_eq!(now(session).await, "kept|to kept");
    }
    // The tombstones of the store do not contain the messages either.
    for breadcrumb in was {
        let error = store.get(breadcrumb.id).await.unwrap_err();
        let tombstone = match error {
            StoreError::NotFound { tombstone, .. } => Ok(tombstone),
            other => Err(other),
        };
        if let Some(tombstone) = tombstone.unwrap() {
            assert_eq!((&*tombstone.title, &*tombstone.context), ("", &json!({})));
        }
    }
    add(&one, "anew").await;
    assert_eq!(now(&one).await, "anew|to anew");
}

pub(super) async fn concurrent_deletions_remove_each_entry_of_a_session_once(store: Store) {
    let sessions = sessions(&store);
    let session = sessions.session("one");
    for turn in 0..40 {
        add(&session, &turn.to_string()).await;
    }

    let deleted = join_all([(); 3].map(|()| sessions.delete("one"))).await;

    let deleted: Vec<_> = deleted.into_iter().map(Result::unwrap).collect();
    assert_eq!(deleted.iter().sum::<u64>(), 41, "{deleted:?}");
    assert!(kept(&store).await.is_empty());
}

pub(super) async fn a_turn_under_way_does_not_bring_back_a_session_that_is_deleted(store: Store) {
    let gate = Gate::new();
    let setup = setup_on(&says([]), Arc::clone(&store));
    let often = Restart {
        attempts: NonZeroU32::new(3).unwrap(),
        ..Restart::default()
    };
    let supervisor = setup.supervisor(Arc::new(gate.definition()));
    let supervisor = supervisor.restart(often).build().unwrap();
    let sessions = sessions(&store);
    // Three sessions: one in its first turn, one with earlier turns, and one that is started again meanwhile.
    add(&sessions.session("old"), "before").await;
    add(&sessions.session("anew"), "before").await;

    for name in ["first", "old", "anew"] {
        let turn = supervisor.send(name, "hi").unwrap();
        gate.begun(1).await;
        sessions.delete(name).await.unwrap();
        if name == "anew" {
            add(&sessions.session(name), "after").await;
        }
        gate.open.add_permits(1);
        let outcome = turn.outcome().await;

        let failed = match outcome.status {
            TurnStatus::Failed { failure, retry } => Some((failure, retry)),
            _ => None,
        };
        let (failure, retry) = failed.unwrap();
        assert_eq!((&*failure.code, retry), ("session", MayRetry::Never));
        assert!(
            failure
                .message
                .ends_with("was deleted during the operation; a new message starts it again")
        );
    }
    assert_eq!(now(&sessions.session("anew")).await, "after|to after");
    assert_eq!(kept(&store).await.len(), 2);
}

pub(super) async fn a_running_agent_adds_nothing_to_a_deleted_or_recreated_session(store: Store) {
    let (begun, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let gate = (Arc::clone(&begun), Arc::clone(&open));
    let waits = json_tool("waits", "Waits.", json!({}), move |_, _| {
        let (begun, open) = gate.clone();
        async move {
            begun.add_permits(1);
            open.acquire().await?.forget();
            Ok(json!("now"))
        }
    });
    let calls = Arc::new(ScriptedModel::answering(|number, _| {
        Ok(match number % 2 {
            1 => ChatResponse::calling(vec![ToolCall::new("1", "waits", json!({}))]),
            _ => ChatResponse::new("done"),
        })
    }));
    let tools = ToolRegistry::default().with(waits).unwrap();
    let services = Services::new().tools(tools).default_model(calls);
    let definition = flow(json!({
        "tools": {"waits": {}},
        "agents": {"a": {"instruction": "Help.", "tools": ["waits"]}},
        "flows": {"main": {"steps": [
            {"try": [{"agent": "a"}], "on_failure": [{"set": {"failed": true}}]}, {"return": "done"},
        ]}},
    }));
    let setup = Setup::new(services, Arc::clone(&store));
    let supervisor = setup.supervisor(Arc::new(definition));
    let supervisor = supervisor.build().unwrap();

    for anew in [false, true] {
        let turn = supervisor.send("one", "hi").unwrap();
        begun.acquire().await.unwrap().forget();
        supervisor.sessions().delete("one").await.unwrap();
        let session = supervisor.sessions().session("one");
        let agent = session.child(&StepPath::new("main/0/try/0"));
        if anew {
            add(&session, "after").await;
            add(&agent, "after").await;
        }
        open.add_permits(1);
        let outcome = turn.outcome().await;

        assert_eq!(code(&outcome.status), "session", "{outcome:?}");
        let expected = if anew { "after|to after" } else { "" };
        assert_eq!(now(&agent).await, expected);
        assert_eq!(kept(&store).await.is_empty(), !anew);
    }
}

pub(super) async fn a_turn_that_waits_is_gone_with_its_session(store: Store) {
    let asks = flow(json!({"flows": {"main": {"steps": [{"ask": "Go on?"}]}}}));
    let supervisor = supervisor(asks, &parrot(), &store);
    turn(&supervisor, "hi").await;
    supervisor.sessions().delete("one").await.unwrap();

    let resumed = supervisor.resume("one").unwrap().outcome().await;

    assert_eq!(code(&resumed.status), "not_suspended", "{resumed:?}");
    assert!(kept(&store).await.is_empty());
}
