//! Agents that are programs: this executable plays them, as [`program`] tells it to, and a small loop stands for the agent
//! that has the machine and the tools.

// What is left of a process is looked for in /proc.
#![cfg(target_os = "linux")]
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests"
)]

mod calls;
mod client;
mod ends;
mod engine;
mod program;
mod refused;
mod resumed;
mod secrets;

use serde_json::Value;
use universal_executor::agent::{CliError, CliProvider, Message, RawOutput, Task};

/// A program that plays a script. Its standard output is handed over at another number, since this executable itself
/// writes to the first one.
fn playing(script: &Value) -> CliProvider {
    let itself = std::env::current_exe().unwrap();
    let played = r#"exec "$0" program::plays_its_script --exact --nocapture 3>&1 >/dev/null"#;
    CliProvider::new("sh")
        .args(["-c", played])
        .arg(itself)
        .env(program::SCRIPT, script.to_string())
}

fn task() -> Task {
    Task::new("run-1", vec![Message::user("Begin.")])
}

#[test]
fn what_is_public_may_cross_threads() {
    fn shared<T: Send + Sync + 'static>() {}

    shared::<(CliProvider, CliError, RawOutput)>();
}
