//! What happened, by those to whom it happened: a file that every process appends a line to, and that no kill takes
//! back. The order of its lines is the order of events, whatever clocks say.

use crate::BoxError;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use universal_executor::Breadcrumb;
use universal_executor::model::BreadcrumbId;

/// One line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Record {
    /// The store said that a trigger is kept.
    Accepted(Accepted),
    /// The store gave no clear answer about a trigger.
    Unclear {
        /// Its number.
        n: u64,
        /// What it asks for.
        job: Job,
    },
    /// `execute` begins.
    Started(Attempt),
    /// `execute` is over in a process that lives: it returned, or panicked.
    Ended(Attempt),
    /// `execute` was dropped before it was over, in a process that lives.
    Dropped(Attempt),
    /// Something that must not happen twice.
    Effect {
        /// The trigger it happened for.
        trigger: Trigger,
    },
    /// A payment was made.
    Paid {
        /// The number of its trigger.
        n: u64,
    },
    /// A worker does itself what was asked for at a point.
    AtPoint {
        /// The name of the point.
        point: String,
        /// Who.
        pid: u32,
    },
    /// A worker begins.
    Spawned {
        /// Which of them.
        slot: String,
        /// Its process.
        pid: u32,
    },
    /// A worker was killed at a random moment, and is gone.
    Killed {
        /// Its process.
        pid: u32,
    },
    /// A worker was stopped.
    Stopped {
        /// Its process.
        pid: u32,
    },
    /// A worker that was stopped may go on.
    Continued {
        /// Its process.
        pid: u32,
    },
    /// A worker was told to end.
    Told {
        /// Its process.
        pid: u32,
    },
    /// A worker that was not killed at random is gone.
    Gone {
        /// Its process.
        pid: u32,
        /// Its exit code, if it was not a signal.
        code: Option<i32>,
        /// How long it took after it was told, in milliseconds.
        took: Option<u64>,
    },
    /// The store is locked by somebody else, or its server is down.
    Locked,
    /// It is free again.
    Unlocked,
    /// Harm was done to a server, or on the way to it.
    Harmed(Harm),
    /// A trigger was written for another tenant.
    Canary,
    /// A worker saw something of another tenant.
    Leaked {
        /// The executor.
        executor: String,
        /// What triggered it.
        trigger: Trigger,
    },
    /// How many deliveries a worker has taken in at the most without having acknowledged them.
    Inbox {
        /// Who.
        pid: u32,
        /// How many.
        most: u64,
    },
}

/// What is done to servers, and on the way to them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(tag = "harm", rename_all = "snake_case")]
pub enum Harm {
    /// PostgreSQL ended as in a crash, and was started again.
    PostgresRestarted,
    /// NATS was killed, and started again.
    NatsRestarted,
    /// The stream of NATS was deleted.
    StreamDeleted,
    /// A commit was done, and its answer never arrived.
    AnswerLost,
    /// All connections to PostgreSQL were cut.
    Cut,
    /// All connections to PostgreSQL were slow for a while.
    Slow,
    /// The clock of the store was set back, or jumped ahead.
    ClockJumped,
}

impl Harm {
    /// What it is called in reports.
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

/// A version of a trigger.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Trigger {
    /// The breadcrumb.
    pub id: BreadcrumbId,
    /// Its version.
    pub version: u64,
}

impl Trigger {
    /// Returns the trigger that a breadcrumb is.
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
    /// Its number.
    pub n: u64,
    /// What it is in the store.
    pub trigger: Trigger,
    /// What it asks for.
    pub job: Job,
}

/// What a trigger asks for, and so what must become of it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// An answer.
    Plain,
    /// An answer after longer than a heartbeat.
    Long,
    /// An answer of two breadcrumbs.
    Two,
    /// An answer, after an error that passes.
    Flaky,
    /// An answer, after a panic.
    Panics,
    /// An answer, after an attempt that takes too long.
    Hangs,
    /// An answer, after asking somebody else and waiting for it durably.
    Asks,
    /// A dead letter, since it is refused.
    Refused,
    /// A dead letter, since it takes every worker down with it.
    Poison,
    /// An answer or a dead letter, but never a second attempt.
    Once,
    /// Sixteen answers and a dead letter, since every answer is a trigger again.
    Loop,
    /// A payment that a person approves.
    Approved,
    /// No payment: the question to the person is changed before the person approves it.
    Forged,
}

impl Job {
    /// The schema of its triggers.
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

/// One attempt of an executor at a trigger.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Attempt {
    /// The executor.
    pub executor: String,
    /// What triggered it.
    pub trigger: Trigger,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The process.
    pub pid: u32,
}

/// The file, to be appended to.
#[derive(Debug)]
pub struct Oracle(File);

impl Oracle {
    const FILE: &'static str = "oracle.jsonl";

    /// Opens or makes the file in a folder.
    pub fn open(folder: &Path) -> Result<Self, BoxError> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join(Self::FILE))?;
        Ok(Self(file))
    }

    /// Appends a line, in one write: lines of several processes do not mix, and one that is written stays. A process that
    /// is killed in the middle of it leaves the first part, so each begins with the end of the one before.
    pub fn note(&self, record: &Record) -> Result<(), BoxError> {
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, record)?;
        line.push(b'\n');
        Ok((&self.0).write_all(&line)?)
    }

    /// Follows the file from its beginning.
    pub fn follow(folder: &Path) -> Result<Follow, BoxError> {
        Ok(Follow {
            file: File::open(folder.join(Self::FILE))?,
            line: Vec::new(),
            begun: HashSet::new(),
            executing: HashMap::new(),
        })
    }

    /// All lines, in order.
    pub fn read(folder: &Path) -> Result<Vec<Record>, BoxError> {
        let text = std::fs::read_to_string(folder.join(Self::FILE))?;
        let records = text.lines().map(|line| record(line.as_bytes()));
        let records: Vec<_> = records.collect::<Result<_, _>>()?;
        Ok(records.into_iter().flatten().collect())
    }
}

/// The record of a line. None if there is none, or only the first part: who wrote it was killed, and did nothing after it.
fn record(line: &[u8]) -> serde_json::Result<Option<Record>> {
    match serde_json::from_slice(line) {
        Ok(record) => Ok(Some(record)),
        Err(error) if error.is_eof() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who has begun to execute something so far, and who is at something now.
#[derive(Debug)]
pub struct Follow {
    file: File,
    /// The line that is not whole yet.
    line: Vec<u8>,
    begun: HashSet<u32>,
    executing: HashMap<u32, u32>,
}

impl Follow {
    /// Whether a process has begun to execute something.
    pub fn has_begun(&mut self, pid: u32) -> Result<bool, BoxError> {
        self.read_on()?;
        Ok(self.begun.contains(&pid))
    }

    /// Whether a process executes something now.
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
                    self.begun.insert(attempt.pid);
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
    fn a_line_that_a_kill_cut_short_is_left_out_and_takes_no_other_with_it() {
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
