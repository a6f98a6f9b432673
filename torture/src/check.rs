//! Check of a campaign: compares the final state of the store with the records of the oracle. Pure.

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

/// Maximum number of received but unacknowledged deliveries in all queues of a worker.
const INBOX: u64 = 4_096;

/// Maximum number of executions of a run. One more claim finds that the worker of the last attempt was lost, and ends the run.
const ATTEMPTS: u32 = 5;

/// Result of the check.
#[derive(Debug, Default, Serialize)]
pub struct Verdict {
    /// Broken promises.
    pub broken: Vec<String>,
    /// Faults that were planned and did not happen, so the campaign proves less than it should.
    pub unshown: Vec<String>,
    /// Number of versions that were replaced before a worker found them, while their event was lost. The newer version has a run.
    pub passed_over: usize,
}

struct Check<'c> {
    history: &'c History,
    snapshot: &'c Snapshot,
    settings: &'c Settings,
    /// Number of runs that lost all attempts to faults.
    used_up: usize,
    found: Verdict,
}

/// Returns all problems of a campaign.
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

    /// Returns the number of triggers that abort their worker.
    fn poison(&self) -> usize {
        let accepted = self.history.accepted.values();
        accepted
            .filter(|accepted| accepted.job == Job::Poison)
            .count()
            + self.unclear(Job::Poison)
    }

    /// Returns the number of triggers of a kind that may be stored although the store returned an error.
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
                Some(several) => {
                    self.found(format!("{several} runs for one trigger: {accepted:?}"))
                }
                None if self.settings.may_lose_events()
                    && rows.keys().any(|(other, newer)| {
                        let trigger = accepted.trigger;
                        (*other, newer.id) == (role, trigger.id) && newer.version > trigger.version
                    }) =>
                {
                    self.found.passed_over += 1;
                }
                None => self.found(format!("lost trigger: {accepted:?}")),
            }
        }
    }

    /// Checks that each run has one answer. Answers are counted by the trigger in their payload, not by fields that the library stamped.
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
                // The requester waits, so the helper also answers a failure.
                (RunState::Failed, [answer]) if role == Role::Helper && answer.failed => {}
                (RunState::Failed, []) if role == Role::Helper => {
                    self.found(format!(
                        "failed without an answer to the requester: {row:?}"
                    ));
                }
                (RunState::Done, [answer]) => self.found(format!(
                    "the answer is from attempt {}, but attempt {} had the lease: {row:?}",
                    answer.attempt, row.attempts
                )),
                (RunState::Done, []) => self.found(format!("done without an answer: {row:?}")),
                (RunState::Done, several) => {
                    self.found(format!("{} answers: {row:?}", several.len()));
                }
                (_, []) => {}
                (_, several) => self.found(format!(
                    "{} answers for a run that is not done: {row:?}",
                    several.len()
                )),
            }
        }
        for answer in answers.into_values().flatten() {
            self.found(format!("an answer without a run: {answer:?}"));
        }
    }

    fn rows(&mut self, role: Role) {
        let versions: HashSet<Trigger> = self.rows_of(role).iter().map(|row| row.trigger).collect();
        let mut crash_loops = 0;
        let (mut refused, mut once) = (self.unclear(Job::Refused), self.unclear(Job::Once));
        for row in self.rows_of(role).to_vec() {
            // A worker that claims a run only to end it can be lost as well, without an execution. `attempts` counts the
            // executions of such runs.
            let was_executed = !matches!(row.state, RunState::Failed | RunState::Superseded);
            if was_executed && row.attempts > ATTEMPTS {
                self.found(format!("more attempts than allowed: {row:?}"));
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
                // The executor skips its own breadcrumbs and those for the other executor of the chain.
                (RunState::Skipped, _) => matches!(role, Role::Ping | Role::Pong),
                (RunState::Superseded, _) => versions
                    .iter()
                    .any(|other| other.id == row.trigger.id && other.version > row.trigger.version),
            };
            if !is_right {
                self.found(format!("unexpected end: {job:?} {row:?}"));
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
                .push(format!("executed more often than allowed: {attempt:?}"));
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
                self.found(format!("{halves} second breadcrumbs of an answer: {row:?}"));
            }
        }
    }

    /// Checks that runs with one ordering key run one at a time, in the order of the ledger.
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
                self.found(format!("done without an execution: {row:?}"));
                continue;
            };
            if let Some((before, earlier)) = last.get(&lane)
                && earlier.ended.is_none_or(|ended| ended > span.start_line)
            {
                self.found(format!(
                    "{lane}: {:?} started before {before:?} ended",
                    row.trigger
                ));
            }
            last.insert(lane, (row.trigger, span));
        }
    }

    /// Returns the execution that produced an answer.
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

    /// Checks that each failed run has one dead letter, and no other run has any.
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
                "a dead letter for a run that did not fail: {letter:?}"
            ));
        }
    }

    /// Checks that a chain of executors ends at the hop limit, whatever length its payload claims.
    fn loops(&mut self) {
        const VERSIONS: u64 = 18;
        for found in self.snapshot.loops.clone() {
            if found.version > VERSIONS {
                self.found(format!("a chain passed the hop limit: {found:?}"));
            }
        }
        let of_limit = |row: &&Row| row.reason.as_deref() == Some("hop_limit");
        let limits =
            [Role::Ping, Role::Pong].map(|role| self.rows_of(role).iter().filter(of_limit).count());
        let (ended, loops) = (limits.iter().sum::<usize>(), self.snapshot.loops.len());
        // A chain can end earlier, with another dead letter.
        if ended > loops {
            self.found(format!(
                "{ended} chains ended at the hop limit, but there are only {loops} chains"
            ));
        }
    }

    fn processes(&mut self) {
        let poison = self.poison();
        let mut by_itself = 0;
        for (pid, end) in &self.history.ends {
            match end {
                End::Terminated {
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
                    // An operation on a server can take until its time limit.
                    let slow = if self.settings.on == On::Sqlite {
                        0
                    } else {
                        5_000
                    };
                    let most = self.settings.drain + 2_000 + locked + slow;
                    // The worker executed poison while it drained, or received SIGTERM before its start was recorded.
                    let is_new = !self.history.spawned.contains(pid);
                    let aborted = code.is_none() && (poison > 0 || is_new);
                    if !aborted && *code != Some(0) {
                        self.found.broken.push(format!("pid {pid}: exit {code:?}"));
                    }
                    if *took > most {
                        self.found
                            .broken
                            .push(format!("pid {pid} took {took} ms to exit"));
                    }
                    if !aborted && *executing > 0 {
                        self.found
                            .broken
                            .push(format!("pid {pid} exited during {executing} attempts"));
                    }
                }
                End::ByItself => by_itself += 1,
                End::Killed { .. } | End::AtPoint => {}
            }
        }
        self.dropped();
        // Poison kills three workers, and more if other faults kill the first ones.
        if by_itself > poison * 5 {
            self.found(format!("{by_itself} workers exited unexpectedly"));
        }
        if self.history.inbox > INBOX {
            self.found(format!("{} unacknowledged deliveries", self.history.inbox));
        }
        let stolen = self.history.stolen.len();
        // A clock that jumps ahead expires all leases.
        if self.settings.jumps == 0 && stolen * 50 > self.history.executions() {
            self.found(format!("{stolen} runs were taken from live workers"));
        }
        let shifts: BTreeMap<_, _> = self.snapshot.rows.iter().collect();
        if shifts.values().all(|rows| rows.is_empty()) {
            self.found("the ledger is empty");
        }
    }

    /// Checks that no worker dropped an attempt after SIGTERM. Workers lose the leases of running attempts if a clock jumps ahead,
    /// because the jump expires all leases.
    fn dropped(&mut self) {
        if self.settings.jumps > 0 {
            return;
        }
        let on = self.settings.on.name();
        let dropped = self.history.dropped_at_end.iter();
        let broken = dropped.map(|dropped| {
            format!("dropped by a worker on {on} that received SIGTERM: {dropped:?}")
        });
        self.found.broken.extend(broken);
    }

    /// Checks that no executor saw data of the other tenant, and that the other tenant has no runs.
    fn canaries(&mut self) {
        for (executor, trigger) in &self.history.leaks {
            self.found.broken.push(format!(
                "executor {executor} saw data of another tenant: {trigger:?}"
            ));
        }
        let Snapshot {
            canaries, strays, ..
        } = self.snapshot;
        if *strays > 0 {
            self.found(format!("{strays} runs and answers of another tenant"));
        }
        if (*canaries as u64) < self.history.canaries {
            self.found(format!("only {canaries} triggers of another tenant remain"));
        }
        if self.settings.triggers > 2 * self.settings.canary_every && self.history.canaries == 0 {
            self.unshown("no trigger was written for another tenant");
        }
    }
}

#[cfg(test)]
mod tests;
