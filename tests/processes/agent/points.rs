//! The points at which a worker can be killed, and the data that it knows to be saved.

use crate::agent::lives::{KILL_ME, Life, say};
use crate::agent::note::{Note, Notes};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::Mutex;
use tokio::sync::watch;

/// The points that a worker has passed, and the point at which it stops.
#[derive(Debug)]
pub(crate) struct Points {
    notes: Notes,
    /// The point at which this life is killed. A life without such a point records all points that it passes.
    death: Option<String>,
    /// Number of starts of each step in this life.
    counts: Mutex<BTreeMap<String, usize>>,
    /// The answered turns and ended tools that are not yet known to be saved.
    ended: Mutex<BTreeSet<String>>,
    started: Mutex<BTreeSet<String>>,
    kept: watch::Sender<BTreeSet<String>>,
}

/// A step of a worker with a unique name in this life.
#[derive(Debug)]
pub(crate) struct Step<'p> {
    points: &'p Points,
    name: String,
}

impl Points {
    pub(crate) fn new(life: &Life) -> Self {
        Self {
            notes: Notes::open(&life.folder),
            death: life.death.clone(),
            counts: Mutex::default(),
            ended: Mutex::default(),
            started: Mutex::default(),
            kept: watch::Sender::default(),
        }
    }

    pub(crate) fn note(&self, note: &Note) {
        match note {
            Note::Started { tool, .. } => {
                self.started.lock().unwrap().insert(tool.clone());
            }
            Note::Answered { turn: what } | Note::Ended { tool: what } => {
                self.ended.lock().unwrap().insert(what.clone());
            }
            Note::Asked { .. }
            | Note::Said { .. }
            | Note::Kept { .. }
            | Note::Passed { .. }
            | Note::Dies { .. } => {}
        }
        self.notes.write(note);
    }

    pub(crate) fn step(&self, of: &str) -> Step<'_> {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(of.to_owned()).or_default();
        *count += 1;
        let name = format!("{of} {count}");
        Step { points: self, name }
    }

    /// Returns the ended turns and tools that are not yet known to be saved.
    pub(crate) fn ended(&self) -> BTreeSet<String> {
        self.ended.lock().unwrap().clone()
    }

    /// Records that the store has saved these turns and tools.
    pub(crate) fn keep(&self, these: BTreeSet<String>) {
        for what in these {
            self.ended.lock().unwrap().remove(&what);
            self.note(&Note::Kept { what: what.clone() });
            self.kept.send_if_modified(|kept| kept.insert(what));
        }
    }

    /// Waits until the result of a tool is saved, if this process started the tool.
    pub(crate) async fn is_kept(&self, tool: &str) {
        if self.started.lock().unwrap().contains(tool) {
            let mut kept = self.kept.subscribe();
            kept.wait_for(|kept| kept.contains(tool)).await.unwrap();
        }
    }
}

impl Step<'_> {
    /// Reaches a moment of the step, at which the worker may be killed.
    pub(crate) fn reach(&self, moment: &str) {
        self.reach_after(moment, || ());
    }

    /// Reaches a moment of the step. `last` runs immediately before a kill.
    pub(crate) fn reach_after(&self, moment: &str, last: impl FnOnce()) {
        let point = format!("{} {moment}", self.name);
        let Points { notes, death, .. } = self.points;
        if death.is_none() {
            notes.write(&Note::Passed {
                point: point.clone(),
            });
        }
        if death.as_ref() == Some(&point) {
            last();
            notes.write(&Note::Dies { point });
            say(KILL_ME);
            // The process stops here, except the store's threads. Nothing is ever written to standard input, so the read returns only
            // if the parent process has ended.
            drop(std::io::stdin().read(&mut [0]));
            std::process::exit(1);
        }
    }
}
