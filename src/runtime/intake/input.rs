//! Input of a runtime's intake: the deliveries of the event source, and the events that a sweep of the store found.

use crate::runtime::Runtime;
use crate::runtime::sweep::Found;
use crate::runtime::timeouts::{PAUSE, caught, caught_stream};
use crate::source::{Deliveries, Delivery, SourceError, StartAt};
use futures::StreamExt as _;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Subscribes to the event source from the first event that is not handled yet. Before any position is known, the subscription starts at
/// `start`.
///
/// # Errors
/// The source's errors, or [`SourceError::Unavailable`] after 30 s without an answer.
pub(super) async fn subscribe(
    runtime: &Runtime,
    start: StartAt,
) -> Result<Deliveries, SourceError> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let from = runtime.progress.from(start);
    match timeout(PATIENCE, caught(runtime.source.subscribe(from))).await {
        Ok(subscribed) => subscribed.map(|deliveries| deliveries.wrap(caught_stream)),
        Err(_) => Err(SourceError::Unavailable {
            retry_after: PAUSE,
            source: format!("no answer within {PATIENCE:?}").into(),
        }),
    }
}

/// The next input of a runtime's intake: a delivery of the event source, or an event that a sweep found.
pub(super) enum Next {
    Delivered(Option<Result<Delivery, SourceError>>),
    Found(Found),
}

/// Waits for the next event to take in. A delivery precedes an event that a sweep found, because both are often the same event, and the
/// found one would count as missed. `found_first` reverses the order, so that a source with constant deliveries cannot starve the sweep.
pub(super) async fn next(
    deliveries: Option<&mut Deliveries>,
    found: Option<&mut mpsc::Receiver<Found>>,
    found_first: bool,
) -> Next {
    let delivered = async {
        match deliveries {
            Some(deliveries) => deliveries.next().await,
            None => std::future::pending().await,
        }
    };
    let found = async {
        match found {
            Some(found) => found.recv().await,
            None => None,
        }
    };
    let found = async {
        match found.await {
            Some(found) => found,
            None => std::future::pending().await,
        }
    };
    if found_first {
        tokio::select! {
            biased;
            found = found => Next::Found(found),
            delivered = delivered => Next::Delivered(delivered),
        }
    } else {
        tokio::select! {
            biased;
            delivered = delivered => Next::Delivered(delivered),
            found = found => Next::Found(found),
        }
    }
}
