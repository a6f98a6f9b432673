//! The consecutive processes of a run, as the parent process sees them.

use crate::agent::WORKER;
use crate::agent::note::{Note, Notes};
use crate::agent::{ToolMode, database};
use crate::child::run_alone;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use universal_executor::store::Durability;
use universal_executor::{BreadcrumbStoreExt as _, NewBreadcrumb, SqliteStore};

pub(crate) const ENVIRONMENT: &str = "UNIVERSAL_EXECUTOR_KILL";
/// The line that a worker prints when it must be killed, and the line that it prints when a person has a question.
pub(crate) const KILL_ME: &str = "kill me now";
pub(crate) const ASKED: &str = "a person is asked";

/// Clock advance per life. It is longer than a lease, so that no life waits for the leases of earlier lives.
const LIFE: Duration = Duration::from_secs(60);
/// Interval at which a process polls for the commits of another process.
const LOOKS: Duration = Duration::from_millis(10);

/// The parameters of a worker process.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Life {
    pub(crate) folder: PathBuf,
    /// Number of earlier lives.
    pub(crate) number: u32,
    pub(crate) tool_mode: ToolMode,
    /// The point at which the process is killed, or `None` to let it finish.
    pub(crate) death: Option<String>,
}

/// A finished run.
#[derive(Debug)]
pub(crate) struct Lived {
    pub(crate) folder: PathBuf,
    pub(crate) deaths: Vec<String>,
    pub(crate) kills: usize,
    pub(crate) notes: Vec<Note>,
}

impl Lived {
    /// Returns the points that the last process passed.
    pub(crate) fn points(&self) -> Vec<String> {
        let mut points = Vec::new();
        for note in &self.notes {
            match note {
                Note::Passed { point } => points.push(point.clone()),
                Note::Dies { .. } => points.clear(),
                Note::Asked { .. }
                | Note::Answered { .. }
                | Note::Said { .. }
                | Note::Started { .. }
                | Note::Ended { .. }
                | Note::Kept { .. } => {}
            }
        }
        points
    }

    /// Returns the number of model requests.
    pub(crate) fn asked(&self) -> usize {
        let notes = self.notes.iter();
        notes
            .filter(|note| matches!(note, Note::Asked { .. }))
            .count()
    }

    /// Returns the number of tool calls.
    pub(crate) fn started(&self) -> usize {
        let notes = self.notes.iter();
        notes
            .filter(|note| matches!(note, Note::Started { .. }))
            .count()
    }
}

/// Asks the question, and starts one worker after another until one finishes. Each of the first workers is killed at its point
/// in `deaths`.
pub(crate) fn live(folder: &Path, tool_mode: ToolMode, deaths: &[String]) -> Lived {
    fs::create_dir_all(folder).unwrap();
    wait_for(async {
        let store = open(folder, 0).await;
        let question = NewBreadcrumb::new("question.v1").tag("request:q-1");
        store
            .create(question.context(json!({"q": 1})))
            .await
            .unwrap();
        store.close().await;
    });
    let mut number = 0;
    loop {
        let death = deaths.get(number).cloned();
        let is_killed = is_killed(&Life {
            folder: folder.to_owned(),
            number: u32::try_from(number).unwrap(),
            tool_mode,
            death,
        });
        if !is_killed {
            return Lived {
                folder: folder.to_owned(),
                deaths: deaths.to_vec(),
                kills: number,
                notes: Notes::read(folder),
            };
        }
        number += 1;
    }
}

/// Starts a worker, kills it on its request, and answers its question to a person. Returns `true` if the worker was killed.
fn is_killed(life: &Life) -> bool {
    let mut child = run_alone(WORKER)
        .env(ENVIRONMENT, serde_json::to_string(life).unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines {
        let line = line.unwrap();
        if line.contains(ASKED) {
            wait_for(agree(life));
        }
        if line.contains(KILL_ME) {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{life:?} ended with {status}");
    false
}

/// Writes a person's approval.
async fn agree(life: &Life) {
    let store = open(&life.folder, life.number).await;
    let asked = store.latest("human.request.v1").await.unwrap().unwrap();
    let id = asked.context.text("requestId").unwrap();
    let agrees = NewBreadcrumb::new("human.response.v1")
        .tag(format!("request:{id}"))
        .created_by("ann")
        .context(json!({"request_id": id, "approved": true}));
    store.create(agrees).await.unwrap();
    store.close().await;
}

/// Opens the store of a run for one of its lives.
pub(crate) async fn open(folder: &Path, life: u32) -> SqliteStore {
    let file = SqliteStore::builder(database(folder)).durability(Durability::Normal);
    let store = file.poll_every(LOOKS).open().await.unwrap();
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
