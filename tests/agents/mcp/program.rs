//! An MCP server for tests. This test executable plays it in a child process, over standard input and file descriptor 3, or a test
//! calls [`Program::answers`] behind an HTTP server.

use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead as _, Write as _};
use std::process::{self, Command, Stdio};

/// The environment variable with the script of the server.
pub(crate) const SCRIPT: &str = "UNIVERSAL_EXECUTOR_MCP_SCRIPT";

/// The state of the server. The script has `tools`, the first list of tools, and `changed`, the list after a call of `change`.
pub(crate) struct Program {
    script: Value,
    is_changed: bool,
    cancelled: u64,
    pages: u64,
}

/// A reaction of the server to one message.
#[derive(Debug)]
pub(crate) enum Action {
    Send(Value),
    /// Sends bytes without end.
    Endless,
    Exit,
}

impl Program {
    pub(crate) fn new(script: Value) -> Self {
        Self {
            script,
            is_changed: false,
            cancelled: 0,
            pages: 0,
        }
    }

    pub(crate) fn answers(&mut self, message: &Value) -> Vec<Action> {
        let result = |result: Value| {
            vec![Action::Send(
                json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
            )]
        };
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => result(json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "test", "version": "1"},
            })),
            "tools/list" if self.script["endless_pages"] == true => {
                self.pages += 1;
                let tool = json!({"name": format!("t{}", self.pages), "inputSchema": {}});
                result(json!({"tools": [tool], "nextCursor": self.pages.to_string()}))
            }
            "tools/list" => {
                let list = if self.is_changed { "changed" } else { "tools" };
                result(json!({"tools": self.script[list]}))
            }
            "tools/call" => self.call(message),
            "notifications/cancelled" => {
                self.cancelled += 1;
                Vec::new()
            }
            method if method.starts_with("notifications/") => Vec::new(),
            _ => vec![Action::Send(json!({
                "jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"},
            }))],
        }
    }

    fn call(&mut self, message: &Value) -> Vec<Action> {
        let arguments = &message["params"]["arguments"];
        let answer = match message["params"]["name"].as_str().unwrap_or_default() {
            "echo" => arguments.to_string(),
            "hang" => return Vec::new(),
            "die" => return vec![Action::Exit],
            // Ends at the first call with this file, and answers the later ones.
            "die_once" => match File::create_new(arguments["file"].as_str().unwrap()) {
                Ok(_) => return vec![Action::Exit],
                Err(_) => "alive".to_owned(),
            },
            // Reports its process ID through a named pipe at the first call with this file, and does not answer. Answers the later ones.
            "hang_once" => match File::create_new(arguments["file"].as_str().unwrap()) {
                Ok(_) => {
                    let pipe = format!("{}.pipe", arguments["file"].as_str().unwrap());
                    std::fs::write(pipe, process::id().to_string()).unwrap();
                    return Vec::new();
                }
                Err(_) => "alive".to_owned(),
            },
            "pid" => process::id().to_string(),
            "cancelled" => self.cancelled.to_string(),
            "environment" => {
                let names: Vec<_> = std::env::vars().map(|(name, _)| name).collect();
                names.join(" ")
            }
            "start_child" => start_child().to_string(),
            "change" => {
                self.is_changed = !self.is_changed;
                let changed = notification("notifications/tools/list_changed", &json!({}));
                return vec![changed, text(message, "changed")];
            }
            "huge" => "x".repeat(usize::try_from(arguments["bytes"].as_u64().unwrap()).unwrap()),
            "endless" => return vec![Action::Endless],
            "progress" => return progress(message),
            "unknown_messages" => return unknown_messages(message),
            "fail" => {
                let texts = [json!({"type": "text", "text": "out of paper"})];
                return vec![result(message, &json!({"isError": true, "content": texts}))];
            }
            _ => {
                let error = json!({"code": -32602, "message": "Unknown tool, token=abcdef"});
                return vec![Action::Send(
                    json!({"jsonrpc": "2.0", "id": message["id"], "error": error}),
                )];
            }
        };
        vec![text(message, &answer)]
    }
}

fn result(message: &Value, result: &Value) -> Action {
    Action::Send(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

fn text(message: &Value, text: &str) -> Action {
    result(
        message,
        &json!({"content": [{"type": "text", "text": text}]}),
    )
}

fn notification(method: &str, params: &Value) -> Action {
    Action::Send(json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// Starts a child process that runs for ten minutes. Returns its process ID.
fn start_child() -> u32 {
    let mut child = Command::new("sleep");
    child.arg("600").stdin(Stdio::null()).stdout(Stdio::null());
    child.stderr(Stdio::null()).spawn().unwrap().id()
}

fn progress(message: &Value) -> Vec<Action> {
    let token = &message["params"]["_meta"]["progressToken"];
    let reports = message["params"]["arguments"]["reports"].as_u64().unwrap();
    let report = |number| {
        let text = "x".repeat(5_000);
        let params =
            json!({"progressToken": token, "progress": number, "total": reports, "message": text});
        notification("notifications/progress", &params)
    };
    let answer = text(message, "done");
    (1..=reports).map(report).chain([answer]).collect()
}

/// Sends messages that the protocol does not have, or that answer no request, and then the answer.
fn unknown_messages(message: &Value) -> Vec<Action> {
    let sampling = json!({"messages": [], "maxTokens": 1});
    vec![
        notification("notifications/fireworks", &json!({"colour": "red"})),
        Action::Send(
            json!({"jsonrpc": "2.0", "id": 9_001, "method": "sampling/createMessage", "params": sampling}),
        ),
        Action::Send(json!({"jsonrpc": "2.0", "id": 9_002, "method": "dance", "params": {}})),
        Action::Send(json!({"jsonrpc": "2.0", "id": 4_444, "result": {"content": []}})),
        Action::Send(json!(["not", "a", "message"])),
        Action::Send(json!({"no": "version"})),
        text(message, "still here"),
    ]
}

/// Plays the server, if the environment has a script.
#[test]
fn plays_its_script() {
    let Ok(script) = std::env::var(SCRIPT) else {
        let mut program = Program::new(json!({"tools": []}));
        let answers = program.answers(&json!({"id": 1, "method": "tools/list"}));
        assert_eq!(answers.len(), 1);
        return;
    };
    eprintln!("the server starts");
    let mut output = File::options().write(true).open("/dev/fd/3").unwrap();
    let mut program = Program::new(serde_json::from_str(&script).unwrap());
    for line in io::stdin().lock().lines() {
        for action in program.answers(&serde_json::from_str(&line.unwrap()).unwrap()) {
            match action {
                Action::Send(message) => writeln!(output, "{message}").unwrap(),
                Action::Endless => while output.write_all(&[b'x'; 64 << 10]).is_ok() {},
                Action::Exit => process::exit(7),
            }
        }
    }
    process::exit(0);
}
