//! Claims of due runs in PostgreSQL. Each claim is its own transaction. If its answer is lost, this module ends the claim's session, so
//! that the server executes nothing more of it, and then reads which runs it leased. So no lease is left without a worker.

use super::database::Database;
use super::error::{ATTEMPTS, Class, Fault, can_retry_at_once, of_driver, task_ended};
use super::lease::{self, ClaimRequest, Leased};
use super::read::Read;
use super::session::Session;
use super::tenant::TenantHandle;
use crate::error::Chain;
use crate::store::StoreError;
use crate::store::durable::tenant::StoreClock;
use sqlx::PgConnection;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// One worker's claim of due runs of several executors, which takes one run of each executor in turn.
pub(super) struct ClaimNext {
    tenant: Arc<TenantHandle>,
    claim_request: ClaimRequest,
    /// If `true`, the claim of runs was sent to the PostgreSQL server at least once.
    sent: AtomicBool,
    /// PostgreSQL session over which the claim of runs was sent last.
    session: Mutex<Option<Session>>,
}

/// Query for the runs that a claim has leased, after the PostgreSQL server's answer to the claim was lost. It first ends the
/// claim's PostgreSQL session, because the server may still execute the claim, or may not have received it yet.
struct LeasedRunsQuery<'c> {
    claim: &'c ClaimNext,
    /// Maximum time to wait until the PostgreSQL session in which runs were claimed has ended.
    wait_timeout: Duration,
}

impl ClaimNext {
    pub(super) fn new(tenant: Arc<TenantHandle>, claim_request: ClaimRequest) -> Self {
        Self {
            tenant,
            claim_request,
            sent: AtomicBool::new(false),
            session: Mutex::default(),
        }
    }

    /// Completes a claim of due runs even if the caller stops waiting, and returns the leased runs.
    pub(super) async fn claim(self, database: &Arc<Database>) -> Result<Vec<Leased>, StoreError> {
        database.loss.check()?;
        let (caller_guard, job_guard) = database.abandoned_jobs.begin(&self.tenant.name);
        let database = Arc::clone(database);
        let claimed = tokio::spawn(async move {
            let claimed = self.claim_until_known(&database).await;
            drop(job_guard);
            claimed
        });
        let claimed = claimed.await;
        drop(caller_guard);
        claimed.map_err(|_| task_ended())?
    }

    async fn claim_until_known(&self, database: &Database) -> Result<Vec<Leased>, StoreError> {
        let mut attempt = 1;
        loop {
            let error = match database.attempt_read(self).await {
                Err(Fault::Driver(error)) => error,
                answer => return Ok(answer?),
            };
            if self.is_in_doubt(&error) {
                let leased = self.find_leased(database, &error).await?;
                if !leased.is_empty() {
                    return Ok(leased);
                }
            }
            if attempt == ATTEMPTS || !can_retry_at_once(&error) {
                return Err(of_driver(error.into()));
            }
            attempt += 1;
        }
    }

    /// Returns `true` if the PostgreSQL server may have executed the claim of runs despite the error.
    fn is_in_doubt(&self, error: &sqlx::Error) -> bool {
        let is_rejected = match Class::of(error) {
            Class::Conflict | Class::Permanent | Class::ReadOnly | Class::Setup => true,
            Class::Lost | Class::Transient | Class::Login => false,
        };
        self.sent.load(Ordering::Relaxed) && !is_rejected
    }

    /// Returns the runs that a claim leased although its answer was lost.
    async fn find_leased(
        &self,
        database: &Database,
        connection_error: &sqlx::Error,
    ) -> Result<Vec<Leased>, StoreError> {
        const PAUSE: Duration = Duration::from_millis(50);
        let wait_timeout = database.settings.wait_timeout;
        let query = LeasedRunsQuery {
            claim: self,
            wait_timeout,
        };
        let deadline = Instant::now() + wait_timeout;
        loop {
            let error = match database.attempt_read(&query).await {
                Ok(Some(leased)) => return Ok(leased),
                Ok(None) => sqlx::Error::PoolTimedOut,
                Err(Fault::Driver(error)) => error,
                Err(fault) => return Err(fault.into()),
            };
            if Instant::now() > deadline {
                tracing::warn!(error = %Chain(connection_error), "the connection to PostgreSQL was lost during a claim of due runs; leased runs are retried after their leases expire");
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

    fn set_session(&self, session: Session) {
        *self.session() = Some(session);
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &StoreClock,
    ) -> Result<Vec<Leased>, Fault> {
        let tenant = match self.tenant.id(connection).await? {
            Some(tenant) if !self.claim_request.is_empty() => tenant,
            Some(_) | None => return Ok(Vec::new()),
        };
        self.sent.store(true, Ordering::Relaxed);
        Ok(lease::due(connection, tenant, time, &self.claim_request).await?)
    }
}

impl Read for LeasedRunsQuery<'_> {
    /// The runs that the claim leased, or `None` if the claim's PostgreSQL session has not ended yet.
    type Answer = Option<Vec<Leased>>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.claim.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &StoreClock,
    ) -> Result<Option<Vec<Leased>>, Fault> {
        let session = *self.claim.session();
        if let Some(session) = session
            && !session.end(connection, self.wait_timeout).await?
        {
            return Ok(None);
        }
        let Some(tenant) = self.claim.tenant.id(connection).await? else {
            return Ok(Some(Vec::new()));
        };
        let leased = lease::of_claim(connection, tenant, time, &self.claim.claim_request).await?;
        Ok(Some(leased))
    }
}
