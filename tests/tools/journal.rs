//! A call that has finished is never made again.

use crate::support::{Probe, event_of, put};
use crate::{LEASE, SECOND, by_hand, count, counting, error_of, only, registry};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::time::{advance, timeout};
use universal_executor::store::{Fault, Faulty, Moment, Operation};
use universal_executor::tool::{CallJournal, JsonTool, ToolCall, ToolOutcome, ToolRegistry};
use universal_executor::{
    BreadcrumbStore, ExecutionContext, MemoryStore, RunLedger, Selector, UniversalExecutor, Wake,
    suspend,
};

fn named(id: &str, tool: &str) -> ToolCall {
    ToolCall::new(id, tool, json!({}))
}

/// An executor whose runs make two calls in a journal, then do what a closure says of the attempt.
fn two_calls(
    store: &MemoryStore,
    tools: &ToolRegistry,
    then: impl Fn(u32) -> Then + Send + Sync + 'static,
) -> Probe {
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let (tools, then) = (tools.clone(), Arc::new(then));
    Probe::on("question.v1", "agent", store).executing(move |run: ExecutionContext| {
        let (tools, store, then) = (tools.clone(), Arc::clone(&shared), Arc::clone(&then));
        async move {
            let journal = CallJournal::of(&run);
            let first = journal.call(&tools, named("1", "first"), &store).await?;
            let second = journal.call(&tools, named("2", "second"), &store).await?;
            match then(run.attempt()) {
                Then::Answer => Ok(json!({"first": first, "second": second})),
                Then::Fail => Err("connection reset".into()),
                Then::Hang => std::future::pending().await,
            }
        }
    })
}

enum Then {
    Answer,
    Fail,
    Hang,
}

fn two_tools() -> (ToolRegistry, [Arc<AtomicUsize>; 2]) {
    let (first, firsts) = counting("first", |call| async move { Ok(json!(call)) });
    let (second, seconds) = counting(
        "second",
        |call| async move { Err(format!("no {call}").into()) },
    );
    (registry([first.idempotent(), second]), [firsts, seconds])
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_tried_again_repeats_no_call_that_has_finished() {
    let store = MemoryStore::default();
    let (tools, calls) = two_tools();
    let agent = two_calls(&store, &tools, |attempt| match attempt {
        1 | 2 => Then::Fail,
        3 => Then::Hang,
        _ => Then::Answer,
    });
    let question = put(&store, "question.v1", json!({})).await;

    for _ in 0..2 {
        agent.sees(&question).await.unwrap_err();
        advance(60 * SECOND).await;
    }
    let killed = timeout(SECOND, agent.sees(&question)).await;
    advance(LEASE).await;
    agent.sees(&question).await.unwrap();

    assert!(killed.is_err());
    assert_eq!(calls.each_ref().map(|calls| count(calls)), [1, 1]);
    let answer = only(&store, "answer.v1").await;
    assert_eq!(
        answer.context["first"],
        json!({"status": "success", "output": 0})
    );
    assert_eq!(
        answer.context["second"],
        json!({"status": "error", "code": "failed", "error": "no 0"})
    );
}

/// A run that was killed while its only call went on, and goes on then; how often the tool was called.
async fn killed_within(tool: fn(JsonTool) -> JsonTool) -> (usize, ToolOutcome) {
    let store = MemoryStore::default();
    let (probe, calls) = counting("probe", |call| async move {
        match call {
            0 => std::future::pending().await,
            _ => Ok(json!("done")),
        }
    });
    let tools = registry([tool(probe)]);
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let agent = Probe::on("question.v1", "agent", &store).executing(move |run| {
        let (tools, store) = (tools.clone(), Arc::clone(&shared));
        async move {
            let journal = CallJournal::of(&run);
            Ok(json!(
                journal.call(&tools, named("1", "probe"), &store).await?
            ))
        }
    });
    let question = put(&store, "question.v1", json!({})).await;

    let killed = timeout(SECOND, agent.sees(&question)).await;
    advance(LEASE).await;
    agent.sees(&question).await.unwrap();

    assert!(killed.is_err());
    let mut answer = only(&store, "answer.v1").await.context.clone().into_value();
    answer.as_object_mut().unwrap().remove("creator");
    (count(&calls), serde_json::from_value(answer).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_interrupted_is_made_again_only_if_that_does_no_harm() {
    let (called, outcome) = killed_within(JsonTool::idempotent).await;
    assert_eq!(called, 2);
    assert_eq!(
        outcome,
        ToolOutcome::Success {
            output: json!("done")
        }
    );

    for tool in [JsonTool::at_most_once, |tool| tool] {
        let (called, outcome) = killed_within(tool).await;
        assert_eq!(called, 1);
        assert_eq!(error_of(outcome).0, "outcome_unknown");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_made_if_it_cannot_be_recorded_before() {
    let memory = MemoryStore::default();
    let fails = Arc::new(AtomicUsize::new(1));
    let left = Arc::clone(&fails);
    let store = Faulty::new(memory.clone(), move |operation, moment| {
        let count = |left: usize| left.checked_sub(1);
        match (operation, moment) {
            (Operation::Save, Moment::Before)
                if left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, count)
                    .is_ok() =>
            {
                Fault::Fail
            }
            _ => Fault::None,
        }
    });
    let (probe, calls) = counting("probe", |_| async { Ok(json!("done")) });
    let tools = registry([probe]);
    let question = put(&memory, "question.v1", json!({})).await;
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(memory.clone());
    let agent = Saver {
        inner: Probe::on("question.v1", "agent", &memory).executing(move |run| {
            let (tools, store) = (tools.clone(), Arc::clone(&shared));
            async move {
                let journal = CallJournal::of(&run);
                Ok(json!(
                    journal.call(&tools, named("1", "probe"), &store).await?
                ))
            }
        }),
        store,
    };

    agent.process_event(&event_of(&question)).await.unwrap_err();
    let before = count(&calls);
    advance(60 * SECOND).await;
    agent.process_event(&event_of(&question)).await.unwrap();

    assert_eq!((before, count(&calls)), (0, 1));
    assert_eq!(only(&memory, "answer.v1").await.context["output"], "done");
}

/// An executor on a store that fails.
struct Saver {
    inner: Probe,
    store: Faulty<MemoryStore>,
}

#[universal_executor::async_trait]
impl UniversalExecutor for Saver {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn subscriptions(&self) -> &universal_executor::Subscriptions {
        self.inner.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(
        &self,
        trigger: &universal_executor::Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, universal_executor::BoxError> {
        self.inner.execute(trigger, context).await
    }

    async fn respond(
        &self,
        trigger: &universal_executor::Breadcrumb,
        output: Value,
    ) -> Result<universal_executor::Response, universal_executor::BoxError> {
        self.inner.respond(trigger, output).await
    }
}

#[tokio::test(start_paused = true)]
async fn many_calls_at_once_are_all_recorded() {
    let store = MemoryStore::default();
    let (slow, calls) = counting("slow", |call| async move {
        tokio::time::sleep(SECOND * (call as u32 % 3)).await;
        Ok(json!(call))
    });
    let tools = registry([slow]);
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let agent = Probe::on("question.v1", "agent", &store).executing(move |run| {
        let (tools, store) = (tools.clone(), Arc::clone(&shared));
        async move {
            let journal = CallJournal::of(&run);
            let ids: Vec<String> = (0..20).map(|id| id.to_string()).collect();
            let calls = ids
                .iter()
                .map(|id| journal.call(&tools, named(id, "slow"), &store));
            futures::future::try_join_all(calls).await?;
            match run.attempt() {
                1 => Err("connection reset".into()),
                _ => Ok(json!("done")),
            }
        }
    });
    let question = put(&store, "question.v1", json!({})).await;

    agent.sees(&question).await.unwrap_err();
    advance(60 * SECOND).await;
    agent
        .sees(&question)
        .await
        .unwrap_or_else(|error| panic!("{error:?}"));

    assert_eq!(count(&calls), 20);
}

#[tokio::test]
async fn a_call_id_that_is_used_for_something_else_is_an_error() {
    let (tools, calls) = two_tools();
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let run = by_hand();
    let journal = CallJournal::of(&run);
    let input = |input: Value| ToolCall::new("1", "first", input);

    journal
        .call(&tools, input(json!({"a": 1, "b": 2})), &store)
        .await
        .unwrap();
    let same: Value = serde_json::from_str(r#"{"b": 2, "a": 1}"#).unwrap();
    let same = journal.call(&tools, input(same), &store).await.unwrap();
    let other = journal
        .call(&tools, input(json!({"a": 1})), &store)
        .await
        .unwrap();
    let tool = journal
        .call(&tools, named("1", "second"), &store)
        .await
        .unwrap();

    assert_eq!(same, ToolOutcome::Success { output: json!(0) });
    assert_eq!(error_of(other).0, "conflicting_call");
    assert_eq!(error_of(tool).0, "conflicting_call");
    assert_eq!(calls.map(|calls| count(&calls)), [1, 0]);
}

#[tokio::test]
async fn a_run_makes_no_more_calls_than_its_journal_takes() {
    let (first, calls) = counting("first", |_| async { Ok(json!(1)) });
    let tools = registry([first]);
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let run = by_hand();
    let journal = CallJournal::of(&run);

    for id in 0..CallJournal::MOST_CALLS {
        journal
            .call(&tools, named(&id.to_string(), "first"), &store)
            .await
            .unwrap();
    }
    let refused = journal
        .call(&tools, named("more", "first"), &store)
        .await
        .unwrap();

    assert_eq!(error_of(refused).0, "too_many_calls");
    assert_eq!(count(&calls), CallJournal::MOST_CALLS);
}

#[tokio::test]
async fn a_suspended_run_goes_on_with_its_calls_and_its_own_state() {
    let store = MemoryStore::default();
    let (probe, calls) = counting("probe", |_| async { Ok(json!("done")) });
    let tools = registry([probe]);
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let states = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&states);
    let agent = Probe::on("question.v1", "agent", &store).executing(move |run| {
        let (tools, store, seen) = (tools.clone(), Arc::clone(&shared), Arc::clone(&seen));
        async move {
            let journal = CallJournal::of(&run);
            seen.lock().unwrap().push(journal.state());
            journal.call(&tools, named("1", "probe"), &store).await?;
            journal.save(json!({"turn": 1})).await?;
            if run.resumed().is_none() {
                let wake = Wake::on(Selector::schema("go.v1"));
                return Err(suspend(wake, journal.to_json()).writing(Default::default()));
            }
            Ok(json!(journal.finished("1")))
        }
    });
    let question = put(&store, "question.v1", json!({})).await;

    agent.sees(&question).await.unwrap();
    let go = put(&store, "go.v1", json!({})).await;
    let run = universal_executor::store::RunRef::new("agent", question.id, 1);
    store.resume(&run, go.id).await.unwrap();
    agent.sees(&question).await.unwrap();

    assert_eq!(count(&calls), 1);
    assert_eq!(*states.lock().unwrap(), [json!(null), json!({"turn": 1})]);
    assert_eq!(only(&store, "answer.v1").await.context["output"], "done");
}

#[tokio::test]
async fn a_state_that_no_journal_saved_is_the_executors_own() {
    for state in [
        json!({"turn": 3}),
        json!([1]),
        json!({"tool_calls": {}, "state": 1, "x": 2}),
    ] {
        let run = by_hand().with_resumed(state.clone(), None);

        assert_eq!(CallJournal::of(&run).state(), state);
    }
}

#[tokio::test]
async fn a_result_comes_back_as_it_was() {
    let outcomes = [
        ToolOutcome::Success {
            output: json!({"status": "error", "n": 1.5}),
        },
        ToolOutcome::Error {
            code: "failed".into(),
            message: "no".to_owned(),
        },
        ToolOutcome::Deferred(universal_executor::tool::ToolAction {
            kind: "question".to_owned(),
            payload: json!({"text": "?"}),
        }),
    ];
    for outcome in outcomes {
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(
            serde_json::from_str::<ToolOutcome>(&text).unwrap(),
            outcome,
            "{text}"
        );
    }
}

#[tokio::test]
async fn without_a_ledger_a_careful_tool_is_not_called_and_others_are() {
    let (careful, calls) = counting("careful", |_| async { Ok(json!("done")) });
    let (plain, plains) = counting("plain", |_| async { Ok(json!("done")) });
    let tools = registry([careful.at_most_once(), plain]);
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let run = by_hand();
    let journal = CallJournal::of(&run);

    let refused = journal.call(&tools, named("1", "careful"), &store).await;
    journal
        .call(&tools, named("2", "plain"), &store)
        .await
        .unwrap();

    assert!(refused.is_err(), "{refused:?}");
    assert_eq!((count(&calls), count(&plains)), (0, 1));
}
