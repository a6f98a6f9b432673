//! Updates and deletions on the RCRT server, which may have succeeded although the response is an error.

use super::create::MAX_ANSWER;
use super::error::{store_error, write_error};
use super::http::{Call, Failure};
use super::read::Reader;
use super::{NAME, body, wire};
use crate::error::Chain;
use crate::model::{Breadcrumb, BreadcrumbId, Patch};
use crate::store::StoreError;
use reqwest::Method;
use reqwest::header::IF_MATCH;

/// Maximum number of attempts of an update or a deletion on the RCRT server.
const TRIES: u32 = 3;

/// Updates a breadcrumb on the RCRT server and returns its new version.
///
/// A response with status 500 does not prove that the update failed, even if it races with another update. The function then
/// reads the breadcrumb and compares it. After status 412, the update has failed, unless an earlier attempt may have succeeded.
pub(super) async fn update(
    reader: &Reader,
    index: usize,
    before: Breadcrumb,
    patch: Patch,
) -> Result<Breadcrumb, StoreError> {
    let body = body::checked(index, wire::patch_body(&patch))?;
    let (id, version) = (before.id, before.version);
    let (mut is_outcome_unknown, mut tries) = (false, 1);
    loop {
        let failure = match send(reader, Method::PATCH, id, Some((&body, version))).await {
            Ok(()) => return Ok(updated_version(reader, &before, patch).await),
            Err(failure) => failure,
        };
        let may_have_succeeded = failure.may_have_succeeded();
        if may_have_succeeded || matches!(failure.status(), Some(404 | 412)) {
            is_outcome_unknown |= may_have_succeeded;
            let found = reader.full(id).await.map_err(store_error)?;
            let found = found.ok_or(StoreError::NotFound {
                id,
                tombstone: None,
            })?;
            if is_outcome_unknown
                && found.version == version + 1
                && wire::is_result_of(&found, &before, &patch)
            {
                return Ok(found);
            }
            if found.version != version {
                return Err(StoreError::Conflict {
                    id,
                    expected: version,
                    found: found.version,
                });
            }
        } else if !failure.is_transient() {
            return Err(write_error(failure, index, body.len()));
        }
        if tries == TRIES {
            return Err(attempts_exhausted(failure));
        }
        tracing::debug!(failure = %Chain(&failure), %id, "update of a breadcrumb on the RCRT server failed, will retry");
        reader.client.pause(tries).await;
        tries += 1;
    }
}

/// Deletes a breadcrumb on the RCRT server. If the outcome of an attempt is unknown and the breadcrumb is missing afterwards, the
/// deletion counts as done.
pub(super) async fn delete(reader: &Reader, id: BreadcrumbId) -> Result<(), StoreError> {
    let (mut is_outcome_unknown, mut tries) = (false, 1);
    loop {
        let failure = match send(reader, Method::DELETE, id, None).await {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        match failure.status() {
            Some(404) if is_outcome_unknown => return Ok(()),
            Some(404) => {
                return Err(StoreError::NotFound {
                    id,
                    tombstone: None,
                });
            }
            Some(_) | None => {}
        }
        if !failure.is_transient() && !failure.may_have_succeeded() {
            return Err(store_error(failure));
        }
        if tries == TRIES {
            return Err(attempts_exhausted(failure));
        }
        is_outcome_unknown |= failure.may_have_succeeded();
        reader.client.pause(tries).await;
        tries += 1;
    }
}

/// Returns the new version of a breadcrumb after a successful update, as read from the server. The update has succeeded, so a
/// version that cannot be read, or has been replaced, is returned as it was sent.
async fn updated_version(reader: &Reader, before: &Breadcrumb, patch: Patch) -> Breadcrumb {
    match reader.full(before.id).await {
        // A concurrent update from the same version can have replaced this one.
        Ok(Some(found)) if wire::is_result_of(&found, before, &patch) => found,
        Ok(Some(later)) => before.patched(patch, later.updated_at),
        Ok(None) | Err(_) => before.patched(patch, before.updated_at),
    }
}

async fn send(
    reader: &Reader,
    method: Method,
    id: BreadcrumbId,
    change: Option<(&str, u64)>,
) -> Result<(), Failure> {
    let call = Call {
        method,
        url: reader.client.url(&["breadcrumbs", &id.to_string()]),
        // Without this header, or without the quotes, the server updates any version.
        headers: change
            .map(|(_, version)| (IF_MATCH, format!("\"{version}\"")))
            .into_iter()
            .collect(),
        body: change.map(|(body, _)| body.to_owned()),
        max_bytes: MAX_ANSWER,
    };
    reader.client.send(&call).await.map(drop)
}

fn attempts_exhausted(failure: Failure) -> StoreError {
    StoreError::Unavailable {
        store: NAME,
        retry_after: failure.retry_after(),
        source: failure.into(),
    }
}
