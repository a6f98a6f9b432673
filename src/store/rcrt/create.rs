//! Creating a breadcrumb once, on a server that says of a repetition only that it is one.

use super::creation_key::CreationKey;
use super::error::{store_error, write_error};
use super::filter::Filter;
use super::http::{Call, Failure};
use super::read::Reader;
use super::{NAME, commit, wire};
use crate::clock::later;
use crate::error::Chain;
use crate::model::{BreadcrumbId, NewBreadcrumb};
use crate::store::StoreError;
use reqwest::Method;
use reqwest::header::HeaderName;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How many bytes are read of an answer that is an id.
pub(super) const MAX_ANSWER: usize = 64 << 10;

/// How many keys there are for one creation. Each attempt comes by all that earlier ones used up and left nothing.
const MAX_KEYS: u32 = 64;

/// How often the server may fail otherwise.
const TRIES: u32 = 3;

/// Creates a breadcrumb, or finds the one that was created in its creation.
///
/// A key that was seen (409) says nothing: it may have been used up by a creation that failed. So whatever is not a clear
/// answer is settled by looking for the tag of the creation. Another key is taken only when the server says that it has seen
/// this one: whoever creates in the same creation later then comes by the same keys, and does not find one that nobody used.
/// When all keys are used up no later attempt can do better, so that is an error for good.
pub(super) async fn create(
    reader: &Reader,
    index: usize,
    new: &NewBreadcrumb,
    creation: &CreationKey,
) -> Result<BreadcrumbId, StoreError> {
    let body = commit::body(index, wire::create_body(new))?;
    let mut patience = reader.settings.patience;
    let (mut epoch, mut tries) = (0, 1);
    loop {
        let failure = match send(reader, &body, &creation.key(epoch)).await {
            Ok(id) => return Ok(id),
            Err(failure) => failure,
        };
        let is_seen = failure.status() == Some(409);
        if is_seen || failure.may_be_done() {
            tracing::debug!(failure = %Chain(&failure), creation = creation.key(epoch), "a breadcrumb may have been created");
            if creation.tag().is_none() {
                return Err(unknown(failure));
            }
            if let Some(id) = look_up(reader, creation, patience).await? {
                return Ok(id);
            }
            // What was on its way has come by now.
            patience = Duration::ZERO;
        } else if !failure.is_passing() {
            return Err(write_error(failure, index, body.len()));
        }
        if is_seen {
            epoch += 1;
            if epoch == MAX_KEYS {
                return Err(used_up(failure));
            }
        } else if tries < TRIES {
            reader.link.pause(tries).await;
            tries += 1;
        } else if failure.may_be_done() {
            return Err(unknown(failure));
        } else {
            return Err(write_error(failure, index, body.len()));
        }
    }
}

/// The id of what was created in a creation, as soon as it is there; the oldest, should there be several.
async fn look_up(
    reader: &Reader,
    creation: &CreationKey,
    patience: Duration,
) -> Result<Option<BreadcrumbId>, StoreError> {
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);
    let end = later(Instant::now(), patience);
    let mut pause = Duration::from_millis(50);
    loop {
        if let Some(id) = created_in(reader, creation).await? {
            return Ok(Some(id));
        }
        if Instant::now() + pause > end {
            return Ok(None);
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn created_in(
    reader: &Reader,
    creation: &CreationKey,
) -> Result<Option<BreadcrumbId>, StoreError> {
    let filter = Filter {
        schema: None,
        tag: creation.tag().map(str::to_owned),
    };
    let mut pages = reader.pages(&filter);
    let mut ids = Vec::new();
    while let Some(rows) = pages.next().await.map_err(store_error)? {
        let here = rows
            .iter()
            .filter(|row| creation.is_on(&row.breadcrumb.tags));
        ids.extend(here.map(|row| row.breadcrumb.id));
        if pages.too_far().is_some() {
            break;
        }
    }
    let found = reader.fulls(ids).await.map_err(store_error)?;
    let oldest = found
        .iter()
        .min_by_key(|found| (found.created_at, found.id));
    Ok(oldest.map(|found| found.id))
}

async fn send(reader: &Reader, body: &str, key: &str) -> Result<BreadcrumbId, Failure> {
    const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
    let call = Call {
        method: Method::POST,
        url: reader.link.url(&["breadcrumbs"]),
        headers: vec![(IDEMPOTENCY_KEY, key.to_owned())],
        body: Some(body.to_owned()),
        max_bytes: MAX_ANSWER,
    };
    let answer = reader.link.send(&call).await?;
    wire::created(&answer.text).map_err(|_| Failure::Unreadable("it has no id".into()))
}

/// A write that may have been done, and cannot be looked for.
fn unknown(failure: Failure) -> StoreError {
    StoreError::Unavailable {
        store: NAME,
        retry_after: failure.retry_after(),
        source: Box::new(OutcomeUnknown(failure)),
    }
}

/// A write that cannot be done under any of its keys.
fn used_up(failure: Failure) -> StoreError {
    StoreError::Refused {
        store: NAME,
        source: Box::new(UsedUp(failure)),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the breadcrumb may have been created or not")]
struct OutcomeUnknown(#[source] Failure);

#[derive(Debug, thiserror::Error)]
#[error(
    "the server has seen all {MAX_KEYS} idempotency keys of the breadcrumb and has no such breadcrumb; redo the run"
)]
struct UsedUp(#[source] Failure);
