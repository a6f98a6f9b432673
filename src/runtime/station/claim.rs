//! Whose turn it is, and what is claimed for them.

use super::Station;
use crate::clock::later;
use crate::error::Chain;
use crate::executor::is_last_chance;
use crate::runtime::desk::Free;
use crate::runtime::home::{Home, Operation};
use crate::runtime::process::{self, Because};
use crate::runtime::shared::{PAUSE, in_time};
use crate::store::{ExecutorLimits, Lease, LeaseOwner, Run, RunFilter, RunLedger, StoreError};
use futures::future::join_all;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// How many runs are claimed in one step.
const BATCH: usize = 64;

/// How many executors are asked for in one claim.
const MOST_ASKED: usize = 256;

impl Station {
    /// Claims due runs of the executors whose turn it is, as many as there are places at hand.
    pub(super) async fn claim(&mut self, place: OwnedSemaphorePermit) {
        let asked = self.whose_turn();
        let wanted = asked
            .iter()
            .fold(0_usize, |wanted, limits| wanted.saturating_add(limits.free));
        if wanted == 0 {
            return;
        }
        let mut places = self.shared.more_places(wanted.min(BATCH) - 1);
        places.push(place);
        let home = Arc::clone(&self.home);
        let list_anyway = std::mem::replace(&mut self.parked, true);
        let claimed = claim_due(&home, self.owner, places.len(), &asked, list_anyway);
        match in_time(claimed).await {
            Ok(claimed) => {
                home.answered(Operation::Claim, true);
                let new = self.not_running(claimed);
                // A lease that was claimed while this station stops remains parked, and is released with the others.
                if !self.shared.stop.is_cancelled() {
                    let new = self.with_one_suspect(new).await;
                    self.start_all(new, places, &asked).await;
                    self.parked = false;
                }
            }
            Err(error) => {
                home.answered(Operation::Claim, false);
                tracing::warn!(code = error.code(), error = %Chain(&error), "cannot claim runs, will retry");
                let again = later(Instant::now(), PAUSE);
                for limits in asked {
                    self.heat_at(again, limits.executor);
                }
            }
        }
    }

    /// The executors whose turn it is and how much each may start; they are hot no more.
    fn whose_turn(&mut self) -> Vec<ExecutorLimits> {
        let now = Instant::now();
        let mut asked = Vec::new();
        while asked.len() < MOST_ASKED {
            let Some(executor) = self.hot.pop_front() else {
                break;
            };
            let Some(desk) = self.desks.get_mut(&executor) else {
                continue;
            };
            desk.hot = false;
            let Some(member) = self.shared.roster.get(&executor) else {
                continue;
            };
            if member.home.number != self.home.number {
                continue;
            }
            let most = self.shared.settings.max_inflight;
            match desk.free(member.executor.profile(), most, now) {
                Free::Runs(free) => asked.push(ExecutorLimits::new(executor, free)),
                Free::NotBefore(moment) => self.heat_at(moment, executor),
                Free::Busy => desk.more = true,
            }
        }
        asked
    }

    /// Without the leases that a task has which did not get round to taking them. A task that has an older lease of the
    /// same run can write nothing more, so it ends.
    fn not_running(&mut self, mut claimed: Vec<(Lease, u32)>) -> Vec<(Lease, u32)> {
        claimed.retain(|(lease, _)| match self.runs.get(&lease.run) {
            Some(running) if running.token == lease.token => false,
            Some(running) => {
                running.task.abort();
                true
            }
            None => true,
        });
        claimed
    }

    /// Without the runs that two workers died holding, but for one if none runs here.
    ///
    /// Runs that lose a worker together are claimed again together. The one that kills must not take the others with it
    /// for the third time, so they are given back before it starts.
    async fn with_one_suspect(&mut self, mut new: Vec<(Lease, u32)>) -> Vec<(Lease, u32)> {
        let is_suspect = |(lease, _): &(Lease, u32)| is_last_chance(lease.abandoned);
        let mut suspects: Vec<_> = new.extract_if(.., |run| is_suspect(run)).collect();
        let runs_here = self.runs.values().any(|running| running.suspect);
        let one = suspects.pop_if(|_| !runs_here);
        let home = &self.home;
        let given_back = suspects.iter().map(|(lease, _)| {
            let because = Because::NotNow { delay: PAUSE };
            process::give_back(home, lease.clone(), because)
        });
        let all_given_back = join_all(given_back).await.into_iter().all(|back| back);
        for (lease, _) in suspects {
            self.heat_at(later(Instant::now(), PAUSE), lease.run.executor);
        }
        if let Some((lease, attempts)) = one {
            if all_given_back {
                new.push((lease, attempts));
            } else {
                self.heat_at(
                    later(Instant::now(), PAUSE),
                    Arc::clone(&lease.run.executor),
                );
                process::give_back(&self.home, lease, Because::NotNow { delay: PAUSE }).await;
            }
        }
        new
    }

    /// Starts what was claimed; who may have more keeps its turn. What a claim took whose reply was lost may be more
    /// than there is room for, and is given back.
    async fn start_all(
        &mut self,
        new: Vec<(Lease, u32)>,
        places: Vec<OwnedSemaphorePermit>,
        asked: &[ExecutorLimits],
    ) {
        let all_places_taken = new.len() >= places.len();
        let mut places = places.into_iter();
        let mut started: HashMap<Arc<str>, usize> = HashMap::new();
        for (lease, attempts) in new {
            let executor = Arc::clone(&lease.run.executor);
            let free = asked.iter().find(|limits| limits.executor == executor);
            let free = free.map_or(0, |limits| limits.free);
            let got = started.entry(Arc::clone(&executor)).or_default();
            if *got < free
                && let Some(place) = places.next()
            {
                *got += 1;
                self.start(lease, attempts, place).await;
            } else {
                process::give_back(&self.home, lease, Because::Dropped).await;
                self.heat_at(later(Instant::now(), PAUSE), executor);
            }
        }
        started.retain(|_, got| *got > 0);
        let got = |limits: &&ExecutorLimits| started.get(&limits.executor).copied();
        // Who got nothing comes before who got something.
        let (served, unserved): (Vec<_>, Vec<_>) =
            asked.iter().partition(|limits| got(limits).is_some());
        if all_places_taken {
            for limits in unserved {
                self.heat(&limits.executor);
            }
        }
        for limits in served {
            if all_places_taken || got(&limits) >= Some(limits.free) {
                self.heat(&limits.executor);
            }
        }
    }
}

/// Claims up to `n` due runs for an owner, and lists the owner's parked leases with the attempts of their runs.
async fn claim_due(
    home: &Home,
    owner: LeaseOwner,
    n: usize,
    asked: &[ExecutorLimits],
    list_anyway: bool,
) -> Result<Vec<(Lease, u32)>, StoreError> {
    let Some(ledger) = home.ledger() else {
        return Ok(Vec::new());
    };
    if ledger.claim_next(n, asked, owner).await? == 0 && !list_anyway {
        return Ok(Vec::new());
    }
    parked(ledger, owner).await
}

/// Lists the parked leases of an owner with the attempts of their runs.
pub(super) async fn parked(
    ledger: &dyn RunLedger,
    owner: LeaseOwner,
) -> Result<Vec<(Lease, u32)>, StoreError> {
    let parked = ledger.runs(&RunFilter::parked_by(owner)).await?;
    let lease = |run: Run| Some((run.lease?, run.attempts));
    Ok(parked.into_iter().filter_map(lease).collect())
}
