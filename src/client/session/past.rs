//! The past turns of chat sessions, the records of sessions, and the deletion of a session.

use super::super::{Client, ClientError, RequestHandle, creator_of};
use super::outcome::outcome;
use super::{Session, TurnEnd};
use crate::executor::{QUESTION, turn_segments_tag, user_text_of};
use crate::model::{
    Breadcrumb, BreadcrumbId, CHAT_SESSION, CHAT_TURN, Patch, REQUEST_TAG, Selector, Timestamp,
    is_answer_schema, is_reserved_schema, request_tag,
};
use crate::request::human;
use crate::session_log::SessionLogs;
use crate::store::{Commit, Query, RunRef, RunState, StoreError, Write};
use crate::tool::{ToolExecutor, named_request};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;

/// A turn of a chat session: a message, and the outcome if the turn has ended.
///
/// Returned by [`Session::history`]. Its JSON form is the row of a chat page.
///
/// # Examples
/// ```
/// use universal_executor::{Client, MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let client = Client::new(&MemoryStore::default());
/// let session = client.session("helper", "session-1")?;
/// session.send("Hello!").from("ann").await?; // no worker answers it
///
/// let past = session.history().await?.pop().ok_or("no turn")?;
/// assert_eq!(past.message, "Hello!");
/// assert_eq!(past.from.as_deref(), Some("ann"));
/// assert_eq!((past.state, past.answer()), (None, None));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PastTurn {
    /// The request ID of the chat turn, for [`Client::attach`].
    ///
    /// It equals [`RequestHandle::id`] of [`Turn::request`](super::Turn::request), so it connects a
    /// past turn with an open one.
    pub request: String,
    /// The text of the chat message that the turn answers.
    pub message: String,
    /// Name of the message's author, as stated by the sender of the message, or `None` without a stated name.
    pub from: Option<String>,
    /// The time at which the chat message was sent.
    ///
    /// It comes from the store's clock.
    pub at: Timestamp,
    /// The state of the chat turn's run. `None` if no worker has enqueued it, or if the store retains it no more.
    pub state: Option<RunState>,
    /// The outcome of the chat turn (the answer, or the reason for its absence), or `None` if the turn has not ended or the
    /// store has deleted the turn's run.
    pub end: Option<TurnEnd>,
}

impl PastTurn {
    /// Returns the text of the executor's answer, or `None` if the turn has not [completed](TurnEnd::Completed) with a text.
    ///
    /// For a turn that failed, print [`end`](Self::end) instead: its `Display` form is the reason.
    #[must_use]
    pub fn answer(&self) -> Option<&str> {
        let text = self.end.as_ref().and_then(TurnEnd::text)?;
        (!text.is_empty()).then_some(text)
    }
}

/// A chat session in the list of sessions: its ID and its executor.
///
/// Returned by [`Client::sessions`]. Pass both fields to [`Client::session`] for a handle on the
/// session.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SessionView {
    /// ID of the executor that answers the messages of the session.
    pub executor: String,
    /// The ID of the chat session.
    pub session: String,
}

/// Number of turns in one page of [`Session::history`].
const PAGE: usize = 100;

/// Schemas of requests that runs write to people and to tool executors, each with the schema of its answers. People and tool executors
/// outside the requesting run write the answers.
const ANSWER_SCHEMAS: &[(&str, &str)] = &[
    (human::REQUEST, human::RESPONSE),
    (ToolExecutor::REQUEST, ToolExecutor::RESPONSE),
];

/// Maximum number of sessions that [`Client::sessions`] returns: the newest.
const MAX_SESSIONS: usize = 10_000;

impl Client {
    /// Creates the handle of a chat session with an executor, without a read from the store. Nothing is written before the first message.
    ///
    /// Sessions with different executors are different sessions, even with the same ID. Choose an
    /// ID per conversation, such as a UUID. The call neither reads nor writes, and does not check
    /// that the executor exists.
    ///
    /// # Errors
    /// [`ClientError::BadSession`] if the ID is empty or has more than [200 bytes](Session::MAX_ID_BYTES); [`ClientError::NoSessions`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::client::ClientError;
    /// use universal_executor::{Client, MemoryStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// let session = client.session("helper", "session-1")?;
    /// assert_eq!((session.executor(), session.id()), ("helper", "session-1"));
    ///
    /// let bad = client.session("helper", "").map(drop);
    /// assert!(matches!(bad, Err(ClientError::BadSession { size: 0, .. })));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn session(
        &self,
        executor: impl Into<Arc<str>>,
        id: impl Into<Arc<str>>,
    ) -> Result<Session, ClientError> {
        Session::new(self.clone(), executor.into(), id.into())
    }

    /// Lists the chat sessions that were started and not deleted, the most recently started first, 10,000 at most.
    ///
    /// The sessions of all executors and all users are listed. The service decides which of them a
    /// user sees.
    ///
    /// # Errors
    /// [`ClientError::Store`] if the store fails.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Client, MemoryStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// client.session("helper", "session-1")?.send("Hello!").await?;
    ///
    /// let sessions = client.sessions().await?;
    /// assert_eq!(sessions.len(), 1);
    /// let session = client.session(&*sessions[0].executor, &*sessions[0].session)?;
    /// assert_eq!(session.history().await?.len(), 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn sessions(&self) -> Result<Vec<SessionView>, ClientError> {
        let query = Query::new(Selector::schema(CHAT_SESSION)).limit(MAX_SESSIONS);
        let found = self.search(&query).await?;
        let mut known = HashSet::new();
        let views = found.iter().filter_map(|found| {
            let view: SessionView = found.context.parse().ok()?;
            let name = (view.executor.clone(), view.session.clone());
            known.insert(name).then_some(view)
        });
        Ok(views.collect())
    }
}

impl Session {
    /// Returns the newest 100 turns of the session in chronological order, the oldest turn first. A turn that has not ended has
    /// its message and no outcome; [`open_turns`](Self::open_turns) follows it.
    ///
    /// The call reads the messages in one search, and then the run and the answer of each turn. Use
    /// [`history_before`](Self::history_before) for earlier pages.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
    pub async fn history(&self) -> Result<Vec<PastTurn>, ClientError> {
        self.history_before(None).await
    }

    /// Returns the last 100 turns of the session before the turn `turn`, in chronological order. If `turn` is `None`, returns the
    /// newest turns.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`]; [`ClientError::NoTurn`] if the turn is not one of this session, or was deleted.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Client, MemoryStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// let session = client.session("helper", "session-1")?;
    /// session.send("Hello!").await?;
    ///
    /// let mut all = session.history().await?;
    /// loop {
    ///     let mut page = session.history_before(all.first()).await?;
    ///     if page.is_empty() {
    ///         break;
    ///     }
    ///     page.append(&mut all);
    ///     all = page;
    /// }
    /// assert_eq!(all.len(), 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn history_before(
        &self,
        turn: Option<&PastTurn>,
    ) -> Result<Vec<PastTurn>, ClientError> {
        let mut query = Query::new(self.message_selector()).limit(PAGE);
        if let Some(turn) = turn {
            let no_turn = || self.no_turn(&turn.request);
            let run = self.client.attach(&turn.request);
            let run = run.map_err(|_| no_turn())?.run().clone();
            let message = self.client.find(run.trigger_id).await?;
            let message = message.filter(|message| self.is_message(message));
            query.before = Some(message.ok_or_else(no_turn)?.order_key());
        }
        let messages = self.client.search(&query).await?;
        let mut turns = Vec::with_capacity(messages.len());
        for message in messages.iter().rev() {
            turns.push(self.past_turn(message).await?);
        }
        Ok(turns)
    }

    async fn past_turn(&self, message: &Breadcrumb) -> Result<PastTurn, ClientError> {
        let run = self.run_of(message);
        let request = RequestHandle::new(self.client.clone(), run.clone());
        let run = self.client.run(&run).await?;
        let state = run.as_ref().map(|run| run.state);
        let end = match run {
            Some(run) if run.state.is_over() => Some(outcome(&self.client, run).await?),
            Some(_) | None => None,
        };
        Ok(PastTurn {
            request: request.id(),
            message: user_text_of(&message.context)
                .unwrap_or_default()
                .to_owned(),
            from: message.created_by.clone(),
            at: message.created_at,
            state,
            end,
        })
    }

    /// Deletes the chat session with its messages, and cancels its open turns. Also deletes the turns' events, and the requests,
    /// questions and answers of the turns' runs and their child runs. Deletes the logs of all workloads under this session ID. The
    /// contexts are emptied before the deletion, so that no tombstone has them. Returns the number of deleted breadcrumbs.
    ///
    /// Breadcrumbs of other schemas that a run created or changed stay. So do answers to requests of other runs and programs. If such a
    /// request has the same request ID, an answer is deleted only if it names the request of this session by its breadcrumb.
    ///
    /// A message that is sent during the call can stay, and events that a worker writes before it learns of the cancellation expire
    /// within an hour. After an error, call it again.
    ///
    /// Use this when a user deletes a conversation. A later message under the same ID starts an
    /// empty session.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`], [`ClientError::Store`] and [`ClientError::SessionLog`].
    ///
    /// # Cancel safety
    /// If this future is dropped, a part of the session may be deleted. Call it again.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Client, MemoryStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// let session = client.session("helper", "session-1")?;
    /// session.send("Hello!").await?;
    ///
    /// assert!(session.delete().await? > 0);
    /// assert!(session.history().await?.is_empty());
    /// assert!(client.sessions().await?.is_empty());
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn delete(&self) -> Result<u64, ClientError> {
        let mut deleted = 0;
        let query = Query::new(self.message_selector()).limit(PAGE);
        loop {
            let mut deleted_in_page = 0;
            for message in &self.client.search(&query).await? {
                deleted_in_page += self.delete_turn(message).await?;
            }
            if deleted_in_page == 0 {
                break;
            }
            deleted += deleted_in_page;
        }
        deleted += self.delete_all(self.record_selector()).await?;
        let logs = SessionLogs::new(Arc::clone(&self.client.store), Arc::clone(&self.id));
        Ok(deleted + logs.delete().await?)
    }

    async fn delete_turn(&self, message: &Arc<Breadcrumb>) -> Result<u64, ClientError> {
        let run = self.run_of(message);
        self.cancel(&run).await?;
        let mut deleted = self.delete_written(&run).await? + self.erase(message).await?;
        // A worker may have enqueued the run meanwhile. Without its trigger, a later attempt ends at once.
        self.cancel(&run).await?;
        deleted += self.delete_written(&run).await?;
        let events = Selector::schema(CHAT_TURN).all_tags([turn_segments_tag(message.id)]);
        Ok(deleted + self.delete_all(events).await?)
    }

    async fn cancel(&self, run: &RunRef) -> Result<(), ClientError> {
        // A run that no worker has received needs no row: without its message, it ends at once.
        if self.client.cancel_known(run).await?.is_some() {
            self.client.cancel_children(run).await?;
        }
        Ok(())
    }

    /// Deletes the requests, questions and answers that a run and its child runs wrote in a deleted chat session.
    async fn delete_written(&self, run: &RunRef) -> Result<u64, ClientError> {
        /// Maximum number of runs in the deletion of one turn's breadcrumbs: the run of the turn, and its child runs.
        const MAX_RUNS: usize = 1_000;
        let mut deleted = 0;
        // Children first: a request leads to its child, so a call that continues after an error needs the requests that are left.
        for run in self.with_children(run, MAX_RUNS).await?.into_iter().rev() {
            let found = self.client.run(&run).await?;
            for id in found.map(|found| found.written).unwrap_or_default() {
                let Some(found) = self.client.find(id).await? else {
                    continue;
                };
                if is_request_or_answer(&found, &run) {
                    deleted += self.delete_replies(&found).await? + self.erase(&found).await?;
                }
            }
        }
        Ok(deleted)
    }

    /// Returns a run and the runs that its breadcrumbs triggered, each after its parent, and at most `limit` runs.
    async fn with_children(
        &self,
        first: &RunRef,
        limit: usize,
    ) -> Result<Vec<RunRef>, ClientError> {
        let (mut runs, mut at) = (vec![first.clone()], 0);
        while let Some(run) = runs.get(at).cloned() {
            let remaining = limit.saturating_sub(runs.len());
            if remaining == 0 {
                break;
            }
            let children = self.client.children(&run).await?;
            runs.extend(children.into_iter().take(remaining));
            at += 1;
        }
        Ok(runs)
    }

    /// Deletes the answers that people, and tool executors outside the run, wrote to a run's request. Ignores a breadcrumb of any other
    /// schema, because the breadcrumb can have the request tags of other runs.
    async fn delete_replies(&self, request: &Breadcrumb) -> Result<u64, ClientError> {
        let schema = request.schema_name.as_deref();
        let schemas = ANSWER_SCHEMAS
            .iter()
            .find(|(request_schema, _)| schema == Some(*request_schema));
        let Some((request_schema, answer_schema)) = schemas else {
            return Ok(0);
        };
        let mut deleted = 0;
        for replies in replies_to(request, request_schema, answer_schema) {
            let is_only = self.is_only_request(request.id, replies.requests).await?;
            let mut query = Query::new(replies.answers).limit(PAGE);
            loop {
                let found = self.client.search(&query).await?;
                let Some(last) = found.last() else { break };
                query.before = Some(last.order_key());
                for answer in &found {
                    if names_request(answer, request.id).unwrap_or(is_only) {
                        deleted += self.erase(answer).await?;
                    }
                }
            }
        }
        Ok(deleted)
    }

    /// Returns `true` if the selector `requests` matches no breadcrumb but the request breadcrumb with the ID `id`. Every answer
    /// with the same tag or request ID is then an answer to this request.
    async fn is_only_request(
        &self,
        id: BreadcrumbId,
        requests: Selector,
    ) -> Result<bool, ClientError> {
        let query = Query::new(requests).limit(2);
        let found = self.client.search(&query).await?;
        Ok(found.iter().all(|found| found.id == id))
    }

    async fn delete_all(&self, selector: Selector) -> Result<u64, ClientError> {
        let (query, mut deleted) = (Query::new(selector).limit(PAGE), 0);
        loop {
            let mut deleted_in_page = 0;
            for found in &self.client.search(&query).await? {
                deleted_in_page += self.erase(found).await?;
            }
            if deleted_in_page == 0 {
                return Ok(deleted);
            }
            deleted += deleted_in_page;
        }
    }

    /// Empties the title and the context of a breadcrumb, and deletes the breadcrumb. Returns 0 if the breadcrumb was deleted before.
    async fn erase(&self, found: &Breadcrumb) -> Result<u64, ClientError> {
        let (id, version) = (found.id, found.version);
        let patch = Patch::new().title("").context(json!({}));
        let writes = vec![
            Write::Update { id, version, patch },
            Write::Delete { id, by: None },
        ];
        match self.client.store.commit(Commit::from(writes)).await {
            Ok(_) => Ok(1),
            Err(StoreError::NotFound { .. }) => Ok(0),
            Err(error) => {
                let operation = format!("delete breadcrumb {id} v{version}");
                Err(ClientError::of_store(operation, error))
            }
        }
    }
}

/// Returns `true` if a breadcrumb is a request, a question or an answer that a run created.
fn is_request_or_answer(found: &Breadcrumb, run: &RunRef) -> bool {
    let schema = found.schema_name.as_deref().unwrap_or_default();
    (is_reserved_schema(schema) || is_answer_schema(schema))
        && creator_of(found).as_ref() == Some(run)
}

/// Selectors for the requests that have the same request tag or request ID, and for the answers to these requests.
struct ReplySelectors {
    requests: Selector,
    answers: Selector,
}

/// Returns the selectors of the answers to a request. The selectors use the tag with the request ID from the request's context. If this
/// tag would be too long, the selectors use the request ID in the contexts. A request without an ID, or with an ID of more than 512
/// bytes, is answered under its own tags or its breadcrumb ID.
fn replies_to(
    request: &Breadcrumb,
    request_schema: &str,
    answer_schema: &str,
) -> Vec<ReplySelectors> {
    let with_tag = |tag: String| ReplySelectors {
        requests: Selector::schema(request_schema).all_tags([&*tag]),
        answers: Selector::schema(answer_schema).all_tags([&*tag]),
    };
    let Some(id) = named_request(request) else {
        let tags = request.tags.iter();
        let tags = tags.filter(|tag| tag.starts_with(REQUEST_TAG)).cloned();
        let tags = tags.chain([request_tag(&request.id.to_string())]);
        return tags.map(with_tag).collect();
    };
    let tag = request_tag(id);
    if tag.len() <= Breadcrumb::MAX_TAG_BYTES {
        return vec![with_tag(tag)];
    }
    vec![ReplySelectors {
        requests: Selector::schema(request_schema).matching("$.requestId", "eq", id),
        answers: Selector::schema(answer_schema).matching("$.request_id", "eq", id),
    }]
}

/// Returns `true` if an answer names the ID of the breadcrumb `request`, `false` if the answer names another ID, and `None` if the answer
/// names no ID. The ID is the trigger ID in the answer's `creator` or, without a creator, the answer's `question`.
fn names_request(answer: &Breadcrumb, request: BreadcrumbId) -> Option<bool> {
    let creator = answer.context.get("creator");
    let trigger = creator.and_then(|creator| creator.get("trigger_id"));
    let named = trigger.or_else(|| answer.context.get(QUESTION))?;
    Some(named.as_str() == Some(&*request.to_string()))
}

#[cfg(test)]
mod tests;
