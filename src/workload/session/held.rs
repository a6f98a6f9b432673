//! Turns whose session is deleted while they are under way find out.

use super::log::Log;
use super::{Conversation, SessionStore};
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::session_log::{SessionError, SessionLogs};
use crate::workflow::StepPath;
use std::sync::Arc;

impl SessionStore {
    /// Deletes all that is kept of a session: its log, those of the agents in its flows, and what these were summed up to. Says how
    /// many breadcrumbs that were; none is no error. What they said is taken out of them first, so that no tombstone has it.
    ///
    /// A turn that is under way, or waits, fails with [`SessionError::Deleted`] instead of adding to it; whoever sends to the session
    /// after that begins it anew, and what is said then stays. A durable run (of a [`WorkloadExecutor`](crate::workload::WorkloadExecutor))
    /// finds that out within an attempt, and after it waited if nobody has begun the session anew by then; another attempt after an
    /// error is a turn of the new session. Where a worker is lost while it adds what an agent said, that may be
    /// left, and nobody is shown it: deleting again takes it.
    ///
    /// # Errors
    /// [`SessionError`]. What was deleted until then is gone, and deleting again goes on. What is left is shown to nobody once the
    /// log of the session is gone, which goes first.
    pub async fn delete(&self, id: impl Into<Arc<str>>) -> Result<u64, SessionError> {
        let logs = SessionLogs::new(Arc::clone(&self.store), id.into());
        logs.delete().await
    }
}

impl Conversation {
    /// Reads the log for a turn. If there has to be one, since the turn goes on or is within another one, it was deleted if it is
    /// not there.
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
        match self.part_of() {
            Some(held) => Ok(!self.logs().has(held).await?),
            None => Ok(false),
        }
    }

    /// Whether this is the session, and not the conversation of an agent in it.
    pub(super) fn is_whole(&self) -> bool {
        self.scope.as_str().is_empty()
    }

    /// The log of the session that this one of an agent belongs to; none for the session itself.
    pub(super) fn part_of(&self) -> Option<BreadcrumbId> {
        self.held.filter(|_| !self.is_whole())
    }

    /// The session that this is, or in which it is, as it is now.
    pub(super) fn whole(&self) -> Self {
        Self {
            scope: StepPath::new(""),
            held: None,
            ..self.clone()
        }
    }

    /// The same as part of a session that has this log.
    pub(super) fn within(&self, head: BreadcrumbId) -> Self {
        Self {
            held: Some(head),
            ..self.clone()
        }
    }

    /// The same, where a conversation of an agent that no turn holds is part of the session as it is now; none if that is not there.
    pub(super) async fn placed(&self) -> Result<Option<Self>, SessionError> {
        if self.is_whole() || self.held.is_some() {
            return Ok(Some(self.clone()));
        }
        let head = self.whole().head().await?;
        Ok(head.map(|head| self.within(head.id)))
    }
}
