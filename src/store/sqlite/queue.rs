//! Selection of the runs that workers can claim or take over: the first run of each ordering key, due runs, and runs transferred
//! to an executor version.

use super::column::{number, time};
use super::tenant::TenantTransaction;
use crate::store::RunRef;
use crate::store::row::{MOST_ACCEPTED, out_of_order_bit};
use crate::store::rules::FirstOfKey;
use rusqlite::OptionalExtension;
use std::time::Duration;

/// Makes the first unfinished run with the ordering key of `run` claimable, by setting its column `head` in the table `ux_runs`.
pub(super) fn promote(transaction: &TenantTransaction<'_>, run: &RunRef) -> rusqlite::Result<()> {
    let Some(ordering_key) = run.order.as_deref() else {
        return Ok(());
    };
    let mut promote = transaction.sql(concat!(
        "UPDATE ux_runs SET head = 1 WHERE serial = (SELECT serial FROM ux_runs
             WHERE tenant = ?1 AND executor = ?2 AND line = ?3 AND line IS NOT NULL AND over IS NULL
                 AND sequence < ",
        out_of_order_bit!(),
        " ORDER BY sequence LIMIT 1)"
    ))?;
    promote.execute((transaction.tenant.id, &*run.executor, ordering_key))?;
    Ok(())
}

/// SQL query for the first run with an ordering key, except for the run whose serial number is `?4`.
pub(super) const FIRST: &str = concat!(
    "SELECT sequence, due, lease FROM ux_runs
     WHERE tenant = ?1 AND executor = ?2 AND line = ?3 AND line IS NOT NULL AND over IS NULL AND sequence < ",
    out_of_order_bit!(),
    " AND serial <> ?4 ORDER BY sequence LIMIT 1"
);

/// Returns the first run with the ordering key of `run`, except for `run` itself. `serial` is the serial number of the ledger row
/// of `run`, or `None` without a row.
pub(super) fn first(
    transaction: &TenantTransaction<'_>,
    run: &RunRef,
    serial: Option<i64>,
) -> rusqlite::Result<Option<FirstOfKey>> {
    let Some(ordering_key) = run.order.as_deref() else {
        return Ok(None);
    };
    let mut first = transaction.sql(FIRST)?;
    let values = (
        transaction.tenant.id,
        &*run.executor,
        ordering_key,
        serial.unwrap_or(0),
    );
    let first = first.query_row(values, |row| {
        Ok(FirstOfKey {
            sequence: number(row, 0)?,
            due: time(row, 1)?,
            lease: Duration::from_micros(number(row, 2)?),
        })
    });
    first.optional()
}

/// SQL query for the due runs of an executor, the longest due first. Finds no row of a paused executor.
pub(super) const DUE: &str = "
    SELECT serial FROM ux_runs
    WHERE tenant = ?1 AND executor = ?2 AND due <= ?3 AND head = 1 AND due IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM ux_paused WHERE tenant = ?1 AND executor = ?2)
    ORDER BY due, sequence LIMIT ?4";

/// SQL query for an executor's runs that were transferred to one version of the executor and wait for a worker of this version.
pub(super) const TRANSFERRED: &str = "
    SELECT sequence, serial FROM ux_runs
    WHERE tenant = ?1 AND executor = ?2 AND reason = ?3 AND reason IS NOT NULL AND over IS NULL
    ORDER BY sequence LIMIT ?4";

/// SQL query for an executor's due runs that wait for another version of it, and no longer delay later runs with their ordering
/// key.
pub(super) const OVERTAKEN: &str = concat!(
    "SELECT sequence, serial FROM ux_runs INDEXED BY ux_runs_transferred
     WHERE tenant = ?1 AND executor = ?2 AND reason <> ?3 AND reason IS NOT NULL AND over IS NULL AND due <= ?5
         AND sequence >= ",
    out_of_order_bit!(),
    " LIMIT ?4"
);

/// Returns the sequence number (order in the ledger) and the row ID of each run that waits for a version of its executor, and
/// that `version` accepts.
pub(super) fn transferred(
    transaction: &TenantTransaction<'_>,
    executor: &str,
    version: &str,
) -> rusqlite::Result<Vec<(i64, i64)>> {
    let (tenant, now) = (transaction.tenant.id, transaction.now.as_micros());
    let most = |count: usize| i64::try_from(MOST_ACCEPTED - count).unwrap_or(i64::MAX);
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let mut transferred_runs = transaction.sql(TRANSFERRED)?;
    let transferred_runs =
        transferred_runs.query_map((tenant, executor, version, most(0)), read)?;
    let mut rows: Vec<(i64, i64)> = transferred_runs.collect::<rusqlite::Result<_>>()?;
    let mut overtaken = transaction.sql(OVERTAKEN)?;
    let overtaken =
        overtaken.query_map((tenant, executor, version, most(rows.len()), now), read)?;
    for row in overtaken {
        rows.push(row?);
    }
    Ok(rows)
}

/// Returns the serial numbers of an executor's runs that have been due for the longest time.
pub(super) fn due(
    transaction: &TenantTransaction<'_>,
    executor: &str,
    most: usize,
) -> rusqlite::Result<Vec<i64>> {
    let mut due = transaction.sql(DUE)?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let serials = due.query_map(
        (
            transaction.tenant.id,
            executor,
            transaction.now.as_micros(),
            most,
        ),
        |row| row.get(0),
    )?;
    serials.collect()
}
