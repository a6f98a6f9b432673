//! A program that plays a script instead of an agent. It uses only the standard library and JSON, so no HTTP client corrects the
//! requests that it sends.

use crate::cli::client::Door;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

/// The environment variable with the script: a list of steps, each with a name and an argument.
pub(crate) const SCRIPT: &str = "FAKE_AGENT";

/// Plays a script if [`SCRIPT`] is set. Otherwise it does nothing: it is only a test so that other tests can start this executable with it.
#[test]
fn plays_its_script() {
    let Ok(script) = std::env::var(SCRIPT) else {
        return;
    };
    let script: Vec<(String, Value)> = serde_json::from_str(&script).unwrap();
    let mut played = Played {
        door: Door {
            url: std::env::var("UX_CALLBACK_URL").unwrap(),
            token: std::env::var("UX_TOKEN").unwrap(),
            pid: std::process::id(),
        },
        output: File::options().write(true).open("/dev/fd/3").unwrap(),
        task: Value::Null,
        heard: Vec::new(),
    };
    for (step, with) in script {
        played.step(&step, &with);
    }
    drop(played);
    std::process::exit(0);
}

struct Played {
    door: Door,
    output: File,
    task: Value,
    /// The answers to the program's calls, in the order of the calls within each step.
    heard: Vec<Value>,
}

impl Played {
    fn step(&mut self, step: &str, with: &Value) {
        match step {
            "read" => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).unwrap();
                self.task = serde_json::from_str(&text).unwrap();
            }
            // Sends several lists of calls in parallel. The calls of each list are sequential.
            "call" => self.call(with.as_array().unwrap()),
            // Sends the address and token to the test, so that the test can act as a client.
            "open" => {
                let door = serde_json::to_value(&self.door).unwrap();
                self.call(&[json!([["door", "open", door]])]);
            }
            "say" => self.say(with.as_str().unwrap().as_bytes()),
            "say_bytes" => self.say(&serde_json::from_value::<Vec<u8>>(with.clone()).unwrap()),
            "say_task" => self.say(self.task.clone().to_string().as_bytes()),
            "say_heard" => self.say(json!(self.heard).to_string().as_bytes()),
            "say_tools" => {
                let tools = self.door.request("GET", "/v1/tools", "");
                self.say(self.sent(&tools).to_string().as_bytes());
            }
            "flood" => {
                let chunk = [b'x'; 1 << 10];
                for _ in 0..with.as_u64().unwrap() / 1024 {
                    self.say(&chunk);
                }
            }
            // Saves the received answers for tests that no longer read the program's output.
            "note_heard" => {
                let notes = File::options()
                    .append(true)
                    .create(true)
                    .open(with.as_str().unwrap());
                let noted = format!("{}\n", json!(self.heard));
                notes.unwrap().write_all(noted.as_bytes()).unwrap();
            }
            // Steps that run only at the first start, or only until the program receives a message.
            "unless_resumed" => self.unless("resumed", with),
            "unless_told" => self.unless("message", with),
            // Sends the call and does not wait for its answer.
            "call_and_forget" => std::mem::forget(self.begun(&self.call_of(with)).unwrap()),
            "complain" => complain(with.as_str().unwrap()),
            "complain_token" => complain(&format!("bad token {}\n", self.door.token)),
            "exit" => std::process::exit(i32::try_from(with.as_i64().unwrap()).unwrap()),
            "die" => std::process::abort(),
            "hang" => loop {
                thread::park();
            },
            other => panic!("no such step: {other}"),
        }
    }

    fn unless(&mut self, field: &str, steps: &Value) {
        if self.task[field].is_null() {
            let steps: Vec<(String, Value)> = serde_json::from_value(steps.clone()).unwrap();
            for (step, with) in steps {
                self.step(&step, &with);
            }
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        // The reader may have closed the pipe at its size limit. The program must continue then.
        self.output.write_all(bytes).ok();
    }

    fn call(&mut self, lists: &[Value]) {
        let itself = &*self;
        let heard: Vec<Value> = thread::scope(|scope| {
            let lists: Vec<_> = lists
                .iter()
                .map(|list| scope.spawn(|| itself.call_each(list.as_array().unwrap())))
                .collect();
            let heard = lists.into_iter().flat_map(|list| list.join().unwrap());
            heard.collect()
        });
        self.heard.extend(heard);
    }

    fn call_each(&self, calls: &[Value]) -> Vec<Value> {
        let calls = calls.iter().map(|call| self.sent(&self.call_of(call)));
        calls.collect()
    }

    fn call_of(&self, call: &Value) -> Vec<u8> {
        let sent = json!({"id": call[0], "tool": call[1], "arguments": call[2]});
        self.door.call(&sent.to_string())
    }

    fn begun(&self, request: &[u8]) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.door.address())?;
        stream.write_all(request)?;
        Ok(stream)
    }

    /// Sends a request. Returns the body of the answer, or `null` without an answer, as after the end of the session.
    fn sent(&self, request: &[u8]) -> Value {
        let answered = || {
            let mut answer = String::new();
            self.begun(request).ok()?.read_to_string(&mut answer).ok()?;
            let (_, body) = answer.split_once("\r\n\r\n")?;
            serde_json::from_str(body).ok()
        };
        answered().unwrap_or_default()
    }
}

/// Writes to standard error directly, because the test harness captures `eprint!`.
fn complain(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}
