//! What the logs say: who, what and how it ended, and never a payload.

use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, ExecutionContext,
    MemoryStore, NewBreadcrumb, Response, Subscription, Subscriptions, UniversalExecutor,
    async_trait, permanent,
};

const SECRET: &str = "sk-planted-secret";

/// Answers, or fails and says the secret while it does.
struct Teller {
    store: MemoryStore,
    subscriptions: Subscriptions,
    fails: bool,
}

#[async_trait]
impl UniversalExecutor for Teller {
    fn id(&self) -> &str {
        "teller"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, trigger: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        if self.fails {
            return Err(permanent(format!("the key {SECRET} was refused")));
        }
        Ok((*trigger.context).clone())
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(
            NewBreadcrumb::new("told.v1").context(output),
        ))
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .map_err(|_| io::Error::other("poisoned"))?
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Processes one message that carries the secret; returns the logs at a level and the message's id.
async fn logs_of(level: tracing::Level, fails: bool) -> Result<(String, String), BoxError> {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let store = MemoryStore::default();
    let subscriptions = Subscriptions::new([
        Subscription::trigger("message.v1"),
        Subscription::context("note.v1").key("note"),
        // The memory store has no vectors.
        Subscription::context("note.v1").key("near").vector(3),
    ])?;
    let teller = Teller {
        store: store.clone(),
        subscriptions,
        fails,
    };
    store
        .create(NewBreadcrumb::new("note.v1").context(json!({"note": SECRET})))
        .await?;
    let message = store
        .create(NewBreadcrumb::new("message.v1").context(json!({"message": SECRET})))
        .await?;
    teller.process_event(&Event::created(&message)).await?;
    let bytes = log.0.lock().map_err(|_| "poisoned")?.clone();
    Ok((String::from_utf8(bytes)?, message.id.to_string()))
}

#[tokio::test]
async fn there_is_a_span_for_event_fetch_execute_and_commit_with_executor_trigger_and_outcome() {
    let (logs, trigger) = logs_of(tracing::Level::DEBUG, false).await.unwrap();

    for span in ["event{", "fetch{", "execute{", "commit{"] {
        let line = logs
            .lines()
            .find(|line| line.contains(span))
            .unwrap_or_else(|| panic!("no {span} in {logs}"));
        assert!(
            line.contains("executor=\"teller\"") && line.contains(&trigger),
            "{line}"
        );
    }
    assert!(logs.contains("outcome=\"responded\""), "{logs}");
}

#[tokio::test]
async fn no_payload_and_no_error_text_reaches_the_logs_above_trace() {
    for fails in [false, true] {
        let (logs, trigger) = logs_of(tracing::Level::DEBUG, fails).await.unwrap();

        assert!(logs.contains(&trigger), "{logs}");
        assert!(!logs.contains(SECRET), "{logs}");
    }
}

#[tokio::test]
async fn a_source_that_cannot_be_fetched_is_a_warning_that_names_it() {
    let (logs, _) = logs_of(tracing::Level::WARN, false).await.unwrap();

    let line = logs
        .lines()
        .find(|line| line.contains("a source could not be fetched"))
        .unwrap_or_else(|| panic!("no warning in {logs:?}"));
    for part in ["WARN", "executor=\"teller\"", "near", "unsupported"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}
