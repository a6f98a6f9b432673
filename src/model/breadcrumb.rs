use super::breadcrumb_id::BreadcrumbId;
use super::json::Json;
use super::patch::Patch;
use super::timestamp::Timestamp;
use super::visibility::{Sensitivity, Visibility};
use serde::{Deserialize, Deserializer, Serialize, de};

/// A versioned JSON record. Stores persist breadcrumbs, events announce them, and executors read and write them.
///
/// The serde form is the full view of a breadcrumb in the API of an RCRT (Right Context Right Time) server: the field names of this
/// struct, with `id` and times as strings. Enum values are read in any case and written in lower case. Other fields, such as
/// `embedding`, are ignored on read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Breadcrumb {
    /// The breadcrumb's ID, which is the same for all of its versions.
    pub id: BreadcrumbId,
    /// The owner of the breadcrumb on an RCRT server. `None` on other stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    /// The breadcrumb's schema name with its version, such as `user.message.v1`. At most [`MAX_SCHEMA_BYTES`](Self::MAX_SCHEMA_BYTES)
    /// bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_name: Option<String>,
    /// The breadcrumb's title, one line for people. Empty by default.
    #[serde(default)]
    pub title: String,
    /// The breadcrumb's description, a paragraph for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The content version that the breadcrumb's author assigns. Unlike [`version`](Self::version), no store counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_version: Option<String>,
    /// The breadcrumb's tags, by which selectors group breadcrumbs, for example `session:1` or `workspace:tools`. At most
    /// [`MAX_TAGS`](Self::MAX_TAGS) tags.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// The breadcrumb's payload: any JSON.
    #[serde(default)]
    pub context: Json,
    /// The hints that remove or rewrite parts of the breadcrumb's payload for models. See [`hints`](crate::hints).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llm_hints: Option<Json>,
    /// The label of the breadcrumb's permitted readers. This crate stores the label and does not enforce it.
    #[serde(default)]
    pub visibility: Visibility,
    /// The sensitivity label of the breadcrumb's content. This crate stores the label and does not enforce it.
    #[serde(default)]
    pub sensitivity: Sensitivity,
    /// The breadcrumb's version number: 1 for a new breadcrumb, incremented by each update.
    pub version: u64,
    /// The breadcrumb's expiry time, or `None` if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Timestamp>,
    /// The rule by which an RCRT server expires the breadcrumb: `datetime`, `usage` or `hybrid`. By a rule that counts reads, a read can
    /// use up the breadcrumb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_type: Option<String>,
    /// The commit time of the breadcrumb's version 1.
    pub created_at: Timestamp,
    /// The commit time of this version of the breadcrumb.
    pub updated_at: Timestamp,
    /// The author of the breadcrumb's version 1. A run writes its executor ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// The author of this version of the breadcrumb. See [`author`](Self::author).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
}

impl Breadcrumb {
    /// The maximum number of tags of one breadcrumb: 256.
    pub const MAX_TAGS: usize = 256;
    /// The maximum length of a tag in bytes: 256.
    pub const MAX_TAG_BYTES: usize = 256;
    /// The maximum length of a schema name in bytes: 256.
    pub const MAX_SCHEMA_BYTES: usize = 256;

    /// Deserializes the breadcrumb's context as a `T`.
    ///
    /// # Errors
    /// Returns the error of `serde_json` if the context does not have the shape of `T`.
    pub fn parse<T: de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.context.parse()
    }

    /// Returns the author of this version of the breadcrumb: `created_by` for version 1, otherwise `updated_by`.
    #[must_use]
    pub fn author(&self) -> Option<&str> {
        if self.version > 1 {
            self.updated_by.as_deref()
        } else {
            self.created_by.as_deref()
        }
    }

    /// Returns the breadcrumb's first tag that starts with `prefix`, without the prefix. For example, `breadcrumb.tag("session:")` returns
    /// `Some("1")` for the tag `session:1`.
    #[must_use]
    pub fn tag(&self, prefix: &str) -> Option<&str> {
        self.tags.iter().find_map(|tag| tag.strip_prefix(prefix))
    }

    /// Returns the size in bytes of the breadcrumb's fields that the author wrote: context, hints, tags, schema name, title, description
    /// and semantic version.
    #[must_use]
    pub fn size(&self) -> usize {
        let hints = self.llm_hints.as_ref().map_or(0, Json::size);
        let texts = [&self.schema_name, &self.description, &self.semantic_version];
        let texts = texts.into_iter().flatten().chain(&self.tags);
        texts
            .fold(self.title.len(), |size, text| {
                size.saturating_add(text.len())
            })
            .saturating_add(self.context.size())
            .saturating_add(hints)
    }

    /// Returns the sort key of breadcrumbs in a store: update time, then version, then ID.
    #[must_use]
    pub fn order_key(&self) -> (Timestamp, u64, BreadcrumbId) {
        (self.updated_at, self.version, self.id)
    }

    /// Returns the next version of the breadcrumb, with the changes of `patch` and the update time `at`.
    #[must_use]
    pub fn patched(&self, patch: Patch, at: Timestamp) -> Self {
        Self {
            id: self.id,
            owner_id: self.owner_id.clone(),
            schema_name: patch.schema_name.or_else(|| self.schema_name.clone()),
            title: patch.title.unwrap_or_else(|| self.title.clone()),
            description: patch.description.or_else(|| self.description.clone()),
            semantic_version: patch
                .semantic_version
                .or_else(|| self.semantic_version.clone()),
            tags: patch.tags.unwrap_or_else(|| self.tags.clone()),
            context: patch.context.unwrap_or_else(|| self.context.clone()),
            llm_hints: patch.llm_hints.or_else(|| self.llm_hints.clone()),
            visibility: patch.visibility.unwrap_or(self.visibility),
            sensitivity: patch.sensitivity.unwrap_or(self.sensitivity),
            version: self.version.saturating_add(1),
            ttl: patch.ttl.or(self.ttl),
            ttl_type: self.ttl_type.clone(),
            created_at: self.created_at,
            updated_at: at,
            created_by: self.created_by.clone(),
            updated_by: patch.updated_by,
        }
    }
}

pub(super) fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn wire() -> Value {
        json!({
            "id": "01890a5d-ac96-774b-bcce-b302099a8057", "owner_id": "o-1", "title": "Hi", "tags": ["user:message"],
            "schema_name": "user.message.v1", "context": {"content": "hello"}, "visibility": "Team",
            "sensitivity": "PII", "version": 3, "checksum": "abc", "size_bytes": 19, "embedding": [0.1],
            "created_at": "2026-11-21T20:33:40.535554Z", "updated_at": "2026-11-21T20:33:41Z",
            "created_by": "a", "updated_by": "b", "description": null,
        })
    }

    #[test]
    fn the_full_view_of_the_wire_is_read_with_enums_in_any_case_and_written_in_lower_case() {
        let read: Breadcrumb = serde_json::from_value(wire()).unwrap();
        let written = serde_json::to_value(&read).unwrap();

        assert_eq!((read.version, read.sensitivity), (3, Sensitivity::Pii));
        assert_eq!(read.author(), Some("b"));
        assert_eq!(
            (&written["visibility"], &written["sensitivity"]),
            (&json!("team"), &json!("pii"))
        );
        assert_eq!(serde_json::from_value::<Breadcrumb>(written).unwrap(), read);
    }

    #[test]
    fn a_breadcrumb_does_not_depend_on_the_order_of_its_fields() {
        let text = wire().to_string();
        let mut fields: Vec<(String, Value)> =
            wire().as_object().unwrap().clone().into_iter().collect();
        fields.reverse();
        let reversed: Vec<String> = fields
            .iter()
            .map(|(key, value)| format!("{key:?}:{value}"))
            .collect();

        let (one, other): (Breadcrumb, Breadcrumb) = (
            serde_json::from_str(&text).unwrap(),
            serde_json::from_str(&format!("{{{}}}", reversed.join(","))).unwrap(),
        );

        assert_eq!(one, other);
    }

    #[test]
    fn an_unknown_visibility_is_an_error_that_lists_the_known_values() {
        let mut wire = wire();
        wire["visibility"] = json!("everyone");

        let error = serde_json::from_value::<Breadcrumb>(wire)
            .unwrap_err()
            .to_string();

        assert!(
            error.contains("unknown value \"everyone\"; expected one of public, team, private"),
            "{error}"
        );
    }

    #[test]
    fn breadcrumbs_are_ordered_by_update_time_then_version_then_id() {
        let one: Breadcrumb = serde_json::from_value(wire()).unwrap();
        let with = |second: &str, version: u64, id: &str| {
            let mut other = one.clone();
            other.updated_at = format!("2026-11-21T20:33:{second}Z").parse().unwrap();
            other.version = version;
            other.id = format!("01890a5d-ac96-774b-bcce-b302099a80{id}")
                .parse()
                .unwrap();
            other.order_key()
        };

        let keys = [
            with("41", 1, "57"),
            with("41", 1, "58"),
            with("41", 2, "00"),
            with("42", 1, "00"),
        ];

        assert!(keys.is_sorted_by(|older, newer| older < newer), "{keys:?}");
    }

    #[test]
    fn a_patch_replaces_only_the_fields_that_it_names() {
        let before: Breadcrumb = serde_json::from_value(wire()).unwrap();

        let after = before.patched(Patch::new().tags(["x"]).updated_by("c"), before.updated_at);

        assert_eq!(
            (after.version, &after.tags, after.author()),
            (4, &vec!["x".to_owned()], Some("c"))
        );
        assert_eq!(
            (&after.context, &after.title),
            (&before.context, &before.title)
        );
    }
}
