//! Runs of agents whose provider is a program: the program's fate when a run waits, fails, is retried or ends.

use crate::cli::client::{Door, until};
use crate::cli::playing;
use crate::setups::{Notes, approve, are_suspended, first, runtime};
use crate::support::{all, event_of, eventually, put, runs};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::time::{advance, pause, resume};
use universal_executor::agent::{AgentDefinition, AgentExecutor};
use universal_executor::machine::{Answer, Effect};
use universal_executor::store::{FailureClass, RunState};
use universal_executor::tool::{JsonTool, ToolDispatcher, ToolRegistry, json_tool};
use universal_executor::{BoxError, MemoryStore, Outcome, UniversalExecutor as _};

/// The tools of a test, with records of their calls.
#[derive(Clone, Default)]
struct Tools {
    /// The names of the called tools.
    called: Arc<Mutex<Vec<&'static str>>>,
    /// The callback endpoint of the program that called `open` last.
    door: Arc<Mutex<Option<Door>>>,
    begun: Arc<Notify>,
    released: Arc<Notify>,
}

impl Tools {
    /// Returns the tools: `echo` and `pay` return their input, `open` records its input, `hang` ends when it is released, and
    /// `follow` ends once `hang` has started.
    fn registry(&self) -> ToolRegistry {
        let (echo, pay) = (self.tool("echo", Ok), self.tool("pay", Ok));
        let door = Arc::clone(&self.door);
        let open = self.tool("open", move |input| {
            *door.lock().unwrap() = Some(serde_json::from_value(input)?);
            Ok(json!("opened"))
        });
        let tools = self.clone();
        let hang = async_tool("hang", move || {
            tools.called.lock().unwrap().push("hang");
            tools.begun.notify_one();
            let released = Arc::clone(&tools.released);
            async move {
                released.notified().await;
                Ok(json!("released"))
            }
        });
        let begun = Arc::clone(&self.begun);
        let follow = async_tool("follow", move || {
            let begun = Arc::clone(&begun);
            async move {
                begun.notified().await;
                Ok(json!("followed"))
            }
        });
        let tools = [echo, pay, open, hang, follow].into_iter();
        tools.fold(ToolRegistry::default(), |all, tool| all.with(tool).unwrap())
    }

    fn tool(
        &self,
        name: &'static str,
        work: impl Fn(Value) -> Result<Value, BoxError> + Send + Sync + 'static,
    ) -> JsonTool {
        let called = Arc::clone(&self.called);
        json_tool(
            name,
            "For tests.",
            json!({"type": "object"}),
            move |input, _| {
                called.lock().unwrap().push(name);
                std::future::ready(work(input))
            },
        )
    }

    fn called(&self) -> Vec<&'static str> {
        self.called.lock().unwrap().clone()
    }

    fn door(&self) -> Door {
        self.door.lock().unwrap().clone().unwrap()
    }
}

fn async_tool<F, R>(name: &str, work: F) -> JsonTool
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = Result<Value, BoxError>> + Send + 'static,
{
    json_tool(
        name,
        "For tests.",
        json!({"type": "object"}),
        move |_, _| work(),
    )
}

/// Creates an agent on questions whose provider is a program with this script.
fn worker(store: &MemoryStore, script: &Value, tools: &Tools, more: &Value) -> AgentExecutor {
    let tools = tools.registry();
    let mut definition = json!({
        "agent_id": "worker", "system_prompt": "Work.", "tools": tools.names(),
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    });
    let fields = definition.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let definition = AgentDefinition::from_json(&definition).unwrap();
    let (program, store) = (Arc::new(playing(script)), Arc::new(store.clone()));
    AgentExecutor::with_provider(definition, program, store, &tools).unwrap()
}

async fn answer(store: &MemoryStore) -> Value {
    let found = all(store, AgentExecutor::RESPONSE).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].context.clone().into_value()
}

/// Returns the JSON in the message of the only answer.
async fn said(store: &MemoryStore) -> Value {
    serde_json::from_str(answer(store).await["message"].as_str().unwrap()).unwrap()
}

/// Waits until a program and its port are gone.
async fn is_left(door: &Door) {
    door.is_closed().await;
    until(async || door.is_gone()).await;
}

fn codes(heard: &Value) -> Vec<Option<&str>> {
    let heard = heard.as_array().unwrap().iter();
    heard.map(|answer| answer["code"].as_str()).collect()
}

#[tokio::test]
async fn a_program_ends_during_an_approval_and_restarts_with_its_earlier_calls() {
    let notes = Notes::new("approval");
    let (store, tools) = (MemoryStore::default(), Tools::default());
    let script = json!([
        ["read", null],
        ["open", null],
        ["call", [[["1", "echo", {"n": 1}], ["2", "pay", {"n": 2}]]]],
        ["note_heard", notes.path()],
        ["say_task", null],
    ]);
    let more = json!({"approval": {"tools": ["pay"]}});
    let agent = Arc::new(worker(&store, &script, &tools, &more));
    let talk = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        let asked = first(&store, "human.request.v1", "worker").await;
        are_suspended(&store, 1).await;
        assert_eq!(tools.called(), ["open", "echo"]);
        is_left(&tools.door()).await;
        approve(&store, &asked).await;
        first(&store, AgentExecutor::RESPONSE, "worker").await;
    };

    runtime(&store, [agent as _]).run_until(talk).await.unwrap();

    // The second program's `open` call has the same ID with other arguments, so it is a conflict and not executed.
    assert_eq!(tools.called(), ["open", "echo", "pay"]);
    let heard = notes.read();
    assert_eq!(codes(&heard[0]), [None, None, Some("cancelled")]);
    assert_eq!(codes(&heard[1]), [Some("conflicting_call"), None, None]);
    assert_eq!(heard[1][1]["output"], json!({"n": 1}));
    assert_eq!(heard[1][2]["output"], json!({"n": 2}));
    let task = said(&store).await;
    assert_eq!(
        (&task["resumed"]["runs"], &task["message"]),
        (&json!(1), &Value::Null)
    );
    // A program that chooses new IDs at each start can read the earlier calls here.
    let called = task["resumed"]["calls"].as_array().unwrap();
    let paid = json!({"id": "2", "tool": "pay", "arguments": {"n": 2}, "status": "success", "output": {"n": 2}});
    assert!(called.contains(&paid), "{called:?}");
}

#[tokio::test]
async fn a_program_is_not_started_before_the_last_person_has_answered() {
    let notes = Notes::new("starts");
    let (store, tools) = (MemoryStore::default(), Tools::default());
    let script = json!([
        ["read", null],
        ["note_heard", notes.path()],
        ["call_and_forget", ["hang", "hang", {}]],
        ["call", [[["follow", "follow", {}]]]],
        ["call", [[["1", "pay", {"n": 1}]], [["2", "pay", {"n": 2}]]]],
        ["say_heard", null],
    ]);
    let more = json!({"approval": {"tools": ["pay"]}});
    let asked = AtomicUsize::new(0);
    let released = Arc::clone(&tools.released);
    let agent = worker(&store, &script, &tools, &more).observed_by(move |_, effect| {
        let is_pay = matches!(effect, Effect::Execute(call) if call.tool == "pay");
        // `hang` runs until both approvals are requested, so that the run waits for both.
        if is_pay && asked.fetch_add(1, Ordering::SeqCst) == 1 {
            released.notify_one();
        }
    });
    let talk = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        are_suspended(&store, 1).await;
        let asked = all(&store, "human.request.v1").await;
        assert_eq!(asked.len(), 2);
        approve(&store, &asked[0]).await;
        eventually(|| async { tools.called() == ["hang", "pay"] }).await;
        are_suspended(&store, 1).await;
        approve(&store, &asked[1]).await;
        first(&store, AgentExecutor::RESPONSE, "worker").await;
    };

    let agent: Arc<dyn universal_executor::UniversalExecutor> = Arc::new(agent);
    runtime(&store, [agent]).run_until(talk).await.unwrap();

    assert_eq!(notes.read().len(), 2);
    assert_eq!(tools.called(), ["hang", "pay", "pay"]);
    let heard = said(&store).await;
    assert_eq!(heard[1]["output"], json!({"n": 1}));
    assert_eq!(heard[2]["output"], json!({"n": 2}));
}

#[tokio::test]
async fn a_call_that_its_program_does_not_wait_for_is_cancelled_and_answered_when_the_program_ends()
{
    let (store, tools) = (MemoryStore::default(), Tools::default());
    let script = json!([
        ["call_and_forget", ["1", "hang", {}]],
        ["open", null],
        ["call", [[["2", "follow", {}]]]],
        ["say", "done"],
    ]);
    let effects: Arc<Mutex<Vec<Effect>>> = Arc::default();
    let seen = Arc::clone(&effects);
    let agent = worker(&store, &script, &tools, &json!({}))
        .observed_by(move |_, effect| seen.lock().unwrap().push(effect.clone()));
    let question = put(&store, "question.v1", json!({"q": 1})).await;

    agent.process_event(&event_of(&question)).await.unwrap();

    assert_eq!(answer(&store).await["message"], "done");
    let effects = effects.lock().unwrap().clone();
    let [
        ..,
        Effect::CancelCall(id),
        Effect::Deliver(results),
        Effect::Finish(_),
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!((id.as_str(), results[0].call_id.as_str()), ("1", "1"));
    assert!(
        matches!(&results[..], [one] if matches!(&one.answer, Answer::Error { code, .. } if code == "cancelled"))
    );
    is_left(&tools.door()).await;
}

#[tokio::test]
async fn a_budget_of_seconds_ends_a_program_that_never_ends() {
    let (store, tools) = (MemoryStore::default(), Tools::default());
    let script = json!([["open", null], ["hang", null]]);
    let more = json!({"budgets": {"seconds": 5}});
    let agent = worker(&store, &script, &tools, &more);
    let question = put(&store, "question.v1", json!({"q": 1})).await;
    let event = event_of(&question);
    // After the program has started, time advances whenever all tasks wait.
    let passes = async {
        until(async || tools.door.lock().unwrap().is_some()).await;
        pause();
        std::future::pending().await
    };

    let outcome = tokio::select! {
        outcome = agent.process_event(&event) => outcome,
        () = passes => unreachable!("the clock task never ends"),
    };

    let class = FailureClass::Permanent;
    assert!(
        matches!(&outcome, Ok(Outcome::Failed { class: found, .. }) if *found == class),
        "{outcome:?}"
    );
    let message = answer(&store).await["message"].clone();
    assert!(
        message.as_str().unwrap().contains("budget of 5 seconds"),
        "{message}"
    );
    resume();
    is_left(&tools.door()).await;
}

#[tokio::test]
async fn a_program_that_was_started_the_wrong_way_fails_the_run_for_good() {
    let (store, tools) = (MemoryStore::default(), Tools::default());
    let script = json!([["open", null], ["complain", "unknown option"], ["exit", 2]]);
    let agent = worker(&store, &script, &tools, &json!({}));
    let question = put(&store, "question.v1", json!({"q": 1})).await;

    let outcome = agent.process_event(&event_of(&question)).await.unwrap();

    let class = FailureClass::Permanent;
    assert!(matches!(outcome, Outcome::Failed { class: found, .. } if found == class));
    assert_eq!(answer(&store).await["status"], "error");
    is_left(&tools.door()).await;
}

#[tokio::test]
async fn a_program_that_breaks_down_is_started_again_and_no_call_is_made_twice() {
    let (store, tools) = (MemoryStore::default(), Tools::default());
    let script = json!([
        ["read", null],
        ["call", [[["1", "echo", {"n": 1}]]]],
        ["unless_resumed", [
            ["call_and_forget", ["2", "hang", {}]],
            ["open", null],
            ["call", [[["3", "follow", {}]]]],
            ["exit", 1],
        ]],
        ["call", [[["2", "hang", {}]]]],
        ["say_heard", null],
    ]);
    let agent = worker(&store, &script, &tools, &json!({}));
    let question = put(&store, "question.v1", json!({"q": 1})).await;

    let failed = agent.process_event(&event_of(&question)).await;
    is_left(&tools.door()).await;
    pause();
    advance(std::time::Duration::from_secs(600)).await;
    resume();
    agent.process_event(&event_of(&question)).await.unwrap();

    assert!(failed.is_err(), "{failed:?}");
    let run = runs(&store).await.remove(0);
    assert_eq!((run.state, run.attempts), (RunState::Done, 2));
    let heard = said(&store).await;
    assert_eq!(heard[0]["output"], json!({"n": 1}));
    assert_eq!(codes(&heard), [None, Some("outcome_unknown")]);
    assert_eq!(tools.called(), ["echo", "hang", "open"]);
}

#[tokio::test]
async fn a_program_is_not_stopped_for_a_tool_elsewhere() {
    let (store, tools) = (MemoryStore::default(), Tools::default());
    let script = json!([
        ["read", null],
        ["call", [[["1", "echo", {"n": 1}]], [["2", "pay", {"n": 2}]]]],
        ["say_task", null],
    ]);
    let agent = worker(
        &store,
        &script,
        &tools,
        &json!({"tool_calls": "breadcrumbs"}),
    );
    let served = ToolDispatcher::new("tools", tools.registry(), Arc::new(store.clone())).unwrap();
    let talk = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        first(&store, AgentExecutor::RESPONSE, "worker").await;
    };

    let executors: [Arc<dyn universal_executor::UniversalExecutor>; 2] =
        [Arc::new(agent), Arc::new(served)];
    runtime(&store, executors).run_until(talk).await.unwrap();

    assert_eq!(said(&store).await["resumed"], Value::Null);
    assert_eq!(all(&store, "tool.request.v1").await.len(), 2);
    let mut called = tools.called();
    called.sort_unstable();
    assert_eq!(called, ["echo", "pay"]);
}
