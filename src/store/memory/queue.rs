//! Rows that can be claimed next: they have a time, and no other row of their ordering key is before them. Rows that left
//! their line wait until they join it again.

use crate::model::Timestamp;
use crate::store::RunRef;
use crate::store::row::Row;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Rows that will be due and stand first in their line or in none, by executor.
    due: HashMap<Arc<str>, BTreeMap<(Timestamp, u64), RunRef>>,
    /// Rows with an ordering key that are not over: line after line, each in the order in which they joined.
    lines: BTreeMap<Place, RunRef>,
}

/// Executor, ordering key and sequence.
type Place = (Arc<str>, Arc<str>, u64);

impl Queue {
    /// Puts a row with a new sequence at the end of its line.
    pub(super) fn join(&mut self, row: &Row) {
        if let Some(place) = place(row, row.sequence) {
            self.lines.insert(place, row.run.clone());
        }
    }

    /// Takes a row that is not due out of its line, and says which is the first there now.
    pub(super) fn leave(&mut self, row: &Row) -> Option<RunRef> {
        self.lines.remove(&place(row, row.sequence)?);
        self.first(row).cloned()
    }

    /// The first row in the line of another, if that is not the first itself.
    pub(super) fn ahead(&self, row: &Row) -> Option<&RunRef> {
        self.first(row).filter(|first| **first != row.run)
    }

    /// Sets when a row is due.
    pub(super) fn set(&mut self, row: &mut Row, due: Option<Timestamp>) {
        let waits = due.filter(|_| !row.is_aside() && self.ahead(row).is_none());
        let by_time = match self.due.get_mut(&row.run.executor) {
            Some(by_time) => by_time,
            None => self.due.entry(Arc::clone(&row.run.executor)).or_default(),
        };
        if let Some(before) = row.due {
            by_time.remove(&(before, row.sequence));
        }
        row.due = due;
        if let Some(due) = waits {
            by_time.insert((due, row.sequence), row.run.clone());
        } else if by_time.is_empty() {
            self.due.remove(&row.run.executor);
        }
    }

    /// The row of an executor that has been due for the longest time.
    pub(super) fn first_due(&self, executor: &str, now: Timestamp) -> Option<RunRef> {
        let (&(due, _), run) = self.due.get(executor)?.first_key_value()?;
        (due <= now).then(|| run.clone())
    }

    /// The first row in the line of a row.
    fn first(&self, row: &Row) -> Option<&RunRef> {
        let line = place(row, 0)?..=place(row, u64::MAX)?;
        self.lines.range(line).next().map(|(_, run)| run)
    }
}

/// A place in the line of a row, if that has an ordering key.
fn place(row: &Row, sequence: u64) -> Option<Place> {
    let order = row.run.order.as_ref()?;
    Some((Arc::clone(&row.run.executor), Arc::clone(order), sequence))
}
