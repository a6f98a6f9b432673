//! Which rows can be claimed next: those with a time, as far as no other of their ordering key is before them.

use super::row::{self, Kept};
use super::tenant::Writing;
use crate::bugs::planted;
use crate::model::Timestamp;
use crate::store::RunRef;
use crate::store::row::{MOST_ACCEPTED, aside};
use rusqlite::OptionalExtension;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Whether a run that joins the end of its line is the only one there.
pub(super) fn is_head(writing: &Writing<'_>, run: &RunRef) -> rusqlite::Result<bool> {
    let Some(line) = run.order.as_deref().filter(|_| !planted("no-lines")) else {
        return Ok(true);
    };
    let mut others = writing.sql(concat!(
        "SELECT 1 FROM ux_runs WHERE tenant = ?1 AND executor = ?2 AND line = ?3 AND line IS NOT NULL AND over IS NULL
             AND sequence < ",
        aside!(),
        " LIMIT 1"
    ))?;
    Ok(!others.exists((writing.tenant.id, &*run.executor, line))?)
}

/// Makes the first run that is left in a line its head.
pub(super) fn promote(writing: &Writing<'_>, run: &RunRef) -> rusqlite::Result<()> {
    let Some(line) = run.order.as_deref() else {
        return Ok(());
    };
    let mut promote = writing.sql(concat!(
        "UPDATE ux_runs SET head = 1 WHERE serial = (SELECT serial FROM ux_runs
             WHERE tenant = ?1 AND executor = ?2 AND line = ?3 AND line IS NOT NULL AND over IS NULL
                 AND sequence < ",
        aside!(),
        " ORDER BY sequence LIMIT 1)"
    ))?;
    promote.execute((writing.tenant.id, &*run.executor, line))?;
    Ok(())
}

/// The first row of a line.
pub(super) const FIRST: &str = concat!(
    "SELECT due, lease FROM ux_runs
     WHERE tenant = ?1 AND executor = ?2 AND line = ?3 AND line IS NOT NULL AND over IS NULL AND sequence < ",
    aside!(),
    " ORDER BY sequence LIMIT 1"
);

/// When to ask again for a run that is behind another; none if it is not, or is over.
pub(super) fn until_ahead(
    writing: &Writing<'_>,
    kept: &Kept,
) -> rusqlite::Result<Option<Timestamp>> {
    let Some(line) = kept.row.run.order.as_deref() else {
        return Ok(None);
    };
    if kept.head || kept.row.state.is_over() {
        return Ok(None);
    }
    let mut first = writing.sql(FIRST)?;
    let first = first.query_row((writing.tenant.id, &*kept.row.run.executor, line), |row| {
        let due = super::column::time(row, 0)?;
        Ok((due, Duration::from_micros(super::column::number(row, 1)?)))
    });
    let until = first.optional()?.map(|(due, lease)| {
        let until = due.filter(|due| *due > writing.now);
        until.unwrap_or(writing.now + lease)
    });
    Ok(until)
}

/// The rows of an executor that are due, those first that have been so for the longest time.
pub(super) const DUE: &str = "
    SELECT serial FROM ux_runs
    WHERE tenant = ?1 AND executor = ?2 AND due <= ?3 AND head = 1 AND due IS NOT NULL
    ORDER BY due, sequence LIMIT ?4";

/// Selects the rows of an executor that were transferred to a version of it.
pub(super) const TRANSFERRED: &str = "
    SELECT sequence, serial FROM ux_runs
    WHERE tenant = ?1 AND executor = ?2 AND reason = ?3 AND reason IS NOT NULL AND over IS NULL
    ORDER BY sequence LIMIT ?4";

/// Selects the rows of an executor that left their line for another version than this one, and reached their time.
pub(super) const PASSED: &str = concat!(
    "SELECT sequence, serial FROM ux_runs INDEXED BY ux_runs_transferred
     WHERE tenant = ?1 AND executor = ?2 AND reason <> ?3 AND reason IS NOT NULL AND over IS NULL AND due <= ?5
         AND sequence >= ",
    aside!(),
    " LIMIT ?4"
);

/// Makes rows due that were transferred to versions of executors, and rows of these executors that left their line and
/// reached their time; returns their number.
pub(super) fn accept_transfers(
    writing: &mut Writing<'_>,
    versions: &[(Arc<str>, Arc<str>)],
) -> rusqlite::Result<usize> {
    let mut accepted: BTreeSet<(i64, i64)> = BTreeSet::new();
    for (executor, version) in versions {
        accepted.extend(transferred(writing, executor, version)?);
    }
    for (_, serial) in &accepted {
        if let Some(mut kept) = row::at(writing.connection, *serial)? {
            accept(writing, &mut kept)?;
        }
    }
    Ok(accepted.len())
}

/// Returns the sequences and serials of the rows that one version of an executor accepts.
fn transferred(
    writing: &Writing<'_>,
    executor: &str,
    version: &str,
) -> rusqlite::Result<Vec<(i64, i64)>> {
    let (tenant, now) = (writing.tenant.id, writing.now.as_micros());
    let most = |taken: usize| i64::try_from(MOST_ACCEPTED - taken).unwrap_or(i64::MAX);
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let mut own = writing.sql(TRANSFERRED)?;
    let own = own.query_map((tenant, executor, version, most(0)), read)?;
    let mut rows: Vec<(i64, i64)> = own.collect::<rusqlite::Result<_>>()?;
    let mut passed = writing.sql(PASSED)?;
    let passed = passed.query_map((tenant, executor, version, most(rows.len()), now), read)?;
    for row in passed {
        rows.push(row?);
    }
    Ok(rows)
}

/// Makes a transferred row due. A row that left its line joins the line at the end.
pub(super) fn accept(writing: &mut Writing<'_>, kept: &mut Kept) -> rusqlite::Result<()> {
    (kept.row.due, kept.row.reason) = (Some(writing.now), None);
    if kept.row.is_aside() {
        kept.head = is_head(writing, &kept.row.run)?;
        kept.row.sequence = writing.next_sequence().cast_unsigned();
    }
    row::update(writing, kept)
}

/// The rows of an executor that have been due for the longest time.
pub(super) fn due(
    writing: &Writing<'_>,
    executor: &str,
    most: usize,
) -> rusqlite::Result<Vec<i64>> {
    let mut due = writing.sql(DUE)?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let serials = due.query_map(
        (writing.tenant.id, executor, writing.now.as_micros(), most),
        |row| row.get(0),
    )?;
    serials.collect()
}
