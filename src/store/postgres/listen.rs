//! Telling other processes that there are events, and hearing of theirs. It is a hint and no more: who misses it looks a
//! little later by itself.

use super::database::Database;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// One channel for all stores of a database; what is told is the schema.
const CHANNEL: &str = "ux_events";

/// What is committed within this time is told as one.
const TOGETHER: Duration = Duration::from_millis(5);

/// Tells of new events: this process at once, and the others by a transaction of its own. The server makes all
/// transactions that tell something wait for each other, which those with the events shall not have to.
pub(super) fn announce(database: &Arc<Database>) {
    database.announced.send_modify(|times| *times += 1);
    if database.telling.swap(true, Ordering::SeqCst) {
        return;
    }
    let database = Arc::clone(database);
    // Nobody waits for it.
    drop(tokio::spawn(async move {
        // All that is committed soon after is told with it; what is committed from then on is for the next to tell.
        tokio::time::sleep(TOGETHER).await;
        database.telling.store(false, Ordering::SeqCst);
        if let Err(error) = tell(&database).await {
            tracing::debug!(%error, "other processes are not told of events, and will look by themselves");
        }
    }));
}

async fn tell(database: &Database) -> sqlx::Result<()> {
    let mut connection = database.connections.one().await?;
    // The name of the schema was checked, and needs no quotes. What is a hint need not be on the disk.
    let tell = format!(
        "BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_notify('{CHANNEL}', '{}'); END",
        database.settings.schema
    );
    let tell = sqlx::raw_sql(AssertSqlSafe(tell));
    tell.execute(&mut *connection).await?;
    connection.give_back();
    Ok(())
}

/// Begins to hear of the events of other processes, unless it has begun. It ends with the last handle.
pub(super) fn listen(database: &Arc<Database>) {
    if database.listening.swap(true, Ordering::SeqCst) {
        return;
    }
    let (mut open, pool) = (database.open(), database.hearing.clone());
    let (schema, announced) = (database.settings.schema.clone(), database.announced.clone());
    let hear = async move {
        loop {
            let heard = async {
                let mut listener = PgListener::connect_with(&pool).await?;
                listener.listen(CHANNEL).await?;
                loop {
                    // None says that the connection was lost, and that something may have been missed.
                    let told = listener.try_recv().await?;
                    if told.is_none_or(|told| told.payload() == schema) {
                        announced.send_modify(|times| *times += 1);
                    }
                }
            };
            let heard: sqlx::Result<()> = heard.await;
            if let Err(error) = heard {
                tracing::debug!(%error, "nothing is heard of other processes for now");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    // Nobody waits for it.
    drop(tokio::spawn(async move {
        tokio::select! {
            () = hear => {}
            // Nothing is ever sent.
            _ = open.changed() => {}
        }
    }));
}
