//! The parts of this process that a program can see, and the parts of a program that logs and errors show.

use crate::child::is_alone;
use crate::cli::engine::Engine;
use crate::cli::playing;
use crate::support::log::Log;
use serde_json::json;
use std::error::Error;
use std::sync::{Arc, Mutex};
use universal_executor::agent::CliProvider;

const KEY: &str = "sk-planted-4711";
/// A secret that is short, and that does not occur by chance in a log of numbers.
const SHORT_KEY: &str = "pin#Q9";

#[tokio::test]
async fn no_log_and_no_error_has_the_token_or_a_value_that_the_program_was_given() {
    // Only one subscriber can receive the lines of all threads, and other tests also log.
    if !is_alone(concat!(
        module_path!(),
        "::no_log_and_no_error_has_the_token_or_a_value_that_the_program_was_given"
    )) {
        return;
    }
    let log = Log::capture_process();
    let token = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&token);
    let mut engine = Engine::with_client(move |door| {
        *told.lock().unwrap() = door.token;
        async {}
    });
    let program = playing(&json!([
        ["open", null],
        ["complain", format!("a planted line with {KEY}\n")],
        ["complain", format!("a short key {SHORT_KEY}\n")],
        ["complain_token", null],
        ["exit", 1],
    ]))
    .env("PROVIDER_KEY", KEY)
    .env("PIN", SHORT_KEY);

    let error = engine.run(&program).await.unwrap_err();

    let mut printed = format!("{error:?} {program:?}");
    let mut link: Option<&dyn Error> = Some(&*error);
    while let Some(current) = link {
        printed += &format!("\n{current} {current:#?}");
        link = current.source();
    }
    assert!(printed.contains("bad token [secret]"), "{printed}");
    let logged = log.text();
    assert!(logged.contains("a planted line with [secret]"), "{logged}");
    assert!(logged.contains("a short key [secret]"), "{logged}");
    let token = token.lock().unwrap();
    assert_eq!(token.len(), 64);
    for text in [printed, logged] {
        assert!(
            !text.contains(&**token) && !text.contains(KEY) && !text.contains(SHORT_KEY),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_program_has_the_environment_it_was_given_and_no_more() {
    let program = CliProvider::new("env")
        .env("GIVEN", "yes")
        .env("UX_TOKEN", "mine");

    let text = Engine::echo().run(&program).await.unwrap();

    let mut names: Vec<_> = text
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    names.retain(|name| !["PATH", "HOME", "LANG"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["GIVEN", "UX_CALLBACK_URL", "UX_RUN", "UX_TOKEN"]);
    assert!(text.contains("UX_RUN=run-1"));
    assert!(!text.contains("UX_TOKEN=mine"));
    let more = std::env::vars_os().filter(|(name, _)| !names.iter().any(|one| name == one));
    assert!(
        more.count() > 3,
        "this process must have variables that the program does not receive"
    );
}

#[tokio::test]
async fn the_token_is_not_an_argument_and_the_program_starts_in_its_folder() {
    let folder = std::env::temp_dir().canonicalize().unwrap();
    let said = r#"pwd; case "$(tr '\0' ' ' < /proc/$$/cmdline)" in *"$UX_TOKEN"*) echo told;; *) echo clean;; esac"#;
    let program = CliProvider::new("sh")
        .arg("-c")
        .arg(said)
        .current_dir(&folder);

    let text = Engine::echo().run(&program).await.unwrap();

    assert_eq!(text, format!("{}\nclean", folder.display()));
}
