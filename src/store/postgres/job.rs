//! Jobs of transactions.

use super::error::Fault;
use super::facts::Wanted;
use super::lease::{Asked, Leased};
use super::place::Place;
use super::writing::Writing;
use crate::store::StoreError;

/// A unit of work in a transaction. A job runs again if its transaction is retried.
pub(super) trait Job: Send + Sync + 'static {
    /// Result of the job.
    type Answer: Send + 'static;

    /// Adds the facts that the job needs to `wanted`.
    fn wants(&self, _wanted: &mut Wanted) {}

    /// Runs the job. The changes of a job that fails are rolled back.
    fn run(
        &self,
        writing: &mut Writing<'_>,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;

    /// Returns the claim that the transaction makes after its commit, or `None` if the job claims no due runs.
    fn claims(&self) -> Option<&Asked> {
        None
    }

    /// Adds the leased runs to the result.
    fn leased(_answer: &mut Self::Answer, _leased: Result<Vec<Leased>, StoreError>) {}

    /// Replaces provisional times in the result, once the transaction has its place in the commit order.
    fn settle(_answer: &mut Self::Answer, _place: &Place) {}

    /// Called after the commit, even if the caller no longer waits for the result.
    fn committed(&self, _answer: &Self::Answer) {}
}
