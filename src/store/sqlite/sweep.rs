//! Removing what is over when there is much of it: a commit removes a little, and searches pass over the rest.

use super::builder::SqliteLimits;
use super::job::{Job, Task};
use super::table;
use super::tenant::Writing;
use crate::store::durable::tenant::Time;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// How many breadcrumbs are removed in one job.
const AT_ONCE: usize = 256;

/// What removes the breadcrumbs of a tenant whose time is over, one job after the other.
pub(super) struct Sweep {
    pub(super) limits: SqliteLimits,
    pub(super) time: Arc<Time>,
    pub(super) tenant: Arc<str>,
    /// Weak, so that the writer ends with the last handle.
    pub(super) writes: mpsc::WeakSender<Box<dyn Job>>,
    /// Whether one is going on, which is so until this is dropped.
    pub(super) going_on: Arc<AtomicBool>,
}

impl Sweep {
    /// Hands in the next job, which hands in the one after it. If the writer has no room for it, what is left is for a
    /// later sweep.
    pub(super) fn go_on(self) {
        let Some(writes) = self.writes.upgrade() else {
            return;
        };
        let (limits, time, tenant) = (self.limits, self.time.clone(), self.tenant.clone());
        let work = move |connection: &Connection| {
            let expire = |writing: &mut Writing<'_>| Ok(table::expire(writing, AT_ONCE)?);
            let more = Writing::with(connection, &limits, &tenant, &time, expire)?;
            Ok((more, false))
        };
        let then = move |more: &bool| {
            if *more {
                self.go_on();
            }
        };
        // Nobody waits for the answer.
        let (task, _, _) = Task::new(work, then);
        drop(writes.try_send(Box::new(task)));
    }
}

impl Drop for Sweep {
    /// It went with the job that found no more to do, or could not be done.
    fn drop(&mut self) {
        self.going_on.store(false, Ordering::SeqCst);
    }
}
