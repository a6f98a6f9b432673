//! Keeps a connection to the event stream open, and finds the events that the stream omitted.

use super::catch_up::{BackfillResult, BackfillState, BackfillStep};
use super::connect::{self, StreamError};
use super::connection::Connection;
use super::feed::Feed;
use super::settings::Settings;
use crate::clock::{later, within};
use crate::error::{BoxError, Chain};
use crate::http;
use crate::model::{Event, EventKind, Timestamp};
use crate::source::frames::{Frame, SseItem};
use futures::{FutureExt as _, StreamExt as _};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Minimum duration of an event stream connection after which the reconnect backoff starts again at the first delay.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Delay before a reconnect to the event stream after a refusal of the credentials. An operator has to act, and a
/// server may count failed logins.
const UNAUTHORIZED_PAUSE: Duration = Duration::from_secs(60);

/// Maximum time for which new events of the stream wait for a backfill query. The query lists earlier events, and a
/// slow server can take longer.
const MAX_BACKFILL_WAIT: Duration = Duration::from_secs(5);

/// Number of consecutive backfill queries that must find omitted events before the event stream is reported as faulty.
const FAULTY_AFTER: u32 = 2;

/// Reads the event stream, and connects again when it ends, until the event source cancels the token `stop`.
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
    queries_with_omissions: u32,
    /// Number of consecutive failed backfill queries of the event stream.
    failed_queries: u32,
}

impl Follower {
    fn new(settings: Arc<Settings>, feed: Arc<Feed>) -> Self {
        Self {
            base: settings.reconnect,
            settings,
            feed,
            last_id: None,
            caught_up: None,
            queries_with_omissions: 0,
            failed_queries: 0,
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
            attempt = match began.elapsed() >= STABLE_AFTER {
                true => 1,
                false => attempt.saturating_add(1),
            };
            let pause = self.pause(&why, attempt);
            let url = http::without_query(&self.settings.url);
            tracing::warn!(url = url.as_str(), error = %Chain(&why), retry_in = ?pause, "event stream ended, will reconnect");
            self.feed.set_disconnected(&Chain(&why).to_string());
            sleep(pause).await;
        }
    }

    /// Returns the delay before the next connection to the event stream.
    fn pause(&self, why: &StreamError, attempt: u32) -> Duration {
        match why.is_unauthorized() {
            true => UNAUTHORIZED_PAUSE,
            false => self.settings.pause(attempt, self.base),
        }
    }

    async fn connection(&mut self) -> Result<Infallible, StreamError> {
        self.record_earlier_changes()
            .await
            .map_err(StreamError::NoStartTime)?;
        let opened = connect::open(&self.settings, self.last_id.as_deref());
        let opened = within(self.settings.watchdog, opened).await;
        let response = opened.ok_or(StreamError::TimedOut)??;
        let connections = {
            let mut health = self.feed.health();
            health.connections += 1;
            health.connections
        };
        tracing::info!(connections, "connected to the event stream");
        let mut connection = Connection::new(connect::chunks(response), self.start_query());
        if !connection.is_behind {
            self.feed.set_connected();
        }
        self.read_events(&mut connection).await
    }

    async fn read_events(
        &mut self,
        connection: &mut Connection,
    ) -> Result<Infallible, StreamError> {
        let live_at = later(Instant::now(), MAX_BACKFILL_WAIT);
        loop {
            let has_capacity = connection.has_capacity();
            let dead = later(connection.last_frame_at, self.settings.watchdog);
            tokio::select! {
                biased;
                step = connection.backfill.next() => self.handle_step(connection, step),
                chunk = connection.chunks.next(), if has_capacity => match chunk {
                    Some(chunk) => self.read(connection, &chunk?)?,
                    None => return Err(StreamError::Closed),
                },
                () = sleep_until(live_at), if connection.pending_events.is_some() => self.go_live(connection),
                () = sleep_until(dead), if has_capacity => return Err(StreamError::TimedOut),
            }
            if !has_capacity {
                // The stream was not read, so the server was not silent.
                connection.last_frame_at = Instant::now();
            }
        }
    }

    /// Marks the breadcrumb versions from before the first connection to the event stream as delivered, so that no
    /// subscriber receives them.
    async fn record_earlier_changes(&mut self) -> Result<(), BoxError> {
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
        let record = move |id, version| {
            feed.record(id, version);
            false
        };
        let after = earlier(newest, self.settings.overlap);
        // A slow server may take longer. The stream may then deliver events from before this moment, also to a
        // subscription that starts at `StartAt::Now`.
        if let Some(recorded) = within(MAX_BACKFILL_WAIT, backfill.since(after, &record)).await {
            recorded?;
        }
        self.caught_up = Some(newest);
        Ok(())
    }

    fn read(&mut self, connection: &mut Connection, chunk: &[u8]) -> Result<(), StreamError> {
        let mut items = Vec::new();
        let read = connection.frames.read(chunk, &mut items);
        for item in items {
            connection.last_frame_at = Instant::now();
            match item {
                SseItem::Event(frame) => self.handle_frame(connection, frame),
                SseItem::Retry(pause) => self.base = self.settings.server_pause(pause),
                SseItem::Empty => {}
            }
        }
        Ok(read?)
    }

    fn handle_frame(&mut self, connection: &mut Connection, frame: Frame) {
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
                let Some(event) = self.feed.within_limits(event) else {
                    return;
                };
                match &mut connection.pending_events {
                    Some(pending_events) => pending_events.push(event),
                    None => self.deliver_live(event),
                }
            }
        }
    }

    /// Delivers an event of the event stream to the subscribers.
    fn deliver_live(&mut self, event: Event) {
        if self.feed.send_event(event) {
            self.queries_with_omissions = 0;
            self.feed.health().is_deaf = false;
        }
    }

    fn handle_step(&mut self, connection: &mut Connection, step: BackfillStep) {
        let now = Instant::now();
        connection.backfill = match step {
            BackfillStep::Begin => self.start_query(),
            BackfillStep::Answered(Ok(found)) => {
                self.failed_queries = 0;
                match std::mem::take(&mut connection.is_behind) {
                    true => {
                        self.deliver_found(found);
                        self.go_live(connection);
                        BackfillState::Scheduled(later(now, self.settings.check_every))
                    }
                    false => BackfillState::Settling {
                        found,
                        until: later(now, self.settings.grace),
                    },
                }
            }
            BackfillStep::Answered(Err(error)) => {
                self.failed_queries = self.failed_queries.saturating_add(1);
                let pause = self
                    .settings
                    .pause(self.failed_queries, self.settings.reconnect);
                tracing::warn!(
                    error = %Chain(&*error),
                    retry_in = ?pause,
                    "backfill query for omitted events failed, will retry"
                );
                // Events of the stream do not wait for the retry.
                self.go_live(connection);
                BackfillState::Scheduled(later(now, pause))
            }
            BackfillStep::Settled(found) => {
                self.deliver_omitted(found);
                BackfillState::Scheduled(later(now, self.settings.check_every))
            }
        };
    }

    fn go_live(&mut self, connection: &mut Connection) {
        if let Some(pending_events) = connection.pending_events.take() {
            for event in pending_events.into_events() {
                self.deliver_live(event);
            }
            self.feed.set_connected();
        }
    }

    /// Delivers the events that a backfill query found and that the stream has not delivered.
    fn deliver_omitted(&mut self, found: BackfillResult) {
        let missed = self.deliver_found(found);
        if missed == 0 {
            return;
        }
        self.queries_with_omissions = self.queries_with_omissions.saturating_add(1);
        let mut health = self.feed.health();
        health.missed += missed;
        if self.queries_with_omissions >= FAULTY_AFTER
            && !std::mem::replace(&mut health.is_deaf, true)
        {
            tracing::error!(
                missed = health.missed,
                "event stream is connected but omits events, which backfill queries deliver late; restart the server"
            );
        }
    }

    /// Delivers the events of a backfill query, and returns the number of events that were not delivered before. All
    /// changes up to `newest` are then known.
    fn deliver_found(&mut self, found: BackfillResult) -> u64 {
        let mut new = 0;
        for event in found.events {
            let fitting = self.feed.within_limits(event);
            new += u64::from(fitting.is_some_and(|event| self.feed.send_event(event)));
        }
        self.caught_up = Some(found.newest);
        new
    }

    /// Starts a backfill query for the breadcrumb changes since `caught_up`, the time up to which all changes were
    /// delivered. The query repeats the changes of a short interval before this time.
    fn start_query(&self) -> BackfillState {
        let (Some(backfill), Some(caught_up)) = (self.settings.backfill.clone(), self.caught_up)
        else {
            return BackfillState::Disabled;
        };
        let overlap = self.settings.overlap;
        let feed = Arc::clone(&self.feed);
        let answer = async move {
            let newest = backfill.newest().await?;
            // After the server sets its clock back, its newest change is older than `caught_up`.
            let after = earlier(caught_up.min(newest), overlap);
            let wanted = move |id, version| !feed.contains(id, version);
            let events = backfill.since(after, &wanted).await?;
            Ok(BackfillResult { events, newest })
        };
        BackfillState::InFlight(answer.boxed())
    }
}

fn earlier(moment: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(moment.as_micros().saturating_sub(by))
}

#[cfg(test)]
mod tests;
