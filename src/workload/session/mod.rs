//! What was said in a session, kept in the store as a log.

mod compact;
mod held;
mod log;
pub(super) mod replay;

pub use log::{Log, LogEntry};

pub(super) use compact::compacted;
pub(super) use log::written;

use crate::model::{Breadcrumb, BreadcrumbId, Json, NewBreadcrumb, Patch, Selector};
use crate::session_log::{ENTRY, HEAD, SessionError, SessionLogs, digest, log_tag, parts_tag};
use crate::store::{BreadcrumbStore, Commit, Query, StoreError, Write};
use crate::workflow::StepPath;
use log::{About, Kept, MOST_ENTRIES};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Sessions in a store.
///
/// A session has a log for itself, and one for each agent in a flow, by the path of its step. A log is a breadcrumb of the schema
/// `session.log.v1`, whose version is that of the log, and one of `session.entry.v1` for each entry. Nothing is ever taken out of
/// it unless the session is [deleted](Self::delete): where a turn adds more than once, as one does that waits or is done again
/// after a crash, the last entry counts. Entries belong to the breadcrumb of their log, and the logs of agents to that of the
/// session: one that is begun anew after it was deleted has none of what was there before.
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
/// // Whoever began from the same log comes too late.
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

/// A session, or the conversation of an agent in it. A clone is another handle on the same.
#[derive(Clone, Debug)]
pub struct Conversation {
    store: Arc<dyn BreadcrumbStore>,
    id: Arc<str>,
    scope: StepPath,
    /// The log of the session that a turn began with, to which those of agents belong. What it adds is nobody's once that is deleted.
    held: Option<BreadcrumbId>,
}

impl SessionStore {
    /// Sessions in this store.
    #[must_use]
    pub fn new(store: Arc<dyn BreadcrumbStore>) -> Self {
        Self { store }
    }

    /// The session of a name. One that nobody has added to is empty.
    #[must_use]
    pub fn session(&self, id: impl Into<Arc<str>>) -> Conversation {
        Conversation {
            store: Arc::clone(&self.store),
            id: id.into(),
            scope: StepPath::new(""),
            held: None,
        }
    }
}

impl Conversation {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The conversation of the agent at a path.
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

    /// Reads the log.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn load(&self) -> Result<Log, SessionError> {
        let head = match self.placed().await? {
            Some(placed) => placed.head().await?,
            None => None,
        };
        self.check_held(head.as_deref())?;
        let Some(head) = head else {
            return Ok(Log::default());
        };
        let about: About = self.read(&head.context)?;
        let first = about.since.max(about.entries.saturating_sub(MOST_ENTRIES));
        // Some may have been added since.
        let most = (about.entries - first).saturating_add(16);
        let all = Selector::schema(ENTRY);
        let mut kept = self.entries(head.id, all, most).await?;
        kept.retain(|kept| (first..about.entries).contains(&kept.number));
        Ok(Log::new((head.id, head.version), about, kept))
    }

    /// Adds what came of a turn to the log that was read. It stands for all that this turn has added before.
    ///
    /// # Errors
    /// [`SessionError::Conflict`] if somebody has added to it since.
    pub async fn append(&self, to: &Log, turn: &str, entry: LogEntry) -> Result<(), SessionError> {
        self.add(to, turn, "", entry).await
    }

    /// The same for a part of a turn, which has more than one where an agent is asked more than once.
    pub(super) async fn add(
        &self,
        to: &Log,
        turn: &str,
        part: &str,
        entry: LogEntry,
    ) -> Result<(), SessionError> {
        let session = match self.placed().await? {
            Some(placed) => placed,
            None => self.within(self.whole().begin().await?.0),
        };
        if session.is_orphan().await? {
            return Err(self.deleted());
        }
        let head = match to.head {
            Some(head) => head,
            None => session.begin().await?,
        };
        let (number, turn) = (to.about.entries, digest(&[turn]));
        let began = session.part_of().unwrap_or(head.0);
        let kept = json!({
            "session": &*self.id, "scope": self.scope, "began": began, "number": number,
            "turn": turn, "part": part, "entry": entry.fitting(),
        });
        let kept = NewBreadcrumb::new(ENTRY)
            .tags([tag_of_entries(head.0), parts_tag(&self.id)])
            .context(as_text(kept));
        let about = About {
            entries: number + 1,
            began: session.part_of(),
            ..to.about.clone()
        };
        session.change(head, &about, Some(kept)).await?;
        if session.is_orphan().await? {
            session.logs().sweep().await?;
            return Err(self.deleted());
        }
        Ok(())
    }

    /// Reads the log of the agent at a path as far as it counts: without what it said in turns that came to nothing, which have
    /// added nothing to the log of the session.
    pub(super) async fn load_child(&self, path: &StepPath, of: &Log) -> Result<Log, SessionError> {
        let mut log = self.child(path).load().await?;
        let mut said: BTreeSet<String> = of.turns().map(str::to_owned).collect();
        let unknown = log.turns().filter(|turn| !said.contains(*turn));
        let unknown: Vec<&str> = unknown.collect();
        // What is not read any more has to be asked for.
        if let Some((head, _)) = of.head
            && !(unknown.is_empty() || of.is_whole())
        {
            let entries = Selector::schema(ENTRY).matching("$.turn", "in", unknown);
            let found = self.entries(head, entries, MOST_ENTRIES).await?;
            said.extend(
                found
                    .into_iter()
                    .filter(Kept::is_said)
                    .map(|kept| kept.turn),
            );
        }
        log.kept.retain(|kept| said.contains(&kept.turn));
        Ok(log)
    }

    /// The newest entries of a log that are selected, in no order.
    async fn entries(
        &self,
        head: BreadcrumbId,
        which: Selector,
        most: u64,
    ) -> Result<Vec<Kept>, SessionError> {
        let mut query = Query::new(which.all_tags([tag_of_entries(head)]));
        query.limit = usize::try_from(most).unwrap_or(usize::MAX);
        let found = self.store.search(&query).await;
        let found = found.map_err(|error| self.failed(error))?;
        found
            .iter()
            .map(|entry| self.read(&entry.context))
            .collect()
    }

    /// Changes what is known of the log, and adds to it, in one step. Says what the log is then.
    async fn change(
        &self,
        (id, version): (BreadcrumbId, u64),
        about: &About,
        add: Option<NewBreadcrumb>,
    ) -> Result<Option<(BreadcrumbId, u64)>, SessionError> {
        let patch = Patch::default().context(self.about(about));
        let mut writes = vec![Write::Update { id, version, patch }];
        writes.extend(add.map(Write::Create));
        let committed = self.store.commit(Commit::from(writes)).await;
        let committed = committed.map_err(|error| self.failed(error))?;
        let head = committed.written.first();
        Ok(head.map(|head| (head.id, head.version)))
    }

    /// Makes the log. Where two do so at the same time both find the older one. If somebody has added to that meanwhile, its
    /// version says so.
    async fn begin(&self) -> Result<(BreadcrumbId, u64), SessionError> {
        if let Some(head) = self.head().await? {
            self.check_held(Some(&head))?;
            return Ok((head.id, 1));
        }
        let about = self.about(&About {
            began: self.part_of(),
            ..About::default()
        });
        let mut new = NewBreadcrumb::new(HEAD)
            .title(format!("Session {}", self.id))
            .tag(self.tag())
            .context(about);
        if !self.is_whole() {
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

    fn about(&self, about: &About) -> Json {
        as_text(json!({
            "session": &*self.id, "scope": self.scope, "began": about.began, "entries": about.entries,
            "since": about.since, "summary": about.summary,
        }))
    }

    /// What the log is found by. That of an agent is of the session as it was begun, not of its name.
    fn tag(&self) -> String {
        log_tag(&self.id, self.scope.as_str(), self.part_of())
    }

    /// All logs under the ID of the session.
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

/// What the entries of a log are found by.
fn tag_of_entries(head: BreadcrumbId) -> String {
    format!("session-entries:{head}")
}

/// A value that a store in memory keeps in a fraction of the room. What cannot be read as text is for the store to refuse.
fn as_text(value: Value) -> Json {
    Json::from_text(value.to_string()).unwrap_or_else(|_| value.into())
}

#[cfg(test)]
mod tests;
