//! Lookup of runs and breadcrumbs in a PostgreSQL transaction. The results include the changes of the transaction's jobs so far.

use super::begin::lock_lines;
use super::changes::Changes;
use super::facts::{Known, Wanted};
use super::row::{self, Line, Name, line_of};
use super::writing::Writing;
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::store::RunRef;
use crate::store::durable::found::Found;
use crate::store::row::RunRow;
use crate::store::rules::{Facts, FirstOfKey};
use sqlx::AssertSqlSafe;
use std::collections::BTreeSet;

impl Writing<'_> {
    /// Locks ordering keys of runs that the transaction has not locked yet. Their facts must be read again afterwards.
    pub(super) async fn lock(&mut self, mut lines: BTreeSet<Line>) -> sqlx::Result<()> {
        lines.retain(|line| !self.lines.contains(line));
        if !lines.is_empty() {
            let lock = lock_lines(self.tenant.id, &lines);
            let lock = sqlx::raw_sql(AssertSqlSafe(lock));
            lock.execute(&mut *self.connection).await?;
            self.lines.extend(lines);
            self.runs.clear();
        }
        Ok(())
    }

    /// Returns `true` if the ordering key of a run is locked, or the run has no key.
    pub(super) fn has_locked(&self, run: &RunRef) -> bool {
        line_of(run).is_none_or(|line| self.lines.contains(&line))
    }

    /// Returns a run's ledger row and related facts, including the changes of the transaction's jobs so far. Returns `None` if `locks` is
    /// `false` and enqueuing does not change the run's row.
    async fn known(&mut self, run: &RunRef, locks: bool) -> sqlx::Result<Option<Known>> {
        let name = row::name(run);
        let Some(mut known) = self.look_up(&name, run, locks).await? else {
            return Ok(None);
        };
        let row = known.kept.as_ref().map(|kept| &kept.row.run);
        let line = line_of(row.unwrap_or(run));
        if let Some(line) = &line {
            // The ordering key of the row can differ from the key in `run`.
            let has_lock = self.lines.contains(line);
            if !has_lock {
                self.lock(BTreeSet::from([line.clone()])).await?;
            }
            let is_left = self.own.left.contains(line) || self.earlier.left.contains(line);
            if is_left {
                // The first run of the ordering key is known only after the changes are written.
                self.flush().await?;
            }
            if !has_lock || is_left {
                let again = self.look_up(&name, run, locks).await?;
                let Some(again) = again else {
                    return Ok(None);
                };
                known = again;
            }
            known.first = self.first(line, &name, known.first);
        }
        Ok(Some(known))
    }

    /// Returns the first run in the order of an ordering key, not counting the run `name`. The result includes the changes of the
    /// transaction's jobs so far. `first` is the first row in the table.
    fn first(&self, line: &Line, name: &Name, first: Option<FirstOfKey>) -> Option<FirstOfKey> {
        let has_joined = |changes: &Changes| changes.joined.contains(line);
        if !has_joined(&self.own) && !has_joined(&self.earlier) {
            return first;
        }
        let changed = self.own.runs.iter().chain(&self.earlier.runs);
        let rows = changed
            .filter(|(other, _)| *other != name)
            .map(|(_, kept)| &kept.row);
        let stands = |row: &&RunRow| !row.state.is_over() && !row.is_out_of_order();
        let rows = rows.filter(|row| line_of(&row.run).as_ref() == Some(line));
        let rows = rows.filter(stands).map(|row| FirstOfKey {
            sequence: row.sequence,
            due: row.due,
            lease: row.run.lease,
        });
        // A row that a job has changed replaces the row in the table.
        let earliest = rows.min_by_key(|row| row.sequence);
        let of_table = first
            .filter(|first| earliest.is_none_or(|earliest| first.sequence < earliest.sequence));
        of_table.or(earliest)
    }

    /// Returns a run's facts for the rules of state transitions, and the serial number of the run's ledger row. Locks the ledger row.
    pub(super) async fn facts<'r>(
        &mut self,
        run: &'r RunRef,
    ) -> sqlx::Result<(Option<i64>, Facts<'r>)> {
        let known = self.known(run, true).await?;
        let known = known.ok_or(sqlx::Error::RowNotFound)?;
        Ok(self.facts_of(run, known))
    }

    /// Returns the facts of a run to be enqueued, or `None` if its ledger row exists and does not change. Does not lock the row.
    pub(super) async fn seen<'r>(
        &mut self,
        run: &'r RunRef,
    ) -> sqlx::Result<Option<(Option<i64>, Facts<'r>)>> {
        let known = self.known(run, false).await?;
        Ok(known.map(|known| self.facts_of(run, known)))
    }

    fn facts_of<'r>(&self, run: &'r RunRef, known: Known) -> (Option<i64>, Facts<'r>) {
        let (serial, row) = match known.kept {
            Some(kept) => (kept.serial, Some(kept.row)),
            None => (None, None),
        };
        let facts = Facts {
            run,
            row,
            origin: known.origin,
            first: known.first,
            now: self.now,
            next: self.next(),
            paused: known.paused,
        };
        (serial, facts)
    }

    async fn look_up(
        &mut self,
        name: &Name,
        run: &RunRef,
        locks: bool,
    ) -> sqlx::Result<Option<Known>> {
        let asked = row::asked(run);
        let is_locked = |known: &Option<Known>| known.as_ref().is_some_and(|known| known.is_locked);
        if !self
            .runs
            .get(&asked)
            .is_some_and(|known| !locks || is_locked(known))
        {
            let mut wanted = Wanted::default();
            match locks {
                true => wanted.runs.push(run.clone()),
                false => wanted.seen.push(run.clone()),
            }
            self.read(wanted).await?;
        }
        let known = self.runs.get(&asked).ok_or(sqlx::Error::RowNotFound)?;
        let Some(mut known) = known.clone() else {
            return Ok(None);
        };
        let own = self.own.runs.get(name);
        if let Some(kept) = own.or_else(|| self.earlier.runs.get(name)) {
            known.kept = Some(kept.clone());
        }
        Ok(Some(known))
    }

    /// Returns a breadcrumb or its tombstone, including the changes of the transaction's jobs so far.
    pub(super) async fn breadcrumb(&mut self, id: BreadcrumbId) -> sqlx::Result<Option<Found>> {
        let changed = self
            .own
            .replaced
            .get(&id)
            .or_else(|| self.earlier.replaced.get(&id));
        if let Some(written) = changed {
            return Ok(Some(Found {
                row: (),
                breadcrumb: Breadcrumb::clone(&written.breadcrumb),
                deleted: written.is_tombstone,
            }));
        }
        if !self.breadcrumbs.contains_key(&id) {
            let wanted = Wanted {
                breadcrumbs: vec![id],
                ..Wanted::default()
            };
            self.read(wanted).await?;
        }
        Ok(self.breadcrumbs.get(&id).cloned().flatten())
    }
}
