//! The rows of parked leases. They were at hand when they were leased, and until a lease is over only who has it can change
//! its row, so that neither who lists them nor who claims one need read it again.

use super::parked::{self, Name};
use super::row::Row;
use crate::model::Timestamp;
use crate::store::RunRef;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most rows that are kept here; others are read.
const MOST: usize = 10_000;

/// By tenant and run. All handles on a file share it: who uses a lease through another handle than that in which it is
/// parked changes the row as well.
#[derive(Debug, Default)]
pub(in crate::store) struct Unclaimed(Mutex<HashMap<(Arc<str>, Name), Kept>>);

/// A row that was leased, and when by a clock that is never set.
#[derive(Debug)]
struct Kept {
    row: Row,
    since: Instant,
}

impl Kept {
    /// Whether its lease is not over, whatever was done to the wall clock in the meantime.
    fn holds(&self, now: Timestamp) -> bool {
        let is_due = self.row.due.is_none_or(|due| due <= now);
        !is_due && self.since.elapsed() < self.row.run.lease
    }
}

impl Unclaimed {
    /// Keeps rows that were leased, not before a moment. What does not say where its trigger came from is left out: it may be the
    /// executor's own, and who claims it has to read.
    pub(in crate::store) fn add(
        &self,
        tenant: &Arc<str>,
        leased: &[Row],
        now: Timestamp,
        since: Instant,
    ) {
        let mut kept = self.lock();
        if kept.len() + leased.len() > MOST {
            kept.retain(|_, kept| kept.holds(now));
        }
        let room = MOST.saturating_sub(kept.len());
        let known = leased.iter().filter(|row| row.lineage.is_some());
        kept.extend(known.take(room).map(|row| {
            let (run, row) = (parked::name(&row.run), row.clone());
            ((Arc::clone(tenant), run), Kept { row, since })
        }));
    }

    /// The row of a run, if its lease is not over. The next one has to read.
    pub(in crate::store) fn take(
        &self,
        tenant: &Arc<str>,
        run: &RunRef,
        now: Timestamp,
    ) -> Option<Row> {
        let kept = self.lock().remove(&(Arc::clone(tenant), parked::name(run)));
        kept.filter(|kept| kept.holds(now)).map(|kept| kept.row)
    }

    /// The rows of these leases by token and epoch; none if one is not here, or is over.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn all(
        &self,
        tenant: &Arc<str>,
        leases: &HashMap<Name, (u64, u32)>,
        now: Timestamp,
    ) -> Option<Vec<Row>> {
        let kept = self.lock();
        let row = |(name, lease): (&Name, &(u64, u32))| {
            let kept = kept.get(&(Arc::clone(tenant), name.clone()))?;
            let is_it = (kept.row.token, kept.row.epoch) == *lease;
            (is_it && kept.holds(now)).then(|| kept.row.clone())
        };
        leases.iter().map(row).collect()
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

    /// The row of a run of a version, leased at a moment.
    fn leased(version: u64, at: Timestamp) -> Row {
        let run = RunRef::new("agent", BreadcrumbId::NIL, version);
        let lineage = Lineage::origin(BreadcrumbId::NIL);
        let mut row = Row::new(run, version, Some(lineage), at);
        row.grant(row.run.lease, at);
        row.due = Some(at + row.run.lease);
        row
    }

    #[test]
    fn what_is_over_makes_room_and_what_finds_none_is_left_out() {
        let (unclaimed, tenant) = (Unclaimed::default(), Arc::from("default"));
        let begin = Timestamp::from_micros(0);
        let end = begin + RunRef::DEFAULT_LEASE;
        let all: Vec<Row> = (1..=MOST as u64 + 1)
            .map(|one| leased(one, begin))
            .collect();
        let [first, .., last] = &all[..] else {
            panic!()
        };

        unclaimed.add(&tenant, &all, begin, Instant::now());
        assert!(unclaimed.take(&tenant, &last.run, begin).is_none());
        assert!(unclaimed.take(&tenant, &first.run, end).is_none());

        unclaimed.add(
            &tenant,
            &[leased(7, end), leased(8, end)],
            end,
            Instant::now(),
        );
        let run = leased(7, end).run;
        assert!(unclaimed.take(&tenant, &run, end).is_some());
        assert!(unclaimed.take(&tenant, &run, end).is_none(), "only once");
    }
}
