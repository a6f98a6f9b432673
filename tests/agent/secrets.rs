//! What the logs say of the turns of an agent: who and what, and nothing that was said.

use crate::{MemoryStore, agent, calling, put, registry, says, script, sees, tool};
use serde_json::json;
use std::io;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::agent::{Arguments, ChatResponse, ToolCall};

const SECRET: &str = "sk-planted-secret";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_logs_name_agent_turn_and_tool_and_repeat_nothing_that_was_said() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_writer(move || writer.clone())
        .finish();
    // With one dispatcher alone, `tracing` may decide on another test's thread that nobody ever listens.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let guard = tracing::subscriber::set_default(subscriber);
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
    let cut = ToolCall::new("4", "tells", Arguments::from_text(format!("{{{SECRET}")));
    called.tool_calls.push(cut);
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
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
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
