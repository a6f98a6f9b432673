//! Whose turn it is, and what is claimed for them.

use super::Station;
use crate::clock::later;
use crate::error::Chain;
use crate::executor::is_last_chance;
use crate::runtime::desk::Free;
use crate::runtime::home::{Home, Operation};
use crate::runtime::process::Because;
use crate::runtime::shared::{PAUSE, in_time};
use crate::store::{ExecutorLimits, Lease, LeaseOwner, Run, RunFilter, RunLedger, StoreError};
use std::collections::HashMap;
use std::pin::Pin;
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
        let had_silent = !self.silent.is_empty();
        if had_silent && !Box::pin(self.release_silent()).await {
            self.home.answered(Operation::Claim, false);
            self.cool(later(Instant::now(), PAUSE));
            return;
        }
        if had_silent {
            self.home.answered(Operation::Claim, true);
        }
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
        let asked: Arc<[ExecutorLimits]> = asked.into();
        let list_anyway = std::mem::replace(&mut self.parked, true);
        let claim = claim_due(
            Arc::clone(&home),
            self.owner,
            places.len(),
            Arc::clone(&asked),
            list_anyway,
        );
        let claimed = self.claiming.insert(Box::pin(in_time(claim))).await;
        self.claiming = None;
        match claimed {
            Ok(claimed) => {
                home.answered(Operation::Claim, true);
                let new = self.not_running(claimed);
                // Leases that were claimed while this station stops remain parked, and are released with the others.
                if !self.shared.stop.is_cancelled() {
                    let (new, others_released) = self.with_one_suspect(new).await;
                    let rest_released = self.start_all(new, places, &asked).await;
                    self.parked = false;
                    self.unreleased |= !(others_released && rest_released);
                }
            }
            Err(error) => {
                home.answered(Operation::Claim, false);
                tracing::warn!(code = error.code(), error = %Chain(&error), "cannot claim runs, will retry");
                let again = later(Instant::now(), PAUSE);
                for limits in asked.iter() {
                    self.heat_at(again, Arc::clone(&limits.executor));
                }
            }
        }
    }

    /// Puts the claims of all executors off until a moment.
    fn cool(&mut self, until: Instant) {
        for executor in std::mem::take(&mut self.hot) {
            self.desk(&executor).hot = false;
            self.heat_at(until, executor);
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
    fn not_running(&mut self, mut claimed: Vec<Claimed>) -> Vec<Claimed> {
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

    /// Returns to the ledger the claimed runs that two workers died holding, except one if none runs here.
    ///
    /// Also reports whether all leases of the returned runs are released.
    ///
    /// Runs that lose a worker together are claimed again together. The one that kills must not take the others with it
    /// for the third time, so they are given back before it starts.
    async fn with_one_suspect(&mut self, mut claimed: Vec<Claimed>) -> (Vec<Claimed>, bool) {
        let is_suspect = |(lease, _): &Claimed| is_last_chance(lease.abandoned);
        let mut one_runs = self.runs.values().any(|running| running.suspect);
        let is_another =
            |run: &mut Claimed| is_suspect(run) && std::mem::replace(&mut one_runs, true);
        let others = claimed.extract_if(.., is_another).collect();
        let all_released = self.put_off(others).await;
        if !all_released {
            let one = claimed.extract_if(.., |run| is_suspect(run)).collect();
            self.put_off(one).await;
        }
        (claimed, all_released)
    }

    /// Gives claimed runs back for a while, and reports whether the ledger has taken all of them.
    async fn put_off(&mut self, runs: Vec<Claimed>) -> bool {
        let again = later(Instant::now(), PAUSE);
        for (lease, _) in &runs {
            self.heat_at(again, Arc::clone(&lease.run.executor));
        }
        let because = Because::NotNow { delay: PAUSE };
        let leases = runs.into_iter().map(|(lease, _)| (lease, because));
        self.give_back(leases.collect()).await
    }

    /// Starts claimed runs; an executor with more free places keeps its turn. Runs without a place, which can come from a claim
    /// whose reply was lost, are released. Returns `true` if the ledger accepted all of these releases.
    async fn start_all(
        &mut self,
        new: Vec<Claimed>,
        places: Vec<OwnedSemaphorePermit>,
        asked: &[ExecutorLimits],
    ) -> bool {
        let all_places_taken = new.len() >= places.len();
        let mut places = places.into_iter();
        let mut started: HashMap<Arc<str>, usize> = HashMap::new();
        let mut without_place = Vec::new();
        let mut without_executor = Vec::new();
        for claimed in new {
            let executor = Arc::clone(&claimed.0.run.executor);
            let free = asked.iter().find(|limits| limits.executor == executor);
            let free = free.map_or(0, |limits| limits.free);
            let got = started.entry(executor).or_default();
            if *got < free
                && let Some(place) = places.next()
            {
                *got += 1;
                without_executor.extend(self.start(claimed, place));
            } else {
                without_place.push(claimed);
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
        let again = later(Instant::now(), PAUSE);
        for (lease, _) in &without_place {
            self.heat_at(again, Arc::clone(&lease.run.executor));
        }
        without_place.append(&mut without_executor);
        self.give_back(dropped(without_place)).await
    }
}

/// A claimed run, with the number of its attempts.
pub(super) type Claimed = (Lease, u32);

/// A claim in flight.
pub(super) type Claiming = Pin<Box<dyn Future<Output = Result<Vec<Claimed>, StoreError>> + Send>>;

/// Returns the leases of claimed runs, to release them without an attempt.
fn dropped(claimed: Vec<Claimed>) -> Vec<(Lease, Because)> {
    let leases = claimed.into_iter().map(|(lease, _)| lease);
    leases.map(|lease| (lease, Because::Dropped)).collect()
}

/// Claims up to `n` due runs for an owner, and lists the owner's parked leases with the attempts of their runs.
async fn claim_due(
    home: Arc<Home>,
    owner: LeaseOwner,
    n: usize,
    asked: Arc<[ExecutorLimits]>,
    list_anyway: bool,
) -> Result<Vec<Claimed>, StoreError> {
    let Some(ledger) = home.ledger() else {
        return Ok(Vec::new());
    };
    if ledger.claim_next(n, &asked, owner).await? == 0 && !list_anyway {
        return Ok(Vec::new());
    }
    parked(ledger, owner).await
}

/// Lists the parked leases of an owner with the attempts of their runs.
pub(super) async fn parked(
    ledger: &dyn RunLedger,
    owner: LeaseOwner,
) -> Result<Vec<Claimed>, StoreError> {
    let parked = ledger.runs(&RunFilter::parked_by(owner)).await?;
    let lease = |run: Run| Some((run.lease?, run.attempts));
    Ok(parked.into_iter().filter_map(lease).collect())
}
