//! Removal of expired breadcrumbs from PostgreSQL: a commit removes a few, and a background sweep removes many in small steps.

use super::database::Database;
use super::error::Fault;
use super::job::Job;
use super::tenant::TenantHandle;
use super::transaction::TenantTransaction;
use crate::error::Chain;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Maximum number of expired breadcrumbs that one transaction of a sweep removes.
const AT_ONCE: usize = 256;

/// Removes expired breadcrumbs of the tenant, at most `most`. Returns `true` if it removed `most`, so that there may be more.
pub(super) async fn expire(
    transaction: &mut TenantTransaction<'_>,
    most: usize,
) -> sqlx::Result<bool> {
    if !transaction.has_expired {
        return Ok(false);
    }
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let delete = sqlx::query(
        "DELETE FROM ux_breadcrumbs WHERE serial IN (SELECT serial FROM ux_breadcrumbs
             WHERE tenant = $1 AND ttl <= $2 AND ttl IS NOT NULL AND NOT deleted ORDER BY ttl LIMIT $3
             FOR UPDATE SKIP LOCKED)",
    );
    let delete = delete
        .bind(transaction.tenant.id)
        .bind(transaction.now.as_micros())
        .bind(limit);
    let removed = delete
        .execute(transaction.connection_for_changes())
        .await?
        .rows_affected();
    transaction.tenant.breadcrumbs -= removed.cast_signed();
    transaction.has_expired = removed.cast_signed() == limit;
    Ok(transaction.has_expired)
}

/// Store operation that removes a limited number of expired breadcrumbs, in one transaction of a sweep. Its result is `true` if there may
/// be further expired breadcrumbs.
struct Expire;

impl Job for Expire {
    type Answer = bool;

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<bool, Fault> {
        Ok(expire(transaction, AT_ONCE).await?)
    }
}

/// Starts a background sweep that removes the tenant's expired breadcrumbs in small transactions, unless a sweep is running. The sweep ends
/// with the last handle.
pub(super) fn sweep(database: &Arc<Database>, tenant: &Arc<TenantHandle>) {
    if database.is_sweeping.swap(true, Ordering::SeqCst) {
        return;
    }
    let (database, tenant) = (Arc::downgrade(database), Arc::clone(tenant));
    // No caller waits for a sweep.
    drop(tokio::spawn(async move {
        let _guard = SweepGuard(Weak::clone(&database));
        while let Some(database) = database.upgrade() {
            match database.write(&tenant, Expire).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::debug!(error = %Chain(&error), "a sweep of expired breadcrumbs failed; a later sweep removes the rest");
                    break;
                }
            }
        }
    }));
}

/// Guard that lives as long as a sweep of expired breadcrumbs runs.
struct SweepGuard(Weak<Database>);

impl Drop for SweepGuard {
    fn drop(&mut self) {
        if let Some(database) = self.0.upgrade() {
            database.is_sweeping.store(false, Ordering::SeqCst);
        }
    }
}
