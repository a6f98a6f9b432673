//! PostgreSQL records of the position up to which each event consumer has acknowledged a tenant's events. After a restart, a
//! consumer resumes after its position.

use super::NAME;
use super::column;
use super::database::Database;
use super::error::Fault;
use super::job::Job;
use super::read::Read;
use super::tenant::TenantHandle;
use super::transaction::TenantTransaction;
use crate::error::Chain;
use crate::store::StoreError;
use crate::store::durable::cursor::{ConsumerName, Cursor, MOST, too_many_consumers};
use crate::store::durable::tenant::StoreClock;
use sqlx::PgConnection;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Starts a task that stores the positions up to which event consumers have acknowledged events, unless such a task is running.
fn store_soon(database: &Arc<Database>) {
    if database.is_storing.swap(true, Ordering::SeqCst) {
        return;
    }
    let database = Arc::clone(database);
    // The task holds a reference to the database, so closing the store waits for it.
    drop(tokio::spawn(async move {
        let (acknowledged, is_storing) = (&database.acknowledged, &database.is_storing);
        loop {
            let positions = acknowledged.take();
            if positions.is_empty() {
                is_storing.store(false, Ordering::SeqCst);
                // Another call can have added a position before the flag was cleared. The side that sets the flag first stores it.
                if acknowledged.is_empty() || is_storing.swap(true, Ordering::SeqCst) {
                    return;
                }
            } else if let Err(error) = store(&database, &positions).await {
                tracing::warn!(error = %Chain(&error), "cannot store acknowledged positions of event consumers, will retry with the next acknowledgement");
                acknowledged.put_back(positions);
                is_storing.store(false, Ordering::SeqCst);
                return;
            }
        }
    }));
}

/// Stores the positions up to which event consumers have acknowledged events. Fails if the database has lost commits, because the
/// events of the positions may be lost.
async fn store(
    database: &Database,
    positions: &HashMap<ConsumerName, u64>,
) -> Result<(), StoreError> {
    database.loss.check()?;
    database.read(Store(positions)).await
}

/// Write that stores the positions up to which event consumers have acknowledged events. It never lowers a stored position.
struct Store<'p>(&'p HashMap<ConsumerName, u64>);

impl Read for Store<'_> {
    type Answer = ();

    fn tenant(&self) -> Option<&str> {
        None
    }

    async fn run(&self, connection: &mut PgConnection, _: &StoreClock) -> Result<(), Fault> {
        // Sorted rows prevent deadlocks between processes that store positions.
        let positions: BTreeMap<_, _> = self.0.iter().collect();
        let update = sqlx::query(
            "UPDATE ux_consumers AS c SET position = greatest(c.position, u.position)
             FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u (tenant, consumer, position)
             JOIN ux_tenants AS t ON t.name = u.tenant AND t.position >= u.position
             WHERE c.tenant = t.id AND c.name = u.consumer",
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

/// Returns the cursor with which an event consumer resumes after its stored event position. Stores `begin` for a new consumer.
pub(super) async fn resume(
    database: &Arc<Database>,
    tenant: &Arc<TenantHandle>,
    consumer: &Arc<str>,
    begin: u64,
) -> Result<Cursor, StoreError> {
    let resume = Resume {
        consumer: Arc::clone(consumer),
        begin,
    };
    let position = database.write(tenant, resume).await?;
    let name = (Arc::clone(&tenant.name), Arc::clone(consumer));
    let database = Arc::clone(database);
    Ok(Cursor::resume_after(position, move |settled| {
        database.acknowledged.record(name.clone(), settled);
        store_soon(&database);
    }))
}

struct Resume {
    consumer: Arc<str>,
    begin: u64,
}

impl Job for Resume {
    type Answer = u64;

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<u64, Fault> {
        let position = sqlx::query_scalar::<_, i64>(
            "INSERT INTO ux_consumers AS c SELECT $1, $2, $3
             WHERE EXISTS (SELECT FROM ux_consumers AS k WHERE k.tenant = $1 AND k.name = $2)
                OR (SELECT count(*) FROM ux_consumers AS k WHERE k.tenant = $1) < $4
             ON CONFLICT (tenant, name) DO UPDATE SET position = c.position RETURNING c.position",
        );
        let position = position
            .bind(transaction.tenant.id)
            .bind(column::name(&self.consumer))
            .bind(self.begin.cast_signed())
            .bind(i64::try_from(MOST).unwrap_or(i64::MAX));
        let position = position
            .fetch_optional(transaction.connection_for_changes())
            .await?;
        let position = position.ok_or_else(|| too_many_consumers(NAME))?;
        Ok(position.cast_unsigned())
    }
}
