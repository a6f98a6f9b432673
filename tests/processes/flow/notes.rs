//! Records of a worker's actions outside the store, and the points at which the worker can be killed.

use crate::flow::lives::{KILL_ME, Life, say};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Mutex;

/// An event, in the order of the file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Note {
    /// The tool call of a step started, with its idempotency key.
    Began { step: String, key: String },
    /// The tool call of a step ended.
    Ended { step: String },
    /// The store confirmed that it has saved the result of a step.
    Kept { step: String },
    /// A worker without a planned kill passed this number of points.
    Passed { points: usize },
    /// The worker waits here to be killed.
    Dies,
}

#[derive(Debug)]
pub(crate) struct Notes {
    file: File,
    death: Option<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    points: usize,
    /// The ended steps that are not yet known to be saved.
    ended: BTreeSet<String>,
}

impl Notes {
    pub(crate) fn open(life: &Life) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(life.folder.join("notes"));
        Self {
            file: file.unwrap(),
            death: life.death,
            state: Mutex::default(),
        }
    }

    /// Adds a note and flushes it to the disk.
    pub(crate) fn note(&self, note: &Note) {
        if let Note::Ended { step } = note {
            self.state.lock().unwrap().ended.insert(step.clone());
        }
        let mut line = serde_json::to_vec(note).unwrap();
        line.push(b'\n');
        (&self.file).write_all(&line).unwrap();
        self.file.sync_data().unwrap();
    }

    /// Passes a point, at which the worker may be killed.
    pub(crate) fn pass(&self) {
        self.pass_after(|| ());
    }

    /// Passes a point. `last` runs immediately before a kill.
    pub(crate) fn pass_after(&self, last: impl FnOnce()) {
        let points = {
            let mut state = self.state.lock().unwrap();
            state.points += 1;
            state.points
        };
        if self.death == Some(points) {
            last();
            self.note(&Note::Dies);
            say(KILL_ME);
            // The process stops here, except the store's threads. Nothing is ever written to standard input, so the read returns only
            // if the parent process has ended.
            drop(std::io::stdin().read(&mut [0]));
            std::process::exit(1);
        }
    }

    /// Returns the ended steps that the next call to the store saves.
    pub(crate) fn ended(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().ended.clone()
    }

    /// Records that the store has saved these steps.
    pub(crate) fn keep(&self, steps: BTreeSet<String>) {
        for step in steps {
            self.state.lock().unwrap().ended.remove(&step);
            self.note(&Note::Kept { step });
        }
    }

    pub(crate) fn end(&self) {
        let points = self.state.lock().unwrap().points;
        self.note(&Note::Passed { points });
    }

    pub(crate) fn read(folder: &Path) -> Vec<Note> {
        let text = fs::read_to_string(folder.join("notes")).unwrap();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}
