//! Logs and spans: they name the executor, the run and its outcome, and never contain a payload.

use crate::support::log::Log;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, ExecutionContext,
    MemoryStore, NewBreadcrumb, Response, Runtime, Selector, Subscription, Subscriptions,
    UniversalExecutor, async_trait, permanent,
};

const SECRET: &str = "sk-planted-secret";

/// An executor that answers or fails. A failure's error contains the secret.
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

/// Processes one message that contains the secret. Returns the log lines at a level, and the message's ID.
async fn logs_of(level: tracing::Level, fails: bool) -> Result<(String, String), BoxError> {
    let (log, _guard) = Log::capture(level, FmtSpan::CLOSE);
    let store = MemoryStore::default();
    let subscriptions = Subscriptions::new([
        Subscription::trigger("message.v1"),
        Subscription::context("note.v1").key("note"),
        // The memory store has no vectors, so this source fails.
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
    Ok((log.text(), message.id.to_string()))
}

/// An executor that answers one schema with another one. Its first calls fail.
struct Relay {
    id: &'static str,
    writes: &'static str,
    store: MemoryStore,
    subscriptions: Subscriptions,
    failures: AtomicUsize,
}

impl Relay {
    fn new(
        id: &'static str,
        [trigger, writes]: [&'static str; 2],
        store: &MemoryStore,
        failures: usize,
    ) -> Result<Self, BoxError> {
        Ok(Self {
            id,
            writes,
            store: store.clone(),
            subscriptions: Subscriptions::new([Subscription::trigger(trigger)])?,
            failures: AtomicUsize::new(failures),
        })
    }
}

#[async_trait]
impl UniversalExecutor for Relay {
    fn id(&self) -> &str {
        self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        let left = self.failures.load(Ordering::SeqCst);
        if left > 0 {
            self.failures.store(left - 1, Ordering::SeqCst);
            return Err("reset".into());
        }
        Ok(json!({}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(
            NewBreadcrumb::new(self.writes).context(output),
        ))
    }
}

/// Runs a chain of two executors, the second of which fails once. Returns the ID of the first message and the fields of the run spans:
/// executor, attempt, hops and correlation ID, in the order in which the spans ended.
async fn spans_of_a_chain() -> Result<(String, Vec<[String; 4]>), BoxError> {
    let (log, _guard) = Log::capture(tracing::Level::INFO, FmtSpan::CLOSE);
    let store = MemoryStore::default();
    let runtime = Runtime::builder(store.events())
        .executor(Relay::new("first", ["message.v1", "told.v1"], &store, 0)?)
        .executor(Relay::new("second", ["told.v1", "end.v1"], &store, 1)?)
        .build()?;
    let end = runtime.wait_for(Selector::schema("end.v1"), Duration::from_secs(600));
    let mut ended = None;
    let scenario = async {
        let message = store.create(NewBreadcrumb::new("message.v1")).await;
        ended = Some((message, end.await));
    };
    runtime.run_until(scenario).await?;
    let (message, end) = ended.ok_or("it did not end")?;
    end?;
    let logs = log.text();
    let spans = logs
        .lines()
        .filter(|line| line.contains("event{") && line.contains("close"));
    let spans = spans.map(|line| {
        ["executor", "attempt", "hops", "correlation_id"]
            .map(|name| field(line, name).unwrap_or_default())
    });
    Ok((message?.id.to_string(), spans.collect()))
}

/// Returns the value of a field in a log line.
fn field(line: &str, name: &str) -> Option<String> {
    let (_, said) = line.split_once(&format!("{name}="))?;
    let said = said.split([' ', '}']).next()?;
    Some(said.trim_matches('"').to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_run_carries_its_attempt_and_how_many_hops_led_to_it() {
    let (_, spans) = spans_of_a_chain().await.unwrap();

    let said: Vec<[&str; 3]> = spans
        .iter()
        .map(|[executor, attempt, hops, _]| [&**executor, &**attempt, &**hops])
        .collect();
    let expected = [
        ["first", "1", "0"],
        ["second", "1", "1"],
        ["second", "2", "1"],
    ];
    assert_eq!(said, expected);
}

#[tokio::test(start_paused = true)]
async fn the_spans_of_a_chain_carry_the_id_of_its_first_message_as_correlation_id() {
    let (message, spans) = spans_of_a_chain().await.unwrap();

    assert_eq!(spans.len(), 3);
    assert!(
        spans
            .iter()
            .all(|[_, _, _, correlation]| *correlation == message),
        "{spans:?}"
    );
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
async fn no_payload_and_no_key_in_an_error_reaches_the_logs_above_trace() {
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
        .find(|line| line.contains("fetch of a context source failed"))
        .unwrap_or_else(|| panic!("the expected warning is missing in {logs:?}"));
    for part in ["WARN", "executor=\"teller\"", "near", "unsupported"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[tokio::test]
async fn withheld_items_are_logged_with_their_source_and_without_their_content()
-> Result<(), BoxError> {
    let (log, _guard) = Log::capture(tracing::Level::WARN, FmtSpan::CLOSE);
    let note = NewBreadcrumb::new("note.v1").context(json!({"note": SECRET}));
    let note = note.llm_hints(json!({ SECRET: 1 }));
    let context = ExecutionContext::for_trigger(NewBreadcrumb::new("message.v1"));
    let context = context.with_breadcrumbs("notes", [note.clone()]);

    context.for_model().await?;
    let refused = ExecutionContext::for_trigger(note).for_model().await;

    assert!(refused.is_err());
    let text = log.text();
    assert!(
        text.contains("items of a source are withheld from the model, because their llm_hints cannot be applied source=\"notes\" items=1"),
        "{text}"
    );
    assert!(
        text.contains("the trigger or a required source is withheld from the model, because its llm_hints cannot be applied; the run fails source=\"trigger\""),
        "{text}"
    );
    assert!(!text.contains(SECRET), "{text}");
    Ok(())
}
