//! Agents that are programs: this executable plays them, as [`program`] tells it to, and a small loop stands for the agent
//! that has the machine and the tools.

mod calls;
pub(crate) mod client;
mod ends;
mod engine;
pub(crate) mod program;
mod refused;
mod resumed;
mod secrets;

use crate::child::within_crate;
use serde_json::Value;
use universal_executor::agent::{ChatMessage, CliError, CliProvider, ProviderTask, RawOutput};

/// A program that plays a script. Its standard output is handed over at another number, since this executable itself
/// writes to the first one.
pub(crate) fn playing(script: &Value) -> CliProvider {
    let itself = std::env::current_exe().unwrap();
    let test = within_crate(concat!(module_path!(), "::program::plays_its_script"));
    let played = r#"exec "$0" "$1" --exact --nocapture 3>&1 >/dev/null"#;
    CliProvider::new("sh")
        .args(["-c", played])
        .arg(itself)
        .arg(test)
        .env(program::SCRIPT, script.to_string())
}

fn task() -> ProviderTask {
    ProviderTask::new("run-1", vec![ChatMessage::user("Begin.")])
}

#[test]
fn what_is_public_may_cross_threads() {
    fn shared<T: Send + Sync + 'static>() {}

    shared::<(CliProvider, CliError, RawOutput)>();
}
