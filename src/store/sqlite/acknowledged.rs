//! Acknowledged positions of event consumers, which each transaction of the writer stores.

use super::guard::Undone;
use super::job::Job;
use crate::store::durable::cursor::Name;
use rusqlite::Connection;
use std::collections::HashMap;

/// Stores positions in the open transaction.
pub(super) fn store(
    connection: &Connection,
    positions: &HashMap<Name, u64>,
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

/// A job without work. It starts a transaction, and each transaction stores the pending acknowledgements.
pub(super) struct StoreAcknowledged;

impl Job for StoreAcknowledged {
    fn begin(&self) -> bool {
        true
    }

    fn run(&mut self, _: &Connection) -> Result<(), rusqlite::Error> {
        Ok(())
    }

    fn has_events(&self) -> bool {
        false
    }

    fn finish(self: Box<Self>, _: Option<&Undone>) {}
}
