//! How far a consumer of events has come, for it to go on there after a restart.

use super::database::Database;
use super::error::Fault;
use super::tenant::Writing;
use crate::store::StoreError;
use rusqlite::{Connection, OptionalExtension};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tenant and a consumer of its events.
type Name = (Arc<str>, Arc<str>);

/// What consumers have acknowledged since the last transaction, which the next one stores.
#[derive(Debug, Default)]
pub(super) struct Acknowledged(Mutex<HashMap<Name, u64>>);

impl Acknowledged {
    /// Notes a position; true if there was none to be stored yet.
    fn note(&self, name: Name, position: u64) -> bool {
        let mut positions = self.lock();
        let was_empty = positions.is_empty();
        positions.insert(name, position);
        was_empty
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(super) fn take(&self) -> HashMap<Name, u64> {
        std::mem::take(&mut *self.lock())
    }

    /// Puts back what could not be stored, unless there is something newer.
    pub(super) fn put_back(&self, positions: HashMap<Name, u64>) {
        let mut newer = self.lock();
        for (name, position) in positions {
            newer.entry(name).or_insert(position);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores positions, in the transaction that is open.
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

/// A consumer that begins to read.
pub(super) struct Resume<'s> {
    pub(super) database: &'s Arc<Database>,
    pub(super) tenant: &'s Arc<str>,
    pub(super) consumer: &'s Arc<str>,
}

impl Resume<'_> {
    /// Where it stopped; `begin` if it is new, which is stored for it.
    pub(super) async fn cursor(self, begin: u64) -> Result<Cursor, StoreError> {
        let consumer = Arc::clone(self.consumer);
        let resume = move |writing: &mut Writing<'_>| position(writing, &consumer, begin);
        let position = self.database.write(self.tenant, resume).await?;
        Ok(Cursor {
            database: Arc::clone(self.database),
            name: (Arc::clone(self.tenant), Arc::clone(self.consumer)),
            place: Mutex::new(Place {
                delivered: position,
                open: BTreeSet::new(),
            }),
        })
    }
}

fn position(writing: &mut Writing<'_>, consumer: &str, begin: u64) -> Result<u64, Fault> {
    let mut known =
        writing.sql("SELECT position FROM ux_consumers WHERE tenant = ?1 AND name = ?2")?;
    let known: Option<i64> = known
        .query_row((writing.tenant.id, consumer), |row| row.get(0))
        .optional()?;
    if let Some(known) = known {
        return Ok(known.cast_unsigned());
    }
    writing
        .sql("INSERT INTO ux_consumers VALUES (?1, ?2, ?3)")?
        .execute((writing.tenant.id, consumer, begin.cast_signed()))?;
    Ok(begin)
}

/// How far one subscription of a consumer has come.
#[derive(Debug)]
pub(super) struct Cursor {
    database: Arc<Database>,
    name: Name,
    place: Mutex<Place>,
}

#[derive(Debug)]
struct Place {
    /// The last position that was delivered, or skipped.
    delivered: u64,
    /// Those delivered and not acknowledged.
    open: BTreeSet<u64>,
}

impl Place {
    /// The position up to which everything is acknowledged.
    fn settled(&self) -> u64 {
        match self.open.first() {
            Some(first) => first - 1,
            None => self.delivered,
        }
    }
}

impl Cursor {
    pub(super) fn position(&self) -> u64 {
        self.lock().settled()
    }

    pub(super) fn deliver(&self, position: u64) {
        let mut place = self.lock();
        place.delivered = place.delivered.max(position);
        place.open.insert(position);
    }

    /// Goes on after events that are gone.
    pub(super) fn skip_to(&self, position: u64) {
        self.change(|place| place.delivered = place.delivered.max(position));
    }

    pub(super) fn acknowledge(&self, position: u64) {
        self.change(|place| {
            place.open.remove(&position);
        });
    }

    /// Changes the place, and has it stored if more is settled by that.
    fn change(&self, change: impl FnOnce(&mut Place)) {
        let mut place = self.lock();
        let before = place.settled();
        change(&mut place);
        let after = place.settled();
        if after > before && self.database.acknowledged.note(self.name.clone(), after) {
            drop(place);
            self.database.store_acknowledged();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
