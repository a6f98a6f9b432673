//! Telling other processes that there are events, and hearing of theirs. It is a hint and no more: who misses it looks a
//! little later by itself.

use super::database::Database;
use crate::error::Chain;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// One channel for all stores of a database. A notification has the schema, and a random number of the process that sent it.
const CHANNEL: &str = "ux_events";

/// Announces new events: to this process at once, and to other processes in a separate transaction. The server makes all
/// transactions that notify wait for each other, which commits must not. Events that are committed while a notification is on
/// its way are announced by the next one.
pub(super) fn announce(database: &Arc<Database>) {
    database.announced.send_modify(|times| *times += 1);
    if !database.notifying.begin() {
        return;
    }
    let database = Arc::clone(database);
    // Nobody waits for it.
    drop(tokio::spawn(async move {
        loop {
            if let Err(error) = tell(&database).await {
                tracing::debug!(error = %Chain(&error), "cannot notify other processes of events, which find them by polling");
            }
            if !database.notifying.again() {
                return;
            }
        }
    }));
}

async fn tell(database: &Database) -> sqlx::Result<()> {
    let mut connection = database.connections.one().await?;
    // The name of the schema was checked, and needs no quotes. A hint need not be durable.
    let schema = &database.settings.schema;
    let sender = database.notifying.sender;
    let tell = format!(
        "BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_notify('{CHANNEL}', '{schema} {sender}'); END"
    );
    let tell = sqlx::raw_sql(AssertSqlSafe(tell));
    let told = tell.execute(&mut *connection);
    database.connections.in_time(told).await??;
    connection.give_back();
    Ok(())
}

/// Begins to hear of the events of other processes, unless it has begun. It ends with the last handle.
pub(super) fn listen(database: &Arc<Database>) {
    if database.listening.swap(true, Ordering::SeqCst) {
        return;
    }
    let hearing = Hearing {
        options: database.options.clone(),
        schema: database.settings.schema.clone(),
        own: database.notifying.sender.to_string(),
        patience: database.settings.patience,
        announced: database.announced.clone(),
        others: Arc::clone(&database.others),
    };
    let (mut open, ends) = (database.open(), database.ends.clone());
    // Who closes the store waits for it.
    drop(tokio::spawn(async move {
        let mut goes_on = true;
        while goes_on {
            let pool = PgPoolOptions::new().max_connections(1);
            let pool = pool.connect_lazy_with(hearing.options.clone());
            goes_on = tokio::select! {
                () = hearing.hear(&pool) => true,
                // Nothing is ever sent.
                _ = open.changed() => false,
            };
            // Nobody need be there any more to close it.
            drop(timeout(hearing.patience, pool.close()).await);
        }
        drop(ends);
    }));
}

/// How long is listened over one connection. Over one that was lost unnoticed nothing would be heard ever again.
const ANEW: Duration = Duration::from_secs(300);

struct Hearing {
    options: PgConnectOptions,
    schema: String,
    /// Marks notifications of this process.
    own: String,
    patience: Duration,
    announced: watch::Sender<u64>,
    others: Arc<AtomicU64>,
}

impl Hearing {
    /// Hears of events over one connection, for a while or until that is lost.
    async fn hear(&self, pool: &PgPool) {
        let heard = async {
            let mut listener = PgListener::connect_with(pool).await?;
            listener.listen(CHANNEL).await?;
            // What was told before is looked for.
            self.announce();
            loop {
                // None says that the connection was lost, and that something may have been missed.
                let told = listener.try_recv().await?;
                if told.is_none_or(|told| self.is_of_another(told.payload())) {
                    self.announce();
                }
            }
        };
        let heard: Result<sqlx::Result<()>, _> = timeout(ANEW, heard).await;
        if let Ok(Err(error)) = heard {
            tracing::debug!(error = %Chain(&error), "nothing is heard of other processes for now");
            sleep(Duration::from_secs(1)).await;
        }
    }
}

impl Hearing {
    /// Announces that other processes may have committed events.
    fn announce(&self) {
        self.others.fetch_add(1, Ordering::SeqCst);
        self.announced.send_modify(|times| *times += 1);
    }

    /// Returns `true` if another process announces events in the same schema. Earlier versions send the schema only.
    fn is_of_another(&self, payload: &str) -> bool {
        let (schema, sender) = payload.split_once(' ').unwrap_or((payload, ""));
        schema == self.schema && sender != self.own
    }
}
