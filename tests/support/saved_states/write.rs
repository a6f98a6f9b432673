//! Writes the states of a fixture into an empty store.

use super::crew::{AGENT, ANSWERERS, CHAT, Crew, FLOW, OTHERS, REFUNDS, answer, subscriptions};
use super::{Saved, WRITTEN_AT, count, runs, set_clock, until};
use futures::StreamExt as _;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::source::StartAt;
use universal_executor::store::{
    Cancelled, Claim, Claimed, Commit, KeyPosition, Lease, NewRequest, NewRun, RunEnd, RunRef,
    RunState, Wake, WorkerRecord, Write,
};
use universal_executor::workload::WorkloadExecutor;
use universal_executor::{
    Breadcrumb, BreadcrumbStoreExt as _, Event, NewBreadcrumb, Patch, Selector,
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Writes all states. The store is then as a process that died would leave it.
pub(crate) async fn write<S: Saved>(store: &S) {
    set_clock(store, WRITTEN_AT);
    run_the_crew(store).await;
    leave_runs_in_other_states(store).await;
    write_other_data(store).await;
    let ids = ANSWERERS.into_iter().chain(OTHERS);
    let ids: Vec<Arc<str>> = ids.map(Into::into).collect();
    let positions = store.ledger().unwrap().positions(&ids).await.unwrap();
    assert!(positions.iter().all(Option::is_some), "{positions:?}");
}

/// Runs the crew's runtime: some runs end, some are suspended, and runs of paused executors stay ready.
async fn run_the_crew<S: Saved>(store: &S) {
    let ledger = store.ledger().unwrap();
    let crew = Crew::writing(store);
    let runtime = crew.runtime();
    let work = async {
        ledger.pause_executor(REFUNDS).await.unwrap();
        note(store, "done").await;
        note(store, "failed").await;
        ledger.request(request("done")).await.unwrap();
        let flow = json!({"workflow": FLOW, "input": {"n": 7}});
        let flow = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(flow);
        store.create(flow).await.unwrap();
        let question = NewBreadcrumb::new("question.v1");
        let question = question.context(json!({"message": "Where is order 7?"}));
        store.create(question).await.unwrap();
        for text in ["one", "two"] {
            say(store, text).await;
        }
        until(store, async || has_worked(store).await).await;
        for executor in ["ordered", "paused", "ready", "keyed", CHAT] {
            ledger.pause_executor(executor).await.unwrap();
        }
        for name in ["ordered", "ordered", "paused", "ready"] {
            note(store, name).await;
        }
        ledger.request(request("open")).await.unwrap();
        for text in ["three", "four"] {
            say(store, text).await;
        }
        until(store, async || has_enqueued(store).await).await;
    };

    runtime.run_until(work).await.unwrap();

    for executor in ["ordered", "ready", "keyed", CHAT, REFUNDS] {
        assert!(ledger.resume_executor(executor).await.unwrap());
    }
    assert_eq!(crew.journal.tools(), ["find_order", "look_up", "prepare"]);
}

/// Returns `true` once the agent has received the answer of one of its two tools, the flow waits, and the other runs have ended.
async fn has_worked(store: &impl Saved) -> bool {
    let answered = store.latest("tool.response.v1").await.unwrap();
    let has_received = |since| answered.as_ref().is_some_and(|it| since > it.updated_at);
    let all = runs(store).await;
    let agent = all.iter().find(|run| &*run.run.executor == AGENT);
    agent.is_some_and(|run| run.suspended_at.is_some_and(has_received))
        && count(store, REFUNDS, RunState::Ready).await == 1
        && count(store, FLOW, RunState::Suspended).await == 1
        && count(store, CHAT, RunState::Done).await == 2
        && count(store, "done", RunState::Done).await == 1
        && count(store, "keyed", RunState::Done).await == 1
        && count(store, "failed", RunState::Failed).await == 1
}

/// Returns `true` once the runs of all paused executors are in the ledger.
async fn has_enqueued(store: &impl Saved) -> bool {
    let ready = async |executor| count(store, executor, RunState::Ready).await;
    ready("ordered").await == 2
        && ready("paused").await == 1
        && ready("ready").await == 1
        && ready("keyed").await == 1
        && ready(CHAT).await == 2
}

/// Puts runs into the states that a runtime reaches only in rare cases or leaves immediately.
async fn leave_runs_in_other_states(store: &impl Saved) {
    let ledger = store.ledger().unwrap();

    let lease = claimed(store, "delayed").await;
    let at = note(store, "positioned").await.updated_at + Duration::from_secs(60);
    ledger.retry(lease, at, true, Some("busy")).await.unwrap();

    let cancelled = note(store, "cancelled").await;
    let run = RunRef::of("cancelled", &Event::created(&cancelled));
    let enqueued = NewRun::from(run.clone());
    ledger.enqueue(vec![enqueued]).await.unwrap();
    assert_eq!(ledger.cancel(&run).await.unwrap(), Cancelled::Waiting);

    let wake = Wake::on(Selector::schema("signal.v1")).until(at + HOUR * 24);
    suspend(store, "suspended", wake).await;
    suspend(store, "waited", Wake::at(at)).await;

    let lease = claimed(store, "skipped").await;
    end(store, lease, Vec::new(), RunEnd::Skipped("gone")).await;

    let lease = claimed(store, "transferred").await;
    let version = subscriptions("transferred").hash();
    let transferred = ledger.transfer(lease, &version, at + HOUR * 24, KeyPosition::Held);
    transferred.await.unwrap();

    supersede(store).await;

    let lease = claimed(store, "leased").await;
    ledger
        .save(&lease, json!({"step": 1}).into())
        .await
        .unwrap();
}

async fn suspend(store: &impl Saved, executor: &str, wake: Wake) {
    let lease = claimed(store, executor).await;
    let state = json!({"step": 2}).into();
    end(store, lease, Vec::new(), RunEnd::Suspended { wake, state }).await;
}

/// Supersedes the run of the first version of a note by the run of the second one, which is done.
async fn supersede(store: &impl Saved) {
    let first = claimed(store, "superseded").await;
    let note = store.latest("note.v1").await.unwrap().unwrap();
    let patch = Patch::new().title("second version");
    let note = store.update(note.id, 1, patch).await.unwrap();
    let run = RunRef::of("superseded", &Event::updated(&note));
    let second = granted(store, &run, Some(first)).await;
    let answer = vec![Write::Create(answer(&note))];
    end(store, second, answer, RunEnd::Done).await;
}

/// Writes breadcrumbs, a consumer and a worker that belong to no run.
async fn write_other_data(store: &impl Saved) {
    store.create(full()).await.unwrap();
    let deleted = NewBreadcrumb::new("deleted.v1").tag("deleted");
    let deleted = store.create(deleted).await.unwrap();
    store.delete(deleted.id).await.unwrap();

    let events = store.events(Some("audit"));
    let mut events = events.subscribe(StartAt::Beginning).await.unwrap();
    for _ in 0..2 {
        events.next().await.unwrap().unwrap().ack().await.unwrap();
    }

    let dead = WorkerRecord::new("dead-worker", "dead");
    store.ledger().unwrap().record_worker(&dead).await.unwrap();
}

/// Returns a new breadcrumb with a value in each field.
pub(super) fn full() -> NewBreadcrumb {
    NewBreadcrumb::new("full.v1")
        .title("A \"title\" \u{1F600}")
        .description("Two\nlines")
        .tags(["session:one", "x", "y"])
        .created_by("ann")
        .llm_hints(json!({"include": ["$.s"]}))
        .context(json!({"n": 1.5, "s": "\u{e9}\\", "big": u64::MAX, "list": [null, true, {}]}))
}

/// Returns the request with a key: a note for "keyed".
pub(super) fn request(key: &str) -> NewRequest {
    NewRequest::new("keyed", key, new_note("keyed"))
}

fn new_note(name: &str) -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
        .tags([format!("to:{name}"), "line:one".to_owned()])
        .context(json!({"name": name}))
}

async fn note(store: &impl Saved, name: &str) -> Arc<Breadcrumb> {
    store.create(new_note(name)).await.unwrap()
}

/// Writes a message of the session "one".
pub(super) async fn say(store: &impl Saved, text: &str) {
    let message = NewBreadcrumb::new("user.message.v1")
        .tag("session:one")
        .context(json!({"message": text}));
    store.create(message).await.unwrap();
}

/// Writes a note for an executor and claims its run.
async fn claimed(store: &impl Saved, executor: &str) -> Lease {
    let note = note(store, executor).await;
    let run = RunRef::of(executor, &Event::created(&note)).ordered_by(Some("line:one"));
    granted(store, &run, None).await
}

async fn granted(store: &impl Saved, run: &RunRef, instead_of: Option<Lease>) -> Lease {
    let ledger = store.ledger().unwrap();
    match ledger.claim(run, instead_of).await.unwrap() {
        Claim::Granted(Claimed { lease, .. }) => lease,
        other => panic!("expected a granted claim, got {other:?}"),
    }
}

async fn end(store: &impl Saved, lease: Lease, writes: Vec<Write>, end: RunEnd) {
    let end = Some((lease, end));
    store.commit(Commit { writes, end }).await.unwrap();
}
