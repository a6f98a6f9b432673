//! Changes that the jobs (store operations) of a PostgreSQL transaction make, and the parts of the SQL statement that writes them.

use super::request_keys::{self, Key};
use super::row::{Kept, Line, Name};
use super::statement::Statement;
use super::table::Written;
use super::{events, row, table, vectors};
use crate::model::{BreadcrumbId, Event};
use crate::store::RunState;
use crate::store::request::RecordedKey;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Changes that the jobs (store operations) of a PostgreSQL transaction make, before they are written to the tables.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) created: Vec<Written>,
    /// New versions and tombstones of existing breadcrumbs, by breadcrumb ID. Only the last version of each breadcrumb is written.
    pub(super) replaced: HashMap<BreadcrumbId, Written>,
    /// Events of the changed breadcrumbs, in the order of their positions. The position of the last event is the tenant's current event
    /// position.
    pub(super) events: Vec<Event>,
    pub(super) runs: HashMap<Name, Kept>,
    /// Request keys that the transaction adds, each with the trigger that its request created.
    pub(super) requests: BTreeMap<Key, RecordedKey>,
    /// Ordering keys with runs that the jobs added or changed. Each of these runs is still in the order of its ordering key.
    pub(super) joined: BTreeSet<Line>,
    /// Ordering keys whose first run may have ended, or may have left its position in the order. The next run of such a key may be
    /// the first now.
    pub(super) left: BTreeSet<Line>,
    /// If `true`, the tenant's row must record the time of this transaction, because the transaction made a run due immediately.
    pub(super) shows_time: bool,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.created.is_empty()
            && self.replaced.is_empty()
            && self.events.is_empty()
            && self.runs.is_empty()
            && self.requests.is_empty()
    }

    /// Adds the changes of a later job of the same transaction.
    pub(super) fn append(&mut self, later: Self) {
        self.created.extend(later.created);
        self.replaced.extend(later.replaced);
        self.events.extend(later.events);
        self.runs.extend(later.runs);
        self.requests.extend(later.requests);
        self.joined.extend(later.joined);
        self.left.extend(later.left);
        self.shows_time |= later.shows_time;
    }

    /// Appends to `statement` the SQL that writes all changes of a transaction. The statement's table [`t`](super::tenant::place) contains
    /// the tenant's sequence number and event position before the changes. No two parts change the same row. Returns the number of new runs
    /// that another transaction may have added first.
    pub(super) fn write(&self, statement: &mut Statement, tenant: i64, has_vectors: bool) -> usize {
        table::insert(statement, tenant, &self.created);
        let replaced: Vec<&Written> = self.replaced.values().collect();
        table::replace(statement, tenant, &replaced);
        if has_vectors {
            vectors::forget(statement, tenant, self.replaced.keys().copied());
        }
        events::push(statement, &self.events);
        let (known, new): (Vec<&Kept>, Vec<&Kept>) =
            self.runs.values().partition(|kept| kept.serial.is_some());
        let (ready, claimed): (Vec<&Kept>, Vec<&Kept>) = new
            .into_iter()
            .partition(|kept| kept.row.state == RunState::Ready);
        row::insert(statement, &ready, true);
        row::insert(statement, &claimed, false);
        row::update(statement, &known);
        request_keys::insert(statement, &self.requests);
        ready.len()
    }
}
