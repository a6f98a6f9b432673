use super::replay;
use crate::agent::ChatMessage;
use crate::agent::compaction::summarised;
use crate::model::{Breadcrumb, BreadcrumbId, Json};
use crate::workload;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How many entries of a log are read at the most, the newest.
pub(super) const MOST_ENTRIES: u64 = 1_000;

/// How large an entry may be as JSON before the calls of tools are left out of it, and how large a text of it may be then.
const ENTRY_BYTES: usize = 512 << 10;
const TEXT_BYTES: usize = 128 << 10;

/// A log, as it was read.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub(super) head: Option<(BreadcrumbId, u64)>,
    pub(super) about: About,
    pub(super) kept: Vec<Kept>,
}

/// Something added to a log.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogEntry {
    /// What was said in a turn: the message, calls of tools with what they came to, and the answer.
    Said {
        /// In order.
        messages: Vec<ChatMessage>,
    },
    /// A turn that waits for others, and goes on if this is the last entry.
    Suspended {
        /// What the workload was told.
        message: workload::WorkloadMessage,
        /// What it was set off by.
        trigger: Box<Breadcrumb>,
        /// What it goes on with.
        state: Json,
    },
}

/// What is known of a log as a whole.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct About {
    /// Of the log of an agent: that of the session which it belongs to.
    #[serde(default)]
    pub(super) began: Option<BreadcrumbId>,
    /// How many entries were ever added.
    pub(super) entries: u64,
    /// Those before are not read any more.
    pub(super) since: u64,
    /// What those that are not read any more came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<String>,
}

/// An entry as it is kept.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Kept {
    pub(super) number: u64,
    /// What names the turn that it is of, and the part of that.
    pub(super) turn: String,
    part: String,
    pub(super) entry: LogEntry,
}

impl Log {
    /// What was read, in any order. What was added last for a part of a turn stands for all that was.
    pub(super) fn new(head: (BreadcrumbId, u64), about: About, mut kept: Vec<Kept>) -> Self {
        kept.sort_by_key(|kept| std::cmp::Reverse(kept.number));
        let mut parts = BTreeSet::new();
        kept.retain(|kept| parts.insert((kept.turn.clone(), kept.part.clone())));
        kept.reverse();
        Self {
            head: Some(head),
            about,
            kept,
        }
    }

    /// What was said, as a model is shown it: a summary of what is not kept, then all messages, without calls that have no
    /// result and results that have no call.
    #[must_use]
    pub fn messages(&self) -> Vec<ChatMessage> {
        let summary = self.about.summary.as_ref();
        let summary = summary.map(|text| summarised(text));
        let said = self.kept.iter().flat_map(|kept| kept.entry.messages());
        replay::well_formed(summary.into_iter().chain(said.cloned()).collect())
    }

    /// Its entries, oldest first, the last of each turn, without those that are not read any more.
    #[must_use]
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &LogEntry> + ExactSizeIterator {
        self.kept.iter().map(|kept| &kept.entry)
    }

    /// How often it was changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.head.map_or(0, |(_, version)| version)
    }

    /// How often something was added to it.
    pub(in crate::workload) const fn added(&self) -> u64 {
        self.about.entries
    }

    /// Whether all is here that was ever added.
    pub(super) const fn is_whole(&self) -> bool {
        self.about.since == 0 && self.about.entries <= MOST_ENTRIES
    }

    /// The same without what a turn has added.
    pub(in crate::workload) fn without(mut self, turn: &str) -> Self {
        self.kept.retain(|kept| kept.turn != turn);
        self
    }

    /// The turns in which something was said.
    pub(in crate::workload) fn turns(&self) -> impl Iterator<Item = &str> {
        let said = self.kept.iter().filter(|kept| kept.is_said());
        said.map(|kept| &*kept.turn)
    }
}

impl Kept {
    /// Whether the turn came to something: one that was given up has said nothing.
    pub(super) fn is_said(&self) -> bool {
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

    /// The same as a store keeps it: of what is too large only the texts of the first and the last message, cut short.
    pub(super) fn fitting(self) -> Self {
        let Self::Said { mut messages } = self else {
            return self;
        };
        if written(&messages) <= ENTRY_BYTES {
            return Self::Said { messages };
        }
        let last = messages.pop();
        messages.truncate(1);
        messages.extend(last);
        for message in &mut messages {
            let mut most = TEXT_BYTES;
            message.cut(most);
            // As JSON a text may be six times as long.
            while most > 0 && written(message) > ENTRY_BYTES / 2 {
                most /= 2;
                message.cut(most);
            }
        }
        Self::Said { messages }
    }
}

/// How many bytes something takes as JSON, which is what a store counts.
pub(in crate::workload) fn written(what: &impl Serialize) -> usize {
    // What cannot be written is for the store to refuse.
    serde_json::to_string(what).map_or(0, |text| text.len())
}
