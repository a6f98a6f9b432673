//! Agents whose provider is a program. This test executable plays the program, as [`program`] describes, and a small loop takes the place
//! of the agent with its machine and its tools.

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

/// Returns a program that plays a script. Its standard output becomes file descriptor 3, because this test executable writes to its own
/// standard output.
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
fn the_public_types_are_send_and_sync() {
    fn shared<T: Send + Sync + 'static>() {}

    shared::<(CliProvider, CliError, RawOutput)>();
}
