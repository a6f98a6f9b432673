//! The keys of the requests of one tenant.

use super::{MemoryLimits, NAME, State, stage};
use crate::model::{BreadcrumbId, Timestamp};
use crate::store::request::{Checked, Recorded};
use crate::store::{Committed, Requested, RunRef, StoreError, Write};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Executor ID and key.
type Name = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Requests {
    keys: HashMap<Name, Recorded>,
    /// The keys by number, with the times of their last checks. A checked key takes the next number.
    checks: BTreeMap<u64, (Timestamp, Name)>,
    /// The last number.
    last: u64,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn insert(&mut self, name: Name, recorded: Recorded, now: Timestamp) {
        self.keys.insert(name.clone(), recorded);
        self.check_at(name, now);
    }

    fn check_at(&mut self, name: Name, now: Timestamp) {
        self.last += 1;
        self.checks.insert(self.last, (now, name));
    }

    /// Deletes old keys without a run.
    fn sweep(&mut self, has_run: impl Fn(&RunRef) -> bool, now: Timestamp) {
        let until = Checked::checked_before(now);
        for _ in 0..Checked::SWEPT {
            let first = self.checks.first_entry();
            let Some(first) = first.filter(|first| first.get().0 <= until) else {
                return;
            };
            let (_, name) = first.remove();
            let run = self.keys.get(&name);
            let run = run.map(|of| RunRef::new(Arc::clone(&name.0), of.id, of.version));
            if run.is_some_and(|run| has_run(&run)) {
                self.check_at(name, now);
            } else {
                self.keys.remove(&name);
            }
        }
    }
}

/// Creates the breadcrumb of a request, unless an earlier request has its key.
pub(super) fn request(
    state: &mut State,
    request: Checked,
    limits: &MemoryLimits,
    tenant: &str,
    now: Timestamp,
) -> Result<(Requested, Option<Committed>), StoreError> {
    let name = (Arc::clone(&request.executor), Arc::clone(&request.key));
    if let Some(recorded) = state.requests.keys.get(&name) {
        return Ok((request.answer(recorded)?, None));
    }
    let runs = &state.runs;
    state.requests.sweep(|run| runs.has(run), now);
    let most = limits.open_runs.saturating_add(limits.finished_runs);
    if state.requests.keys.len() >= most {
        return Err(Checked::full(NAME, most));
    }
    let writes = vec![Write::Create(request.breadcrumb)];
    let committed = stage::commit(state, writes, None, limits, tenant, now)?;
    let breadcrumb = committed.written.first().cloned();
    let breadcrumb = breadcrumb.ok_or(StoreError::NotFound {
        id: BreadcrumbId::NIL,
        tombstone: None,
    })?;
    let recorded = Recorded {
        id: breadcrumb.id,
        version: breadcrumb.version,
        digest: request.digest,
    };
    state.requests.insert(name, recorded, now);
    Ok((Requested::Created { breadcrumb }, Some(committed)))
}
