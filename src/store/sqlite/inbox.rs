//! Table `ux_inbox`: new breadcrumbs that other programs insert in their own transactions.

use super::column::id;
use super::error::Fault;
use super::stage::{self, EXPIRED_AT_ONCE};
use super::tenant::TenantTransaction;
use super::{retention, table};
use crate::store::StoreError;
use crate::store::durable::inbox::{ENOUGH_BYTES, InboxImport, InboxRow, Refusal};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// SQL query for the oldest rows that other programs have inserted for a tenant in the table `ux_inbox`, without rejected rows.
pub(super) const OLDEST: &str = "
    SELECT serial, id, breadcrumb FROM ux_inbox WHERE tenant = ?1 AND refused IS NULL ORDER BY serial LIMIT ?2";

pub(super) const HAS_ROWS: &str =
    "SELECT 1 FROM ux_inbox WHERE tenant = ?1 AND refused IS NULL LIMIT 1";

/// Returns `true` if other programs have inserted rows for a tenant in the table `ux_inbox` that the store has not rejected.
pub(super) fn has_rows(connection: &Connection, tenant: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached(HAS_ROWS)?.exists([tenant])
}

/// Creates breadcrumbs from the oldest rows, at most `most`, that other programs inserted in the table `ux_inbox`, and deletes
/// these rows. A rejected row stays and gets the reason.
pub(super) fn import_inbox(
    transaction: &mut TenantTransaction<'_>,
    most: usize,
) -> Result<InboxImport, Fault> {
    // Expired breadcrumbs count towards the limit, so they are removed first, as in a commit.
    table::expire(transaction, EXPIRED_AT_ONCE)?;
    let mut import = InboxImport::default();
    for row in oldest_rows(transaction, most)? {
        import.rows += 1;
        let Err(refusal) = create(transaction, &row)? else {
            let mut delete = transaction.sql("DELETE FROM ux_inbox WHERE serial = ?1")?;
            delete.execute([row.serial])?;
            continue;
        };
        let mut refuse = transaction.sql("UPDATE ux_inbox SET refused = ?2 WHERE serial = ?1")?;
        refuse.execute((row.serial, refusal.text()))?;
        import.refused += 1;
    }
    retention::delete_excess(transaction)?;
    Ok(import)
}

/// Reads the oldest rows that other programs inserted for the tenant in the table `ux_inbox`, without rejected rows, up to a
/// total size in bytes.
fn oldest_rows(
    transaction: &TenantTransaction<'_>,
    most: usize,
) -> rusqlite::Result<Vec<InboxRow>> {
    let mut oldest_rows = transaction.sql(OLDEST)?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut matches = oldest_rows.query((transaction.name, most))?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while bytes < ENOUGH_BYTES
        && let Some(row) = matches.next()?
    {
        let is_chosen = row.get_ref(1)? != ValueRef::Null;
        let text = row.get_ref(2)?.as_bytes()?.to_vec();
        bytes += text.len();
        rows.push(InboxRow {
            serial: row.get(0)?,
            id: is_chosen.then(|| id(row, 1)).transpose()?,
            text,
        });
    }
    Ok(rows)
}

/// Creates a breadcrumb from a row of the table `ux_inbox`. The inner error is the reason for rejecting the row.
fn create(
    transaction: &mut TenantTransaction<'_>,
    row: &InboxRow,
) -> Result<Result<(), Refusal>, Fault> {
    let new = match row.read(transaction.limits.breadcrumb_bytes) {
        Ok(new) => new,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Some(id) = row.id
        && table::find(transaction.connection, transaction.tenant.id, id)?.is_some()
    {
        return Ok(Err(Refusal::Exists(id)));
    }
    match stage::create(transaction, row.id, new) {
        Err(Fault::Refused(error @ StoreError::Rejected { .. })) => {
            Ok(Err(Refusal::Rejected(error)))
        }
        created => created.map(Ok),
    }
}
