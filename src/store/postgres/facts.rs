//! Rows that the jobs (store operations) of a PostgreSQL transaction need: rows of runs, ordering keys, breadcrumbs and
//! idempotency keys of requests.

use super::request_keys::{self, RequestKey};
use super::row::{self, OrderingKey, RunLookupKey, StoredRun, ordering_key_of};
use super::{column, prepared, table};
use crate::bugs::planted;
use crate::model::{BreadcrumbId, Timestamp};
use crate::store::RunRef;
use crate::store::durable::stored_breadcrumb::StoredBreadcrumb;
use crate::store::request::RecordedKey;
use crate::store::row::Origin;
use crate::store::rules::FirstOfKey;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Runs, breadcrumbs and idempotency keys of requests to be read at once for all jobs (store operations) of a PostgreSQL
/// transaction. Further rows are read when a job needs them.
#[derive(Default)]
pub(super) struct FactQuery {
    /// Runs whose ledger rows the transaction must read and lock.
    pub(super) runs: Vec<RunRef>,
    /// Runs that the transaction enqueues, whose ledger rows it reads without a lock.
    pub(super) enqueued: Vec<RunRef>,
    /// Ordering keys of runs that the transaction must lock.
    pub(super) ordering_keys: BTreeSet<OrderingKey>,
    pub(super) breadcrumbs: Vec<BreadcrumbId>,
    /// Idempotency keys of requests that the transaction must look up.
    pub(super) requests: BTreeSet<RequestKey>,
}

impl FactQuery {
    /// Adds a run whose ledger row and ordering key the transaction must lock.
    pub(super) fn add_run(&mut self, run: &RunRef) {
        self.ordering_keys.extend(ordering_key_of(run));
        self.runs.push(run.clone());
    }

    /// Adds a run that the transaction enqueues. The transaction must lock the run's ordering key.
    pub(super) fn add_enqueued(&mut self, run: &RunRef) {
        if planted("no-key") {
            return self.add_run(run);
        }
        self.ordering_keys.extend(ordering_key_of(run));
        self.enqueued.push(run.clone());
    }

    /// Adds to a protocol message the SQL statements that read the runs, breadcrumbs and idempotency keys in this query.
    pub(super) fn add_statements(mut self, tenant: i64, message: &mut Vec<String>) -> PendingFacts {
        if !self.runs.is_empty() && !self.enqueued.is_empty() {
            let locked: BTreeSet<RunLookupKey> = self.runs.iter().map(row::lookup_key).collect();
            self.enqueued
                .retain(|run| !locked.contains(&row::lookup_key(run)));
        }
        // All transactions lock rows in this order, which prevents deadlocks.
        self.runs.sort_by_cached_key(row::identity);
        for (runs, one, several) in [
            (&self.runs, "ux_known", "ux_known_all"),
            (&self.enqueued, "ux_seen", "ux_seen_all"),
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
            message.push(request_keys::read(tenant, &self.requests));
            message.push(format!("EXECUTE ux_oldest_key ({tenant})"));
        }
        PendingFacts(self)
    }
}

/// Query for runs, breadcrumbs and idempotency keys whose SQL statements were added to a protocol message, and whose result has
/// not been read. [`read`](Self::read) reads the result from the server's answer.
pub(super) struct PendingFacts(FactQuery);

impl PendingFacts {
    /// Reads the requested runs, breadcrumbs and idempotency keys from the SQL rows in the server's answer.
    pub(super) fn read(self, rows: &[Vec<PgRow>]) -> sqlx::Result<ReadFacts> {
        let (fact_query, mut rows) = (self.0, rows.iter());
        let mut next = |is_requested: bool| {
            let rows = is_requested.then(|| rows.next()).flatten();
            rows.map(Vec::as_slice).unwrap_or_default()
        };
        let mut facts = ReadFacts::default();
        let enqueued = fact_query
            .enqueued
            .iter()
            .map(|run| (row::lookup_key(run), None));
        facts.runs.extend(enqueued);
        for (runs, is_locked) in [(&fact_query.runs, true), (&fact_query.enqueued, false)] {
            for row in next(!runs.is_empty()) {
                if let Some(run_facts) = read_run_facts(row, runs, is_locked) {
                    let (lookup_key, run_facts) = run_facts?;
                    facts.runs.insert(lookup_key, Some(run_facts));
                }
            }
        }
        let ids = fact_query.breadcrumbs.into_iter();
        facts.breadcrumbs = ids.map(|id| (id, None)).collect();
        for row in next(!facts.breadcrumbs.is_empty()) {
            let stored = table::read(row, 0)?;
            facts.breadcrumbs.insert(stored.breadcrumb.id, Some(stored));
        }
        let keys = fact_query.requests.into_iter();
        facts.requests = keys.map(|key| (key, None)).collect();
        let has_requests = !facts.requests.is_empty();
        request_keys::add(&mut facts.requests, next(has_requests))?;
        let oldest = next(has_requests).first();
        facts.oldest_key = oldest.map(|row| column::time(row, 0)).transpose()?;
        Ok(facts)
    }
}

/// Reads the data that decides about one run's state transition (see [`RunFacts`]) from a row of the query result. The row
/// contains the run's index in `runs`.
fn read_run_facts(
    pg_row: &PgRow,
    runs: &[RunRef],
    is_locked: bool,
) -> Option<sqlx::Result<(RunLookupKey, RunFacts)>> {
    let read = |run: &RunRef| {
        let is_in_ledger = pg_row.try_get::<Option<i64>, _>(0)?.is_some();
        let run_facts = RunFacts {
            stored: is_in_ledger.then(|| row::read(pg_row)).transpose()?,
            origin: table::origin(pg_row, row::COLUMNS + 1, run)?,
            first: first(pg_row, row::COLUMNS + 5)?,
            paused: column::some_time(pg_row, row::COLUMNS + 8)?,
            is_locked,
        };
        Ok((row::lookup_key(run), run_facts))
    };
    let index = pg_row.try_get::<i64, _>(row::COLUMNS);
    let index = index.map(|index| usize::try_from(index - 1).unwrap_or(usize::MAX));
    match index {
        Ok(index) => runs.get(index).map(read),
        Err(error) => Some(Err(error)),
    }
}

/// Reads the earliest other run with a run's ordering key that has not ended, from the columns of an SQL row, or returns `None`
/// if there is no such run.
fn first(pg_row: &PgRow, column: usize) -> sqlx::Result<Option<FirstOfKey>> {
    let Some(sequence) = pg_row.try_get::<Option<i64>, _>(column)? else {
        return Ok(None);
    };
    Ok(Some(FirstOfKey {
        sequence: sequence.cast_unsigned(),
        due: column::some_time(pg_row, column + 1)?,
        lease: Duration::from_micros(column::number(pg_row, column + 2)?),
    }))
}

/// Runs, breadcrumbs and idempotency keys of requests that a transaction has read from the PostgreSQL tables.
#[derive(Default)]
pub(super) struct ReadFacts {
    /// Data that decides about the state transitions of runs, for each run that the transaction has read. `None` for a run to be
    /// enqueued whose row exists and does not change.
    pub(super) runs: HashMap<RunLookupKey, Option<RunFacts>>,
    /// Breadcrumbs or their tombstones that the transaction has read. `None` for a missing breadcrumb.
    pub(super) breadcrumbs: HashMap<BreadcrumbId, Option<StoredBreadcrumb>>,
    /// Ledger records of earlier requests that had the same idempotency keys as requests of this transaction. `None` for a new
    /// key.
    pub(super) requests: BTreeMap<RequestKey, Option<RecordedKey>>,
    /// Earliest time at which one of the tenant's idempotency keys was added or last checked for deletion, which shows whether a
    /// check is due.
    pub(super) oldest_key: Option<Timestamp>,
}

/// SQL that reads, for each run in a list, the ledger row, the trigger's origin, and the earliest other run with the same
/// ordering key that has not ended.
///
/// `$lock` ends the lookup of a run: `FOR UPDATE`, or `LIMIT 1`. With either, the server looks up each run by its index. Otherwise a plan
/// that was made while the tables were small would read all rows of the tenant. `$filter` may omit runs. `$paused` is the time since which
/// the executor is paused.
macro_rules! select_known {
    ($runs:expr, $lock:literal, $filter:literal, $paused:literal) => {
        concat!(
            "SELECT r.*, u.place, b.id IS NOT NULL, b.writer, b.correlation, b.hops,
                 o.sequence, o.due, o.lease, ",
            $paused,
            " FROM ",
            $runs,
            " AS u (trigger_id, trigger_version, executor, line, place)
             LEFT JOIN LATERAL (",
            $crate::store::postgres::row::select!(
                "FROM ux_runs AS r WHERE r.tenant = $1 AND r.trigger_id = u.trigger_id
                     AND r.trigger_version = u.trigger_version AND r.executor = u.executor "
            ),
            $lock,
            ") AS r ON TRUE
             CROSS JOIN LATERAL (SELECT CASE WHEN r.serial IS NULL THEN u.line ELSE r.line END AS line) AS l
             LEFT JOIN LATERAL (SELECT b.id, b.writer, b.correlation, b.hops FROM ux_breadcrumbs AS b
                 WHERE b.tenant = $1 AND b.id = u.trigger_id AND b.version = u.trigger_version LIMIT 1) AS b ON TRUE
             LEFT JOIN LATERAL (SELECT o.sequence, o.due, o.lease FROM ux_runs AS o
                 WHERE o.tenant = $1 AND o.executor = u.executor AND o.line = l.line AND o.line IS NOT NULL
                     AND o.over IS NULL AND o.serial IS DISTINCT FROM r.serial AND o.sequence < ",
            $crate::store::row::out_of_order_bit!(),
            " ORDER BY o.sequence LIMIT 1) AS o ON TRUE ",
            $filter
        )
    };
}

/// Returns the SQL that each connection prepares to read runs, breadcrumbs and idempotency keys of requests in a transaction.
pub(super) fn statements() -> String {
    macro_rules! prepare {
        ($name:literal, $types:literal, $runs:literal, $lock:literal, $filter:literal, $paused:literal) => {
            concat!(
                "PREPARE ",
                $name,
                " (",
                $types,
                ") AS ",
                select_known!($runs, $lock, $filter, $paused),
                "; "
            )
        };
        ($one:literal, $all:literal, $lock:literal, $filter:literal, $paused:literal) => {
            concat!(
                // `VALUES` with one row costs the server less than `unnest` of arrays.
                prepare!(
                    $one,
                    "bigint, uuid, bigint, text, text",
                    "(VALUES ($2, $3, $4, $5, 1::bigint))",
                    $lock,
                    $filter,
                    $paused
                ),
                prepare!(
                    $all,
                    "bigint, uuid[], bigint[], text[], text[]",
                    "unnest($2, $3, $4, $5) WITH ORDINALITY",
                    $lock,
                    $filter,
                    $paused
                )
            )
        };
    }
    let locked = prepare!(
        "ux_known",
        "ux_known_all",
        "FOR UPDATE",
        "",
        "(SELECT p.since FROM ux_paused AS p WHERE p.tenant = $1 AND p.executor = u.executor)"
    );
    // Enqueuing a run does not change a row whose origin is known.
    let enqueued = prepare!(
        "ux_seen",
        "ux_seen_all",
        "LIMIT 1",
        "WHERE r.serial IS NULL OR r.correlation IS NULL",
        "NULL::bigint"
    );
    let requests = format!("{}; {}", request_keys::FIND, request_keys::OLDEST);
    format!("{locked}{enqueued}{}; {requests}", table::FIND)
}

/// Returns the SQL statement that reads one run's ledger row, its trigger's origin, and the earliest other run with its ordering
/// key that has not ended.
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

/// Returns the SQL statement that reads, for several runs, the ledger row, the trigger's origin, and the earliest other run with
/// the same ordering key that has not ended.
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

/// Data that decides about a run's state transition: its ledger row, its trigger's origin, the earliest other run with its
/// ordering key that has not ended, and its executor's pause.
#[derive(Clone)]
pub(super) struct RunFacts {
    /// Ledger row of the run, or `None` if the run is not in the ledger.
    pub(super) stored: Option<StoredRun>,
    /// Recorded origin of the run's trigger: the correlation ID and hops, or `Origin::Own` if the run's own executor wrote the trigger.
    pub(super) origin: Origin,
    /// Earliest other run with the run's ordering key that has not ended, or `None` if there is no such run.
    pub(super) first: Option<FirstOfKey>,
    /// Start of the current pause of the run's executor, or `None` if the executor is not paused. Not read for a run to be
    /// enqueued.
    pub(super) paused: Option<Timestamp>,
    /// If `true`, the run's ledger row is locked until the end of this transaction.
    pub(super) is_locked: bool,
}
