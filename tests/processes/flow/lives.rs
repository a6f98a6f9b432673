//! The consecutive processes of a run, as the parent process sees them, for flows and sessions.

use crate::child::run_alone;
use crate::flow::notes::{Note, Notes};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use universal_executor::SqliteStore;
use universal_executor::store::Durability;

pub(crate) const ENVIRONMENT: &str = "UNIVERSAL_EXECUTOR_LIFE";
/// The line that a worker prints when it must be killed.
pub(crate) const KILL_ME: &str = "kill me now";

/// Clock advance per life. It is longer than a lease, so that no life waits for the leases of earlier lives.
const LIFE: Duration = Duration::from_secs(60);

/// The parameters of a worker process.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Life {
    pub(crate) folder: PathBuf,
    /// Number of earlier lives.
    pub(crate) number: u32,
    /// The number of the point at which the process is killed, or `None` to let it finish.
    pub(crate) death: Option<usize>,
}

/// A finished run.
#[derive(Debug)]
pub(crate) struct Lived {
    pub(crate) folder: PathBuf,
    pub(crate) kills: usize,
    pub(crate) notes: Vec<Note>,
}

impl Lived {
    /// Returns the number of points that the last process passed.
    pub(crate) fn points(&self) -> usize {
        let mut notes = self.notes.iter();
        let passed = notes.find_map(|note| match note {
            Note::Passed { points } => Some(*points),
            Note::Began { .. } | Note::Ended { .. } | Note::Kept { .. } | Note::Dies => None,
        });
        passed.unwrap()
    }
}

/// Calls `begin` on a new store, and starts one worker after another until one finishes. Each of the first workers is killed at
/// its point in `deaths`, if it reaches that point.
///
/// `worker` is the test path of the worker process.
pub(crate) fn live(
    worker: &str,
    folder: &Path,
    deaths: &[usize],
    begin: &impl AsyncFn(&SqliteStore),
) -> Lived {
    fs::create_dir_all(folder).unwrap();
    wait_for(async {
        let store = open(folder, 0).await;
        begin(&store).await;
        store.close().await;
    });
    let mut number = 0;
    loop {
        let death = deaths.get(number).copied();
        let life = Life {
            folder: folder.to_owned(),
            number: u32::try_from(number).unwrap(),
            death,
        };
        if !is_killed(worker, &life) {
            return Lived {
                folder: folder.to_owned(),
                kills: number,
                notes: Notes::read(folder),
            };
        }
        number += 1;
    }
}

/// Starts a worker and kills it on its request. Returns `true` if it was killed.
fn is_killed(worker: &str, life: &Life) -> bool {
    let mut child = run_alone(worker)
        .env(ENVIRONMENT, serde_json::to_string(life).unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        if line.unwrap().contains(KILL_ME) {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{life:?} ended with {status}");
    false
}

/// Opens the store of a run for one of its lives.
pub(crate) async fn open(folder: &Path, life: u32) -> SqliteStore {
    let file = SqliteStore::builder(folder.join("store.db")).durability(Durability::Normal);
    let store = file
        .poll_every(Duration::from_millis(10))
        .open()
        .await
        .unwrap();
    store.advance_clock(LIFE * life);
    store
}

pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(future)
}

/// Prints a line to standard output, without capture by the test harness.
pub(crate) fn say(what: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{what}").unwrap();
}
