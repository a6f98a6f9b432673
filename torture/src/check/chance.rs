//! Runs that failed because of kills and faults, and the number of such runs that chance explains.

use super::{ATTEMPTS, Check};
use crate::executors::Role;
use crate::snapshot::Row;

impl Check<'_> {
    /// Returns `true` if a run failed because it lost its workers: three in a row, or one for each of its attempts. If the
    /// server crashes as well, the answer of the last attempt may have failed to commit.
    pub(super) fn lost_its_workers(&self, row: &Row) -> bool {
        match row.reason.as_deref() {
            Some("crash_loop") => true,
            Some("attempts_used_up") => {
                row.attempts > ATTEMPTS || self.settings.servers.postgres_restarts > 0
            }
            Some(_) | None => false,
        }
    }

    /// Returns `true` if a run failed because faults ended each of its attempts, the last one by a fault of the store or by
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

    /// Returns `true` if a run lost each of its workers, so often that it ended without an answer of `respond_failure`.
    pub(super) fn was_never_ended(&self, row: &Row) -> bool {
        const BEYOND: u32 = 4;
        let is_crash_loop = row.reason.as_deref() == Some("crash_loop");
        is_crash_loop
            && row.attempts > ATTEMPTS + BEYOND
            && self.settings.servers.postgres_restarts > 0
    }

    /// Reports a broken promise if more runs of all executors used up their attempts than chance explains.
    pub(super) fn used_up(&mut self) {
        if self.used_up > 1 + self.history.accepted.len() / 10_000 {
            let used_up = self.used_up;
            self.found(format!("{used_up} runs used up their attempts"));
        }
    }

    /// Reports a broken promise if more runs of an executor lost three workers in a row than chance explains.
    pub(super) fn by_chance(&mut self, role: Role, crash_loops: usize) {
        // Three workers in a row can die during one run by chance. The third death can hit a second such run that was claimed
        // and not yet released. Poison makes this more likely, because runs that lose a worker together are claimed again together.
        let by_chance = 2 * (self.history.deaths() / 3) + self.history.stops as usize / 3;
        let by_chance = by_chance.min(self.history.accepted.len() / 75) + self.by_outages();
        let beside_poison = 8 * self.poison();
        if crash_loops > by_chance + beside_poison {
            self.found(format!(
                "{crash_loops} runs of {} failed as crash_loop without poison",
                role.id()
            ));
        }
    }

    /// Returns the number of runs that can lose three workers in a row because the server was down for longer than a lease. Each
    /// time, every worker loses all its leases, also of runs that it has not started, and these runs are claimed again together.
    fn by_outages(&self) -> usize {
        const LEASES_PER_WORKER: u64 = 16;
        let workers = self.settings.workers;
        let workers = workers.killed + workers.stopped + workers.pointed;
        let outages = self.settings.servers.postgres_restarts;
        usize::try_from(outages * LEASES_PER_WORKER).unwrap_or(usize::MAX) * workers / 3
    }
}
