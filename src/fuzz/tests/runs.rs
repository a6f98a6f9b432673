//! Breadcrumbs in a store, and runs of an executor that they trigger.

use super::block_on;
use crate::fuzz::vocabulary::{BREADCRUMB, SUBSCRIPTIONS};
use crate::fuzz::{Shape, Tape, structured};
use crate::model::is_reserved_tag;
use crate::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, ExecutionContext, Format,
    MemoryStore, NewBreadcrumb, Outcome, Profile, Response, Subscriptions, UniversalExecutor,
};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum length of an error message in bytes.
const MAX_MESSAGE: usize = 2_000;

#[derive(Debug)]
struct Input {
    subscriptions: String,
    trigger: String,
    stored: Vec<String>,
    response: String,
}

fn input(tape: &mut Tape) -> Input {
    const TRIGGER: Shape = Shape::Raw(&[
        r#"[{"role":"trigger","schema_name":"*"}]"#,
        r#"[{"role":"trigger","schema_name":"*"},{"role":"context","schema_name":"page.v1","key":"page","fetch":"latest"},{"role":"context","schema_name":"note.v1","key":"notes","fetch":{"method":"recent","limit":5}}]"#,
    ]);
    let subscriptions = Shape::Either(&[&TRIGGER, &SUBSCRIPTIONS]).text(tape);
    let trigger = BREADCRUMB.text(tape);
    let stored = (0..tape.below(3)).map(|_| BREADCRUMB.text(tape)).collect();
    let response = BREADCRUMB.text(tape);
    Input {
        subscriptions,
        trigger,
        stored,
        response,
    }
}

/// An executor that renders its context for a model, and responds with a given breadcrumb.
struct Responder {
    store: MemoryStore,
    subscriptions: Subscriptions,
    profile: Profile,
    response: NewBreadcrumb,
    executions: AtomicUsize,
}

#[async_trait]
impl UniversalExecutor for Responder {
    fn id(&self) -> &str {
        "responder"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(&self, _: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
        self.executions.fetch_add(1, Ordering::Relaxed);
        let shown = context.for_model().await?;
        for format in [Format::Markdown, Format::Xml] {
            assert!(shown.render(format).len() < 8 << 20);
        }
        drop(context.to_value());
        Ok(Value::Null)
    }

    async fn respond(&self, _: &Breadcrumb, _: Value) -> Result<Response, BoxError> {
        Ok(Response::create(self.response.clone()))
    }
}

fn read(text: &str) -> Option<NewBreadcrumb> {
    let mut new: NewBreadcrumb = serde_json::from_str(text).ok()?;
    new.ttl = None;
    Some(new)
}

fn run(input: &Input) -> bool {
    let Ok(subscriptions) = Subscriptions::parse(&input.subscriptions) else {
        return false;
    };
    let (Some(trigger), Some(response)) = (read(&input.trigger), read(&input.response)) else {
        return false;
    };
    block_on(async {
        let store = MemoryStore::default();
        for new in input.stored.iter().filter_map(|text| read(text)) {
            if let Err(error) = store.create(new).await {
                assert!(error.to_string().len() < MAX_MESSAGE, "{error}");
            }
        }
        let trigger = match store.create(trigger).await {
            Ok(trigger) => trigger,
            Err(error) => {
                assert!(error.to_string().len() < MAX_MESSAGE, "{error}");
                return false;
            }
        };
        let responder = Responder {
            store: store.clone(),
            subscriptions,
            profile: Profile::default(),
            response,
            executions: AtomicUsize::default(),
        };
        is_answered_once(&responder, &trigger).await
    })
}

async fn is_answered_once(responder: &Responder, trigger: &Breadcrumb) -> bool {
    let event = Event::created(trigger);
    let text = serde_json::to_string(&event).unwrap();
    let event: Event = serde_json::from_str(&text).unwrap();

    let first = responder.process_event(&event).await;
    let executions = responder.executions.load(Ordering::Relaxed);
    let again = responder.process_event(&event).await;

    if let Err(error) = &first {
        assert!(error.to_string().len() < MAX_MESSAGE, "{error}");
    }
    match first {
        Ok(Outcome::Responded { written }) => {
            assert!(
                matches!(again, Ok(Outcome::AlreadyDone { .. })),
                "{again:?}"
            );
            assert_eq!(
                (executions, responder.executions.load(Ordering::Relaxed)),
                (1, 1)
            );
            assert_eq!(written.len(), 1);
            let response = responder.store.get(written[0]).await.unwrap();
            is_stamped(&response);
            true
        }
        Ok(Outcome::Failed { written, .. }) => {
            assert!(
                matches!(again, Ok(Outcome::AlreadyDone { .. })),
                "{again:?}"
            );
            assert!(!written.is_empty());
            false
        }
        Ok(_) | Err(_) => false,
    }
}

/// Asserts that the author of a response is the executor, even if the response names another author.
fn is_stamped(response: &Breadcrumb) {
    assert_eq!(response.author(), Some("responder"), "{response:?}");
    if response.context.is_object() {
        assert_eq!(
            response.context["creator"]["id"], "responder",
            "{response:?}"
        );
    }
    assert!(
        !response.tags.iter().any(|tag| is_reserved_tag(tag)),
        "{response:?}"
    );
}

#[test]
fn any_trigger_that_a_store_accepts_is_answered_once() {
    structured(input, run);
}
