//! Inbox of a SQLite or PostgreSQL store: a table into which other programs insert rows with SQL. The store creates a
//! breadcrumb from each row.

use crate::error::Chain;
use crate::model::{BreadcrumbId, NewBreadcrumb, parse_as};
use crate::store::{StoreError, canonical};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Maximum number of rows of the table `ux_inbox` from which one transaction creates breadcrumbs.
pub(in crate::store) const AT_ONCE: usize = 64;

/// Number of bytes of JSON after which a transaction processes no more rows of the table `ux_inbox`.
pub(in crate::store) const ENOUGH_BYTES: usize = 1 << 20;

/// Names of the fields that the JSON of a new breadcrumb in the table `ux_inbox` can have.
const FIELDS: [&str; 11] = [
    "schema_name",
    "title",
    "description",
    "semantic_version",
    "tags",
    "context",
    "llm_hints",
    "visibility",
    "sensitivity",
    "ttl",
    "created_by",
];

/// A row of the table `ux_inbox`, from which the store creates a breadcrumb.
#[derive(Clone, Debug)]
pub(in crate::store) struct InboxRow {
    pub(in crate::store) serial: i64,
    /// Breadcrumb ID that the inserting program chose, or `None` if the store chooses one.
    pub(in crate::store) id: Option<BreadcrumbId>,
    /// JSON of the new breadcrumb, from a row of the table `ux_inbox`. SQLite does not check that text is UTF-8.
    pub(in crate::store) text: Vec<u8>,
}

/// Number of rows of the table `ux_inbox` that one transaction processed, and number of rejected rows among them.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct InboxImport {
    /// Number of rows of the table `ux_inbox` that became breadcrumbs or were rejected.
    pub(in crate::store) rows: usize,
    /// Number of rows of the table `ux_inbox` that were rejected.
    pub(in crate::store) refused: usize,
}

/// Reason why the store rejects a row of the table `ux_inbox`. The row stores it in its column `refused`.
#[derive(Debug, thiserror::Error)]
pub(in crate::store) enum Refusal {
    #[error(
        "the column `breadcrumb` of the inbox row is not UTF-8; insert the row again with UTF-8 text"
    )]
    NotUtf8(#[source] std::str::Utf8Error),
    #[error(
        "the JSON in the column `breadcrumb` of the inbox row cannot be read as a breadcrumb; fix the JSON"
    )]
    Unreadable(#[source] serde_json::Error),
    #[error(
        "the column `breadcrumb` of the inbox row has the unknown field {0:?}; the fields are {known}",
        known = FIELDS.join(", ")
    )]
    UnknownField(String),
    #[error("the store rejects the breadcrumb of the inbox row; see the cause")]
    Rejected(#[source] StoreError),
    #[error("a breadcrumb with the ID {0} already exists; choose another ID")]
    Exists(BreadcrumbId),
}

impl Refusal {
    /// Returns the rejection reason with all causes, for the column `refused` of the table `ux_inbox`.
    pub(in crate::store) fn text(&self) -> String {
        Chain(self).to_string()
    }
}

impl InboxRow {
    /// Reads the new breadcrumb from the JSON in a row of the table `ux_inbox`. `limit` is the maximum size of a
    /// breadcrumb in bytes.
    ///
    /// # Errors
    /// Returns the reason why the row is rejected.
    pub(in crate::store) fn read(&self, limit: usize) -> Result<NewBreadcrumb, Refusal> {
        let text = std::str::from_utf8(&self.text).map_err(Refusal::NotUtf8)?;
        let fields: BTreeMap<String, IgnoredAny> =
            parse_as(text.as_bytes()).map_err(Refusal::Unreadable)?;
        let is_unknown = |field: &String| !FIELDS.contains(&field.as_str());
        if let Some(unknown) = fields.into_keys().find(is_unknown) {
            return Err(Refusal::UnknownField(unknown));
        }
        let new = parse_as(text.as_bytes()).map_err(Refusal::Unreadable)?;
        canonical::new_breadcrumb(0, new, limit).map_err(Refusal::Rejected)
    }
}

impl InboxImport {
    /// Logs the number of rejected rows of the table `ux_inbox`. Call it after the commit.
    pub(in crate::store) fn log(self, source: &str) {
        if self.refused > 0 {
            tracing::warn!(
                source,
                rows = self.refused,
                "the store rejected rows of the table `ux_inbox`; the column `refused` of each row contains the reason"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Sensitivity, Timestamp, Visibility};
    use serde_json::{Value, json};

    fn inserted(breadcrumb: &Value) -> InboxRow {
        InboxRow {
            serial: 1,
            id: None,
            text: breadcrumb.to_string().into_bytes(),
        }
    }

    #[test]
    fn a_row_can_have_each_field_of_a_breadcrumb() {
        let mut new = NewBreadcrumb::new("order.v1")
            .title("t")
            .description("d")
            .tags(["a"])
            .llm_hints(json!({"mode": "all"}))
            .context(json!({"n": 1}))
            .created_by("ann");
        new.semantic_version = Some("1.0".to_owned());
        (new.visibility, new.sensitivity) = (Visibility::Private, Sensitivity::Pii);
        new.ttl = Some(Timestamp::from_micros(1_700_000_000_000_000));
        let json = serde_json::to_value(&new).unwrap();

        let read = inserted(&json).read(1_000).unwrap();

        assert_eq!(serde_json::to_value(&read).unwrap(), json);
        let fields: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(fields.len(), FIELDS.len(), "{fields:?}");
    }

    #[test]
    fn a_row_that_is_not_utf_8_is_refused() {
        let mut row = inserted(&json!({}));
        row.text = b"{\"title\": \"\xFF\"}".to_vec();

        let refusal = row.read(1_000).unwrap_err();

        assert!(refusal.text().contains("not UTF-8"), "{}", refusal.text());
    }

    #[test]
    fn an_invalid_inbox_row_is_refused_with_the_reason() {
        for (breadcrumb, reason) in [
            (json!([]), "cannot be read"),
            (json!({"schema": "order.v1"}), "unknown field \"schema\""),
            (json!({"tags": "a"}), "expected a sequence"),
            (json!({"context": {"a": "x".repeat(1_000)}}), "at most 1000"),
            (json!({"schema_name": "x".repeat(300)}), "300"),
        ] {
            let refusal = inserted(&breadcrumb).read(1_000).unwrap_err();
            assert!(refusal.text().contains(reason), "{}", refusal.text());
        }
    }
}
