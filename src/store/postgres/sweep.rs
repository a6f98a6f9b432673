//! Removing what is over when there is much of it: a commit removes a little, and searches pass over the rest.

use super::database::{Database, Job};
use super::error::Fault;
use super::table;
use super::tenant::Named;
use super::writing::Writing;
use crate::error::Chain;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// How many breadcrumbs are removed in one transaction.
const AT_ONCE: usize = 256;

/// Removes some breadcrumbs whose time is over, and says whether there may be more.
struct Expire;

impl Job for Expire {
    type Answer = bool;

    async fn run(&self, writing: &mut Writing<'_>) -> Result<bool, Fault> {
        Ok(table::expire(writing, AT_ONCE).await?)
    }
}

/// Has all breadcrumbs of a tenant removed whose time is over, bit by bit between what others do, unless that is going
/// on. It ends with the last handle.
pub(super) fn sweep(database: &Arc<Database>, tenant: &Arc<Named>) {
    if database.sweeping.swap(true, Ordering::SeqCst) {
        return;
    }
    let (database, tenant) = (Arc::downgrade(database), Arc::clone(tenant));
    // Nobody waits for it.
    drop(tokio::spawn(async move {
        let _going_on = GoingOn(Weak::clone(&database));
        while let Some(database) = database.upgrade() {
            match database.write(&tenant, Expire).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::debug!(error = %Chain(&error), "what is left is for a later sweep");
                    break;
                }
            }
        }
    }));
}

/// Lives as long as a sweep goes on.
struct GoingOn(Weak<Database>);

impl Drop for GoingOn {
    fn drop(&mut self) {
        if let Some(database) = self.0.upgrade() {
            database.sweeping.store(false, Ordering::SeqCst);
        }
    }
}
