use super::UniversalExecutor;
use super::turn_events::is_turn_of;
use crate::error::Retry;
use crate::hex::hex;
use crate::model::{Breadcrumb, Event, Path, PathError, SESSION_TAG, sorted_text};
use crate::store::StoreError;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Ordering of the runs of an executor: runs whose triggers have an equal key execute one at a time, in the order of their
/// triggers.
///
/// A run that waits for a retry, or is suspended, holds its key until its end. Runs without a key and runs with different
/// keys execute concurrently.
///
/// Set it with [`Profile::ordering`](crate::Profile::ordering), or with
/// [`ExecutorBuilder::ordered_by`](super::ExecutorBuilder::ordered_by). Use it if two runs about
/// the same order or customer must not overlap. Runs with one key have the throughput of one run at
/// a time.
///
/// ```
/// use serde_json::json;
/// use universal_executor::NewBreadcrumb;
/// use universal_executor::executor::OrderingKey;
/// # use universal_executor::model::{BreadcrumbId, Timestamp};
///
/// # let id = BreadcrumbId::NIL;
/// let message = NewBreadcrumb::new("user.message.v1").tag("session:7").context(json!({"order": {"id": 3}}));
/// # let message = message.first_version(id, Timestamp::UNIX_EPOCH);
///
/// assert_eq!(OrderingKey::tag("session:").of(&message).as_deref(), Some("session:7"));
/// assert_eq!(OrderingKey::path("$.order.id")?.of(&message).as_deref(), Some("3"));
/// assert_eq!(OrderingKey::None.of(&message), None);
/// # Ok::<(), universal_executor::model::PathError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum OrderingKey {
    /// No order: the runs of the executor execute concurrently.
    #[default]
    None,
    /// The key is the trigger's tag with this prefix, for example `session:`. Of several tags the first in alphabetical order.
    TagPrefix(String),
    /// The ordering key is the trigger's tag with the prefix `prefix`, unless the trigger also has a tag with the prefix
    /// `unless`. A trigger with such a tag has no key: it belongs to another run, which is ordered itself.
    TagPrefixUnless {
        /// The prefix of the tag that is the ordering key.
        prefix: String,
        /// The prefix of tags that exempt a trigger: a trigger with such a tag has no ordering key, so its run is not
        /// ordered.
        unless: String,
    },
    /// The key is the first value at this JSONPath in the trigger's context, as JSON.
    ///
    /// A key that is not in the event costs one read of the breadcrumb.
    Path(Path),
}

impl OrderingKey {
    /// Creates an ordering of runs by the trigger's tag with a prefix.
    ///
    /// A trigger without such a tag has no key, so its run is not ordered.
    #[must_use]
    pub fn tag(prefix: impl Into<String>) -> Self {
        Self::TagPrefix(prefix.into())
    }

    /// Creates an ordering of runs by the value at a JSONPath in the trigger's context.
    ///
    /// # Errors
    /// [`PathError`] if the path does not parse or exceeds the limits of a path.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::executor::OrderingKey;
    ///
    /// assert!(OrderingKey::path("$.order.id").is_ok());
    /// assert!(OrderingKey::path("$.order[").is_err());
    /// ```
    pub fn path(path: &str) -> Result<Self, PathError> {
        Path::parse(path).map(Self::Path)
    }

    /// Returns the ordering key of a trigger, or `None` if the trigger has no matching tag or value.
    ///
    /// A key of more than 256 bytes is replaced by its SHA-256 hash in hexadecimal.
    #[must_use]
    pub fn of(&self, trigger: &Breadcrumb) -> Option<String> {
        match self {
            Self::None => None,
            Self::TagPrefix(prefix) => first_tag(prefix, &trigger.tags),
            Self::TagPrefixUnless { prefix, unless } => tag_unless(prefix, unless, &trigger.tags),
            Self::Path(path) => value_at(path, &trigger.context),
        }
    }
}

fn first_tag(prefix: &str, tags: &[String]) -> Option<String> {
    let with_prefix = tags.iter().filter(|tag| tag.starts_with(prefix));
    with_prefix.min().map(|tag| key_or_hash(tag.clone()))
}

fn tag_unless(prefix: &str, unless: &str, tags: &[String]) -> Option<String> {
    let is_within = tags.iter().any(|tag| tag.starts_with(unless));
    first_tag(prefix, tags).filter(|_| !is_within)
}

fn value_at(path: &Path, context: &Value) -> Option<String> {
    // A path that cannot be evaluated gives no key, just as it matches nothing in a selector.
    let found = path.first(context).ok()??;
    Some(key_or_hash(sorted_text(found)))
}

/// Returns an ordering key, or its hash if the key is too long to be stored with every run.
fn key_or_hash(key: String) -> String {
    const MAX_KEY_BYTES: usize = 256;
    if key.len() <= MAX_KEY_BYTES {
        return key;
    }
    hex(&Sha256::digest(key.as_bytes()))
}

/// Returns `true` if the executor's runs can have an ordering key when their triggers have these tags.
pub(super) fn is_ordered<E: UniversalExecutor + ?Sized>(executor: &E, tags: &[String]) -> bool {
    executor.profile().ordering != OrderingKey::None || is_turn_of(executor.id(), tags)
}

/// Returns the ordering key of a trigger: the key by the profile's ordering, or otherwise the session tag of a chat message.
pub(super) fn key_of<E: UniversalExecutor + ?Sized>(
    executor: &E,
    trigger: &Breadcrumb,
) -> Option<String> {
    let key = executor.profile().ordering.of(trigger);
    key.or_else(|| session_of_turn(executor.id(), &trigger.tags))
}

/// Returns the session tag among the tags of a chat message to an executor, or `None` for any other breadcrumb.
pub(crate) fn session_of_turn(executor: &str, tags: &[String]) -> Option<String> {
    match is_turn_of(executor, tags) {
        true => first_tag(SESSION_TAG, tags),
        false => None,
    }
}

/// Returns the ordering key of the breadcrumb that an event announces. Reads the breadcrumb if the event lacks its context.
///
/// # Errors
/// A [`StoreError`] if the breadcrumb cannot be read now. A breadcrumb that is gone, or can never be read, has no key.
pub(crate) async fn ordering_key<E: UniversalExecutor + ?Sized>(
    executor: &E,
    event: &Event,
) -> Result<Option<String>, StoreError> {
    let key = key_of_profile(executor, event).await?;
    Ok(key.or_else(|| session_of_turn(executor.id(), &event.tags)))
}

async fn key_of_profile<E: UniversalExecutor + ?Sized>(
    executor: &E,
    event: &Event,
) -> Result<Option<String>, StoreError> {
    match (&executor.profile().ordering, &event.context) {
        (OrderingKey::None, _) => Ok(None),
        (OrderingKey::TagPrefix(prefix), _) => Ok(first_tag(prefix, &event.tags)),
        (OrderingKey::TagPrefixUnless { prefix, unless }, _) => {
            Ok(tag_unless(prefix, unless, &event.tags))
        }
        (OrderingKey::Path(path), Some(context)) => Ok(value_at(path, context)),
        (ordering @ OrderingKey::Path(_), None) => {
            match executor.store().get(event.breadcrumb_id).await {
                Ok(trigger) => Ok(ordering.of(&trigger)),
                // The run itself then reports that its trigger is gone or unreadable.
                Err(error) if error.retry() == Retry::Never => Ok(None),
                Err(error) => Err(error),
            }
        }
    }
}
