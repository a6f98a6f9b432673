//! What jobs change, and the statement that writes all of it.

use super::row::{Kept, Name};
use super::statement::Statement;
use super::tenant;
use super::{log, queue, row, table, vectors};
use crate::model::{Breadcrumb, BreadcrumbId, Event};
use crate::store::RunRef;
use crate::store::durable::found::Writer;
use crate::store::durable::tenant::Tenant;
use sqlx::PgConnection;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// An executor, and an ordering key of its runs.
pub(super) type Line = (Arc<str>, Arc<str>);

/// The line that a run stands in, if it does in one.
pub(super) fn line_of(run: &RunRef) -> Option<Line> {
    let line = run.order.as_deref()?;
    Some((Arc::clone(&run.executor), line.into()))
}

/// A version of a breadcrumb or its tombstone, and which run wrote it.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) breadcrumb: Arc<Breadcrumb>,
    pub(super) is_tombstone: bool,
    pub(super) writer: Option<Writer>,
}

/// What is to be changed in the tables.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) created: Vec<Written>,
    /// By id, the last version only.
    pub(super) replaced: HashMap<BreadcrumbId, Written>,
    /// For the positions up to that of the tenant.
    pub(super) events: Vec<Event>,
    pub(super) runs: HashMap<Name, Kept>,
    /// Lines with a run that was added or changed.
    pub(super) joined: HashSet<Line>,
    /// Lines that a run left or in which it came to its end, and maybe without a first one.
    pub(super) left: HashSet<Line>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.created.is_empty()
            && self.replaced.is_empty()
            && self.events.is_empty()
            && self.runs.is_empty()
    }

    /// Adds what was changed after this.
    pub(super) fn append(&mut self, later: Self) {
        self.created.extend(later.created);
        self.replaced.extend(later.replaced);
        self.events.extend(later.events);
        self.runs.extend(later.runs);
        self.joined.extend(later.joined);
        self.left.extend(later.left);
    }

    /// Whether nothing is left to be found out when it is written.
    pub(super) fn is_all(&self) -> bool {
        self.left.is_empty()
    }

    /// One statement that writes it, whose parts change different rows. `position` is that of the last event.
    pub(super) fn statement(
        &self,
        tenant: i64,
        position: i64,
        changed: Option<&Tenant>,
        has_vectors: bool,
    ) -> Statement {
        let mut statement = Statement::new("WITH nothing AS (SELECT)");
        table::insert(&mut statement, tenant, &self.created);
        let replaced: Vec<&Written> = self.replaced.values().collect();
        table::replace(&mut statement, tenant, &replaced);
        if has_vectors {
            vectors::forget(&mut statement, tenant, self.replaced.keys().copied());
        }
        log::push(&mut statement, tenant, position, &self.events);
        let (known, new): (Vec<&Kept>, Vec<&Kept>) =
            self.runs.values().partition(|kept| kept.serial.is_some());
        row::insert(&mut statement, tenant, &new);
        row::update(&mut statement, &known);
        match changed {
            Some(tenant) => tenant::update(&mut statement, tenant),
            None => drop(statement.push(" SELECT")),
        }
        statement
    }

    /// Finds out who stands first in the lines that somebody left, once it is written.
    pub(super) async fn promote(
        &self,
        connection: &mut PgConnection,
        tenant: i64,
    ) -> sqlx::Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        queue::promote(connection, tenant, &self.left).await
    }
}
