//! What a worker does, noted outside of the store; and the points at which it can be killed.

use crate::flow::lives::{KILL_ME, Life, say};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Mutex;

/// Something that happened, in the order of the file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Note {
    /// The tool of a step was called, under a key.
    Began { step: String, key: String },
    /// It has done its work.
    Ended { step: String },
    /// The store has said that it keeps this.
    Kept { step: String },
    /// So many points were passed by a worker that nobody kills.
    Passed { points: usize },
    /// The worker is to be killed here.
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
    /// What has ended and is not known to be kept.
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

    /// Adds a note, which is on the disk from then on.
    pub(crate) fn note(&self, note: &Note) {
        if let Note::Ended { step } = note {
            self.state.lock().unwrap().ended.insert(step.clone());
        }
        let mut line = serde_json::to_vec(note).unwrap();
        line.push(b'\n');
        (&self.file).write_all(&line).unwrap();
        self.file.sync_data().unwrap();
    }

    /// Comes past a point, at which the worker may be killed.
    pub(crate) fn pass(&self) {
        self.pass_after(|| ());
    }

    /// Comes past a point, at which something is done before a kill.
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
            // All of the process stands still, but for the threads of the store. Nothing ever comes in: this ends early
            // only if whoever should kill it is gone.
            drop(std::io::stdin().read(&mut [0]));
            std::process::exit(1);
        }
    }

    /// What has ended, to be kept by what begins now.
    pub(crate) fn ended(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().ended.clone()
    }

    /// The store has said that it keeps these.
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
