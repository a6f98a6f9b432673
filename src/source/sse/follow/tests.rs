use super::*;
use crate::model::BreadcrumbId;
use crate::source::{Backfill, SseSource};
use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use std::sync::Mutex;
use tokio::time::timeout;

const SECOND: Duration = Duration::from_secs(1);

/// A backfill without changes, which records its calls and answers as configured.
struct FakeBackfill {
    started: Instant,
    /// Times of the calls, since `started`.
    at: Mutex<Vec<Duration>>,
    answer: fn(usize) -> bool,
    delay: Duration,
}

impl FakeBackfill {
    fn answering(answer: fn(usize) -> bool, delay: Duration) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            at: Mutex::default(),
            answer,
            delay,
        })
    }

    /// Returns the time between each two consecutive calls.
    fn pauses(&self) -> Vec<Duration> {
        let at = self.at.lock().unwrap();
        at.windows(2).map(|two| two[1] - two[0]).collect()
    }
}

#[async_trait]
impl Backfill for FakeBackfill {
    async fn newest(&self) -> Result<Timestamp, BoxError> {
        let number = {
            let mut at = self.at.lock().unwrap();
            at.push(self.started.elapsed());
            at.len()
        };
        sleep(self.delay).await;
        match (self.answer)(number) {
            true => Ok(Timestamp::UNIX_EPOCH),
            false => Err("no answer".into()),
        }
    }

    async fn since(
        &self,
        _: Timestamp,
        _: &(dyn Fn(BreadcrumbId, u64) -> bool + Send + Sync),
    ) -> Result<Vec<Event>, BoxError> {
        Ok(Vec::new())
    }
}

/// Returns a follower that has caught up, with the given backfill.
fn follower(backfill: &Arc<FakeBackfill>) -> Follower {
    let built = SseSource::builder("http://localhost:1")
        .backfill(Arc::clone(backfill) as Arc<dyn Backfill>);
    let settings = built.settings().unwrap();
    let mut follower = Follower::new(Arc::new(settings), Arc::new(Feed::new(64)));
    follower.caught_up = Some(Timestamp::UNIX_EPOCH);
    follower
}

fn frame(id: u128) -> Vec<u8> {
    let id = BreadcrumbId::from_bytes(id.to_be_bytes());
    format!("data: {{\"type\":\"breadcrumb.updated\",\"breadcrumb_id\":\"{id}\",\"version\":1,\"updated_at\":\"2026-11-21T20:33:40Z\"}}\n\n").into_bytes()
}

/// Returns a stream with one ping every 5 s.
fn pings() -> BoxStream<'static, Result<Vec<u8>, StreamError>> {
    let next = |()| async {
        sleep(5 * SECOND).await;
        let ping = b"data: {\"type\":\"ping\",\"ts\":\"2026-11-21T20:33:37Z\"}\n\n";
        Some((Ok(ping.to_vec()), ()))
    };
    stream::unfold((), next).boxed()
}

/// Reads a stream for at most `limit`, and returns the error that ended it before.
async fn read_events(
    follower: &mut Follower,
    chunks: BoxStream<'static, Result<Vec<u8>, StreamError>>,
    limit: Duration,
) -> Option<StreamError> {
    let mut connection = Connection::new(chunks, follower.start_query());
    let ended = timeout(limit, follower.read_events(&mut connection)).await;
    ended.ok().map(|ended| match ended {
        Ok(never) => match never {},
        Err(why) => why,
    })
}

#[test]
fn a_stream_whose_credentials_are_refused_is_opened_again_after_a_minute() {
    let follower = follower(&FakeBackfill::answering(|_| true, Duration::ZERO));
    let status = |status| StreamError::Status {
        status,
        body: String::new(),
    };
    let pause = |why| follower.pause(&why, 1);

    for why in [
        status(401),
        status(403),
        StreamError::Token(crate::source::TokenError::Unsendable),
    ] {
        assert_eq!(pause(why), 60 * SECOND);
    }
    for why in [status(500), StreamError::Closed, StreamError::TimedOut] {
        assert!(pause(why) < 10 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_is_made_again_after_pauses_that_grow_and_begin_anew_with_success() {
    let backfill = FakeBackfill::answering(|number| number == 9, Duration::ZERO);
    let mut follower = follower(&backfill);

    let ended = read_events(&mut follower, pings(), 600 * SECOND).await;

    assert!(ended.is_none(), "{ended:?}");
    let pauses = backfill.pauses();
    // A timer may fire up to a millisecond late.
    let is_about = |pause: Duration, shortest: Duration, longest: Duration| {
        pause >= shortest && pause <= longest + SECOND / 500
    };
    for (pause, longest) in pauses.iter().zip([1, 2, 4, 8, 16, 32, 60, 60]) {
        let longest = longest * SECOND;
        assert!(is_about(*pause, longest / 2, longest), "{pauses:?}");
    }
    // The ninth query succeeds. The regular interval follows, and the query after it fails.
    let (usual, next) = (pauses[8], pauses[9]);
    assert!(is_about(usual, 60 * SECOND, 60 * SECOND), "{pauses:?}");
    assert!(is_about(next, SECOND / 2, SECOND), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_is_reported_immediately_while_catch_up_queries_fail() {
    let backfill = FakeBackfill::answering(|_| false, Duration::ZERO);
    let mut follower = follower(&backfill);
    let mut items = follower.feed.items.subscribe();
    let late = stream::once(async {
        // A query has failed before this moment, and the next one is not due.
        sleep(100 * SECOND).await;
        Ok(frame(1))
    });

    let chunks = stream::select(pings(), late).boxed();
    let ended = read_events(&mut follower, chunks, 101 * SECOND).await;

    assert!(ended.is_none(), "{ended:?}");
    assert!(items.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_waits_for_buffer_space_does_not_time_out() {
    let backfill = FakeBackfill::answering(|_| true, 40 * SECOND);
    let mut follower = follower(&backfill);
    let flood: Vec<u8> = (1..=4_000).flat_map(frame).collect();
    let flood = stream::once(async { Ok(flood) });

    let ended = read_events(&mut follower, flood.chain(pings()).boxed(), 50 * SECOND).await;

    assert!(ended.is_none(), "{ended:?}");
    assert_eq!(follower.feed.health().told, 4_000);
}

#[tokio::test(start_paused = true)]
async fn silence_is_noticed_while_a_look_takes_its_time() {
    let backfill = FakeBackfill::answering(|_| true, 40 * SECOND);
    let mut follower = follower(&backfill);

    let ended = read_events(&mut follower, stream::pending().boxed(), 30 * SECOND).await;

    assert!(matches!(ended, Some(StreamError::TimedOut)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_with_oversized_tags_is_counted_as_unreadable_and_skipped() {
    let backfill = FakeBackfill::answering(|_| true, Duration::ZERO);
    let mut follower = follower(&backfill);
    let tags = vec!["x".repeat(1_000); 100];
    let large = String::from_utf8(frame(1)).unwrap();
    let large = large.replace(
        "\"version\"",
        &format!("\"tags\":{},\"version\"", serde_json::json!(tags)),
    );
    let chunks = stream::iter([
        Ok(large.clone().into_bytes()),
        Ok(large.into_bytes()),
        Ok(frame(2)),
    ]);

    read_events(&mut follower, chunks.chain(pings()).boxed(), SECOND).await;

    let health = *follower.feed.health();
    assert_eq!((health.unreadable, health.told), (1, 1));
    let id = |n: u128| BreadcrumbId::from_bytes(n.to_be_bytes());
    assert!(follower.feed.contains(id(1), 1) && !follower.feed.contains(id(3), 1));
}
