//! Runs that kills and faults let fail, and the number of them that chance explains.

use super::{ATTEMPTS, Check};
use crate::executors::Role;
use crate::snapshot::Row;

impl Check<'_> {
    /// Whether a run failed since it was lost with its workers: three in a row, or as many as it has attempts. Where the
    /// server ends as well the last attempt may be one whose answer could not be committed.
    pub(super) fn lost_its_workers(&self, row: &Row) -> bool {
        match row.reason.as_deref() {
            Some("crash_loop") => true,
            Some("attempts_used_up") => {
                row.attempts > ATTEMPTS || self.settings.servers.postgres_restarts > 0
            }
            Some(_) | None => false,
        }
    }

    /// Returns `true` if a run failed because the campaign took each of its attempts, and the last one by a fault of the store or by
    /// a pause. In a full campaign one attempt in twenty is lost, a later attempt of the same run one in seven, so about three of
    /// 70,000 runs lose five attempts.
    pub(super) fn lost_its_attempts(&self, row: &Row) -> bool {
        const CAUSES: [&str; 3] = [
            "a fault was injected",
            "did not answer the heartbeats",
            "database is locked",
        ];
        let is_used_up = row.reason.as_deref() == Some("attempts_used_up");
        let cause = row.cause.as_deref().unwrap_or_default();
        let is_harm = CAUSES.iter().any(|harm| cause.contains(harm));
        is_used_up && is_harm && row.attempts == ATTEMPTS && self.settings.faults > 0
    }

    /// Whether nobody who claimed a run got round to ending it, for so often that it was given up unseen.
    pub(super) fn was_never_ended(&self, row: &Row) -> bool {
        const BEYOND: u32 = 4;
        let given_up = row.reason.as_deref() == Some("crash_loop");
        given_up && row.attempts > ATTEMPTS + BEYOND && self.settings.servers.postgres_restarts > 0
    }

    /// Finds more runs that used up their attempts than chance explains, of all executors together.
    pub(super) fn used_up(&mut self) {
        if self.used_up > 1 + self.history.accepted.len() / 10_000 {
            let used_up = self.used_up;
            self.found(format!("{used_up} runs used up their attempts"));
        }
    }

    /// Finds more runs that lost three workers in a row than chance explains.
    pub(super) fn by_chance(&mut self, role: Role, crash_loops: usize) {
        // Three workers in a row may die at one run by chance, and the third death may find a second such run that was claimed
        // and not yet released; more often beside poison, because runs that lose a worker together are claimed again together.
        let by_chance = 2 * (self.history.deaths() / 3) + self.history.stops as usize / 3;
        let by_chance = by_chance.min(self.history.accepted.len() / 75) + self.by_outages();
        let beside_poison = 8 * self.poison();
        if crash_loops > by_chance + beside_poison {
            self.found(format!(
                "{crash_loops} runs of {} count as poison and are not",
                role.id()
            ));
        }
    }

    /// How many runs may have lost three workers in a row when the server was down for longer than a lease: each time all
    /// that every worker holds is lost, also what it has not begun, and what is lost together is claimed again together.
    fn by_outages(&self) -> usize {
        const HELD: u64 = 16;
        let workers = self.settings.workers;
        let workers = workers.killed + workers.stopped + workers.pointed;
        let outages = self.settings.servers.postgres_restarts;
        usize::try_from(outages * HELD).unwrap_or(usize::MAX) * workers / 3
    }
}
