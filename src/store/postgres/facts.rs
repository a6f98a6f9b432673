//! Facts that the jobs of a transaction read: rows of runs, ordering keys and breadcrumbs.

use super::begin::lock_lines;
use super::changes::{Changes, Line, line_of};
use super::row::{self, Asked, Kept, Name};
use super::table;
use super::writing::Writing;
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::store::RunRef;
use crate::store::durable::found::Found;
use crate::store::row::{Origin, Row};
use crate::store::rules::{Facts, First};
use sqlx::AssertSqlSafe;
use std::collections::BTreeSet;

/// Facts that jobs need, which are read for all jobs of a transaction at once. Others are read when a job needs them.
#[derive(Default)]
pub(super) struct Wanted {
    /// Runs whose rows are locked.
    pub(super) runs: Vec<RunRef>,
    /// Runs whose rows are not locked.
    pub(super) seen: Vec<RunRef>,
    /// Ordering keys that are locked.
    pub(super) lines: BTreeSet<Line>,
    pub(super) breadcrumbs: Vec<BreadcrumbId>,
}

impl Wanted {
    /// Adds a run whose row is locked, with its ordering key.
    pub(super) fn run(&mut self, run: &RunRef) {
        self.lines.extend(line_of(run));
        self.runs.push(run.clone());
    }

    /// Adds a run whose row is not locked, with its ordering key.
    pub(super) fn seen(&mut self, run: &RunRef) {
        self.lines.extend(line_of(run));
        self.seen.push(run.clone());
    }

    /// Removes runs that are locked from the others.
    pub(super) fn dedup(&mut self) {
        if !self.runs.is_empty() && !self.seen.is_empty() {
            let locked: BTreeSet<Asked> = self.runs.iter().map(row::asked).collect();
            self.seen.retain(|run| !locked.contains(&row::asked(run)));
        }
    }
}

/// Facts of a run.
#[derive(Clone)]
pub(super) struct Known {
    /// Its row, if there is one.
    pub(super) kept: Option<Kept>,
    /// Origin of its trigger.
    pub(super) origin: Origin,
    /// The first other row with its ordering key.
    pub(super) first: Option<First>,
    /// If `true`, no other transaction changes the row until this one ends.
    pub(super) is_locked: bool,
}

impl Writing<'_> {
    /// Reads the wanted runs and breadcrumbs.
    pub(super) async fn read(&mut self, wanted: Wanted) -> sqlx::Result<()> {
        for (runs, locks) in [(wanted.runs, true), (wanted.seen, false)] {
            if !runs.is_empty() {
                let known = row::facts(self.connection, self.tenant.id, runs, locks).await?;
                self.runs.extend(known);
            }
        }
        if !wanted.breadcrumbs.is_empty() {
            let ids = wanted.breadcrumbs;
            let found = table::find(self.connection, self.tenant.id, &ids, true).await?;
            self.breadcrumbs
                .extend(ids.into_iter().map(|id| (id, None)));
            let found = found
                .into_iter()
                .map(|found| (found.breadcrumb.id, Some(found)));
            self.breadcrumbs.extend(found);
        }
        Ok(())
    }

    /// Locks ordering keys that are not locked yet. Their facts have to be read afterwards.
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

    /// Reports whether the ordering key of a run is locked.
    pub(super) fn has_locked(&self, run: &RunRef) -> bool {
        line_of(run).is_none_or(|line| self.lines.contains(&line))
    }

    /// Returns the facts of a run, with the changes of the jobs so far.
    async fn known(&mut self, run: &RunRef, locks: bool) -> sqlx::Result<Known> {
        let name = row::name(run);
        let mut known = self.look_up(&name, run, locks).await?;
        let row = known.kept.as_ref().map(|kept| &kept.row.run);
        let line = line_of(row.unwrap_or(run));
        if let Some(line) = &line {
            // The row can have another ordering key than the caller named.
            if !self.lines.contains(line) {
                self.lock(BTreeSet::from([line.clone()])).await?;
                known = self.look_up(&name, run, locks).await?;
            }
            if self.own.left.contains(line) || self.earlier.left.contains(line) {
                // The first run of the ordering key is known once the changes are written.
                self.flush().await?;
                known = self.look_up(&name, run, locks).await?;
            }
            known.first = self.first(line, &name, known.first);
        }
        Ok(known)
    }

    /// The first other row in a line, as the jobs so far have left it. `first` is the first one in the table.
    fn first(&self, line: &Line, name: &Name, first: Option<First>) -> Option<First> {
        let has_joined = |changes: &Changes| changes.joined.contains(line);
        if !has_joined(&self.own) && !has_joined(&self.earlier) {
            return first;
        }
        let changed = self.own.runs.iter().chain(&self.earlier.runs);
        let rows = changed
            .filter(|(other, _)| *other != name)
            .map(|(_, kept)| &kept.row);
        let stands = |row: &&Row| !row.state.is_over() && !row.is_aside();
        let rows = rows.filter(|row| line_of(&row.run).as_ref() == Some(line));
        let rows = rows.filter(stands).map(|row| First {
            sequence: row.sequence,
            due: row.due,
            lease: row.run.lease,
        });
        // A row that a job has changed replaces the one in the table.
        let earliest = rows.min_by_key(|row| row.sequence);
        let of_table = first
            .filter(|first| earliest.is_none_or(|earliest| first.sequence < earliest.sequence));
        of_table.or(earliest)
    }

    /// Returns the facts of a run for the rules, and the serial of its row, which is locked.
    pub(super) async fn facts<'r>(
        &mut self,
        run: &'r RunRef,
    ) -> sqlx::Result<(Option<i64>, Facts<'r>)> {
        let known = self.known(run, true).await?;
        Ok(self.facts_of(run, known))
    }

    /// Returns the facts of a run for a decision that may change nothing. Its row is not locked.
    pub(super) async fn seen<'r>(
        &mut self,
        run: &'r RunRef,
    ) -> sqlx::Result<(Option<i64>, Facts<'r>)> {
        let known = self.known(run, false).await?;
        Ok(self.facts_of(run, known))
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
        };
        (serial, facts)
    }

    async fn look_up(&mut self, name: &Name, run: &RunRef, locks: bool) -> sqlx::Result<Known> {
        let asked = row::asked(run);
        let is_read = |known: &Known| known.is_locked || !locks;
        if !self.runs.get(&asked).is_some_and(is_read) {
            let mut wanted = Wanted::default();
            match locks {
                true => wanted.runs.push(run.clone()),
                false => wanted.seen.push(run.clone()),
            }
            self.read(wanted).await?;
        }
        let known = self.runs.get(&asked);
        let mut known = known.cloned().ok_or(sqlx::Error::RowNotFound)?;
        let own = self.own.runs.get(name);
        if let Some(kept) = own.or_else(|| self.earlier.runs.get(name)) {
            known.kept = Some(kept.clone());
        }
        Ok(known)
    }

    /// A breadcrumb or its tombstone, as the jobs so far have left it.
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
