//! Trait of the jobs (store operations) that run in PostgreSQL transactions.

use super::error::Fault;
use super::facts::Wanted;
use super::lease::{Asked, Leased};
use super::place::Place;
use super::writing::Writing;
use crate::store::StoreError;

/// A store operation that runs in a PostgreSQL transaction. A job runs again if its transaction is retried.
pub(super) trait Job: Send + Sync + 'static {
    /// Result of the job (store operation) for its caller.
    type Answer: Send + 'static;

    /// Adds the runs, breadcrumbs and request keys that the job needs to `wanted`.
    fn wants(&self, _wanted: &mut Wanted) {}

    /// Runs the job (store operation) in an open transaction. The changes of a job that fails are rolled back.
    fn run(
        &self,
        writing: &mut Writing<'_>,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;

    /// Returns the parameters of the claim that follows the commit, or `None` if the job claims no due runs.
    fn claims(&self) -> Option<&Asked> {
        None
    }

    /// Adds the leased runs to the job's result. The job's claim leased these runs after the commit. `leased` is an error if the claim
    /// failed.
    fn leased(_answer: &mut Self::Answer, _leased: Result<Vec<Leased>, StoreError>) {}

    /// Replaces provisional breadcrumb times in the job's result, once the transaction has its place in the tenant's commit order.
    fn settle(_answer: &mut Self::Answer, _place: &Place) {}

    /// Performs the job's work after the commit, even if the caller no longer waits for the result. Does nothing by default.
    fn committed(&self, _answer: &Self::Answer) {}
}
