//! Sessions that are deleted during a turn and then started again: the old and the new session share nothing.

use crate::workload::{Setup, agent, code, flow, history, parrot, setup, setup_on};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::agent::ChatMessage;
use universal_executor::store::{Fault, Faulty, Moment, Operation};
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::workflow::StepPath;
use universal_executor::workload::{
    Log, LogEntry, NativeDefinition, Restart, SessionStore, SubscriberItem, WorkloadEventKind,
    WorkloadExecutor,
};
use universal_executor::{
    BoxError, BreadcrumbStoreExt as _, Event, MemoryStore, NewBreadcrumb, Services, Subscription,
    Subscriptions, UniversalExecutor as _,
};

fn texts(log: &Log) -> Vec<String> {
    let messages = log.messages().into_iter();
    messages
        .map(|message| message.text().into_owned())
        .collect()
}

async fn now(sessions: &SessionStore) -> Vec<String> {
    texts(&sessions.session("one").load().await.unwrap())
}

/// Returns a handle on the store in which one operation of a kind fails or is delayed. `number` counts from 0.
fn once(
    store: &MemoryStore,
    operation: Operation,
    number: usize,
    fault: Fault,
) -> Faulty<MemoryStore> {
    let done = AtomicUsize::new(0);
    Faulty::new(store.clone(), move |now, moment| {
        let is_it = now == operation && moment == Moment::Before;
        match is_it && done.fetch_add(1, Ordering::SeqCst) == number {
            true => fault,
            false => Fault::None,
        }
    })
}

#[tokio::test]
async fn remains_of_an_interrupted_deletion_do_not_appear_in_the_new_session() {
    let store = MemoryStore::default();
    let model = parrot();
    let definition = Arc::new(agent());
    let supervisor = setup(&model, &store).supervisor(definition);
    let supervisor = supervisor.build().unwrap();
    for text in ["secret", "secret too"] {
        supervisor.send("one", text).unwrap().outcome().await;
    }

    // The deletion fails after it deleted the log and before it deleted the entries.
    let breaks = once(&store, Operation::Search, 1, Fault::Fail);
    let broken = SessionStore::new(Arc::new(breaks)).delete("one").await;
    for text in ["a", "b"] {
        supervisor.send("one", text).unwrap().outcome().await;
    }

    assert!(broken.is_err());
    assert_eq!(history(&model.requests()[3]), ["a", "said: a"]);
    let expected = ["a", "said: a", "b", "said: b"];
    let sessions = SessionStore::new(Arc::new(store));
    assert_eq!(now(&sessions).await, expected);
    // A second deletion also removes the remaining breadcrumbs: a log and four entries.
    assert_eq!(sessions.delete("one").await.unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_begins_a_session_anew_while_it_is_deleted_stays() {
    let store = MemoryStore::default();
    let echo = NativeDefinition::new("echo", |_, message| async move {
        Ok(message.unwrap_or_default().content)
    });
    let setup = Setup::new(Services::new(), Arc::new(store.clone()));
    let supervisor = setup.supervisor(Arc::new(echo)).build().unwrap();
    supervisor.send("one", "before").unwrap().outcome().await;

    // The deletion is delayed after it deleted the log.
    let late = Fault::Delay(Duration::from_secs(10));
    let slow = once(&store, Operation::Search, 1, late);
    let slow = SessionStore::new(Arc::new(slow));
    let second = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        supervisor.send("one", "anew").unwrap().outcome().await
    };
    let (deleted, outcome) = tokio::join!(slow.delete("one"), second);

    assert_eq!(deleted.unwrap(), 2);
    assert_eq!(outcome.final_text().as_deref(), Some("anew"));
    assert_eq!(now(&supervisor.sessions()).await, ["anew", "anew"]);
}

#[tokio::test(start_paused = true)]
async fn messages_of_an_agent_in_a_deleted_turn_do_not_appear_in_the_new_session() {
    let store = MemoryStore::default();
    // The log of the agent is created after the session's log. Its commit is delayed.
    let late = Fault::Delay(Duration::from_secs(10));
    let slow = once(&store, Operation::Commit, 1, late);
    let definition = flow(json!({
        "agents": {"a": {"instruction": "Help."}},
        "flows": {"main": {"steps": [{"agent": "a"}, {"return": "done"}]}},
    }));
    let supervisor = setup_on(&parrot(), Arc::new(slow)).supervisor(Arc::new(definition));
    let supervisor = supervisor.build().unwrap();
    let turn = supervisor.send("one", "secret").unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let sessions = SessionStore::new(Arc::new(store.clone()));

    sessions.delete("one").await.unwrap();
    let session = sessions.session("one");
    let messages = vec![ChatMessage::user("anew")];
    let log = session.load().await.unwrap();
    let said = LogEntry::Said { messages };
    session.append(&log, "anew", said).await.unwrap();
    let outcome = turn.outcome().await;

    assert_eq!(code(&outcome.status), "session", "{outcome:?}");
    let agent = session.child(&StepPath::new("main/0"));
    assert_eq!(texts(&agent.load().await.unwrap()), [""; 0]);
    // Only the log and the entry of the new session exist.
    let log = store.latest("session.log.v1").await.unwrap().unwrap();
    store.delete(log.id).await.unwrap();
    assert!(store.latest("session.log.v1").await.unwrap().is_none());
    let entry = store.latest("session.entry.v1").await.unwrap().unwrap();
    store.delete(entry.id).await.unwrap();
    assert!(store.latest("session.entry.v1").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_tried_again_does_not_bring_back_a_session_that_is_deleted() {
    let store = MemoryStore::default();
    let definition = fails_once();
    let setup = Setup::new(Services::new(), Arc::new(store));
    let often = Restart {
        attempts: NonZeroU32::new(2).unwrap(),
        delay: Duration::from_secs(1),
    };
    let supervisor = setup.supervisor(Arc::new(definition));
    let supervisor = supervisor.restart(often).build().unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();
    let turn = supervisor.send("one", "secret").unwrap();
    let is_restart = |heard: &SubscriberItem| matches!(heard, SubscriberItem::Event(event) if matches!(event.kind, WorkloadEventKind::Restarted { .. }));
    while !is_restart(&subscriber.next().await.unwrap()) {}

    supervisor.sessions().delete("one").await.unwrap();
    let outcome = turn.outcome().await;

    assert_eq!(code(&outcome.status), "session", "{outcome:?}");
    assert_eq!(now(&supervisor.sessions()).await, [""; 0]);
}

/// Creates a workload that fails with a retryable error once and then succeeds.
fn fails_once() -> NativeDefinition {
    let tries = AtomicUsize::new(0);
    NativeDefinition::new("once", move |_, _| {
        let number = tries.fetch_add(1, Ordering::SeqCst);
        async move {
            match number {
                0 => Err::<Value, BoxError>("not yet".into()),
                _ => Ok(json!("done")),
            }
        }
    })
}

#[tokio::test]
async fn a_run_within_a_turn_does_not_begin_the_session_anew_that_was_deleted_meanwhile() {
    let store = MemoryStore::default();
    let setup = Setup::new(Services::new(), Arc::new(store.clone()));
    let echo = NativeDefinition::new("echo", |_, message| async move {
        Ok(message.unwrap_or_default().content)
    });
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
    let inner = setup.executor("inner", Arc::new(echo), messages).unwrap();
    let secret = NewBreadcrumb::new("user.message.v1").tags(["session:one", "parent:outer"]);
    let trigger = secret.context(json!({"message": "secret"}));
    let trigger = store.create(trigger).await.unwrap();

    inner
        .process_event(&Event::created(&trigger))
        .await
        .unwrap();

    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    assert_eq!(result.unwrap().context["error"]["code"], "session");
    let logs = store.recent("session.log.v1", 10).await.unwrap();
    assert!(logs.is_empty(), "{logs:?}");
}

#[tokio::test]
async fn a_turn_whose_session_is_deleted_before_its_agent_starts_reports_a_session_error() {
    let store = MemoryStore::default();
    let sessions = SessionStore::new(Arc::new(store.clone()));
    let deletes = json_tool("deletes", "", json!({}), move |_, _| {
        let sessions = sessions.clone();
        async move { Ok(json!(sessions.delete("one").await?)) }
    });
    let model = parrot();
    let tools = ToolRegistry::default().with(deletes).unwrap();
    let services = Services::new()
        .tools(tools)
        .default_model(Arc::clone(&model));
    let setup = Setup::new(services, Arc::new(store.clone()));
    let retried = json!({"agent": "a", "retry": 2});
    let definition = flow(json!({
        "tools": {"deletes": {}}, "agents": {"a": {"instruction": "Help."}},
        "flows": {"main": {"steps": [{"tool": "deletes"}, retried]}},
    }));
    let supervisor = setup.supervisor(Arc::new(definition));
    let supervisor = supervisor.build().unwrap();

    let outcome = supervisor.send("one", "secret").unwrap().outcome().await;

    assert_eq!(code(&outcome.status), "session", "{outcome:?}");
    assert_eq!(model.requests().len(), 0);
    assert!(store.latest("session.log.v1").await.unwrap().is_none());
}
