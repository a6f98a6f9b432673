use super::replay;
use crate::agent::ChatMessage;
use crate::agent::compaction::summary_message;
use crate::model::{Breadcrumb, BreadcrumbId, Json};
use crate::workload;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of entries that are read from a session log: the newest ones.
pub(super) const MAX_ENTRIES: u64 = 1_000;

/// Maximum size in bytes of a session log entry as JSON. A larger entry is shortened to its first and last message.
const MAX_ENTRY_BYTES: usize = 512 << 10;
/// Maximum size in bytes of a text in a shortened session log entry.
const TEXT_BYTES: usize = 128 << 10;

/// The content of a session log, as it was read. Changes of the session do not change this value.
///
/// It has at most the newest 1,000 entries. [`Conversation::load`](super::Conversation::load)
/// returns it.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub(super) head: Option<(BreadcrumbId, u64)>,
    pub(super) head_fields: HeadFields,
    pub(super) stored: Vec<StoredEntry>,
}

/// An entry of a session log.
///
/// [`Log::entries`] returns the entries, and [`Conversation::append`](super::Conversation::append)
/// adds one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogEntry {
    /// The messages of a turn: the user's message, tool calls with their results, and the answer.
    Said {
        /// The messages of the turn, in order.
        messages: Vec<ChatMessage>,
    },
    /// A suspended turn, with the data to continue it. The turn can continue while this entry is the last entry of the
    /// session log.
    Suspended {
        /// The message of the suspended turn.
        message: workload::WorkloadMessage,
        /// The trigger of the suspended turn.
        trigger: Box<Breadcrumb>,
        /// The saved state from which the suspended turn continues.
        state: Json,
    },
}

/// The fields of a session log's head: the breadcrumb with the entry count of the log and the summary of omitted
/// entries.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct HeadFields {
    /// ID of the session log to which the log of an agent belongs. `None` in the log of a session.
    #[serde(default)]
    pub(super) began: Option<BreadcrumbId>,
    /// Number of entries that were ever added to the session log.
    pub(super) entries: u64,
    /// Sequence number of the oldest session log entry that compaction has left in the conversation. Compaction has removed or
    /// summarised the earlier entries.
    pub(super) since: u64,
    /// Summary of the session log entries that compaction omitted, which are those with a number less than `since`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<String>,
}

/// A session log entry with its number in the log and the turn that added it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct StoredEntry {
    pub(super) number: u64,
    /// Digest of the name of the turn that added the session log entry. `part` names the part of the turn.
    pub(super) turn: String,
    part: String,
    pub(super) entry: LogEntry,
}

impl Log {
    /// Creates the in-memory form of a session log from its read entries, in any order. Only the last entry of each
    /// part of a turn remains.
    pub(super) fn new(
        head: (BreadcrumbId, u64),
        head_fields: HeadFields,
        mut stored: Vec<StoredEntry>,
    ) -> Self {
        stored.sort_by_key(|stored| std::cmp::Reverse(stored.number));
        let mut parts = BTreeSet::new();
        stored.retain(|stored| parts.insert((stored.turn.clone(), stored.part.clone())));
        stored.reverse();
        Self {
            head: Some(head),
            head_fields,
            stored,
        }
    }

    /// Returns the messages of the session log that a model sees: the summary of omitted entries, then all messages.
    /// Tool calls without a result, and results without a call, are omitted.
    ///
    /// Use it to show a conversation, or to continue it with another model.
    #[must_use]
    pub fn messages(&self) -> Vec<ChatMessage> {
        let summary = self.head_fields.summary.as_ref();
        let summary = summary.map(|text| summary_message(text));
        let messages = self
            .stored
            .iter()
            .flat_map(|stored| stored.entry.messages());
        replay::well_formed(summary.into_iter().chain(messages.cloned()).collect())
    }

    /// Returns the entries of the session log, oldest first. Contains the last entry of each part of a turn, and no
    /// entries that a compaction omitted.
    #[must_use]
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &LogEntry> + ExactSizeIterator {
        self.stored.iter().map(|stored| &stored.entry)
    }

    /// Returns the version of the session log, which grows with each change. 0 for an empty session without a log.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.head.map_or(0, |(_, version)| version)
    }

    /// Returns the number of entries that were ever added to the session log.
    pub(in crate::workload) const fn added(&self) -> u64 {
        self.head_fields.entries
    }

    /// Returns `true` if this copy of the session log contains every entry that was ever added to the log. Compaction
    /// has omitted none, and the log does not exceed the maximum number of read entries.
    pub(super) const fn is_complete(&self) -> bool {
        self.head_fields.since == 0 && self.head_fields.entries <= MAX_ENTRIES
    }

    /// Returns the session log without the entries of a turn.
    pub(in crate::workload) fn without(mut self, turn: &str) -> Self {
        self.stored.retain(|stored| stored.turn != turn);
        self
    }

    /// Returns the digests of the turns that have messages in the session log.
    pub(in crate::workload) fn turns(&self) -> impl Iterator<Item = &str> {
        let with_messages = self.stored.iter().filter(|stored| stored.has_messages());
        with_messages.map(|stored| &*stored.turn)
    }
}

impl StoredEntry {
    /// Returns `true` if the session log entry has messages. The entry of a turn that was given up has none.
    pub(super) fn has_messages(&self) -> bool {
        !self.entry.messages().is_empty()
    }
}

impl LogEntry {
    pub(super) fn messages(&self) -> &[ChatMessage] {
        match self {
            Self::Said { messages } => messages,
            Self::Suspended { .. } => &[],
        }
    }

    /// Shortens a session log entry that is too large for a store: only the first and the last message remain, with
    /// shortened text.
    pub(super) fn shortened(self) -> Self {
        let Self::Said { mut messages } = self else {
            return self;
        };
        if json_bytes(&messages) <= MAX_ENTRY_BYTES {
            return Self::Said { messages };
        }
        let last = messages.pop();
        messages.truncate(1);
        messages.extend(last);
        for message in &mut messages {
            let mut limit = TEXT_BYTES;
            message.truncate(limit);
            // A text can be six times as long in JSON.
            while limit > 0 && json_bytes(message) > MAX_ENTRY_BYTES / 2 {
                limit /= 2;
                message.truncate(limit);
            }
        }
        Self::Said { messages }
    }
}

/// Returns the size in bytes of a value as JSON text, which counts for a store's limit of the breadcrumb size.
pub(in crate::workload) fn json_bytes(value: &impl Serialize) -> usize {
    // The store rejects a value that cannot be serialized.
    serde_json::to_string(value).map_or(0, |text| text.len())
}
