//! Changes that the jobs (store operations) of a PostgreSQL transaction make, and the parts of the SQL statement that writes them.

use super::request_keys::{self, RequestKey};
use super::row::{OrderingKey, RunIdentity, StoredRun};
use super::statement::Statement;
use super::table::NewVersion;
use super::{events, row, table, vectors};
use crate::model::{BreadcrumbId, Event};
use crate::store::RunState;
use crate::store::request::RecordedKey;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Changes that the jobs (store operations) of a PostgreSQL transaction make, before they are written to the tables.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) created: Vec<NewVersion>,
    /// New versions and tombstones of existing breadcrumbs, by breadcrumb ID. Only the last version of each breadcrumb is written.
    pub(super) replaced: HashMap<BreadcrumbId, NewVersion>,
    /// Events of the changed breadcrumbs, in the order of their positions. The position of the last event is the tenant's current event
    /// position.
    pub(super) events: Vec<Event>,
    pub(super) runs: HashMap<RunIdentity, StoredRun>,
    /// Idempotency keys that the transaction adds, each with the trigger that its request created.
    pub(super) requests: BTreeMap<RequestKey, RecordedKey>,
    /// Ordering keys with runs that the transaction's jobs (store operations) added or changed. Each of these runs is still in the order of
    /// its ordering key.
    pub(super) joined_keys: BTreeSet<OrderingKey>,
    /// Ordering keys whose first run may have ended, or may have left its position in the processing order of the key. The next
    /// run of such a key may be the first now.
    pub(super) vacated_keys: BTreeSet<OrderingKey>,
    /// If `true`, the transaction made a run due at once, so it must record its time in the tenant's row.
    pub(super) records_time: bool,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.created.is_empty()
            && self.replaced.is_empty()
            && self.events.is_empty()
            && self.runs.is_empty()
            && self.requests.is_empty()
    }

    /// Adds the changes of a later job (store operation) of the same transaction.
    pub(super) fn append(&mut self, later: Self) {
        self.created.extend(later.created);
        self.replaced.extend(later.replaced);
        self.events.extend(later.events);
        self.runs.extend(later.runs);
        self.requests.extend(later.requests);
        self.joined_keys.extend(later.joined_keys);
        self.vacated_keys.extend(later.vacated_keys);
        self.records_time |= later.records_time;
    }

    /// Appends to `statement` the SQL that writes all changes of a transaction. The statement's table
    /// [`t`](super::tenant::start_write_statement) contains the tenant's sequence number and event position before the changes. No two
    /// parts change the same row. Returns the number of new runs that another transaction may have added first.
    pub(super) fn write(&self, statement: &mut Statement, tenant: i64, has_vectors: bool) -> usize {
        table::insert(statement, tenant, &self.created);
        let replaced: Vec<&NewVersion> = self.replaced.values().collect();
        table::replace(statement, tenant, &replaced);
        if has_vectors {
            vectors::delete_vectors(statement, tenant, self.replaced.keys().copied());
        }
        events::push(statement, &self.events);
        let (stored, new): (Vec<&StoredRun>, Vec<&StoredRun>) = self
            .runs
            .values()
            .partition(|stored_run| stored_run.serial.is_some());
        let (ready, claimed): (Vec<&StoredRun>, Vec<&StoredRun>) = new
            .into_iter()
            .partition(|stored_run| stored_run.row.state == RunState::Ready);
        row::insert(statement, &ready, true);
        row::insert(statement, &claimed, false);
        row::update(statement, &stored);
        request_keys::insert(statement, &self.requests);
        ready.len()
    }
}
