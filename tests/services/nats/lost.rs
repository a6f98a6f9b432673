//! Loss of servers, streams and consumers: it delays questions, but loses none.

use crate::nats::harness::{Relayed, answered, answers, ask, eventually, runtime};
use crate::nats::server::{Server, uuid};
use futures::StreamExt as _;
use std::time::Duration;
use universal_executor::source::{
    Deliveries, NatsError, NatsRelay, NatsServer, NatsSource, StartAt,
};
use universal_executor::{Delivery, EventSource as _, MemoryStore, Runtime};

/// Creates a worker that sweeps its store often.
async fn worker(server: &Server, tenant: &str, store: &MemoryStore) -> Runtime {
    let source = NatsSource::builder(server.url(), tenant).group("workers");
    let source = source.connect().await.unwrap();
    let builder = runtime(source, store).reconcile_every(Duration::from_millis(500));
    builder.build().unwrap()
}

async fn answered_once(store: &MemoryStore, questions: usize) {
    let answers = answers(store).await;
    assert_eq!(answers.len(), questions);
    assert!(answers.values().all(|count| *count == 1), "{answers:?}");
}

/// Returns the next event. Skips errors of an unavailable source.
async fn next(events: &mut Deliveries) -> Delivery {
    let next = async {
        loop {
            if let Ok(delivery) = events.next().await.unwrap() {
                return delivery;
            }
        }
    };
    let next = tokio::time::timeout(Duration::from_secs(40), next).await;
    next.unwrap()
}

#[tokio::test]
async fn a_server_that_is_killed_and_started_again_costs_no_question() {
    let mut server = Server::started().await;
    let (store, tenant) = (MemoryStore::default(), uuid());
    let _relay = Relayed::begin(server.url(), &tenant, &store).await;
    let worker = worker(&server, &tenant, &store).await;
    let harm = async {
        for n in 0..10 {
            ask(&store, n).await;
        }
        answered(&store, 10).await;
        server.kill();
        for n in 10..20 {
            ask(&store, n).await;
        }
        server.start().await;
        for n in 20..30 {
            ask(&store, n).await;
        }
        answered(&store, 30).await;
    };

    worker.run_until(harm).await.unwrap();

    answered_once(&store, 30).await;
}

#[tokio::test]
async fn a_server_that_forgot_everything_costs_no_question() {
    let mut server = Server::started().await;
    let (store, tenant) = (MemoryStore::default(), uuid());
    let relay = Relayed::begin(server.url(), &tenant, &store).await;
    let worker = worker(&server, &tenant, &store).await;
    let harm = async {
        for n in 0..10 {
            ask(&store, n).await;
        }
        answered(&store, 10).await;
        drop(relay);
        server.kill();
        server.wipe();
        for n in 10..20 {
            ask(&store, n).await;
        }
        server.start().await;
        answered(&store, 20).await;
    };

    worker.run_until(harm).await.unwrap();

    answered_once(&store, 20).await;
}

#[tokio::test]
async fn every_question_is_found_in_the_store_if_no_event_arrives() {
    let server = Server::started().await;
    let (store, tenant) = (MemoryStore::default(), uuid());
    let worker = worker(&server, &tenant, &store).await;
    let asked = async {
        for n in 0..20 {
            ask(&store, n).await;
        }
        answered(&store, 20).await;
    };

    let report = worker.run_until(asked).await.unwrap();

    answered_once(&store, 20).await;
    assert_eq!(
        (report.events, report.found_by_sweep),
        (0, 20),
        "{report:?}"
    );
}

#[tokio::test]
async fn a_stream_or_consumer_that_is_deleted_is_made_again_and_delivers_all_that_is_new() {
    let server = Server::started().await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    for (group, deletes_stream) in [
        (Some("workers"), false),
        (None, false),
        (Some("workers"), true),
        (None, true),
    ] {
        let (store, tenant) = (MemoryStore::default(), uuid());
        let relay = NatsRelay::connect(server.url(), &*tenant).await.unwrap();
        let builder = NatsSource::builder(server.url(), &*tenant);
        let builder = match group {
            Some(group) => builder.group(group),
            None => builder,
        };
        let source = builder.connect().await.unwrap();
        let mut events = source.subscribe(StartAt::Now).await.unwrap();
        relay.publish(&ask(&store, 1).await).await.unwrap();
        next(&mut events).await.ack().await.unwrap();

        if deletes_stream {
            jetstream.delete_stream("BREADCRUMBS").await.unwrap();
        } else {
            let stream = jetstream.get_stream("BREADCRUMBS").await.unwrap();
            let names: Vec<String> = stream.consumer_names().map(Result::unwrap).collect().await;
            for name in names {
                stream.delete_consumer(&name).await.unwrap();
            }
        }
        // Published before the subscription can notice the deletion. The new consumer must not start after this event.
        let relayed = NatsRelay::connect(server.url(), &*tenant).await.unwrap();
        let event = ask(&store, 2).await;
        relayed.publish(&event).await.unwrap();

        let found = next(&mut events).await;
        assert_eq!(
            found.event.breadcrumb_id, event.breadcrumb_id,
            "{group:?} {deletes_stream}"
        );
    }
}

#[tokio::test]
async fn a_stream_is_created_with_the_maximum_size_that_was_set() {
    let server = Server::started().await;
    let limited = NatsServer::new(server.url()).max_bytes(10_000_000);
    NatsRelay::connect(limited, "t").await.unwrap();
    let client = async_nats::connect(server.url()).await.unwrap();

    let stream = async_nats::jetstream::new(client)
        .get_stream("BREADCRUMBS")
        .await
        .unwrap();

    let config = &stream.cached_info().config;
    assert_eq!(config.max_bytes, 10_000_000, "{config:?}");
    assert_eq!(
        config.discard,
        async_nats::jetstream::stream::DiscardPolicy::Old
    );
}

#[tokio::test]
async fn a_relay_makes_a_stream_again_that_was_deleted() {
    let server = Server::started().await;
    let (store, tenant) = (MemoryStore::default(), uuid());
    let _relay = Relayed::begin(server.url(), &tenant, &store).await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let messages = async || match jetstream.get_stream("BREADCRUMBS").await {
        Ok(stream) => stream.cached_info().state.messages,
        Err(_) => 0,
    };
    ask(&store, 1).await;
    eventually(async || messages().await == 1).await;

    jetstream.delete_stream("BREADCRUMBS").await.unwrap();
    ask(&store, 2).await;

    // No other client can create the stream.
    eventually(async || messages().await == 1).await;
}

#[tokio::test]
async fn only_a_source_with_wait_for_waits_for_an_unreachable_server() {
    let mut server = Server::with(&["-js"]);
    let patient = NatsServer::new(server.url()).wait_for(Duration::from_secs(30));

    let at_once = NatsSource::builder(server.url(), "t").connect().await;
    let waits = NatsSource::builder(patient, "t").connect();
    let (connected, ()) = futures::join!(waits, server.start());

    assert!(matches!(at_once, Err(NatsError::Unreachable(_))));
    connected.unwrap();
}

#[tokio::test]
async fn waiting_for_a_server_has_an_end() {
    let server = Server::with(&["-js"]);
    let patient = NatsServer::new(server.url()).wait_for(Duration::from_millis(300));

    let connected = NatsSource::builder(patient, "t").connect().await;

    assert!(matches!(connected, Err(NatsError::Unreachable(_))));
}
