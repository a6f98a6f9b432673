//! The events of one turn of a chat session, read from the store.

use super::super::hub::Listener;
use super::super::reply;
use super::super::{Client, ClientError, Reply, ReplyError, RequestHandle};
use super::Session;
use super::cursor::{Cursor, NextEvents};
use super::event::{Envelope, TurnEnd, TurnEvent};
use super::outcome::outcome;
use crate::clock::later;
use crate::executor::{Record, Segment, turn_segments_tag};
use crate::model::{Breadcrumb, BreadcrumbId, CHAT_TURN, SESSION_TAG, Selector, Timestamp};
use crate::store::{Query, RunState};
use futures::stream::{self, Stream};
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// One turn of a chat session: a message, and the run that answers it.
///
/// Dropping a turn does not cancel it. Another process continues with a [cursor](Envelope::cursor) and
/// [`Session::resume`](super::Session::resume), or without a cursor from the first event:
/// [`Session::open_turns`](super::Session::open_turns).
///
/// The await of [`Session::send`] creates a turn, and so do
/// [`Session::resume`](super::Session::resume) and
/// [`Session::open_turns`](super::Session::open_turns). A turn reads no events until
/// [`next`](Self::next) is called.
///
/// # Examples
/// ```
/// use universal_executor::agent::{Agent, ScriptedModel};
/// use universal_executor::client::TurnEvent;
/// use universal_executor::{Client, MemoryStore, Runtime, Subscription};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let store = MemoryStore::default();
/// # let helper = Agent::new("helper", ScriptedModel::new(["Hello!"]))
/// #     .instructions("You are helpful.")
/// #     .on(Subscription::trigger("user.message.v1"));
/// # let running = Runtime::on(&store).agent(helper).start().await?;
/// let session = Client::new(&store).session("helper", "session-1")?;
/// let mut turn = session.send("Hi!").await?;
/// while let Some(next) = turn.next().await {
///     match next?.event {
///         TurnEvent::Text(text) => print!("{text}"),
///         TurnEvent::End(end) => assert_eq!(end.text(), Some("Hello!")),
///         _ => {}
///     }
/// }
/// # running.stop().await?;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct Turn {
    client: Client,
    request: RequestHandle,
    cursor: Cursor,
    events: VecDeque<Envelope>,
    /// Listener for store events about the chat turn's run. Such an event ends the pause before the next read. Set by the first
    /// call of `next`.
    listener: Option<Listener>,
    /// ID of the question to a person that the client received last as an event of the turn.
    question: Option<String>,
    poll_delay: Duration,
    has_ended: bool,
    /// If `true`, the last read of the turn's events failed, and the next read starts after a pause.
    has_failed: bool,
    /// The time of the first read that found no run of this turn although the turn of a later message had ended.
    later_turn_ended_at: Option<Instant>,
}

/// First and maximum pause between two reads of a turn's events. The pause doubles while the store reports no event about the turn's run.
const POLL_DELAYS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Time after which the client ends a turn without a run in the ledger, if the turn of a later message has ended. A worker can
/// still enqueue the run meanwhile.
const MISSING_RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// Number of segments (breadcrumbs with events of one turn) on one page of query results.
const PAGE: usize = 200;

/// Maximum number of segments (breadcrumbs with events of one turn) that one read of the turn's events returns. If there are more, the
/// oldest segments are omitted, and an event reports the omission.
const MAX_SEGMENTS: usize = 20_000;

/// Maximum total size in bytes of the events that one read of a turn's events returns. If they are larger, the oldest segments are omitted,
/// and an event reports the omission.
const MAX_EVENT_BYTES: usize = 8 << 20;

impl Turn {
    pub(super) fn new(client: Client, request: RequestHandle, cursor: Cursor) -> Self {
        Self {
            client,
            request,
            cursor,
            events: VecDeque::new(),
            listener: None,
            question: None,
            poll_delay: POLL_DELAYS.0,
            has_ended: false,
            has_failed: false,
            later_turn_ended_at: None,
        }
    }

    /// Returns the handle of the turn's request, to continue the turn by request ID in another process, or to wait for the reply
    /// without turn events.
    #[must_use]
    pub fn request(&self) -> &RequestHandle {
        &self.request
    }

    /// Waits for the next event of the chat turn. Returns `None` after [`TurnEvent::End`]. Cancel safe: no event is lost if the
    /// future is dropped.
    ///
    /// The ledger deletes old runs. A turn without a run ends as [`TurnEnd::Unanswered`] with the reason `run_missing`, a minute after
    /// this handle has found that the turn of a later message has ended. Until then the call waits for a worker that enqueues the run.
    ///
    /// Needs a tokio runtime with time enabled.
    ///
    /// A call reads the run, the new events and an open question from the store. Between two reads
    /// it waits for an event of the store, with pauses that grow from 50 ms to 5 s. After an error,
    /// the turn is still usable.
    ///
    /// # Errors
    /// [`ClientError`] if the store fails. The next call waits for a moment and reads again.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime, or if the runtime's time is not enabled.
    pub async fn next(&mut self) -> Option<Result<Envelope, ClientError>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(event));
            }
            if self.has_ended {
                return None;
            }
            let client = &self.client;
            let trigger = self.request.run().trigger_id;
            // Before the read, so that no event slips between.
            self.listener
                .get_or_insert_with(|| client.hub.listen(trigger));
            if mem::take(&mut self.has_failed) {
                self.wait().await;
            }
            match self.read().await {
                Ok(()) if self.events.is_empty() => self.wait().await,
                Ok(()) => self.poll_delay = POLL_DELAYS.0,
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
    }

    /// Waits until the chat turn has ended, and returns the breadcrumbs of the executor's answer. The events are still available.
    ///
    /// Use this when the text is not streamed. The response is a breadcrumb, such as
    /// `agent.response.v1`, and not a [`TurnEnd`].
    ///
    /// # Errors
    /// As [`RequestHandle::wait`].
    ///
    /// # Panics
    /// As [`RequestHandle::wait`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{Client, MemoryStore, Runtime, Subscription};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let store = MemoryStore::default();
    /// # let helper = Agent::new("helper", ScriptedModel::new(["Hello!"]))
    /// #     .instructions("You are helpful.")
    /// #     .on(Subscription::trigger("user.message.v1"));
    /// # let running = Runtime::on(&store).agent(helper).start().await?;
    /// let session = Client::new(&store).session("helper", "session-1")?;
    /// let turn = session.send("Hi!").await?;
    /// let reply = turn.wait_for_end(Duration::from_secs(30)).await?;
    /// let response = reply.response().ok_or("no response")?;
    /// assert_eq!(response.context["message"], "Hello!");
    /// # running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn wait_for_end(&self, timeout: Duration) -> Result<Reply, ReplyError> {
        self.request.wait(timeout).await
    }

    /// Returns the events of the chat turn as a [`Stream`].
    ///
    /// The stream ends after [`TurnEvent::End`]. An error does not end it. Use it with a web
    /// framework that sends a stream to the browser.
    ///
    /// # Examples
    /// ```
    /// use futures::TryStreamExt;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::client::{Envelope, TurnEvent};
    /// use universal_executor::{Client, MemoryStore, Runtime, Subscription};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let store = MemoryStore::default();
    /// # let helper = Agent::new("helper", ScriptedModel::new(["Hello!"]))
    /// #     .instructions("You are helpful.")
    /// #     .on(Subscription::trigger("user.message.v1"));
    /// # let running = Runtime::on(&store).agent(helper).start().await?;
    /// let session = Client::new(&store).session("helper", "session-1")?;
    /// let events = session.send("Hi!").await?.into_stream();
    /// let events: Vec<Envelope> = events.try_collect().await?;
    /// let last = events.last().ok_or("no event")?;
    /// assert!(matches!(last.event, TurnEvent::End(_)));
    /// # running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn into_stream(self) -> impl Stream<Item = Result<Envelope, ClientError>> + Send + 'static {
        stream::unfold(self, |mut turn| async {
            let next = turn.next().await?;
            Some((next, turn))
        })
    }

    /// Cancels the chat turn, with all runs that its breadcrumbs triggered, and returns the number of runs that were ended. A
    /// turn that has ended stays as it is. A turn that no worker has received is not executed later.
    ///
    /// A worker that executes the turn stops with its next heartbeat, usually within 10 s. The next
    /// message of the session is then answered.
    ///
    /// # Errors
    /// As [`Client::cancel`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::client::{TurnEnd, TurnEvent};
    /// use universal_executor::{Client, MemoryStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// let mut turn = client.session("helper", "session-1")?.send("Hello!").await?;
    /// assert_eq!(turn.cancel().await?, 1);
    ///
    /// let end = turn.next().await.ok_or("no event")??;
    /// assert_eq!(end.event, TurnEvent::End(TurnEnd::Cancelled));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn cancel(&self) -> Result<usize, ClientError> {
        self.request.cancel().await
    }

    /// Waits for a store event about the turn's run, or until the next scheduled read of the turn's events is due. The wait is
    /// limited because the end of a run that writes nothing causes no event.
    async fn wait(&mut self) {
        let next = later(Instant::now(), self.poll_delay);
        let Some(listener) = &self.listener else {
            return;
        };
        tokio::select! {
            () = listener.notified() => self.poll_delay = POLL_DELAYS.0,
            () = sleep_until(next) => self.poll_delay = (self.poll_delay * 2).min(POLL_DELAYS.1),
        }
    }

    /// Reads the turn's new events, which follow the cursor, from the store.
    async fn read(&mut self) -> Result<(), ClientError> {
        // First, since a run ends after its last event.
        let run = self.client.run(self.request.run()).await?;
        let (segments, has_missed) = self.segments().await?;
        let question = match &run {
            Some(run) if run.state == RunState::Suspended => {
                reply::open_question(&self.client, run).await?
            }
            Some(_) | None => None,
        };
        let end = match run {
            Some(run) if run.state.is_over() => Some(outcome(&self.client, run).await?),
            Some(_) => None,
            None => self.end_without_run().await?,
        };
        // No wait from here on, so that a dropped future loses nothing.
        if has_missed {
            self.push(TurnEvent::Missed);
        }
        for (segment, at) in segments {
            self.add_segment(&segment, at);
        }
        if let Some(view) = question
            && self.question.as_ref() != Some(&view.id)
        {
            self.question = Some(view.id.clone());
            self.push(TurnEvent::Question(view));
        }
        if let Some(end) = end {
            self.has_ended = true;
            self.push(TurnEvent::End(end));
        }
        Ok(())
    }

    /// Returns the outcome of a turn without a run in the ledger, or `None` if a worker may still enqueue the run. The reason is `gone`
    /// if the message was deleted. The reason is `run_missing` if this handle found a minute ago that a later turn had ended.
    async fn end_without_run(&mut self) -> Result<Option<TurnEnd>, ClientError> {
        let Some(message) = self.client.find(self.request.run().trigger_id).await? else {
            return Ok(Some(unanswered("gone")));
        };
        if !self.has_later_ended_turn(&message).await? {
            self.later_turn_ended_at = None;
            return Ok(None);
        }
        let later_turn_ended_at = *self.later_turn_ended_at.get_or_insert_with(Instant::now);
        Ok((later_turn_ended_at.elapsed() >= MISSING_RUN_TIMEOUT)
            .then(|| unanswered("run_missing")))
    }

    /// Returns `true` if the turn of any message after `message` in the session has ended.
    async fn has_later_ended_turn(&self, message: &Breadcrumb) -> Result<bool, ClientError> {
        match self.session(message)? {
            Some(session) => session.has_later_ended_turn(message).await,
            None => Ok(false),
        }
    }

    /// Returns the chat session that the tag of a chat message names, or `None` if the message has no such tag.
    fn session(&self, message: &Breadcrumb) -> Result<Option<Session>, ClientError> {
        let id = message.tag(SESSION_TAG);
        let executor = &self.request.run().executor;
        let session = |id: &str| Session::new(self.client.clone(), Arc::clone(executor), id.into());
        id.map(session).transpose()
    }

    /// Returns the segments of the turn's events since the cursor, the oldest first. The flag is `true` if older segments were omitted,
    /// because of the limits.
    async fn segments(&self) -> Result<(Vec<(Segment, Timestamp)>, bool), ClientError> {
        let trigger = self.request.run().trigger_id;
        let selector = Selector::schema(CHAT_TURN).all_tags([turn_segments_tag(trigger)]);
        let mut query = Query::new(selector).limit(PAGE);
        // The time of the cursor is included: the segment of the cursor may have further events.
        query.after = Some(Timestamp::from_micros(self.cursor.after.saturating_sub(1)));
        let (mut found, mut bytes) = (Vec::new(), 0);
        loop {
            let page = self.client.search(&query).await?;
            let last = page.last().map(|last| last.order_key());
            let is_last = page.len() < PAGE;
            for (segment, at) in page
                .iter()
                .filter_map(|breadcrumb| segment(breadcrumb, trigger))
            {
                bytes += segment.events.iter().map(Record::size).sum::<usize>();
                found.push((segment, at));
            }
            query.before = last;
            if is_last || found.len() >= MAX_SEGMENTS || bytes > MAX_EVENT_BYTES {
                found.reverse();
                return Ok((found, !is_last));
            }
        }
    }

    fn add_segment(&mut self, segment: &Segment, at: Timestamp) {
        let first = match self.cursor.next(segment) {
            NextEvents::Old => return,
            NextEvents::Events(first) => first,
            NextEvents::Restart => {
                self.cursor.advance(segment, 0);
                let attempt = segment.attempt;
                self.push(TurnEvent::Restarted { attempt });
                0
            }
        };
        let events: Vec<_> = segment.events.iter().skip(first).cloned().collect();
        for (index, record) in events.into_iter().enumerate() {
            self.cursor.advance(segment, first + index + 1);
            self.push(TurnEvent::of(record, segment.attempt));
        }
        self.cursor.advance_past(segment, at);
    }

    fn push(&mut self, event: TurnEvent) {
        let cursor = format!("{}#{}", self.request.id(), self.cursor);
        self.events.push_back(Envelope { cursor, event });
    }
}

fn unanswered(reason: &str) -> TurnEnd {
    TurnEnd::Unanswered {
        state: RunState::Skipped,
        reason: Some(reason.to_owned()),
    }
}

fn segment(found: &Arc<Breadcrumb>, trigger: BreadcrumbId) -> Option<(Segment, Timestamp)> {
    Some((Segment::of(found, trigger)?, found.updated_at))
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("run", self.request.run())
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}
