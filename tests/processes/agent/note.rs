//! What the worker does, noted outside of the store.

use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

/// Something that happened, in the order of the file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Note {
    /// The model was asked for the answer of a turn.
    Asked { turn: String },
    /// It has the answer.
    Answered { turn: String },
    /// The answer is the last, and is this text.
    Said { text: String },
    /// A tool began with a call.
    Started { tool: String, key: String },
    /// It has done its work.
    Ended { tool: String },
    /// The store has said that it keeps the answer of a turn or the result of a tool.
    Kept { what: String },
    /// A point was passed by a worker that nobody kills.
    Passed { point: String },
    /// The worker is to be killed here.
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

    /// Adds a note, which is on the disk from then on.
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
