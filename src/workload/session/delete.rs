//! Sessions are deleted, and turns that are under way find out.

use super::log::Log;
use super::{ENTRY, HEAD, Session, SessionError, SessionStore};
use crate::executor::ExecutionContext;
use crate::model::{Breadcrumb, Patch, Selector};
use crate::store::{Commit, Query, StoreError, Write};
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
        // By this turns find out, whose agents may add until then.
        let own = Selector::schema(HEAD).all_tags([session.tag()]);
        let mut deleted = session.remove(own).await?;
        for schema in [ENTRY, HEAD] {
            let all = Selector::schema(schema).all_tags([session.tag_of_all()]);
            deleted += session.remove(all).await?;
        }
        Ok(deleted)
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
        Ok((
            Self {
                held,
                ..self.clone()
            },
            log,
        ))
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

    /// What was added to the conversation of an agent stays only if its session is there: that may have been deleted after the
    /// agent's conversation was, if it was begun since.
    pub(super) async fn stays(&self) -> Result<(), SessionError> {
        let Some(held) = self.held.filter(|_| !self.is_whole()) else {
            return Ok(());
        };
        match self.store.get(held).await {
            Ok(_) => return Ok(()),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(self.failed(error)),
        }
        for schema in [ENTRY, HEAD] {
            let own = Selector::schema(schema).all_tags([self.tag()]);
            self.remove(own).await?;
        }
        Err(self.deleted())
    }

    /// Whether this is the session, and not the conversation of an agent in it.
    fn is_whole(&self) -> bool {
        self.scope.as_str().is_empty()
    }

    /// Deletes what is selected, without what it says.
    async fn remove(&self, of: Selector) -> Result<u64, SessionError> {
        let query = Query::new(of).limit(PAGE);
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
