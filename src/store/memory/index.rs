//! Indexes of the rows of a tenant's run ledger, for example by due time, by ordering key and by trigger.

use crate::model::{BreadcrumbId, Timestamp};
use crate::store::row::RunRow;
use crate::store::{RunRef, RunState};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Number of executors in the index of due rows above which the index forgets an executor when it removes the executor's last
/// row. Other executors retain their memory for the next due row.
const MOST_IDLE: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Index {
    /// Ledger rows that can be claimed at their due time, by executor. Each row has no ordering key, or is the first row of its
    /// ordering key.
    due: HashMap<Arc<str>, BTreeMap<(Timestamp, u64), RunRef>, RandomState>,
    /// Ledger rows that have a position in the order of their ordering key. Ended runs, and transferred runs that left this
    /// order, have none.
    keys: BTreeMap<Position, RunRef>,
    /// Rows of suspended runs, by the ID of their trigger.
    suspended: HashMap<BreadcrumbId, BTreeMap<u64, RunRef>, RandomState>,
    /// Rows of all suspended runs, by their sequence number.
    suspended_by_sequence: BTreeMap<u64, RunRef>,
    /// Ledger rows of the runs that wait for a worker with another executor version, by executor ID and this version.
    transferred: HashMap<(Arc<str>, Arc<str>), BTreeMap<u64, RunRef>>,
    /// Rows of ended runs, oldest first.
    ended: BTreeMap<u64, RunRef>,
}

/// Position of a row in the order of its ordering key: executor ID, ordering key and sequence number.
type Position = (Arc<str>, Arc<str>, u64);

impl Index {
    /// Replaces a run's row in all indexes of the tenant's run ledger. `before` is `None` for a new row, `after` for a removed
    /// row.
    pub(super) fn replace(&mut self, before: Option<&RunRow>, after: Option<&RunRow>) {
        let of = after.or(before);
        let Some(run) = of.map(|row| &row.run) else {
            return;
        };
        let (old, new) = (before.and_then(due), after.and_then(due));
        if old != new {
            self.set_due(run, old, new);
        }
        let (old, new) = (before.and_then(position), after.and_then(position));
        if old != new {
            old.map(|old| self.keys.remove(&old));
            new.map(|new| self.keys.insert(new, run.clone()));
        }
        let (old, new) = (
            before.and_then(suspended_sequence),
            after.and_then(suspended_sequence),
        );
        if old != new {
            self.set_suspended(run, old, new);
        }
        let (old, new) = (before.and_then(transfer), after.and_then(transfer));
        if old != new {
            self.set_transferred(run, old, new);
        }
        let over = |row: &RunRow| row.over;
        let (old, new) = (before.and_then(over), after.and_then(over));
        if old != new {
            old.map(|old| self.ended.remove(&old));
            new.map(|new| self.ended.insert(new, run.clone()));
        }
    }

    fn set_due(
        &mut self,
        run: &RunRef,
        old: Option<(Timestamp, u64)>,
        new: Option<(Timestamp, u64)>,
    ) {
        let by_time = match self.due.get_mut(&run.executor) {
            Some(by_time) => by_time,
            None => self.due.entry(Arc::clone(&run.executor)).or_default(),
        };
        old.map(|old| by_time.remove(&old));
        new.map(|new| by_time.insert(new, run.clone()));
        if by_time.is_empty() && self.due.len() > MOST_IDLE {
            self.due.remove(&run.executor);
        }
    }

    fn set_suspended(&mut self, run: &RunRef, old: Option<u64>, new: Option<u64>) {
        let of_trigger = self.suspended.entry(run.trigger_id).or_default();
        old.map(|old| {
            (
                of_trigger.remove(&old),
                self.suspended_by_sequence.remove(&old),
            )
        });
        new.map(|new| {
            of_trigger.insert(new, run.clone());
            self.suspended_by_sequence.insert(new, run.clone())
        });
        if of_trigger.is_empty() {
            self.suspended.remove(&run.trigger_id);
        }
    }

    fn set_transferred(
        &mut self,
        run: &RunRef,
        old: Option<(Arc<str>, u64)>,
        new: Option<(Arc<str>, u64)>,
    ) {
        let key = |version| (Arc::clone(&run.executor), version);
        if let Some((version, sequence)) = old {
            let key = key(version);
            if let Some(waiting) = self.transferred.get_mut(&key) {
                waiting.remove(&sequence);
                if waiting.is_empty() {
                    self.transferred.remove(&key);
                }
            }
        }
        if let Some((version, sequence)) = new {
            let waiting = self.transferred.entry(key(version)).or_default();
            waiting.insert(sequence, run.clone());
        }
    }

    /// Returns an executor's due run with the earliest due time, or `None` without a due run.
    pub(super) fn first_due(&self, executor: &str, now: Timestamp) -> Option<&RunRef> {
        let (&(due, _), run) = self.due.get(executor)?.first_key_value()?;
        (due <= now).then_some(run)
    }

    /// Returns the runs with the ordering key of `run`, each with the sequence number of its row. The runs are in the order of
    /// the ordering key.
    pub(super) fn with_ordering_key(&self, run: &RunRef) -> impl Iterator<Item = (u64, &RunRef)> {
        let key = run.order.as_ref();
        let range = key.map(|key| {
            let position = |sequence| (Arc::clone(&run.executor), Arc::clone(key), sequence);
            self.keys.range(position(0)..=position(u64::MAX))
        });
        let rows = range.into_iter().flatten();
        rows.map(|((.., sequence), run)| (*sequence, run))
    }

    /// Returns the suspended runs of one trigger, or of all triggers.
    pub(super) fn suspended(
        &self,
        on: Option<BreadcrumbId>,
    ) -> Box<dyn Iterator<Item = &RunRef> + '_> {
        match on {
            Some(trigger) => Box::new(
                self.suspended
                    .get(&trigger)
                    .into_iter()
                    .flat_map(BTreeMap::values),
            ),
            None => Box::new(self.suspended_by_sequence.values()),
        }
    }

    /// Returns the suspended runs whose sequence numbers are below `end`, the highest number first. Returns all suspended runs if
    /// `end` is `None`.
    pub(super) fn suspended_before(&self, end: Option<u64>) -> impl Iterator<Item = &RunRef> {
        let before = self.suspended_by_sequence.range(..end.unwrap_or(u64::MAX));
        before.rev().map(|(_, run)| run)
    }

    /// Returns two lists of runs that an executor version can accept: runs transferred to this version, and runs transferred to
    /// other versions. The runs of the second list left the order of their ordering keys, and can be accepted when they are due.
    /// Both lists are in the order of the runs' sequence numbers.
    pub(super) fn transferred<'i>(
        &'i self,
        version: &'i (Arc<str>, Arc<str>),
    ) -> (
        impl Iterator<Item = (u64, &'i RunRef)>,
        impl Iterator<Item = (u64, &'i RunRef)>,
    ) {
        let own = self.transferred.get(version).into_iter().flatten();
        let others = self.transferred.iter();
        let others = others.filter(|(other, _)| other.0 == version.0 && other.1 != version.1);
        let others = others.flat_map(|(_, waiting)| waiting.range(super::OUT_OF_ORDER..));
        (
            own.map(|(sequence, run)| (*sequence, run)),
            others.map(|(sequence, run)| (*sequence, run)),
        )
    }

    /// Returns the run that ended first, if more than `keep` runs have ended.
    pub(super) fn oldest_ended(&self, keep: usize) -> Option<&RunRef> {
        let oldest = self.ended.first_key_value().map(|(_, run)| run);
        oldest.filter(|_| self.ended.len() > keep)
    }
}

fn due(row: &RunRow) -> Option<(Timestamp, u64)> {
    let due = row.due.filter(|_| row.head)?;
    Some((due, row.sequence))
}

fn position(row: &RunRow) -> Option<Position> {
    let key = row.run.order.as_ref()?;
    let has_position = !row.state.is_over() && !row.is_out_of_order();
    has_position.then(|| (Arc::clone(&row.run.executor), Arc::clone(key), row.sequence))
}

fn suspended_sequence(row: &RunRow) -> Option<u64> {
    (row.state == RunState::Suspended).then_some(row.sequence)
}

fn transfer(row: &RunRow) -> Option<(Arc<str>, u64)> {
    let version = row.transferred_to()?;
    Some((version.into(), row.sequence))
}
