//! Continues each run of a fixture to its end, and checks that each run is executed once.

use super::crew::{AGENT, ANSWERERS, CHAT, Crew, Execution, FLOW, ORDERS, OTHERS, REFUNDS};
use super::write::{full, request};
use super::{READ_AT, Saved, count, runs, set_clock, until};
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use universal_executor::agent::{AgentExecutor, ScriptedModel};
use universal_executor::source::StartAt;
use universal_executor::store::{DeadLetter, Requested, Run, RunState, StoreError};
use universal_executor::workload::WorkloadExecutor;
use universal_executor::{BreadcrumbStoreExt as _, NewBreadcrumb, Runtime};

/// Continues all runs of a fixture, and checks the answers.
pub(crate) async fn continue_all<S: Saved>(store: &S) {
    set_clock(store, READ_AT);
    let before = runs(store).await;
    has_all_states(&before);
    the_other_data_is_read(store).await;
    keys_answer_with_their_triggers(store).await;
    let crew = Crew::resuming(store);
    let runtime = crew.runtime();

    let work = work(store, &runtime, &before, &crew);
    runtime.run_until(work).await.unwrap();

    assert_eq!(crew.journal.executions(), expected(store, &before).await);
    assert_eq!(crew.journal.tools(), ["publish", "refund"]);
    assert_finished_runs_are_unchanged(&before, &runs(store).await);
    each_run_has_one_answer(store).await;
    the_agent_has_all_results(store, &crew.agent_model).await;
    the_flow_has_its_result(store).await;
    the_session_is_continued(store, &crew.chat_model).await;
}

/// Fails if the fixture lacks a state. A run whose lease or wait has expired counts as ready.
fn has_all_states(runs: &[Run]) {
    let has = |executor: &str, state| {
        let mut of = runs.iter().filter(|run| &*run.run.executor == executor);
        assert!(
            of.any(|run| run.state == state),
            "{executor} has no run that is {state}"
        );
    };
    for ready in [
        "delayed",
        "keyed",
        "leased",
        "ordered",
        "paused",
        "ready",
        "transferred",
        "waited",
        CHAT,
        REFUNDS,
    ] {
        has(ready, RunState::Ready);
    }
    for suspended in ["suspended", AGENT, FLOW] {
        has(suspended, RunState::Suspended);
    }
    for done in ["done", "keyed", "superseded", ORDERS, CHAT] {
        has(done, RunState::Done);
    }
    has("skipped", RunState::Skipped);
    has("superseded", RunState::Superseded);
    for (failed, code) in [("cancelled", "cancelled"), ("failed", "error")] {
        has(failed, RunState::Failed);
        let run = runs.iter().find(|run| &*run.run.executor == failed);
        assert_eq!(run.unwrap().code.as_deref(), Some(code));
    }
    let transferred = runs.iter().filter(|run| run.transferred_to.is_some());
    assert_eq!(transferred.count(), 1);
}

async fn the_other_data_is_read(store: &impl Saved) {
    let ledger = store.ledger().unwrap();
    let paused = ledger.paused_executors().await.unwrap();
    let paused: Vec<_> = paused.iter().map(|paused| &*paused.executor).collect();
    assert_eq!(paused, ["paused"]);

    let ids = ANSWERERS.into_iter().chain(OTHERS);
    let ids: Vec<Arc<str>> = ids.map(Into::into).collect();
    let positions = ledger.positions(&ids).await.unwrap();
    assert!(positions.iter().all(Option::is_some), "{positions:?}");

    let workers = ledger.workers().await.unwrap();
    let named = |name: &str| workers.iter().find(|worker| worker.record.name == name);
    assert!(!named("dead").unwrap().record.stopped);
    let crew = &named("crew").unwrap().record;
    assert!(crew.stopped);
    assert_eq!(crew.executors.len(), ids.len());

    let found = store.latest("full.v1").await.unwrap().unwrap();
    let written = full();
    assert_eq!(found.title, written.title);
    assert_eq!(found.description, written.description);
    assert_eq!(found.tags, written.tags);
    assert_eq!(found.created_by, written.created_by);
    assert_eq!(found.llm_hints, written.llm_hints);
    assert_eq!(found.context, written.context);

    let letter = store.latest(DeadLetter::SCHEMA).await.unwrap().unwrap();
    // The text before the error of the executor depends on the version that wrote the dead letter.
    let cause = letter.context["cause"].as_str().unwrap();
    assert!(cause.ends_with(" failed: no stock"), "{cause}");

    let events = store.events(Some("audit"));
    let mut events = events.subscribe(StartAt::Beginning).await.unwrap();
    let next = events.next().await.unwrap().unwrap();
    assert_eq!(next.position, Some(3), "two events are acknowledged");
    a_deleted_breadcrumb_stays_deleted(store).await;
}

async fn a_deleted_breadcrumb_stays_deleted(store: &impl Saved) {
    assert_eq!(store.latest("deleted.v1").await.unwrap(), None);
    let events = store.events(None);
    let mut events = events.subscribe(StartAt::Beginning).await.unwrap();
    let deleted = loop {
        let event = events.next().await.unwrap().unwrap().event;
        if event.schema_name.as_deref() == Some("deleted.v1") {
            break event.breadcrumb_id;
        }
    };
    let error = store.get(deleted).await.unwrap_err();
    assert!(
        format!("{error:?}").contains("version: 2"),
        "the tombstone has its version: {error:?}"
    );
}

async fn keys_answer_with_their_triggers(store: &impl Saved) {
    let ledger = store.ledger().unwrap();
    for key in ["done", "open"] {
        let again = ledger.request(request(key)).await.unwrap();
        let Requested::Existing { id, version } = again else {
            panic!("key {key:?} is new: {again:?}")
        };
        let trigger = store.get(id).await.unwrap();
        assert_eq!((trigger.version, version), (1, 1));
        assert_eq!(trigger.context["name"], "keyed");
        let mut other = request(key);
        other.breadcrumb = NewBreadcrumb::new("note.v1");
        let error = ledger.request(other).await.unwrap_err();
        assert!(matches!(error, StoreError::KeyConflict { .. }), "{error:?}");
    }
}

/// Wakes suspended runs, ends the pause, and redoes the failed run. Returns when all runs have ended.
async fn work<S: Saved>(store: &S, runtime: &Runtime, before: &[Run], crew: &Crew<S>) {
    store.create(NewBreadcrumb::new("signal.v1")).await.unwrap();
    let agreement = NewBreadcrumb::new("agreement.v1").context(json!({"by": "ann"}));
    store.create(agreement).await.unwrap();
    until(store, async || open(store).await == 1).await;
    assert_eq!(count(store, "paused", RunState::Ready).await, 1);
    let executions = crew.journal.executions();
    assert!(executions.iter().all(|one| one.executor != "paused"));

    assert!(runtime.resume("paused").await.unwrap());
    let failed = before.iter().find(|run| &*run.run.executor == "failed");
    runtime.redo(&failed.unwrap().run).await.unwrap();
    until(store, async || open(store).await == 0).await;
}

/// Returns the number of runs that have not ended. The note without a run counts until it has a run.
async fn open(store: &impl Saved) -> usize {
    let all = runs(store).await;
    let is_found = all.iter().any(|run| &*run.run.executor == "positioned");
    let open = all.iter().filter(|run| !run.state.is_over()).count();
    open + usize::from(!is_found)
}

/// Returns the expected executions: one for each open run of an answerer, one for the failed run, and one for the note that only a
/// saved position leads to.
async fn expected(store: &impl Saved, before: &[Run]) -> Vec<Execution> {
    let execution = |executor: &str, attempt, resumed: Option<(&str, Option<&str>)>| Execution {
        executor: executor.to_owned(),
        note: executor.to_owned(),
        attempt,
        resumed: resumed.map(|(state, with)| (state.to_owned(), with.map(str::to_owned))),
    };
    let mut all = vec![
        execution("failed", 1, None),
        execution("positioned", 1, None),
    ];
    for run in before.iter().filter(|run| !run.state.is_over()) {
        let executor = &*run.run.executor;
        if !ANSWERERS.contains(&executor) {
            continue;
        }
        all.push(match executor {
            "delayed" => execution(executor, 2, None),
            "leased" => execution(executor, 2, Some((r#"{"step":1}"#, None))),
            "suspended" => execution(executor, 1, Some((r#"{"step":2}"#, Some("signal.v1")))),
            "waited" => execution(executor, 1, Some((r#"{"step":2}"#, None))),
            _ => execution(executor, 1, None),
        });
    }
    all.sort();
    let notes = store.recent("note.v1", 100).await.unwrap();
    let ended = [
        "cancelled",
        "done",
        "keyed",
        "skipped",
        "superseded",
        "superseded",
    ];
    assert_eq!(notes.len() + 1, all.len() + ended.len(), "{notes:?}");
    all
}

fn assert_finished_runs_are_unchanged(before: &[Run], after: &[Run]) {
    for run in before.iter().filter(|run| run.state.is_over()) {
        let now = after.iter().find(|other| other.run == run.run).unwrap();
        match &*run.run.executor {
            "failed" => assert_eq!(now.state, RunState::Done),
            _ => assert_eq!(format!("{now:?}"), format!("{run:?}")),
        }
    }
    for run in after {
        let is_done = run.state == RunState::Done;
        let was_over = before
            .iter()
            .any(|one| one.run == run.run && one.state.is_over());
        assert!(is_done || was_over, "{run:?}");
    }
}

/// Fails unless each completed run of an answerer has exactly one answer, and no other answers exist.
async fn each_run_has_one_answer(store: &impl Saved) {
    let answers = store.recent("answer.v1", 100).await.unwrap();
    let mut by_run: BTreeMap<_, usize> = BTreeMap::new();
    for answer in &answers {
        let note = answer.context["note"].as_str().unwrap().to_owned();
        let version = answer.context["version"].as_u64().unwrap();
        *by_run.entry((note, version)).or_default() += 1;
    }
    let runs = runs(store).await;
    let done = runs
        .iter()
        .filter(|run| run.state == RunState::Done && ANSWERERS.contains(&&*run.run.executor));
    let name = |run: &Run| (run.run.trigger_id.to_string(), run.run.trigger_version);
    let expected: BTreeMap<_, _> = done.map(|run| (name(run), 1)).collect();
    assert_eq!(by_run, expected);
}

async fn the_agent_has_all_results(store: &impl Saved, model: &ScriptedModel) {
    let answers = store.recent(AgentExecutor::RESPONSE, 10).await.unwrap();
    assert_eq!(answers.len(), 1, "{answers:?}");
    let text = answers[0].context.text("message");
    assert_eq!(text, Some("find_order done, refund done"));
    assert_eq!(model.requests().len(), 1);
}

async fn the_flow_has_its_result(store: &impl Saved) {
    let results = store.recent(WorkloadExecutor::REQUEST_RESULT, 10);
    let results = results.await.unwrap();
    assert_eq!(results.len(), 1, "{results:?}");
    let expected = json!({"prepared": "prepare done", "by": "ann", "published": "publish done"});
    assert_eq!(results[0].context["output"], expected);
}

/// Fails unless the remaining turns are answered in their order, and the model receives the earlier turns.
async fn the_session_is_continued(store: &impl Saved, model: &ScriptedModel) {
    let results = store.recent(WorkloadExecutor::RESULT, 10).await.unwrap();
    let outputs: Vec<&Value> = results.iter().map(|it| &it.context["output"]).collect();
    let answers = ["four", "three", "two", "one"].map(|text| format!("{text} answered"));
    assert_eq!(outputs, answers.iter().collect::<Vec<_>>());

    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    let shown = |request: usize| {
        let messages = requests[request].messages.iter();
        let texts = messages.map(|message| message.text().into_owned());
        texts.collect::<Vec<_>>()
    };
    let mut history = vec!["Talk.", "one", "", "look_up done", "one answered"];
    history.extend(["two", "two answered", "three"]);
    assert_eq!(shown(0), history);
    history.extend(["three answered", "four"]);
    assert_eq!(shown(1), history);
}
