//! Log lines about conversations.

use super::*;
use crate::log::Log;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::agent::guardrail::{Decision, on_input};
use universal_executor::agent::{ChatResponse, ModelError, ToolCall};

/// Words of a user, with a line break that would forge a log line.
const SAID: &str = "my PIN is 4711\n2026-01-01T00:00:00Z ERROR forged";

/// Creates a model that refuses each summary request with an error that contains the conversation. Any other request calls the tool
/// `double` once and is then answered.
fn refuses() -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::answering(|_, request| {
        let shown = &request.messages;
        if shown[0].text().starts_with("Sum up") {
            let reason = format!("I will not sum up {}\n{SAID}", shown[1].text());
            return Err(ModelError::Refused { reason });
        }
        let last = shown.last().unwrap();
        Ok(match last.call_id() {
            None => ChatResponse::calling(vec![ToolCall::new("1", "double", json!({"n": 1}))]),
            Some(_) => ChatResponse::new("ok"),
        })
    }))
}

/// Runs three turns of a session whose conversation is summarised, and returns their log lines.
async fn logged(setup: &Setup, policies: Value) -> String {
    let (log, _guard) = Log::capture(Level::DEBUG, FmtSpan::NONE);
    let definition = flow(json!({
        "tools": {"double": {}}, "agents": {"main": {"instruction": "Help.", "tools": ["double"]}}, "policies": policies,
    }));
    let supervisor = setup.supervisor(Arc::new(definition)).build().unwrap();
    for message in [SAID, "two", "three"] {
        supervisor.send("s", message).unwrap().outcome().await;
    }
    log.take()
}

fn compaction() -> Value {
    json!({"method": "summarise", "at_tokens": 4, "keep": 2})
}

/// Fails unless exactly one warning about a summary has this code, and no line contains words of the conversation.
fn assert_only_code(lines: &str, code: &str) {
    let warned = |line: &&str| line.contains("WARN") && line.contains("summarise");
    let warning = lines.lines().find(warned).unwrap_or_default();
    assert!(warning.contains(&format!("code={code:?}")), "{lines}");
    for word in ["4711", "forged", "PIN"] {
        assert!(!lines.contains(word), "{lines}");
    }
}

#[tokio::test]
async fn a_refused_summary_of_a_session_is_logged_by_its_code_without_words_of_the_conversation() {
    let setup = setup(&refuses(), &MemoryStore::default());

    let lines = logged(&setup, json!({"compaction": compaction()})).await;

    assert_only_code(&lines, "refused");
}

#[tokio::test]
async fn a_denied_summary_is_logged_by_its_code_without_the_reason_of_the_guardrail() {
    let quotes = on_input("quotes", |messages| {
        match messages[0].text().starts_with("Sum up") {
            true => Decision::deny(&*messages[1].text()),
            false => Decision::Allow,
        }
    });
    let services = Services::new().default_model(parrot());
    let double = json_tool("double", "Doubles.", json!({}), |_, _| async {
        Ok(json!(2))
    });
    let services = services
        .tools(ToolRegistry::default().with(double).unwrap())
        .guardrail(quotes);
    let setup = Setup::new(services, Arc::new(MemoryStore::default()));
    let policies = json!({"compaction": compaction(), "guardrails": {"input": ["quotes"]}});

    let lines = logged(&setup, policies).await;

    assert_only_code(&lines, "denied");
}
