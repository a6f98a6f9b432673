//! Changes that jobs make, and the parts of the statement that writes them.

use super::request_keys::{self, Key};
use super::row::{Kept, Line, Name};
use super::statement::Statement;
use super::table::Written;
use super::{events, row, table, vectors};
use crate::model::{BreadcrumbId, Event};
use crate::store::RunState;
use crate::store::request::Recorded;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is to be changed in the tables.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) created: Vec<Written>,
    /// By id, the last version only.
    pub(super) replaced: HashMap<BreadcrumbId, Written>,
    /// For the positions up to that of the tenant.
    pub(super) events: Vec<Event>,
    pub(super) runs: HashMap<Name, Kept>,
    /// New keys of requests.
    pub(super) requests: BTreeMap<Key, Recorded>,
    /// Ordering keys with a run that was added or changed.
    pub(super) joined: BTreeSet<Line>,
    /// Ordering keys whose first run may have ended or left.
    pub(super) left: BTreeSet<Line>,
    /// If `true`, the tenant's row has to get the time of this transaction, because a row became due at once.
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

    /// Adds what was changed after this.
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

    /// Adds to a statement with a table [`t`](super::tenant::place) all changes, in parts that change different rows. Returns the
    /// number of new runs that may have been added by another transaction.
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
