//! Lookup of runs and breadcrumbs in a PostgreSQL transaction. The results include the changes that the transaction has made so far.

use super::begin::lock_ordering_keys;
use super::changes::Changes;
use super::facts::{FactQuery, RunFacts};
use super::row::{self, OrderingKey, RunIdentity, ordering_key_of};
use super::transaction::TenantTransaction;
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::store::RunRef;
use crate::store::durable::stored_breadcrumb::StoredBreadcrumb;
use crate::store::row::RunRow;
use crate::store::rules::{Facts, FirstOfKey};
use sqlx::AssertSqlSafe;
use std::collections::BTreeSet;

impl TenantTransaction<'_> {
    /// Locks ordering keys of runs that the transaction has not locked yet. The rows of these runs must be read again afterwards.
    pub(super) async fn lock(
        &mut self,
        mut ordering_keys: BTreeSet<OrderingKey>,
    ) -> sqlx::Result<()> {
        ordering_keys.retain(|ordering_key| !self.ordering_keys.contains(ordering_key));
        if !ordering_keys.is_empty() {
            let lock = lock_ordering_keys(self.tenant.id, &ordering_keys);
            let lock = sqlx::raw_sql(AssertSqlSafe(lock));
            lock.execute(&mut *self.connection).await?;
            self.ordering_keys.extend(ordering_keys);
            self.runs.clear();
        }
        Ok(())
    }

    /// Returns `true` if the ordering key of a run is locked, or the run has no key.
    pub(super) fn has_locked(&self, run: &RunRef) -> bool {
        ordering_key_of(run).is_none_or(|ordering_key| self.ordering_keys.contains(&ordering_key))
    }

    /// Returns the data that decides about a run's state transition, including the changes that the transaction has not written
    /// yet. Returns `None` if `locks` is `false` and enqueuing does not change the run's row.
    async fn run_facts(&mut self, run: &RunRef, locks: bool) -> sqlx::Result<Option<RunFacts>> {
        let identity = row::identity(run);
        let Some(mut run_facts) = self.look_up_run(&identity, run, locks).await? else {
            return Ok(None);
        };
        let row = run_facts.stored.as_ref().map(|stored| &stored.row.run);
        let ordering_key = ordering_key_of(row.unwrap_or(run));
        if let Some(ordering_key) = &ordering_key {
            // The ordering key of the row can differ from the key in `run`.
            let has_lock = self.ordering_keys.contains(ordering_key);
            if !has_lock {
                self.lock(BTreeSet::from([ordering_key.clone()])).await?;
            }
            let is_vacated = self.job_changes.vacated_keys.contains(ordering_key)
                || self.earlier_changes.vacated_keys.contains(ordering_key);
            if is_vacated {
                // The first run of the ordering key is known only after the changes are written.
                self.flush().await?;
            }
            if !has_lock || is_vacated {
                let again = self.look_up_run(&identity, run, locks).await?;
                let Some(again) = again else {
                    return Ok(None);
                };
                run_facts = again;
            }
            run_facts.first = self.first(ordering_key, &identity, run_facts.first);
        }
        Ok(Some(run_facts))
    }

    /// Returns the run that is first in the order of an ordering key, not counting the run `identity`. The result includes the
    /// changes that the transaction has made so far. `first` is the first row in the table.
    fn first(
        &self,
        ordering_key: &OrderingKey,
        identity: &RunIdentity,
        first: Option<FirstOfKey>,
    ) -> Option<FirstOfKey> {
        let has_joined_runs = |changes: &Changes| changes.joined_keys.contains(ordering_key);
        if !has_joined_runs(&self.job_changes) && !has_joined_runs(&self.earlier_changes) {
            return first;
        }
        let changed = self
            .job_changes
            .runs
            .iter()
            .chain(&self.earlier_changes.runs);
        let rows = changed
            .filter(|(other, _)| *other != identity)
            .map(|(_, stored)| &stored.row);
        let is_in_order = |row: &&RunRow| !row.state.is_over() && !row.is_out_of_order();
        let rows = rows.filter(|row| ordering_key_of(&row.run).as_ref() == Some(ordering_key));
        let rows = rows.filter(is_in_order).map(|row| FirstOfKey {
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

    /// Returns the facts about a run that the state transition rules need, and the serial number of the run's row in the table
    /// `ux_runs`. Locks the row.
    pub(super) async fn facts<'r>(
        &mut self,
        run: &'r RunRef,
    ) -> sqlx::Result<(Option<i64>, Facts<'r>)> {
        let run_facts = self.run_facts(run, true).await?;
        let run_facts = run_facts.ok_or(sqlx::Error::RowNotFound)?;
        Ok(self.facts_of(run, run_facts))
    }

    /// Returns the facts that the state transition rules need to enqueue a run, or `None` if the run's ledger row exists and does
    /// not change. Does not lock the row.
    pub(super) async fn enqueue_facts<'r>(
        &mut self,
        run: &'r RunRef,
    ) -> sqlx::Result<Option<(Option<i64>, Facts<'r>)>> {
        let run_facts = self.run_facts(run, false).await?;
        Ok(run_facts.map(|run_facts| self.facts_of(run, run_facts)))
    }

    fn facts_of<'r>(&self, run: &'r RunRef, run_facts: RunFacts) -> (Option<i64>, Facts<'r>) {
        let (serial, row) = match run_facts.stored {
            Some(stored) => (stored.serial, Some(stored.row)),
            None => (None, None),
        };
        let facts = Facts {
            run,
            row,
            origin: run_facts.origin,
            first: run_facts.first,
            now: self.now,
            next: self.next(),
            paused: run_facts.paused,
        };
        (serial, facts)
    }

    async fn look_up_run(
        &mut self,
        identity: &RunIdentity,
        run: &RunRef,
        locks: bool,
    ) -> sqlx::Result<Option<RunFacts>> {
        let lookup_key = row::lookup_key(run);
        let is_locked = |run_facts: &Option<RunFacts>| {
            run_facts
                .as_ref()
                .is_some_and(|run_facts| run_facts.is_locked)
        };
        if !self
            .runs
            .get(&lookup_key)
            .is_some_and(|run_facts| !locks || is_locked(run_facts))
        {
            let mut fact_query = FactQuery::default();
            match locks {
                true => fact_query.runs.push(run.clone()),
                false => fact_query.enqueued.push(run.clone()),
            }
            self.read(fact_query).await?;
        }
        let run_facts = self.runs.get(&lookup_key).ok_or(sqlx::Error::RowNotFound)?;
        let Some(mut run_facts) = run_facts.clone() else {
            return Ok(None);
        };
        let job_changes = self.job_changes.runs.get(identity);
        if let Some(stored) = job_changes.or_else(|| self.earlier_changes.runs.get(identity)) {
            run_facts.stored = Some(stored.clone());
        }
        Ok(Some(run_facts))
    }

    /// Returns a breadcrumb or its tombstone, including the changes that the transaction has made so far.
    pub(super) async fn breadcrumb(
        &mut self,
        id: BreadcrumbId,
    ) -> sqlx::Result<Option<StoredBreadcrumb>> {
        let changed = self
            .job_changes
            .replaced
            .get(&id)
            .or_else(|| self.earlier_changes.replaced.get(&id));
        if let Some(new_version) = changed {
            return Ok(Some(StoredBreadcrumb {
                row_id: (),
                breadcrumb: Breadcrumb::clone(&new_version.breadcrumb),
                deleted: new_version.is_tombstone,
            }));
        }
        if !self.breadcrumbs.contains_key(&id) {
            let fact_query = FactQuery {
                breadcrumbs: vec![id],
                ..FactQuery::default()
            };
            self.read(fact_query).await?;
        }
        Ok(self.breadcrumbs.get(&id).cloned().flatten())
    }
}
