use super::*;
use crate::agent::compaction::{CostCallback, summary_message};
use crate::agent::guardrail::Guardrails;
use crate::agent::{ChatMessage, ChatResponse, ScriptedModel, Usage};
use crate::store::{Capabilities, Committed, MemoryStore, RunLedger, Scored, StoreId, VectorQuery};
use crate::workflow::Workflow;
use crate::workload::WorkloadEventKind;
use async_trait::async_trait;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

fn session() -> Conversation {
    SessionStore::new(Arc::new(MemoryStore::default())).session("s-1")
}

fn turn_entry(text: &str) -> LogEntry {
    let messages = vec![ChatMessage::user(text), ChatMessage::assistant(text)];
    LogEntry::Said { messages }
}

async fn add(session: &Conversation, turn: &str) {
    let log = session.load().await.unwrap();
    session.append(&log, turn, turn_entry(turn)).await.unwrap();
}

fn texts(log: &Log) -> Vec<String> {
    log.messages()
        .into_iter()
        .map(|message| message.text().into_owned())
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

/// Returns a callback that ignores the cost of summaries.
fn ignore_usage() -> CostCallback {
    Arc::new(drop)
}

/// Compacts a log with a policy, and ignores the cost of the summary.
async fn shortened(
    session: &Conversation,
    log: Log,
    policy: &crate::workflow::Compaction,
    model: Option<Arc<dyn crate::agent::ChatModel>>,
) -> (Log, Option<WorkloadEventKind>) {
    let (guardrails, report_usage) = (Guardrails::default(), ignore_usage());
    let shorter = compact_log(session, log, policy, model, &guardrails, &report_usage);
    shorter.await.unwrap()
}

#[tokio::test]
async fn a_long_conversation_is_truncated_between_turns_and_the_result_is_saved() {
    let session = session();
    for turn in ["one", "two", "three", "four"] {
        add(&session, turn).await;
    }
    let policy = policy(&json!({"method": "truncate", "at_tokens": 4, "keep": 5}));

    let log = session.load().await.unwrap();
    let (shorter, event) = shortened(&session, log, &policy, None).await;
    let (again, nothing) = shortened(&session, shorter.clone(), &policy, None).await;

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
async fn a_summary_replaces_the_omitted_turns() {
    let session = session();
    for turn in ["one", "two"] {
        add(&session, turn).await;
    }
    let model = Arc::new(ScriptedModel::new(["They counted."]));
    let policy = policy(&json!({"method": "summarise", "at_tokens": 2, "keep": 2}));

    let log = session.load().await.unwrap();
    shortened(&session, log, &policy, Some(Arc::clone(&model) as _)).await;

    let shown = texts(&session.load().await.unwrap());
    assert_eq!(
        shown,
        [&*summary_message("They counted.").text(), "two", "two"]
    );
    let one = "{\"role\":\"user\",\"text\":\"one\"}";
    assert!(model.requests()[0].messages[1].text().contains(one));
}

#[tokio::test]
async fn the_usage_of_a_summary_is_reported() {
    let session = session();
    for turn in ["one", "two"] {
        add(&session, turn).await;
    }
    let summary = ChatResponse::new("They counted.").with_usage(Usage::new(30, 4));
    let model = Arc::new(ScriptedModel::script([Ok(summary)]));
    let policy = policy(&json!({"method": "summarise", "at_tokens": 2, "keep": 2}));
    let reported: Arc<Mutex<Vec<Usage>>> = Arc::default();
    let reports = Arc::clone(&reported);
    let report_usage: CostCallback = Arc::new(move |usage| reports.lock().unwrap().push(usage));

    let log = session.load().await.unwrap();
    compact_log(
        &session,
        log,
        &policy,
        Some(model),
        &Guardrails::default(),
        &report_usage,
    )
    .await
    .unwrap();

    assert_eq!(*reported.lock().unwrap(), [Usage::new(30, 4)]);
}

#[tokio::test]
async fn a_turn_over_the_limit_by_itself_does_not_request_a_summary() {
    let session = session();
    for turn in ["one", &"long ".repeat(400), "two"] {
        add(&session, turn).await;
    }
    let model = Arc::new(ScriptedModel::new(["They counted."]));
    let policy = policy(&json!({"method": "summarise", "at_tokens": 100, "keep": 4}));

    let log = session.load().await.unwrap();
    let (_, event) = shortened(&session, log, &policy, Some(Arc::clone(&model) as _)).await;

    assert_eq!((event, model.requests().len()), (None, 0));
}

#[tokio::test]
async fn a_concurrent_append_prevents_compaction_without_an_event() {
    let session = session();
    for turn in ["one", "two"] {
        add(&session, turn).await;
    }
    let policy = policy(&json!({"method": "truncate", "at_tokens": 2, "keep": 2}));

    let log = session.load().await.unwrap();
    add(&session, "three").await;
    let (same, event) = shortened(&session, log, &policy, None).await;

    assert_eq!(event, None);
    assert_eq!(texts(&same), ["one", "one", "two", "two"]);
    assert_eq!(session.load().await.unwrap().entries().len(), 3);
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
    let (_, event) = shortened(&session, log, &policy, Some(silent)).await;

    assert_eq!(event, None);
    assert_eq!(session.load().await.unwrap().messages().len(), 4);
}

#[tokio::test]
async fn an_oversized_turn_retains_its_question_and_a_truncated_answer() {
    let session = session();
    let long = "x".repeat(600 << 10);
    let messages = vec![
        ChatMessage::user("Why?"),
        ChatMessage::tool_result("1", long.as_str()),
        ChatMessage::assistant(long),
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

#[tokio::test]
async fn a_turn_that_is_too_large_only_as_json_is_saved() {
    // Each of these characters takes six bytes in JSON.
    for size in [80 << 10, 200 << 10] {
        let session = session();
        let text = "\u{1}".repeat(size);
        let messages = vec![
            ChatMessage::user(text.as_str()),
            ChatMessage::assistant(text),
        ];

        let empty = session.load().await.unwrap();
        let entry = LogEntry::Said { messages };
        session.append(&empty, "one", entry).await.unwrap();

        let shown = texts(&session.load().await.unwrap());
        assert_eq!(shown.len(), 2);
        assert!(shown.iter().all(|text| text.len() > 20 << 10));
    }
}

/// A store that deletes a session right before the next commit, if `deletes` is set.
#[derive(Clone, Debug, Default)]
struct Racing {
    inner: MemoryStore,
    deletes: Arc<AtomicBool>,
}

#[async_trait]
impl BreadcrumbStore for Racing {
    fn tenant(&self) -> &str {
        self.inner.tenant()
    }

    fn identity(&self) -> StoreId {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.inner.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.inner.search(query).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.inner.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        if self.deletes.swap(false, Ordering::SeqCst) {
            let sessions = SessionStore::new(Arc::new(self.inner.clone()));
            sessions.delete("s-1").await.unwrap();
        }
        self.inner.commit(commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        self.inner.ledger()
    }
}

#[tokio::test]
async fn an_entry_appended_during_a_session_deletion_is_removed() {
    let store = Racing::default();
    let session = SessionStore::new(Arc::new(store.clone())).session("s-1");
    let (bound, _) = session.bind(Log::default()).await.unwrap();
    let agent = bound.child(&StepPath::new("main/0"));
    let log = agent.load().await.unwrap();

    store.deletes.store(true, Ordering::SeqCst);
    let added = agent.append(&log, "one", turn_entry("one")).await;

    assert!(
        matches!(added, Err(SessionError::Deleted { .. })),
        "{added:?}"
    );
    for schema in [HEAD, ENTRY] {
        let remaining = Query::new(Selector::schema(schema));
        assert_eq!(store.search(&remaining).await.unwrap(), []);
    }
}
