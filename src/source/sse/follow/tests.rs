use super::*;
use crate::model::BreadcrumbId;
use crate::source::{Backfill, SseSource};
use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use std::sync::Mutex;
use tokio::time::timeout;

const SECOND: Duration = Duration::from_secs(1);

/// A backfill without changes, which records its calls and answers as configured.
struct Asked {
    began: Instant,
    /// Times of the calls, since `began`.
    at: Mutex<Vec<Duration>>,
    answer: fn(usize) -> bool,
    takes: Duration,
}

impl Asked {
    fn answering(answer: fn(usize) -> bool, takes: Duration) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            at: Mutex::default(),
            answer,
            takes,
        })
    }

    /// Returns the time between each two consecutive calls.
    fn pauses(&self) -> Vec<Duration> {
        let at = self.at.lock().unwrap();
        at.windows(2).map(|two| two[1] - two[0]).collect()
    }
}

#[async_trait]
impl Backfill for Asked {
    async fn newest(&self) -> Result<Timestamp, BoxError> {
        let number = {
            let mut at = self.at.lock().unwrap();
            at.push(self.began.elapsed());
            at.len()
        };
        sleep(self.takes).await;
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
fn follower(asked: &Arc<Asked>) -> Follower {
    let built =
        SseSource::builder("http://localhost:1").backfill(Arc::clone(asked) as Arc<dyn Backfill>);
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
fn pings() -> BoxStream<'static, Result<Vec<u8>, Broke>> {
    let next = |()| async {
        sleep(5 * SECOND).await;
        let ping = b"data: {\"type\":\"ping\",\"ts\":\"2026-11-21T20:33:37Z\"}\n\n";
        Some((Ok(ping.to_vec()), ()))
    };
    stream::unfold((), next).boxed()
}

/// Reads a stream for at most `limit`, and returns the error that ended it before.
async fn listen(
    follower: &mut Follower,
    chunks: BoxStream<'static, Result<Vec<u8>, Broke>>,
    limit: Duration,
) -> Option<Broke> {
    let mut line = Line::new(chunks, follower.ask());
    let ended = timeout(limit, follower.listen(&mut line)).await;
    ended.ok().map(|ended| match ended {
        Ok(never) => match never {},
        Err(why) => why,
    })
}

#[test]
fn a_stream_whose_credentials_are_refused_is_opened_again_after_a_minute() {
    let follower = follower(&Asked::answering(|_| true, Duration::ZERO));
    let status = |status| Broke::Status {
        status,
        said: String::new(),
    };
    let pause = |why| follower.pause(&why, 1);

    for why in [
        status(401),
        status(403),
        Broke::Token(crate::source::TokenError::Unsendable),
    ] {
        assert_eq!(pause(why), 60 * SECOND);
    }
    for why in [status(500), Broke::Ended, Broke::Silent] {
        assert!(pause(why) < 10 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_is_made_again_after_pauses_that_grow_and_begin_anew_with_success() {
    let asked = Asked::answering(|number| number == 9, Duration::ZERO);
    let mut follower = follower(&asked);

    let ended = listen(&mut follower, pings(), 600 * SECOND).await;

    assert!(ended.is_none(), "{ended:?}");
    let pauses = asked.pauses();
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
    let asked = Asked::answering(|_| false, Duration::ZERO);
    let mut follower = follower(&asked);
    let mut said = follower.feed.said.subscribe();
    let late = stream::once(async {
        // A query has failed before this moment, and the next one is not due.
        sleep(100 * SECOND).await;
        Ok(frame(1))
    });

    let chunks = stream::select(pings(), late).boxed();
    let ended = listen(&mut follower, chunks, 101 * SECOND).await;

    assert!(ended.is_none(), "{ended:?}");
    assert!(said.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_waits_for_buffer_space_does_not_time_out() {
    let asked = Asked::answering(|_| true, 40 * SECOND);
    let mut follower = follower(&asked);
    let flood: Vec<u8> = (1..=4_000).flat_map(frame).collect();
    let flood = stream::once(async { Ok(flood) });

    let ended = listen(&mut follower, flood.chain(pings()).boxed(), 50 * SECOND).await;

    assert!(ended.is_none(), "{ended:?}");
    assert_eq!(follower.feed.health().told, 4_000);
}

#[tokio::test(start_paused = true)]
async fn silence_is_noticed_while_a_look_takes_its_time() {
    let asked = Asked::answering(|_| true, 40 * SECOND);
    let mut follower = follower(&asked);

    let ended = listen(&mut follower, stream::pending().boxed(), 30 * SECOND).await;

    assert!(matches!(ended, Some(Broke::Silent)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_with_oversized_tags_is_counted_as_unreadable_and_skipped() {
    let asked = Asked::answering(|_| true, Duration::ZERO);
    let mut follower = follower(&asked);
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

    listen(&mut follower, chunks.chain(pings()).boxed(), SECOND).await;

    let health = *follower.feed.health();
    assert_eq!((health.unreadable, health.told), (1, 1));
    let id = |n: u128| BreadcrumbId::from_bytes(n.to_be_bytes());
    assert!(follower.feed.knows(id(1), 1) && !follower.feed.knows(id(3), 1));
}
