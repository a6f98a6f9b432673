//! Calls of a program, and the results that each caller receives.

use crate::cli::client::{Door, heard};
use crate::cli::engine::Engine;
use crate::cli::{playing, task};
use futures::FutureExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;
use universal_executor::agent::{Provider as _, ProviderEvent, ResponseSchema, ToolSpec};
use universal_executor::machine::{Answer, ResultDelivery};

#[tokio::test]
async fn a_program_reads_its_task_and_its_standard_output_is_the_answer() {
    let program = playing(&json!([
        ["read", null],
        ["say_task", null],
        ["say", "\r\n\n"]
    ]));
    let mut task = task();
    task.model = Some("large".into());
    task.temperature = Some(0.5);
    task.tools = vec![ToolSpec::new(
        "echo",
        "Says it again",
        json!({"type": "object"}),
    )];
    task.response_schema = Some(ResponseSchema::new("answer", json!({})));

    let mut session = program.start(task).await.unwrap();
    let text = Engine::echo().drive(&mut *session).await.unwrap();

    assert_eq!(program.delivery(), ResultDelivery::Each);
    assert!(!text.ends_with('\n'), "{text:?}");
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        json!({
            "run": "run-1",
            "model": "large",
            "temperature": 0.5,
            "messages": [{"speaker": "user", "text": "Begin."}],
            "tools": [{"name": "echo", "description": "Says it again", "inputSchema": {"type": "object"}}],
            "response_schema": {"name": "answer", "schema": {}, "strict": true},
            "resumed": null,
            "message": null,
        })
    );
}

#[tokio::test]
async fn two_calls_at_once_are_answered_each_on_its_own() {
    let last = Arc::new(Notify::new());
    let reached = Arc::clone(&last);
    // The first call returns only after the second caller has made a third call.
    let mut engine = Engine::new(move |call| {
        let last = Arc::clone(&reached);
        async move {
            match call.id.as_str() {
                "first" => last.notified().await,
                "third" => last.notify_one(),
                _ => {}
            }
            Answer::success(json!(call.id))
        }
        .boxed()
    });
    let program = playing(&json!([
        [
            "call",
            [
                [["first", "echo", {}]],
                [["second", "echo", {}], ["third", "echo", {}]],
            ]
        ],
        ["say_heard", null],
    ]));

    let text = engine.run(&program).await.unwrap();

    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        json!([
            {"status": "success", "output": "first"},
            {"status": "success", "output": "second"},
            {"status": "success", "output": "third"},
        ])
    );
}

#[tokio::test]
async fn a_call_that_is_sent_again_is_executed_once_and_answered_each_time() {
    let call = json!(["same", "echo", {"n": 1}]);
    let program = playing(&json!([
        ["call", [[call, call], [call]]],
        ["say_heard", null],
    ]));
    let mut engine = Engine::echo();

    let text = engine.run(&program).await.unwrap();

    let answer = json!({"status": "success", "output": {"n": 1}});
    assert_eq!(engine.executed(), ["same"]);
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        json!([answer, answer, answer])
    );
}

#[tokio::test]
async fn a_conflict_is_reported_to_its_sender_and_not_to_other_waiters_for_the_id() {
    let program = playing(&json!([["open", null], ["say", "done"]]));
    let (began, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let mut engine = Engine::new(move |call| {
        let (began, goes_on) = (Arc::clone(&began), Arc::clone(&goes_on));
        async move {
            if call.tool == "open" {
                conflict(&Door::of(&call), &began, &goes_on).await;
            } else {
                began.notify_one();
                goes_on.notified().await;
            }
            Answer::success(json!("of the first"))
        }
        .boxed()
    });

    let text = engine.run(&program).await.unwrap();

    assert_eq!(text, "done");
    assert_eq!(engine.executed(), ["door", "same"]);
}

/// Sends a call, and another call with the same ID while the first one is in flight.
async fn conflict(door: &Door, began: &Notify, goes_on: &Notify) {
    let call = |n| {
        let body = json!({"id": "same", "tool": "echo", "arguments": {"n": n}});
        door.call(&body.to_string())
    };
    let mut first = door.connect().await;
    first.write_all(&call(1)).await.unwrap();
    began.notified().await;

    let (_, other) = door.send(&call(2)).await;
    goes_on.notify_one();
    let (_, first) = heard(first).await;

    assert_eq!(other["code"], "conflicting_call");
    assert_eq!(
        first,
        json!({"status": "success", "output": "of the first"})
    );
}

#[tokio::test]
async fn a_failed_or_invalid_call_receives_an_error_result() {
    let program = playing(&json!([
        [
            "call",
            [[
                ["1", "fail", {}],
                ["2", "fail", "{\"a\": "],
                ["3", "fail", "{\"a\": 1}"]
            ]]
        ],
        ["say_heard", null],
    ]));
    let mut engine =
        Engine::new(|_| async { Answer::error("no_such_city", "ask for another one") }.boxed());

    let text = engine.run(&program).await.unwrap();

    let heard: Value = serde_json::from_str(&text).unwrap();
    let failed = json!({"status": "error", "code": "no_such_city", "error": "ask for another one"});
    assert_eq!(heard[0], failed);
    assert_eq!(heard[1]["code"], "invalid_arguments");
    assert_eq!(heard[2], failed);
    assert_eq!(engine.executed(), ["1", "3"]);
}

#[tokio::test]
async fn a_program_may_ask_for_its_tools() {
    let program = playing(&json!([["say_tools", null]]));
    let mut task = task();
    task.tools = vec![ToolSpec::new("echo", "Says it again", json!({}))];

    let mut session = program.start(task).await.unwrap();
    let text = Engine::echo().drive(&mut *session).await.unwrap();

    let tool = json!({"name": "echo", "description": "Says it again", "inputSchema": {}});
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        json!({"tools": [tool]})
    );
}

#[tokio::test]
async fn a_dropped_future_loses_no_provider_event() {
    let program = playing(&json!([["call", [[["1", "echo", {}]]]], ["say", "end"]]));
    let mut session = program.start(task()).await.unwrap();

    // A driver that also waits for something else polls each future only once.
    let said = loop {
        if let Some(said) = session.next().now_or_never() {
            break said.unwrap();
        }
        tokio::task::yield_now().await;
    };

    assert!(matches!(said, ProviderEvent::Calls { calls, .. } if calls[0].id.as_str() == "1"));
}
