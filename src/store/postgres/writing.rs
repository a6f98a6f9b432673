//! The state of a transaction while its jobs run: facts that were read, and changes that are not written yet.
//!
//! Jobs change this state in memory, and one statement at the end writes all changes. So a commit takes as few round trips as a
//! hand-written one, and a batch of jobs takes no more. The facts of all jobs are read at the beginning. A job that is refused
//! has written nothing, so the other jobs of its batch are not affected.
//!
//! The tenant's row is locked only by the last message, which writes and commits: the lock never spans a round trip. Until
//! then the transaction does not know its place in the order of commits, so times and sequence numbers are
//! [open](tenant::open), and counters change by differences.

use super::begin::{self, Room, lock_lines, take};
use super::builder::PostgresLimits;
use super::changes::{Changes, Line, Written, line_of};
use super::database::Database;
use super::pgvector::Pgvector;
use super::queue;
use super::row::{self, Asked, Kept, Name};
use super::statement::Statement;
use super::table;
use super::tenant::{self, Named};
use crate::bugs::planted;
use crate::model::{Breadcrumb, BreadcrumbId, Event, Timestamp};
use crate::store::durable::found::{Found, Writer};
use crate::store::durable::tenant::{Tenant, Time};
use crate::store::row::{Origin, Row};
use crate::store::rules::{Change, Facts, First};
use crate::store::{RunRef, StoreError};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Facts that jobs need, which are read for all jobs of a transaction at once. Others are read when a job asks for them.
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
    fn dedup(&mut self) {
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

/// Identity of a transaction. After a crash the server uses an ID again that it had not written down.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) number: String,
    /// Changes with each crash.
    pub(super) since: String,
}

/// The place of written changes in the order of a tenant's commits.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The tenant's row with the changes.
    pub(super) tenant: Tenant,
    /// The time that the open times of the changes are added to.
    pub(super) base: i64,
}

impl Place {
    /// Reads the row that a statement of [`tenant::update`] returns.
    pub(super) fn read(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            base: row.try_get("ux_base")?,
            tenant: tenant::read(row)?,
        })
    }

    /// The time of a version, from its open time.
    fn time(&self, time: Timestamp) -> Timestamp {
        match time.as_micros() >= tenant::OPEN_TIME {
            true => Timestamp::from_micros(self.base + tenant::open_time(time)),
            false => time,
        }
    }

    /// Replaces the open times of a version.
    pub(super) fn settle(&self, version: &mut Arc<Breadcrumb>) {
        let (created_at, updated_at) = (
            self.time(version.created_at),
            self.time(version.updated_at),
        );
        if updated_at != version.updated_at {
            // Nobody else has a version that was written just now, so this clones nothing.
            let version = Arc::make_mut(version);
            (version.created_at, version.updated_at) = (created_at, updated_at);
        }
    }
}

/// The last message of a transaction, in parts.
pub(super) struct Last {
    /// Locks the tenant's row. `None` if nothing changes it.
    pub(super) take: Option<String>,
    pub(super) write: Statement,
    /// Makes the first runs of ordering keys their heads.
    pub(super) promote: Option<String>,
    /// One of the events.
    pub(super) witness: Option<Witness>,
}

/// A new version, by which the place of a commit is found if its answer is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness {
    pub(super) breadcrumb: BreadcrumbId,
    pub(super) version: u64,
    /// Number of its time in the transaction.
    pub(super) time: i64,
}

/// The end of a transaction.
pub(super) struct Ended {
    pub(super) transaction: Transaction,
    /// The places of changes that are written already, in the order in which they were written.
    pub(super) places: Vec<Place>,
    /// If `true`, there are new events.
    pub(super) has_events: bool,
    /// Changes that are not written yet.
    pub(super) last: Option<Last>,
}

/// A transaction that jobs work with.
pub(super) struct Writing<'t> {
    pub(super) connection: &'t mut PgConnection,
    pub(super) limits: &'t PostgresLimits,
    /// `None` if there are no vectors.
    pgvector: Option<&'t Pgvector>,
    /// Name of the tenant.
    pub(super) name: &'t str,
    /// Name of the schema.
    schema: &'t str,
    clock: &'t Time,
    /// The tenant's row with all changes so far. The counters are exact if `is_locked`.
    pub(super) tenant: Tenant,
    pub(super) now: Timestamp,
    /// If `true`, the time to live of a breadcrumb is over.
    pub(super) has_expired: bool,
    transaction: Transaction,
    /// If `true`, the transaction has locked the tenant's row.
    is_locked: bool,
    /// If `true`, a job found a limit reached. That is exact only if the tenant's row is locked.
    pub(super) is_full: bool,
    has_events: bool,
    /// The position before the first event, if a planted bug took it before the lock.
    early: Option<i64>,
    /// The tenant's row as it is written, and as it was before the current job.
    written: Tenant,
    before: Tenant,
    /// Ordering keys that are locked.
    lines: BTreeSet<Line>,
    runs: HashMap<Asked, Known>,
    breadcrumbs: HashMap<BreadcrumbId, Option<Found>>,
    /// Changes of the jobs before.
    earlier: Changes,
    /// Changes of the current job.
    own: Changes,
    /// If `true`, the current job has written to the tables.
    is_told: bool,
    places: Vec<Place>,
}

impl<'t> Writing<'t> {
    /// Begins a transaction, and reads facts. With `locks`, it locks the tenant's row as well. An error leaves the
    /// transaction open.
    pub(super) async fn begin(
        connection: &'t mut PgConnection,
        database: &'t Database,
        named: &'t Named,
        locks: bool,
        mut wanted: Wanted,
    ) -> sqlx::Result<Self> {
        let id = named.id_or_new(connection).await?;
        let early = match planted("late-committer") {
            true => Some(position_before_the_lock(connection).await?),
            false => None,
        };
        wanted.dedup();
        let schema = database.settings.schema.as_str();
        let begun = begin::begin(connection, id, &database.time, (schema, &mut wanted)).await?;
        let since = match begun.since {
            Some(since) => since,
            None => first_since_a_crash(connection).await?,
        };
        let tenant = tenant::open(begun.tenant);
        let mut writing = Self {
            connection,
            limits: &database.settings.limits,
            pgvector: database.pgvector.as_ref(),
            name: &named.name,
            schema,
            clock: &database.time,
            written: tenant.clone(),
            before: tenant.clone(),
            tenant,
            now: begun.now,
            transaction: Transaction {
                number: begun.number,
                since,
            },
            has_expired: begun.has_expired,
            is_locked: false,
            is_full: false,
            has_events: false,
            early,
            lines: std::mem::take(&mut wanted.lines),
            runs: begun.runs,
            breadcrumbs: HashMap::new(),
            earlier: Changes::default(),
            own: Changes::default(),
            is_told: false,
            places: Vec::new(),
        };
        writing.read(wanted).await?;
        if locks {
            writing.lock_tenant().await?;
        }
        Ok(writing)
    }

    /// Locks the tenant's row, so that its counters are exact.
    async fn lock_tenant(&mut self) -> sqlx::Result<()> {
        let take = take(self.tenant.id, Room::default());
        let row = sqlx::raw_sql(AssertSqlSafe(take));
        let row = row.fetch_one(&mut *self.connection).await?;
        let tenant = tenant::open(tenant::read(&row)?);
        (self.written, self.before) = (tenant.clone(), tenant.clone());
        self.tenant = tenant;
        self.is_locked = true;
        Ok(())
    }

    /// Reads facts.
    async fn read(&mut self, wanted: Wanted) -> sqlx::Result<()> {
        for (runs, locks) in [(wanted.runs, true), (wanted.seen, false)] {
            if !runs.is_empty() {
                let known = row::facts(self.connection, self.tenant.id, runs, locks).await?;
                self.runs.extend(known);
            }
        }
        if !wanted.breadcrumbs.is_empty() {
            let ids = wanted.breadcrumbs;
            let found = table::find(self.connection, self.tenant.id, &ids).await?;
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
            let lock = lock_lines(self.tenant.id, self.schema, &lines);
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

    /// Applies a change that the rules decided.
    pub(super) fn apply(&mut self, serial: Option<i64>, change: Change) {
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
        let row = change.row;
        self.own
            .runs
            .insert(row::name(&row.run), Kept { serial, row });
    }

    /// The next sequence number.
    pub(super) fn next(&self) -> u64 {
        self.tenant.sequence.cast_unsigned() + 1
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

    /// A breadcrumb is new.
    pub(super) fn create(&mut self, breadcrumb: &Arc<Breadcrumb>, writer: Option<&Writer>) {
        self.own.created.push(Written {
            breadcrumb: Arc::clone(breadcrumb),
            is_tombstone: false,
            writer: writer.cloned(),
        });
        self.tenant.breadcrumbs += 1;
    }

    /// A new version takes the place of the one before, or a tombstone.
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

    /// An event takes the next position; these count from 1.
    pub(super) fn announce(&mut self, event: Event) {
        self.own.events.push(event);
        self.tenant.position += 1;
    }

    /// Writes all changes so far, for jobs that query the tables.
    pub(super) async fn flush(&mut self) -> sqlx::Result<()> {
        let Some(last) = self.unwritten() else {
            return Ok(());
        };
        if let Some(take) = last.take {
            let take = sqlx::raw_sql(AssertSqlSafe(take));
            take.execute(&mut *self.connection).await?;
            self.is_locked = true;
        }
        if let Some(row) = last.write.execute(self.connection).await? {
            let place = Place::read(&row)?;
            self.tenant = tenant::open(place.tenant.clone());
            (self.written, self.before) = (self.tenant.clone(), self.tenant.clone());
            self.places.push(place);
        }
        if let Some(promote) = last.promote {
            let promote = sqlx::raw_sql(AssertSqlSafe(promote));
            promote.execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    /// Returns the changes that are not written yet, which count as written from now on. `None` if there are none.
    fn unwritten(&mut self) -> Option<Last> {
        self.is_told |= !self.own.is_empty();
        let mut changes = std::mem::take(&mut self.earlier);
        changes.append(std::mem::take(&mut self.own));
        let (before, after) = (&self.written, &self.tenant);
        let changes_tenant = before != after;
        if changes.is_empty() && !changes_tenant {
            return None;
        }
        self.has_events |= !changes.events.is_empty();
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
        };
        self.written = self.tenant.clone();
        self.runs.clear();
        self.breadcrumbs.clear();
        Some(last)
    }

    /// The job at hand changes something in the tables itself.
    pub(super) fn tells(&mut self) -> &mut PgConnection {
        self.is_told = true;
        self.connection
    }

    /// Keeps what the job at hand has changed.
    pub(super) fn keep(&mut self) {
        let own = std::mem::take(&mut self.own);
        self.earlier.append(own);
        self.before = self.tenant.clone();
        self.is_told = false;
    }

    /// Forgets what the job at hand has changed. False if it is not that simple.
    pub(super) fn forget(&mut self) -> bool {
        self.own = Changes::default();
        self.tenant = self.before.clone();
        !self.is_told
    }

    /// Ends the transaction. Its last message is sent by the caller.
    pub(super) fn end(mut self) -> Ended {
        let last = self.unwritten();
        Ended {
            has_events: self.has_events,
            transaction: self.transaction,
            places: self.places,
            last,
        }
    }

    /// Number of times that the transaction has written changes so far, which is the index of the [`Place`] of later changes.
    pub(super) fn written_times(&self) -> usize {
        self.places.len()
    }

    /// Position of the last event at the beginning.
    pub(super) fn head(&self) -> u64 {
        self.tenant.position.cast_unsigned()
    }

    /// Returns an open time: later than all commits before, so that the order of times is the order of commits.
    pub(super) fn next_time(&mut self) -> Timestamp {
        self.tenant.latest += 1;
        Timestamp::from_micros(self.tenant.latest)
    }

    /// Returns the reason for which a job is refused, and notes that a limit is reached.
    pub(super) fn full(&mut self, error: StoreError) -> StoreError {
        self.is_full = !self.is_locked;
        error
    }
}

/// A mistake that is made on purpose: a position that is taken while others may still commit what is before it.
async fn position_before_the_lock(connection: &mut PgConnection) -> sqlx::Result<i64> {
    /// No commit of a campaign has so many events.
    const APART: i64 = 100;
    let next = "SELECT nextval(pg_get_serial_sequence('ux_breadcrumbs', 'serial'))";
    let next: i64 = sqlx::query_scalar(next).fetch_one(connection).await?;
    Ok(next * APART)
}

/// Notes since when the server knows its transactions by their numbers: it has forgotten that in a crash, or never knew.
async fn first_since_a_crash(connection: &mut PgConnection) -> sqlx::Result<String> {
    let note = "INSERT INTO ux_alive (since) VALUES (gen_random_uuid()) ON CONFLICT DO NOTHING";
    sqlx::raw_sql(note).execute(&mut *connection).await?;
    let since = sqlx::query_scalar("SELECT since FROM ux_alive");
    since.fetch_one(connection).await
}
