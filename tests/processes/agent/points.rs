//! The points at which a worker can be killed, and what it knows to be kept.

use crate::agent::lives::{KILL_ME, Life, say};
use crate::agent::note::{Note, Notes};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::Mutex;
use tokio::sync::watch;

/// What a worker has come past, and at which point it stops.
#[derive(Debug)]
pub(crate) struct Points {
    notes: Notes,
    /// Where this life ends. One that does not end early notes all points that it passes.
    death: Option<String>,
    /// How often each step was begun in this life.
    counts: Mutex<BTreeMap<String, usize>>,
    /// The turns that were answered and the tools that have ended, and of which nobody knows that they are kept.
    ended: Mutex<BTreeSet<String>>,
    started: Mutex<BTreeSet<String>>,
    kept: watch::Sender<BTreeSet<String>>,
}

/// A step of a worker, named as no other of this life.
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

    /// What has ended and is not known to be kept.
    pub(crate) fn ended(&self) -> BTreeSet<String> {
        self.ended.lock().unwrap().clone()
    }

    /// The store has said that it keeps these.
    pub(crate) fn keep(&self, these: BTreeSet<String>) {
        for what in these {
            self.ended.lock().unwrap().remove(&what);
            self.note(&Note::Kept { what: what.clone() });
            self.kept.send_if_modified(|kept| kept.insert(what));
        }
    }

    /// Waits until the result of a tool is kept, if this process has started it.
    pub(crate) async fn is_kept(&self, tool: &str) {
        if self.started.lock().unwrap().contains(tool) {
            let mut kept = self.kept.subscribe();
            kept.wait_for(|kept| kept.contains(tool)).await.unwrap();
        }
    }
}

impl Step<'_> {
    /// Comes to a moment of the step.
    pub(crate) fn reach(&self, moment: &str) {
        self.reach_after(moment, || ());
    }

    /// Comes to a moment of the step that has something done before a kill.
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
            // All of the process stands still, but for the threads of the store. Nothing ever comes in: this ends early
            // only if whoever should kill it is gone.
            drop(std::io::stdin().read(&mut [0]));
            std::process::exit(1);
        }
    }
}
