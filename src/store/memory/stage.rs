//! A commit to the store in memory, in two steps: staging against the current state, which can fail, and applying, which cannot
//! fail.

use super::entry::{Writer, is_alive};
use super::{MemoryLimits, NAME, State};
use crate::model::{Breadcrumb, BreadcrumbId, EventKind, JsonError, Patch, Timestamp};
use crate::store::row::{AttemptEnd, RunRow};
use crate::store::rules;
use crate::store::{Committed, Lease, RunEnd, StoreError, Write, canonical};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// Changes that a commit prepares in full before it changes the tenant's state.
struct StagedCommit<'s> {
    state: &'s State,
    now: Timestamp,
    latest: i64,
    written: Vec<(EventKind, Arc<Breadcrumb>)>,
    /// Breadcrumbs after the staged writes of the commit; `None` for a deleted one. Empty for a commit of one write, which reads
    /// none of them.
    current: HashMap<BreadcrumbId, Option<Arc<Breadcrumb>>, RandomState>,
    is_single: bool,
    created: usize,
    deleted: usize,
    /// Number of bytes by which the commit increases the total size of the tenant's breadcrumbs.
    growth: isize,
    breadcrumb_bytes: usize,
}

/// Returns the change of a size from `before` to `after` in bytes, negative for a smaller size.
pub(super) fn difference(after: usize, before: usize) -> isize {
    let amount = isize::try_from(after.abs_diff(before)).unwrap_or(isize::MAX);
    if after < before { -amount } else { amount }
}

pub(super) fn commit(
    state: &mut State,
    writes: Vec<Write>,
    end: Option<(Lease, RunEnd)>,
    limits: &MemoryLimits,
    tenant: &str,
    now: Timestamp,
) -> Result<Committed, StoreError> {
    /// Maximum number of expired breadcrumbs that one commit removes. A commit with more writes removes more.
    const EXPIRED_AT_ONCE: usize = 64;
    let most = EXPIRED_AT_ONCE.max(writes.len() + 1);
    let row = match &end {
        Some((lease, _)) => Some(state.runs.held(lease)?),
        None => None,
    };
    let mut staged = StagedCommit::new(state, now, limits.breadcrumb_bytes, writes.len());
    for (index, write) in writes.into_iter().enumerate() {
        staged.write(index, write)?;
    }
    if let Some((lease, RunEnd::Failed(letter))) = &end {
        let index = staged.written.len();
        let letter = canonical::new_breadcrumb(
            index,
            letter.breadcrumb(lease, tenant),
            limits.breadcrumb_bytes,
        )?;
        staged.write(index, Write::Create(letter))?;
    }
    let (expired, expired_bytes) = state.table.count_expired(now, most);
    let removed = staged.deleted + expired;
    if staged.created > 0
        && (state.table.len() + staged.created).saturating_sub(removed) > limits.breadcrumbs
    {
        return Err(StoreError::Full {
            store: NAME,
            what: "breadcrumbs",
            limit: limits.breadcrumbs,
        });
    }
    let more = staged.growth + state_growth(end.as_ref(), row.as_ref());
    state.check_bytes(more, expired_bytes, limits.bytes)?;
    if let Some((_, RunEnd::Suspended { .. })) = &end {
        // Later commits must have a later time than the suspension, even if this commit has no writes.
        staged.next_time();
    }
    let (written, latest) = (staged.written, staged.latest);
    let writer = end.as_ref().map(|(lease, _)| writer_of(state, lease));
    state.latest = latest;
    // Expired breadcrumbs are removed only now, because a failed commit must not change anything.
    state.table.expire(now, most);
    for (kind, breadcrumb) in &written {
        apply(state, *kind, breadcrumb, writer.as_ref(), limits);
    }
    let committed = Committed::new(
        written
            .into_iter()
            .map(|(_, breadcrumb)| breadcrumb)
            .collect(),
    );
    if let (Some((_, end)), Some(row)) = (end, row) {
        let end = AttemptEnd::of(end, Timestamp::from_micros(latest));
        let change = rules::end(row, end, &committed.ids(), state.runs.next());
        state.runs.apply(change);
        state.runs.remove_oldest_ended(limits.finished_runs);
    }
    Ok(committed)
}

/// Returns the number of bytes by which a commit makes the saved state of its run grow.
fn state_growth(end: Option<&(Lease, RunEnd)>, row: Option<&RunRow>) -> isize {
    let before = row.map_or(0, RunRow::state_bytes);
    match end {
        Some((_, RunEnd::Suspended { state, .. })) => difference(state.size(), before),
        Some((_, RunEnd::Done | RunEnd::Failed(_) | RunEnd::Skipped(_) | RunEnd::Superseded)) => {
            difference(0, before)
        }
        Some((_, RunEnd::Continues)) | None => 0,
    }
}

fn apply(
    state: &mut State,
    kind: EventKind,
    breadcrumb: &Arc<Breadcrumb>,
    writer: Option<&Writer>,
    limits: &MemoryLimits,
) {
    match kind {
        EventKind::Created | EventKind::Updated => {
            state.table.put(Arc::clone(breadcrumb), writer.cloned())
        }
        EventKind::Deleted | EventKind::Ping => {
            state
                .table
                .put_tombstone(Arc::clone(breadcrumb), writer.cloned(), limits);
        }
    }
    state.log.push(kind, breadcrumb, limits);
}

/// Returns the executor and the lineage that a commit under a lease records as the writer of its breadcrumbs. The lineage is
/// one hop after the trigger.
fn writer_of(state: &State, lease: &Lease) -> Writer {
    let lineage = state.runs.lineage(&lease.run);
    Writer {
        executor: Arc::clone(&lease.run.executor),
        lineage: lineage.next(),
    }
}

impl<'s> StagedCommit<'s> {
    fn new(state: &'s State, now: Timestamp, breadcrumb_bytes: usize, writes: usize) -> Self {
        Self {
            state,
            now,
            latest: state.latest,
            // The end of a run can add a dead letter.
            written: Vec::with_capacity(writes + 1),
            current: HashMap::default(),
            is_single: writes <= 1,
            created: 0,
            deleted: 0,
            growth: 0,
            breadcrumb_bytes,
        }
    }

    fn write(&mut self, index: usize, write: Write) -> Result<(), StoreError> {
        let at = self.next_time();
        match write {
            Write::Create(new) => {
                self.created += 1;
                let created = new.first_version(BreadcrumbId::unique(), at);
                self.check_size(index, &created)?;
                self.growth += difference(created.size(), 0);
                self.push_written(EventKind::Created, created);
            }
            Write::Update { id, version, patch } => {
                let before = self.find(id)?;
                if before.version != version {
                    return Err(StoreError::Conflict {
                        id,
                        expected: version,
                        found: before.version,
                    });
                }
                let after = before.patched(patch, at);
                self.check_size(index, &after)?;
                self.growth += difference(after.size(), before.size());
                self.push_written(EventKind::Updated, after);
            }
            Write::Delete { id, by } => {
                let before = self.find(id)?;
                self.deleted += 1;
                self.growth -= difference(before.size(), 0);
                let tombstone = before.patched(
                    Patch {
                        updated_by: by,
                        ..Patch::new()
                    },
                    at,
                );
                self.push_written(EventKind::Deleted, tombstone);
            }
        }
        Ok(())
    }

    fn find(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        let found = match self.current.get(&id) {
            Some(staged) => staged.as_ref().filter(|staged| is_alive(staged, self.now)),
            None => self.state.table.get(id, self.now),
        };
        found.cloned().ok_or_else(|| StoreError::NotFound {
            id,
            tombstone: self.state.table.tombstone(id).cloned(),
        })
    }

    /// Returns an error if the total size of a breadcrumb that a commit writes exceeds the limit. The single fields were checked
    /// before.
    fn check_size(&self, index: usize, breadcrumb: &Breadcrumb) -> Result<(), StoreError> {
        let (size, limit) = (breadcrumb.size(), self.breadcrumb_bytes);
        if size > limit {
            return Err(StoreError::Rejected {
                what: format!("write {index}"),
                source: JsonError::TooLarge { size, limit },
            });
        }
        Ok(())
    }

    fn push_written(&mut self, kind: EventKind, breadcrumb: Breadcrumb) {
        let breadcrumb = Arc::new(breadcrumb);
        if !self.is_single {
            let current = (kind != EventKind::Deleted).then(|| Arc::clone(&breadcrumb));
            self.current.insert(breadcrumb.id, current);
        }
        self.written.push((kind, breadcrumb));
    }

    /// Returns the update time for the next write of the commit. This time is later than the time of every earlier commit, so the
    /// update order equals the commit order.
    fn next_time(&mut self) -> Timestamp {
        self.latest = self.now.as_micros().max(self.latest + 1);
        Timestamp::from_micros(self.latest)
    }
}
