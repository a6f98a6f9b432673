//! Keeps a connection to the event stream open, and finds the events that the stream omitted.

use super::catch_up::{Found, Look, Step};
use super::connect::{self, Broke};
use super::feed::Feed;
use super::line::Line;
use super::settings::Settings;
use crate::clock::{later, within};
use crate::error::{BoxError, Chain};
use crate::http;
use crate::model::{Event, EventKind, Timestamp};
use crate::source::frames::{Frame, Heard};
use futures::{FutureExt as _, StreamExt as _};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Minimum duration of an event stream connection after which the reconnect backoff starts again at the first delay.
const STEADY: Duration = Duration::from_secs(30);

/// Delay before a reconnect to the event stream after a refusal of the credentials. An operator has to act, and a
/// server may count failed logins.
const UNAUTHORIZED_PAUSE: Duration = Duration::from_secs(60);

/// Maximum time for which new events of the stream wait for a backfill query. The query lists earlier events, and a
/// slow server can take longer.
const MOST_WAIT: Duration = Duration::from_secs(5);

/// Number of consecutive backfill queries that must find omitted events before the event stream is reported as faulty.
const PATIENCE: u32 = 2;

/// Reads the event stream, with reconnects, until `stop` is cancelled.
pub(super) async fn follow(settings: Arc<Settings>, feed: Arc<Feed>, stop: CancellationToken) {
    let mut follower = Follower::new(settings, feed);
    tokio::select! {
        () = stop.cancelled() => {}
        () = follower.run() => {}
    }
}

struct Follower {
    settings: Arc<Settings>,
    feed: Arc<Feed>,
    /// The last event ID that the event stream sent.
    last_id: Option<String>,
    /// First delay between two attempts to connect to the event stream.
    base: Duration,
    /// Time up to which all breadcrumb changes were delivered to the subscribers, or `None` before the first
    /// connection.
    caught_up: Option<Timestamp>,
    /// Number of backfill queries that found omitted events, counted since the last new event of the stream.
    left_out: u32,
    /// Number of consecutive failed backfill queries of the event stream.
    failed: u32,
}

impl Follower {
    fn new(settings: Arc<Settings>, feed: Arc<Feed>) -> Self {
        Self {
            base: settings.reconnect,
            settings,
            feed,
            last_id: None,
            caught_up: None,
            left_out: 0,
            failed: 0,
        }
    }

    async fn run(&mut self) {
        let mut attempt: u32 = 0;
        loop {
            let began = Instant::now();
            let why = match self.connection().await {
                Ok(never) => match never {},
                Err(why) => why,
            };
            attempt = match began.elapsed() >= STEADY {
                true => 1,
                false => attempt.saturating_add(1),
            };
            let pause = self.pause(&why, attempt);
            let url = http::without_query(&self.settings.url);
            tracing::warn!(url = url.as_str(), error = %Chain(&why), retry_in = ?pause, "event stream ended, will reconnect");
            self.feed.broke(&Chain(&why).to_string());
            sleep(pause).await;
        }
    }

    /// Returns the delay before the next connection to the event stream.
    fn pause(&self, why: &Broke, attempt: u32) -> Duration {
        match why.is_unauthorized() {
            true => UNAUTHORIZED_PAUSE,
            false => self.settings.pause(attempt, self.base),
        }
    }

    async fn connection(&mut self) -> Result<Infallible, Broke> {
        self.begin().await.map_err(Broke::Unseeded)?;
        let opened = connect::open(&self.settings, self.last_id.as_deref());
        let opened = within(self.settings.watchdog, opened).await;
        let response = opened.ok_or(Broke::Silent)??;
        let connections = {
            let mut health = self.feed.health();
            health.connections += 1;
            health.connections
        };
        tracing::info!(connections, "connected to the event stream");
        let mut line = Line::new(connect::chunks(response), self.ask());
        if !line.is_behind {
            self.feed.ready();
        }
        self.listen(&mut line).await
    }

    async fn listen(&mut self, line: &mut Line) -> Result<Infallible, Broke> {
        let live_at = later(Instant::now(), MOST_WAIT);
        loop {
            let has_room = line.has_room();
            let dead = later(line.alive, self.settings.watchdog);
            tokio::select! {
                biased;
                step = line.look.next() => self.step(line, step),
                chunk = line.chunks.next(), if has_room => match chunk {
                    Some(chunk) => self.read(line, &chunk?)?,
                    None => return Err(Broke::Ended),
                },
                () = sleep_until(live_at), if line.waiting.is_some() => self.go_live(line),
                () = sleep_until(dead), if has_room => return Err(Broke::Silent),
            }
            if !has_room {
                // The stream was not read, so the server was not silent.
                line.alive = Instant::now();
            }
        }
    }

    /// Records the breadcrumb changes from before the first connection to the event stream, so that they are not
    /// delivered.
    async fn begin(&mut self) -> Result<(), BoxError> {
        let Some(backfill) = self
            .settings
            .backfill
            .clone()
            .filter(|_| self.caught_up.is_none())
        else {
            return Ok(());
        };
        let newest = backfill.newest().await?;
        let feed = Arc::clone(&self.feed);
        let note = move |id, version| {
            feed.note(id, version);
            false
        };
        let after = earlier(newest, self.settings.overlap);
        // A slow server may take longer. The stream may then deliver events from before this moment, also to a
        // subscription that starts at `StartAt::Now`.
        if let Some(noted) = within(MOST_WAIT, backfill.since(after, &note)).await {
            noted?;
        }
        self.caught_up = Some(newest);
        Ok(())
    }

    fn read(&mut self, line: &mut Line, chunk: &[u8]) -> Result<(), Broke> {
        let mut heard = Vec::new();
        let read = line.frames.read(chunk, &mut heard);
        for heard in heard {
            line.alive = Instant::now();
            match heard {
                Heard::Event(frame) => self.take(line, frame),
                Heard::Retry(pause) => self.base = self.settings.asked_pause(pause),
                Heard::Nothing => {}
            }
        }
        Ok(read?)
    }

    fn take(&mut self, line: &mut Line, frame: Frame) {
        let event = serde_json::from_slice::<Event>(&frame.data);
        let Ok(event) = event else {
            self.feed.health().unreadable += 1;
            tracing::debug!(
                name = frame.name,
                bytes = frame.data.len(),
                "skipped a frame of the event stream, because the frame is not an event"
            );
            return;
        };
        if let Some(id) = frame.id {
            self.last_id = Some(id);
        }
        match event.kind {
            EventKind::Ping => {}
            EventKind::Created | EventKind::Updated | EventKind::Deleted => {
                let Some(event) = self.feed.fit(event) else {
                    return;
                };
                match &mut line.waiting {
                    Some(waiting) => waiting.push(event),
                    None => self.tell_live(event),
                }
            }
        }
    }

    /// Delivers an event of the event stream to the subscribers.
    fn tell_live(&mut self, event: Event) {
        if self.feed.tell(event) {
            self.left_out = 0;
            self.feed.health().is_deaf = false;
        }
    }

    fn step(&mut self, line: &mut Line, step: Step) {
        let now = Instant::now();
        line.look = match step {
            Step::Begin => self.ask(),
            Step::Answered(Ok(found)) => {
                self.failed = 0;
                match std::mem::take(&mut line.is_behind) {
                    true => {
                        self.tell_found(found);
                        self.go_live(line);
                        Look::Waits(later(now, self.settings.check_every))
                    }
                    false => Look::Settles {
                        found,
                        until: later(now, self.settings.grace),
                    },
                }
            }
            Step::Answered(Err(error)) => {
                self.failed = self.failed.saturating_add(1);
                let pause = self.settings.pause(self.failed, self.settings.reconnect);
                tracing::warn!(
                    error = %Chain(&*error),
                    retry_in = ?pause,
                    "backfill query for omitted events failed, will retry"
                );
                // Events of the stream do not wait for the retry.
                self.go_live(line);
                Look::Waits(later(now, pause))
            }
            Step::Settled(found) => {
                self.settle(found);
                Look::Waits(later(now, self.settings.check_every))
            }
        };
    }

    fn go_live(&mut self, line: &mut Line) {
        if let Some(waiting) = line.waiting.take() {
            for event in waiting.into_events() {
                self.tell_live(event);
            }
            self.feed.ready();
        }
    }

    /// Delivers the events that a backfill query found and that the stream has not delivered.
    fn settle(&mut self, found: Found) {
        let missed = self.tell_found(found);
        if missed == 0 {
            return;
        }
        self.left_out = self.left_out.saturating_add(1);
        let mut health = self.feed.health();
        health.missed += missed;
        if self.left_out >= PATIENCE && !std::mem::replace(&mut health.is_deaf, true) {
            tracing::error!(
                missed = health.missed,
                "event stream is connected but omits events, which backfill queries deliver late; restart the server"
            );
        }
    }

    /// Delivers the events of a backfill query, and returns the number of events that were not delivered before. All
    /// changes up to `newest` are then known.
    fn tell_found(&mut self, found: Found) -> u64 {
        let mut new = 0;
        for event in found.events {
            let fitting = self.feed.fit(event);
            new += u64::from(fitting.is_some_and(|event| self.feed.tell(event)));
        }
        self.caught_up = Some(found.newest);
        new
    }

    /// Starts a backfill query for the breadcrumb changes since `caught_up`, the time up to which all changes were
    /// delivered. The query repeats the changes of a short interval before this time.
    fn ask(&self) -> Look {
        let (Some(backfill), Some(caught_up)) = (self.settings.backfill.clone(), self.caught_up)
        else {
            return Look::Never;
        };
        let overlap = self.settings.overlap;
        let feed = Arc::clone(&self.feed);
        let answer = async move {
            let newest = backfill.newest().await?;
            // After the server sets its clock back, its newest change is older than `caught_up`.
            let after = earlier(caught_up.min(newest), overlap);
            let wanted = move |id, version| !feed.knows(id, version);
            let events = backfill.since(after, &wanted).await?;
            Ok(Found { events, newest })
        };
        Look::Asks(answer.boxed())
    }
}

fn earlier(moment: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(moment.as_micros().saturating_sub(by))
}

#[cfg(test)]
mod tests;
