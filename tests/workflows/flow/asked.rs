//! Agents that call other agents while the store fails or refuses, and the results of their steps.

use super::losses::{failing, timed};
use super::waits::{Meanwhile, Then};
use super::*;
use universal_executor::store::Operation;

fn ask(number: &str, agent: &str) -> ToolCall {
    ToolCall::new(number, agent, json!({"prompt": "Go on."}))
}

/// Returns the results of an agent's tool calls in a request.
fn results(request: &ChatRequest) -> Vec<String> {
    let messages = request.messages.iter();
    let results = messages.filter(|message| message.speaker == Speaker::Tool);
    results.map(|message| message.text().into_owned()).collect()
}

/// Returns the result of a run that ends within a few attempts.
async fn ends(world: &World) -> Value {
    let request = world.request(json!({})).await;
    let event = Event::created(&request);
    for _ in 0..12 {
        let outcome = world.executor.process_event(&event).await;
        if matches!(outcome, Ok(Outcome::Responded { .. })) {
            return world.result().await;
        }
        tokio::time::advance(120 * SECOND).await;
    }
    json!("it does not end")
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_a_called_agent_survives_any_failed_search() {
    let more = json!({"tools": {"slow": {}}, "agents": {
        "writer": {"instruction": "Write.", "use": ["critic"]},
        "critic": {"instruction": "Criticise."},
    }});
    let beside = json!([{"parallel": [{"agent": "writer", "input": "crabs"}, {"tool": "slow"}]}]);
    let definition = flow(&more, beside);
    for at in 1..=14 {
        let model = ScriptedModel::answering(|_, request| {
            let has_result = !results(request).is_empty();
            Ok(match (shown(request).contains("Criticise."), has_result) {
                (true, _) => ChatResponse::new("too long"),
                (false, false) => ChatResponse::calling(vec![ask("1", "critic")]),
                (false, true) => ChatResponse::new("a shorter text"),
            })
        });
        let slow = json_tool("slow", "", json!({}), |_, _| async move {
            tokio::time::sleep(5 * SECOND).await;
            Ok(json!("slow"))
        });
        let parts = (registry([slow]), model);
        let fails = (Operation::Search, at..=at);
        let world = failing(&definition, parts, fails, &Arc::default());

        let result = ends(&world).await;

        assert_eq!(
            result["output"],
            json!(["a shorter text", "slow"]),
            "search {at} fails: {result}"
        );
    }
}

/// Returns a writer with two helpers: one pays with a tool, and the other one calls an editor.
fn payer_and_asker() -> (Value, ScriptedModel) {
    let model = ScriptedModel::answering(move |_, request| {
        let (said, results) = (shown(request), results(request));
        let is = |instruction: &str| said.contains(instruction);
        let calls = match () {
            () if is("Write.") => vec![ask("1", "payer"), ask("2", "asker")],
            () if is("Pay.") => vec![ask("1", "work")],
            () if is("Ask.") => vec![ask("1", "editor")],
            () => return Ok(ChatResponse::new("edited")),
        };
        Ok(match results.is_empty() {
            true => ChatResponse::calling(calls),
            false => ChatResponse::new(results.join(" ")),
        })
    });
    let more = json!({"tools": {"work": {}}, "agents": {
        "writer": {"instruction": "Write.", "use": ["payer", "asker"]},
        "payer": {"instruction": "Pay.", "tools": ["work"]},
        "asker": {"instruction": "Ask.", "use": ["editor"]},
        "editor": {"instruction": "Edit."},
    }});
    (
        flow(&more, json!([{"agent": "writer", "input": "crabs"}])),
        model,
    )
}

#[tokio::test(start_paused = true)]
async fn a_failed_search_does_not_interrupt_concurrent_agents() {
    for at in 1..=24 {
        let (definition, model) = payer_and_asker();
        let pay = json_tool("work", "", json!({}), |_, _| async move {
            tokio::time::sleep(5 * SECOND).await;
            Ok(json!("paid"))
        });
        let parts = (registry([pay.at_most_once()]), model);
        let fails = (Operation::Search, at..=at);
        let world = failing(&definition, parts, fails, &Arc::default());

        let result = ends(&world).await;

        assert_eq!(
            result["output"], "paid edited",
            "search {at} fails: {result}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_asked_agent_that_does_not_end_does_not_keep_an_attempt_with_an_error_from_ending() {
    let far = universal_executor::tool::remote_tool("far", "", json!({"type": "object"}));
    let model = ScriptedModel::answering(|_, request| {
        let (said, results) = (shown(request), results(request));
        let calls = match () {
            () if said.contains("Write.") => vec![ask("1", "payer"), ask("2", "asker")],
            () if said.contains("Pay.") => vec![ToolCall::new("1", "work", json!({"step": 1}))],
            () => vec![ask("1", "far")],
        };
        Ok(match results.is_empty() {
            true => ChatResponse::calling(calls),
            false => ChatResponse::new("done"),
        })
    });
    let more = json!({"tools": {"work": {}, "far": {}}, "agents": {
        "writer": {"instruction": "Write.", "use": ["payer", "asker"]},
        "payer": {"instruction": "Pay.", "tools": ["work"]},
        "asker": {"instruction": "Ask.", "tools": ["far"]},
    }});
    let definition = flow(&more, json!([{"agent": "writer", "input": "crabs"}]));
    let (work, begun) = timed("work", |_, time| (time > 1).then_some(SECOND));
    let tools = registry([work.idempotent()]).with(far).unwrap();
    // The first commit saves the definition, and the second one requests the tool.
    let fails = (Operation::Commit, 2..=2);
    let world = failing(&definition, (tools, model), fails, &Arc::default());
    let request = world.request(json!({})).await;
    let event = Event::created(&request);

    let first = tokio::time::timeout(120 * SECOND, world.executor.process_event(&event)).await;

    assert!(
        matches!(first, Ok(Err(ExecutorError::Postponed { .. }))),
        "{first:?}"
    );
    assert_eq!(*begun.lock().unwrap(), [1]);
}

/// Returns the result of a run whose store refuses breadcrumbs of a schema.
async fn refused(
    schema: &'static str,
    definition: &Value,
    tools: ToolRegistry,
    model: ScriptedModel,
) -> Value {
    let store = MemoryStore::default();
    let refusing = Meanwhile {
        store: store.clone(),
        does: move |written: &str| match written == schema {
            true => Then::Refuse,
            false => Then::Nothing,
        },
    };
    let model = Arc::new(model);
    let services = Services::new()
        .tools(tools)
        .default_model(Arc::clone(&model));
    let world = World {
        executor: Arc::new(executor(definition, &services, Arc::new(refusing))),
        store,
        changed: Arc::default(),
        model,
        events: Arc::default(),
    };
    world.result_of(json!({})).await
}

#[tokio::test]
async fn a_write_of_an_agent_that_the_store_rejects_fails_its_step() {
    let steps = json!([{"try": [{"agent": "a"}], "on_failure": [{"return": "${error.code}"}]}]);
    let writes = json!({"a": {"instruction": "A", "permissions": {"writes": ["report.v1"]}}});
    let asks = json!({"a": {"instruction": "A", "tools": ["far"]}});
    for (schema, agents) in [("report.v1", writes), ("tool.request.v1", asks)] {
        let far = universal_executor::tool::remote_tool("far", "", json!({"type": "object"}));
        let tools = ToolRegistry::default().with(far).unwrap();
        let model = ScriptedModel::answering(move |_, _| {
            let action = r#"{"action": "create", "breadcrumb": {"schema_name": "report.v1", "title": "R", "context": {"n": 1}}}"#;
            Ok(match schema == "report.v1" {
                true => ChatResponse::new(action),
                false => ChatResponse::calling(vec![ask("1", "far")]),
            })
        });
        let definition = flow(
            &json!({"tools": {"far": {}}, "agents": agents}),
            steps.clone(),
        );

        let result = refused(schema, &definition, tools, model).await;

        assert_eq!(result["output"], "rejected", "{schema}: {result}");
    }
}

#[tokio::test]
async fn a_context_withheld_from_an_agent_fails_its_step() {
    let steps = json!([{"try": [{"agent": "a"}], "on_failure": [{"return": "${error}"}]}]);
    let definition = flow(&json!({"agents": {"a": {"instruction": "A"}}}), steps);
    let world = World::new(&definition, ToolRegistry::default(), no_model());
    let hints = NewBreadcrumb::new("schema.def.v1").tag("defines:agent.request.v1");
    let hints = hints.llm_hints(json!({"mode": "no such mode"}));
    world.store.create(hints).await.unwrap();

    let result = world.result_of(json!({})).await;

    assert_eq!(result["output"]["code"], "withheld", "{result}");
    assert_eq!(world.model.requests().len(), 0);
}
