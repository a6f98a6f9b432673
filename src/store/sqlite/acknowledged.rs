//! Positions up to which event consumers have acknowledged events; each transaction of the SQLite writer thread stores them.

use super::guard::TransactionFailure;
use super::job::Job;
use crate::store::durable::cursor::ConsumerName;
use rusqlite::Connection;
use std::collections::HashMap;

/// Stores the positions up to which event consumers have acknowledged events, in the open SQLite transaction.
pub(super) fn store(
    connection: &Connection,
    positions: &HashMap<ConsumerName, u64>,
) -> rusqlite::Result<()> {
    if positions.is_empty() {
        return Ok(());
    }
    let mut update = connection.prepare_cached(
        "UPDATE ux_consumers SET position = MAX(position, ?3)
         WHERE tenant = (SELECT id FROM ux_tenants WHERE name = ?1) AND name = ?2",
    )?;
    for ((tenant, consumer), position) in positions {
        update.execute((&**tenant, &**consumer, position.cast_signed()))?;
    }
    Ok(())
}

/// Job (store operation) that does nothing, but makes the SQLite writer start a transaction, because each transaction stores the pending
/// acknowledgements of event consumers.
pub(super) struct StoreAcknowledged;

impl Job for StoreAcknowledged {
    fn start(&self) -> bool {
        true
    }

    fn run(&mut self, _: &Connection) -> Result<(), rusqlite::Error> {
        Ok(())
    }

    fn has_events(&self) -> bool {
        false
    }

    fn finish(self: Box<Self>, _: Option<&TransactionFailure>) {}
}
