//! Creation of a breadcrumb on the RCRT server exactly once, even if the creation request is repeated. The RCRT server answers a
//! repeated idempotency key with status 409 and without the breadcrumb.

use super::creation_key::CreationKey;
use super::error::{store_error, write_error};
use super::filter::Filter;
use super::http::{Call, Failure};
use super::read::Reader;
use super::{NAME, body, wire};
use crate::clock::later;
use crate::error::Chain;
use crate::model::{BreadcrumbId, NewBreadcrumb};
use crate::store::StoreError;
use reqwest::Method;
use reqwest::header::HeaderName;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum size of a server response that contains only an ID (64 KiB).
pub(super) const MAX_ANSWER: usize = 64 << 10;

/// Maximum number of idempotency keys that the store tries, one after the other, to create one breadcrumb. Each attempt starts
/// with the first key, so it repeats all keys that earlier attempts used up.
const MAX_KEYS: u32 = 64;

/// Maximum number of failed attempts to create a breadcrumb. Attempts that fail because of a used idempotency key do not count.
const TRIES: u32 = 3;

/// Creates a breadcrumb, or finds the breadcrumb that an earlier attempt created with the same [`CreationKey`]. Returns its ID.
///
/// A used idempotency key (status 409) does not prove a success, because a failed creation uses up its key too. After every response
/// with an unknown outcome, this function searches for the tag of the creation. It takes the next key only after a 409: then each later
/// attempt meets the same sequence of used keys, and cannot create a duplicate under an unused key. If all keys are used up, no later
/// attempt can succeed, so the error is permanent.
pub(super) async fn create(
    reader: &Reader,
    index: usize,
    new: &NewBreadcrumb,
    creation: &CreationKey,
) -> Result<BreadcrumbId, StoreError> {
    let body = body::checked(index, wire::create_body(new))?;
    let mut timeout = reader.settings.lookup_timeout;
    let (mut epoch, mut tries) = (0, 1);
    loop {
        let failure = match send(reader, &body, &creation.key(epoch)).await {
            Ok(id) => return Ok(id),
            Err(failure) => failure,
        };
        let is_key_used = failure.status() == Some(409);
        if is_key_used || failure.may_have_succeeded() {
            tracing::debug!(failure = %Chain(&failure), creation = creation.key(epoch), "the outcome of a breadcrumb creation is \
                unknown; the breadcrumb may exist");
            if creation.tag().is_none() {
                return Err(unknown(failure));
            }
            if let Some(id) = look_up(reader, creation, timeout).await? {
                return Ok(id);
            }
            // A request in flight has reached the server by now.
            timeout = Duration::ZERO;
        } else if !failure.is_transient() {
            return Err(write_error(failure, index, body.len()));
        }
        if is_key_used {
            epoch += 1;
            if epoch == MAX_KEYS {
                return Err(used_up(failure));
            }
        } else if tries < TRIES {
            reader.client.pause(tries).await;
            tries += 1;
        } else if failure.may_have_succeeded() {
            return Err(unknown(failure));
        } else {
            return Err(write_error(failure, index, body.len()));
        }
    }
}

/// Searches for a breadcrumb after a creation whose outcome is unknown. The search ends when the breadcrumb is visible, or after
/// `lookup_timeout`. Returns the ID of the oldest breadcrumb if there are several.
async fn look_up(
    reader: &Reader,
    creation: &CreationKey,
    lookup_timeout: Duration,
) -> Result<Option<BreadcrumbId>, StoreError> {
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);
    let end = later(Instant::now(), lookup_timeout);
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
        let created = rows
            .iter()
            .filter(|row| creation.is_on(&row.breadcrumb.tags));
        ids.extend(created.map(|row| row.breadcrumb.id));
        if pages.rows_at_limit().is_some() {
            break;
        }
    }
    let found = reader.read_all(ids).await.map_err(store_error)?;
    let oldest = found
        .iter()
        .min_by_key(|found| (found.created_at, found.id));
    Ok(oldest.map(|found| found.id))
}

async fn send(reader: &Reader, body: &str, key: &str) -> Result<BreadcrumbId, Failure> {
    const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
    let call = Call {
        method: Method::POST,
        url: reader.client.url(&["breadcrumbs"]),
        headers: vec![(IDEMPOTENCY_KEY, key.to_owned())],
        body: Some(body.to_owned()),
        max_bytes: MAX_ANSWER,
    };
    let answer = reader.client.send(&call).await?;
    wire::created(&answer.text)
        .map_err(|_| Failure::Unreadable("the response has no breadcrumb ID".into()))
}

/// Returns the error of a breadcrumb creation whose outcome remains unknown. The search for the breadcrumb was impossible or found
/// nothing.
fn unknown(failure: Failure) -> StoreError {
    StoreError::Unavailable {
        store: NAME,
        retry_after: failure.retry_after(),
        source: Box::new(OutcomeUnknown(failure)),
    }
}

/// Returns the permanent error of a breadcrumb creation whose idempotency keys are all used up.
fn used_up(failure: Failure) -> StoreError {
    StoreError::Refused {
        store: NAME,
        source: Box::new(UsedUp(failure)),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot find out if the RCRT server created the breadcrumb; see the cause")]
struct OutcomeUnknown(#[source] Failure);

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot create the breadcrumb: the RCRT server rejected all {MAX_KEYS} idempotency keys as used, and the breadcrumb is missing; redo \
     the run"
)]
struct UsedUp(#[source] Failure);
