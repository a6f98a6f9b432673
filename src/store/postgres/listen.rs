//! Notifications about new events, sent to other processes and received from them. They are hints: a process that misses one finds
//! the events by polling.

use super::database::Database;
use crate::error::Chain;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// PostgreSQL notification channel of all stores in a database. A notification contains the schema, and a random ID of the process that
/// sent it.
const CHANNEL: &str = "ux_events";

/// Announces new events: to this process at once, and to other processes in a separate transaction. The server serializes all
/// transactions that notify, which must not slow down commits. Events that are committed while a notification is sent are announced by
/// the next one.
pub(super) fn announce(database: &Arc<Database>) {
    database.announced.send_modify(|times| *times += 1);
    if !database.notifying.begin() {
        return;
    }
    let database = Arc::clone(database);
    // No caller waits for notifications.
    drop(tokio::spawn(async move {
        loop {
            if let Err(error) = notify_processes(&database).await {
                tracing::debug!(error = %Chain(&error), "cannot notify other processes of new events; the processes find the events by \
                    polling");
            }
            if !database.notifying.finish() {
                return;
            }
        }
    }));
}

async fn notify_processes(database: &Database) -> sqlx::Result<()> {
    let mut connection = database.connections.acquire().await?;
    // The schema name was validated, so it needs no quotes. A hint need not be durable.
    let schema = &database.settings.schema;
    let sender = database.notifying.sender;
    let notify = format!(
        "BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_notify('{CHANNEL}', '{schema} {sender}'); END"
    );
    let notify = sqlx::raw_sql(AssertSqlSafe(notify));
    let sent = notify.execute(&mut *connection);
    database.connections.with_timeout(sent).await??;
    connection.release();
    Ok(())
}

/// Starts a task that listens for other processes' notifications about new events, unless such a task is running. The task ends with the
/// last handle.
pub(super) fn listen(database: &Arc<Database>) {
    if database.listening.swap(true, Ordering::SeqCst) {
        return;
    }
    let listener = NotificationListener {
        options: database.options.clone(),
        schema: database.settings.schema.clone(),
        own_id: database.notifying.sender.to_string(),
        wait_timeout: database.settings.wait_timeout,
        announced: database.announced.clone(),
        received_announcements: Arc::clone(&database.received_announcements),
    };
    let (mut open, ends) = (database.open(), database.ends.clone());
    // The task holds a sender of `ends`, so closing the store waits for it.
    drop(tokio::spawn(async move {
        let mut is_open = true;
        while is_open {
            let pool = PgPoolOptions::new().max_connections(1);
            let pool = pool.connect_lazy_with(listener.options.clone());
            is_open = tokio::select! {
                () = listener.listen_once(&pool) => true,
                // No value is ever sent. The receiver fails when the last handle is dropped.
                _ = open.changed() => false,
            };
            // The server may be unreachable, so closing has a timeout.
            drop(timeout(listener.wait_timeout, pool.close()).await);
        }
        drop(ends);
    }));
}

/// Maximum age of the PostgreSQL connection that listens for event notifications. A connection that was lost unnoticed would receive no
/// further notification.
const RECONNECT_AFTER: Duration = Duration::from_secs(300);

struct NotificationListener {
    options: PgConnectOptions,
    schema: String,
    /// ID of this process in event notifications. The process ignores notifications with this ID, because it sent them itself.
    own_id: String,
    wait_timeout: Duration,
    announced: watch::Sender<u64>,
    received_announcements: Arc<AtomicU64>,
}

impl NotificationListener {
    /// Listens for event notifications over one connection. Ends when the connection is lost or has reached its maximum age.
    async fn listen_once(&self, pool: &PgPool) {
        let listening = async {
            let mut listener = PgListener::connect_with(pool).await?;
            listener.listen(CHANNEL).await?;
            // Notifications sent before this connection listened may have been missed.
            self.announce();
            loop {
                // `None` means that the connection was lost, so notifications may have been missed.
                let notification = listener.try_recv().await?;
                if notification
                    .is_none_or(|notification| self.is_of_another(notification.payload()))
                {
                    self.announce();
                }
            }
        };
        let listening: Result<sqlx::Result<()>, _> = timeout(RECONNECT_AFTER, listening).await;
        if let Ok(Err(error)) = listening {
            tracing::debug!(error = %Chain(&error), "cannot listen for notifications of other processes, will retry and poll meanwhile");
            sleep(Duration::from_secs(1)).await;
        }
    }
}

impl NotificationListener {
    /// Announces to the subscribers in this process that other processes may have committed events.
    fn announce(&self) {
        self.received_announcements.fetch_add(1, Ordering::SeqCst);
        self.announced.send_modify(|times| *times += 1);
    }

    /// Returns `true` if a notification reports new events that another process committed in the same PostgreSQL schema. Earlier
    /// versions of this crate send only the schema name.
    fn is_of_another(&self, payload: &str) -> bool {
        let (schema, sender) = payload.split_once(' ').unwrap_or((payload, ""));
        schema == self.schema && sender != self.own_id
    }
}
