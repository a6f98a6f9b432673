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
///
/// A store assigns the ID, the version and the times, so a program does not construct this type.
/// Create a breadcrumb with [`NewBreadcrumb`](super::NewBreadcrumb), and change one with a
/// [`Patch`]. A store returns the newest version, as an `Arc<Breadcrumb>`.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let order = NewBreadcrumb::new("order.v1").tag("customer:7").context(json!({"count": 3}));
/// let order = store.create(order).await?;
/// assert_eq!(order.version, 1);
/// assert_eq!(order.tag("customer:"), Some("7"));
///
/// let patch = Patch::new().context(json!({"count": 4}));
/// let changed = store.update(order.id, order.version, patch).await?;
/// assert_eq!((changed.id, changed.version), (order.id, 2));
/// assert_eq!(changed.context["count"], 4);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Breadcrumb {
    /// The breadcrumb's ID, which is the same for all of its versions.
    pub id: BreadcrumbId,
    /// The ID of the breadcrumb's owner on an RCRT server, or `None` on other stores.
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
    /// The breadcrumb's semantic version, such as `1.2.0`, which its author assigns. Unlike [`version`](Self::version), no store counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_version: Option<String>,
    /// The breadcrumb's tags, by which selectors group breadcrumbs, for example `session:1` or `workspace:tools`. At most
    /// [`MAX_TAGS`](Self::MAX_TAGS) tags.
    ///
    /// A tag has at most [`MAX_TAG_BYTES`](Self::MAX_TAG_BYTES) bytes. [`tag`](Self::tag) reads a
    /// value after a prefix.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// The breadcrumb's payload: any JSON.
    ///
    /// The breadcrumbs of a run's response must have a JSON object here. [`parse`](Self::parse)
    /// deserializes the payload, and [`Json::text`] reads one string.
    #[serde(default)]
    pub context: Json,
    /// The hints that remove or rewrite parts of the breadcrumb's payload for models. See [`hints`](crate::hints).
    ///
    /// [`ExecutionContext::for_model`](crate::ExecutionContext::for_model) applies the hints. The
    /// store returns the whole payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llm_hints: Option<Json>,
    /// The label of the breadcrumb's permitted readers. This crate stores the label and does not enforce it.
    #[serde(default)]
    pub visibility: Visibility,
    /// The sensitivity label of the breadcrumb's content. This crate stores the label and does not enforce it.
    #[serde(default)]
    pub sensitivity: Sensitivity,
    /// The breadcrumb's version number: 1 for a new breadcrumb, incremented by each update.
    ///
    /// Pass this number to [`BreadcrumbStoreExt::update`](crate::BreadcrumbStoreExt::update). The
    /// update fails with [`StoreError::Conflict`](crate::store::StoreError::Conflict) if another
    /// update came first.
    pub version: u64,
    /// The breadcrumb's expiry time, or `None` if it does not expire.
    ///
    /// A `get` of an expired breadcrumb returns
    /// [`StoreError::NotFound`](crate::store::StoreError::NotFound).
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
    ///
    /// A commit with more tags fails with
    /// [`StoreError::TooManyTags`](crate::store::StoreError::TooManyTags).
    pub const MAX_TAGS: usize = 256;
    /// The maximum length of a tag in bytes: 256.
    ///
    /// A commit with a longer tag fails with
    /// [`StoreError::TagTooLong`](crate::store::StoreError::TagTooLong).
    pub const MAX_TAG_BYTES: usize = 256;
    /// The maximum length of a schema name in bytes: 256.
    ///
    /// A commit with a longer name fails with
    /// [`StoreError::SchemaTooLong`](crate::store::StoreError::SchemaTooLong).
    pub const MAX_SCHEMA_BYTES: usize = 256;

    /// Deserializes the breadcrumb's context as a `T`.
    ///
    /// # Errors
    /// Returns the error of `serde_json` if the context does not have the shape of `T`.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::NewBreadcrumb;
    /// # use universal_executor::model::{BreadcrumbId, Timestamp};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Order {
    ///     count: u32,
    /// }
    ///
    /// let order = NewBreadcrumb::new("order.v1").context(json!({"count": 3}));
    /// # let order = order.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    /// assert_eq!(order.parse::<Order>()?.count, 3);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn parse<T: de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.context.parse()
    }

    /// Returns the author of this version of the breadcrumb: `created_by` for version 1, otherwise `updated_by`.
    ///
    /// Returns `None` if the writer set no author. A run writes its executor ID.
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
    ///
    /// The order of the tags decides between several tags with this prefix.
    #[must_use]
    pub fn tag(&self, prefix: &str) -> Option<&str> {
        self.tags.iter().find_map(|tag| tag.strip_prefix(prefix))
    }

    /// Returns the size in bytes of the breadcrumb's fields that the author wrote: context, hints, tags, schema name, title, description
    /// and semantic version.
    ///
    /// The result is [`usize::MAX`] if the payload or the hints nest deeper than 64 levels.
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

    /// Returns the sort key by which stores order breadcrumbs: the update time, then the version, then the ID.
    ///
    /// Pass the key of the last item to [`Query::before`](crate::store::Query::before), to read the
    /// next page of a search.
    #[must_use]
    pub fn order_key(&self) -> (Timestamp, u64, BreadcrumbId) {
        (self.updated_at, self.version, self.id)
    }

    /// Returns the next version of the breadcrumb, with the changes of `patch` and the update time `at`.
    ///
    /// Only this value changes: no store is involved. Your own store calls this method to
    /// apply an update.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::model::{BreadcrumbId, Timestamp};
    /// use universal_executor::{NewBreadcrumb, Patch};
    ///
    /// let at = Timestamp::UNIX_EPOCH;
    /// let note = NewBreadcrumb::new("note.v1").created_by("ann").tag("draft");
    /// let note = note.first_version(BreadcrumbId::unique(), at);
    /// let next = note.patched(Patch::new().title("Final").updated_by("bob"), at);
    ///
    /// assert_eq!((next.version, next.title.as_str()), (2, "Final"));
    /// assert_eq!((note.author(), next.author()), (Some("ann"), Some("bob")));
    /// assert_eq!(next.tags, ["draft"]);
    /// ```
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
