//! Agents that ask others within a run whose store fails or refuses, and what becomes of their steps.

use super::losses::failing;
use super::*;
use universal_executor::store::Operation;

fn ask(number: &str, agent: &str) -> ToolCall {
    ToolCall::new(number, agent, json!({"prompt": "Go on."}))
}

/// What the tools came to that an agent has called.
fn results(request: &ChatRequest) -> Vec<String> {
    let messages = request.messages.iter();
    let results = messages.filter(|message| message.speaker == Speaker::Tool);
    results.map(|message| message.text.clone()).collect()
}

/// What a run comes to within a few attempts.
async fn ends(world: &World) -> Value {
    let request = world.asks(json!({})).await;
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
async fn the_answer_of_an_asked_agent_is_not_lost_whichever_search_fails() {
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
