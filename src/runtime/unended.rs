//! Deliveries whose runs are in a ledger that ends with the process, acknowledged when the runs have ended.
//!
//! A crash loses such a ledger, so the source has to deliver the event again. With a ledger that outlives the process, a
//! delivery is settled as soon as its runs are in the ledger.

use super::enlist::Arrival;
use super::home::Home;
use super::roster::Roster;
use super::share::Share;
use super::shared::PAUSE;
use crate::store::{RunRef, Standing};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shares of deliveries by the run that they wait for. Their number is bounded by the places for deliveries.
pub(super) struct Unended {
    home: Arc<Home>,
    shares: Mutex<HashMap<RunRef, Vec<Share>>>,
}

impl Unended {
    pub(super) fn new(home: Arc<Home>) -> Self {
        let shares = Mutex::default();
        Self { home, shares }
    }

    pub(super) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// Takes over a delivery whose runs are in the ledger.
    pub(super) fn hold(&self, arrival: Arrival) {
        let Arrival { share, executors } = arrival;
        if !self.home.runs().is_durable() {
            let event = share.event();
            for candidate in executors {
                let run = RunRef::new(candidate.id, event.breadcrumb_id, event.version);
                let mut shares = self.shares();
                shares.entry(run.clone()).or_default().push(share.another());
                drop(shares);
                // It may have ended before.
                if self.home.runs().standing(&run) == Standing::Over {
                    self.settle(&run);
                }
            }
        }
        share.settle();
    }

    /// Notes that an attempt of a run has ended. Settles the deliveries of an ended run. If the run waits for a retry, its
    /// deliveries are requested again when the run is due, because a source may limit the time for an acknowledgement.
    pub(super) fn attempted(&self, run: &RunRef) {
        if !self.shares().contains_key(run) {
            return;
        }
        match self.home.runs().standing(run) {
            Standing::Over => self.settle(run),
            Standing::Later(delay) => {
                for share in self.take(run) {
                    share.again(delay.max(PAUSE));
                }
            }
            Standing::Due | Standing::Running => {}
        }
    }

    /// Settles the deliveries of all runs that have ended, whichever worker or call ended them, and of runs that will not start
    /// because their executor was removed. If the executor moved to another store, the delivery is requested again.
    pub(super) fn review(&self, roster: &Roster) {
        let held: Vec<RunRef> = self.shares().keys().cloned().collect();
        for run in held {
            let member = roster.get(&run.executor);
            let is_here = member.map(|member| member.home.number == self.home.number);
            match (self.home.runs().standing(&run), is_here) {
                (Standing::Over, _) | (Standing::Later(_) | Standing::Due, None) => {
                    self.settle(&run);
                }
                // The executor moved to another store, whose ledger does not have the run.
                (Standing::Later(_) | Standing::Due, Some(false)) => {
                    for share in self.take(&run) {
                        share.again(PAUSE);
                    }
                }
                (Standing::Later(_) | Standing::Due, Some(true)) | (Standing::Running, _) => {}
            }
        }
    }

    fn settle(&self, run: &RunRef) {
        self.take(run).into_iter().for_each(Share::settle);
    }

    fn take(&self, run: &RunRef) -> Vec<Share> {
        self.shares().remove(run).unwrap_or_default()
    }

    fn shares(&self) -> MutexGuard<'_, HashMap<RunRef, Vec<Share>>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
