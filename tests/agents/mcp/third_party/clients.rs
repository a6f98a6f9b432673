//! MCP clients of other projects, which call this crate's MCP server: the MCP Inspector and the Python SDK.

use super::{MARK, Programs};
use crate::mcp::served::{NAMES, Served, stdio_command};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::process::Command;
use universal_executor::store::RunState;

/// Maximum duration of one client program.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(120);

/// The modes of the Python SDK: the handshake of the protocol versions up to 2025-11-25, and the discovery of the newest version.
const MODES: [&str; 2] = ["legacy", "auto"];

impl Programs {
    /// Returns the command that serves MCP over standard input and output.
    fn stdio(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.mark);
        let command = ["env".to_owned(), mark].into_iter();
        command.chain(stdio_command()).collect()
    }

    /// Runs a client program to its end, and returns the JSON in its output.
    async fn run<T: AsRef<OsStr>>(
        &self,
        program: &OsStr,
        args: impl IntoIterator<Item = T>,
    ) -> Value {
        let mut command = Command::new(program);
        command.args(args).env(MARK, &self.mark);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(CLIENT_TIMEOUT, command.output()).await;
        let output = output.expect("the client did not end").unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{out}\n{err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{err}"))
    }

    /// Runs a scenario of clients/client.py.
    async fn python(&self, target: &str, mode: &str, scenario: &str) -> Value {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/agents/mcp/clients/client.py"
        );
        self.run(&self.python, [script, target, mode, scenario])
            .await
    }

    /// Runs a scenario of clients/client.py over standard input and output.
    async fn python_stdio(&self, mode: &str, scenario: &str) -> Value {
        let target = json!(self.stdio()).to_string();
        self.python(&target, mode, scenario).await
    }

    /// Calls a method with the command line client of the MCP Inspector.
    async fn inspect(&self, target: &[String], args: &[&str]) -> Value {
        let program = [self.inspector.to_str().unwrap(), "--cli"];
        // A list of arguments would include the target.
        let args = program.iter().chain(args).chain(&["--"]);
        let args = args.map(|arg| (*arg).to_owned());
        let args: Vec<String> = args.chain(target.iter().cloned()).collect();
        self.run(&self.node, args).await
    }
}

async fn check_inspector(programs: &Programs, target: &[String]) {
    let list = programs.inspect(target, &["--method", "tools/list"]).await;
    let tools = list["tools"].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, NAMES);

    let count = [
        "--method",
        "tools/call",
        "--tool-name",
        "count",
        "--tool-arg",
        "a=1",
    ];
    let counted = programs.inspect(target, &count).await;
    assert_eq!(
        counted["structuredContent"]["input"],
        json!({"a": 1}),
        "{counted}"
    );

    let helper = [
        "--method",
        "tools/call",
        "--tool-name",
        "helper",
        "--tool-arg",
        "message=hello",
    ];
    let helped = programs.inspect(target, &helper).await;
    assert_eq!(
        helped["content"][0]["text"], "Order 7 is shipped.",
        "{helped}"
    );
}

#[tokio::test]
async fn the_inspector_lists_and_calls_tools_over_stdio() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    check_inspector(&programs, &programs.stdio()).await;
    programs.end().await;
}

#[tokio::test]
async fn the_inspector_lists_and_calls_tools_over_http() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let served = Served::start().await;
    let url = [served.url.clone()];
    check_inspector(&programs, &url).await;
    served.running.stop().await.unwrap();
    programs.end().await;
}

fn check_calls(mode: &str, seen: &Value) {
    let version = seen["version"].as_str().unwrap();
    let newest = if mode == "legacy" {
        "2025-11-25"
    } else {
        "2026-07-28"
    };
    assert_eq!(version, newest);
    assert_eq!(seen["server"], "universal-executor");
    let names: Vec<&String> = seen["tools"].as_object().unwrap().keys().collect();
    assert_eq!(names, NAMES);
    assert_eq!(seen["tools"]["helper"]["required"], json!(["message"]));
    assert_eq!(seen["outputs"]["count"]["required"], json!(["call"]));

    assert_eq!(
        seen["count"]["structured"],
        json!({"call": 1, "input": {"a": 1}})
    );
    assert_eq!(seen["count"]["is_error"], false);
    let helped = json!({"is_error": false, "structured": null, "text": "Order 7 is shipped."});
    assert_eq!(seen["helper"], helped);
    let failed = json!({"is_error": true, "structured": null, "text": "out of paper"});
    assert_eq!(seen["fail"], failed);
    for (invalid, problem) in [("invalid_tool", "integer"), ("invalid_agent", "message")] {
        let invalid = &seen[invalid];
        assert_eq!(invalid["is_error"], true, "{invalid}");
        let text = invalid["text"].as_str().unwrap();
        assert!(text.contains(problem), "{text}");
    }
    assert_eq!(seen["unknown"]["code"], -32602);
    let message = seen["unknown"]["message"].as_str().unwrap();
    assert!(message.contains("missing"), "{message}");
}

#[tokio::test]
async fn the_python_sdk_lists_and_calls_tools() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    for mode in MODES {
        check_calls(mode, &programs.python_stdio(mode, "calls").await);
        let served = Served::start().await;
        check_calls(mode, &programs.python(&served.url, mode, "calls").await);
        served.running.stop().await.unwrap();
    }
    programs.end().await;
}

fn check_progress(seen: &Value) {
    let reports = seen["reports"].as_array().unwrap();
    assert_eq!(reports.len(), 1, "{seen}");
    assert!(
        reports[0].to_string().contains("half of the work is done"),
        "{seen}"
    );
    assert_eq!(seen["result"]["text"], "finished");
}

#[tokio::test]
async fn the_python_sdk_receives_the_progress_of_a_running_tool() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    for mode in MODES {
        check_progress(&programs.python_stdio(mode, "progress").await);
        let served = Served::start().await;
        check_progress(&programs.python(&served.url, mode, "progress").await);
        served.running.stop().await.unwrap();
    }
    programs.end().await;
}

fn check_cancel(seen: &Value) {
    assert_eq!(seen["is_cancelled"], true);
    assert_eq!(seen["dropped"]["text"], "1");
    assert_eq!(seen["later"]["structured"]["call"], 1);
}

#[tokio::test]
async fn the_python_sdk_cancels_a_running_call_with_its_run() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    for mode in MODES {
        check_cancel(&programs.python_stdio(mode, "cancel").await);
        let served = Served::start().await;
        check_cancel(&programs.python(&served.url, mode, "cancel").await);
        let states = served.states().await;
        assert_eq!(
            states,
            [RunState::Failed, RunState::Done, RunState::Done],
            "{mode}"
        );
        served.running.stop().await.unwrap();
    }
    programs.end().await;
}

#[tokio::test]
async fn a_call_ends_when_the_python_sdk_disconnects() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    for mode in MODES {
        programs.python_stdio(mode, "disconnect").await;
        let served = Served::start().await;
        programs.python(&served.url, mode, "disconnect").await;
        super::until("the run was not cancelled", async || {
            (served.states().await == [RunState::Failed]).then_some(())
        })
        .await;
        served.running.stop().await.unwrap();
    }
    programs.end().await;
}

fn check_payment(mode: &str, scenario: &str, seen: &Value) {
    let asked = seen["asked"].as_array().unwrap();
    assert_eq!(asked.len(), 1, "{mode} {scenario}: {seen}");
    let message = asked[0]["message"].as_str().unwrap();
    assert!(
        message.contains("pay") && message.contains('5'),
        "{message}"
    );
    assert_eq!(
        asked[0]["schema"]["properties"]["answer"]["type"],
        "boolean"
    );
    assert_eq!(seen["result"]["is_error"], false, "{seen}");
    let text = seen["result"]["text"].as_str().unwrap();
    assert_eq!(
        text.contains("paid"),
        scenario == "accept",
        "{mode} {scenario}: {text}"
    );
}

#[tokio::test]
async fn the_python_sdk_answers_the_approval_of_an_agents_tool() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    for mode in MODES {
        let seen = programs.python_stdio(mode, "accept").await;
        check_payment(mode, "accept", &seen);
        for scenario in ["accept", "refuse", "decline"] {
            let served = Served::start().await;
            let seen = programs.python(&served.url, mode, scenario).await;
            check_payment(mode, scenario, &seen);
            assert_eq!(served.states().await, [RunState::Done], "{mode} {scenario}");
            served.running.stop().await.unwrap();
        }
    }
    programs.end().await;
}

#[tokio::test]
async fn repeated_calls_of_the_python_sdk_with_one_key_have_one_run() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    for mode in MODES {
        let served = Served::start().await;
        let seen = programs.python(&served.url, mode, "repeat").await;
        let results = seen["results"].as_array().unwrap();
        let calls: Vec<&Value> = results
            .iter()
            .map(|result| &result["structured"]["call"])
            .collect();
        assert_eq!(calls, [1, 1, 2], "{mode}");
        assert_eq!(seen["conflict"]["is_error"], true, "{seen}");
        assert_eq!(served.shared.calls.load(Ordering::Relaxed), 2);
        served.running.stop().await.unwrap();
    }
    programs.end().await;
}
