//! Sessions of workloads: their conversations, saved as logs in the store.

mod binding;
mod compact;
mod log;
pub(super) mod replay;

pub use log::{Log, LogEntry};

pub(super) use compact::compact_log;
pub(super) use log::json_bytes;

use crate::model::{Breadcrumb, BreadcrumbId, Json, NewBreadcrumb, Patch, Selector};
use crate::session_log::{ENTRY, HEAD, SessionError, SessionLogs, digest, log_tag, parts_tag};
use crate::store::{BreadcrumbStore, Commit, Query, StoreError, Write};
use crate::workflow::StepPath;
use log::{HeadFields, MAX_ENTRIES, StoredEntry};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Access to the sessions of workloads in a store.
///
/// A session has a log for itself, and a log for each agent in a flow, identified by the path of its step. A log is a
/// breadcrumb of the schema `session.log.v1`, whose version is the version of the log, and a breadcrumb of
/// `session.entry.v1` for each entry. Entries are never removed unless the session is [deleted](Self::delete). If a
/// turn adds several entries, because it waits or is repeated after a crash, the last entry counts.
///
/// Entries belong to the breadcrumb of their log, and the logs of agents to the breadcrumb of the session's log. A
/// session that starts again after its deletion therefore contains nothing of the deleted one.
///
/// Use it to show earlier messages, or to continue a session in your own code. Executors and
/// supervisors read and write sessions themselves.
///
/// ```
/// use std::sync::Arc;
/// use universal_executor::MemoryStore;
/// use universal_executor::agent::ChatMessage;
/// use universal_executor::workload::{LogEntry, SessionError, SessionStore};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let session = SessionStore::new(Arc::new(MemoryStore::default())).session("session-1");
/// let empty = session.load().await?;
/// let said = vec![ChatMessage::user("Hi"), ChatMessage::assistant("Hello!")];
/// session.append(&empty, "turn-1", LogEntry::Said { messages: said }).await?;
///
/// assert_eq!(session.load().await?.messages().len(), 2);
/// // A writer that read the log before this entry fails with a conflict.
/// let late = session.append(&empty, "turn-2", LogEntry::Said { messages: vec![] }).await;
/// assert!(matches!(late, Err(SessionError::Conflict { .. })));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SessionStore {
    store: Arc<dyn BreadcrumbStore>,
}

/// The conversation of a session, or of one agent in a session. A clone is another handle on the same conversation.
///
/// [`SessionStore::session`] returns it. Each call of [`load`](Self::load) and
/// [`append`](Self::append) accesses the store.
#[derive(Clone, Debug)]
pub struct Conversation {
    store: Arc<dyn BreadcrumbStore>,
    id: Arc<str>,
    scope: StepPath,
    /// ID of the session log that this conversation had at the start of the turn, or `None` for a conversation outside of a turn.
    /// The logs of the agents belong to this session log. After the deletion of this log, the conversation adds nothing.
    bound_log: Option<BreadcrumbId>,
}

impl SessionStore {
    /// Creates the access to the sessions in a store.
    #[must_use]
    pub fn new(store: Arc<dyn BreadcrumbStore>) -> Self {
        Self { store }
    }

    /// Returns a handle to the conversation of the session with this ID, without access to the store. A session without entries
    /// is empty.
    #[must_use]
    pub fn session(&self, id: impl Into<Arc<str>>) -> Conversation {
        Conversation {
            store: Arc::clone(&self.store),
            id: id.into(),
            scope: StepPath::new(""),
            bound_log: None,
        }
    }
}

impl Conversation {
    /// Returns the ID of the session that the conversation belongs to.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the conversation of the agent at a step path in the session.
    #[must_use]
    pub fn child(&self, path: &StepPath) -> Self {
        let scope = match self.scope.as_str() {
            "" => path.clone(),
            scope => StepPath::new(format!("{scope}/{path}")),
        };
        Self {
            scope,
            ..self.clone()
        }
    }

    /// Reads the log of the conversation from the store. Returns an empty log for a session without entries.
    ///
    /// Only the newest 1,000 entries are read.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use universal_executor::MemoryStore;
    /// use universal_executor::workload::SessionStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let sessions = SessionStore::new(Arc::new(MemoryStore::default()));
    /// let log = sessions.session("session-1").load().await?;
    /// assert_eq!((log.version(), log.entries().len()), (0, 0));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// Returns a [`SessionError`] if the store fails, a breadcrumb of the log is invalid, or the session was deleted
    /// during the turn of this handle.
    pub async fn load(&self) -> Result<Log, SessionError> {
        let head = match self.bound_to_current_log().await? {
            Some(bound) => bound.head().await?,
            None => None,
        };
        self.check_bound_log(head.as_deref())?;
        let Some(head) = head else {
            return Ok(Log::default());
        };
        let head_fields: HeadFields = self.read(&head.context)?;
        let first = head_fields
            .since
            .max(head_fields.entries.saturating_sub(MAX_ENTRIES));
        // Further entries may have been added in the meantime.
        let limit = (head_fields.entries - first).saturating_add(16);
        let all = Selector::schema(ENTRY);
        let mut stored = self.entries(head.id, all, limit).await?;
        stored.retain(|stored| (first..head_fields.entries).contains(&stored.number));
        Ok(Log::new((head.id, head.version), head_fields, stored))
    }

    /// Adds the entry of a workload turn to the conversation's log. Replaces all earlier entries of the turn.
    ///
    /// `to` is the log as [`load`](Self::load) returned it, and `turn` a name of the turn that is
    /// unique in the session, such as a run ID. A turn that runs while an entry is added fails with
    /// a conflict.
    ///
    /// An entry of messages with more than 512 KiB of JSON is shortened without an error: only its first and last message remain, with
    /// texts of at most 128 KiB.
    ///
    /// # Errors
    /// Returns [`SessionError::Conflict`] if another writer changed the log since `to` was read, and the errors of
    /// [`load`](Self::load).
    ///
    /// # Cancel safety
    /// If the future is dropped, the entry may or may not be added. Read the log again before another attempt.
    pub async fn append(&self, to: &Log, turn: &str, entry: LogEntry) -> Result<(), SessionError> {
        self.add(to, turn, "", entry).await
    }

    /// Adds the entry for one part of a turn to the conversation's log: one call of the agent, or the whole turn if `part` is empty.
    pub(super) async fn add(
        &self,
        to: &Log,
        turn: &str,
        part: &str,
        entry: LogEntry,
    ) -> Result<(), SessionError> {
        let session = match self.bound_to_current_log().await? {
            Some(bound) => bound,
            None => self.bound_to(self.session_conversation().create_log().await?.0),
        };
        if session.is_orphan().await? {
            return Err(self.deleted());
        }
        let head = match to.head {
            Some(head) => head,
            None => session.create_log().await?,
        };
        let (number, turn) = (to.head_fields.entries, digest(&[turn]));
        let began = session.session_log_id().unwrap_or(head.0);
        let context = json!({
            "session": &*self.id, "scope": self.scope, "began": began, "number": number,
            "turn": turn, "part": part, "entry": entry.shortened(),
        });
        let breadcrumb = NewBreadcrumb::new(ENTRY)
            .tags([tag_of_entries(head.0), parts_tag(&self.id)])
            .context(as_text(context));
        let head_fields = HeadFields {
            entries: number + 1,
            began: session.session_log_id(),
            ..to.head_fields.clone()
        };
        session.change(head, &head_fields, Some(breadcrumb)).await?;
        if session.is_orphan().await? {
            session.logs().sweep().await?;
            return Err(self.deleted());
        }
        Ok(())
    }

    /// Reads the log of the agent with this step path in the session. Omits its messages from turns that failed, because these have no
    /// messages in the session's log `of`.
    pub(super) async fn load_child(&self, path: &StepPath, of: &Log) -> Result<Log, SessionError> {
        let mut log = self.child(path).load().await?;
        let mut known_turns: BTreeSet<String> = of.turns().map(str::to_owned).collect();
        let unknown = log.turns().filter(|turn| !known_turns.contains(*turn));
        let unknown: Vec<&str> = unknown.collect();
        // Turns of entries that are no longer read need a query.
        if let Some((head, _)) = of.head
            && !(unknown.is_empty() || of.is_complete())
        {
            let entries = Selector::schema(ENTRY).matching("$.turn", "in", unknown);
            let found = self.entries(head, entries, MAX_ENTRIES).await?;
            known_turns.extend(
                found
                    .into_iter()
                    .filter(StoredEntry::has_messages)
                    .map(|stored| stored.turn),
            );
        }
        log.stored
            .retain(|stored| known_turns.contains(&stored.turn));
        Ok(log)
    }

    /// Returns the newest entries of a session log whose breadcrumbs match `selector`, in any order and at most `limit`.
    async fn entries(
        &self,
        head: BreadcrumbId,
        selector: Selector,
        limit: u64,
    ) -> Result<Vec<StoredEntry>, SessionError> {
        let mut query = Query::new(selector.all_tags([tag_of_entries(head)]));
        query.limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let found = self.store.search(&query).await;
        let found = found.map_err(|error| self.failed(error))?;
        found
            .iter()
            .map(|entry| self.read(&entry.context))
            .collect()
    }

    /// Updates the head of a session log (the breadcrumb with the log's entry count) and adds an entry, in one commit. Returns
    /// the new ID and version of the log.
    async fn change(
        &self,
        (id, version): (BreadcrumbId, u64),
        head_fields: &HeadFields,
        entry: Option<NewBreadcrumb>,
    ) -> Result<Option<(BreadcrumbId, u64)>, SessionError> {
        let patch = Patch::default().context(self.head_context(head_fields));
        let mut writes = vec![Write::Update { id, version, patch }];
        writes.extend(entry.map(Write::Create));
        let committed = self.store.commit(Commit::from(writes)).await;
        let committed = committed.map_err(|error| self.failed(error))?;
        let head = committed.written.first();
        Ok(head.map(|head| (head.id, head.version)))
    }

    /// Creates the head of a session log (the breadcrumb with the log's entry count) in the store, unless the log exists. Two
    /// concurrent calls both return the older log. Returns version 1, so that a log with entries of another writer causes a
    /// conflict.
    async fn create_log(&self) -> Result<(BreadcrumbId, u64), SessionError> {
        if let Some(head) = self.head().await? {
            self.check_bound_log(Some(&head))?;
            return Ok((head.id, 1));
        }
        let context = self.head_context(&HeadFields {
            began: self.session_log_id(),
            ..HeadFields::default()
        });
        let mut new = NewBreadcrumb::new(HEAD)
            .title(format!("Session {}", self.id))
            .tag(self.tag())
            .context(context);
        if !self.is_whole_session() {
            new = new.tag(parts_tag(&self.id));
        }
        let commit = Commit::from(vec![Write::Create(new)]);
        self.store
            .commit(commit)
            .await
            .map_err(|error| self.failed(error))?;
        let oldest = self.head().await?.ok_or_else(|| self.conflict())?;
        Ok((oldest.id, 1))
    }

    async fn head(&self) -> Result<Option<Arc<Breadcrumb>>, SessionError> {
        let query = Query::new(Selector::schema(HEAD).all_tags([self.tag()])).limit(64);
        let found = self
            .store
            .search(&query)
            .await
            .map_err(|error| self.failed(error))?;
        Ok(found
            .into_iter()
            .min_by_key(|head| (head.created_at, head.id)))
    }

    fn head_context(&self, head_fields: &HeadFields) -> Json {
        as_text(json!({
            "session": &*self.id, "scope": self.scope, "began": head_fields.began, "entries": head_fields.entries,
            "since": head_fields.since, "summary": head_fields.summary,
        }))
    }

    /// Returns the tag by which the head of a session log is found: the breadcrumb with the log's entry count. For an agent, the
    /// tag contains the ID of the session's log, so that a new session has new logs.
    fn tag(&self) -> String {
        log_tag(&self.id, self.scope.as_str(), self.session_log_id())
    }

    /// Returns a handle to all logs of this session in the store.
    fn logs(&self) -> SessionLogs {
        SessionLogs::new(Arc::clone(&self.store), Arc::clone(&self.id))
    }

    fn read<T: DeserializeOwned>(&self, context: &Json) -> Result<T, SessionError> {
        context.parse().map_err(|source| SessionError::Unreadable {
            session: Arc::clone(&self.id),
            source,
        })
    }

    fn failed(&self, error: StoreError) -> SessionError {
        SessionError::of_store(&self.id, error)
    }

    fn deleted(&self) -> SessionError {
        SessionError::deleted(&self.id)
    }

    pub(super) fn conflict(&self) -> SessionError {
        SessionError::conflict(&self.id)
    }
}

/// Returns the tag of the entries of a session log.
fn tag_of_entries(head: BreadcrumbId) -> String {
    format!("session-entries:{head}")
}

/// Converts the context of a session log breadcrumb to JSON text, which needs less memory than the parsed value. A value that
/// cannot be converted stays parsed, and the store rejects the value.
fn as_text(value: Value) -> Json {
    Json::from_text(value.to_string()).unwrap_or_else(|_| value.into())
}

#[cfg(test)]
mod tests;
