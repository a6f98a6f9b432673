//! Whether the promises were kept: what the store says in the end, held against what the oracle knows. Pure.

mod chance;
mod coverage;
mod payments;

use crate::executors::{Answer, Role};
use crate::history::{End, History, Span};
use crate::oracle::{Attempt, Job, Trigger};
use crate::settings::{On, Settings};
use crate::snapshot::{Row, Snapshot};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use universal_executor::store::RunState;

/// More deliveries than these must not be taken in without being acknowledged: the queues of a worker together.
const INBOX: u64 = 4_096;

/// How often a run may be executed. One more claim finds that the worker of the last attempt is gone, and ends the run.
const ATTEMPTS: u32 = 5;

/// What is wrong.
#[derive(Debug, Default, Serialize)]
pub struct Verdict {
    /// Promises that were not kept.
    pub broken: Vec<String>,
    /// What the campaign was to show and did not: it proves less than it says.
    pub unshown: Vec<String>,
    /// Versions of which no event came, and that had been replaced when somebody looked: their newer version has a run.
    pub passed_over: usize,
}

struct Check<'c> {
    history: &'c History,
    snapshot: &'c Snapshot,
    settings: &'c Settings,
    /// The number of runs that lost all attempts to faults.
    used_up: usize,
    found: Verdict,
}

/// All that is wrong.
pub fn check(history: &History, snapshot: &Snapshot, settings: &Settings) -> Verdict {
    let mut check = Check {
        history,
        snapshot,
        settings,
        used_up: 0,
        found: Verdict::default(),
    };
    check.every_trigger_has_an_outcome();
    for role in Role::ALL {
        check.one_answer_for_each_run(role);
        check.rows(role);
        check.attempts(role);
    }
    check.used_up();
    check.both_halves();
    check.lanes();
    check.effects();
    check.payments();
    check.letters();
    check.loops();
    check.processes();
    check.canaries();
    check.coverage();
    check.found
}

impl Check<'_> {
    fn found(&mut self, what: impl Into<String>) {
        self.found.broken.push(what.into());
    }

    fn unshown(&mut self, what: impl Into<String>) {
        self.found.unshown.push(what.into());
    }

    fn rows_of(&self, role: Role) -> &[Row] {
        self.snapshot.rows.get(role.id()).map_or(&[], Vec::as_slice)
    }

    /// How many triggers take their worker down.
    fn poison(&self) -> usize {
        let accepted = self.history.accepted.values();
        accepted
            .filter(|accepted| accepted.job == Job::Poison)
            .count()
            + self.unclear(Job::Poison)
    }

    /// How many triggers of a kind may be kept without anybody knowing of them.
    fn unclear(&self, job: Job) -> usize {
        self.history.unclear.get(&job).copied().unwrap_or_default()
    }

    fn every_trigger_has_an_outcome(&mut self) {
        let mut rows: HashMap<(Role, Trigger), usize> = HashMap::new();
        for role in Role::ALL {
            for row in self.rows_of(role) {
                *rows.entry((role, row.trigger)).or_default() += 1;
            }
        }
        for accepted in self.history.accepted.values() {
            let role = match accepted.job.schema() {
                "page.v1" => Role::Pager,
                "loop.v1" => Role::Ping,
                "payment.v1" => Role::Payer,
                _ => Role::Clerk,
            };
            match rows.get(&(role, accepted.trigger)) {
                Some(1) => {}
                Some(several) => self.found(format!("{several} runs of one name: {accepted:?}")),
                None if self.settings.may_lose_events()
                    && rows.keys().any(|(other, newer)| {
                        let trigger = accepted.trigger;
                        (*other, newer.id) == (role, trigger.id) && newer.version > trigger.version
                    }) =>
                {
                    self.found.passed_over += 1;
                }
                None => self.found(format!("lost: {accepted:?}")),
            }
        }
    }

    /// Counted by what an answer says it answers, not by what the library stamped on it.
    fn one_answer_for_each_run(&mut self, role: Role) {
        if role.answers().is_none() {
            return;
        }
        let mut answers: HashMap<Trigger, Vec<Answer>> = HashMap::new();
        for answer in self.snapshot.answers.get(role.id()).into_iter().flatten() {
            answers.entry(answer.trigger).or_default().push(*answer);
        }
        for row in self.rows_of(role).to_vec() {
            let answers = answers.remove(&row.trigger).unwrap_or_default();
            match (row.state, answers.as_slice()) {
                (RunState::Done, [answer]) if answer.attempt == row.attempts && !answer.failed => {}
                // Who asks waits, so a failure is answered as well.
                (RunState::Failed, [answer]) if role == Role::Helper && answer.failed => {}
                (RunState::Failed, []) if role == Role::Helper => {
                    self.found(format!("a failure that nobody was told of: {row:?}"));
                }
                (RunState::Done, [answer]) => self.found(format!(
                    "the answer of attempt {} stands, and attempt {} had the lease: {row:?}",
                    answer.attempt, row.attempts
                )),
                (RunState::Done, []) => self.found(format!("done without an answer: {row:?}")),
                (RunState::Done, several) => {
                    self.found(format!("{} answers: {row:?}", several.len()));
                }
                (_, []) => {}
                (_, several) => self.found(format!(
                    "{} answers of a run that is not done: {row:?}",
                    several.len()
                )),
            }
        }
        for answer in answers.into_values().flatten() {
            self.found(format!("an answer to nothing: {answer:?}"));
        }
    }

    fn rows(&mut self, role: Role) {
        let versions: HashSet<Trigger> = self.rows_of(role).iter().map(|row| row.trigger).collect();
        let mut crash_loops = 0;
        let (mut refused, mut once) = (self.unclear(Job::Refused), self.unclear(Job::Once));
        for row in self.rows_of(role).to_vec() {
            // Who claims a run only to end it may be lost as well, and executes nothing: how often that happened is told by
            // those who execute.
            let was_executed = !matches!(row.state, RunState::Failed | RunState::Superseded);
            if was_executed && row.attempts > ATTEMPTS {
                self.found(format!("more attempts than it may have: {row:?}"));
            }
            let job = self.history.job(row.trigger);
            let reason = row.reason.as_deref();
            let is_right = match (row.state, job) {
                (RunState::Ready | RunState::Running | RunState::Suspended, _) => false,
                (RunState::Done, Some(Job::Refused | Job::Poison)) => false,
                (RunState::Done, _) => true,
                (RunState::Failed, Some(Job::Refused)) => {
                    reason == Some("permanent") || self.lost_its_workers(&row)
                }
                (RunState::Failed, Some(Job::Once)) => {
                    reason == Some("outcome_unknown") || self.was_never_ended(&row)
                }
                (RunState::Failed, _) if reason == Some("hop_limit") => {
                    matches!(role, Role::Ping | Role::Pong)
                }
                (RunState::Failed, None) if reason == Some("permanent") && refused > 0 => {
                    refused -= 1;
                    role == Role::Clerk
                }
                (RunState::Failed, None) if reason == Some("outcome_unknown") && once > 0 => {
                    once -= 1;
                    role == Role::Pager
                }
                (RunState::Failed, _)
                    if self.lost_its_attempts(&row) && !self.lost_its_workers(&row) =>
                {
                    self.used_up += 1;
                    true
                }
                (RunState::Failed, job) => {
                    crash_loops += usize::from(job != Some(Job::Poison));
                    self.lost_its_workers(&row)
                }
                // Of another's turn, or its own.
                (RunState::Skipped, _) => matches!(role, Role::Ping | Role::Pong),
                (RunState::Superseded, _) => versions
                    .iter()
                    .any(|other| other.id == row.trigger.id && other.version > row.trigger.version),
            };
            if !is_right {
                self.found(format!("a wrong end: {job:?} {row:?}"));
            }
        }
        self.by_chance(role, crash_loops);
    }

    fn attempts(&mut self, role: Role) {
        let too_often = self
            .history
            .attempts
            .keys()
            .filter(|attempt| attempt.executor == role.id() && attempt.attempt > ATTEMPTS);
        for attempt in too_often {
            self.found
                .broken
                .push(format!("executed once more than allowed: {attempt:?}"));
        }
    }

    fn both_halves(&mut self) {
        let mut second: HashMap<Trigger, usize> = HashMap::new();
        for answer in &self.snapshot.second {
            *second.entry(answer.trigger).or_default() += 1;
        }
        for row in self.rows_of(Role::Clerk).to_vec() {
            let expected = row.state == RunState::Done
                && self
                    .history
                    .job(row.trigger)
                    .is_some_and(|job| job == Job::Two);
            let is_known = self.history.job(row.trigger).is_some();
            let halves = second.get(&row.trigger).copied().unwrap_or_default();
            if is_known && halves != usize::from(expected) {
                self.found(format!("{halves} second halves: {row:?}"));
            }
        }
    }

    /// Runs of a lane go one at a time, in the order of the ledger.
    fn lanes(&mut self) {
        let answers = self.snapshot.answers.get(Role::Clerk.id());
        let answers: HashMap<Trigger, &Answer> = answers
            .into_iter()
            .flatten()
            .map(|answer| (answer.trigger, answer))
            .collect();
        let mut last: HashMap<String, (Trigger, Span)> = HashMap::new();
        for row in self.rows_of(Role::Clerk).to_vec() {
            let (Some(lane), Some(answer)) = (row.lane.clone(), answers.get(&row.trigger)) else {
                continue;
            };
            let Some(span) = self.span_of(answer) else {
                self.found(format!("nobody executed this: {row:?}"));
                continue;
            };
            if let Some((before, earlier)) = last.get(&lane)
                && earlier.ended.is_none_or(|ended| ended > span.begun)
            {
                self.found(format!(
                    "{lane}: {:?} began before {before:?} was over",
                    row.trigger
                ));
            }
            last.insert(lane, (row.trigger, span));
        }
    }

    /// The attempt that an answer is of.
    fn span_of(&self, answer: &Answer) -> Option<Span> {
        let attempt = Attempt {
            executor: Role::Clerk.id().to_owned(),
            trigger: answer.trigger,
            attempt: answer.attempt,
            pid: answer.pid,
        };
        self.history.attempts.get(&attempt)?.last().copied()
    }

    fn effects(&mut self) {
        for row in self.rows_of(Role::Pager).to_vec() {
            let has_effect = self.history.effects.contains_key(&row.trigger);
            if row.state == RunState::Done && !has_effect {
                self.found(format!("done without its effect: {row:?}"));
            }
        }
        for (trigger, times) in &self.history.effects {
            if *times > 1 {
                self.found
                    .broken
                    .push(format!("{times} effects of {trigger:?}"));
            }
        }
    }

    /// As many dead letters as runs that failed, one for each.
    fn letters(&mut self) {
        let mut letters: HashMap<(String, Trigger), usize> = HashMap::new();
        for letter in &self.snapshot.letters {
            *letters.entry(letter.clone()).or_default() += 1;
        }
        for role in Role::ALL {
            let rows = self.rows_of(role).to_vec();
            for row in rows.iter().filter(|row| row.state == RunState::Failed) {
                match letters.remove(&(role.id().to_owned(), row.trigger)) {
                    Some(1) => {}
                    other => self.found(format!("{} dead letters: {row:?}", other.unwrap_or(0))),
                }
            }
        }
        for letter in letters.into_keys() {
            self.found(format!(
                "a dead letter of a run that did not fail: {letter:?}"
            ));
        }
    }

    /// A chain of executors ends at the limit, whatever the payload says of its length.
    fn loops(&mut self) {
        const VERSIONS: u64 = 18;
        for found in self.snapshot.loops.clone() {
            if found.version > VERSIONS {
                self.found(format!("a circle went on and on: {found:?}"));
            }
        }
        let of_limit = |row: &&Row| row.reason.as_deref() == Some("hop_limit");
        let limits =
            [Role::Ping, Role::Pong].map(|role| self.rows_of(role).iter().filter(of_limit).count());
        let (ended, loops) = (limits.iter().sum::<usize>(), self.snapshot.loops.len());
        // A chain may end before, with another dead letter.
        if ended > loops {
            self.found(format!("{ended} ends of {loops} circles"));
        }
    }

    fn processes(&mut self) {
        let poison = self.poison();
        let mut by_itself = 0;
        for (pid, end) in &self.history.ends {
            match end {
                End::Told {
                    code,
                    took,
                    executing,
                    locked_out,
                } => {
                    let locked = if *locked_out {
                        self.settings.lock_for
                    } else {
                        0
                    };
                    // What is on its way to a server may take until the runtime gives up on it.
                    let slow = if self.settings.on == On::Sqlite {
                        0
                    } else {
                        5_000
                    };
                    let most = self.settings.drain + 2_000 + locked + slow;
                    // It executed poison while it drained, or was told before it had begun.
                    let is_new = !self.history.spawned.contains(pid);
                    let aborted = code.is_none() && (poison > 0 || is_new);
                    if !aborted && *code != Some(0) {
                        self.found.broken.push(format!("{pid} ended with {code:?}"));
                    }
                    if *took > most {
                        self.found
                            .broken
                            .push(format!("{pid} took {took} ms to end"));
                    }
                    if !aborted && *executing > 0 {
                        self.found
                            .broken
                            .push(format!("{pid} left {executing} attempts as it ended"));
                    }
                }
                End::ByItself => by_itself += 1,
                End::Killed { .. } | End::AtPoint => {}
            }
        }
        for attempt in &self.history.dropped_at_end {
            self.found.broken.push(format!(
                "dropped by a worker that was told to end: {attempt:?}"
            ));
        }
        // Three attempts at each, and more if the first ones die of other things.
        if by_itself > poison * 5 {
            self.found(format!("{by_itself} workers died by themselves"));
        }
        if self.history.inbox > INBOX {
            self.found(format!("{} deliveries in an inbox", self.history.inbox));
        }
        let stolen = self.history.stolen.len();
        // A clock that jumps ahead ends all leases.
        if self.settings.jumps == 0 && stolen * 50 > self.history.executions() {
            self.found(format!("{stolen} runs were taken from workers that live"));
        }
        let shifts: BTreeMap<_, _> = self.snapshot.rows.iter().collect();
        if shifts.values().all(|rows| rows.is_empty()) {
            self.found("the ledger is empty");
        }
    }

    /// What is of another tenant was seen by nobody, and nobody made a run of it.
    fn canaries(&mut self) {
        for (executor, trigger) in &self.history.leaks {
            self.found.broken.push(format!(
                "{executor} saw something of another tenant: {trigger:?}"
            ));
        }
        let Snapshot {
            canaries, strays, ..
        } = self.snapshot;
        if *strays > 0 {
            self.found(format!("{strays} runs and answers of another tenant"));
        }
        if (*canaries as u64) < self.history.canaries {
            self.found(format!("{canaries} triggers of another tenant are left"));
        }
        if self.settings.triggers > 2 * self.settings.canary_every && self.history.canaries == 0 {
            self.unshown("nothing was written for another tenant");
        }
    }
}

#[cfg(test)]
mod tests;
