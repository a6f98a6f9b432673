//! What a store commits reaches a runtime, and what is in the way of that.

use crate::{url, uuid};
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use universal_executor::source::{NatsError, NatsRelay, NatsSource, StartAt};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt as _, Event, EventSource as _,
    ExecutionContext, MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, Subscriptions,
    UniversalExecutor, async_trait,
};

struct Answers(MemoryStore, Subscriptions);

#[async_trait]
impl UniversalExecutor for Answers {
    fn id(&self) -> &str {
        "answers"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.1
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.0
    }

    async fn execute(&self, trigger: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"to": trigger.context.get("n")}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(
            NewBreadcrumb::new("answer.v1").context(output),
        ))
    }
}

async fn source(tenant: &str) -> NatsSource {
    let builder = NatsSource::builder(url(), tenant).group("workers");
    builder.connect().await.unwrap()
}

async fn question(store: &MemoryStore, n: u64) -> Event {
    let question = NewBreadcrumb::new("question.v1").context(json!({"n": n}));
    Event::created(&store.create(question).await.unwrap())
}

#[tokio::test]
async fn what_a_store_commits_is_answered_through_a_relay_once() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let subscriptions = Subscriptions::new([Subscription::trigger("question.v1")]).unwrap();
    let answers = Answers(store.clone(), subscriptions);
    let relays = [0, 1].map(|_| {
        let (tenant, events) = (tenant.clone(), store.events());
        tokio::spawn(async move {
            let relay = NatsRelay::connect(url(), tenant).await.unwrap();
            relay.run(events).await
        })
    });
    for n in 0..20 {
        question(&store, n).await;
    }
    let runtime = Runtime::builder(source(&tenant).await)
        .start_at(StartAt::Beginning)
        .executor(answers)
        .build()
        .unwrap();
    let mut events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    let all_answered = async {
        let mut answered = 0;
        while answered < 20 {
            let event = events.next().await.unwrap().unwrap().event;
            answered += usize::from(event.schema_name.as_deref() == Some("answer.v1"));
        }
    };

    let report = runtime.run_until(all_answered).await.unwrap();

    assert_eq!(store.recent("answer.v1", 100).await.unwrap().len(), 20);
    assert_eq!(report.responded, 20);
    relays.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_event_that_is_published_twice_is_stored_once() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let relay = NatsRelay::connect(url(), &*tenant).await.unwrap();
    let (first, second) = (question(&store, 1).await, question(&store, 2).await);

    for event in [&first, &first, &second] {
        relay.publish(event).await.unwrap();
    }

    let mut events = source(&tenant)
        .await
        .subscribe(StartAt::Beginning)
        .await
        .unwrap();
    for wanted in [first, second] {
        let found = events.next().await.unwrap().unwrap();
        assert_eq!(found.event.breadcrumb_id, wanted.breadcrumb_id);
        found.ack().await.unwrap();
    }
}

#[tokio::test]
async fn a_message_that_is_no_event_holds_up_none_behind_it() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let relay = NatsRelay::connect(url(), &*tenant).await.unwrap();
    let client = async_nats::connect(url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let subject = format!("breadcrumbs.{tenant}.question.v1");
    let garbage = jetstream
        .publish(subject, "{\"kind\": 7".into())
        .await
        .unwrap();
    garbage.await.unwrap();
    let event = question(&store, 1).await;
    relay.publish(&event).await.unwrap();

    let mut events = source(&tenant)
        .await
        .subscribe(StartAt::Beginning)
        .await
        .unwrap();
    let found = tokio::time::timeout(Duration::from_secs(10), events.next()).await;

    let found = found.unwrap().unwrap().unwrap();
    assert_eq!(found.event.breadcrumb_id, event.breadcrumb_id);
}

#[tokio::test]
async fn a_stream_or_consumer_for_something_else_is_refused() {
    let client = async_nats::connect(url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let (other, tenant) = (format!("OTHER-{}", uuid()), uuid());
    let config = async_nats::jetstream::stream::Config {
        name: other.clone(),
        subjects: vec![format!("{other}.>")],
        ..Default::default()
    };
    jetstream.create_stream(config).await.unwrap();
    NatsRelay::connect(url(), &*tenant).await.unwrap();
    let stream = jetstream.get_stream("BREADCRUMBS").await.unwrap();
    let gives_up = async_nats::jetstream::consumer::pull::Config {
        durable_name: Some(format!("workers-{tenant}")),
        filter_subject: format!("breadcrumbs.{tenant}.>"),
        max_deliver: 3,
        ..Default::default()
    };
    stream.create_consumer(gives_up).await.unwrap();

    let streams = NatsSource::builder(url(), &*tenant)
        .stream(&*other)
        .connect()
        .await;
    let consumers = source(&tenant).await.subscribe(StartAt::Now).await;

    assert!(matches!(
        streams.unwrap_err(),
        NatsError::OtherStream { .. }
    ));
    let Err(error) = consumers else {
        panic!("a consumer that gives up is used")
    };
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("gives up after 3"), "{cause}");
}

#[tokio::test]
async fn nothing_that_is_shown_has_the_password() {
    let with_password = "nats://ann:sk-secret@127.0.0.1:1";
    let builder = NatsSource::builder(with_password, "t");
    let shown = format!("{builder:?}");

    let error = builder.connect().await.unwrap_err();

    let cause = std::error::Error::source(&error).map(ToString::to_string);
    for text in [
        shown,
        format!("{error:?} {error}"),
        cause.unwrap_or_default(),
    ] {
        assert!(!text.contains("sk-secret"), "{text}");
    }
}
