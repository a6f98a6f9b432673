//! Binding of conversations to the session log of a turn, and deletion of sessions. A turn that runs during the
//! deletion ends with an error, and adds nothing to the session.

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
    /// Reads the session log at the start of a turn, and returns it with a handle of the conversation that is bound to
    /// this log. `is_continued` is `true` if a turn resumes or is part of another turn: a missing log was deleted then.
    pub(in crate::workload) async fn open_for_turn(
        &self,
        is_continued: bool,
    ) -> Result<(Self, Log), SessionError> {
        let log = self.load().await?;
        match log.head.is_none() && is_continued {
            true => Err(self.deleted()),
            false => self.bind(log).await,
        }
    }

    /// Returns a handle of this conversation for one turn, bound to the current session log, which is created if the
    /// session has none. After the deletion of the session, the returned handle and its clones read and add nothing.
    pub(in crate::workload) async fn bind(
        &self,
        mut log: Log,
    ) -> Result<(Self, Log), SessionError> {
        let head = match log.head {
            Some(head) => head,
            None => self.create_log().await?,
        };
        log.head = Some(head);
        let bound_log = Some(head.0);
        let session = Self {
            bound_log,
            ..self.clone()
        };
        Ok((session, log))
    }

    /// Returns an error if the session no longer has the log with which the turn started, because the session was
    /// deleted.
    pub(super) fn check_bound_log(&self, head: Option<&Breadcrumb>) -> Result<(), SessionError> {
        match (self.bound_log, head) {
            (Some(bound_log), head)
                if self.is_whole_session() && head.is_none_or(|head| head.id != bound_log) =>
            {
                Err(self.deleted())
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Returns `true` for an agent's conversation whose session was deleted during the turn.
    pub(super) async fn is_orphan(&self) -> Result<bool, SessionError> {
        match self.session_log_id() {
            Some(bound_log) => Ok(!self.logs().has(bound_log).await?),
            None => Ok(false),
        }
    }

    /// Returns `true` if this is the conversation of a whole session, and `false` if it is the conversation of one
    /// agent in a session.
    pub(super) fn is_whole_session(&self) -> bool {
        self.scope.as_str().is_empty()
    }

    /// Returns the ID of the session log to which this agent's conversation belongs. Returns `None` for the
    /// conversation of a whole session.
    pub(super) fn session_log_id(&self) -> Option<BreadcrumbId> {
        self.bound_log.filter(|_| !self.is_whole_session())
    }

    /// Returns a handle to the conversation of the whole session to which an agent's conversation belongs. The handle
    /// is not bound to the session log of a turn.
    pub(super) fn session_conversation(&self) -> Self {
        Self {
            scope: StepPath::new(""),
            bound_log: None,
            ..self.clone()
        }
    }

    /// Returns a copy of this handle to the agent's conversation. The copy reads and writes the session log whose head has the ID `head`.
    pub(super) fn bound_to(&self, head: BreadcrumbId) -> Self {
        Self {
            bound_log: Some(head),
            ..self.clone()
        }
    }

    /// Returns an agent's conversation, bound to the current log of the session. A session, or a conversation that is
    /// already bound, is returned unchanged. `None` if the session has no log.
    pub(super) async fn bound_to_current_log(&self) -> Result<Option<Self>, SessionError> {
        if self.is_whole_session() || self.bound_log.is_some() {
            return Ok(Some(self.clone()));
        }
        let head = self.session_conversation().head().await?;
        Ok(head.map(|head| self.bound_to(head.id)))
    }
}
