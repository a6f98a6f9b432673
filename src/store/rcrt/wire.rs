//! JSON of the requests and responses of the RCRT server. Pure.

use crate::model::{Breadcrumb, BreadcrumbId, Json, NewBreadcrumb, Patch, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Number of bytes to which the RCRT server shortens the new context of an updated breadcrumb in its log. The server panics if
/// the cut splits a character.
pub(super) const PREVIEW: usize = 200;

/// A row of a breadcrumb list, with the fields that decide whether to read the whole breadcrumb.
#[derive(Debug)]
pub(super) struct ListRow {
    pub(super) breadcrumb: Breadcrumb,
}

/// Returns the rows of a breadcrumb list, without rows that cannot be parsed. Also returns the number of all rows in the server's
/// response.
pub(super) fn rows(text: &[u8]) -> Result<(Vec<ListRow>, usize), serde_json::Error> {
    #[derive(Deserialize)]
    struct Item {
        id: BreadcrumbId,
        #[serde(default)]
        title: Option<String>,
        #[serde(default)]
        tags: Option<Vec<String>>,
        #[serde(default)]
        schema_name: Option<String>,
        version: u64,
        updated_at: Timestamp,
        #[serde(default)]
        context: Option<Json>,
    }
    let items: Vec<&RawValue> = serde_json::from_slice(text)?;
    let read = |item: &&RawValue| match serde_json::from_str::<Item>(item.get()) {
        Ok(item) => {
            let new = NewBreadcrumb {
                schema_name: item.schema_name,
                title: item.title.unwrap_or_default(),
                tags: item.tags.unwrap_or_default(),
                context: item.context.unwrap_or_default(),
                ..NewBreadcrumb::default()
            };
            let mut breadcrumb = new.first_version(item.id, item.updated_at);
            breadcrumb.version = item.version;
            Some(ListRow { breadcrumb })
        }
        Err(error) => {
            // The error of the parser may quote the row, so only its position appears in the log.
            let (line, column) = (error.line(), error.column());
            tracing::warn!(
                line,
                column,
                bytes = item.get().len(),
                "omitted a breadcrumb from a list of the RCRT server, because its row cannot be parsed"
            );
            None
        }
    };
    Ok((items.iter().filter_map(read).collect(), items.len()))
}

/// Parses the server's response with a whole breadcrumb.
pub(super) fn full(text: &[u8]) -> Result<Breadcrumb, serde_json::Error> {
    serde_json::from_slice(text)
}

/// Parses the server's response to a creation and returns the ID of the created breadcrumb.
pub(super) fn created(text: &[u8]) -> Result<BreadcrumbId, serde_json::Error> {
    #[derive(Deserialize)]
    struct Created {
        id: BreadcrumbId,
    }
    serde_json::from_slice(text).map(|Created { id }| id)
}

/// Returns the request body that creates a breadcrumb. It has no author, because the server takes the author from the token.
pub(super) fn create_body(new: &NewBreadcrumb) -> Result<String, serde_json::Error> {
    let new = NewBreadcrumb {
        created_by: None,
        ..new.clone()
    };
    serde_json::to_string(&new)
}

/// Returns the request body that updates a breadcrumb. The keys of the context are sorted, as [`splits_character`] expects.
pub(super) fn patch_body(patch: &Patch) -> Result<String, serde_json::Error> {
    let patch = Patch {
        updated_by: None,
        context: patch.context.as_ref().map(|context| sorted(context).into()),
        ..patch.clone()
    };
    serde_json::to_string(&patch)
}

/// Returns `true` if the RCRT server would panic at an update, because it cuts the new context for its log inside a multibyte
/// character. The server logs the first [`PREVIEW`] bytes of a longer context, and cuts the text without regard to character
/// boundaries.
///
/// The server parses the body and serialises the context again. Some builds of the server sort the keys and others retain their
/// order, so the body has sorted keys.
pub(super) fn splits_character(patch: &Patch) -> Result<bool, serde_json::Error> {
    let Some(context) = &patch.context else {
        return Ok(false);
    };
    let text = serde_json::to_string(&sorted(context))?;
    Ok(text.len() > PREVIEW && !text.is_char_boundary(PREVIEW))
}

fn sorted(context: &Json) -> Value {
    let mut context = (**context).clone();
    context.sort_all_objects();
    context
}

/// Returns a description of an update that the server does not support: one that sets the context or the `llm_hints` of a
/// breadcrumb to null. Returns `None` for any other update. The server would retain the old value.
pub(super) fn unsupported_clearing(patch: &Patch) -> Option<&'static str> {
    let is_null = |json: &Option<Json>| json.as_ref().is_some_and(|json| **json == Value::Null);
    if is_null(&patch.context) {
        return Some("setting the context of a breadcrumb to null");
    }
    is_null(&patch.llm_hints).then_some("setting the hints of a breadcrumb to null")
}

/// Returns `true` if `found` is the version that the update `patch` creates from the version `before`, apart from fields that the
/// server sets.
pub(super) fn is_result_of(found: &Breadcrumb, before: &Breadcrumb, patch: &Patch) -> bool {
    let mut expected = before.patched(patch.clone(), found.updated_at);
    expected.updated_by.clone_from(&found.updated_by);
    expected.ttl_type.clone_from(&found.ttl_type);
    expected == *found
}

#[cfg(test)]
mod tests;
