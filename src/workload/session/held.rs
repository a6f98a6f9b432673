//! Deletion of sessions. A turn that runs during the deletion ends with an error, and adds nothing to the session.

use super::log::Log;
use super::{Conversation, SessionStore};
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::session_log::{SessionError, SessionLogs};
use crate::workflow::StepPath;
use std::sync::Arc;

impl SessionStore {
    /// Deletes a session: its log, the logs of the agents in its flows, and the summaries of these logs. Returns the
    /// number of deleted breadcrumbs, which is 0 for an unknown session. The contexts of the breadcrumbs are emptied
    /// first, so that no tombstone contains them.
    ///
    /// A turn that runs or waits fails with [`SessionError::Deleted`] and adds nothing. The next message starts a new
    /// session with the same ID, which this call does not delete. A durable run (of a
    /// [`WorkloadExecutor`](crate::workload::WorkloadExecutor)) detects the deletion within an attempt. After a wait,
    /// the run detects the deletion unless a new session has started by then. An attempt after an error is a turn of
    /// the new session. If a worker dies while it adds the text of an agent, this text can remain. No turn reads it,
    /// and another call deletes it.
    ///
    /// # Errors
    /// Returns a [`SessionError`] if the store fails. Another call deletes the rest. The log of the session is deleted
    /// first, and without it no turn reads the rest.
    ///
    /// # Cancel safety
    /// If the future is dropped, a part of the session may remain. Another call deletes the rest.
    pub async fn delete(&self, id: impl Into<Arc<str>>) -> Result<u64, SessionError> {
        let logs = SessionLogs::new(Arc::clone(&self.store), id.into());
        logs.delete().await
    }
}

impl Conversation {
    /// Reads the session log for a turn. `is_begun` is `true` if a turn resumes or is part of another turn: a missing
    /// log was deleted then.
    pub(in crate::workload) async fn taken_up(
        &self,
        is_begun: bool,
    ) -> Result<(Self, Log), SessionError> {
        let log = self.load().await?;
        match log.head.is_none() && is_begun {
            true => Err(self.deleted()),
            false => self.held(log).await,
        }
    }

    /// Binds a session handle to the session log of a turn, and creates an empty log if the session has none. After the
    /// deletion of the session, the returned handle and its clones read and add nothing.
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

    /// Checks that the session still has the log with which the turn started.
    pub(super) fn check_held(&self, head: Option<&Breadcrumb>) -> Result<(), SessionError> {
        match (self.held, head) {
            (Some(held), head) if self.is_whole() && head.is_none_or(|head| head.id != held) => {
                Err(self.deleted())
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Returns `true` if this is an agent's conversation, and the session of the conversation was deleted during the
    /// turn.
    pub(super) async fn is_orphan(&self) -> Result<bool, SessionError> {
        match self.part_of() {
            Some(held) => Ok(!self.logs().has(held).await?),
            None => Ok(false),
        }
    }

    /// Returns `true` if this is the conversation of a whole session, and `false` if it is the conversation of one
    /// agent in a session.
    pub(super) fn is_whole(&self) -> bool {
        self.scope.as_str().is_empty()
    }

    /// Returns the ID of the session log to which this agent's conversation belongs. Returns `None` for the
    /// conversation of a whole session.
    pub(super) fn part_of(&self) -> Option<BreadcrumbId> {
        self.held.filter(|_| !self.is_whole())
    }

    /// Returns a handle to the session of an agent's conversation. The handle is not bound to the session log of a
    /// turn.
    pub(super) fn whole(&self) -> Self {
        Self {
            scope: StepPath::new(""),
            held: None,
            ..self.clone()
        }
    }

    /// Returns this agent's conversation, bound to the session log `head`.
    pub(super) fn within(&self, head: BreadcrumbId) -> Self {
        Self {
            held: Some(head),
            ..self.clone()
        }
    }

    /// Returns an agent's conversation, bound to the current log of the session. A session, or a conversation that is
    /// already bound, is returned unchanged. `None` if the session has no log.
    pub(super) async fn placed(&self) -> Result<Option<Self>, SessionError> {
        if self.is_whole() || self.held.is_some() {
            return Ok(Some(self.clone()));
        }
        let head = self.whole().head().await?;
        Ok(head.map(|head| self.within(head.id)))
    }
}
