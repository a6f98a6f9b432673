//! What is written, in the form that every store of this crate keeps.

use super::{Commit, Lease, RunEnd, StoreError, Write};
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Patch};

/// The writes in the form that is kept, or why one is not.
pub(super) fn writes(writes: Vec<Write>, limit: usize) -> Result<Vec<Write>, StoreError> {
    if writes.len() > Commit::MAX_WRITES {
        return Err(StoreError::TooManyWrites {
            count: writes.len(),
            limit: Commit::MAX_WRITES,
        });
    }
    let canonical = writes
        .into_iter()
        .enumerate()
        .map(|(index, write)| match write {
            Write::Create(new) => new_breadcrumb(index, new, limit).map(Write::Create),
            Write::Update { id, version, patch } => {
                self::patch(index, patch, limit).map(|patch| Write::Update { id, version, patch })
            }
            Write::Delete { id, mut by } => {
                by.iter_mut().for_each(clean);
                Ok(Write::Delete { id, by })
            }
        });
    canonical.collect()
}

/// The end of a run in the form that is kept, or why it is refused.
pub(super) fn end(
    end: Option<(Lease, RunEnd)>,
    limit: usize,
) -> Result<Option<(Lease, RunEnd)>, StoreError> {
    match end {
        Some((lease, RunEnd::Suspended { wake, state })) => {
            wake.check()?;
            let state = self::state(&state, limit)?;
            Ok(Some((lease, RunEnd::Suspended { wake, state })))
        }
        Some((lease, RunEnd::Failed(mut letter))) => {
            // Its breadcrumb takes it by value, and what nests without end cannot be copied.
            let creator = || "the creator of the dead letter".to_owned();
            letter.creator = json(creator, &letter.creator, limit)?;
            Ok(Some((lease, RunEnd::Failed(letter))))
        }
        Some((_, RunEnd::Done | RunEnd::Skipped(_) | RunEnd::Superseded | RunEnd::Continues))
        | None => Ok(end),
    }
}

/// The state of a run in the form that is kept, or why it is refused.
pub(super) fn state(state: &Json, limit: usize) -> Result<Json, StoreError> {
    json(|| "the state of the run".to_owned(), state, limit)
}

fn json(what: impl FnOnce() -> String, json: &Json, limit: usize) -> Result<Json, StoreError> {
    json.canonical(limit)
        .map_err(|source| StoreError::Rejected {
            what: what(),
            source,
        })
}

/// A breadcrumb in the form that is kept; `index` is that of the write.
pub(super) fn new_breadcrumb(
    index: usize,
    mut new: NewBreadcrumb,
    limit: usize,
) -> Result<NewBreadcrumb, StoreError> {
    new.context = json(|| format!("write {index}, context"), &new.context, limit)?;
    if let Some(hints) = &mut new.llm_hints {
        *hints = json(|| format!("write {index}, llm_hints"), hints, limit)?;
    }
    clean(&mut new.title);
    tags(index, &mut new.tags)?;
    for text in [
        &mut new.schema_name,
        &mut new.description,
        &mut new.semantic_version,
        &mut new.created_by,
    ] {
        text.iter_mut().for_each(clean);
    }
    schema(index, new.schema_name.as_deref())?;
    Ok(new)
}

fn patch(index: usize, mut patch: Patch, limit: usize) -> Result<Patch, StoreError> {
    for (field, json) in [
        ("context", &mut patch.context),
        ("llm_hints", &mut patch.llm_hints),
    ] {
        if let Some(json) = json {
            *json = self::json(|| format!("write {index}, {field}"), json, limit)?;
        }
    }
    if let Some(tags) = &mut patch.tags {
        self::tags(index, tags)?;
    }
    for text in [
        &mut patch.title,
        &mut patch.schema_name,
        &mut patch.description,
        &mut patch.semantic_version,
        &mut patch.updated_by,
    ] {
        text.iter_mut().for_each(clean);
    }
    schema(index, patch.schema_name.as_deref())?;
    Ok(patch)
}

/// The name of a schema stands in indexes, which not all stores have room for without a bound.
fn schema(index: usize, name: Option<&str>) -> Result<(), StoreError> {
    let size = name.map_or(0, str::len);
    if size > Breadcrumb::MAX_SCHEMA_BYTES {
        return Err(StoreError::SchemaTooLong {
            write: index,
            size,
            limit: Breadcrumb::MAX_SCHEMA_BYTES,
        });
    }
    Ok(())
}

fn tags(index: usize, tags: &mut [String]) -> Result<(), StoreError> {
    if tags.len() > Breadcrumb::MAX_TAGS {
        return Err(StoreError::TooManyTags {
            write: index,
            count: tags.len(),
            limit: Breadcrumb::MAX_TAGS,
        });
    }
    // The replacement of U+0000 takes more room, and what is kept is what counts.
    tags.iter_mut().for_each(clean);
    let longest = tags.iter().map(String::len).max().unwrap_or_default();
    if longest > Breadcrumb::MAX_TAG_BYTES {
        return Err(StoreError::TagTooLong {
            write: index,
            size: longest,
            limit: Breadcrumb::MAX_TAG_BYTES,
        });
    }
    Ok(())
}

fn clean(text: &mut String) {
    if text.contains('\0') {
        *text = text.replace('\0', "\u{FFFD}");
    }
}
