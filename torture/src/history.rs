//! What the lines of the oracle say, put in order.

use crate::oracle::{Accepted, Attempt, Harm, Job, Record, Trigger};
use std::collections::{BTreeMap, HashMap, HashSet};

/// An attempt: from its first line to its last, if the process lived to write it.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The line with which it began.
    pub begun: usize,
    /// The line with which it ended.
    pub ended: Option<usize>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// Killed at a random moment, with so many attempts under way.
    Killed {
        /// Attempts under way.
        executing: usize,
        /// Whether the store was out of reach, so that there was little to be under way.
        locked_out: bool,
    },
    /// It killed itself at a point.
    AtPoint,
    /// It was told to, with this exit code, after so many milliseconds.
    Told {
        /// Its exit code.
        code: Option<i32>,
        /// How long it took.
        took: u64,
        /// Attempts of which the end was not noted.
        executing: usize,
        /// Whether another process had the store locked meanwhile, or its server was down, so that it could not so much
        /// as open it.
        locked_out: bool,
    },
    /// It ended by itself.
    ByItself,
}

/// The history of a campaign.
#[derive(Debug, Default)]
pub struct History {
    /// Accepted triggers.
    pub accepted: BTreeMap<Trigger, Accepted>,
    /// How many of each kind the store gave no clear answer about. They may be kept, as triggers that nobody knows.
    pub unclear: HashMap<Job, usize>,
    /// Every attempt.
    pub attempts: HashMap<Attempt, Vec<Span>>,
    /// How often each trigger had an effect that must happen at most once.
    pub effects: HashMap<Trigger, u32>,
    /// How often each payment was made, by the number of its trigger.
    pub paid: HashMap<u64, u32>,
    /// How each process ended.
    pub ends: BTreeMap<u32, End>,
    /// How often each point was reached.
    pub points: BTreeMap<String, u32>,
    /// How often a process was stopped, and how often that left attempts that another worker then made as well.
    pub stops: u32,
    /// Runs that a stopped process was at, and that another one began after it was stopped.
    pub overtaken: u32,
    /// The lines at which attempts ended.
    pub answered_at: Vec<usize>,
    /// Attempts that began while another process, alive and not stopped, was at the same run.
    pub stolen: Vec<Attempt>,
    /// Attempts that were dropped by workers that had been told to end.
    pub dropped_at_end: Vec<Attempt>,
    /// The most deliveries that a worker had taken in without acknowledging them.
    pub inbox: u64,
    /// Processes.
    pub spawned: HashSet<u32>,
    /// How often the store was locked, or its server down.
    pub locks: u32,
    /// What was done to servers, and on the way to them, and how often.
    pub harms: BTreeMap<Harm, u64>,
    /// Triggers of another tenant.
    pub canaries: u64,
    /// Executors that saw something of it, and the triggers that had them see it.
    pub leaks: Vec<(String, Trigger)>,
}

/// What is known while the lines are read.
#[derive(Default)]
struct Reading {
    history: History,
    open: HashMap<u32, HashSet<Attempt>>,
    stopped: HashMap<u32, HashSet<(String, Trigger)>>,
    /// Those that stood still at some time, and may be behind with their leases.
    paused: HashSet<u32>,
    traps: HashSet<u32>,
    told: HashSet<u32>,
    /// Those of them that found the store locked.
    locked_out: HashSet<u32>,
    is_locked: bool,
}

impl History {
    /// Reads the lines in order.
    pub fn of(records: &[Record]) -> Self {
        let mut reading = Reading::default();
        for (line, record) in records.iter().enumerate() {
            reading.read(line, record);
        }
        reading.history
    }

    /// What a trigger asks for.
    pub fn job(&self, trigger: Trigger) -> Option<Job> {
        self.accepted.get(&trigger).map(|accepted| accepted.job)
    }

    /// Counts what is only counted.
    fn count(&mut self, record: &Record) {
        match record {
            Record::Harmed(harm) => *self.harms.entry(*harm).or_default() += 1,
            Record::Canary => self.canaries += 1,
            Record::Leaked { executor, trigger } => self.leaks.push((executor.clone(), *trigger)),
            Record::Paid { n } => *self.paid.entry(*n).or_default() += 1,
            _ => {}
        }
    }

    /// How many processes died without being told to.
    pub fn deaths(&self) -> usize {
        let ends = self.ends.values();
        ends.filter(|end| !matches!(end, End::Told { .. })).count()
    }

    /// All attempts.
    pub fn executions(&self) -> usize {
        self.attempts.values().map(Vec::len).sum()
    }
}

impl Reading {
    fn read(&mut self, line: usize, record: &Record) {
        let history = &mut self.history;
        match record {
            Record::Accepted(accepted) => {
                history.accepted.insert(accepted.trigger, accepted.clone());
            }
            Record::Unclear { job, .. } => {
                *history.unclear.entry(*job).or_default() += 1;
            }
            Record::Started(attempt) => self.begin(line, attempt),
            Record::Ended(attempt) => self.end(line, attempt),
            Record::Dropped(attempt) => {
                let is_told =
                    self.told.contains(&attempt.pid) && !self.paused.contains(&attempt.pid);
                let hangs = history.job(attempt.trigger) == Some(Job::Hangs);
                if is_told && !hangs {
                    history.dropped_at_end.push(attempt.clone());
                }
                self.end(line, attempt);
            }
            Record::Effect { trigger } => *history.effects.entry(*trigger).or_default() += 1,
            Record::AtPoint { point, pid } => {
                *history.points.entry(point.clone()).or_default() += 1;
                self.traps.insert(*pid);
            }
            Record::Spawned { pid, .. } => drop(history.spawned.insert(*pid)),
            Record::Killed { pid } => {
                let executing = self.gone(*pid);
                let locked_out = self.is_locked;
                let end = End::Killed {
                    executing,
                    locked_out,
                };
                self.history.ends.insert(*pid, end);
            }
            Record::Stopped { pid } => self.stop(*pid),
            Record::Continued { pid } => {
                // Its runs may be taken over a little later, as those that wait longer come first.
                // It stopped itself at a point, and lives.
                self.traps.remove(pid);
            }
            Record::Told { pid } => {
                self.told.insert(*pid);
                if self.is_locked {
                    self.locked_out.insert(*pid);
                }
            }
            Record::Gone { pid, code, took } => {
                let end = self.end_of(*pid, *code, *took);
                self.history.ends.insert(*pid, end);
            }
            Record::Locked => self.lock(),
            Record::Unlocked => self.is_locked = false,
            Record::Harmed(_) | Record::Canary | Record::Leaked { .. } | Record::Paid { .. } => {
                history.count(record)
            }
            Record::Inbox { most, .. } => history.inbox = history.inbox.max(*most),
        }
    }

    fn stop(&mut self, pid: u32) {
        self.history.stops += 1;
        let open = self.open.get(&pid).into_iter().flatten();
        let runs = open.map(|attempt| (attempt.executor.clone(), attempt.trigger));
        self.stopped.insert(pid, runs.collect());
        self.paused.insert(pid);
    }

    fn lock(&mut self) {
        self.history.locks += 1;
        self.is_locked = true;
        // Their heartbeats cannot be written.
        self.paused.extend(self.open.keys());
        self.locked_out.extend(&self.told);
    }

    fn end_of(&mut self, pid: u32, code: Option<i32>, took: Option<u64>) -> End {
        let executing = self.gone(pid);
        match took {
            Some(took) => End::Told {
                code,
                took,
                executing,
                locked_out: self.locked_out.contains(&pid),
            },
            None if self.traps.contains(&pid) => End::AtPoint,
            None => End::ByItself,
        }
    }

    fn begin(&mut self, line: usize, attempt: &Attempt) {
        let run = (attempt.executor.clone(), attempt.trigger);
        for runs in self.stopped.values_mut() {
            if runs.remove(&run) {
                self.history.overtaken += 1;
            }
        }
        let is_same = |other: &Attempt| {
            (&other.executor, other.trigger) == (&attempt.executor, attempt.trigger)
        };
        let others = self.open.iter().filter(|(pid, _)| **pid != attempt.pid);
        let mut alive =
            others.filter(|(pid, _)| !self.paused.contains(pid) && !self.traps.contains(pid));
        if !self.is_locked && alive.any(|(_, open)| open.iter().any(is_same)) {
            self.history.stolen.push(attempt.clone());
        }
        let spans = self.history.attempts.entry(attempt.clone()).or_default();
        spans.push(Span {
            begun: line,
            ended: None,
        });
        self.open
            .entry(attempt.pid)
            .or_default()
            .insert(attempt.clone());
    }

    fn end(&mut self, line: usize, attempt: &Attempt) {
        if let Some(span) = self
            .history
            .attempts
            .get_mut(attempt)
            .and_then(|spans| spans.last_mut())
        {
            span.ended = Some(line);
        }
        self.history.answered_at.push(line);
        if let Some(open) = self.open.get_mut(&attempt.pid) {
            open.remove(attempt);
        }
    }

    /// How many attempts a process was at when it went.
    fn gone(&mut self, pid: u32) -> usize {
        self.open.remove(&pid).map_or(0, |open| open.len())
    }
}
