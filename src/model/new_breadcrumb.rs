use super::breadcrumb::{Breadcrumb, null_as_default};
use super::breadcrumb_id::BreadcrumbId;
use super::json::Json;
use super::timestamp::Timestamp;
use super::visibility::{Sensitivity, Visibility};
use serde::{Deserialize, Serialize};

/// A breadcrumb to create. The store assigns the ID, the times and version 1.
///
/// The serde form is the body of the create call of an RCRT server.
///
/// Pass it to [`BreadcrumbStoreExt::create`](crate::BreadcrumbStoreExt::create), to
/// [`Response::create`](crate::Response::create), or to a request of a [`Client`](crate::Client).
/// Building the value writes nothing. The store checks the limits of the fields at the commit.
///
/// ```
/// use serde_json::json;
/// use universal_executor::NewBreadcrumb;
///
/// let message = NewBreadcrumb::new("user.message.v1")
///     .title("Hi")
///     .tag("session:1")
///     .created_by("ann")
///     .context(json!({"message": "hello"}));
///
/// assert_eq!(message.tags, ["session:1"]);
/// ```
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NewBreadcrumb {
    /// The new breadcrumb's schema name. See [`Breadcrumb::schema_name`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_name: Option<String>,
    /// The new breadcrumb's title. See [`Breadcrumb::title`].
    #[serde(default)]
    pub title: String,
    /// The new breadcrumb's description. See [`Breadcrumb::description`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The new breadcrumb's semantic version, such as `1.2.0`, which its author assigns. See [`Breadcrumb::semantic_version`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_version: Option<String>,
    /// The new breadcrumb's tags. See [`Breadcrumb::tags`].
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// The new breadcrumb's payload. See [`Breadcrumb::context`].
    #[serde(default)]
    pub context: Json,
    /// The hints that remove or rewrite parts of the new breadcrumb's payload for models. See [`Breadcrumb::llm_hints`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llm_hints: Option<Json>,
    /// The label of the new breadcrumb's permitted readers. See [`Breadcrumb::visibility`].
    #[serde(default)]
    pub visibility: Visibility,
    /// The new breadcrumb's sensitivity label. See [`Breadcrumb::sensitivity`].
    #[serde(default)]
    pub sensitivity: Sensitivity,
    /// The new breadcrumb's expiry time. See [`Breadcrumb::ttl`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Timestamp>,
    /// The new breadcrumb's author. A store that authenticates writers, such as an RCRT server, ignores this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
}

impl NewBreadcrumb {
    /// Creates a breadcrumb with a schema name and an empty object as context.
    ///
    /// `schema_name` has at most 256 bytes and usually ends with a version, such as `order.v1`. It
    /// needs no registration.
    #[must_use]
    pub fn new(schema_name: impl Into<String>) -> Self {
        Self {
            schema_name: Some(schema_name.into()),
            context: Json::empty_object(),
            ..Self::default()
        }
    }

    /// Sets the breadcrumb's title, one line for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Sets the breadcrumb's description, a paragraph for people.
    ///
    /// The description counts for [`Breadcrumb::size`].
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Adds a tag to the breadcrumb.
    ///
    /// A breadcrumb can have 256 tags of at most 256 bytes each. Tags of the form `name:value`,
    /// such as `session:7`, work with [`Subscription::scope`](crate::Subscription::scope).
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Adds tags to the breadcrumb.
    ///
    /// The tags that are already set remain.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::NewBreadcrumb;
    ///
    /// let order = NewBreadcrumb::new("order.v1").tag("order:17").tags(["customer:7", "urgent"]);
    /// assert_eq!(order.tags, ["order:17", "customer:7", "urgent"]);
    /// ```
    #[must_use]
    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// Sets the breadcrumb's payload.
    ///
    /// Replaces an earlier payload. The payload is any JSON, but a run's response needs an object.
    /// The in-memory store limits a breadcrumb to 1 MiB by default.
    #[must_use]
    pub fn context(mut self, context: impl Into<Json>) -> Self {
        self.context = context.into();
        self
    }

    /// Sets the hints that remove or rewrite parts of the breadcrumb's payload for models. See [`hints`](crate::hints).
    ///
    /// An invalid hint does not prevent the commit. It withholds the breadcrumb from models.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::NewBreadcrumb;
    /// use universal_executor::hints::Hints;
    ///
    /// let hints = json!({"exclude": ["token"]});
    /// Hints::from_json(&hints)?;
    /// let page = NewBreadcrumb::new("web.page.v1")
    ///     .context(json!({"title": "Rust", "token": "t-1"}))
    ///     .llm_hints(hints);
    /// assert!(page.llm_hints.is_some());
    /// # Ok::<(), universal_executor::hints::HintsError>(())
    /// ```
    #[must_use]
    pub fn llm_hints(mut self, hints: impl Into<Json>) -> Self {
        self.llm_hints = Some(hints.into());
        self
    }

    /// Sets the label of the breadcrumb's permitted readers.
    ///
    /// Defaults to [`Visibility::Team`]. The crate stores the label and does not enforce it.
    #[must_use]
    pub fn visibility(mut self, visibility: Visibility) -> Self {
        self.visibility = visibility;
        self
    }

    /// Sets the sensitivity label of the breadcrumb.
    ///
    /// Defaults to [`Sensitivity::Low`]. The crate stores the label and does not enforce it.
    #[must_use]
    pub fn sensitivity(mut self, sensitivity: Sensitivity) -> Self {
        self.sensitivity = sensitivity;
        self
    }

    /// Sets the expiry time of the breadcrumb.
    ///
    /// Defaults to no expiry. Compare with the store's clock, such as
    /// [`ExecutionContext::now`](crate::ExecutionContext::now) in a run.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::NewBreadcrumb;
    /// use universal_executor::model::Timestamp;
    ///
    /// let now: Timestamp = "2026-11-21T20:00:00Z".parse()?;
    /// let code = NewBreadcrumb::new("login.code.v1").ttl(now + Duration::from_secs(600));
    /// assert_eq!(code.ttl.map(|end| end.to_string()).as_deref(), Some("2026-11-21T20:10:00Z"));
    /// # Ok::<(), universal_executor::model::ParseTimestampError>(())
    /// ```
    #[must_use]
    pub fn ttl(mut self, ttl: Timestamp) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the author of the breadcrumb. A run replaces the author of its response with its executor ID.
    #[must_use]
    pub fn created_by(mut self, author: impl Into<String>) -> Self {
        self.created_by = Some(author.into());
        self
    }

    /// Returns version 1 of the new breadcrumb, with the ID `id` and the commit time `at`.
    ///
    /// Use this method in unit tests that need a [`Breadcrumb`] without a store, and in your own
    /// store. `at` becomes the creation time and the update time.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::model::{BreadcrumbId, Timestamp};
    /// use universal_executor::{Event, EventKind, NewBreadcrumb};
    ///
    /// let message = NewBreadcrumb::new("user.message.v1")
    ///     .first_version(BreadcrumbId::unique(), Timestamp::UNIX_EPOCH);
    /// assert_eq!(message.version, 1);
    /// assert_eq!(Event::created(&message).kind, EventKind::Created);
    /// ```
    #[must_use]
    pub fn first_version(self, id: BreadcrumbId, at: Timestamp) -> Breadcrumb {
        Breadcrumb {
            id,
            owner_id: None,
            schema_name: self.schema_name,
            title: self.title,
            description: self.description,
            semantic_version: self.semantic_version,
            tags: self.tags,
            context: self.context,
            llm_hints: self.llm_hints,
            visibility: self.visibility,
            sensitivity: self.sensitivity,
            version: 1,
            ttl: self.ttl,
            ttl_type: None,
            created_at: at,
            updated_at: at,
            updated_by: self.created_by.clone(),
            created_by: self.created_by,
        }
    }
}
