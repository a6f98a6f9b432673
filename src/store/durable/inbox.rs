//! New breadcrumbs that other programs insert with SQL, and that a store takes in.

use crate::error::Chain;
use crate::model::{BreadcrumbId, NewBreadcrumb, parse_as};
use crate::store::{StoreError, canonical};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Maximum number of breadcrumbs that one transaction takes in.
pub(in crate::store) const AT_ONCE: i64 = 64;

/// Names of the fields that a breadcrumb can have.
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

/// A row of the table `ux_inbox`.
#[derive(Clone, Debug)]
pub(in crate::store) struct Inserted {
    pub(in crate::store) serial: i64,
    /// The ID that the program chose. `None` if the store chooses one.
    pub(in crate::store) id: Option<BreadcrumbId>,
    /// The breadcrumb as JSON.
    pub(in crate::store) text: String,
}

/// The reason why a row is not taken in. The row keeps it in its column `refused`.
#[derive(Debug, thiserror::Error)]
pub(in crate::store) enum Refusal {
    #[error("the breadcrumb cannot be read")]
    Unreadable(#[source] serde_json::Error),
    #[error("the breadcrumb has the unknown field {0:?}; the fields are {known}", known = FIELDS.join(", "))]
    UnknownField(String),
    #[error("the breadcrumb is refused")]
    Rejected(#[source] StoreError),
    #[error("a breadcrumb with the ID {0} exists; choose another ID")]
    Exists(BreadcrumbId),
}

impl Refusal {
    /// The text for the column `refused`, with all causes.
    pub(in crate::store) fn text(&self) -> String {
        Chain(self).to_string()
    }
}

impl Inserted {
    /// Reads the breadcrumb. `limit` is the maximum size of a breadcrumb in bytes.
    ///
    /// # Errors
    /// The reason why the row cannot be taken in as it is.
    pub(in crate::store) fn read(&self, limit: usize) -> Result<NewBreadcrumb, Refusal> {
        let text = self.text.as_bytes();
        let fields: BTreeMap<String, IgnoredAny> = parse_as(text).map_err(Refusal::Unreadable)?;
        let is_unknown = |field: &String| !FIELDS.contains(&field.as_str());
        if let Some(unknown) = fields.into_keys().find(is_unknown) {
            return Err(Refusal::UnknownField(unknown));
        }
        let new = parse_as(text).map_err(Refusal::Unreadable)?;
        canonical::new_breadcrumb(0, new, limit).map_err(Refusal::Rejected)
    }
}

/// Logs that rows were refused.
pub(in crate::store) fn log_refused(store: &'static str, tenant: &str, rows: usize) {
    tracing::warn!(
        store,
        tenant,
        rows,
        "refused rows of the table ux_inbox; the column refused has the reason of each"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Sensitivity, Timestamp, Visibility};
    use serde_json::{Value, json};

    fn inserted(breadcrumb: &Value) -> Inserted {
        Inserted {
            serial: 1,
            id: None,
            text: breadcrumb.to_string(),
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
    fn a_row_that_is_no_breadcrumb_is_refused_with_its_reason() {
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
