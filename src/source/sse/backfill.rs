use crate::error::BoxError;
use crate::model::{BreadcrumbId, Event, Timestamp};
use async_trait::async_trait;

/// Knows what happened without a stream: what an [`SseSource`](super::SseSource) asks for what its stream left out.
#[async_trait]
pub trait Backfill: Send + Sync + 'static {
    /// The time of the newest change, by the clock of the server; the earliest time if there is none. Never a time that is
    /// later than that clock says: all up to it counts as known once [`since`](Self::since) has answered, and what has a
    /// time from the future would hide all that comes before it.
    ///
    /// # Errors
    /// Fails if the server does not say.
    async fn newest(&self) -> Result<Timestamp, BoxError>;

    /// What was changed after a time, oldest first: an event for each breadcrumb, at the version it has now. `wanted` is
    /// asked about each before more of it is read, and what it does not want is left out. Until it has answered for the
    /// first time after a connect, at most 5 s, the events of the stream wait.
    ///
    /// # Errors
    /// Fails if the server does not say, or not all of it.
    async fn since(
        &self,
        after: Timestamp,
        wanted: &(dyn Fn(BreadcrumbId, u64) -> bool + Send + Sync),
    ) -> Result<Vec<Event>, BoxError>;
}
