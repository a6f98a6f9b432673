//! Conversion of the writes of a commit to the canonical JSON form that every store of this crate saves.

use super::{Commit, Lease, RunEnd, StoreError, Write};
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Patch};

/// Returns the writes of a commit in canonical form, or an error for a write that exceeds a limit.
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

/// Returns the end of a run in canonical form, or an error for a wake condition, saved state or dead letter that no store
/// accepts.
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
            // `DeadLetter::breadcrumb` copies the creator, so the depth of the creator must be checked first.
            let creator = || "the creator of the dead letter".to_owned();
            letter.creator = json(creator, &letter.creator, limit)?;
            Ok(Some((lease, RunEnd::Failed(letter))))
        }
        Some((_, RunEnd::Done | RunEnd::Skipped(_) | RunEnd::Superseded | RunEnd::Continues))
        | None => Ok(end),
    }
}

/// Returns the saved state of a run in canonical form, or an error if the state exceeds a limit.
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

/// Returns the breadcrumb that a write creates, converted to canonical form. `index` is the index of the write, for errors.
pub(super) fn new_breadcrumb(
    index: usize,
    mut new: NewBreadcrumb,
    limit: usize,
) -> Result<NewBreadcrumb, StoreError> {
    new.context = json(
        || format!("the context of write {index}"),
        &new.context,
        limit,
    )?;
    if let Some(hints) = &mut new.llm_hints {
        *hints = json(|| format!("the llm_hints of write {index}"), hints, limit)?;
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
            *json = self::json(|| format!("the {field} of write {index}"), json, limit)?;
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

/// Checks the size of a breadcrumb's schema name. Stores index schema names, and some databases limit the size of an indexed
/// value.
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
    // The replacement of U+0000 is longer, and the limit applies to the stored form.
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
