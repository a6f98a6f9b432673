//! Removal of expired breadcrumbs from SQLite: a commit removes a few, and a background sweep removes many in small steps.

use super::builder::SqliteLimits;
use super::job::{Job, Task};
use super::table;
use super::tenant::TenantTransaction;
use crate::store::durable::tenant::StoreClock;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Maximum number of expired breadcrumbs that one job (store operation) of a sweep removes.
const AT_ONCE: usize = 256;

/// A sweep that removes the expired breadcrumbs of a tenant in several jobs (store operations), one after the other.
pub(super) struct Sweep {
    pub(super) limits: SqliteLimits,
    pub(super) time: Arc<StoreClock>,
    pub(super) tenant: Arc<str>,
    /// Queue of the SQLite writer's jobs (store operations), as a weak sender, so that the sweep does not keep the writer
    /// thread running.
    pub(super) writes: mpsc::WeakSender<Box<dyn Job>>,
    /// If `true`, a sweep of expired breadcrumbs is running. Dropping the sweep sets it to `false`.
    pub(super) is_running: Arc<AtomicBool>,
}

impl Sweep {
    /// Adds the next job of this sweep of expired breadcrumbs to the queue of the SQLite writer thread. Each job adds its
    /// successor. If the queue is full, the sweep ends, and a later sweep removes the rest.
    pub(super) fn run_next_step(self) {
        let Some(writes) = self.writes.upgrade() else {
            return;
        };
        let (limits, time, tenant) = (self.limits, self.time.clone(), self.tenant.clone());
        let work = move |connection: &Connection| {
            let expire =
                |transaction: &mut TenantTransaction<'_>| Ok(table::expire(transaction, AT_ONCE)?);
            let more = TenantTransaction::with(connection, &limits, &tenant, &time, expire)?;
            Ok((more, false))
        };
        let after_commit = move |more: &bool| {
            if *more {
                self.run_next_step();
            }
        };
        // No caller waits for the result.
        let (task, _, _) = Task::new(work, after_commit);
        drop(writes.try_send(Box::new(task)));
    }
}

impl Drop for Sweep {
    /// Ends the sweep of expired breadcrumbs with its last job, which found nothing more to remove or failed.
    fn drop(&mut self) {
        self.is_running.store(false, Ordering::SeqCst);
    }
}
