//! Streams that end, repeat events, lose events or stay silent.

use super::server::{Match, Server};
use super::{OWNER, builder};
use futures::StreamExt as _;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;
use universal_executor::source::{Deliveries, SourceError, SseSource, StartAt};
use universal_executor::{
    BreadcrumbId, BreadcrumbStoreExt, EventSource, NewBreadcrumb, Patch, RcrtStore,
};

const SOON: Duration = Duration::from_secs(20);

/// Creates a store that checks its stream every 50 ms and reconnects after 300 ms of silence.
pub(crate) fn quick(server: &Server) -> RcrtStore {
    let quick = builder(server, OWNER).watchdog(Duration::from_millis(300));
    quick
        .check_every(Duration::from_millis(50))
        .build()
        .unwrap()
}

async fn create(store: &RcrtStore) -> BreadcrumbId {
    store
        .create(NewBreadcrumb::new("note.v1").context(json!({"text": "grüße"})))
        .await
        .unwrap()
        .id
}

pub(crate) async fn subscribed(source: &SseSource) -> Deliveries {
    source.subscribe(StartAt::Now).await.unwrap()
}

/// Returns the next delivered version. Skips errors of lost connections.
pub(crate) async fn next(events: &mut Deliveries) -> (BreadcrumbId, u64) {
    loop {
        match timeout(SOON, events.next()).await.unwrap().unwrap() {
            Ok(delivery) => return (delivery.event.breadcrumb_id, delivery.event.version),
            Err(error) => assert!(matches!(error, SourceError::Unavailable { .. }), "{error}"),
        }
    }
}

/// Waits until the stream reports a lost connection.
pub(crate) async fn broken(events: &mut Deliveries) {
    let said = timeout(SOON, events.next()).await.unwrap().unwrap();
    assert!(
        matches!(said, Err(SourceError::Unavailable { .. })),
        "{said:?}"
    );
}

#[tokio::test]
async fn a_repeated_frame_is_delivered_once() {
    let server = Server::start().await;
    server.ways(|ways| ways.copies = 3);
    let store = quick(&server);
    let mut events = subscribed(&store.events()).await;

    let (first, second) = (create(&store).await, create(&store).await);

    assert_eq!(
        [next(&mut events).await, next(&mut events).await],
        [(first, 1), (second, 1)]
    );
    assert_eq!(store.events().health().told, 2);
}

#[tokio::test]
async fn events_from_a_disconnection_are_delivered_after_the_reconnect() {
    let server = Server::start().await;
    let store = quick(&server);
    let mut events = subscribed(&store.events()).await;
    let before = create(&store).await;
    assert_eq!(next(&mut events).await, (before, 1));

    server.ways(|ways| ways.status = 503);
    server.cut();
    broken(&mut events).await;
    let (first, second) = (create(&store).await, create(&store).await);
    store
        .update(first, 1, Patch::new().title("later"))
        .await
        .unwrap();
    server.ways(|ways| ways.status = 200);

    assert_eq!(
        [next(&mut events).await, next(&mut events).await],
        [(second, 1), (first, 2)]
    );
    let live = create(&store).await;
    assert_eq!(next(&mut events).await, (live, 1));
}

#[tokio::test]
async fn a_stream_that_ends_cleanly_is_opened_again() {
    let server = Server::start().await;
    let store = quick(&server);
    let mut events = subscribed(&store.events()).await;

    for n in 0..5 {
        server.cut();
        broken(&mut events).await;
        let id = create(&store).await;
        assert_eq!(next(&mut events).await, (id, 1), "{n}");
    }
}

#[tokio::test]
async fn a_stream_that_is_silent_is_dead_and_opened_again() {
    let server = Server::start().await;
    let store = quick(&server);
    let mut events = subscribed(&store.events()).await;

    server.ways(|ways| ways.is_silent = true);
    broken(&mut events).await;
    let id = create(&store).await;
    server.ways(|ways| ways.is_silent = false);

    assert_eq!(next(&mut events).await, (id, 1));
}

#[tokio::test]
async fn bytes_that_never_complete_a_frame_do_not_keep_a_stream_alive() {
    let server = Server::start().await;
    let store = quick(&server);
    let mut events = subscribed(&store.events()).await;

    server.ways(|ways| ways.drips = true);
    broken(&mut events).await;
    let id = create(&store).await;
    server.ways(|ways| ways.drips = false);

    assert_eq!(next(&mut events).await, (id, 1));
}

#[tokio::test]
async fn a_silent_stream_is_detected_and_its_missing_events_are_delivered() {
    let server = Server::start().await;
    let store = quick(&server);
    let source = SseSource::clone(&store.events());
    let mut events = subscribed(&source).await;
    server.ways(|ways| ways.is_deaf = true);

    let mut told = Vec::new();
    let mut made = Vec::new();
    while !source.health().is_deaf {
        made.push((create(&store).await, 1));
        told.push(next(&mut events).await);
        assert!(made.len() < 50, "{:?}", source.health());
    }

    assert_eq!(told, made);
    assert_eq!(source.health().missed, u64::try_from(made.len()).unwrap());
    server.ways(|ways| ways.is_deaf = false);
    let live = create(&store).await;
    assert_eq!(next(&mut events).await, (live, 1));
    assert!(!source.health().is_deaf);
}

#[tokio::test]
async fn a_frame_cut_into_bytes_with_noise_around_it_is_whole() {
    let server = Server::start().await;
    server.ways(|ways| {
        ways.piece = 1;
        ways.noise =
            ": comment\r\n\r\nevent: crumb\rretry: 1\r\n\ndata: {\"type\":\"breadcrumb.lost\"}\n\n";
    });
    let store = quick(&server);
    let mut events = subscribed(&store.events()).await;

    let id = create(&store).await;

    assert_eq!(next(&mut events).await, (id, 1));
    assert!(store.events().health().unreadable > 0);
}

#[tokio::test]
async fn a_reconnect_sends_the_last_event_id_of_the_server() {
    let server = Server::start().await;
    server.ways(|ways| ways.has_ids = true);
    let url = format!("{}/events/stream", server.base_url());
    let token = universal_executor::source::BearerToken::fixed(universal_executor::Secret::new(
        super::server::token_of(OWNER),
    ));
    let source = SseSource::builder(url).token(token);
    let source = source
        .reconnect(Duration::from_millis(5), Duration::from_millis(10))
        .build()
        .unwrap();
    let store = super::store(&server);
    let mut events = subscribed(&source).await;
    let id = create(&store).await;
    assert_eq!(next(&mut events).await, (id, 1));

    server.cut();
    broken(&mut events).await;
    while source.health().connections < 2 {
        tokio::task::yield_now().await;
    }

    let opened = server.seen("GET", "/events/stream");
    assert_eq!(opened[0].header("last-event-id"), None);
    let last: u64 = opened[1].header("last-event-id").unwrap().parse().unwrap();
    assert!(last > 1, "{last}");
}

#[tokio::test]
async fn all_subscriptions_share_one_connection_and_it_ends_with_the_last() {
    let server = Server::start().await;
    let store = quick(&server);
    let (one, other) = (store.events(), store.clone().events());

    let streams = [
        subscribed(&one).await,
        subscribed(&other).await,
        subscribed(&one).await,
    ];

    assert_eq!(server.seen("GET", "/events/stream").len(), 1);
    drop(streams);
    let again = subscribed(&other).await;
    drop(again);
    assert_eq!(server.seen("GET", "/events/stream").len(), 1);
}

#[tokio::test]
async fn a_subscription_to_a_server_that_is_not_there_fails() {
    let server = Server::start().await;
    server.ways(|ways| ways.status = 500);

    let answer = quick(&server).events().subscribe(StartAt::Now).await;

    assert!(matches!(answer, Err(SourceError::Unavailable { .. })));
}

#[tokio::test]
async fn a_server_that_takes_the_request_and_never_answers_is_given_up() {
    let server = Server::start().await;
    let store = quick(&server);
    server.fail(Match("GET", "/events/stream"), super::server::Fault::Hang);

    let first = store.events().subscribe(StartAt::Now).await;
    let mut events = subscribed(&store.events()).await;

    assert!(matches!(first, Err(SourceError::Unavailable { .. })));
    let id = create(&store).await;
    assert_eq!(next(&mut events).await, (id, 1));
}

#[tokio::test]
async fn a_token_that_ended_is_renewed_for_the_stream() {
    let server = Server::start().await;
    let store = RcrtStore::builder(server.base_url(), OWNER).agent("agent-1");
    let store = store
        .reconnect(Duration::from_millis(5), Duration::from_millis(10))
        .build()
        .unwrap();
    let mut events = subscribed(&store.events()).await;

    server.lock().expired.insert(format!("issued:{OWNER}:1"));
    server.cut();
    broken(&mut events).await;
    let id = create(&store).await;

    assert_eq!(next(&mut events).await, (id, 1));
}

#[tokio::test]
async fn a_failed_search_for_missed_events_is_retried() {
    let server = Server::start().await;
    let store = quick(&server);
    let mut events = subscribed(&store.events()).await;
    server.ways(|ways| ways.is_deaf = true);
    for _ in 0..6 {
        server.fail(
            Match("GET", "/breadcrumbs"),
            super::server::Fault::Refuse(500, "database error"),
        );
    }

    let id = create(&store).await;

    assert_eq!(next(&mut events).await, (id, 1));
}

#[tokio::test]
async fn a_breadcrumb_too_large_for_any_list_hides_no_other_missed_breadcrumb() {
    let server = Server::start().await;
    let store = builder(&server, OWNER).max_list_bytes(40_000);
    let store = store.build().unwrap();
    let mut events = subscribed(&store.events()).await;

    server.ways(|ways| ways.status = 503);
    server.cut();
    broken(&mut events).await;
    let mut written = Vec::new();
    for n in 0..30 {
        // Lists of changed breadcrumbs contain no contexts.
        let large = json!({"text": "x".repeat(if n == 7 { 60_000 } else { 10 })});
        written.push(server.put(OWNER, &json!({"schema_name": "note.v1", "context": large})));
    }
    for _ in 0..2 {
        server.put(
            OWNER,
            &json!({"schema_name": "note.v1", "title": "x".repeat(60_000)}),
        );
    }
    server.ways(|ways| ways.status = 200);

    for id in written {
        assert_eq!(next(&mut events).await, (id.parse().unwrap(), 1));
    }
}
