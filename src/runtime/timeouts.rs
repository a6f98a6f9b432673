//! Time limits for calls of stores and sources, and conversion of their panics into errors.

use crate::source::{Deliveries, Delivery, SourceError};
use crate::store::StoreError;
use futures::{FutureExt as _, Stream, StreamExt as _};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Pause before a failed operation of the runtime is retried.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Time limit of one search of a store. A store may send many requests for one search, each with a separate limit and retries.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(300);

/// Time limit of a search for the newest breadcrumb of a store. The start of a runtime can wait for this search.
const NEWEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Default time limit of a call of a store or an event source. Searches of a store have a longer limit.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Awaits a store call with the default time limit. A panic or a missing answer becomes [`StoreError::Unavailable`].
pub(super) async fn with_timeout<T>(
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    within(DEFAULT_TIMEOUT, answer).await
}

/// Awaits a search of a store with the time limit for searches, which is longer than the default. A store may send many requests for one
/// search.
pub(super) async fn with_search_timeout<T>(
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    within(SEARCH_TIMEOUT, answer).await
}

/// Awaits a search for the newest breadcrumb of a store with the time limit of this search.
pub(super) async fn with_newest_timeout<T>(
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    within(NEWEST_TIMEOUT, answer).await
}

async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let unavailable = |source: String| StoreError::Unavailable {
        store: "the store",
        retry_after: RETRY_PAUSE,
        source: source.into(),
    };
    match crate::clock::within(limit, AssertUnwindSafe(answer).catch_unwind()).await {
        Some(Ok(answer)) => answer,
        // The message of a panic may quote the payload. The panic hook of the process prints it.
        Some(Err(_)) => Err(unavailable("the store panicked".to_owned())),
        None => Err(unavailable(format!("no answer within {limit:?}"))),
    }
}

/// Awaits a call of an event source without a time limit. A panic becomes [`SourceError::Unavailable`].
pub(super) async fn catch_panic<T>(
    answer: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    let answer = AssertUnwindSafe(answer).catch_unwind().await;
    answer.unwrap_or_else(|_| Err(source_panicked()))
}

/// Awaits a call of an event source with the default time limit. A panic or a missing answer becomes [`SourceError::Unavailable`].
pub(super) async fn with_source_timeout<T>(
    answer: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    let answer = crate::clock::within(DEFAULT_TIMEOUT, catch_panic(answer)).await;
    answer.unwrap_or_else(|| {
        Err(SourceError::Unavailable {
            retry_after: RETRY_PAUSE,
            source: format!("no answer within {DEFAULT_TIMEOUT:?}").into(),
        })
    })
}

/// Wraps the stream of an event source's deliveries, so that a panic of the source becomes an error and ends the stream.
pub(super) fn catch_stream_panics(
    deliveries: Deliveries,
) -> impl Stream<Item = Result<Delivery, SourceError>> + Send + 'static {
    let caught = AssertUnwindSafe(deliveries).catch_unwind();
    caught.map(|next| next.unwrap_or_else(|_| Err(source_panicked())))
}

fn source_panicked() -> SourceError {
    SourceError::Unavailable {
        retry_after: RETRY_PAUSE,
        source: "the event source panicked".into(),
    }
}
