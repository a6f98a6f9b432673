//! Chat sessions: messages to one executor, which answers them in order, and the events of each answer.

mod cursor;
mod event;
mod open;
mod outcome;
mod past;
mod turn;

pub use event::{Envelope, TurnEnd, TurnEvent};
pub use past::{PastTurn, SessionView};
pub use turn::Turn;

use super::{Client, ClientError, RequestHandle};
use crate::error::excerpt;
use crate::executor::{CHAT_MESSAGE, turn_tag};
use crate::hex::hash;
use crate::model::{Breadcrumb, BreadcrumbId, CHAT_SESSION, NewBreadcrumb, SESSION_TAG, Selector};
use crate::store::{BreadcrumbStoreExt as _, Query, RunRef};
use cursor::Cursor;
use futures::future::BoxFuture;
use serde_json::json;
use std::future::IntoFuture;
use std::sync::Arc;

/// A chat session with one executor. Created by [`Client::session`]. A clone is another handle on the same session.
///
/// A message is a `user.message.v1` with the tag `session:<id>`, so the executor must subscribe to that schema. The store has the
/// message before [`send`](Self::send) returns, and a worker answers it even if this process ends. The turns of a session run one
/// at a time, in the order of their messages. With several workers, two messages that are sent within milliseconds can change places. A
/// turn that waits for a person holds the next ones.
///
/// An [agent](crate::agent::Agent) sees the newest 50 earlier turns that succeeded, with at most 64 KiB of text, and a workload its
/// own log of the session. The client receives the text of the answer while the model writes it, of a flow the text of all its steps.
/// If guardrails check the answer, the client receives it at the end only. An executor whose
/// [profile](crate::Profile) has an ordering key keeps that order instead.
///
/// Other executors that subscribe to `user.message.v1` are triggered as well. The service authorizes the use of a session: a
/// `Session` gives access to all of it. The store must record [writers](crate::store::Capabilities::lineage).
///
/// # Types to start with
/// - [`send`](Self::send) creates a [`NewMessage`], and its await returns a [`Turn`].
/// - [`Turn::next`] returns the events of the answer, [`Turn::wait_for_end`] only the answer.
/// - [`history`](Self::history) returns the earlier turns, [`open_turns`](Self::open_turns) the
///   turns without an end.
///
/// # Cost
/// A run writes the pieces of its answer about five times per second at most. Each write is a breadcrumb that expires after an hour,
/// with an event that each worker and each waiting client receives and ignores. A turn without streamed text adds no write.
///
/// ```
/// use universal_executor::agent::{Agent, ScriptedModel};
/// use universal_executor::client::TurnEvent;
/// use universal_executor::{Client, MemoryStore, Runtime, Subscription};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let helper = Agent::new("helper", ScriptedModel::new(["Hello, Ann!", "Your name is Ann."]))
///     .instructions("You are helpful.")
///     .on(Subscription::trigger("user.message.v1"));
/// let running = Runtime::on(&store).agent(helper).start().await?;
///
/// let session = Client::new(&store).session("helper", "session-1")?;
/// session.send("I am Ann.").key("m-1").await?;
/// let mut turn = session.send("What is my name?").key("m-2").await?;
/// let mut answer = String::new();
/// while let Some(next) = turn.next().await {
///     match next?.event {
///         TurnEvent::Text(text) => answer.push_str(&text),
///         TurnEvent::Restarted { .. } => answer.clear(),
///         TurnEvent::End(end) => assert_eq!(end.text(), Some("Your name is Ann.")),
///         _ => {}
///     }
/// }
/// assert_eq!(answer, "Your name is Ann.");
/// assert_eq!(session.history().await?.len(), 2);
/// running.stop().await?;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    client: Client,
    executor: Arc<str>,
    id: Arc<str>,
}

impl Session {
    /// Maximum length of the ID of a chat session in bytes.
    pub const MAX_ID_BYTES: usize = 200;

    pub(super) fn new(
        client: Client,
        executor: Arc<str>,
        id: Arc<str>,
    ) -> Result<Self, ClientError> {
        if id.is_empty() || id.len() > Self::MAX_ID_BYTES {
            return Err(ClientError::BadSession {
                session: excerpt(&id, 300).into_owned(),
                size: id.len(),
            });
        }
        // Without records, a forged answer looks like an answer of the executor.
        if !client.store.capabilities().lineage {
            return Err(ClientError::NoSessions);
        }
        Ok(Self {
            client,
            executor,
            id,
        })
    }

    /// Returns the ID of the chat session.
    ///
    /// It is the string that was passed to [`Client::session`]. Two executors can have a session
    /// with the same ID.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the ID of the executor that answers the messages of the chat session.
    #[must_use]
    pub fn executor(&self) -> &str {
        &self.executor
    }

    /// Creates a chat message to the executor of the session. Await the result to send it.
    ///
    /// The await searches for the record of the session and writes the message. The first message
    /// also writes the record for [`Client::sessions`]. The await does not wait for the answer.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Client, MemoryStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// let session = client.session("helper", "session-1")?;
    /// let turn = session.send("Hello!").key("m-1").from("ann").await?;
    /// let repeated = session.send("Hello!").key("m-1").from("ann").await?;
    /// assert_eq!(turn.request().id(), repeated.request().id());
    /// assert_eq!(session.history().await?.len(), 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn send(&self, text: impl Into<String>) -> NewMessage {
        NewMessage {
            session: self.clone(),
            text: text.into(),
            key: None,
            from: None,
            needs_listener: false,
        }
    }

    /// Continues to receive the events of a turn after a [cursor](Envelope::cursor), even in another process. A process without a cursor
    /// finds the turn with [`open_turns`](Self::open_turns).
    ///
    /// Use this when a browser reconnects and sends the cursor of the last event that it has shown.
    /// The cursor is a string from outside: a cursor of another session is an error. The store
    /// retains the events of a turn for an hour.
    ///
    /// # Errors
    /// [`ClientError::NoTurn`] if the text is not a cursor of a turn of this session, or if the turn was deleted; [`ClientError::Store`].
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
    /// let shown = turn.next().await.ok_or("no event")??;
    ///
    /// // Another process, with the cursor of the last event that was shown.
    /// let session = Client::new(&store).session("helper", "session-1")?;
    /// let mut rest = session.resume(&shown.cursor).await?;
    /// let mut answer = None;
    /// while let Some(next) = rest.next().await {
    ///     if let TurnEvent::End(end) = next?.event {
    ///         answer = end.text().map(str::to_owned);
    ///     }
    /// }
    /// assert_eq!(answer.as_deref(), Some("Hello!"));
    /// # running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn resume(&self, cursor: &str) -> Result<Turn, ClientError> {
        let no_turn = || self.no_turn(cursor);
        let (id, position) = cursor.rsplit_once('#').ok_or_else(no_turn)?;
        let position = Cursor::parse(position).ok_or_else(no_turn)?;
        let request = self.client.attach(id).map_err(|_| no_turn())?;
        let Some(message) = self.client.find(request.run().trigger_id).await? else {
            return Err(no_turn());
        };
        // A cursor is a string from outside, and must not open another session.
        match request.run().executor == self.executor && self.is_message(&message) {
            true => Ok(Turn::new(self.client.clone(), request, position)),
            false => Err(no_turn()),
        }
    }

    fn no_turn(&self, turn: &str) -> ClientError {
        ClientError::NoTurn {
            session: excerpt(&self.id, 300).into_owned(),
            turn: excerpt(turn, 300).into_owned(),
        }
    }

    /// Returns the ID of the breadcrumb that stores the session's executor and ID, so that [`Client::sessions`] can list the
    /// session. Creates a missing record.
    ///
    /// Two processes that do so at once leave two records. Both use the older one.
    async fn record(&self) -> Result<BreadcrumbId, ClientError> {
        if let Some(id) = self.oldest_record().await? {
            return Ok(id);
        }
        let record = json!({"executor": &*self.executor, "session": &*self.id});
        let new = NewBreadcrumb::new(CHAT_SESSION)
            .tag(self.record_tag())
            .llm_hints(json!({"exclude": ["executor", "session"]}))
            .context(record);
        let created = self.client.store.create(new).await;
        let created = created.map_err(|error| {
            let operation = format!("create the record of session {:?}", &*self.id);
            ClientError::of_store(operation, error)
        })?;
        Ok(self.oldest_record().await?.unwrap_or(created.id))
    }

    async fn oldest_record(&self) -> Result<Option<BreadcrumbId>, ClientError> {
        let query = Query::new(self.record_selector()).limit(64);
        let found = self.client.search(&query).await?;
        let oldest = found
            .iter()
            .min_by_key(|record| (record.created_at, record.id));
        Ok(oldest.map(|oldest| oldest.id))
    }

    /// Returns a selector of the breadcrumbs that represent this chat session in the store, normally one.
    fn record_selector(&self) -> Selector {
        Selector::schema(CHAT_SESSION).all_tags([self.record_tag()])
    }

    fn record_tag(&self) -> String {
        format!("ux:session:{}", hash(&[&self.executor, &self.id]))
    }

    /// Returns a selector of the chat messages of the session.
    fn message_selector(&self) -> Selector {
        Selector::schema(CHAT_MESSAGE).all_tags([self.tag(), turn_tag(&self.executor)])
    }

    fn tag(&self) -> String {
        format!("{SESSION_TAG}{}", self.id)
    }

    /// Returns the run that answers a chat message of the session.
    fn run_of(&self, message: &Breadcrumb) -> RunRef {
        RunRef::new(Arc::clone(&self.executor), message.id, message.version)
    }

    /// Returns `true` if a breadcrumb is a chat message of the session.
    fn is_message(&self, found: &Breadcrumb) -> bool {
        let of_executor = turn_tag(&self.executor);
        let mut tags = found.tags.iter();
        let is_message = found.schema_name.as_deref() == Some(CHAT_MESSAGE);
        is_message && found.tags.contains(&self.tag()) && tags.any(|tag| *tag == of_executor)
    }
}

/// An unsent message of a chat session. Created by [`Session::send`], and sent when it is awaited.
///
/// The methods set options of the message. Dropping it without an await writes nothing.
///
/// # Errors
/// The await returns a [`ClientError`]:
/// - [`ClientError::KeyConflict`] if the [key](Self::key) belongs to a message with another text or
///   author.
/// - [`ClientError::NoListener`] after [`require_listener`](Self::require_listener), if no live
///   worker would answer.
/// - [`ClientError::NoLedger`] if the store has no run ledger.
/// - [`ClientError::Store`] if the store fails, or if the key is empty. The message may have been
///   written.
///
/// # Cancel safety
/// If the await is dropped, the message may have been written. Send it again with the same key.
///
/// # Examples
/// ```
/// use universal_executor::client::ClientError;
/// use universal_executor::{Client, MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let client = Client::new(&MemoryStore::default());
/// let session = client.session("helper", "session-1")?;
/// let sent = session.send("Hello!").require_listener().await;
/// assert!(matches!(sent, Err(ClientError::NoListener { .. })));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a message is sent when it is awaited"]
pub struct NewMessage {
    session: Session,
    text: String,
    key: Option<String>,
    from: Option<String>,
    needs_listener: bool,
}

impl NewMessage {
    /// Sets the chat message's idempotency key, which must not be empty. A second message to the session with the same key, text
    /// and author returns the turn of the first message. A key is retained for at least 7 days, and no longer than the session.
    /// Defaults to no key: each message is a new one.
    ///
    /// Use the ID that the browser or the chat service gave the message, so that a repeated send is
    /// not a second message.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the name of the chat message's author. The message's breadcrumb has this name in `created_by`.
    ///
    /// The field `from` of [`PastTurn`] has it. The service authenticates the author. Defaults to
    /// no name.
    pub fn from(mut self, name: impl Into<String>) -> Self {
        self.from = Some(name.into());
        self
    }

    /// Requires that a live worker can answer the message: otherwise, the message is not sent. Without such a worker, the send fails with
    /// [`ClientError::NoListener`]. The worker must have the session's executor, with subscriptions that match the message. Without this
    /// requirement, a message to an executor that does not exist waits forever.
    pub fn require_listener(mut self) -> Self {
        self.needs_listener = true;
        self
    }

    async fn send(self) -> Result<Turn, ClientError> {
        let Self {
            session,
            text,
            key,
            from,
            needs_listener,
        } = self;
        let mut message = NewBreadcrumb::new(CHAT_MESSAGE)
            .tags([session.tag(), turn_tag(&session.executor)])
            .context(json!({"message": text}));
        message.created_by = from;
        let mut request = session
            .client
            .request(Arc::clone(&session.executor), message);
        if needs_listener {
            request = request.require_listener();
        }
        let record = session.record().await?;
        if let Some(key) = &key {
            request = request.key(request_key(record, key));
        }
        let request: RequestHandle = request.send().await.map_err(|error| match (error, key) {
            // The key of the request is a hash.
            (
                ClientError::KeyConflict {
                    executor, earlier, ..
                },
                Some(key),
            ) => {
                let key = key.into();
                ClientError::KeyConflict {
                    executor,
                    key,
                    earlier,
                }
            }
            (error, _) => error,
        })?;
        Ok(Turn::new(session.client, request, Cursor::default()))
    }
}

/// Returns the idempotency key of the request that sends a chat message to the executor: a hash of the message's key and of the
/// ID of the breadcrumb that records the session. No other session uses the same key, also no later session with the same ID. An
/// empty key stays empty, so the request is refused.
fn request_key(record: BreadcrumbId, key: &str) -> String {
    match key.is_empty() {
        true => String::new(),
        false => hash(&["message", &record.to_string(), key]),
    }
}

impl IntoFuture for NewMessage {
    type Output = Result<Turn, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Writes the message to the chat session, and returns the turn that answers the message.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
