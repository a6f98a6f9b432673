//! What was said in a session, kept in the store as a log.

mod compact;
mod replay;
mod talk;

pub(super) use compact::compacted;
pub(super) use talk::Talk;

use crate::agent::Message;
use crate::agent::compaction::summarised;
use crate::error::Retry;
use crate::model::{Breadcrumb, BreadcrumbId, Json, NewBreadcrumb, Patch, Selector};
use crate::store::{BreadcrumbStore, Commit, Query, StoreError, Write};
use crate::workflow::StepPath;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The schema of what is known of a log as a whole, and of what is added to it.
const HEAD: &str = "session.log.v1";
const ENTRY: &str = "session.entry.v1";

/// How many entries of a log are read at the most, the newest.
const MOST_ENTRIES: u64 = 1_000;

/// How large an entry may be before the calls of tools are left out of it, and how large a text of it may be then.
const ENTRY_BYTES: usize = 512 << 10;
const TEXT_BYTES: usize = 128 << 10;

/// Sessions in a store.
///
/// A session has a log for itself, and one for each agent in a flow, by the path of its step. A log is a breadcrumb of the schema
/// `session.log.v1`, whose version is that of the log, and one of `session.entry.v1` for each entry.
///
/// ```
/// use std::sync::Arc;
/// use universal_executor::MemoryStore;
/// use universal_executor::agent::Message;
/// use universal_executor::workload::{LogEntry, SessionError, SessionStore};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let session = SessionStore::new(Arc::new(MemoryStore::default())).session("session-1");
/// let empty = session.load().await?;
/// let said = vec![Message::user("Hi"), Message::assistant("Hello!")];
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
pub struct Session {
    store: Arc<dyn BreadcrumbStore>,
    id: Arc<str>,
    scope: StepPath,
}

/// A log, as it was read.
#[derive(Clone, Debug, Default)]
pub struct Log {
    head: Option<(BreadcrumbId, u64)>,
    about: About,
    entries: Vec<LogEntry>,
}

/// Something added to a log.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogEntry {
    /// What was said in a turn: the message, calls of tools with what they came to, and the answer.
    Said {
        /// In order.
        messages: Vec<Message>,
    },
    /// A turn that waits for others, and goes on if this is the last entry.
    Suspended {
        /// What the workload was told.
        message: super::Message,
        /// What it was set off by.
        trigger: Box<Breadcrumb>,
        /// What it goes on with.
        state: Json,
    },
}

/// What is known of a log as a whole.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct About {
    /// How many entries it has.
    entries: u64,
    /// Those before are not read any more.
    since: u64,
    /// What those that are not read any more came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
}

/// A session cannot be read, or added to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Somebody else has added to it since it was read: read it again and decide anew.
    #[error("session {session:?} was added to by somebody else")]
    Conflict {
        /// The session.
        session: Arc<str>,
    },
    /// What is there cannot be read.
    #[error("an entry of session {session:?} cannot be read")]
    Unreadable {
        /// The session.
        session: Arc<str>,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The store does not do what it should.
    #[error("session {session:?} cannot be reached")]
    Store {
        /// The session.
        session: Arc<str>,
        /// What it says.
        source: StoreError,
    },
}

impl SessionError {
    /// Whether doing the same from the beginning could succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Conflict { .. } => Retry::After(std::time::Duration::ZERO),
            Self::Unreadable { .. } => Retry::Never,
            Self::Store { source, .. } => source.retry(),
        }
    }
}

impl SessionStore {
    /// Sessions in this store.
    #[must_use]
    pub fn new(store: Arc<dyn BreadcrumbStore>) -> Self {
        Self { store }
    }

    /// The session of a name. One that nobody has added to is empty.
    #[must_use]
    pub fn session(&self, id: impl Into<Arc<str>>) -> Session {
        Session {
            store: Arc::clone(&self.store),
            id: id.into(),
            scope: StepPath::new(""),
        }
    }
}

impl Log {
    /// What was said, as a model is shown it: a summary of what is not kept, then all messages, without calls that have no
    /// result and results that have no call.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        let summary = self.about.summary.as_ref();
        let summary = summary.map(|text| summarised(text));
        let said = self.entries.iter().filter_map(|entry| match entry {
            LogEntry::Said { messages } => Some(messages),
            LogEntry::Suspended { .. } => None,
        });
        replay::well_formed(summary.into_iter().chain(said.flatten().cloned()).collect())
    }

    /// Its entries, oldest first, without those that are not read any more.
    #[must_use]
    pub fn entries(&self) -> &[LogEntry] {
        &self.entries
    }

    /// How many entries it has had, those included that are not read any more.
    pub(super) const fn entries_ever(&self) -> u64 {
        self.about.entries
    }

    /// How often it was changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.head.map_or(0, |(_, version)| version)
    }
}

impl Session {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The conversation of the agent at a path.
    #[must_use]
    pub fn child(&self, path: &StepPath) -> Self {
        Self {
            scope: path.clone(),
            ..self.clone()
        }
    }

    /// Reads the log.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn load(&self) -> Result<Log, SessionError> {
        let Some(head) = self.head().await? else {
            return Ok(Log::default());
        };
        let about: About = self.read(&head.context)?;
        let first = about.since.max(about.entries.saturating_sub(MOST_ENTRIES));
        let mut query = Query::new(Selector::schema(ENTRY).all_tags([self.tag()]));
        // Some may have been added since.
        query.limit = usize::try_from(about.entries - first)
            .unwrap_or(usize::MAX)
            .saturating_add(16);
        let found = self
            .store
            .search(&query)
            .await
            .map_err(|error| self.failed(error))?;
        let mut entries = Vec::new();
        for entry in found {
            let kept: Kept = self.read(&entry.context)?;
            if (first..about.entries).contains(&kept.number) {
                entries.push(kept);
            }
        }
        entries.sort_by_key(|kept| kept.number);
        Ok(Log {
            head: Some((head.id, head.version)),
            about,
            entries: entries.into_iter().map(|kept| kept.entry).collect(),
        })
    }

    /// Adds what came of a turn to the log that was read, unless that turn has added to it already.
    ///
    /// # Errors
    /// [`SessionError::Conflict`] if somebody else has added to it since.
    pub async fn append(&self, to: &Log, turn: &str, entry: LogEntry) -> Result<(), SessionError> {
        let turn = format!("turn:{}", digest(&[turn, &entry.once(to.about.entries)]));
        let query =
            Query::new(Selector::schema(ENTRY).all_tags([self.tag(), turn.clone()])).limit(1);
        let found = self
            .store
            .search(&query)
            .await
            .map_err(|error| self.failed(error))?;
        if !found.is_empty() {
            return Ok(());
        }
        let number = to.about.entries;
        let kept = json!({"session": &*self.id, "scope": self.scope, "number": number, "entry": entry.fitting()});
        let kept = NewBreadcrumb::new(ENTRY)
            .tags([self.tag(), turn])
            .context(kept);
        let about = About {
            entries: number + 1,
            ..to.about.clone()
        };
        self.change(to, &about, Some(kept)).await
    }

    /// Changes what is known of the log, and adds to it, in one step.
    async fn change(
        &self,
        from: &Log,
        about: &About,
        add: Option<NewBreadcrumb>,
    ) -> Result<(), SessionError> {
        let (id, version) = match from.head {
            Some(head) => head,
            None => self.begin().await?,
        };
        let patch = Patch::default().context(self.about(about));
        let mut writes = vec![Write::Update { id, version, patch }];
        writes.extend(add.map(Write::Create));
        let committed = self.store.commit(Commit::from(writes)).await;
        committed.map(drop).map_err(|error| self.failed(error))
    }

    /// Makes the log. Where two do so at the same time both find the older one.
    async fn begin(&self) -> Result<(BreadcrumbId, u64), SessionError> {
        if self.head().await?.is_some() {
            return Err(self.conflict());
        }
        let about = self.about(&About::default());
        let new = NewBreadcrumb::new(HEAD)
            .title(format!("Session {}", self.id))
            .tags([self.tag()])
            .context(about);
        let commit = Commit::from(vec![Write::Create(new)]);
        self.store
            .commit(commit)
            .await
            .map_err(|error| self.failed(error))?;
        let head = self.head().await?;
        match head {
            Some(head) if head.version == 1 => Ok((head.id, 1)),
            Some(_) | None => Err(self.conflict()),
        }
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
        json!({
            "session": &*self.id, "scope": self.scope, "entries": about.entries, "since": about.since,
            "summary": about.summary,
        })
        .into()
    }

    fn tag(&self) -> String {
        format!("session-log:{}", digest(&[&self.id, self.scope.as_str()]))
    }

    fn read<T: serde::de::DeserializeOwned>(&self, context: &Json) -> Result<T, SessionError> {
        context.parse().map_err(|source| SessionError::Unreadable {
            session: Arc::clone(&self.id),
            source,
        })
    }

    fn failed(&self, error: StoreError) -> SessionError {
        match error {
            StoreError::Conflict { .. } => self.conflict(),
            source => SessionError::Store {
                session: Arc::clone(&self.id),
                source,
            },
        }
    }

    fn conflict(&self) -> SessionError {
        SessionError::Conflict {
            session: Arc::clone(&self.id),
        }
    }
}

/// An entry as it is kept.
#[derive(Debug, Deserialize)]
struct Kept {
    number: u64,
    entry: LogEntry,
}

impl LogEntry {
    /// What of a turn is added once only.
    fn once(&self, number: u64) -> String {
        match self {
            Self::Said { .. } => "said".to_owned(),
            // It may wait more than once, for one thing after the other.
            Self::Suspended { .. } => format!("suspended {number}"),
        }
    }

    /// The same as a store keeps it: of what is too large only the texts of the first and the last message, cut short.
    fn fitting(self) -> Self {
        let Self::Said { mut messages } = self else {
            return self;
        };
        let size: usize = messages.iter().map(replay::size).sum();
        if size <= ENTRY_BYTES {
            return Self::Said { messages };
        }
        let last = messages.pop();
        messages.truncate(1);
        messages.extend(last);
        for message in &mut messages {
            message.tool_calls.clear();
            message.text = crate::error::excerpt(&message.text, TEXT_BYTES).into_owned();
        }
        Self::Said { messages }
    }
}

pub(super) fn digest(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    let digest = digest.finalize();
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests;
