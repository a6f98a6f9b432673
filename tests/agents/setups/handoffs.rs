//! A handoff next to other calls: every call gets a result, handed-in outputs are retained, and no agent gains permissions.

use crate::cli::playing;
use crate::setups::setup::{results_for_model, texts, turns};
use crate::setups::{first, runtime};
use crate::support::put;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ApiProvider, ChatResponse, ModelError, Provider, ScriptedModel,
    ToolCall,
};
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::{MemoryStore, UniversalExecutor};

/// Returns the agent's turns: it hands in its report, makes a handoff next to two calls, and calls a tool that only the other agent may
/// use.
fn calls() -> [Vec<(&'static str, &'static str, Value)>; 3] {
    [
        vec![("report", "completion-report", json!({"done": "half"}))],
        vec![
            ("left", "echo", json!({"n": 1})),
            ("over", "handoff-to-payer", json!({"prompt": "Pay Ann."})),
            ("right", "echo", json!({"n": 2})),
        ],
        vec![("own", "pay", json!({"to": "ann"}))],
    ]
}

struct Scene {
    store: MemoryStore,
    tools: ToolRegistry,
    payments: Arc<AtomicUsize>,
}

impl Scene {
    fn new() -> Self {
        let payments = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&payments);
        let any = json!({"type": "object"});
        let pay = json_tool("pay", "Pays.", any.clone(), move |input, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(input))
        });
        let echo = json_tool("echo", "Says it again.", any, |input, _| {
            std::future::ready(Ok(input))
        });
        Self {
            store: MemoryStore::default(),
            tools: ToolRegistry::default()
                .with(pay)
                .unwrap()
                .with(echo)
                .unwrap(),
            payments,
        }
    }

    fn agent(&self, provider: Arc<dyn Provider>, definition: &Value) -> Arc<dyn UniversalExecutor> {
        let definition = AgentDefinition::from_json(definition).unwrap();
        let store = Arc::new(self.store.clone());
        let agent = AgentExecutor::with_provider(definition, provider, store, &self.tools);
        Arc::new(agent.unwrap())
    }

    /// Returns the answer of the agent that makes the handoff.
    async fn answer(&self, worker: Arc<dyn Provider>, payer: Arc<ScriptedModel>) -> Value {
        let worker = self.agent(
            worker,
            &json!({
                "agent_id": "worker", "tools": ["echo"], "handoff": ["payer"],
                "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
                "outputs": [{
                    "name": "completion-report", "description": "What was done.", "required": true,
                    "schema": {"type": "object"},
                }],
            }),
        );
        let payer = self.agent(
            Arc::new(ApiProvider::new(payer)),
            &json!({
                "agent_id": "payer", "tools": ["pay"],
                "subscriptions": [{"schema_name": "agent.request.v1", "role": "trigger"}],
            }),
        );
        let talk = async {
            put(&self.store, "question.v1", json!({"q": 1})).await;
            first(&self.store, AgentExecutor::RESPONSE, "worker").await;
        };
        let runtime = runtime(&self.store, [worker, payer]);
        runtime.run_until(talk).await.unwrap();
        let response = first(&self.store, AgentExecutor::RESPONSE, "worker").await;
        response.context.clone().into_value()
    }
}

/// Creates the model of the other agent, which pays if `works` is `true` and fails otherwise.
fn payer(works: bool) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::answering(move |number, request| {
        match (works, turns(request)) {
            (false, _) => Err(ModelError::ScriptEnded { number }),
            (true, 0) => {
                let call = ToolCall::new("1", "pay", json!({"to": "ann"}));
                Ok(ChatResponse::calling(vec![call]))
            }
            (true, _) => Ok(ChatResponse::new("It is paid.")),
        }
    }))
}

fn check(scene: &Scene, works: bool, told: &[String], answer: &Value) {
    assert_eq!(told.len(), 5, "{told:?}");
    assert_eq!(told[0], "handed in");
    assert_eq!(told[1], r#"{"n":1}"#);
    match works {
        true => assert_eq!(told[2], "It is paid."),
        false => assert!(told[2].starts_with("agent_failed: "), "{told:?}"),
    }
    assert_eq!(told[3], r#"{"n":2}"#);
    assert!(told[4].starts_with("unknown_tool: "), "{told:?}");
    assert_eq!(answer["status"], "success");
    assert_eq!(
        answer["outputs"],
        json!({"completion-report": {"done": "half"}})
    );
    assert_eq!(scene.payments.load(Ordering::SeqCst), usize::from(works));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_hands_off_beside_other_calls_receives_all_results_in_order() {
    for works in [true, false] {
        let scene = Scene::new();
        let model = ScriptedModel::answering(|_, request| {
            Ok(match calls().into_iter().nth(turns(request)) {
                Some(calls) => {
                    let calls = calls.into_iter();
                    let calls = calls.map(|(id, tool, input)| ToolCall::new(id, tool, input));
                    ChatResponse::calling(calls.collect())
                }
                None => ChatResponse::new("done"),
            })
        });
        let model = Arc::new(model);

        let provider = ApiProvider::new(Arc::clone(&model) as _);
        let answer = scene.answer(Arc::new(provider), payer(works)).await;

        let told = results_for_model(model.requests().last().unwrap()).into_iter();
        let told: Vec<_> = told.map(|(_, text)| text).collect();
        check(&scene, works, &told, &answer);
    }
}

#[tokio::test]
async fn a_program_that_hands_off_beside_other_calls_receives_all_results() {
    let mut script = vec![json!(["read", null])];
    for turn in calls() {
        let lists: Vec<_> = turn.into_iter().map(|call| json!([call])).collect();
        script.push(json!(["call", lists]));
    }
    script.push(json!(["say_heard", null]));
    for works in [true, false] {
        let scene = Scene::new();

        let program = playing(&script.clone().into());
        let answer = scene.answer(Arc::new(program), payer(works)).await;

        let heard = serde_json::from_str(answer["message"].as_str().unwrap()).unwrap();
        check(&scene, works, &texts(&heard), &answer);
    }
}
