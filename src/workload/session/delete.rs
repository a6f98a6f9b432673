//! Sessions are deleted, and turns that are under way find out.

use super::log::Log;
use super::{ENTRY, HEAD, OWN, Session, SessionError, SessionStore};
use crate::executor::ExecutionContext;
use crate::model::{Breadcrumb, Patch, Selector};
use crate::store::{Commit, Query, StoreError, Write};
use crate::workflow::StepPath;
use serde_json::json;
use std::sync::Arc;

/// How many breadcrumbs are deleted at a time, and how often that is tried where others change or delete them as well.
const PAGE: usize = 32;
const TRIES: usize = 64;

impl SessionStore {
    /// Deletes all that is kept of a session: its log, those of the agents in its flows, and what these were summed up to. Says how
    /// many breadcrumbs that were; none is no error. What they said is taken out of them first, so that no tombstone has it.
    ///
    /// A turn that is under way, or waits, fails with [`SessionError::Deleted`] instead of adding to it; whoever sends to the session
    /// after that begins it anew. Where a worker is lost while it adds what an agent said, that may be left: deleting again takes it.
    ///
    /// # Errors
    /// [`SessionError`]. What was deleted until then is gone, and deleting again goes on.
    pub async fn delete(&self, id: impl Into<Arc<str>>) -> Result<u64, SessionError> {
        let session = self.session(id);
        // By that of the session turns find out, whose agents may add until then.
        let mut deleted = session.remove(HEAD, &session.tag()).await?;
        deleted += session.remove(ENTRY, &session.tag()).await?;
        let of_agents = session.tag_of_agents();
        let agents = Selector::schema(HEAD).all_tags([&*of_agents]);
        let agents = Query::new(agents).limit(PAGE);
        loop {
            let logs = self.store.search(&agents).await;
            let logs = logs.map_err(|error| session.failed(error))?;
            if logs.is_empty() {
                return Ok(deleted);
            }
            for log in logs {
                let own = log.tags.iter().find(|tag| tag.starts_with(OWN));
                deleted += session.remove_log(own.unwrap_or(&of_agents)).await?;
            }
        }
    }
}

impl Session {
    /// Reads the log for a turn that begins, or goes on. One that goes on had a log, so that this was deleted if it is not there.
    pub(in crate::workload) async fn taken_up(
        &self,
        turn: &ExecutionContext,
    ) -> Result<(Self, Log), SessionError> {
        let log = self.load().await?;
        match log.head.is_none() && turn.resumed().is_some() {
            true => Err(self.deleted()),
            false => self.held(log).await,
        }
    }

    /// The session for a turn that begins from a log, which is made if there is none. Once the session is deleted, nothing is read or
    /// added by this handle and those made of it.
    pub(in crate::workload) async fn held(
        &self,
        mut log: Log,
    ) -> Result<(Self, Log), SessionError> {
        let head = match log.head {
            Some(head) => head,
            None => self.begin().await?,
        };
        log.head = Some(head);
        let held = Some(head.0);
        let session = Self {
            held,
            ..self.clone()
        };
        Ok((session, log))
    }

    /// Whether the log of the session is the one that the turn began with.
    pub(super) fn check_held(&self, head: Option<&Breadcrumb>) -> Result<(), SessionError> {
        match (self.held, head) {
            (Some(held), head) if self.is_whole() && head.is_none_or(|head| head.id != held) => {
                Err(self.deleted())
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Whether this is the conversation of an agent in a session that was deleted since the turn began.
    pub(super) async fn is_orphan(&self) -> Result<bool, SessionError> {
        let Some(held) = self.held.filter(|_| !self.is_whole()) else {
            return Ok(false);
        };
        match self.store.get(held).await {
            Ok(_) => Ok(false),
            Err(StoreError::NotFound { .. }) => Ok(true),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Takes back what was added to the conversation of an agent while its session was deleted. Where that was begun anew it goes
    /// with that: the conversation is not only of this turn then.
    pub(super) async fn take_back(&self) -> Result<(), SessionError> {
        let session = Self {
            scope: StepPath::new(""),
            held: None,
            ..self.clone()
        };
        match session.head().await? {
            Some(_) => Ok(()),
            None => self.remove_log(&self.tag()).await.map(drop),
        }
    }

    /// Whether this is the session, and not the conversation of an agent in it.
    pub(super) fn is_whole(&self) -> bool {
        self.scope.as_str().is_empty()
    }

    /// Deletes the conversation of an agent. The entries are found by its log, so that this goes after them, and then those that
    /// were added meanwhile.
    async fn remove_log(&self, tag: &str) -> Result<u64, SessionError> {
        let mut removed = 0;
        for schema in [ENTRY, HEAD, ENTRY] {
            removed += self.remove(schema, tag).await?;
        }
        Ok(removed)
    }

    /// Deletes all of a schema that has a tag, without what it says.
    async fn remove(&self, schema: &str, tag: &str) -> Result<u64, SessionError> {
        let query = Query::new(Selector::schema(schema).all_tags([tag])).limit(PAGE);
        let (mut removed, mut tries) = (0, 0);
        loop {
            let found = self.store.search(&query).await;
            let found = found.map_err(|error| self.failed(error))?;
            if found.is_empty() {
                return Ok(removed);
            }
            let writes: Vec<Write> = found.iter().flat_map(|found| forgotten(found)).collect();
            match self.store.commit(Commit::from(writes)).await {
                Ok(_) => {
                    removed += u64::try_from(found.len()).unwrap_or(u64::MAX);
                    tries = 0;
                }
                Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) if tries < TRIES => {
                    tries += 1;
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
    }
}

/// Takes out of a breadcrumb what it says, and deletes it.
fn forgotten(of: &Breadcrumb) -> [Write; 2] {
    let patch = Patch::new().title("").context(json!({}));
    let (id, version) = (of.id, of.version);
    [
        Write::Update { id, version, patch },
        Write::Delete { id, by: None },
    ]
}
