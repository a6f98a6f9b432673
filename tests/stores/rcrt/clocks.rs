//! Wrong clocks: missed events are found despite wrong times.

use super::follow::{broken, next, quick, subscribed};
use super::server::Server;
use super::{OWNER, store};
use jiff::SignedDuration;
use serde_json::json;
use universal_executor::source::Deliveries;
use universal_executor::{BreadcrumbId, RcrtStore};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);

fn id(text: &str) -> BreadcrumbId {
    text.parse().unwrap()
}

/// Writes a breadcrumb while no stream is open, and waits until the source delivers its event.
async fn found_after_a_gap(server: &Server, events: &mut Deliveries) {
    server.ways(|ways| ways.status = 503);
    server.cut();
    broken(events).await;
    let written = server.put(OWNER, &json!({"schema_name": "note.v1"}));
    server.ways(|ways| ways.status = 200);

    assert_eq!(next(events).await, (id(&written), 1));
}

/// Closes the stream and waits until the source has opened another one.
async fn open_anew(server: &Server, store: &RcrtStore, events: &mut Deliveries) {
    let opened = store.events().health().connections;
    server.cut();
    broken(events).await;
    loop {
        let health = store.events().health();
        if health.is_connected && health.connections > opened {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Delivers an event whose time is ahead of the server's clock, and expects that later breadcrumbs are found after two gaps.
async fn hides_nothing(server: Server, ahead: SignedDuration) {
    let store = quick(&server);
    let mut events = subscribed(&store.events()).await;
    let early = server.put_ahead(OWNER, ahead);
    assert_eq!(next(&mut events).await, (id(&early), 1));
    open_anew(&server, &store, &mut events).await;

    found_after_a_gap(&server, &mut events).await;
    found_after_a_gap(&server, &mut events).await;
}

#[tokio::test]
async fn an_event_from_the_future_hides_nothing_that_comes_after_it() {
    hides_nothing(Server::start().await, DAY).await;
}

#[tokio::test]
async fn the_future_is_that_of_the_clock_of_the_server() {
    let server = Server::start().await;
    server.lock().crumbs.set_clock(-DAY);

    hides_nothing(server, HOUR).await;
}

#[tokio::test]
async fn the_local_clock_defines_the_future_if_the_server_reports_no_time() {
    let server = Server::start().await;
    server.lock().is_timeless = true;

    hides_nothing(server, DAY).await;
}

#[tokio::test]
async fn a_foreign_breadcrumb_dated_in_the_future_hides_nothing() {
    let server = Server::start().await;
    for _ in 0..30 {
        server.put_ahead("00000000-0000-0000-0000-000000000002", DAY);
    }
    let mut events = subscribed(&quick(&server).events()).await;

    found_after_a_gap(&server, &mut events).await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_hides_nothing_that_comes_after() {
    let server = Server::start().await;
    server.lock().crumbs.set_clock(DAY);
    // The source searches for missing events after each connect, and then not again for a minute.
    let store = store(&server);
    let mut events = subscribed(&store.events()).await;
    let early = server.put(OWNER, &json!({"schema_name": "note.v1"}));
    assert_eq!(next(&mut events).await, (id(&early), 1));
    open_anew(&server, &store, &mut events).await;

    server.lock().crumbs.set_clock(SignedDuration::ZERO);

    found_after_a_gap(&server, &mut events).await;
    found_after_a_gap(&server, &mut events).await;
}
