//! The state of a PostgreSQL transaction while its jobs (store operations) run: facts that were read, and changes that are not written yet.
//!
//! Jobs change this state in memory, and one statement at the end writes all changes. A commit therefore takes two round trips, and a batch
//! of jobs takes no more. The facts of all jobs are read at the start. A rejected job has written nothing, so the other jobs of its batch
//! are not affected.
//!
//! Only the last message, which writes and commits, locks the tenant's row. The lock is held for longer if a limit is near, if the changes
//! do not fit into a message, or if a job queries the tables after another job changed them. Until the lock is taken, the transaction does
//! not know its place in the commit order. Times and sequence numbers are therefore [open](tenant::open), and counters change by
//! differences.

use super::begin::{self, Room, take};
use super::builder::PostgresLimits;
use super::changes::Changes;
use super::facts::{Known, Wanted};
use super::pgvector::Pgvector;
use super::place::{Ended, Last, Place, Transaction, Witness};
use super::prepared;
use super::queue;
use super::request_keys::{self, Key};
use super::round_trip::RoundTrip;
use super::row::{self, Asked, Kept, Line, line_of};
use super::table::Written;
use super::tenant::{self, Named};
use crate::bugs::planted;
use crate::model::{Breadcrumb, BreadcrumbId, Event, Timestamp};
use crate::store::StoreError;
use crate::store::durable::found::{Found, Writer};
use crate::store::durable::tenant::{Tenant, Time};
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
    /// The tenant's counters were read without a lock, and a job found a limit reached. The transaction must be repeated with the tenant's
    /// row locked.
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
    pub(super) clock: &'s Time,
    pub(super) round_trip: &'s RoundTrip,
}

/// State of an open PostgreSQL transaction, which its jobs (store operations) read and change.
pub(super) struct Writing<'t> {
    pub(super) connection: &'t mut PgConnection,
    pub(super) limits: &'t PostgresLimits,
    /// The PostgreSQL extension for vectors, or `None` if the store's schema has no tables for vectors.
    pgvector: Option<&'t Pgvector>,
    /// Name of the tenant of the transaction.
    pub(super) name: &'t str,
    clock: &'t Time,
    /// Tenant's row (counters and event positions) with the changes of the transaction's jobs so far.
    pub(super) tenant: Tenant,
    pub(super) now: Timestamp,
    /// If `true`, at least one breadcrumb of the tenant has expired.
    pub(super) has_expired: bool,
    transaction: Transaction,
    pub(super) counters: Counters,
    /// Event position that the deliberate bug `late-committer` assigned before the transaction locked the tenant's row. `None` without
    /// the bug.
    early: Option<i64>,
    /// Tenant's row as the transaction last wrote it to the database.
    written: Tenant,
    /// Tenant's row before the current job of the transaction.
    before: Tenant,
    /// Ordering keys of runs that the transaction has locked.
    pub(super) lines: BTreeSet<Line>,
    /// Facts of the transaction's runs, such as the ledger row and the trigger's origin. `None` for a run to be enqueued whose row exists
    /// and does not change.
    pub(super) runs: HashMap<Asked, Option<Known>>,
    pub(super) breadcrumbs: HashMap<BreadcrumbId, Option<Found>>,
    /// Records of the transaction's request keys. `None` for a new key.
    pub(super) requests: BTreeMap<Key, Option<RecordedKey>>,
    /// Earliest time at which one of the tenant's request keys was added or last checked, as read at the start of the
    /// transaction. Known only if a job is a request.
    pub(super) oldest_key: Option<Timestamp>,
    /// Changes of the transaction's earlier jobs (store operations).
    pub(super) earlier: Changes,
    /// Changes of the transaction's current job (store operation).
    pub(super) own: Changes,
    /// If `true`, the transaction's current job has changed the tables, so its changes cannot be dropped in memory.
    is_told: bool,
    /// If `true`, the transaction has deleted old request keys.
    pub(super) has_swept_keys: bool,
    places: Vec<(Place, Vec<Event>)>,
}

impl<'t> Writing<'t> {
    /// Begins a PostgreSQL transaction, and reads the facts that its jobs need. With `locks`, locks the tenant's row as well. An error
    /// leaves the transaction open.
    pub(super) async fn begin(
        connection: &'t mut PgConnection,
        parts: StoreParts<'t>,
        named: &'t Named,
        locks: bool,
        wanted: Wanted,
    ) -> sqlx::Result<Self> {
        let id = named.id_or_new(connection).await?;
        let early = match planted("late-committer") {
            true => Some(position_before_the_lock(connection).await?),
            false => None,
        };
        let lines = wanted.lines.clone();
        let added = Wanted {
            runs: wanted.runs.clone(),
            seen: wanted.seen.clone(),
            requests: wanted.requests.clone(),
            ..Wanted::default()
        };
        let waits_for_locks = !wanted.lines.is_empty() || !wanted.runs.is_empty();
        let sent = Instant::now();
        let begun = begin::begin(connection, id, parts.clock, wanted).await?;
        if !waits_for_locks {
            parts.round_trip.add(sent.elapsed());
        }
        let since = match begun.since {
            Some(since) => since,
            None => first_since_a_crash(connection).await?,
        };
        let tenant = tenant::open(begun.tenant);
        let mut writing = Self {
            connection,
            limits: parts.limits,
            pgvector: parts.pgvector,
            name: &named.name,
            clock: parts.clock,
            written: tenant.clone(),
            before: tenant.clone(),
            tenant,
            now: begun.now,
            transaction: Transaction {
                number: begun.number,
                since,
            },
            has_expired: begun.has_expired,
            counters: Counters::Read,
            early,
            lines,
            runs: begun.facts.runs,
            breadcrumbs: begun.facts.breadcrumbs,
            requests: begun.facts.requests,
            oldest_key: begun.facts.oldest_key,
            earlier: Changes::default(),
            own: Changes::default(),
            is_told: false,
            has_swept_keys: false,
            places: Vec::new(),
        };
        if locks {
            writing.lock_tenant().await?;
            writing.read_added(added).await?;
        }
        Ok(writing)
    }

    /// Reads the wanted runs, breadcrumbs and request keys into the state of the transaction.
    pub(super) async fn read(&mut self, wanted: Wanted) -> sqlx::Result<()> {
        let mut message = Vec::new();
        let asking = wanted.ask(self.tenant.id, &mut message);
        if !message.is_empty() {
            let rows = prepared::rows(self.connection, &message).await?;
            let stored = asking.read(&rows)?;
            self.runs.extend(stored.runs);
            self.breadcrumbs.extend(stored.breadcrumbs);
            self.requests.extend(stored.requests);
        }
        Ok(())
    }

    /// Repeats the read of runs and request keys after this transaction has locked the tenant's row. Another transaction may have added
    /// their rows before the lock.
    async fn read_added(&mut self, mut wanted: Wanted) -> sqlx::Result<()> {
        // A missing row cannot be locked, so another transaction can have added it.
        let is_certain = |known: &Option<Known>| {
            let known = known.as_ref();
            known.is_some_and(|known| known.is_locked && known.kept.is_some())
        };
        self.runs.retain(|_, known| is_certain(known));
        let runs = &self.runs;
        for named in [&mut wanted.runs, &mut wanted.seen] {
            named.retain(|run| !runs.contains_key(&row::asked(run)));
        }
        self.read(wanted).await
    }

    /// Locks the tenant's row, which makes its counters exact.
    async fn lock_tenant(&mut self) -> sqlx::Result<()> {
        let take = take(self.tenant.id, Room::default());
        let row = sqlx::raw_sql(AssertSqlSafe(take));
        let row = row.fetch_one(&mut *self.connection).await?;
        let tenant = tenant::open(tenant::read(&row)?);
        (self.written, self.before) = (tenant.clone(), tenant.clone());
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
        if let Some(line) = line_of(&change.row.run) {
            let lines = match change.leaves {
                true => &mut self.own.left,
                false => &mut self.own.joined,
            };
            lines.insert(line);
        }
        self.own.shows_time |= change.is_due(self.now);
        let row = change.row;
        self.own
            .runs
            .insert(row::name(&row.run), Kept { serial, row });
    }

    /// Returns the next sequence number for a run that the transaction adds or moves.
    pub(super) fn next(&self) -> u64 {
        self.tenant.sequence.cast_unsigned() + 1
    }

    /// Adds a new breadcrumb to the transaction's changes.
    pub(super) fn create(&mut self, breadcrumb: &Arc<Breadcrumb>, writer: Option<&Writer>) {
        self.own.created.push(Written {
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
        writer: Option<&Writer>,
    ) {
        let written = Written {
            breadcrumb: Arc::clone(breadcrumb),
            is_tombstone,
            writer: writer.cloned(),
        };
        self.own.replaced.insert(breadcrumb.id, written);
        if is_tombstone {
            self.tenant.breadcrumbs -= 1;
            self.tenant.tombstones += 1;
        }
    }

    /// Adds an event at the tenant's next position to the transaction's changes. Positions count from 1.
    pub(super) fn announce(&mut self, event: Event) {
        self.own.events.push(event);
        self.tenant.position += 1;
    }

    /// Writes all changes of the transaction so far to the tables, for jobs that query the tables.
    pub(super) async fn flush(&mut self) -> sqlx::Result<()> {
        let Some(last) = self.unwritten() else {
            return Ok(());
        };
        if let Some(take) = last.take {
            let take = sqlx::raw_sql(AssertSqlSafe(take));
            take.execute(&mut *self.connection).await?;
            self.counters = Counters::Exact;
        }
        if let Some(row) = last.write.execute(self.connection).await? {
            let place = Place::read(&row)?;
            self.tenant = tenant::open(place.tenant.clone());
            (self.written, self.before) = (self.tenant.clone(), self.tenant.clone());
            self.places.push((place, last.events));
        }
        if let Some(promote) = last.promote {
            let promote = sqlx::raw_sql(AssertSqlSafe(promote));
            promote.execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    /// Returns the transaction's changes that are not written yet, and counts them as written. Returns `None` without changes.
    fn unwritten(&mut self) -> Option<Last> {
        self.is_told |= !self.own.is_empty();
        let mut changes = std::mem::take(&mut self.earlier);
        changes.append(std::mem::take(&mut self.own));
        let (before, after) = (&self.written, &self.tenant);
        let changes_tenant = before != after || changes.shows_time;
        if changes.is_empty() && !changes_tenant {
            return None;
        }
        let id = after.id;
        let mut statement = tenant::place(id, self.clock, self.early.take());
        let new = changes.write(&mut statement, id, self.pgvector.is_some());
        match changes_tenant {
            true => tenant::update(&mut statement, before, after, new.cast_signed() as i64),
            false => drop(statement.push(" SELECT FROM t WHERE FALSE")),
        }
        let limit = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
        let room = Room {
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
        let lines: BTreeSet<Line> = changes.left.union(&changes.joined).cloned().collect();
        let last = Last {
            take: changes_tenant.then(|| take(id, room)),
            write: statement,
            promote: (!lines.is_empty()).then(|| queue::promote(id, &lines)),
            witness: changes.events.last().map(|event| Witness {
                breadcrumb: event.breadcrumb_id,
                version: event.version,
                time: tenant::open_time(event.updated_at),
            }),
            events: changes.events,
        };
        self.written = self.tenant.clone();
        self.runs.clear();
        self.breadcrumbs.clear();
        self.requests.clear();
        Some(last)
    }

    /// Returns the PostgreSQL connection, for a job that changes the tables with its own SQL. Records that only a rollback can undo the
    /// job's changes.
    pub(super) fn tells(&mut self) -> &mut PgConnection {
        self.is_told = true;
        self.connection
    }

    /// Accepts the changes of the transaction's current job.
    pub(super) fn keep(&mut self) {
        let own = std::mem::take(&mut self.own);
        self.earlier.append(own);
        self.before = self.tenant.clone();
        self.is_told = false;
    }

    /// Drops the changes of the transaction's current job. Returns `false` if the job has changed the tables, so that only a rollback
    /// undoes it.
    pub(super) fn forget(&mut self) -> bool {
        self.own = Changes::default();
        self.tenant = self.before.clone();
        !self.is_told
    }

    /// Returns the changes that the last message of the transaction must write, after all jobs have run. The caller sends the last message.
    pub(super) fn end(mut self) -> Ended {
        let (has_old_keys, last) = (self.has_old_keys(), self.unwritten());
        Ended {
            has_old_keys,
            tenant: self.tenant.id,
            transaction: self.transaction,
            places: self.places,
            last,
        }
    }

    /// Returns the number of times that the transaction has written changes. This number is the index of the [`Place`] of later
    /// changes.
    pub(super) fn written_times(&self) -> usize {
        self.places.len()
    }

    /// Returns `true` if one of the tenant's request keys is old enough to be checked for deletion. Known only if a job of the transaction
    /// is a request.
    fn has_old_keys(&self) -> bool {
        let until = ValidRequest::checked_before(self.now);
        self.oldest_key.is_some_and(|oldest| oldest <= until)
    }

    /// Returns the position of the tenant's last event. Events that jobs (store operations) have added in the open transaction count,
    /// too.
    pub(super) fn head(&self) -> u64 {
        self.tenant.position.cast_unsigned()
    }

    /// Returns a provisional (open) update time for a breadcrumb version. The final time is set when the transaction has its place in
    /// the tenant's commit order, so the order of times is the order of commits.
    pub(super) fn next_time(&mut self) -> Timestamp {
        self.tenant.latest += 1;
        Timestamp::from_micros(self.tenant.latest)
    }

    /// Records that a limit of the tenant is reached, and returns `error` as the reason for rejecting the job.
    pub(super) fn full(&mut self, error: StoreError) -> StoreError {
        if self.counters == Counters::Read {
            self.counters = Counters::Exceeded;
        }
        error
    }
}

/// Reproduces the deliberate bug `late-committer`: assigns an event position while other transactions can still commit lower positions.
async fn position_before_the_lock(connection: &mut PgConnection) -> sqlx::Result<i64> {
    /// Distance between the event positions that the deliberate bug `late-committer` assigns. No commit of a torture campaign has as
    /// many events.
    const APART: i64 = 100;
    let next = "SELECT nextval(pg_get_serial_sequence('ux_breadcrumbs', 'serial'))";
    let next: i64 = sqlx::query_scalar(next).fetch_one(connection).await?;
    Ok(next * APART)
}

/// Returns the identifier of the period since the PostgreSQL server's last crash, from the table `ux_alive`. Adds an identifier if the
/// table is empty, because a crash empties the table.
async fn first_since_a_crash(connection: &mut PgConnection) -> sqlx::Result<String> {
    let note = "INSERT INTO ux_alive (since) VALUES (gen_random_uuid()) ON CONFLICT DO NOTHING";
    sqlx::raw_sql(note).execute(&mut *connection).await?;
    let since = sqlx::query_scalar("SELECT since FROM ux_alive");
    since.fetch_one(connection).await
}
