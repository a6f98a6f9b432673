//! Memory use of a stream that sends more than its subscriber can process, measured in a separate process.

use super::OWNER;
use super::server::{Fault, Match, Request, Server, token_of};
use crate::child::run_alone;
use futures::StreamExt as _;
use std::env;
use std::fs;
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use universal_executor::model::Timestamp;
use universal_executor::source::{Backfill, BearerToken, SourceError, SseSource, StartAt};
use universal_executor::{
    BoxError, BreadcrumbId, BreadcrumbStoreExt, Event, EventSource, RcrtStore, Secret, async_trait,
};

/// The environment variable with the server's URL for the process.
const SUBSCRIBER: &str = "UX_RCRT_SUBSCRIBER";

/// Maximum growth of the process's memory in KiB. The stream sends 225 MiB.
const MOST: usize = 48 << 10;

/// Number of events in the flood. One in eight has a context that is too large to be delivered.
const EVENTS: usize = 2_400;

/// Interval between events with 3 MiB of tags.
const ABSURD: usize = 300;

/// Size of the last line in MiB. This line has no end.
const ENDLESS: usize = 64;

/// Time limit for each step of the test.
const SOON: Duration = Duration::from_secs(120);

/// A backfill that queries a server and never finds a missing event.
struct Slow(RcrtStore);

#[async_trait]
impl Backfill for Slow {
    async fn newest(&self) -> Result<Timestamp, BoxError> {
        self.0.latest("missed.v1").await?;
        Ok(Timestamp::UNIX_EPOCH)
    }

    async fn since(
        &self,
        _: Timestamp,
        _: &(dyn Fn(BreadcrumbId, u64) -> bool + Send + Sync),
    ) -> Result<Vec<Event>, BoxError> {
        Ok(Vec::new())
    }
}

/// Returns a part of the flood: large events, and then a line without an end.
fn flood(part: usize) -> Option<Vec<u8>> {
    if part >= EVENTS {
        return (part < EVENTS + ENDLESS).then(|| vec![b'x'; 1 << 20]);
    }
    let (context, tags) = match part {
        part if part % ABSURD == 0 => (10, (300, 10_000)),
        part if part % 8 == 1 => (250_000, (1, 10)),
        _ => (15_000, (200, 250)),
    };
    let id = BreadcrumbId::from_bytes(u128::try_from(part).unwrap().to_be_bytes());
    let tag = format!("\"{}\"", "t".repeat(tags.1));
    let (tags, context) = (vec![tag; tags.0].join(","), "c".repeat(context));
    let frame = format!(
        r#"data: {{"type":"breadcrumb.updated","breadcrumb_id":"{id}","version":1,"tags":[{tags}],"schema_name":"note.v1","updated_at":"2026-11-21T20:33:40Z","context":"{context}"}}"#
    );
    Some(format!("{frame}\n\n").into_bytes())
}

/// Returns a value in KiB from the kernel's status of this process.
fn memory(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The subscriber process of the test below. It does nothing without its environment variable.
#[tokio::test]
async fn subscriber_that_is_flooded() {
    let Ok(url) = env::var(SUBSCRIBER) else {
        return;
    };
    let token = Secret::new(token_of(OWNER));
    let store = RcrtStore::builder(&url, OWNER).token(token.clone());
    let store = store.timeout(SOON).build().unwrap();
    let source = SseSource::builder(format!("{url}/events/stream"))
        .token(BearerToken::fixed(token))
        .backfill(Arc::new(Slow(store.clone())))
        .reconnect(Duration::from_millis(5), Duration::from_millis(50))
        .buffer(64)
        .build()
        .unwrap();
    let mut events = source.subscribe(StartAt::Now).await.unwrap();
    let before = memory("VmRSS:");

    store.latest("ready.v1").await.unwrap();
    // Read no delivery until all events have arrived.
    let all = u64::try_from(EVENTS).unwrap();
    while source.health().told + source.health().unreadable < all {
        sleep(Duration::from_millis(10)).await;
    }
    let (mut told, mut dropped) = (0, 0);
    let end = loop {
        match events.next().await.unwrap() {
            Ok(_) => told += 1,
            Err(SourceError::Lagged { missed, .. }) => dropped += missed,
            Err(error) => break error,
        }
    };

    assert!(
        format!("{end:?}").contains("longer than 4194304 bytes"),
        "{end:?}"
    );
    let grown = memory("VmHWM:") - before;
    // Print the figures for manual test runs.
    let line =
        format!("{grown} KiB more than {before} KiB; {told} taken in and {dropped} dropped\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(grown < MOST, "{line}");
}

/// A process that is killed on drop.
struct Subscriber(Child);

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Waits until a condition holds.
async fn until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_behind_a_slow_look_and_a_slow_subscriber_takes_little_memory() {
    let server = Server::start().await;
    let mut command = run_alone(concat!(module_path!(), "::subscriber_that_is_flooded"));
    command
        .env(SUBSCRIBER, server.base_url())
        .stdout(Stdio::null());
    let mut subscriber = Subscriber(command.spawn().unwrap());
    let is_ready = |seen: &Request| {
        seen.query
            .get("schema_name")
            .is_some_and(|name| name == "ready.v1")
    };
    until(|| server.seen("GET", "/breadcrumbs").iter().any(is_ready)).await;

    let go = Arc::new(Notify::new());
    server.fail(Match("GET", "/breadcrumbs"), Fault::Wait(Arc::clone(&go)));
    server.ways(|ways| ways.flood = Some(flood));
    server.cut();
    let mut sent = 0;
    loop {
        sleep(Duration::from_secs(1)).await;
        let now = server.lock().stream.flooded;
        if now > 0 && now == sent {
            break;
        }
        sent = now;
    }
    go.notify_one();
    let mut status = None;
    until(|| {
        status = subscriber.0.try_wait().unwrap();
        status.is_some()
    })
    .await;

    // The source stops reading from the connection while the backfill query waits.
    assert!(sent < EVENTS, "{sent}");
    assert!(status.unwrap().success());
}
