//! Records of the worker's actions outside the store.

use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

/// An event, in the order of the file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Note {
    /// The model received the request of a turn.
    Asked { turn: String },
    /// The model answered the request of a turn.
    Answered { turn: String },
    /// The model's last answer has this text.
    Said { text: String },
    /// A tool call started, with its idempotency key.
    Started { tool: String, key: String },
    /// A tool call ended.
    Ended { tool: String },
    /// The store confirmed that it has saved the answer of a turn or the result of a tool.
    Kept { what: String },
    /// A worker without a planned kill passed a point.
    Passed { point: String },
    /// The worker waits at this point to be killed.
    Dies { point: String },
}

/// A file of notes that only grows.
#[derive(Debug)]
pub(crate) struct Notes(File);

impl Notes {
    pub(crate) fn open(folder: &Path) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(folder.join("notes"));
        Self(file.unwrap())
    }

    /// Adds a note and flushes it to the disk.
    pub(crate) fn write(&self, note: &Note) {
        let mut line = serde_json::to_vec(note).unwrap();
        line.push(b'\n');
        (&self.0).write_all(&line).unwrap();
        self.0.sync_data().unwrap();
    }

    pub(crate) fn read(folder: &Path) -> Vec<Note> {
        let text = fs::read_to_string(folder.join("notes")).unwrap();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}
