//! Idempotency keys of one tenant's requests for runs, by which a repeated request creates no second run.

use super::{MemoryLimits, NAME, State, stage};
use crate::model::{BreadcrumbId, Timestamp};
use crate::store::request::{RecordedKey, ValidRequest};
use crate::store::{Committed, Requested, RunRef, StoreError, Write};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum number of old idempotency keys that a request checks for deletion, unless the tenant has reached its limit of keys.
const SWEPT: usize = 64;

/// Executor ID and idempotency key, which identify a request for a run.
type RequestId = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Requests {
    keys: HashMap<RequestId, RecordedKey>,
    /// Idempotency keys to check for deletion, oldest first. A check deletes a key if the ledger does not have the run for the
    /// request's breadcrumb. Each entry has the time at which the key was added or renewed, and a unique number.
    checks: BTreeMap<(Timestamp, u64), RequestId>,
    /// Serial number of the newest idempotency key in the list of keys to check for deletion. The numbers distinguish entries
    /// with the same time.
    last: u64,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn insert(&mut self, id: RequestId, recorded: RecordedKey, now: Timestamp) {
        self.keys.insert(id.clone(), recorded);
        self.add_check(id, now);
    }

    fn add_check(&mut self, id: RequestId, time: Timestamp) {
        self.last += 1;
        self.checks.insert((time, self.last), id);
    }

    /// Checks up to `most` old idempotency keys of requests, and deletes each key whose request triggered a run that the ledger
    /// does not have.
    fn sweep(&mut self, has_run: impl Fn(&RunRef) -> bool, now: Timestamp, most: usize) {
        let until = ValidRequest::from_validated_text(now);
        for _ in 0..most {
            let first = self.checks.first_entry();
            let Some(first) = first.filter(|first| first.key().0 <= until) else {
                return;
            };
            let id = first.remove();
            let run = self.keys.get(&id);
            let run = run.map(|of| RunRef::new(Arc::clone(&id.0), of.id, of.version));
            if run.is_some_and(|run| has_run(&run)) {
                self.add_check(id, ValidRequest::renewed_at(now));
            } else {
                self.keys.remove(&id);
            }
        }
    }
}

/// Creates the breadcrumb that triggers a requested run, unless an earlier request has the same idempotency key.
pub(super) fn request(
    state: &mut State,
    request: &ValidRequest,
    limits: &MemoryLimits,
    tenant: &str,
    now: Timestamp,
) -> Result<(Requested, Option<Committed>), StoreError> {
    let id = request.name();
    if let Some(recorded) = state.requests.keys.get(&id) {
        return Ok((request.answer(recorded)?, None));
    }
    let runs = &state.runs;
    let limit = limits.open_runs.saturating_add(limits.finished_runs);
    let most = match state.requests.keys.len() >= limit {
        true => ValidRequest::SWEPT_IF_FULL,
        false => SWEPT,
    };
    state.requests.sweep(|run| runs.has(run), now, most);
    if state.requests.keys.len() >= limit {
        return Err(ValidRequest::full(NAME, limit));
    }
    let writes = vec![Write::Create(request.breadcrumb.clone())];
    let committed = stage::commit(state, writes, None, limits, tenant, now)?;
    let breadcrumb = committed.written.first().cloned();
    let breadcrumb = breadcrumb.ok_or(StoreError::NotFound {
        id: BreadcrumbId::NIL,
        tombstone: None,
    })?;
    let recorded = request.recorded(&breadcrumb);
    state.requests.insert(id, recorded, now);
    Ok((Requested::Created { breadcrumb }, Some(committed)))
}
