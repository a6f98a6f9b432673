//! Deletion of all logs of a workload's session: the session's own log, and the logs of the agents in its workflows.

use super::{ENTRY, HEAD, SessionError, log_tag, parts_tag};
use crate::model::{Breadcrumb, BreadcrumbId, Patch, Selector};
use crate::store::{BreadcrumbStore, Commit, Query, StoreError, Write};
use serde_json::json;
use std::sync::Arc;

/// Maximum number of session log breadcrumbs that one commit deletes.
const PAGE: usize = 32;

/// Maximum number of consecutive failed commits while the logs of a session are deleted. A commit fails if another
/// writer changes or deletes the same breadcrumbs.
const TRIES: usize = 64;

/// All logs under one session ID: the log of the session, and the logs of the agents in the session's workflows.
#[derive(Clone, Debug)]
pub(crate) struct SessionLogs {
    store: Arc<dyn BreadcrumbStore>,
    id: Arc<str>,
}

impl SessionLogs {
    pub(crate) fn new(store: Arc<dyn BreadcrumbStore>, id: Arc<str>) -> Self {
        Self { store, id }
    }

    /// Deletes all logs of the session and their entries. Returns the number of deleted breadcrumbs. The contexts are
    /// emptied first, so that no tombstone contains them.
    ///
    /// # Errors
    /// Returns a [`SessionError`] if the store fails. Another call deletes the rest.
    pub(crate) async fn delete(&self) -> Result<u64, SessionError> {
        // Without the log of the session, its turns fail and no turn reads the rest.
        let deleted = self.remove_heads().await?;
        Ok(deleted + self.sweep().await?)
    }

    /// Deletes the current logs of the session, but no log that is created later.
    async fn remove_heads(&self) -> Result<u64, SessionError> {
        let tag = log_tag(&self.id, "", None);
        let query = Query::new(Selector::schema(HEAD).all_tags([tag])).limit(PAGE);
        let (mut removed, mut tries) = (0, 0);
        loop {
            let found = self.search(&query).await?;
            match self.empty_and_delete(&found).await? {
                true => removed += count(&found),
                false if tries < TRIES => {
                    tries += 1;
                    continue;
                }
                false => return Err(SessionError::conflict(&self.id)),
            }
            if found.len() < PAGE {
                return Ok(removed);
            }
        }
    }

    /// Deletes the agent logs and log entries under this session ID that belong to a deleted session log. Deletes the logs
    /// of agents first, so that no entry is added to them.
    pub(crate) async fn sweep(&self) -> Result<u64, SessionError> {
        let mut removed = 0;
        // The logs of existing sessions.
        let mut existing_logs = Vec::new();
        for schema in [HEAD, ENTRY] {
            let mut tries = 0;
            loop {
                let mut parts = Selector::schema(schema).all_tags([parts_tag(&self.id)]);
                for head in &existing_logs {
                    parts = parts.matching("$.began", "ne", json!(head));
                }
                let mut found = self.search(&Query::new(parts).limit(PAGE)).await?;
                if found.is_empty() {
                    break;
                }
                for one in &found {
                    let began = log_id_of(one).filter(|began| !existing_logs.contains(began));
                    if let Some(began) = began
                        && self.has(began).await?
                    {
                        existing_logs.push(began);
                    }
                }
                found.retain(|one| {
                    log_id_of(one).is_none_or(|began| !existing_logs.contains(&began))
                });
                match self.empty_and_delete(&found).await? {
                    true => {
                        removed += count(&found);
                        tries = 0;
                    }
                    false if tries < TRIES => tries += 1,
                    false => return Err(SessionError::conflict(&self.id)),
                }
            }
        }
        Ok(removed)
    }

    /// Returns `true` if the session log with this ID exists.
    pub(crate) async fn has(&self, head: BreadcrumbId) -> Result<bool, SessionError> {
        match self.store.get(head).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(SessionError::of_store(&self.id, error)),
        }
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, SessionError> {
        let found = self.store.search(query).await;
        found.map_err(|error| SessionError::of_store(&self.id, error))
    }

    /// Empties and deletes breadcrumbs of session logs. Returns `false` and deletes nothing if another writer has
    /// changed or deleted one of them.
    async fn empty_and_delete(&self, found: &[Arc<Breadcrumb>]) -> Result<bool, SessionError> {
        if found.is_empty() {
            return Ok(true);
        }
        let writes: Vec<Write> = found
            .iter()
            .flat_map(|found| delete_writes(found))
            .collect();
        match self.store.commit(Commit::from(writes)).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(SessionError::of_store(&self.id, error)),
        }
    }
}

fn count(found: &[Arc<Breadcrumb>]) -> u64 {
    u64::try_from(found.len()).unwrap_or(u64::MAX)
}

/// Returns the ID of the session log that an entry or an agent's log belongs to.
fn log_id_of(part: &Breadcrumb) -> Option<BreadcrumbId> {
    part.context.text("began")?.parse().ok()
}

/// Returns the two writes that delete a breadcrumb of a session log: an update that removes its content, and the
/// deletion.
fn delete_writes(breadcrumb: &Breadcrumb) -> [Write; 2] {
    let patch = Patch::new().title("").context(json!({}));
    let (id, version) = (breadcrumb.id, breadcrumb.version);
    [
        Write::Update { id, version, patch },
        Write::Delete { id, by: None },
    ]
}
