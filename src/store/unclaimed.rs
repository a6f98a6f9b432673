//! What the claim of a parked lease finds. Its row was at hand when it was leased, and until the lease is over only who
//! has the lease can change the row, so that the claim need not read it again.

use super::parked::{self, Name};
use crate::model::Timestamp;
use crate::store::{Claim, Lease, RunRef};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most claims that are kept here; others read the row.
const MOST: usize = 10_000;

/// A run that was leased.
#[derive(Clone, Debug)]
pub(in crate::store) struct Leased {
    pub(in crate::store) lease: Lease,
    /// What its claim finds. None if the row does not say where the trigger came from: it may be the executor's own.
    pub(in crate::store) claim: Option<Claim>,
}

/// By tenant and run. All handles on a file share it: who uses a lease through another handle than that in which it is
/// parked changes the row as well.
#[derive(Debug, Default)]
pub(in crate::store) struct Unclaimed(Mutex<HashMap<(Arc<str>, Name), Kept>>);

/// A run that was leased, and when by a clock that is never set.
#[derive(Debug)]
struct Kept {
    leased: Leased,
    since: Instant,
}

impl Kept {
    /// Whether its lease is not over, whatever was done to the wall clock in the meantime.
    fn holds(&self, now: Timestamp) -> bool {
        let lease = &self.leased.lease;
        now < lease.until && self.since.elapsed() < lease.run.lease
    }
}

impl Unclaimed {
    pub(in crate::store) fn add(&self, tenant: &Arc<str>, leased: &[Leased], now: Timestamp) {
        let mut kept = self.lock();
        if kept.len() + leased.len() > MOST {
            kept.retain(|_, kept| kept.holds(now));
        }
        let room = MOST.saturating_sub(kept.len());
        let known = leased.iter().filter(|leased| leased.claim.is_some());
        kept.extend(known.take(room).map(|leased| {
            let run = parked::name(&leased.lease.run);
            let kept = Kept {
                leased: leased.clone(),
                since: Instant::now(),
            };
            ((Arc::clone(tenant), run), kept)
        }));
    }

    /// What the claim of a run finds, if its lease is not over. The next one has to read.
    pub(in crate::store) fn take(
        &self,
        tenant: &Arc<str>,
        run: &RunRef,
        now: Timestamp,
    ) -> Option<Leased> {
        let kept = self.lock().remove(&(Arc::clone(tenant), parked::name(run)));
        kept.filter(|kept| kept.holds(now)).map(|kept| kept.leased)
    }

    /// A lease is about to be used, so its row will be another.
    pub(in crate::store) fn forget(&self, tenant: &Arc<str>, run: &RunRef) {
        self.lock().remove(&(Arc::clone(tenant), parked::name(run)));
    }

    /// Forgets all, when tests move a clock.
    #[cfg(all(feature = "conformance", feature = "postgres"))]
    pub(in crate::store) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Arc<str>, Name), Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BreadcrumbId;
    use crate::store::Lineage;

    /// A run of a version, leased at a moment.
    fn leased(version: u64, at: Timestamp) -> Leased {
        let run = RunRef::new("agent", BreadcrumbId::NIL, version);
        let lease = Lease::new(run, 1, at);
        let claim = Claim::Granted {
            lease: lease.clone(),
            attempt: 1,
            lineage: Lineage::origin(BreadcrumbId::NIL),
            state: None,
        };
        Leased {
            lease,
            claim: Some(claim),
        }
    }

    #[test]
    fn what_is_over_makes_room_and_what_finds_none_is_left_out() {
        let (unclaimed, tenant) = (Unclaimed::default(), Arc::from("default"));
        let begin = Timestamp::from_micros(0);
        let end = begin + RunRef::DEFAULT_LEASE;
        let all: Vec<Leased> = (1..=MOST as u64 + 1)
            .map(|one| leased(one, begin))
            .collect();
        let [first, .., last] = &all[..] else {
            panic!()
        };

        unclaimed.add(&tenant, &all, begin);
        assert!(unclaimed.take(&tenant, &last.lease.run, begin).is_none());
        assert!(unclaimed.take(&tenant, &first.lease.run, end).is_none());

        unclaimed.add(&tenant, &[leased(7, end), leased(8, end)], end);
        let run = leased(7, end).lease.run;
        assert!(unclaimed.take(&tenant, &run, end).is_some());
        assert!(unclaimed.take(&tenant, &run, end).is_none(), "only once");
    }
}
