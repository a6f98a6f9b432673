//! Keeps a connection, and what it left out.

use super::catch_up::{Look, Step};
use super::connect::{self, Broke};
use super::feed::Feed;
use super::settings::Settings;
use crate::clock::{later, within};
use crate::error::BoxError;
use crate::model::{Event, EventKind, Timestamp};
use crate::source::frames::{Frame, Frames, Heard};
use futures::FutureExt as _;
use reqwest::Response;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The longest line, and the longest event, in bytes: a frame has a whole breadcrumb in it.
const MAX_FRAME: usize = 4 << 20;

/// How many events wait until what came before them is known. With more the stream waits.
const MAX_WAITING: usize = 2_048;

/// A connection that held for so long was a good one.
const STEADY: Duration = Duration::from_secs(30);

/// How often in a row a living stream may leave something out before that is an alarm.
const PATIENCE: u32 = 2;

/// Follows the stream until it is told to stop.
pub(super) async fn follow(settings: Arc<Settings>, feed: Arc<Feed>, stop: CancellationToken) {
    let mut follower = Follower {
        base: settings.reconnect,
        settings,
        feed,
        last_id: None,
        caught_up: None,
        newest: Timestamp::UNIX_EPOCH,
        left_out: 0,
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = follower.run() => {}
    }
}

struct Follower {
    settings: Arc<Settings>,
    feed: Arc<Feed>,
    /// The last id that the stream told of.
    last_id: Option<String>,
    /// The first pause between two connections.
    base: Duration,
    /// All that happened up to this was told of; none before the first connection.
    caught_up: Option<Timestamp>,
    /// The time of the newest that was told of.
    newest: Timestamp,
    /// How many looks in a row found what a living stream had left out.
    left_out: u32,
}

/// One connection.
struct Line {
    response: Response,
    frames: Frames,
    /// When the last frame was complete.
    alive: Instant,
    /// Whether what happened before it is not known yet.
    is_behind: bool,
    waiting: VecDeque<Event>,
    look: Look,
}

impl Follower {
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
            let pause = self.settings.pause(attempt, self.base);
            tracing::warn!(%why, ?pause, "the stream of events is opened again");
            self.feed.broke(&why.to_string());
            sleep(pause).await;
        }
    }

    async fn connection(&mut self) -> Result<std::convert::Infallible, Broke> {
        self.begin().await.map_err(Broke::Unseeded)?;
        let opened = connect::open(&self.settings, self.last_id.as_deref());
        let opened = within(self.settings.watchdog, opened).await;
        let response = opened.ok_or(Broke::Silent)??;
        self.feed.health().connections += 1;
        let look = self.ask();
        let mut line = Line {
            response,
            frames: Frames::new(MAX_FRAME, MAX_FRAME),
            alive: Instant::now(),
            is_behind: !matches!(look, Look::Never),
            waiting: VecDeque::new(),
            look,
        };
        if !line.is_behind {
            self.feed.ready();
        }
        self.listen(&mut line).await
    }

    async fn listen(&mut self, line: &mut Line) -> Result<std::convert::Infallible, Broke> {
        loop {
            let has_room = line.waiting.len() < MAX_WAITING;
            let dead = later(line.alive, self.settings.watchdog);
            tokio::select! {
                biased;
                step = line.look.next() => self.step(line, step),
                chunk = line.response.chunk(), if has_room => match chunk? {
                    Some(chunk) => self.read(line, &chunk)?,
                    None => return Err(Broke::Ended),
                },
                () = sleep_until(dead), if has_room => return Err(Broke::Silent),
            }
        }
    }

    /// Notes what was there before the first connection: nobody is told of that.
    async fn begin(&mut self) -> Result<(), BoxError> {
        let Some(missed) = self
            .settings
            .missed
            .clone()
            .filter(|_| self.caught_up.is_none())
        else {
            return Ok(());
        };
        let newest = missed.newest().await?;
        let feed = Arc::clone(&self.feed);
        let note = move |id, version| {
            feed.note(id, version);
            false
        };
        let after = earlier(newest, self.settings.overlap);
        missed.since(after, &note).await?;
        (self.newest, self.caught_up) = (newest, Some(newest));
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
                "an event of the stream cannot be read"
            );
            return;
        };
        if let Some(id) = frame.id {
            self.last_id = Some(id);
        }
        match event.kind {
            EventKind::Ping => {}
            EventKind::Created | EventKind::Updated | EventKind::Deleted if line.is_behind => {
                line.waiting.push_back(event);
            }
            EventKind::Created | EventKind::Updated | EventKind::Deleted => self.tell_live(event),
        }
    }

    /// Tells of what came by the stream.
    fn tell_live(&mut self, event: Event) {
        let at = event.updated_at;
        if self.feed.tell(event) {
            self.newest = self.newest.max(at);
            self.left_out = 0;
            self.feed.health().is_deaf = false;
        }
    }

    fn step(&mut self, line: &mut Line, step: Step) {
        let now = Instant::now();
        line.look = match step {
            Step::Begin => self.ask(),
            Step::Answered(Ok(found), newest) if line.is_behind => {
                for event in found {
                    self.tell_found(event);
                }
                self.caught_up = Some(newest);
                line.is_behind = false;
                self.go_live(line);
                Look::Waits(later(now, self.settings.check_every))
            }
            Step::Answered(Ok(found), newest) => Look::Settles {
                found,
                newest,
                until: later(now, self.settings.grace),
            },
            Step::Answered(Err(error), _) => {
                tracing::warn!(
                    error = &*error,
                    "what the stream left out is looked for later"
                );
                // Until then what comes is told of all the same.
                self.go_live(line);
                Look::Waits(later(now, self.settings.reconnect))
            }
            Step::Settled(found, newest) => {
                self.settle(found);
                self.caught_up = Some(newest);
                Look::Waits(later(now, self.settings.check_every))
            }
        };
    }

    fn go_live(&mut self, line: &mut Line) {
        for event in std::mem::take(&mut line.waiting) {
            self.tell_live(event);
        }
        self.feed.ready();
    }

    /// Tells of what was found by asking, and did not come by the stream meanwhile.
    fn settle(&mut self, found: Vec<Event>) {
        let mut missed = 0;
        for event in found {
            missed += u64::from(self.tell_found(event));
        }
        if missed == 0 {
            return;
        }
        self.left_out = self.left_out.saturating_add(1);
        let mut health = self.feed.health();
        health.missed += missed;
        if self.left_out >= PATIENCE && !std::mem::replace(&mut health.is_deaf, true) {
            tracing::error!(
                missed = health.missed,
                "the stream of events is alive and leaves events out; they are found by asking, later. Restart the server"
            );
        }
    }

    fn tell_found(&mut self, event: Event) -> bool {
        let at = event.updated_at;
        let is_new = self.feed.tell(event);
        self.newest = self.newest.max(at);
        is_new
    }

    /// Asks for what happened since the last time that all was known, and a bit before.
    fn ask(&self) -> Look {
        let (Some(missed), Some(caught_up)) = (self.settings.missed.clone(), self.caught_up) else {
            return Look::Never;
        };
        let after = earlier(caught_up, self.settings.overlap);
        let feed = Arc::clone(&self.feed);
        let answer = async move {
            let wanted = move |id, version| !feed.knows(id, version);
            missed.since(after, &wanted).await
        };
        Look::Asks {
            answer: answer.boxed(),
            newest: self.newest,
        }
    }
}

fn earlier(moment: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(moment.as_micros().saturating_sub(by))
}
