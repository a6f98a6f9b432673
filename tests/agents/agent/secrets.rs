//! Logs about an agent's turns: they name the agent and the step, and contain nothing of the conversation.

use crate::agent::{MemoryStore, agent, calling, put, registry, says, script, sees, tool};
use crate::support::log::Log;
use serde_json::json;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::agent::{ChatResponse, ModelArguments, Part, ToolCall};

const SECRET: &str = "sk-planted-secret";

#[tokio::test]
async fn the_logs_name_agent_turn_and_tool_and_omit_the_conversation() {
    let (log, guard) = Log::capture(tracing::Level::TRACE, FmtSpan::FULL);
    let store = MemoryStore::default();
    let (fails, _) = tool("fails", |_| async {
        Err(format!("401 for {SECRET}").into())
    });
    let (tells, _) = tool("tells", |_| async { Ok(json!(SECRET)) });
    let mut called = calling([
        (SECRET, "fails", json!({"key": SECRET})),
        ("2", "tells", json!({})),
        ("3", SECRET, json!({})),
        ("3", SECRET, json!(1)),
    ]);
    let cut = ToolCall::new(
        "4",
        "tells",
        ModelArguments::from_text(format!("{{{SECRET}")),
    );
    called.parts.push(Part::ToolCall(cut));
    let model = script([Ok(called), Ok(ChatResponse::new(SECRET))]);
    let worker = agent(&store, &model, &registry([fails, tells]), &json!({})).unwrap();
    let question = put(&store, "question.v1", json!({"q": SECRET})).await;

    sees(&worker, &question).await.unwrap();
    let model = script([Ok(says(SECRET)), Ok(says(SECRET))]);
    let more = json!({"output_schema": {"type": "object"}});
    let strict = agent(&store, &model, &registry([]), &more).unwrap();
    let question = put(&store, "question.v1", json!({"q": SECRET})).await;
    sees(&strict, &question).await.unwrap();

    drop(guard);
    let logged = log.text();
    assert!(!logged.contains(SECRET), "{logged}");
    for named in [
        "model_turn",
        "turn=2",
        "tool_call",
        "tool=\"fails\"",
        "worker",
    ] {
        assert!(logged.contains(named), "{named}: {logged}");
    }
}
