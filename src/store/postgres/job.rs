//! Trait of the jobs (store operations) that run in PostgreSQL transactions.

use super::commit_position::CommitPosition;
use super::error::Fault;
use super::facts::FactQuery;
use super::lease::{ClaimRequest, Leased};
use super::transaction::TenantTransaction;
use crate::store::StoreError;

/// A store operation that runs in a PostgreSQL transaction. A job runs again if its transaction is retried.
pub(super) trait Job: Send + Sync + 'static {
    /// Result of the job (store operation) for its caller.
    type Answer: Send + 'static;

    /// Adds to `fact_query` the runs, breadcrumbs and idempotency keys of requests that the job (store operation) needs.
    fn request_facts(&self, _fact_query: &mut FactQuery) {}

    /// Runs the job (store operation) in an open transaction. The changes of a job that fails are rolled back.
    fn run(
        &self,
        transaction: &mut TenantTransaction<'_>,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;

    /// Returns the parameters of the claim of due runs that follows the commit, or `None` if the job (store operation) claims no
    /// runs.
    fn claims(&self) -> Option<&ClaimRequest> {
        None
    }

    /// Stores in the job's (store operation's) result which runs the claim after the commit leased. `leased` is an error if the
    /// claim failed.
    fn leased(_answer: &mut Self::Answer, _leased: Result<Vec<Leased>, StoreError>) {}

    /// Replaces the provisional update times of breadcrumbs in the job's (store operation's) result, once the transaction has its
    /// position in the tenant's commit order.
    fn finalize_times(_answer: &mut Self::Answer, _commit_position: &CommitPosition) {}

    /// Runs actions that require the commit of the job (store operation), even if the caller no longer waits for the result. Does
    /// nothing by default.
    fn committed(&self, _answer: &Self::Answer) {}
}
