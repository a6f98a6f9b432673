use super::breadcrumb::Breadcrumb;
use super::breadcrumb_id::BreadcrumbId;
use super::json::Json;
use super::timestamp::Timestamp;
use serde::{Serialize, Serializer};

mod read;

/// Notice that a breadcrumb was created, updated or deleted. A hint only: the store has the current data.
///
/// The serde form is the data of one SSE frame of an RCRT (Right Context Right Time) server. Fields are read in any order, and the type
/// in any case. A duplicate field is an error, so two readers cannot read different events from one frame.
///
/// An event from text keeps its `context` as text until a caller accesses the value. Reading the event checks only the syntax of the
/// context. A context that [`Value`](serde_json::Value) cannot represent (`1e400`, a lone `\ud800`), or with more than 64 levels, counts as
/// missing, so the breadcrumb in the store decides.
///
/// Event sources and stores create events. Create one with [`created`](Self::created) to process a
/// breadcrumb in a test without a [`Runtime`](crate::Runtime).
///
/// ```
/// use universal_executor::{Event, EventKind};
///
/// let ping: Event = serde_json::from_str(r#"{"type": "ping", "ts": "2026-11-21T20:33:37Z"}"#)?;
///
/// assert_eq!((ping.kind, ping.version), (EventKind::Ping, 0));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The kind of the event (created, updated, deleted or ping), as the event source reports it. See
    /// [`effective_kind`](Self::effective_kind).
    pub kind: EventKind,
    /// The ID of the changed breadcrumb. [`BreadcrumbId::NIL`] for a ping.
    pub breadcrumb_id: BreadcrumbId,
    /// The version of the breadcrumb after the change. 0 for a ping.
    pub version: u64,
    /// The schema name of the changed breadcrumb.
    pub schema_name: Option<String>,
    /// The tags of the changed breadcrumb.
    pub tags: Vec<String>,
    /// The payload of the changed breadcrumb, or `None` if the event omits it, for example because it is larger than
    /// [`MAX_CONTEXT_BYTES`](Self::MAX_CONTEXT_BYTES).
    pub context: Option<Json>,
    /// The time of the breadcrumb's change. For a ping, the time at which the event source sent the ping.
    pub updated_at: Timestamp,
}

/// Kind of an [`Event`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum EventKind {
    /// Version 1 of a breadcrumb was written.
    ///
    /// Trigger subscriptions select this kind by default.
    Created,
    /// A later version of a breadcrumb was written.
    ///
    /// Trigger subscriptions select this kind by default. Each version has its own run.
    Updated,
    /// A breadcrumb was deleted. The deletion increments the version.
    ///
    /// A trigger subscription must select this kind with
    /// [`Subscription::on`](super::Subscription::on). The store must retain tombstones of deleted
    /// breadcrumbs.
    Deleted,
    /// Keep-alive (ping) of the event source. No breadcrumb changed.
    ///
    /// A ping matches no subscription.
    Ping,
}

impl EventKind {
    /// Returns the name of the event kind in definitions: `created`, `updated`, `deleted` or `ping`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Ping => "ping",
        }
    }

    fn on_the_wire(self) -> &'static str {
        match self {
            Self::Created => "breadcrumb.created",
            Self::Updated => "breadcrumb.updated",
            Self::Deleted => "breadcrumb.deleted",
            Self::Ping => "ping",
        }
    }

    pub(super) fn from_wire(text: &str) -> Option<Self> {
        const PREFIX: &str = "breadcrumb.";
        let name = match text.split_at_checked(PREFIX.len()) {
            Some((prefix, name)) if prefix.eq_ignore_ascii_case(PREFIX) => name,
            Some(_) | None => text,
        };
        [Self::Created, Self::Updated, Self::Deleted, Self::Ping]
            .into_iter()
            .find(|kind| name.eq_ignore_ascii_case(kind.as_str()))
    }
}

impl Event {
    /// Maximum size in bytes of a breadcrumb's context in an event: 256 KiB. An event omits a larger context.
    pub const MAX_CONTEXT_BYTES: usize = 256 << 10;

    /// Creates the event that reports a new breadcrumb.
    ///
    /// The payload is omitted if it is larger than [`MAX_CONTEXT_BYTES`](Self::MAX_CONTEXT_BYTES).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{BreadcrumbStoreExt, Event, EventKind, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1").tag("customer:7")).await?;
    /// let event = Event::created(&order);
    ///
    /// assert_eq!((event.kind, event.version), (EventKind::Created, 1));
    /// assert_eq!((event.breadcrumb_id, event.tags), (order.id, order.tags.clone()));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn created(breadcrumb: &Breadcrumb) -> Self {
        Self::of(EventKind::Created, breadcrumb)
    }

    /// Creates the event that reports the new version of an updated breadcrumb.
    ///
    /// Use the breadcrumb that an update returned, which has the new version.
    #[must_use]
    pub fn updated(breadcrumb: &Breadcrumb) -> Self {
        Self::of(EventKind::Updated, breadcrumb)
    }

    /// Creates the event of a deleted breadcrumb from the breadcrumb's tombstone. The tombstone's version is one higher than the
    /// breadcrumb's last version.
    #[must_use]
    pub fn deleted(tombstone: &Breadcrumb) -> Self {
        Self::of(EventKind::Deleted, tombstone)
    }

    /// Returns the event's kind, corrected by the breadcrumb's version: a write of version 1 is a creation, and a write of a
    /// later version is an update. A creation or update of version 1 is [`EventKind::Created`], although an RCRT server sends the
    /// type `breadcrumb.updated`.
    ///
    /// Routing uses this kind. A program that handles events itself should use it too.
    #[must_use]
    pub const fn effective_kind(&self) -> EventKind {
        match self.kind {
            EventKind::Created | EventKind::Updated if self.version <= 1 => EventKind::Created,
            EventKind::Created | EventKind::Updated => EventKind::Updated,
            EventKind::Deleted | EventKind::Ping => self.kind,
        }
    }

    /// Returns the event without its payload.
    ///
    /// Use it for a transport that must stay small. A subscription with conditions then needs a
    /// read of the breadcrumb, see [`Route::NeedsContext`](super::Route::NeedsContext).
    #[must_use]
    pub fn envelope(&self) -> Self {
        Self {
            kind: self.kind,
            breadcrumb_id: self.breadcrumb_id,
            version: self.version,
            schema_name: self.schema_name.clone(),
            tags: self.tags.clone(),
            context: None,
            updated_at: self.updated_at,
        }
    }

    fn of(kind: EventKind, breadcrumb: &Breadcrumb) -> Self {
        let fits = breadcrumb.context.size() <= Self::MAX_CONTEXT_BYTES;
        Self {
            kind,
            breadcrumb_id: breadcrumb.id,
            version: breadcrumb.version,
            schema_name: breadcrumb.schema_name.clone(),
            tags: breadcrumb.tags.clone(),
            context: fits.then(|| breadcrumb.context.clone()),
            updated_at: breadcrumb.updated_at,
        }
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Frame<'a> {
            r#type: &'static str,
            breadcrumb_id: BreadcrumbId,
            version: u64,
            tags: &'a [String],
            #[serde(skip_serializing_if = "Option::is_none")]
            schema_name: Option<&'a str>,
            updated_at: Timestamp,
            #[serde(skip_serializing_if = "Option::is_none")]
            context: Option<&'a Json>,
        }
        #[derive(Serialize)]
        struct Ping {
            r#type: &'static str,
            ts: Timestamp,
        }
        let r#type = self.kind.on_the_wire();
        if self.kind == EventKind::Ping {
            return Ping {
                r#type,
                ts: self.updated_at,
            }
            .serialize(serializer);
        }
        Frame {
            r#type,
            breadcrumb_id: self.breadcrumb_id,
            version: self.version,
            tags: &self.tags,
            schema_name: self.schema_name.as_deref(),
            updated_at: self.updated_at,
            context: self.context.as_ref(),
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: &str = r#"{"type":"breadcrumb.updated","breadcrumb_id":"01890a5d-ac96-774b-bcce-b302099a8057","owner_id":"o","version":1,"tags":["user:message"],"schema_name":"user.message.v1","updated_at":"2026-11-21T20:33:40.535554Z","context":{"content":"hello"}}"#;

    #[test]
    fn a_frame_of_the_wire_is_read_and_written() {
        let event: Event = serde_json::from_str(FRAME).unwrap();

        assert_eq!((event.kind, event.version), (EventKind::Updated, 1));
        assert_eq!(
            event.context.as_ref().unwrap().text("content"),
            Some("hello")
        );
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            FRAME.replace(r#""owner_id":"o","#, "")
        );
    }

    #[test]
    fn a_frame_is_read_with_fields_in_any_order_and_the_type_in_any_case() {
        let shuffled = r#"{"version":1,"context":{"content":"hello"},"updated_at":"2026-11-21T20:33:40.535554Z",
            "schema_name":"user.message.v1","tags":["user:message"],"breadcrumb_id":"01890a5d-ac96-774b-bcce-b302099a8057","type":"Breadcrumb.UPDATED"}"#;

        assert_eq!(
            serde_json::from_str::<Event>(shuffled).unwrap(),
            serde_json::from_str::<Event>(FRAME).unwrap()
        );
    }

    #[test]
    fn a_ping_has_the_nil_id_version_0_and_its_ts_as_time_and_survives_the_wire() {
        let frame = r#"{"type":"ping","ts":"2026-11-21T20:33:37Z"}"#;

        let ping: Event = serde_json::from_str(frame).unwrap();

        assert_eq!((ping.breadcrumb_id, ping.version), (BreadcrumbId::NIL, 0));
        assert_eq!(serde_json::to_string(&ping).unwrap(), frame);
    }

    #[test]
    fn a_field_given_twice_is_an_error() {
        let twice = FRAME.replace(r#""version":1"#, r#""version":1,"version":2"#);

        let error = serde_json::from_str::<Event>(&twice)
            .unwrap_err()
            .to_string();

        assert!(error.contains("duplicate field `version`"), "{error}");
    }

    #[test]
    fn an_unknown_type_and_a_missing_field_are_named() {
        for (frame, expected) in [
            (
                r#"{"type":"breadcrumb.updatet"}"#,
                "did you mean \"breadcrumb.updated\"?",
            ),
            (
                r#"{"type":"breadcrumb.updated","version":1}"#,
                "missing field `breadcrumb_id`",
            ),
            (r#"{"type":"ping"}"#, "missing field `ts`"),
        ] {
            let error = serde_json::from_str::<Event>(frame)
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{frame}: {error}");
        }
    }

    #[test]
    fn a_context_of_256_kibibytes_travels_and_one_byte_more_does_not() {
        for (bytes, travels) in [(262_144, true), (262_145, false)] {
            let context = serde_json::json!("x".repeat(bytes - 2));
            let breadcrumb = crate::model::NewBreadcrumb::new("x.v1")
                .context(context)
                .first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);

            let event = Event::updated(&breadcrumb);

            assert_eq!(event.context.is_some(), travels, "{bytes}");
        }
    }

    #[test]
    fn an_event_of_a_large_breadcrumb_travels_without_its_context() {
        let large = serde_json::json!({"text": "x".repeat(Event::MAX_CONTEXT_BYTES)});
        let breadcrumb = crate::model::NewBreadcrumb::new("x.v1")
            .context(large)
            .first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);

        assert_eq!(Event::created(&breadcrumb).context, None);
    }
}
