//! Programs that start again, with a message or in another attempt.

use crate::cli::engine::Engine;
use crate::cli::{playing, task};
use serde_json::{Value, json};
use universal_executor::agent::guardrail::{Decision, Guardrails, on_input};
use universal_executor::agent::{ChatMessage, Provider as _, ProviderEvent, ProviderSession};
use universal_executor::machine::{Answer, Effect, Input, Machine, Signal};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn a_message_restarts_a_program_with_its_last_answer() {
    let program = playing(&json!([["read", null], ["say_task", null]]));
    let mut session = program.start(task()).await.unwrap();
    let mut engine = Engine::echo();
    let first = engine.drive(&mut *session).await.unwrap();

    session.tell("answer in JSON".into()).await.unwrap();
    let second = parsed(&engine.drive(&mut *session).await.unwrap());

    assert_eq!(parsed(&first)["resumed"], Value::Null);
    assert_eq!(second["message"], "answer in JSON");
    assert_eq!(second["resumed"]["runs"], 1);
    assert_eq!(second["resumed"]["last"], first);
    assert_eq!(second["messages"], parsed(&first)["messages"]);
}

#[tokio::test]
async fn a_program_receives_only_messages_that_pass_the_input_guardrails() {
    let program = playing(&json!([["read", null], ["say_task", null]]));
    let mut task = task();
    task.guardrails = Guardrails::default().with(on_input("no-keys", |messages| {
        if messages
            .iter()
            .any(|message| message.text().contains("forbidden"))
        {
            return Decision::deny("it is forbidden");
        }
        let texts = messages
            .iter()
            .map(|message| message.text().replace("sk-1", "[key]"));
        Decision::Replace(texts.map(ChatMessage::user).collect())
    }));
    task.messages = vec![ChatMessage::user("The key is sk-1.")];
    let mut session = program.start(task.clone()).await.unwrap();
    let mut engine = Engine::echo();

    engine.drive(&mut *session).await.unwrap();
    session.tell("Not sk-1 again.".into()).await.unwrap();
    let text = engine.drive(&mut *session).await.unwrap();
    let denied = session.tell("It is forbidden.".into()).await;
    task.messages = vec![ChatMessage::user("It is forbidden.")];
    let refused = program.start(task).await;

    assert_eq!(parsed(&text)["messages"][0]["text"], "The key is [key].");
    assert_eq!(parsed(&text)["message"], "Not [key] again.");
    assert!(!text.contains("sk-1"), "{text}");
    assert!(denied.is_err() && refused.is_err());
}

#[tokio::test]
async fn a_running_program_cannot_receive_a_message() {
    let program = playing(&json!([["hang", null]]));
    let mut session = program.start(task()).await.unwrap();

    let told = session.tell("hurry".into()).await.unwrap_err();
    let answered = session.answer(Answer::success(json!(1))).await.unwrap_err();

    assert!(
        told.to_string().contains("while the program runs"),
        "{told}"
    );
    assert!(
        answered.to_string().contains("no model requests"),
        "{answered}"
    );
}

#[tokio::test]
async fn a_resumed_program_receives_the_saved_message_and_its_last_answer() {
    let program = playing(&json!([["read", null], ["say_task", null]]));
    let mut session = program.start(task()).await.unwrap();
    let mut engine = Engine::echo();
    let first = engine.drive(&mut *session).await.unwrap();
    session.tell("answer in JSON".into()).await.unwrap();
    let saved = session.save().unwrap();
    drop(session);

    let mut session = program.resume(task(), saved).await.unwrap();
    let second = parsed(&engine.drive(&mut *session).await.unwrap());

    assert_eq!(second["message"], "answer in JSON");
    assert_eq!(second["resumed"]["runs"], 2);
    assert_eq!(second["resumed"]["last"], first);
    let saved: Value = session.save().unwrap().parse().unwrap();
    assert_eq!(
        (&saved["runs"], &saved["message"]),
        (&json!(3), &Value::Null)
    );
}

#[tokio::test]
async fn a_program_that_is_resumed_may_send_its_calls_again() {
    let program = playing(&json!([
        ["call", [[["1", "echo", {"n": 1}], ["2", "echo", {"n": 2}]]]],
        ["say_heard", null],
    ]));
    let mut engine = Engine::echo();
    let mut session = program.start(task()).await.unwrap();
    // The worker is lost while the first call has its result and the second call is in flight.
    receive(&mut engine, &mut *session, "1").await;
    let outcome = Answer::success(json!({"n": 1, "of": "the first attempt"})).into();
    let finished = Signal::ToolCallFinished {
        call_id: "1".into(),
        outcome,
    };
    let effects = engine.machine.step(Input::new(&"run-1".into(), finished));
    let [Effect::Deliver(results)] = &effects[..] else {
        panic!("{effects:?}");
    };
    session.deliver(results.clone()).await.unwrap();
    receive(&mut engine, &mut *session, "2").await;
    let saved = session.save().unwrap();
    let machine = serde_json::to_string(&engine.machine).unwrap();
    drop(session);

    engine.machine = serde_json::from_str::<Machine>(&machine).unwrap();
    let mut session = program.resume(task(), saved).await.unwrap();
    let text = engine.drive(&mut *session).await.unwrap();

    assert_eq!(
        parsed(&text),
        json!([
            {"status": "success", "output": {"n": 1, "of": "the first attempt"}},
            {"status": "success", "output": {"n": 2}},
        ])
    );
    assert_eq!(engine.executed(), ["2"]);
}

/// Receives the next call without executing it.
async fn receive(engine: &mut Engine, session: &mut dyn ProviderSession, id: &str) {
    let ProviderEvent::Calls { mut calls, .. } = session.next().await.unwrap() else {
        panic!("the program must call a tool");
    };
    let received = Signal::ToolCallReceived {
        call: calls.remove(0),
        more: false,
    };
    let effects = engine.machine.step(Input::new(&"run-1".into(), received));
    assert!(matches!(&effects[..], [Effect::Execute(call)] if call.id.as_str() == id));
}

#[tokio::test]
async fn a_state_of_another_provider_is_refused() {
    let program = playing(&json!([["hang", null]]));

    let refused = program.resume(task(), json!({"turns": 3}).into()).await;

    let error = refused.err().unwrap();
    assert_eq!(
        error.to_string(),
        "cannot read the saved state of the session with the agent's program; another version or provider may have saved it"
    );
}
