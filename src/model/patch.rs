use super::json::Json;
use super::timestamp::Timestamp;
use super::visibility::{Sensitivity, Visibility};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A change of a breadcrumb. Each field is optional, and `None` leaves the field of the breadcrumb unchanged.
///
/// `context` and `tags` replace the whole payload and all tags. A patch can replace a field, but not clear it. The serde form is
/// the body of the patch call of an RCRT server.
///
/// Pass it to [`BreadcrumbStoreExt::update`](crate::BreadcrumbStoreExt::update), or to
/// [`Response::update`](crate::Response::update) in a run. To change one field of the payload,
/// change a copy of the whole payload.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let order = NewBreadcrumb::new("order.v1").context(json!({"count": 3, "paid": false}));
/// let order = store.create(order).await?;
///
/// let mut context = order.context.clone().into_value();
/// context["paid"] = json!(true);
/// let paid = store.update(order.id, order.version, Patch::from(context)).await?;
///
/// assert_eq!(paid.context, json!({"count": 3, "paid": true}));
/// assert!(store.update(order.id, 1, Patch::new().title("late")).await.is_err());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Patch {
    /// The new schema name of the breadcrumb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_name: Option<String>,
    /// The new title of the breadcrumb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The new description of the breadcrumb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The new semantic version of the breadcrumb, such as `1.2.0`, which the author assigns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub semantic_version: Option<String>,
    /// The new tags, which replace all tags of the breadcrumb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// The new payload, which replaces the whole payload of the breadcrumb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Json>,
    /// The new hints that remove or rewrite parts of the breadcrumb's payload for models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_hints: Option<Json>,
    /// The new label of the breadcrumb's permitted readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility: Option<Visibility>,
    /// The new sensitivity label of the breadcrumb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Sensitivity>,
    /// The new expiry time of the breadcrumb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Timestamp>,
    /// The author of the breadcrumb's change. A store that authenticates writers, such as an RCRT server, ignores this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
}

impl Patch {
    /// Creates an empty patch, which writes a new version of the breadcrumb without a change of its content.
    ///
    /// An update with an empty patch still writes a version and an event, so it can trigger
    /// executors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the new payload, which replaces the whole payload of the breadcrumb.
    ///
    /// The fields of the old payload are lost unless the new payload has them.
    #[must_use]
    pub fn context(mut self, context: impl Into<Json>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// Sets the new tags, which replace all tags of the breadcrumb.
    ///
    /// To add a tag, pass the old tags and the new tag. At most 256 tags of 256 bytes each.
    #[must_use]
    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.tags = Some(tags.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the new title of the breadcrumb.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the new description of the breadcrumb.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the new hints, which replace the breadcrumb's `llm_hints`.
    #[must_use]
    pub fn llm_hints(mut self, hints: impl Into<Json>) -> Self {
        self.llm_hints = Some(hints.into());
        self
    }

    /// Sets the new expiry time of the breadcrumb.
    ///
    /// A patch can move an expiry time, and cannot remove it.
    #[must_use]
    pub fn ttl(mut self, ttl: Timestamp) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the author of the breadcrumb's change. A run replaces the author of its response with its executor ID.
    #[must_use]
    pub fn updated_by(mut self, author: impl Into<String>) -> Self {
        self.updated_by = Some(author.into());
        self
    }
}

impl From<Value> for Patch {
    /// Creates a patch that replaces the breadcrumb's payload.
    fn from(context: Value) -> Self {
        Self::new().context(context)
    }
}
