//! Table `ux_inbox`: new breadcrumbs that other programs insert in their own transactions.

use super::column::id;
use super::error::Fault;
use super::stage::{self, EXPIRED_AT_ONCE};
use super::tenant::Writing;
use super::{retention, table};
use crate::store::StoreError;
use crate::store::durable::inbox::{ENOUGH_BYTES, Inserted, Refusal, TakenIn};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// SQL query for rows of the table `ux_inbox` that the store can turn into breadcrumbs, oldest first.
pub(super) const FIRST: &str = "
    SELECT serial, id, breadcrumb FROM ux_inbox WHERE tenant = ?1 AND refused IS NULL ORDER BY serial LIMIT ?2";

pub(super) const IS_FILLED: &str =
    "SELECT 1 FROM ux_inbox WHERE tenant = ?1 AND refused IS NULL LIMIT 1";

/// Returns `true` if a tenant has rows in the table `ux_inbox` that the store can turn into breadcrumbs.
pub(super) fn is_filled(connection: &Connection, tenant: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached(IS_FILLED)?.exists([tenant])
}

/// Creates breadcrumbs from at most `most` rows of the table `ux_inbox`, oldest row first, and deletes these rows. A rejected row stays
/// and gets the reason.
pub(super) fn take_in(writing: &mut Writing<'_>, most: usize) -> Result<TakenIn, Fault> {
    // Expired breadcrumbs count towards the limit, so they are removed first, as in a commit.
    table::expire(writing, EXPIRED_AT_ONCE)?;
    let mut taken = TakenIn::default();
    for row in first(writing, most)? {
        taken.rows += 1;
        let Err(refusal) = create(writing, &row)? else {
            let mut delete = writing.sql("DELETE FROM ux_inbox WHERE serial = ?1")?;
            delete.execute([row.serial])?;
            continue;
        };
        let mut refuse = writing.sql("UPDATE ux_inbox SET refused = ?2 WHERE serial = ?1")?;
        refuse.execute((row.serial, refusal.text()))?;
        taken.refused += 1;
    }
    retention::forget(writing)?;
    Ok(taken)
}

/// Reads the tenant's oldest inbox rows up to a total size.
fn first(writing: &Writing<'_>, most: usize) -> rusqlite::Result<Vec<Inserted>> {
    let mut first = writing.sql(FIRST)?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut found = first.query((writing.name, most))?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while bytes < ENOUGH_BYTES
        && let Some(row) = found.next()?
    {
        let is_chosen = row.get_ref(1)? != ValueRef::Null;
        let text = row.get_ref(2)?.as_bytes()?.to_vec();
        bytes += text.len();
        rows.push(Inserted {
            serial: row.get(0)?,
            id: is_chosen.then(|| id(row, 1)).transpose()?,
            text,
        });
    }
    Ok(rows)
}

/// Creates the breadcrumb of an inbox row. The inner error is the reason for rejecting the row.
fn create(writing: &mut Writing<'_>, row: &Inserted) -> Result<Result<(), Refusal>, Fault> {
    let new = match row.read(writing.limits.breadcrumb_bytes) {
        Ok(new) => new,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Some(id) = row.id
        && table::find(writing.connection, writing.tenant.id, id)?.is_some()
    {
        return Ok(Err(Refusal::Exists(id)));
    }
    match stage::create(writing, row.id, new) {
        Err(Fault::Refused(error @ StoreError::Rejected { .. })) => {
            Ok(Err(Refusal::Rejected(error)))
        }
        created => created.map(Ok),
    }
}
