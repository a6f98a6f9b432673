//! Records of executions by the executors themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use universal_executor::BreadcrumbId;

/// A file that only grows, so that a kill removes no line.
#[derive(Debug)]
pub(super) struct Oracle {
    path: PathBuf,
    file: File,
}

/// Number of executions of each question, and the open executions of each process.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) executions: BTreeMap<String, usize>,
    pub(super) busy: BTreeMap<u32, BTreeSet<String>>,
}

impl Oracle {
    pub(super) fn at(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(path).unwrap();
        Self {
            path: path.to_owned(),
            file,
        }
    }

    /// Records the start of an execution.
    pub(super) fn begins(&self, question: BreadcrumbId) {
        self.note("begins", question);
    }

    /// Records the end of an execution.
    pub(super) fn ends(&self, question: BreadcrumbId) {
        self.note("ends", question);
    }

    fn note(&self, what: &str, question: BreadcrumbId) {
        // A single write, which the kernel appends as a whole.
        let line = format!("{what} {question} {}\n", std::process::id());
        (&self.file).write_all(line.as_bytes()).unwrap();
    }

    pub(super) fn read(&self) -> Noted {
        let mut noted = Noted::default();
        for line in fs::read_to_string(&self.path).unwrap().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (question, process) = (words[1].to_owned(), words[2].parse().unwrap());
            let busy = noted.busy.entry(process).or_default();
            match words[0] {
                "begins" => {
                    busy.insert(question.clone());
                    *noted.executions.entry(question).or_default() += 1;
                }
                _ => {
                    busy.remove(&question);
                }
            }
        }
        noted
    }
}
