//! What a job works with: the transaction, the tenant it is about, what was read of it and what is to be changed.
//!
//! What jobs change is kept here and written in one statement at the end, so that a commit costs as few round trips as
//! one by hand, and many that are committed together no more than one. What they look at is read at the beginning in one
//! statement for all of them. A job that is refused has changed nothing then, and takes no other with it.

use super::begin;
use super::builder::PostgresLimits;
use super::changes::{Changes, Line, Written, line_of};
use super::database::Database;
use super::pgvector::Pgvector;
use super::retention;
use super::row::{self, Asked, Kept, Name};
use super::statement::Statement;
use super::table;
use super::tenant::Named;
use crate::bugs::planted;
use crate::model::{Breadcrumb, BreadcrumbId, Event, Timestamp};
use crate::store::RunRef;
use crate::store::durable::found::{Found, Writer};
use crate::store::durable::tenant::Tenant;
use crate::store::row::{Origin, Row};
use crate::store::rules::{Change, Facts, First};
use sqlx::PgConnection;
use std::collections::HashMap;
use std::sync::Arc;

/// What a job is going to look at, which is read for all jobs of a transaction at once. What is left out is read when it
/// is asked for.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) runs: Vec<RunRef>,
    pub(super) breadcrumbs: Vec<BreadcrumbId>,
}

/// What is known of a run.
#[derive(Clone)]
pub(super) struct Known {
    /// Its row, which nobody else changes until the transaction ends.
    pub(super) kept: Option<Kept>,
    /// Where its trigger comes from.
    pub(super) origin: Origin,
    /// The first other row with its ordering key.
    pub(super) first: Option<First>,
}

/// What a server knows a transaction by. After a crash it gives a number again that it had not written down.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) number: String,
    /// Is another after a crash.
    pub(super) since: String,
}

/// How a transaction ends.
pub(super) struct Ended {
    /// Which it is.
    pub(super) transaction: Transaction,
    /// Whether there are new events.
    pub(super) has_events: bool,
    /// The position of the last event.
    pub(super) head: u64,
    /// What is still to be written in it.
    pub(super) last: Option<Statement>,
}

/// What a job works with.
pub(super) struct Writing<'t> {
    pub(super) connection: &'t mut PgConnection,
    pub(super) limits: &'t PostgresLimits,
    /// None: there are no vectors to be forgotten.
    pgvector: Option<&'t Pgvector>,
    /// The name of the tenant.
    pub(super) name: &'t str,
    /// Its row, which may be changed if it is locked.
    pub(super) tenant: Tenant,
    pub(super) now: Timestamp,
    /// Whether the time of a breadcrumb is over.
    pub(super) has_expired: bool,
    transaction: Transaction,
    is_locked: bool,
    /// The row of the tenant as it was first, as it is in its table, and as it was before the job at hand.
    first: Tenant,
    written: Tenant,
    before: Tenant,
    runs: HashMap<Asked, Known>,
    breadcrumbs: HashMap<BreadcrumbId, Option<Found>>,
    /// What the jobs before have changed.
    earlier: Changes,
    /// What the job at hand has changed.
    own: Changes,
    /// Whether the job at hand has changed anything in the tables themselves.
    is_told: bool,
}

impl<'t> Writing<'t> {
    /// Begins a transaction for a tenant, which no other job works with until it ends if it is locked, and reads what is
    /// wanted. What fails leaves the transaction open.
    pub(super) async fn begin(
        connection: &'t mut PgConnection,
        database: &'t Database,
        named: &'t Named,
        locks: bool,
        mut wanted: Wanted,
    ) -> sqlx::Result<Self> {
        let id = named.id_or_new(connection).await?;
        let early = match locks && planted("late-committer") {
            true => Some(position_before_the_lock(connection).await?),
            false => None,
        };
        let begun = begin::begin(connection, id, &database.time, locks, &mut wanted.runs).await?;
        let since = match begun.since {
            Some(since) => since,
            None => first_since_a_crash(connection).await?,
        };
        let mut tenant = begun.tenant;
        tenant.position = early.unwrap_or(tenant.position);
        let mut writing = Self {
            connection,
            limits: &database.settings.limits,
            pgvector: database.pgvector.as_ref(),
            name: &named.name,
            first: tenant.clone(),
            written: tenant.clone(),
            before: tenant.clone(),
            tenant,
            now: begun.now,
            transaction: Transaction {
                number: begun.number,
                since,
            },
            has_expired: begun.has_expired,
            is_locked: locks,
            runs: begun.runs,
            breadcrumbs: HashMap::new(),
            earlier: Changes::default(),
            own: Changes::default(),
            is_told: false,
        };
        writing.read(wanted).await?;
        Ok(writing)
    }

    /// Reads what is wanted.
    async fn read(&mut self, wanted: Wanted) -> sqlx::Result<()> {
        if !wanted.runs.is_empty() {
            let known = row::lock(self.connection, self.tenant.id, wanted.runs).await?;
            self.runs.extend(known);
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

    /// What is known of a run, as the jobs so far have left it.
    pub(super) async fn known(&mut self, run: &RunRef) -> sqlx::Result<Known> {
        let name = row::name(run);
        let mut known = self.look_up(&name, run).await?;
        let row = known.kept.as_ref().map(|kept| &kept.row.run);
        let line = line_of(row.unwrap_or(run));
        if let Some(line) = &line
            && (self.own.left.contains(line) || self.earlier.left.contains(line))
        {
            // Who stands first in the line is found out when what ended in it is in its table.
            self.flush().await?;
            known = self.look_up(&name, run).await?;
        }
        if let Some(line) = &line {
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

    /// The facts of a run for the rules, and the serial of its row.
    pub(super) async fn facts<'r>(
        &mut self,
        run: &'r RunRef,
    ) -> sqlx::Result<(Option<i64>, Facts<'r>)> {
        let known = self.known(run).await?;
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
        Ok((serial, facts))
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

    async fn look_up(&mut self, name: &Name, run: &RunRef) -> sqlx::Result<Known> {
        let asked = row::asked(run);
        if !self.runs.contains_key(&asked) {
            let wanted = Wanted {
                runs: vec![run.clone()],
                ..Wanted::default()
            };
            self.read(wanted).await?;
        }
        let mut known = self
            .runs
            .get(&asked)
            .cloned()
            .ok_or(sqlx::Error::RowNotFound)?;
        let changed = self
            .own
            .runs
            .get(name)
            .or_else(|| self.earlier.runs.get(name));
        if let Some(kept) = changed {
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

    /// Writes what was changed so far, for what is not looked up but asked of the tables.
    pub(super) async fn flush(&mut self) -> sqlx::Result<()> {
        if let Some((changes, statement)) = self.unwritten() {
            statement.execute(self.connection).await?;
            changes.promote(self.connection, self.tenant.id).await?;
        }
        Ok(())
    }

    /// What was changed and is not in the tables, which it counts as from now on, with the statement that writes it.
    fn unwritten(&mut self) -> Option<(Changes, Statement)> {
        self.is_told |= !self.own.is_empty();
        let mut changes = std::mem::take(&mut self.earlier);
        changes.append(std::mem::take(&mut self.own));
        let tenant = (self.tenant != self.written).then_some(&self.tenant);
        if changes.is_empty() && tenant.is_none() {
            return None;
        }
        let (id, position) = (self.tenant.id, self.tenant.position);
        let statement = changes.statement(id, position, tenant, self.pgvector.is_some());
        self.written = self.tenant.clone();
        self.runs.clear();
        self.breadcrumbs.clear();
        Some((changes, statement))
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

    /// Writes what is left to be written, but for one last statement that may be sent with the end of the transaction.
    pub(super) async fn end(mut self) -> sqlx::Result<Ended> {
        if self.is_locked && retention::has_excess(&self) {
            self.flush().await?;
            retention::forget(&mut self).await?;
        }
        let mut last = None;
        if let Some((changes, statement)) = self.unwritten() {
            if changes.is_all() {
                last = Some(statement);
            } else {
                statement.execute(self.connection).await?;
                changes.promote(self.connection, self.tenant.id).await?;
            }
        }
        Ok(Ended {
            has_events: self.tenant.position != self.first.position,
            head: self.head(),
            transaction: self.transaction,
            last,
        })
    }

    /// Returns the position of the last event.
    pub(super) fn head(&self) -> u64 {
        self.tenant.position.cast_unsigned()
    }

    /// Later than every commit before, so that update order is commit order.
    pub(super) fn next_time(&mut self) -> Timestamp {
        self.tenant.latest = self.now.as_micros().max(self.tenant.latest + 1);
        Timestamp::from_micros(self.tenant.latest)
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
