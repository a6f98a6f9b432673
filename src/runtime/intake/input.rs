//! Input of a runtime's intake: the deliveries of the event source, and the events that a sweep of the store found.

use crate::runtime::Runtime;
use crate::runtime::sweep::SweptBreadcrumb;
use crate::runtime::timeouts::{RETRY_PAUSE, catch_panic, catch_stream_panics};
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
    const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(30);
    let from = runtime.progress.subscription_start(start);
    match timeout(
        SUBSCRIBE_TIMEOUT,
        catch_panic(runtime.source.subscribe(from)),
    )
    .await
    {
        Ok(subscribed) => subscribed.map(|deliveries| deliveries.wrap(catch_stream_panics)),
        Err(_) => Err(SourceError::Unavailable {
            retry_after: RETRY_PAUSE,
            source: format!("no answer within {SUBSCRIBE_TIMEOUT:?}").into(),
        }),
    }
}

/// The next input of a runtime's intake: a delivery of the event source, or an event that a sweep found.
pub(super) enum IntakeInput {
    Delivered(Option<Result<Delivery, SourceError>>),
    Swept(SweptBreadcrumb),
}

/// Waits for the next event delivery of the source, or for the next breadcrumb that a sweep found. A delivery precedes an event
/// that a sweep found, because both are often the same event, and the found one would count as missed. `sweep_first` reverses the
/// order, so that a source with constant deliveries cannot starve the sweep.
pub(super) async fn next_input(
    deliveries: Option<&mut Deliveries>,
    swept: Option<&mut mpsc::Receiver<SweptBreadcrumb>>,
    sweep_first: bool,
) -> IntakeInput {
    let delivered = async {
        match deliveries {
            Some(deliveries) => deliveries.next().await,
            None => std::future::pending().await,
        }
    };
    let swept = async {
        match swept {
            Some(swept) => swept.recv().await,
            None => None,
        }
    };
    let swept = async {
        match swept.await {
            Some(swept) => swept,
            None => std::future::pending().await,
        }
    };
    if sweep_first {
        tokio::select! {
            biased;
            swept = swept => IntakeInput::Swept(swept),
            delivered = delivered => IntakeInput::Delivered(delivered),
        }
    } else {
        tokio::select! {
            biased;
            delivered = delivered => IntakeInput::Delivered(delivered),
            swept = swept => IntakeInput::Swept(swept),
        }
    }
}
