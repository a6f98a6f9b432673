//! State transitions of runs in PostgreSQL, each as a job (store operation in a transaction) or as one SQL write.

use super::error::Fault;
use super::facts::FactQuery;
use super::job::Job;
use super::lease::{ClaimRequest, Leased};
use super::read::Read;
use super::row::{self, StoredRun};
use super::tenant::TenantHandle;
use super::transaction::TenantTransaction;
use super::{NAME, queue};
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::durable::tenant::StoreClock;
use crate::store::row::{AttemptEnd, Origin, RunRow};
use crate::store::rules::{self, RowChange};
use crate::store::{Cancelled, Claim, Claimed, Lease, Lost, NewRun, RunEnd, RunRef, StoreError};
use sqlx::PgConnection;
use std::sync::Arc;

/// Store operation that adds runs to the ledger. Runs that are in the ledger already remain unchanged.
pub(super) struct Enqueue(pub(super) Vec<NewRun>);

impl Job for Enqueue {
    type Answer = ();

    fn request_facts(&self, fact_query: &mut FactQuery) {
        self.0
            .iter()
            .for_each(|new| fact_query.add_enqueued(&new.run));
    }

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<(), Fault> {
        let before = transaction.tenant.open_runs;
        for new in &self.0 {
            // Every worker enqueues every run, so most rows exist and do not change. They are not locked.
            let Some((serial, facts)) = transaction.enqueue_facts(&new.run).await? else {
                continue;
            };
            let mut change = (serial, rules::enqueue(facts, new.at));
            if change.0.is_some() && change.1.is_changed {
                let (serial, facts) = transaction.facts(&new.run).await?;
                change = (serial, rules::enqueue(facts, new.at));
            }
            transaction.apply(change.0, change.1);
        }
        if transaction.tenant.open_runs > before {
            check_run_limit(transaction, 0)?;
        }
        Ok(())
    }
}

/// Store operation that adds runs to the ledger and, after its commit, claims due runs in the same protocol message.
pub(super) struct EnqueueAndClaim {
    pub(super) runs: Enqueue,
    pub(super) claim_request: ClaimRequest,
}

impl Job for EnqueueAndClaim {
    /// The runs that the claim leased, or the error of the claim.
    type Answer = Result<Vec<Leased>, StoreError>;

    fn request_facts(&self, fact_query: &mut FactQuery) {
        self.runs.request_facts(fact_query);
    }

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<Self::Answer, Fault> {
        self.runs.run(transaction).await?;
        Ok(Ok(Vec::new()))
    }

    fn claims(&self) -> Option<&ClaimRequest> {
        (!self.claim_request.is_empty()).then_some(&self.claim_request)
    }

    fn leased(answer: &mut Self::Answer, leased: Result<Vec<Leased>, StoreError>) {
        *answer = leased;
    }
}

/// Store operation that claims one run for a worker. If the run replaces another run, the store operation first ends the other
/// run, whose lease is `instead_of`.
pub(super) struct ClaimOne {
    pub(super) run: RunRef,
    pub(super) instead_of: Option<Lease>,
}

impl Job for ClaimOne {
    type Answer = Claim;

    fn request_facts(&self, fact_query: &mut FactQuery) {
        fact_query.add_run(&self.run);
        if let Some(older) = &self.instead_of {
            fact_query.add_run(&older.run);
        }
    }

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<Claim, Fault> {
        if let Some(older) = &self.instead_of {
            let older = find_leased(transaction, older).await?;
            end(
                transaction,
                older,
                AttemptEnd::of(RunEnd::Superseded, transaction.now),
                &[],
            );
        }
        let (serial, facts) = transaction.facts(&self.run).await?;
        let is_own = matches!(facts.origin, Origin::Own);
        let opens = !is_own && rules::adds_open_run(facts.row.as_ref(), &facts.origin);
        if opens && self.instead_of.is_none() {
            check_run_limit(transaction, 1)?;
        }
        let (claim, change) = rules::claim(facts);
        if let Some(change) = change {
            transaction.apply(serial, change);
        }
        Ok(claim)
    }
}

/// Store operation that records the origins of triggers (correlation ID and hops) in the ledger rows of leased runs. These runs
/// were added before their triggers existed.
pub(super) struct RecordOrigins(pub(super) Vec<Lease>);

impl Job for RecordOrigins {
    type Answer = Vec<Claimed>;

    fn request_facts(&self, fact_query: &mut FactQuery) {
        self.0
            .iter()
            .for_each(|lease| fact_query.add_run(&lease.run));
    }

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<Vec<Claimed>, Fault> {
        let mut claimed = Vec::new();
        for lease in &self.0 {
            let (serial, facts) = transaction.facts(&lease.run).await?;
            let Ok(row) = rules::held(facts.row, lease) else {
                continue;
            };
            let (run, change) = rules::record_origin(row, facts.origin);
            transaction.apply(serial, change);
            claimed.push(run);
        }
        Ok(claimed)
    }
}

/// Write that extends leases of runs, so that each lease ends one lease duration after now. The result contains the lost leases.
pub(super) struct Heartbeat {
    pub(super) tenant: Arc<TenantHandle>,
    pub(super) leases: Vec<Lease>,
}

impl Read for Heartbeat {
    type Answer = Vec<Lost>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &StoreClock,
    ) -> Result<Vec<Lost>, Fault> {
        let Some(tenant) = self.tenant.id(connection).await? else {
            return Ok(self.leases.iter().map(Lost::new).collect());
        };
        let extended = queue::extend(connection, tenant, time, &self.leases).await?;
        let mut lost = self.leases.clone();
        lost.retain(|lease| !extended.contains(&queue::lease_key(lease)));
        queue::record_live_owners(connection, tenant, &lost).await?;
        Ok(lost.iter().map(Lost::new).collect())
    }
}

/// Store operation that applies a state transition to the ledger row of a run. `D` decides about the change from the row, the
/// time and the next sequence number.
pub(super) struct ChangeRow<D> {
    pub(super) run: RunRef,
    pub(super) decide: D,
}

impl<D> Job for ChangeRow<D>
where
    D: Fn(Option<RunRow>, Timestamp, u64) -> Result<RowChange, StoreError> + Send + Sync + 'static,
{
    type Answer = ();

    fn request_facts(&self, fact_query: &mut FactQuery) {
        fact_query.add_run(&self.run);
    }

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<(), Fault> {
        let (serial, facts) = transaction.facts(&self.run).await?;
        let change = (self.decide)(facts.row, facts.now, facts.next)?;
        transaction.apply(serial, change);
        Ok(())
    }
}

/// Write that saves the progress of a leased run (its JSON state) in the run's ledger row.
pub(super) struct Save {
    pub(super) tenant: Arc<TenantHandle>,
    pub(super) lease: Lease,
    pub(super) state: Json,
}

impl Read for Save {
    type Answer = ();

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, _: &StoreClock) -> Result<(), Fault> {
        let is_saved = match self.tenant.id(connection).await? {
            Some(tenant) => row::save(connection, tenant, &self.lease, &self.state).await?,
            None => false,
        };
        if is_saved {
            return Ok(());
        }
        let run = self.lease.run.clone();
        Err(StoreError::LeaseLost { run }.into())
    }
}

/// Store operation that makes a failed or skipped run ready again, behind all other runs with its ordering key.
pub(super) struct Redo(pub(super) RunRef);

impl Job for Redo {
    type Answer = ();

    fn request_facts(&self, fact_query: &mut FactQuery) {
        fact_query.add_run(&self.0);
    }

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<(), Fault> {
        check_run_limit(transaction, 1)?;
        let (serial, facts) = transaction.facts(&self.0).await?;
        transaction.apply(serial, rules::redo(facts)?);
        Ok(())
    }
}

/// Store operation that cancels a run that is in the ledger, unless the run has ended already.
pub(super) struct Cancel(pub(super) RunRef);

impl Job for Cancel {
    type Answer = Cancelled;

    fn request_facts(&self, fact_query: &mut FactQuery) {
        fact_query.add_run(&self.0);
    }

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<Cancelled, Fault> {
        let (serial, facts) = transaction.facts(&self.0).await?;
        let (cancelled, change) = rules::cancel(facts.row, &self.0, facts.next)?;
        transaction.apply(serial, change);
        Ok(cancelled)
    }
}

/// Store operation that cancels a run unless it has ended already, and adds the run to the ledger first if it is missing.
pub(super) struct EnqueueCancelled(pub(super) RunRef);

impl Job for EnqueueCancelled {
    type Answer = Cancelled;

    fn request_facts(&self, fact_query: &mut FactQuery) {
        fact_query.add_run(&self.0);
    }

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<Cancelled, Fault> {
        let (serial, facts) = transaction.facts(&self.0).await?;
        let (cancelled, change) = rules::enqueue_cancelled(facts);
        transaction.apply(serial, change);
        Ok(cancelled)
    }
}

/// Returns the ledger row of a leased run, or an error if the lease is no longer the newest of the run.
pub(super) async fn find_leased(
    transaction: &mut TenantTransaction<'_>,
    lease: &Lease,
) -> Result<StoredRun, Fault> {
    let (serial, facts) = transaction.facts(&lease.run).await?;
    let row = rules::held(facts.row, lease)?;
    Ok(StoredRun { serial, row })
}

/// Records the end or the suspension of a leased run in its ledger row.
pub(super) fn end(
    transaction: &mut TenantTransaction<'_>,
    stored: StoredRun,
    end: AttemptEnd,
    written: &[BreadcrumbId],
) {
    let change = rules::end(stored.row, end, written, transaction.next());
    transaction.apply(stored.serial, change);
}

fn check_run_limit(transaction: &mut TenantTransaction<'_>, more: usize) -> Result<(), Fault> {
    let open = usize::try_from(transaction.tenant.open_runs).unwrap_or_default();
    let result = rules::check_open_runs(NAME, open, more, transaction.limits.open_runs);
    Ok(result.map_err(|error| transaction.limit_error(error))?)
}
