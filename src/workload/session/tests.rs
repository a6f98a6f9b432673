use super::*;
use crate::agent::ScriptedModel;
use crate::store::MemoryStore;
use crate::workflow::Workflow;
use crate::workload::WorkloadEventKind;

fn session() -> Session {
    SessionStore::new(Arc::new(MemoryStore::default())).session("s-1")
}

fn said(text: &str) -> LogEntry {
    let messages = vec![Message::user(text), Message::assistant(text)];
    LogEntry::Said { messages }
}

async fn add(session: &Session, turn: &str) {
    let log = session.load().await.unwrap();
    session.append(&log, turn, said(turn)).await.unwrap();
}

fn texts(log: &Log) -> Vec<String> {
    log.messages()
        .into_iter()
        .map(|message| message.text)
        .collect()
}

fn policy(compaction: &serde_json::Value) -> crate::workflow::Compaction {
    let definition = json!({"policies": {"compaction": compaction}});
    Workflow::from_json(&definition)
        .unwrap()
        .policies
        .compaction
        .unwrap()
}

#[tokio::test]
async fn two_workers_cannot_interleave_a_session() {
    let session = session();
    add(&session, "one").await;
    let seen_by_both = session.load().await.unwrap();

    session
        .append(&seen_by_both, "two", said("two"))
        .await
        .unwrap();
    let late = session.append(&seen_by_both, "three", said("three")).await;

    assert!(
        matches!(late, Err(SessionError::Conflict { .. })),
        "{late:?}"
    );
    assert_eq!(
        texts(&session.load().await.unwrap()),
        ["one", "one", "two", "two"]
    );
}

#[tokio::test]
async fn of_two_workers_that_begin_a_session_one_comes_too_late() {
    let session = session();
    let empty = session.load().await.unwrap();

    let both = [
        session.append(&empty, "a", said("a")),
        session.append(&empty, "b", said("b")),
    ];
    let both = futures::future::join_all(both).await;

    assert_eq!(
        both.iter().filter(|done| done.is_ok()).count(),
        1,
        "{both:?}"
    );
    assert_eq!(session.load().await.unwrap().entries().len(), 1);
}

#[tokio::test]
async fn a_turn_that_is_told_again_is_in_the_log_once() {
    let session = session();
    add(&session, "one").await;
    add(&session, "one").await;

    assert_eq!(texts(&session.load().await.unwrap()), ["one", "one"]);
}

#[tokio::test]
async fn agents_at_different_steps_have_different_conversations() {
    let session = session();
    add(&session, "root").await;
    add(&session.child(&StepPath::new("main/0#1")), "first").await;

    let second = session
        .child(&StepPath::new("main/0#2"))
        .load()
        .await
        .unwrap();
    let first = session
        .child(&StepPath::new("main/0#1"))
        .load()
        .await
        .unwrap();

    assert_eq!(texts(&second), [""; 0]);
    assert_eq!(texts(&first), ["first", "first"]);
    assert_eq!(texts(&session.load().await.unwrap()), ["root", "root"]);
}

#[tokio::test]
async fn a_long_conversation_is_cut_between_turns_and_that_is_kept() {
    let session = session();
    for turn in ["one", "two", "three", "four"] {
        add(&session, turn).await;
    }
    let policy = policy(&json!({"method": "truncate", "at_tokens": 4, "keep": 5}));

    let log = session.load().await.unwrap();
    let (shorter, event) = compacted(&session, log, &policy, None).await.unwrap();
    let (again, nothing) = compacted(&session, shorter.clone(), &policy, None)
        .await
        .unwrap();

    let expected = WorkloadEventKind::Compacted {
        left_out: 2,
        summed_up: false,
    };
    assert_eq!(event, Some(expected));
    assert_eq!(texts(&shorter), ["three", "three", "four", "four"]);
    assert_eq!(texts(&session.load().await.unwrap()), texts(&again));
    assert_eq!(nothing, None);
}

#[tokio::test]
async fn a_summary_stands_for_what_is_not_shown_any_more() {
    let session = session();
    for turn in ["one", "two"] {
        add(&session, turn).await;
    }
    let model = Arc::new(ScriptedModel::new(["They counted."]));
    let policy = policy(&json!({"method": "summarise", "at_tokens": 2, "keep": 2}));

    let log = session.load().await.unwrap();
    compacted(&session, log, &policy, Some(Arc::clone(&model) as _))
        .await
        .unwrap();

    let shown = texts(&session.load().await.unwrap());
    assert_eq!(
        shown,
        [
            "What was said before, in short: They counted.",
            "two",
            "two"
        ]
    );
    assert!(model.requests()[0].messages[1].text.contains("user: one"));
}

#[tokio::test]
async fn a_model_that_does_not_sum_up_leaves_the_conversation_as_it_is() {
    let session = session();
    for turn in ["one", "two"] {
        add(&session, turn).await;
    }
    let silent = Arc::new(ScriptedModel::new([""; 0]));
    let policy = policy(&json!({"method": "summarise", "at_tokens": 2, "keep": 2}));

    let log = session.load().await.unwrap();
    let (_, event) = compacted(&session, log, &policy, Some(silent))
        .await
        .unwrap();

    assert_eq!(event, None);
    assert_eq!(session.load().await.unwrap().messages().len(), 4);
}

#[tokio::test]
async fn a_turn_that_is_too_large_keeps_its_question_and_its_answer() {
    let session = session();
    let long = "x".repeat(600 << 10);
    let messages = vec![
        Message::user("Why?"),
        Message::tool_result("1", long.as_str()),
        Message::assistant(long),
    ];

    let empty = session.load().await.unwrap();
    session
        .append(&empty, "one", LogEntry::Said { messages })
        .await
        .unwrap();

    let shown = texts(&session.load().await.unwrap());
    assert_eq!(shown.len(), 2);
    assert_eq!(shown[0], "Why?");
    assert!(shown[1].len() < 130 << 10);
}
