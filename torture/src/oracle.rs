//! Oracle: a file to which every process appends lines about its actions. A kill cannot undo a line, and the order of the lines
//! is the order of the actions, independent of clocks.

use crate::BoxError;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use universal_executor::Breadcrumb;
use universal_executor::model::BreadcrumbId;

/// One line of the oracle.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Record {
    /// The store accepted a trigger.
    Accepted(Accepted),
    /// The write of a trigger returned an error, so its outcome is unknown.
    Unclear {
        /// Number of the trigger.
        n: u64,
        /// Requested job.
        job: Job,
    },
    /// `execute` starts.
    Started(Attempt),
    /// `execute` returned or panicked.
    Ended(Attempt),
    /// `execute` was dropped before it returned.
    Dropped(Attempt),
    /// An effect that must happen at most once.
    Effect {
        /// Trigger of the run.
        trigger: Trigger,
    },
    /// A payment was made.
    Paid {
        /// Number of the trigger.
        n: u64,
    },
    /// A worker is about to kill or pause itself at a point.
    AtPoint {
        /// Name of the point.
        point: String,
        /// Process ID of the worker.
        pid: u32,
    },
    /// A worker process started.
    Spawned {
        /// Name of the worker.
        slot: String,
        /// Process ID of the worker.
        pid: u32,
    },
    /// A worker was killed at a random moment.
    Killed {
        /// Process ID of the worker.
        pid: u32,
    },
    /// A worker was paused with SIGSTOP.
    Stopped {
        /// Process ID of the worker.
        pid: u32,
    },
    /// A paused worker continues.
    Continued {
        /// Process ID of the worker.
        pid: u32,
    },
    /// A worker receives SIGTERM.
    Told {
        /// Process ID of the worker.
        pid: u32,
    },
    /// A worker exited for another reason than a kill at a random moment.
    Gone {
        /// Process ID of the worker.
        pid: u32,
        /// Exit code. `None` after a signal.
        code: Option<i32>,
        /// Time from SIGTERM to the exit, in milliseconds. `None` without SIGTERM.
        took: Option<u64>,
    },
    /// Another process locked the store, or its server is down.
    Locked,
    /// The store is available again.
    Unlocked,
    /// A fault of a server, a connection or the clock was injected.
    Harmed(Harm),
    /// A trigger was written for another tenant.
    Canary,
    /// An executor saw data of another tenant.
    Leaked {
        /// Executor ID.
        executor: String,
        /// Trigger of the run.
        trigger: Trigger,
    },
    /// Maximum number of received but unacknowledged deliveries of a worker.
    Inbox {
        /// Process ID of the worker.
        pid: u32,
        /// Number of deliveries.
        most: u64,
    },
}

/// A fault of a server, of the connections to it, or of the clock.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(tag = "harm", rename_all = "snake_case")]
pub enum Harm {
    /// PostgreSQL crashed and was started again.
    PostgresRestarted,
    /// NATS was killed and started again.
    NatsRestarted,
    /// The NATS stream was deleted.
    StreamDeleted,
    /// The answer to a completed commit or claim was lost.
    AnswerLost,
    /// All connections to PostgreSQL were cut.
    Cut,
    /// All connections to PostgreSQL were slow for some time.
    Slow,
    /// The clock of the store was set back, or jumped ahead.
    ClockJumped,
}

impl Harm {
    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PostgresRestarted => "postgres_restarted",
            Self::NatsRestarted => "nats_restarted",
            Self::StreamDeleted => "stream_deleted",
            Self::AnswerLost => "answer_of_commit_lost",
            Self::Cut => "connections_cut",
            Self::Slow => "connections_slow",
            Self::ClockJumped => "clock_jumped",
        }
    }
}

/// A trigger version.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Trigger {
    /// ID of the breadcrumb.
    pub id: BreadcrumbId,
    /// Version of the breadcrumb.
    pub version: u64,
}

impl Trigger {
    /// Returns ID and version of a breadcrumb.
    pub fn of(breadcrumb: &Breadcrumb) -> Self {
        Self {
            id: breadcrumb.id,
            version: breadcrumb.version,
        }
    }
}

/// A trigger that the store has accepted.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Accepted {
    /// Number of the trigger.
    pub n: u64,
    /// ID and version in the store.
    pub trigger: Trigger,
    /// Requested job.
    pub job: Job,
}

/// Job that a trigger requests, which decides the expected outcome of its run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// An answer.
    Plain,
    /// An answer that takes longer than a heartbeat interval.
    Long,
    /// An answer of two breadcrumbs.
    Two,
    /// An answer, after a transient error.
    Flaky,
    /// An answer, after a panic.
    Panics,
    /// An answer, after an attempt that exceeds the timeout.
    Hangs,
    /// An answer, after a question to the helper and a durable wait for the reply.
    Asks,
    /// A dead letter, because of a permanent error.
    Refused,
    /// A dead letter, because each execution aborts the worker.
    Poison,
    /// An answer or a dead letter, but never a second attempt.
    Once,
    /// An endless chain, in which every answer is a trigger: it ends at the hop limit with a dead letter.
    Loop,
    /// A payment that a person approves.
    Approved,
    /// No payment: the question to the person is changed before the person approves it.
    Forged,
}

impl Job {
    /// Returns the schema of the job's triggers.
    pub const fn schema(self) -> &'static str {
        match self {
            Self::Plain
            | Self::Long
            | Self::Two
            | Self::Flaky
            | Self::Panics
            | Self::Hangs
            | Self::Asks
            | Self::Refused
            | Self::Poison => "job.v1",
            Self::Once => "page.v1",
            Self::Loop => "loop.v1",
            Self::Approved | Self::Forged => "payment.v1",
        }
    }
}

/// One attempt of a run.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Attempt {
    /// Executor ID.
    pub executor: String,
    /// Trigger of the run.
    pub trigger: Trigger,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// ID of the process.
    pub pid: u32,
}

/// The oracle file, open for appending.
#[derive(Debug)]
pub struct Oracle(File);

impl Oracle {
    const FILE: &'static str = "oracle.jsonl";

    /// Opens the file in a folder, and creates it if it is missing.
    pub fn open(folder: &Path) -> Result<Self, BoxError> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join(Self::FILE))?;
        Ok(Self(file))
    }

    /// Appends a line in one write, so that lines of several processes do not mix. A process that is killed during the write
    /// leaves the first part of the line, so each write starts with a line break.
    pub fn note(&self, record: &Record) -> Result<(), BoxError> {
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, record)?;
        line.push(b'\n');
        Ok((&self.0).write_all(&line)?)
    }

    /// Follows the file from its start.
    pub fn follow(folder: &Path) -> Result<Follow, BoxError> {
        Ok(Follow {
            file: File::open(folder.join(Self::FILE))?,
            line: Vec::new(),
            started: HashSet::new(),
            executing: HashMap::new(),
        })
    }

    /// Reads all records, in order.
    pub fn read(folder: &Path) -> Result<Vec<Record>, BoxError> {
        let text = std::fs::read_to_string(folder.join(Self::FILE))?;
        let records = text.lines().map(|line| record(line.as_bytes()));
        let records: Vec<_> = records.collect::<Result<_, _>>()?;
        Ok(records.into_iter().flatten().collect())
    }
}

/// Parses a line. Returns `None` for an empty line, and for an incomplete line of a process that was killed during the write.
fn record(line: &[u8]) -> serde_json::Result<Option<Record>> {
    match serde_json::from_slice(line) {
        Ok(record) => Ok(Some(record)),
        Err(error) if error.is_eof() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Processes that have started to execute, and their running attempts, read from the growing file.
#[derive(Debug)]
pub struct Follow {
    file: File,
    /// The incomplete last line.
    line: Vec<u8>,
    started: HashSet<u32>,
    executing: HashMap<u32, u32>,
}

impl Follow {
    /// Returns `true` if a process has started an execution.
    pub fn has_started(&mut self, pid: u32) -> Result<bool, BoxError> {
        self.read_on()?;
        Ok(self.started.contains(&pid))
    }

    /// Returns `true` if a process executes now.
    pub fn is_at_work(&mut self, pid: u32) -> Result<bool, BoxError> {
        self.read_on()?;
        Ok(self.executing.get(&pid).is_some_and(|open| *open > 0))
    }

    fn read_on(&mut self) -> Result<(), BoxError> {
        let mut more = Vec::new();
        self.file.read_to_end(&mut more)?;
        for part in more.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if !self.line.ends_with(b"\n") {
                continue;
            }
            match record(&self.line)? {
                Some(Record::Started(attempt)) => {
                    self.started.insert(attempt.pid);
                    *self.executing.entry(attempt.pid).or_default() += 1;
                }
                Some(Record::Ended(attempt) | Record::Dropped(attempt)) => {
                    let open = self.executing.entry(attempt.pid).or_default();
                    *open = open.saturating_sub(1);
                }
                _ => {}
            }
            self.line.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_line_truncated_by_a_kill_is_skipped_alone() {
        let folder = std::env::temp_dir().join(format!("torture-oracle-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let oracle = Oracle::open(&folder).unwrap();
        oracle.note(&Record::Told { pid: 1 }).unwrap();
        (&oracle.0).write_all(b"\n{\"what\":\"told\",\"pi").unwrap();
        oracle.note(&Record::Told { pid: 3 }).unwrap();

        let read = Oracle::read(&folder).unwrap();
        (&oracle.0).write_all(b"\n{\"what\":\"new\"}\n").unwrap();
        let foreign = Oracle::read(&folder);
        std::fs::remove_dir_all(&folder).unwrap();

        assert_eq!(read, [Record::Told { pid: 1 }, Record::Told { pid: 3 }]);
        assert!(foreign.is_err());
    }
}
