//! How far a consumer of events has come, for it to go on there after a restart.

use super::column;
use super::database::{Database, Job, Read};
use super::error::Fault;
use super::tenant::{Named, Time};
use super::writing::Writing;
use crate::store::StoreError;
use sqlx::PgConnection;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tenant and a consumer of its events.
type Name = (Arc<str>, Arc<str>);

/// What consumers have acknowledged since that was stored last.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    positions: Mutex<HashMap<Name, u64>>,
    /// Whether it is being stored.
    storing: AtomicBool,
}

impl Acknowledged {
    fn note(&self, name: Name, position: u64) {
        self.lock().insert(name, position);
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn take(&self) -> HashMap<Name, u64> {
        std::mem::take(&mut *self.lock())
    }

    /// Puts back what could not be stored, unless there is something newer.
    fn put_back(&self, positions: HashMap<Name, u64>) {
        let mut newer = self.lock();
        for (name, position) in positions {
            newer.entry(name).or_insert(position);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, u64>> {
        self.positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has what was acknowledged stored soon, unless that is going on.
fn store_soon(database: &Arc<Database>) {
    if database.acknowledged.storing.swap(true, Ordering::SeqCst) {
        return;
    }
    let database = Arc::clone(database);
    // Nobody waits for it but who closes the store, since it has a pointer to the database.
    drop(tokio::spawn(async move {
        let acknowledged = &database.acknowledged;
        loop {
            let positions = acknowledged.take();
            if positions.is_empty() {
                acknowledged.storing.store(false, Ordering::SeqCst);
                // What came between is for whoever sees the mark first.
                if acknowledged.is_empty() || acknowledged.storing.swap(true, Ordering::SeqCst) {
                    return;
                }
            } else if let Err(error) = database.read(Store(&positions)).await {
                tracing::warn!(%error, "what consumers of events acknowledged is stored with what they acknowledge next");
                acknowledged.put_back(positions);
                acknowledged.storing.store(false, Ordering::SeqCst);
                return;
            }
        }
    }));
}

/// Positions to be stored; those that are further already stay.
struct Store<'p>(&'p HashMap<Name, u64>);

impl Read for Store<'_> {
    type Answer = ();

    async fn run(&self, connection: &mut PgConnection, _: &Time) -> Result<(), Fault> {
        let positions = self.0;
        let update = sqlx::query(
            "UPDATE ux_consumers AS c SET position = greatest(c.position, u.position)
             FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u (tenant, consumer, position)
             JOIN ux_tenants AS t ON t.name = u.tenant WHERE c.tenant = t.id AND c.name = u.consumer",
        );
        let update = update
            .bind(column::names(positions.keys().map(|(tenant, _)| &**tenant)))
            .bind(column::names(
                positions.keys().map(|(_, consumer)| &**consumer),
            ))
            .bind(
                positions
                    .values()
                    .map(|position| position.cast_signed())
                    .collect::<Vec<i64>>(),
            );
        update.execute(connection).await?;
        Ok(())
    }
}

/// Where a consumer stopped; `begin` if it is new, which is stored for it.
pub(super) async fn resume(
    database: &Arc<Database>,
    tenant: &Arc<Named>,
    consumer: &Arc<str>,
    begin: u64,
) -> Result<Cursor, StoreError> {
    let resume = Resume {
        consumer: Arc::clone(consumer),
        begin,
    };
    let position = database.write(tenant, resume).await?;
    Ok(Cursor {
        database: Arc::clone(database),
        name: (Arc::clone(&tenant.name), Arc::clone(consumer)),
        place: Mutex::new(Place {
            delivered: position,
            open: BTreeSet::new(),
        }),
    })
}

struct Resume {
    consumer: Arc<str>,
    begin: u64,
}

impl Job for Resume {
    type Answer = u64;
    const LOCKS: bool = false;

    async fn run(&self, writing: &mut Writing<'_>) -> Result<u64, Fault> {
        let position = sqlx::query_scalar::<_, i64>(
            "INSERT INTO ux_consumers AS c VALUES ($1, $2, $3)
             ON CONFLICT (tenant, name) DO UPDATE SET position = c.position RETURNING c.position",
        );
        let position = position
            .bind(writing.tenant.id)
            .bind(column::name(&self.consumer))
            .bind(self.begin.cast_signed());
        let position = position.fetch_one(writing.tells()).await?;
        Ok(position.cast_unsigned())
    }
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
        if after > before {
            self.database.acknowledged.note(self.name.clone(), after);
            drop(place);
            store_soon(&self.database);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
