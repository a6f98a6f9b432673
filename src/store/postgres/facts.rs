//! Facts that the jobs of a transaction read: rows of runs, ordering keys and breadcrumbs.

use super::begin::lock_lines;
use super::changes::{Changes, Line, line_of};
use super::requests::{self, Key};
use super::row::{self, Asked, Kept, Name, select_known};
use super::writing::Writing;
use super::{column, prepared, table};
use crate::bugs::planted;
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::store::RunRef;
use crate::store::durable::found::Found;
use crate::store::request::Recorded;
use crate::store::row::{Origin, Row};
use crate::store::rules::{Facts, First};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgRow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Facts that jobs need, which are read for all jobs of a transaction at once. Others are read when a job needs them.
#[derive(Default)]
pub(super) struct Wanted {
    /// Runs whose rows are locked.
    pub(super) runs: Vec<RunRef>,
    /// Runs to be enqueued. Their rows are not locked.
    pub(super) seen: Vec<RunRef>,
    /// Ordering keys that are locked.
    pub(super) lines: BTreeSet<Line>,
    pub(super) breadcrumbs: Vec<BreadcrumbId>,
    /// Keys of requests.
    pub(super) requests: BTreeSet<Key>,
}

impl Wanted {
    /// Adds a run whose row is locked, with its ordering key.
    pub(super) fn run(&mut self, run: &RunRef) {
        self.lines.extend(line_of(run));
        self.runs.push(run.clone());
    }

    /// Adds a run to be enqueued, with its ordering key.
    pub(super) fn seen(&mut self, run: &RunRef) {
        if planted("no-key") {
            return self.run(run);
        }
        self.lines.extend(line_of(run));
        self.seen.push(run.clone());
    }

    /// Adds the statements that read the facts to a message.
    pub(super) fn ask(mut self, tenant: i64, message: &mut Vec<String>) -> Asking {
        if !self.runs.is_empty() && !self.seen.is_empty() {
            let locked: BTreeSet<Asked> = self.runs.iter().map(row::asked).collect();
            self.seen.retain(|run| !locked.contains(&row::asked(run)));
        }
        // All transactions lock rows in this order, so that none waits for another that waits for it.
        self.runs.sort_by_cached_key(row::name);
        for (runs, one, several) in [
            (&self.runs, "ux_known", "ux_known_all"),
            (&self.seen, "ux_seen", "ux_seen_all"),
        ] {
            match &runs[..] {
                [] => {}
                [run] => message.push(read_one(one, tenant, run)),
                runs => message.push(read_all(several, tenant, runs)),
            }
        }
        if !self.breadcrumbs.is_empty() {
            let ids = prepared::ids(self.breadcrumbs.iter().copied());
            message.push(format!("EXECUTE ux_find ({tenant}, {ids})"));
        }
        if !self.requests.is_empty() {
            message.push(requests::read(tenant, &self.requests));
            message.push(format!("EXECUTE ux_oldest_key ({tenant})"));
        }
        Asking(self)
    }
}

/// Facts that were requested by the statements of [`Wanted::ask`].
pub(super) struct Asking(Wanted);

impl Asking {
    /// Reads the facts from the rows of the statements.
    pub(super) fn read(self, rows: &[Vec<PgRow>]) -> sqlx::Result<Stored> {
        let (wanted, mut rows) = (self.0, rows.iter());
        let mut next = |is_asked: bool| {
            let rows = is_asked.then(|| rows.next()).flatten();
            rows.map(Vec::as_slice).unwrap_or_default()
        };
        let mut stored = Stored::default();
        let seen = wanted.seen.iter().map(|run| (row::asked(run), None));
        stored.runs.extend(seen);
        for (runs, is_locked) in [(&wanted.runs, true), (&wanted.seen, false)] {
            for row in next(!runs.is_empty()) {
                if let Some(known) = row::known(row, runs, is_locked) {
                    let (asked, known) = known?;
                    stored.runs.insert(asked, Some(known));
                }
            }
        }
        let ids = wanted.breadcrumbs.into_iter();
        stored.breadcrumbs = ids.map(|id| (id, None)).collect();
        for row in next(!stored.breadcrumbs.is_empty()) {
            let found = table::read(row, 0)?;
            stored.breadcrumbs.insert(found.breadcrumb.id, Some(found));
        }
        let keys = wanted.requests.into_iter();
        stored.requests = keys.map(|key| (key, None)).collect();
        let has_requests = !stored.requests.is_empty();
        requests::add(&mut stored.requests, next(has_requests))?;
        let oldest = next(has_requests).first();
        stored.oldest_key = oldest.map(|row| column::time(row, 0)).transpose()?;
        Ok(stored)
    }
}

/// Facts that were read from the tables.
#[derive(Default)]
pub(super) struct Stored {
    /// `None` for a run to be enqueued whose row stays as it is.
    pub(super) runs: HashMap<Asked, Option<Known>>,
    /// Breadcrumbs or their tombstones, and `None` for a missing one.
    pub(super) breadcrumbs: HashMap<BreadcrumbId, Option<Found>>,
    /// Recorded keys of requests, and `None` for a new one.
    pub(super) requests: BTreeMap<Key, Option<Recorded>>,
    /// Time of the oldest key.
    pub(super) oldest_key: Option<Timestamp>,
}

/// Statements that each connection prepares for [`Wanted::ask`].
pub(super) fn statements() -> String {
    macro_rules! prepare {
        ($name:literal, $types:literal, $runs:literal, $lock:literal, $which:literal, $paused:literal) => {
            concat!(
                "PREPARE ",
                $name,
                " (",
                $types,
                ") AS ",
                select_known!($runs, $lock, $which, $paused),
                "; "
            )
        };
        ($one:literal, $all:literal, $lock:literal, $which:literal, $paused:literal) => {
            concat!(
                // A row of values costs the server less than a table of columns.
                prepare!(
                    $one,
                    "bigint, uuid, bigint, text, text",
                    "(VALUES ($2, $3, $4, $5, 1::bigint))",
                    $lock,
                    $which,
                    $paused
                ),
                prepare!(
                    $all,
                    "bigint, uuid[], bigint[], text[], text[]",
                    "unnest($2, $3, $4, $5) WITH ORDINALITY",
                    $lock,
                    $which,
                    $paused
                )
            )
        };
    }
    let known = prepare!(
        "ux_known",
        "ux_known_all",
        "FOR UPDATE",
        "",
        "(SELECT p.since FROM ux_paused AS p WHERE p.tenant = $1 AND p.executor = u.executor)"
    );
    // A row whose origin is known stays as it is when it is enqueued.
    let seen = prepare!(
        "ux_seen",
        "ux_seen_all",
        "LIMIT 1",
        "WHERE r.serial IS NULL OR r.correlation IS NULL",
        "NULL::bigint"
    );
    let requests = format!("{}; {}", requests::FIND, requests::OLDEST);
    format!("{known}{seen}{}; {requests}", table::FIND)
}

/// Returns the statement that reads the facts of one run.
fn read_one(statement: &str, tenant: i64, run: &RunRef) -> String {
    let order = run.order.as_deref();
    format!(
        "EXECUTE {statement} ({tenant}, {}, {}, {}, {})",
        prepared::id(run.trigger_id),
        run.trigger_version.cast_signed(),
        prepared::name(&run.executor),
        order.map_or("NULL".to_owned(), prepared::name)
    )
}

/// Returns the statement that reads the facts of several runs.
fn read_all(statement: &str, tenant: i64, runs: &[RunRef]) -> String {
    let versions = runs.iter().map(|run| run.trigger_version.cast_signed());
    format!(
        "EXECUTE {statement} ({tenant}, {}, {}, {}, {})",
        prepared::ids(runs.iter().map(|run| run.trigger_id)),
        prepared::numbers(versions),
        prepared::names(runs.iter().map(|run| &*run.executor)),
        prepared::some_names(runs.iter().map(|run| run.order.as_deref()))
    )
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
    /// The time since which its executor is paused. Not read for a run to be enqueued.
    pub(super) paused: Option<Timestamp>,
    /// If `true`, no other transaction changes the row until this one ends.
    pub(super) is_locked: bool,
}

impl Writing<'_> {
    /// Reads the wanted runs and breadcrumbs.
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

    /// Returns the facts of a run, with the changes of the jobs so far. `None` if its row stays as it is when it is enqueued, and
    /// is not to be locked.
    async fn known(&mut self, run: &RunRef, locks: bool) -> sqlx::Result<Option<Known>> {
        let name = row::name(run);
        let Some(mut known) = self.look_up(&name, run, locks).await? else {
            return Ok(None);
        };
        let row = known.kept.as_ref().map(|kept| &kept.row.run);
        let line = line_of(row.unwrap_or(run));
        if let Some(line) = &line {
            // The row can have another ordering key than the caller named.
            let has_lock = self.lines.contains(line);
            if !has_lock {
                self.lock(BTreeSet::from([line.clone()])).await?;
            }
            let is_left = self.own.left.contains(line) || self.earlier.left.contains(line);
            if is_left {
                // The first run of the ordering key is known once the changes are written.
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
        let known = known.ok_or(sqlx::Error::RowNotFound)?;
        Ok(self.facts_of(run, known))
    }

    /// Returns the facts of a run to be enqueued, or `None` if its row exists and stays as it is. The row is not locked.
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
