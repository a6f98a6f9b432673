use crate::error::BoxError;
use crate::model::{BreadcrumbId, Event, Timestamp};
use async_trait::async_trait;

/// A list of breadcrumb changes in which an [`SseSource`](super::SseSource) finds the events that its stream did not deliver.
///
/// Implement it for a server that has a list of changes but is not an RCRT server, and pass it to
/// [`SseSourceBuilder::backfill`](super::SseSourceBuilder::backfill).
#[async_trait]
pub trait Backfill: Send + Sync + 'static {
    /// Returns the time of the newest breadcrumb change by the server's clock, or [`Timestamp::UNIX_EPOCH`] if no
    /// breadcrumb has ever changed.
    ///
    /// The returned time must not be later than the server's current time. After [`since`](Self::since) has returned, the source
    /// regards all changes up to this time as delivered, so a time in the future would hide the changes before it.
    ///
    /// # Errors
    /// Fails if the time cannot be read from the server.
    async fn newest(&self) -> Result<Timestamp, BoxError>;

    /// Returns the breadcrumb changes after a time, oldest first: one event per breadcrumb, with its current version.
    ///
    /// Call `wanted` with the ID and version of each breadcrumb before reading the rest of it, and omit the breadcrumb if `wanted`
    /// returns `false`. After a connect, the source holds the events of the stream until the first call returns, at most 5 s.
    ///
    /// # Errors
    /// Fails if the changes cannot be read from the server, or only some of them.
    async fn since(
        &self,
        after: Timestamp,
        wanted: &(dyn Fn(BreadcrumbId, u64) -> bool + Send + Sync),
    ) -> Result<Vec<Event>, BoxError>;
}
