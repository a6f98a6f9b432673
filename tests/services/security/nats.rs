//! Forged messages in a stream: any client with permission to publish can add them.

use crate::nats::harness::{Answers, Relayed, answered, answers, ask, eventually};
use crate::nats::server::{Server, url, uuid};
use async_nats::jetstream::{self, consumer::pull};
use futures::StreamExt as _;
use serde_json::json;
use std::time::Duration;
use universal_executor::source::{NatsError, NatsRelay, NatsServer, NatsSource, StartAt};
use universal_executor::{
    BreadcrumbId, BreadcrumbStoreExt as _, Event, EventSource as _, MemoryStore, NewBreadcrumb,
    Runtime, Subscription,
};

async fn jetstream() -> jetstream::Context {
    jetstream::new(async_nats::connect(url()).await.unwrap())
}

async fn source(tenant: &str) -> NatsSource {
    let builder = NatsSource::builder(url(), tenant).group("workers");
    let builder = builder.ack_wait(Duration::from_millis(500));
    builder.connect().await.unwrap()
}

#[tokio::test]
async fn an_invalid_message_blocks_nothing_and_is_not_redelivered() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let relay = NatsRelay::connect(url(), &*tenant).await.unwrap();
    let jetstream = jetstream().await;
    let event = ask(&store, 1).await;
    let whole = serde_json::to_string(&event).unwrap();
    let oversized = format!("{}{whole}", " ".repeat(400 << 10));
    let deep = format!("{{\"tags\":{}", "[".repeat(100_000));
    for garbage in [
        "",
        "{\"kind\": 7",
        "[]",
        &whole[..20],
        &oversized,
        &deep,
        "\u{0}\u{1}",
    ] {
        let subject = format!("breadcrumbs.{tenant}.question.v1");
        let sent = jetstream.publish(subject, garbage.to_owned().into()).await;
        sent.unwrap().await.unwrap();
    }
    relay.publish(&event).await.unwrap();
    let source = source(&tenant).await;

    let mut events = source.subscribe(StartAt::Beginning).await.unwrap();
    let found = tokio::time::timeout(Duration::from_secs(10), events.next()).await;

    let found = found.unwrap().unwrap().unwrap();
    assert_eq!(found.event.breadcrumb_id, event.breadcrumb_id);
    found.ack().await.unwrap();
    eventually(async || source.behind().await.unwrap() == Some(0)).await;
    let again = tokio::time::timeout(Duration::from_secs(2), events.next()).await;
    assert!(again.is_err(), "{again:?}");
}

#[tokio::test]
async fn a_forged_event_starts_no_run() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let vip = Subscription::trigger("question.v1").any_tags(["vip"]);
    let plain = ask(&store, 1).await;
    let foreign = store.in_tenant("other");
    let of_other = NewBreadcrumb::new("question.v1").tag("vip");
    let of_other = foreign
        .create(of_other.context(json!({"n": 2})))
        .await
        .unwrap();
    let asked = NewBreadcrumb::new("question.v1").tag("vip");
    let asked = store.create(asked.context(json!({"n": 3}))).await.unwrap();
    let forged = |event: &Event| {
        let mut forged = event.clone();
        forged.tags = vec!["vip".to_owned()];
        forged.context = serde_json::from_value(json!({"n": 666})).unwrap();
        forged
    };
    let mut of_nobody = forged(&plain);
    of_nobody.breadcrumb_id = BreadcrumbId::unique();
    let mut of_the_future = forged(&plain);
    of_the_future.version = u64::MAX;
    let jetstream = jetstream().await;
    let relay = NatsRelay::connect(url(), &*tenant).await.unwrap();
    for event in [
        forged(&plain),
        of_nobody,
        of_the_future,
        Event::created(&of_other),
    ] {
        let subject = format!("breadcrumbs.{tenant}.question.v1");
        let payload = serde_json::to_vec(&event).unwrap();
        let sent = jetstream.publish(subject, payload.into()).await;
        sent.unwrap().await.unwrap();
    }
    relay.publish(&Event::created(&asked)).await.unwrap();
    let runtime = Runtime::builder(source(&tenant).await)
        .start_at(StartAt::Beginning)
        .executor(Answers::to(store.clone(), vip))
        .build()
        .unwrap();
    let behind = source(&tenant).await;
    let all_taken = async {
        answered(&store, 1).await;
        eventually(async || behind.behind().await.unwrap() == Some(0)).await;
    };

    let report = runtime.run_until(all_taken).await.unwrap();

    assert_eq!(answers(&store).await.into_keys().collect::<Vec<_>>(), [3]);
    assert_eq!((report.responded, report.failed), (1, 0), "{report:?}");
    assert_eq!(foreign.recent("answer.v1", 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_tenant_name_is_not_a_subject_pattern_and_cannot_break_a_protocol_line() {
    for (hostile, near) in [
        ("*", "a"),
        (">", "a.b"),
        ("a\r\nPUB x 0", "a"),
        ("ä", "a"),
        ("", "a"),
    ] {
        let (mine, store) = (uuid(), MemoryStore::default());
        let (hostile, near) = (format!("{mine}{hostile}"), format!("{mine}{near}"));
        let relay = NatsRelay::connect(url(), &*near).await.unwrap();
        relay.publish(&ask(&store, 1).await).await.unwrap();
        let relay = NatsRelay::connect(url(), &*hostile).await.unwrap();
        let event = ask(&store, 2).await;
        relay.publish(&event).await.unwrap();

        let source = source(&hostile).await;
        let mut events = source.subscribe(StartAt::Beginning).await.unwrap();

        let first = tokio::time::timeout(Duration::from_secs(20), events.next()).await;
        let first = first.unwrap().unwrap().unwrap();
        assert_eq!(
            first.event.breadcrumb_id, event.breadcrumb_id,
            "{hostile:?}"
        );
        assert_eq!(source.behind().await.unwrap(), Some(1), "{hostile:?}");
    }
}

/// Returns consumers that another client created, with the expected error for each one that is refused.
fn consumers(tenant: &str) -> [(&'static str, pull::Config, Option<&'static str>); 5] {
    let fine = || pull::Config {
        filter_subject: format!("breadcrumbs.{tenant}.>"),
        max_ack_pending: 1_024,
        ack_wait: Duration::from_secs(30),
        max_deliver: -1,
        ..Default::default()
    };
    let gives_up = pull::Config {
        max_deliver: 3,
        ..fine()
    };
    let of_all = pull::Config {
        filter_subject: "breadcrumbs.>".to_owned(),
        ..fine()
    };
    let stops = pull::Config {
        max_ack_pending: 7,
        ..fine()
    };
    let forgets = pull::Config {
        ack_policy: jetstream::consumer::AckPolicy::None,
        max_ack_pending: 0,
        ..fine()
    };
    [
        ("fine", fine(), None),
        ("gives-up", gives_up, Some("gives up after 3")),
        ("all", of_all, Some("filter subject is \"breadcrumbs.>\"")),
        ("stops", stops, Some("after 7 unacknowledged")),
        ("forgets", forgets, Some("acknowledgements are None")),
    ]
}

#[tokio::test]
async fn a_consumer_for_something_else_is_refused() {
    let tenant = uuid();
    NatsRelay::connect(url(), &*tenant).await.unwrap();
    let stream = jetstream().await.get_stream("BREADCRUMBS").await.unwrap();
    for (group, mut config, wanted) in consumers(&tenant) {
        config.durable_name = Some(format!("{group}@{tenant}"));
        stream.create_consumer(config).await.unwrap();
        let builder = NatsSource::builder(url(), &*tenant).group(group);
        let source = builder.connect().await.unwrap();

        let subscribed = source.subscribe(StartAt::Now).await.map(drop);

        let cause = subscribed.err().map(|error| {
            let cause = std::error::Error::source(&error).unwrap();
            cause.to_string()
        });
        assert_eq!(cause.is_some(), wanted.is_some(), "{group}: {cause:?}");
        let cause = cause.unwrap_or_default();
        assert!(cause.contains(wanted.unwrap_or_default()), "{cause}");
    }
}

#[tokio::test]
async fn a_stream_for_something_else_is_refused() {
    let other = format!("OTHER-{}", uuid());
    let config = jetstream::stream::Config {
        name: other.clone(),
        subjects: vec![format!("{other}.>")],
        ..Default::default()
    };
    jetstream().await.create_stream(config).await.unwrap();

    let refused = NatsRelay::connect(NatsServer::new(url()).stream(&*other), "t").await;

    let error = refused.unwrap_err();
    let found =
        matches!(&error, NatsError::OtherSettings { what: "stream", name, .. } if *name == other);
    assert!(found, "{error:?}");
}

#[tokio::test]
async fn an_event_too_large_for_the_stream_is_published_without_its_context() {
    let mut server = Server::with(&["-js"]);
    server.start().await;
    let config = jetstream::stream::Config {
        name: "BREADCRUMBS".to_owned(),
        subjects: vec!["breadcrumbs.>".to_owned()],
        max_message_size: 4 << 10,
        ..Default::default()
    };
    let client = async_nats::connect(server.url()).await.unwrap();
    jetstream::new(client).create_stream(config).await.unwrap();
    let store = MemoryStore::default();
    let large = NewBreadcrumb::new("note.v1").context(json!({"text": "x".repeat(8 << 10)}));
    let large = store.create(large).await.unwrap();
    let small = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    let relay = NatsRelay::connect(server.url(), "t").await.unwrap();
    let source = NatsSource::builder(server.url(), "t")
        .connect()
        .await
        .unwrap();
    let mut events = source.subscribe(StartAt::Now).await.unwrap();

    for breadcrumb in [&large, &small] {
        relay.publish(&Event::created(breadcrumb)).await.unwrap();
    }

    let first = events.next().await.unwrap().unwrap().event;
    let second = events.next().await.unwrap().unwrap().event;
    assert_eq!(first.breadcrumb_id, large.id);
    assert!(first.context.is_none());
    assert_eq!(second.breadcrumb_id, small.id);
    assert!(second.context.is_some());
}

#[tokio::test]
async fn a_server_without_jetstream_is_reported() {
    let mut server = Server::with(&[]);
    server.start().await;

    let error = NatsSource::builder(server.url(), "t")
        .connect()
        .await
        .unwrap_err();

    assert!(matches!(error, NatsError::NoJetStream(_)), "{error:?}");
}

#[tokio::test]
async fn unknown_users_are_refused_and_credentials_can_be_part_of_the_url() {
    let mut server = Server::with(&["-js", "--user", "ann", "--pass", "s@crt"]);
    server.start().await;
    let at = server.address();

    let nobody = NatsSource::builder(server.url(), "t").connect().await;
    let wrong = NatsServer::new(server.url()).user_and_password("ann", "sk-wrong");
    let wrong = NatsSource::builder(wrong, "t").connect().await;
    let by_address = NatsSource::builder(format!("nats://ann:s%40crt@{at}"), "t")
        .connect()
        .await;
    let by_name = NatsServer::new(server.url()).user_and_password("ann", "s@crt");
    let by_name = NatsSource::builder(by_name, "t").connect().await;

    for refused in [nobody, wrong] {
        let error = refused.unwrap_err();
        assert!(matches!(error, NatsError::Refused(_)), "{error:?}");
        assert!(!format!("{error:?}").contains("sk-wrong"));
    }
    by_address.unwrap();
    by_name.unwrap();
}

#[tokio::test]
async fn nothing_that_is_shown_has_the_password() {
    let with_password = "nats://ann:sk-secret@127.0.0.1:1";
    let builder = NatsSource::builder(with_password, "t");
    let shown = format!("{builder:?}");

    let error = builder.connect().await.unwrap_err();

    assert!(matches!(error, NatsError::Unreachable(_)), "{error:?}");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    for text in [
        shown,
        format!("{error:?} {error}"),
        cause.unwrap_or_default(),
    ] {
        assert!(!text.contains("sk-secret"), "{text}");
    }
}

#[tokio::test]
async fn a_login_that_cannot_be_used_is_named_and_not_shown() {
    let missing = NatsServer::new(url()).credentials_file("/no/such/file.creds");
    let unreadable = NatsServer::new("nats://ann:sk-%zz@127.0.0.1:1");

    for server in [missing, unreadable] {
        let error = NatsSource::builder(server, "t")
            .connect()
            .await
            .unwrap_err();

        assert!(matches!(error, NatsError::Setting { .. }), "{error:?}");
        assert!(!format!("{error:?}").contains("sk-"), "{error:?}");
    }
}

#[tokio::test]
async fn with_the_certificates_of_a_server_it_is_talked_to_by_tls() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services/tls/data");
    let (certificate, key) = (
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/services/tls/data/server.pem"
        ),
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/services/tls/data/server.key"
        ),
    );
    let mut server = Server::with(&["-js", "--tls", "--tlscert", certificate, "--tlskey", key]);
    server.start().await;
    let (store, tenant) = (MemoryStore::default(), uuid());
    let at = server.address().replace("127.0.0.1", "localhost");
    let trusting = |authority: &str| {
        let server = NatsServer::new(format!("tls://{at}"));
        server.root_certificates(format!("{data}/{authority}"))
    };

    let relay = NatsRelay::connect(trusting("authority.pem").require_tls(), &*tenant).await;
    let stranger = NatsRelay::connect(trusting("stranger.pem"), &*tenant).await;

    relay.unwrap().publish(&ask(&store, 1).await).await.unwrap();
    let refused = stranger.unwrap_err();
    assert!(matches!(refused, NatsError::Refused(_)), "{refused:?}");
}

/// A relay that dies before it has saved its position publishes events again, possibly after the server's deduplication window.
#[tokio::test]
async fn a_republished_event_has_no_effect() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let jetstream = jetstream().await;
    let mut events = Vec::new();
    for n in 0..10 {
        events.push(ask(&store, n).await);
    }
    for _ in 0..2 {
        // Each memory store numbers its events from the start.
        let relay = Relayed::begin(url(), &tenant, &store).await;
        let source = NatsSource::builder(url(), &*tenant).group("counts");
        let source = source.connect().await.unwrap();
        drop(source.subscribe(StartAt::Beginning).await.unwrap());
        eventually(async || source.behind().await.unwrap() == Some(10)).await;
        drop(relay);
    }
    for event in &events {
        let subject = format!("breadcrumbs.{tenant}.question.v1");
        let payload = serde_json::to_vec(event).unwrap();
        let sent = jetstream.publish(subject, payload.into()).await;
        sent.unwrap().await.unwrap();
    }
    let source = source(&tenant).await;
    let behind = source.clone();
    let runtime = crate::nats::harness::runtime(source, &store)
        .build()
        .unwrap();
    let all_taken = async {
        answered(&store, 10).await;
        eventually(async || behind.behind().await.unwrap() == Some(0)).await;
    };

    let report = runtime.run_until(all_taken).await.unwrap();

    // The ten questions twice, and none of the answers, which the last relay may have seen.
    assert_eq!((report.events, report.responded), (20, 10), "{report:?}");
    assert!(answers(&store).await.values().all(|count| *count == 1));
}
