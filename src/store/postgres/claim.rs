//! Claims of due runs in PostgreSQL. Each claim is its own transaction. If its answer is lost, this module ends the claim's session, so
//! that the server executes nothing more of it, and then reads which runs it leased. So no lease is left without a worker.

use super::database::Database;
use super::error::{ATTEMPTS, Class, Fault, ended, is_worth_another, of_driver};
use super::lease::{self, Asked, Leased};
use super::read::Read;
use super::session::Session;
use super::tenant::Named;
use crate::error::Chain;
use crate::store::StoreError;
use crate::store::durable::tenant::Time;
use sqlx::PgConnection;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// One worker's claim of due runs, which takes turns between the executors.
pub(super) struct ClaimNext {
    tenant: Arc<Named>,
    asked: Asked,
    /// If `true`, the claim of runs was sent to the PostgreSQL server at least once.
    sent: AtomicBool,
    /// PostgreSQL session over which the claim of runs was sent last.
    session: Mutex<Option<Session>>,
}

/// Query that finds the leased runs of a claim whose answer was lost. It first ends the claim's PostgreSQL session, because the server may
/// still execute the claim, or may not have received it yet.
struct Look<'c> {
    claim: &'c ClaimNext,
    /// Maximum time to wait for the end of the claim's PostgreSQL session.
    patience: Duration,
}

impl ClaimNext {
    pub(super) fn new(tenant: Arc<Named>, asked: Asked) -> Self {
        Self {
            tenant,
            asked,
            sent: AtomicBool::new(false),
            session: Mutex::default(),
        }
    }

    /// Runs the claim of due runs to its end, even if the caller stops waiting. Returns the leased rows.
    pub(super) async fn claim(self, database: &Arc<Database>) -> Result<Vec<Leased>, StoreError> {
        database.loss.check()?;
        let (waiting, working) = database.progress.begin(&self.tenant.name);
        let database = Arc::clone(database);
        let claimed = tokio::spawn(async move {
            let claimed = self.until_known(&database).await;
            drop(working);
            claimed
        });
        let claimed = claimed.await;
        drop(waiting);
        claimed.map_err(|_| ended())?
    }

    async fn until_known(&self, database: &Database) -> Result<Vec<Leased>, StoreError> {
        let mut attempt = 1;
        loop {
            let error = match database.attempt_read(self).await {
                Err(Fault::Driver(error)) => error,
                answer => return Ok(answer?),
            };
            if self.is_in_doubt(&error) {
                let found = self.look(database, &error).await?;
                if !found.is_empty() {
                    return Ok(found);
                }
            }
            if attempt == ATTEMPTS || !is_worth_another(&error) {
                return Err(of_driver(error.into()));
            }
            attempt += 1;
        }
    }

    /// Returns `true` if the PostgreSQL server may have executed the claim of runs despite the error.
    fn is_in_doubt(&self, error: &sqlx::Error) -> bool {
        let says_no = match Class::of(error) {
            Class::Collided | Class::Permanent | Class::ReadOnly | Class::Setup => true,
            Class::Lost | Class::Transient | Class::Login => false,
        };
        self.sent.load(Ordering::Relaxed) && !says_no
    }

    /// Returns the runs that a claim leased although its answer was lost.
    async fn look(
        &self,
        database: &Database,
        lost: &sqlx::Error,
    ) -> Result<Vec<Leased>, StoreError> {
        const PAUSE: Duration = Duration::from_millis(50);
        let patience = database.settings.patience;
        let look = Look {
            claim: self,
            patience,
        };
        let give_up = Instant::now() + patience;
        loop {
            let error = match database.attempt_read(&look).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => sqlx::Error::PoolTimedOut,
                Err(Fault::Driver(error)) => error,
                Err(fault) => return Err(fault.into()),
            };
            if Instant::now() > give_up {
                tracing::warn!(error = %Chain(lost), "the connection to PostgreSQL was lost during a claim of due runs; leased runs are retried after their leases expire");
                return Err(of_driver(error.into()));
            }
            tracing::debug!(error = %Chain(&error), "cannot read the outcome of a claim, will retry");
            sleep(PAUSE).await;
        }
    }

    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read for ClaimNext {
    type Answer = Vec<Leased>;
    const IS_PREPARED: bool = true;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    fn over(&self, session: Session) {
        *self.session() = Some(session);
    }

    async fn run(&self, connection: &mut PgConnection, time: &Time) -> Result<Vec<Leased>, Fault> {
        let tenant = match self.tenant.id(connection).await? {
            Some(tenant) if !self.asked.is_empty() => tenant,
            Some(_) | None => return Ok(Vec::new()),
        };
        self.sent.store(true, Ordering::Relaxed);
        Ok(lease::due(connection, tenant, time, &self.asked).await?)
    }
}

impl Read for Look<'_> {
    /// The runs that the claim leased, or `None` if the claim's PostgreSQL session has not ended yet.
    type Answer = Option<Vec<Leased>>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.claim.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &Time,
    ) -> Result<Option<Vec<Leased>>, Fault> {
        let session = *self.claim.session();
        if let Some(session) = session
            && !session.end(connection, self.patience).await?
        {
            return Ok(None);
        }
        let Some(tenant) = self.claim.tenant.id(connection).await? else {
            return Ok(Some(Vec::new()));
        };
        let leased = lease::again(connection, tenant, time, &self.claim.asked).await?;
        Ok(Some(leased))
    }
}
