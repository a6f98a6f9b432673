//! Ways in which a program can end, and the cleanup of its process and port.

use crate::child::has_ended;
use crate::cli::client::{Door, heard, until};
use crate::cli::engine::{Engine, deliver, next_call};
use crate::cli::{playing, task};
use serde_json::json;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use universal_executor::agent::{
    ChatMessage, CliError, CliProvider, Provider as _, ProviderEvent, ProviderSession, ProviderTask,
};
use universal_executor::{BoxError, class_of, error::Retry};

/// Returns the error of a program that starts and does not answer.
async fn fails(program: &CliProvider) -> BoxError {
    Engine::echo().run(program).await.unwrap_err()
}

async fn door(session: &mut dyn ProviderSession) -> Door {
    Door::of(&next_call(session).await)
}

#[tokio::test]
async fn a_nonzero_exit_code_is_an_error_whose_message_omits_the_last_words() {
    let program = playing(&json!([
        ["say", "no answer"],
        ["complain", "one\nno \u{1b}[31mcredit\n"],
        ["exit", 3]
    ]));

    let error = fails(&program).await;

    assert_eq!(
        error.to_string(),
        "the agent's program ended with exit status: 3; its standard error is logged at the DEBUG level"
    );
    let error = error.downcast_ref::<CliError>().unwrap();
    assert_eq!(error.retry(), Retry::After(Duration::ZERO));
    let CliError::Ended { last_words, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(last_words, "no \u{1b}[31mcredit");
}

#[tokio::test]
async fn a_program_that_was_started_the_wrong_way_is_not_tried_again() {
    let program = playing(&json!([["exit", 2]]));

    let error = fails(&program).await;

    assert_eq!(class_of(error.as_ref()).retry(), Retry::Never);
    assert!(error.to_string().contains("exit status: 2"), "{error}");
}

#[tokio::test]
async fn a_program_that_dies_in_the_middle_of_a_call_is_an_error() {
    let program = playing(&json!([["open", null], ["die", null]]));

    let error = fails(&program).await;

    assert!(error.to_string().contains("signal: 6"), "{error}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let error = fails(&CliProvider::new("/nowhere/agent")).await;

    assert_eq!(
        error.to_string(),
        "cannot start the agent's program \"/nowhere/agent\"; see the cause"
    );
    assert!(error.source().unwrap().to_string().contains("No such file"));
    assert_eq!(class_of(error.as_ref()).retry(), Retry::Never);
    assert_eq!(class_of(error.as_ref()).code(), "cli");
}

#[tokio::test]
async fn a_program_need_not_read_its_task() {
    let program = playing(&json!([["say", "I know"]]));
    let large = ProviderTask::new("run-1", vec![ChatMessage::user("x".repeat(1 << 20))]);
    let mut session = program.start(large).await.unwrap();

    let text = Engine::echo().drive(&mut *session).await.unwrap();

    assert_eq!(text, "I know");
}

#[tokio::test]
async fn a_program_that_writes_without_end_is_stopped_at_the_limit() {
    let program = playing(&json!([
        ["open", null],
        ["flood", 10 << 20],
        ["hang", null]
    ]));
    let mut session = program.start(task()).await.unwrap();
    let door = door(&mut *session).await;

    deliver(&mut *session, "door").await;
    let error = session.next().await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "the answer of the agent's program exceeds the maximum of 1048576 bytes; raise max_output_bytes"
    );
    assert!(door.is_gone());
    door.is_closed().await;
}

#[tokio::test]
async fn an_answer_may_be_as_long_as_the_limit_and_no_longer() {
    let program = playing(&json!([["flood", 2048]]));

    let text = Engine::echo()
        .run(&program.clone().max_output_bytes(2048))
        .await;
    let error = fails(&program.max_output_bytes(2047)).await;

    assert_eq!(text.unwrap().len(), 2048);
    assert!(
        error.to_string().contains("the maximum of 2047 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn output_after_the_end_of_a_program_counts_against_the_limit() {
    // A child of the program writes this output, after the program itself has ended.
    let late = r#"(while kill -0 "$$" 2> /dev/null; do :; done; echo too long) &"#;
    let program = CliProvider::new("sh")
        .args(["-c", late])
        .max_output_bytes(3);

    let error = fails(&program).await;

    assert!(
        error.to_string().contains("the maximum of 3 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn an_answer_that_is_not_utf_8_is_an_error_that_retains_the_bytes() {
    let program = playing(&json!([["say_bytes", [104, 105, 255, 10]]]));

    let error = fails(&program).await;

    let Some(CliError::NotText { output, source }) = error.downcast_ref() else {
        panic!("{error:?}");
    };
    assert_eq!(output.as_bytes(), [104, 105, 255, 10]);
    assert_eq!(source.valid_up_to(), 2);
}

#[tokio::test]
async fn a_running_child_process_does_not_delay_the_answer_of_a_program_and_is_killed() {
    let program = CliProvider::new("sh").args(["-c", "sleep 600 & echo $!"]);

    let pid = Engine::echo().run(&program).await.unwrap();

    has_ended(&pid).await;
}

#[tokio::test]
async fn a_program_that_never_ends_is_killed_when_it_is_cancelled() {
    let program = playing(&json!([["open", null], ["hang", null]])).grace(Duration::ZERO);
    let mut session = program.start(task()).await.unwrap();
    let door = door(&mut *session).await;
    assert!(!door.is_gone());

    session.cancel().await;

    assert!(door.is_gone());
    door.is_closed().await;
    assert!(session.next().await.is_err());
}

#[tokio::test]
async fn a_cancelled_program_can_end_by_itself_within_the_grace_period() {
    let program = playing(&json!([
        ["open", null],
        ["call", [[["2", "wait", {}]]]],
        ["exit", 0]
    ]))
    .grace(Duration::from_secs(3600));
    let mut session = program.start(task()).await.unwrap();
    let door = door(&mut *session).await;
    let mut other = door.connect().await;
    let call = json!({"id": "3", "tool": "wait", "arguments": {}}).to_string();
    other.write_all(&door.call(&call)).await.unwrap();
    let said = session.next().await.unwrap();
    assert!(matches!(said, ProviderEvent::Calls { calls, .. } if calls[0].id.as_str() == "3"));

    // A call that the session has received and a call that the program makes later are both answered.
    let (_, (status, answer)) = tokio::join!(session.cancel(), heard(other));

    assert_eq!((status, &answer["code"]), (200, &json!("cancelled")));
    assert!(door.is_gone());
}

#[tokio::test]
async fn a_session_that_is_dropped_leaves_no_process_and_no_port() {
    let program = playing(&json!([["open", null], ["hang", null]]));
    let mut session = program.start(task()).await.unwrap();
    let door = door(&mut *session).await;

    drop(session);

    door.is_closed().await;
    // The process is killed immediately. Its entry disappears once the tokio runtime has reaped it.
    until(async || door.is_gone()).await;
}

#[tokio::test]
async fn after_an_answer_nothing_is_left_either() {
    let program = playing(&json!([["open", null], ["say", "done"]]));
    let mut session = program.start(task()).await.unwrap();
    let door = door(&mut *session).await;

    deliver(&mut *session, "door").await;
    let said = session.next().await.unwrap();

    assert!(matches!(said, ProviderEvent::Finished { text, .. } if text == "done"));
    assert!(door.is_gone());
    door.is_closed().await;
}
