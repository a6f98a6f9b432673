//! The state of a PostgreSQL transaction while its jobs (store operations) run: rows that were read, and changes that are not written yet.
//!
//! Jobs change this state in memory, and one statement at the end writes all changes. A commit therefore takes two round trips, and a batch
//! of jobs takes no more. The rows that all jobs need are read at the beginning. A rejected job has written nothing, so the other jobs of
//! its batch are not affected.
//!
//! Only the last message, which writes and commits, locks the tenant's row. The lock is held for longer if a limit is near, if the changes
//! do not fit into a message, or if a job queries the tables after another job changed them. Until the lock is taken, the transaction does
//! not know its position in the commit order. Times and sequence numbers are therefore [with_provisional_values](tenant::with_provisional_values), and counters change by
//! differences.

use super::begin::{self, LimitedAdditions, lock_tenant_row};
use super::builder::PostgresLimits;
use super::changes::Changes;
use super::commit_position::{
    CommitMarker, CommitPosition, FinalMessage, ReadyToCommit, TransactionId,
};
use super::facts::{FactQuery, RunFacts};
use super::pgvector::Pgvector;
use super::prepared;
use super::queue;
use super::request_keys::{self, RequestKey};
use super::round_trip::RoundTrip;
use super::row::{self, OrderingKey, RunLookupKey, StoredRun, ordering_key_of};
use super::table::NewVersion;
use super::tenant::{self, TenantHandle};
use crate::bugs::planted;
use crate::model::{Breadcrumb, BreadcrumbId, Event, Timestamp};
use crate::store::StoreError;
use crate::store::durable::stored_breadcrumb::{BreadcrumbWriter, StoredBreadcrumb};
use crate::store::durable::tenant::{StoreClock, Tenant};
use crate::store::request::{RecordedKey, ValidRequest};
use crate::store::rules::RowChange;
use sqlx::{AssertSqlSafe, PgConnection};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// Accuracy of the tenant's counters in a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Counters {
    /// The tenant's counters were read without a lock, so they can be outdated.
    Read,
    /// The tenant's counters were read without a lock, and a job (store operation) found a limit reached. The transaction must be repeated
    /// with the tenant's row locked.
    Exceeded,
    /// The tenant's row is locked, so the counters are exact.
    Exact,
}

/// Parts of a PostgreSQL store that a transaction uses.
#[derive(Clone, Copy)]
pub(super) struct StoreParts<'s> {
    pub(super) limits: &'s PostgresLimits,
    /// The PostgreSQL extension for vectors, or `None` if the store's schema has no tables for vectors.
    pub(super) pgvector: Option<&'s Pgvector>,
    pub(super) clock: &'s StoreClock,
    pub(super) round_trip: &'s RoundTrip,
}

/// State of an open PostgreSQL transaction, which its jobs (store operations) read and change.
pub(super) struct TenantTransaction<'t> {
    pub(super) connection: &'t mut PgConnection,
    pub(super) limits: &'t PostgresLimits,
    /// The PostgreSQL extension for vectors, or `None` if the store's schema has no tables for vectors.
    pgvector: Option<&'t Pgvector>,
    /// Name of the tenant of the transaction.
    pub(super) name: &'t str,
    clock: &'t StoreClock,
    /// Tenant's row (counters and event positions) with the changes of the transaction's jobs (store operations) so far.
    pub(super) tenant: Tenant,
    pub(super) now: Timestamp,
    /// If `true`, at least one breadcrumb of the tenant has expired.
    pub(super) has_expired: bool,
    transaction_id: TransactionId,
    pub(super) counters: Counters,
    /// Event position that the bug `late-committer`, which tests inject, assigned before the transaction locked the tenant's row. `None`
    /// without the bug.
    early_position: Option<i64>,
    /// Tenant's row as the transaction last wrote it to the database.
    written_tenant: Tenant,
    /// Copy of the tenant's row from the start of the transaction's current job (store operation), restored if the job's changes
    /// are dropped.
    tenant_before_job: Tenant,
    /// Ordering keys of runs that the transaction has locked.
    pub(super) ordering_keys: BTreeSet<OrderingKey>,
    /// Data that decides about the state transitions of runs, for each run that the transaction has read. `None` for a run to be
    /// enqueued whose row exists and does not change.
    pub(super) runs: HashMap<RunLookupKey, Option<RunFacts>>,
    pub(super) breadcrumbs: HashMap<BreadcrumbId, Option<StoredBreadcrumb>>,
    /// Ledger records of earlier requests that had the same idempotency keys as requests of this transaction. `None` for a new
    /// key.
    pub(super) requests: BTreeMap<RequestKey, Option<RecordedKey>>,
    /// Earliest time at which one of the tenant's idempotency keys was added or last checked for deletion, as read at the start
    /// of the transaction. Known only if the transaction executes a request for a run.
    pub(super) oldest_key: Option<Timestamp>,
    /// Changes that earlier jobs (store operations) of the transaction made, and that are not written to the tables yet.
    pub(super) earlier_changes: Changes,
    /// Changes that the transaction's current job (store operation) made, and that are not written to the tables yet.
    pub(super) job_changes: Changes,
    /// If `true`, the transaction's current job (store operation) has changed the tables, so its changes cannot be dropped in memory.
    has_changed_tables: bool,
    /// If `true`, the transaction has already deleted the tenant's old idempotency keys whose runs are no longer in the ledger.
    pub(super) has_swept_keys: bool,
    commit_positions: Vec<(CommitPosition, Vec<Event>)>,
}

impl<'t> TenantTransaction<'t> {
    /// Begins a PostgreSQL transaction, and reads the rows that its jobs (store operations) need. With `locks`, locks the tenant's row as
    /// well. An error leaves the transaction open.
    pub(super) async fn begin(
        connection: &'t mut PgConnection,
        parts: StoreParts<'t>,
        handle: &'t TenantHandle,
        locks: bool,
        fact_query: FactQuery,
    ) -> sqlx::Result<Self> {
        let id = handle.id_or_new(connection).await?;
        let early_position = match planted("late-committer") {
            true => Some(position_before_the_lock(connection).await?),
            false => None,
        };
        let ordering_keys = fact_query.ordering_keys.clone();
        let added = FactQuery {
            runs: fact_query.runs.clone(),
            enqueued: fact_query.enqueued.clone(),
            requests: fact_query.requests.clone(),
            ..FactQuery::default()
        };
        let waits_for_locks = !fact_query.ordering_keys.is_empty() || !fact_query.runs.is_empty();
        let sent = Instant::now();
        let response = begin::begin(connection, id, parts.clock, fact_query).await?;
        if !waits_for_locks {
            parts.round_trip.add(sent.elapsed());
        }
        let uptime_id = match response.uptime_id {
            Some(uptime_id) => uptime_id,
            None => find_or_add_uptime_id(connection).await?,
        };
        let tenant = tenant::with_provisional_values(response.tenant);
        let mut transaction = Self {
            connection,
            limits: parts.limits,
            pgvector: parts.pgvector,
            name: &handle.name,
            clock: parts.clock,
            written_tenant: tenant.clone(),
            tenant_before_job: tenant.clone(),
            tenant,
            now: response.now,
            transaction_id: TransactionId {
                xid: response.xid,
                uptime_id,
            },
            has_expired: response.has_expired,
            counters: Counters::Read,
            early_position,
            ordering_keys,
            runs: response.facts.runs,
            breadcrumbs: response.facts.breadcrumbs,
            requests: response.facts.requests,
            oldest_key: response.facts.oldest_key,
            earlier_changes: Changes::default(),
            job_changes: Changes::default(),
            has_changed_tables: false,
            has_swept_keys: false,
            commit_positions: Vec::new(),
        };
        if locks {
            transaction.lock_tenant().await?;
            transaction.read_added(added).await?;
        }
        Ok(transaction)
    }

    /// Reads the runs, breadcrumbs and idempotency keys in `fact_query` into the state of the transaction.
    pub(super) async fn read(&mut self, fact_query: FactQuery) -> sqlx::Result<()> {
        let mut message = Vec::new();
        let pending = fact_query.add_statements(self.tenant.id, &mut message);
        if !message.is_empty() {
            let rows = prepared::rows(self.connection, &message).await?;
            let facts = pending.read(&rows)?;
            self.runs.extend(facts.runs);
            self.breadcrumbs.extend(facts.breadcrumbs);
            self.requests.extend(facts.requests);
        }
        Ok(())
    }

    /// Reads runs and idempotency keys again after this transaction has locked the tenant's row, because another transaction may
    /// have added their rows before the lock.
    async fn read_added(&mut self, mut fact_query: FactQuery) -> sqlx::Result<()> {
        // A missing row cannot be locked, so another transaction can have added it.
        let is_certain = |run_facts: &Option<RunFacts>| {
            let run_facts = run_facts.as_ref();
            run_facts.is_some_and(|run_facts| run_facts.is_locked && run_facts.stored.is_some())
        };
        self.runs.retain(|_, run_facts| is_certain(run_facts));
        let runs = &self.runs;
        for list in [&mut fact_query.runs, &mut fact_query.enqueued] {
            list.retain(|run| !runs.contains_key(&row::lookup_key(run)));
        }
        self.read(fact_query).await
    }

    /// Locks the tenant's row, which makes its counters exact.
    async fn lock_tenant(&mut self) -> sqlx::Result<()> {
        let lock_tenant = lock_tenant_row(self.tenant.id, LimitedAdditions::default());
        let row = sqlx::raw_sql(AssertSqlSafe(lock_tenant));
        let row = row.fetch_one(&mut *self.connection).await?;
        let tenant = tenant::with_provisional_values(tenant::read(&row)?);
        (self.written_tenant, self.tenant_before_job) = (tenant.clone(), tenant.clone());
        self.tenant = tenant;
        self.counters = Counters::Exact;
        Ok(())
    }

    /// Adds the state transition of a run to the transaction's changes. The ledger rules have decided the transition.
    pub(super) fn apply(&mut self, serial: Option<i64>, change: RowChange) {
        if !change.is_changed {
            return;
        }
        self.tenant.sequence += change.sequences.cast_signed();
        self.tenant.open_runs += i64::from(change.opened);
        self.tenant.finished_runs += i64::from(change.finished);
        if let Some(ordering_key) = ordering_key_of(&change.row.run) {
            let ordering_keys = match change.leaves {
                true => &mut self.job_changes.vacated_keys,
                false => &mut self.job_changes.joined_keys,
            };
            ordering_keys.insert(ordering_key);
        }
        self.job_changes.records_time |= change.is_due(self.now);
        let row = change.row;
        self.job_changes
            .runs
            .insert(row::identity(&row.run), StoredRun { serial, row });
    }

    /// Returns the sequence number for the next run that the transaction adds to the ledger or moves behind other runs.
    pub(super) fn next(&self) -> u64 {
        self.tenant.sequence.cast_unsigned() + 1
    }

    /// Adds a new breadcrumb to the transaction's changes.
    pub(super) fn create(
        &mut self,
        breadcrumb: &Arc<Breadcrumb>,
        writer: Option<&BreadcrumbWriter>,
    ) {
        self.job_changes.created.push(NewVersion {
            breadcrumb: Arc::clone(breadcrumb),
            is_tombstone: false,
            writer: writer.cloned(),
        });
        self.tenant.breadcrumbs += 1;
    }

    /// Replaces a breadcrumb by its next version or its tombstone in the transaction's changes.
    pub(super) fn replace(
        &mut self,
        breadcrumb: &Arc<Breadcrumb>,
        is_tombstone: bool,
        writer: Option<&BreadcrumbWriter>,
    ) {
        let new_version = NewVersion {
            breadcrumb: Arc::clone(breadcrumb),
            is_tombstone,
            writer: writer.cloned(),
        };
        self.job_changes.replaced.insert(breadcrumb.id, new_version);
        if is_tombstone {
            self.tenant.breadcrumbs -= 1;
            self.tenant.tombstones += 1;
        }
    }

    /// Adds an event at the tenant's next position to the transaction's changes. Positions count from 1.
    pub(super) fn announce(&mut self, event: Event) {
        self.job_changes.events.push(event);
        self.tenant.position += 1;
    }

    /// Writes all changes of the transaction so far to the tables, so that later SQL queries of the transaction see them.
    pub(super) async fn flush(&mut self) -> sqlx::Result<()> {
        let Some(last) = self.take_unwritten() else {
            return Ok(());
        };
        if let Some(lock_tenant) = last.lock_tenant {
            let lock_tenant = sqlx::raw_sql(AssertSqlSafe(lock_tenant));
            lock_tenant.execute(&mut *self.connection).await?;
            self.counters = Counters::Exact;
        }
        if let Some(row) = last.write.execute(self.connection).await? {
            let commit_position = CommitPosition::read(&row)?;
            self.tenant = tenant::with_provisional_values(commit_position.tenant.clone());
            (self.written_tenant, self.tenant_before_job) =
                (self.tenant.clone(), self.tenant.clone());
            self.commit_positions.push((commit_position, last.events));
        }
        if let Some(promote) = last.promote {
            let promote = sqlx::raw_sql(AssertSqlSafe(promote));
            promote.execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    /// Returns the transaction's changes that the caller must write to the tables, and records them as written. Returns `None`
    /// without changes.
    fn take_unwritten(&mut self) -> Option<FinalMessage> {
        self.has_changed_tables |= !self.job_changes.is_empty();
        let mut changes = std::mem::take(&mut self.earlier_changes);
        changes.append(std::mem::take(&mut self.job_changes));
        let (before, after) = (&self.written_tenant, &self.tenant);
        let changes_tenant = before != after || changes.records_time;
        if changes.is_empty() && !changes_tenant {
            return None;
        }
        let id = after.id;
        let mut statement =
            tenant::start_write_statement(id, self.clock, self.early_position.take());
        let new = changes.write(&mut statement, id, self.pgvector.is_some());
        match changes_tenant {
            true => tenant::update(&mut statement, before, after, new.cast_signed() as i64),
            false => drop(statement.push(" SELECT FROM t WHERE FALSE")),
        }
        let limit = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
        let additions = LimitedAdditions {
            breadcrumbs: (
                after.breadcrumbs - before.breadcrumbs,
                limit(self.limits.breadcrumbs),
            ),
            runs: (
                after.open_runs - before.open_runs,
                limit(self.limits.open_runs),
            ),
            requests: (
                after.requests - before.requests,
                limit(request_keys::limit(self.limits)),
            ),
        };
        let ordering_keys: BTreeSet<OrderingKey> = changes
            .vacated_keys
            .union(&changes.joined_keys)
            .cloned()
            .collect();
        let last = FinalMessage {
            lock_tenant: changes_tenant.then(|| lock_tenant_row(id, additions)),
            write: statement,
            promote: (!ordering_keys.is_empty()).then(|| queue::promote(id, &ordering_keys)),
            commit_marker: changes.events.last().map(|event| CommitMarker {
                breadcrumb: event.breadcrumb_id,
                version: event.version,
                time: tenant::provisional_number(event.updated_at),
            }),
            events: changes.events,
        };
        self.written_tenant = self.tenant.clone();
        self.runs.clear();
        self.breadcrumbs.clear();
        self.requests.clear();
        Some(last)
    }

    /// Returns the PostgreSQL connection, so that a job (store operation) can change the tables with its own SQL. Records that only a
    /// rollback can undo the job's changes.
    pub(super) fn connection_for_changes(&mut self) -> &mut PgConnection {
        self.has_changed_tables = true;
        self.connection
    }

    /// Retains the changes of the transaction's current job (store operation), to be written together with the changes of other jobs.
    pub(super) fn accept_job(&mut self) {
        let job_changes = std::mem::take(&mut self.job_changes);
        self.earlier_changes.append(job_changes);
        self.tenant_before_job = self.tenant.clone();
        self.has_changed_tables = false;
    }

    /// Drops the changes of the transaction's current job (store operation). Returns `false` if the job has changed the tables, so that
    /// only a rollback undoes it.
    pub(super) fn discard_job(&mut self) -> bool {
        self.job_changes = Changes::default();
        self.tenant = self.tenant_before_job.clone();
        !self.has_changed_tables
    }

    /// Returns the changes that the transaction must write in its last protocol message, after all jobs have run. The caller
    /// sends the message.
    pub(super) fn end(mut self) -> ReadyToCommit {
        let (has_old_keys, last) = (self.has_old_keys(), self.take_unwritten());
        ReadyToCommit {
            has_old_keys,
            tenant: self.tenant.id,
            transaction_id: self.transaction_id,
            commit_positions: self.commit_positions,
            last,
        }
    }

    /// Returns the number of batches of changes that the transaction has written. This number is the index of the [`CommitPosition`] of later
    /// changes.
    pub(super) fn write_count(&self) -> usize {
        self.commit_positions.len()
    }

    /// Returns `true` if one of the tenant's idempotency keys is old enough to be checked for deletion. Known only if the
    /// transaction executes a request for a run.
    fn has_old_keys(&self) -> bool {
        let until = ValidRequest::from_validated_text(self.now);
        self.oldest_key.is_some_and(|oldest| oldest <= until)
    }

    /// Returns the position of the tenant's last event. Events that jobs (store operations) have added in the open transaction count,
    /// too.
    pub(super) fn head(&self) -> u64 {
        self.tenant.position.cast_unsigned()
    }

    /// Returns the provisional update time of the next breadcrumb version that the transaction writes. The final time is set when
    /// the transaction has its position in the tenant's commit order, so the order of times is the order of commits.
    pub(super) fn next_time(&mut self) -> Timestamp {
        self.tenant.latest += 1;
        Timestamp::from_micros(self.tenant.latest)
    }

    /// Records that a limit of the tenant is reached, and returns `error` as the reason for rejecting the job (store operation).
    pub(super) fn limit_error(&mut self, error: StoreError) -> StoreError {
        if self.counters == Counters::Read {
            self.counters = Counters::Exceeded;
        }
        error
    }
}

/// Assigns an event position while other transactions can still commit lower positions, which is the bug `late-committer` that tests
/// inject.
async fn position_before_the_lock(connection: &mut PgConnection) -> sqlx::Result<i64> {
    /// Distance between the event positions that the injected bug `late-committer` assigns, so that the events of one commit fit between
    /// them. No commit of a torture campaign has as many events.
    const APART: i64 = 100;
    let next = "SELECT nextval(pg_get_serial_sequence('ux_breadcrumbs', 'serial'))";
    let next: i64 = sqlx::query_scalar(next).fetch_one(connection).await?;
    Ok(next * APART)
}

/// Returns the identifier of the period since the PostgreSQL server's last crash, from the table `ux_alive`. Adds an identifier if the
/// table is empty, because a crash empties the table.
async fn find_or_add_uptime_id(connection: &mut PgConnection) -> sqlx::Result<String> {
    let note = "INSERT INTO ux_alive (since) VALUES (gen_random_uuid()) ON CONFLICT DO NOTHING";
    sqlx::raw_sql(note).execute(&mut *connection).await?;
    let uptime_id = sqlx::query_scalar("SELECT since FROM ux_alive");
    uptime_id.fetch_one(connection).await
}
