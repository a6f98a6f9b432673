//! Commits on an RCRT server, which has no transactions: all writes are validated, then sent one by one.

use super::NAME;
use super::creation_key::creation_keys;
use super::error::{SplitCharacter, store_error};
use super::read::{BreadcrumbRead, Reader};
use super::wire;
use crate::clock::wall_micros;
use crate::model::{Breadcrumb, BreadcrumbId, Json, JsonError, NewBreadcrumb, Patch, Timestamp};
use crate::store::{Commit, Committed, RunEnd, StoreError, Write, canonical};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of concurrent reads of breadcrumbs in one commit.
const AT_ONCE: usize = 8;

pub(super) async fn commit(reader: &Reader, commit: Commit) -> Result<Committed, StoreError> {
    let Commit { mut writes, end } = commit;
    let end = canonical::end(end, Json::MAX_BYTES)?;
    match &end {
        Some((_, RunEnd::Suspended { .. })) => {
            return Err(StoreError::Unsupported {
                store: NAME,
                operation: "suspended runs, because it has no ledger",
            });
        }
        Some((lease, RunEnd::Failed(letter))) => {
            writes.push(Write::Create(letter.breadcrumb(lease, &reader.owner)));
        }
        Some((_, RunEnd::Done | RunEnd::Skipped(_) | RunEnd::Superseded | RunEnd::Continues))
        | None => {}
    }
    let creations = writes
        .iter()
        .filter(|write| matches!(write, Write::Create(_)));
    let mut creation = creation_keys(end.as_ref(), &reader.owner, creations.count());
    let mut write_keys = Vec::with_capacity(writes.len());
    for write in &mut writes {
        write_keys.push(match write {
            Write::Create(new) => {
                let creation = creation();
                creation.mark(new);
                Some(creation)
            }
            Write::Update { .. } | Write::Delete { .. } => None,
        });
    }
    let writes = canonical::writes(writes, Json::MAX_BYTES)?;
    let mut current = targets(reader, &writes).await?;
    validate(reader, &writes, current.clone())?;
    let mut results = Vec::with_capacity(writes.len());
    for (index, (write, creation)) in writes.into_iter().zip(write_keys).enumerate() {
        results.push(match (write, creation) {
            (Write::Create(new), Some(creation)) => {
                let id = super::create::create(reader, index, &new, &creation).await?;
                WriteResult::Created(id, new)
            }
            (Write::Create(_), None) => continue,
            (Write::Update { id, patch, .. }, _) => {
                let before = existing(&current, id)?.clone();
                let after = super::update::update(reader, index, before, patch).await?;
                current.insert(id, Some(after.clone()));
                WriteResult::Changed(after)
            }
            (Write::Delete { id, .. }, _) => {
                let before = existing(&current, id)?;
                let tombstone = before.patched(Patch::new(), now().max(before.updated_at));
                super::update::delete(reader, id).await?;
                current.insert(id, None);
                WriteResult::Changed(tombstone)
            }
        });
    }
    written(reader, results).await.map(Committed::new)
}

/// Result of one breadcrumb write in a commit: the ID and content of a new breadcrumb, or the new version (or tombstone) of an
/// existing one.
enum WriteResult {
    Created(BreadcrumbId, NewBreadcrumb),
    Changed(Breadcrumb),
}

/// Reads the current versions of the breadcrumbs that a commit updates or deletes. The value is `None` for a missing breadcrumb.
async fn targets(
    reader: &Reader,
    writes: &[Write],
) -> Result<HashMap<BreadcrumbId, Option<Breadcrumb>>, StoreError> {
    let mut ids: Vec<BreadcrumbId> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Create(_) => None,
            Write::Update { id, .. } | Write::Delete { id, .. } => Some(*id),
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let read = |id| async move { Ok((id, reader.full(id).await?)) };
    let read = stream::iter(ids.into_iter().map(read)).buffered(AT_ONCE);
    read.try_collect().await.map_err(store_error)
}

/// Validates all writes of a commit against the current breadcrumbs, so that an invalid write fails the commit before the first
/// write request.
fn validate(
    reader: &Reader,
    writes: &[Write],
    mut current: HashMap<BreadcrumbId, Option<Breadcrumb>>,
) -> Result<(), StoreError> {
    for (index, write) in writes.iter().enumerate() {
        match write {
            Write::Create(new) => {
                let new = new
                    .clone()
                    .first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
                check_size(index, &new)?;
            }
            Write::Update { id, version, patch } => {
                let before = existing(&current, *id)?;
                if before.version != *version {
                    return Err(StoreError::Conflict {
                        id: *id,
                        expected: *version,
                        found: before.version,
                    });
                }
                if let Some(operation) = wire::unsupported_clearing(patch) {
                    return Err(StoreError::Unsupported {
                        store: NAME,
                        operation,
                    });
                }
                check_split_characters(reader, index, *id, patch)?;
                let after = before.patched(patch.clone(), before.updated_at);
                check_size(index, &after)?;
                current.insert(*id, Some(after));
            }
            Write::Delete { id, .. } => {
                existing(&current, *id)?;
                current.insert(*id, None);
            }
        }
    }
    Ok(())
}

fn existing(
    current: &HashMap<BreadcrumbId, Option<Breadcrumb>>,
    id: BreadcrumbId,
) -> Result<&Breadcrumb, StoreError> {
    let found = current.get(&id).and_then(Option::as_ref);
    found.ok_or(StoreError::NotFound {
        id,
        tombstone: None,
    })
}

/// Rejects a write of a breadcrumb larger than [`Json::MAX_BYTES`], the limit of all stores.
fn check_size(index: usize, breadcrumb: &Breadcrumb) -> Result<(), StoreError> {
    let size = breadcrumb.size();
    if size > Json::MAX_BYTES {
        return Err(StoreError::Rejected {
            what: format!("write {index}"),
            source: JsonError::TooLarge {
                size,
                limit: Json::MAX_BYTES,
            },
        });
    }
    Ok(())
}

/// Rejects an update if the RCRT server would panic, because it cuts the new context for its log inside a multibyte character.
/// The server then closes the connection, so a retry would not help.
fn check_split_characters(
    reader: &Reader,
    index: usize,
    id: BreadcrumbId,
    patch: &Patch,
) -> Result<(), StoreError> {
    if !reader.settings.refuses_split_characters {
        return Ok(());
    }
    let splits = wire::splits_character(patch).map_err(|error| StoreError::Rejected {
        what: format!("the context of write {index}"),
        source: JsonError::Syntax(error),
    })?;
    match splits {
        true => Err(StoreError::Refused {
            store: NAME,
            source: Box::new(SplitCharacter { id, write: index }),
        }),
        false => Ok(()),
    }
}

/// Returns the breadcrumbs that a commit wrote, as read from the server after the writes. The writes have succeeded at this
/// point, so a breadcrumb that cannot be read, or has changed since, is returned as it was sent. Returns an error only if a
/// breadcrumb was created for another owner and is invisible to this store.
async fn written(
    reader: &Reader,
    results: Vec<WriteResult>,
) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
    let read = |result| async move {
        let (id, new) = match result {
            WriteResult::Changed(changed) => return Ok(Arc::new(changed)),
            WriteResult::Created(id, new) => (id, new),
        };
        match reader.read(id).await {
            Ok(BreadcrumbRead::Own(found)) if found.version == 1 => Ok(Arc::new(found)),
            Ok(BreadcrumbRead::Foreign) => Err(StoreError::Forbidden {
                reason: format!(
                    "breadcrumb {id} was created for another owner, because the API token belongs to that owner; use a token of {}",
                    reader.owner
                ),
            }),
            Ok(BreadcrumbRead::Own(_) | BreadcrumbRead::Missing) | Err(_) => {
                let mut sent = new.first_version(id, now());
                sent.owner_id = Some(reader.owner.to_string());
                Ok(Arc::new(sent))
            }
        }
    };
    let read = stream::iter(results.into_iter().map(read)).buffered(AT_ONCE);
    read.try_collect().await
}

fn now() -> Timestamp {
    Timestamp::from_micros(wall_micros())
}
