//! History of a campaign, computed from the lines of the oracle.

use crate::oracle::{Accepted, Attempt, Harm, Job, Record, Trigger};
use std::collections::{BTreeMap, HashMap, HashSet};

/// An execution, from its first line to its last.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Line of its start.
    pub start_line: usize,
    /// Line of its end. `None` if the process was killed before.
    pub ended: Option<usize>,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// Killed at a random moment.
    Killed {
        /// Number of running attempts.
        executing: usize,
        /// If `true`, the store was unavailable, so few attempts could run.
        locked_out: bool,
    },
    /// Killed by itself at a point.
    AtPoint,
    /// Exited after SIGTERM.
    Terminated {
        /// Exit code. `None` after a signal.
        code: Option<i32>,
        /// Time from SIGTERM to the exit, in milliseconds.
        took: u64,
        /// Number of attempts without a recorded end.
        executing: usize,
        /// If `true`, another process had the store locked meanwhile, or its server was down, so that the process could not
        /// even open the store.
        locked_out: bool,
    },
    /// Exited without a signal from the campaign.
    ByItself,
}

/// The history of a campaign.
#[derive(Debug, Default)]
pub struct History {
    /// Accepted triggers.
    pub accepted: BTreeMap<Trigger, Accepted>,
    /// Number of triggers of each kind whose write returned an error. They may be stored anyway.
    pub unclear: HashMap<Job, usize>,
    /// Executions of each attempt.
    pub attempts: HashMap<Attempt, Vec<Span>>,
    /// Number of at-most-once effects of each trigger.
    pub effects: HashMap<Trigger, u32>,
    /// Number of payments by the number of the trigger.
    pub paid: HashMap<u64, u32>,
    /// The end of each process.
    pub ends: BTreeMap<u32, End>,
    /// Number of times that each point was reached.
    pub points: BTreeMap<String, u32>,
    /// Number of pauses of processes.
    pub stops: u32,
    /// Number of runs of a paused process that another process started during the pause.
    pub overtaken: u32,
    /// Lines at which attempts ended.
    pub answered_at: Vec<usize>,
    /// Attempts that started while another live process, which was not paused, executed the same run.
    pub stolen: Vec<Attempt>,
    /// Attempts that were dropped by workers after SIGTERM.
    pub dropped_at_end: Vec<Dropped>,
    /// Maximum number of received but unacknowledged deliveries of a worker.
    pub inbox: u64,
    /// Started processes.
    pub spawned: HashSet<u32>,
    /// Number of times that the store was locked or its server down.
    pub locks: u32,
    /// Number of faults of servers and connections, by kind.
    pub harms: BTreeMap<Harm, u64>,
    /// Number of triggers of another tenant.
    pub canaries: u64,
    /// Executors that saw data of another tenant, each with the trigger of its run.
    pub leaks: Vec<(String, Trigger)>,
}

/// An attempt that a worker dropped after SIGTERM.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "the fields are printed for a person")]
pub struct Dropped {
    attempt: Attempt,
    /// Faults of servers, connections and the clock between the start of the attempt and its end.
    harms: Vec<Harm>,
    /// If `true`, another process started the same run before the end of the attempt.
    was_taken_over: bool,
}

/// State while the lines are read.
#[derive(Default)]
struct Reading {
    history: History,
    open: HashMap<u32, HashSet<Attempt>>,
    stopped: HashMap<u32, HashSet<(String, Trigger)>>,
    /// Processes that were paused at some time and may have missed heartbeats.
    paused: HashSet<u32>,
    traps: HashSet<u32>,
    asked_to_stop: HashSet<u32>,
    /// Faults of servers, connections and the clock, with their lines.
    harms: Vec<(usize, Harm)>,
    /// Processes in `asked_to_stop` whose store was locked meanwhile.
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

    /// Returns the job of a trigger.
    pub fn job(&self, trigger: Trigger) -> Option<Job> {
        self.accepted.get(&trigger).map(|accepted| accepted.job)
    }

    /// Counts the records that need no other state.
    fn count(&mut self, record: &Record) {
        match record {
            Record::Harmed(harm) => *self.harms.entry(*harm).or_default() += 1,
            Record::Canary => self.canaries += 1,
            Record::Leaked { executor, trigger } => self.leaks.push((executor.clone(), *trigger)),
            Record::Paid { n } => *self.paid.entry(*n).or_default() += 1,
            _ => {}
        }
    }

    /// Returns the number of processes that ended without SIGTERM.
    pub fn deaths(&self) -> usize {
        let ends = self.ends.values();
        ends.filter(|end| !matches!(end, End::Terminated { .. }))
            .count()
    }

    /// Returns the number of executions.
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
                let is_asked_to_stop = self.asked_to_stop.contains(&attempt.pid)
                    && !self.paused.contains(&attempt.pid);
                let hangs = history.job(attempt.trigger) == Some(Job::Hangs);
                if is_asked_to_stop && !hangs {
                    let dropped = self.dropped(attempt);
                    self.history.dropped_at_end.push(dropped);
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
                let executing = self.remove_process(*pid);
                let locked_out = self.is_locked;
                let end = End::Killed {
                    executing,
                    locked_out,
                };
                self.history.ends.insert(*pid, end);
            }
            Record::Stopped { pid } => self.stop(*pid),
            Record::Continued { pid } => {
                // `stopped` keeps the runs of the process, because other workers can take them over a little later.
                // A process that stopped itself at a point has not ended.
                self.traps.remove(pid);
            }
            Record::Told { pid } => {
                self.asked_to_stop.insert(*pid);
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
            Record::Harmed(harm) => {
                self.harms.push((line, *harm));
                history.count(record);
            }
            Record::Canary | Record::Leaked { .. } | Record::Paid { .. } => history.count(record),
            Record::Inbox { most, .. } => history.inbox = history.inbox.max(*most),
        }
    }

    fn dropped(&self, attempt: &Attempt) -> Dropped {
        let spans = self.history.attempts.get(attempt);
        let start_line = spans
            .and_then(|spans| spans.last())
            .map(|span| span.start_line);
        let since = |line: usize| start_line.is_some_and(|start_line| line > start_line);
        let harms = self.harms.iter().filter(|(line, _)| since(*line));
        let is_same_run = |other: &Attempt| {
            (&other.executor, other.trigger) == (&attempt.executor, attempt.trigger)
        };
        let mut others = self.history.attempts.iter();
        Dropped {
            attempt: attempt.clone(),
            harms: harms.map(|(_, harm)| *harm).collect(),
            was_taken_over: others.any(|(other, spans)| {
                let is_other = is_same_run(other) && other.pid != attempt.pid;
                is_other && spans.iter().any(|span| since(span.start_line))
            }),
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
        // These processes cannot write their heartbeats.
        self.paused.extend(self.open.keys());
        self.locked_out.extend(&self.asked_to_stop);
    }

    fn end_of(&mut self, pid: u32, code: Option<i32>, took: Option<u64>) -> End {
        let executing = self.remove_process(pid);
        match took {
            Some(took) => End::Terminated {
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
        // The worker claimed the run just before, and cannot write its heartbeats.
        if self.is_locked {
            self.paused.insert(attempt.pid);
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
            start_line: line,
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

    /// Removes a process, and returns the number of its running attempts.
    fn remove_process(&mut self, pid: u32) -> usize {
        self.open.remove(&pid).map_or(0, |open| open.len())
    }
}
