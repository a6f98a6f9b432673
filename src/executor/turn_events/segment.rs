//! The stored form of the events of a chat turn.

use crate::hex::hex;
use crate::model::{Breadcrumb, BreadcrumbId, CHAT_TURN, NewBreadcrumb, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;

/// Consecutive chat turn events that a run wrote together, stored as the JSON context of one [`CHAT_TURN`] breadcrumb.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Segment {
    /// The ID of the chat message that the run answers.
    pub(crate) trigger_id: BreadcrumbId,
    /// The fencing token of the lease under which the run wrote the events. It grows with every claim of the run.
    pub(crate) token: u64,
    /// The number of this segment among the segments that the run wrote under the same lease, counted from 1.
    pub(crate) number: u32,
    /// The number of the run's attempt that wrote the events.
    pub(crate) attempt: u32,
    pub(crate) events: Vec<Record>,
    /// If `true`, no later attempt of the run repeats the events of this lease.
    #[serde(default)]
    pub(crate) is_settled: bool,
}

/// Names of the fields in a stored segment (breadcrumb with chat turn events). Models see none of them, because the `llm_hints`
/// exclude all fields.
const HIDDEN_FIELDS: [&str; 6] = [
    "trigger_id",
    "token",
    "number",
    "attempt",
    "events",
    "is_settled",
];

/// An event of a chat turn, for the client of the session.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record {
    /// A part of the answer to the chat message.
    Text(String),
    ToolCalled {
        call: String,
        tool: String,
    },
    ToolAnswered {
        call: String,
        is_error: bool,
    },
    /// The run repeats its last model request under the same lease, because the model's answer was not usable.
    Repeated,
    /// Events of the chat turn were omitted, because the store was too slow or refused them.
    Missed,
}

impl Record {
    /// Returns the approximate size of the event in bytes.
    pub(crate) fn size(&self) -> usize {
        /// Size of the JSON of an event without its strings, in bytes.
        const LEAST: usize = 40;
        match self {
            Self::Text(text) => text.len(),
            Self::ToolCalled { call, tool } => LEAST + call.len() + tool.len(),
            Self::ToolAnswered { call, .. } => LEAST + call.len(),
            Self::Repeated | Self::Missed => LEAST,
        }
    }
}

impl Segment {
    /// Parses a segment of chat turn events from the context of a breadcrumb. Returns `None` if the breadcrumb is not a segment
    /// of this turn.
    pub(crate) fn of(found: &Breadcrumb, trigger: BreadcrumbId) -> Option<Self> {
        // The library never changes a segment, so another version is a forgery.
        let segment: Self = (found.version == 1).then(|| found.context.parse().ok())??;
        (segment.trigger_id == trigger).then_some(segment)
    }

    /// Creates the breadcrumb that stores this segment of chat turn events and expires at the time `until`. Its `llm_hints` hide
    /// the whole context from models and embeddings.
    pub(super) fn breadcrumb(&self, until: Timestamp) -> NewBreadcrumb {
        NewBreadcrumb::new(CHAT_TURN)
            .tag(turn_segments_tag(self.trigger_id))
            .llm_hints(json!({"exclude": HIDDEN_FIELDS}))
            .ttl(until)
            .context(json!(self))
    }
}

/// Returns the tag of all stored segments of a chat turn's events. Runs cannot write it, because its prefix is reserved.
pub(crate) fn turn_segments_tag(trigger: BreadcrumbId) -> String {
    format!("{PREFIX}{trigger}")
}

/// Prefix of the tags of chat messages and of stored chat turn events. In the tag of a message, the executor ID follows; in the tag of an
/// event, the trigger ID.
const PREFIX: &str = "ux:turn:";

/// Returns the tag of messages of chat sessions with an executor. Runs cannot write it, because its prefix is reserved.
pub(crate) fn turn_tag(executor: &str) -> String {
    format!("{PREFIX}{}", name_or_hash(executor))
}

/// Returns `true` if these are the tags of a chat message that is addressed to an executor.
pub(crate) fn is_turn_of(executor: &str, tags: &[String]) -> bool {
    let mut addressed = tags.iter().filter_map(|tag| tag.strip_prefix(PREFIX));
    addressed.any(|name| name == name_or_hash(executor))
}

/// Returns an executor ID, or its hash if it is too long for a tag.
fn name_or_hash(executor: &str) -> Cow<'_, str> {
    match PREFIX.len() + executor.len() > Breadcrumb::MAX_TAG_BYTES {
        true => hex(&Sha256::digest(executor)).into(),
        false => executor.into(),
    }
}
