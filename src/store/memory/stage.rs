//! One commit: checked outside the lock, staged against the current state, then applied without failing.

use super::runs::End;
use super::table::Writer;
use super::{MemoryLimits, NAME, State};
use crate::model::{
    Breadcrumb, BreadcrumbId, Event, EventKind, Json, JsonError, NewBreadcrumb, Patch, Timestamp,
};
use crate::store::{Commit, Committed, Lease, RunEnd, RunState, StoreError, Write};
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// The writes in the form that is kept, or why one is not.
pub(super) fn canonical(writes: Vec<Write>, limit: usize) -> Result<Vec<Write>, StoreError> {
    if writes.len() > Commit::MAX_WRITES {
        return Err(StoreError::TooManyWrites {
            count: writes.len(),
            limit: Commit::MAX_WRITES,
        });
    }
    let canonical = writes
        .into_iter()
        .enumerate()
        .map(|(index, write)| match write {
            Write::Create(new) => canonical_new(index, new, limit).map(Write::Create),
            Write::Update { id, version, patch } => canonical_patch(index, patch, limit)
                .map(|patch| Write::Update { id, version, patch }),
            Write::Delete { id, mut by } => {
                by.iter_mut().for_each(clean);
                Ok(Write::Delete { id, by })
            }
        });
    canonical.collect()
}

pub(super) fn canonical_end(
    end: Option<(Lease, RunEnd)>,
    limit: usize,
) -> Result<Option<(Lease, RunEnd)>, StoreError> {
    match end {
        Some((lease, RunEnd::Suspended { wake, state })) => {
            wake.check()?;
            let state = canonical_state(&state, limit)?;
            Ok(Some((lease, RunEnd::Suspended { wake, state })))
        }
        Some((
            _,
            RunEnd::Done
            | RunEnd::Failed(_)
            | RunEnd::Skipped(_)
            | RunEnd::Superseded
            | RunEnd::Continues,
        ))
        | None => Ok(end),
    }
}

pub(super) fn canonical_state(state: &Json, limit: usize) -> Result<Json, StoreError> {
    canonical_json(|| "the state of the run".to_owned(), state, limit)
}

fn canonical_json(
    what: impl FnOnce() -> String,
    json: &Json,
    limit: usize,
) -> Result<Json, StoreError> {
    json.canonical(limit)
        .map_err(|source| StoreError::Rejected {
            what: what(),
            source,
        })
}

fn canonical_new(
    index: usize,
    mut new: NewBreadcrumb,
    limit: usize,
) -> Result<NewBreadcrumb, StoreError> {
    new.context = canonical_json(|| format!("write {index}, context"), &new.context, limit)?;
    if let Some(hints) = &mut new.llm_hints {
        *hints = canonical_json(|| format!("write {index}, llm_hints"), hints, limit)?;
    }
    clean(&mut new.title);
    canonical_tags(index, &mut new.tags)?;
    for text in [
        &mut new.schema_name,
        &mut new.description,
        &mut new.semantic_version,
        &mut new.created_by,
    ] {
        text.iter_mut().for_each(clean);
    }
    Ok(new)
}

fn canonical_patch(index: usize, mut patch: Patch, limit: usize) -> Result<Patch, StoreError> {
    for (field, json) in [
        ("context", &mut patch.context),
        ("llm_hints", &mut patch.llm_hints),
    ] {
        if let Some(json) = json {
            *json = canonical_json(|| format!("write {index}, {field}"), json, limit)?;
        }
    }
    if let Some(tags) = &mut patch.tags {
        canonical_tags(index, tags)?;
    }
    for text in [
        &mut patch.title,
        &mut patch.schema_name,
        &mut patch.description,
        &mut patch.semantic_version,
        &mut patch.updated_by,
    ] {
        text.iter_mut().for_each(clean);
    }
    Ok(patch)
}

fn canonical_tags(index: usize, tags: &mut [String]) -> Result<(), StoreError> {
    if tags.len() > Breadcrumb::MAX_TAGS {
        return Err(StoreError::TooManyTags {
            write: index,
            count: tags.len(),
            limit: Breadcrumb::MAX_TAGS,
        });
    }
    // The replacement of U+0000 takes more room, and what is kept is what counts.
    tags.iter_mut().for_each(clean);
    let longest = tags.iter().map(String::len).max().unwrap_or_default();
    if longest > Breadcrumb::MAX_TAG_BYTES {
        return Err(StoreError::TagTooLong {
            write: index,
            size: longest,
            limit: Breadcrumb::MAX_TAG_BYTES,
        });
    }
    Ok(())
}

fn clean(text: &mut String) {
    if text.contains('\0') {
        *text = text.replace('\0', "\u{FFFD}");
    }
}

/// Everything a commit changes, decided before anything is changed.
struct Stage<'s> {
    state: &'s State,
    now: Timestamp,
    latest: i64,
    written: Vec<(EventKind, Arc<Breadcrumb>)>,
    /// What this commit already made of a breadcrumb; none if it deleted it.
    current: HashMap<BreadcrumbId, Option<Arc<Breadcrumb>>>,
    created: usize,
    deleted: usize,
    breadcrumb_bytes: usize,
}

pub(super) fn commit(
    state: &mut State,
    writes: Vec<Write>,
    end: Option<(Lease, RunEnd)>,
    limits: &MemoryLimits,
    tenant: &str,
    now: Timestamp,
) -> Result<Committed, StoreError> {
    /// What expired makes room for at least so much more.
    const EXPIRED_AT_ONCE: usize = 64;
    state
        .table
        .expire(now, EXPIRED_AT_ONCE.max(writes.len() + 1));
    if let Some((lease, _)) = &end {
        state.runs.check(lease)?;
    }
    let mut stage = Stage::new(state, now, limits.breadcrumb_bytes);
    for (index, write) in writes.into_iter().enumerate() {
        stage.write(index, write)?;
    }
    if let Some((lease, RunEnd::Failed(letter))) = &end {
        let index = stage.written.len();
        let letter = canonical_new(
            index,
            letter.breadcrumb(lease, tenant),
            limits.breadcrumb_bytes,
        )?;
        stage.write(index, Write::Create(letter))?;
    }
    if stage.created > 0
        && (state.table.len() + stage.created).saturating_sub(stage.deleted) > limits.breadcrumbs
    {
        return Err(StoreError::Full {
            store: NAME,
            what: "breadcrumbs",
            limit: limits.breadcrumbs,
        });
    }
    if let Some((_, RunEnd::Suspended { .. })) = &end {
        // What is committed from now on is later than this, also if nothing was written.
        stage.next_time();
    }
    let (written, latest) = (stage.written, stage.latest);
    let writer = end.as_ref().map(|(lease, _)| writer_of(state, lease));
    state.latest = latest;
    for (kind, breadcrumb) in &written {
        apply(state, *kind, breadcrumb, writer.as_ref(), limits);
    }
    let committed = Committed::new(
        written
            .into_iter()
            .map(|(_, breadcrumb)| breadcrumb)
            .collect(),
    );
    if let Some((lease, end)) = end {
        state.runs.end(
            &lease,
            row_end(end, latest),
            committed.ids(),
            limits.finished_runs,
        )?;
    }
    Ok(committed)
}

fn apply(
    state: &mut State,
    kind: EventKind,
    breadcrumb: &Arc<Breadcrumb>,
    writer: Option<&Writer>,
    limits: &MemoryLimits,
) {
    let event = match kind {
        EventKind::Created => Event::created(breadcrumb),
        EventKind::Updated => Event::updated(breadcrumb),
        EventKind::Deleted | EventKind::Ping => Event::deleted(breadcrumb),
    };
    match kind {
        EventKind::Created | EventKind::Updated => {
            state.table.put(Arc::clone(breadcrumb), writer.cloned())
        }
        EventKind::Deleted | EventKind::Ping => {
            state
                .table
                .bury(Arc::clone(breadcrumb), writer.cloned(), limits.tombstones);
        }
    }
    state.log.push(event, limits.events);
}

/// Who writes under a lease, and where that came from: one hop after the trigger.
fn writer_of(state: &State, lease: &Lease) -> Writer {
    let lineage = state.runs.lineage(&lease.run);
    Writer {
        executor: Arc::clone(&lease.run.executor),
        lineage: lineage.next(),
    }
}

fn row_end(end: RunEnd, latest: i64) -> End {
    let over = |state, reason: Option<&str>| End::Over {
        state,
        reason: reason.map(str::to_owned),
    };
    match end {
        RunEnd::Done => over(RunState::Done, None),
        RunEnd::Failed(letter) => over(RunState::Failed, Some(letter.class.as_str())),
        RunEnd::Skipped(reason) => over(RunState::Skipped, Some(reason)),
        RunEnd::Superseded => over(RunState::Superseded, None),
        RunEnd::Suspended { wake, state } => End::Suspended {
            wake,
            state,
            at: Timestamp::from_micros(latest),
        },
        RunEnd::Continues => End::Continues,
    }
}

impl<'s> Stage<'s> {
    fn new(state: &'s State, now: Timestamp, breadcrumb_bytes: usize) -> Self {
        Self {
            state,
            now,
            latest: state.latest,
            written: Vec::new(),
            current: HashMap::new(),
            created: 0,
            deleted: 0,
            breadcrumb_bytes,
        }
    }

    fn write(&mut self, index: usize, write: Write) -> Result<(), StoreError> {
        let at = self.next_time();
        match write {
            Write::Create(new) => {
                self.created += 1;
                let created = new.first_version(Uuid::now_v7().into(), at);
                self.check_size(index, &created)?;
                self.keep(EventKind::Created, created);
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
                self.keep(EventKind::Updated, after);
            }
            Write::Delete { id, by } => {
                let before = self.find(id)?;
                self.deleted += 1;
                let tombstone = before.patched(
                    Patch {
                        updated_by: by,
                        ..Patch::new()
                    },
                    at,
                );
                self.keep(EventKind::Deleted, tombstone);
            }
        }
        Ok(())
    }

    fn find(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        let found = match self.current.get(&id) {
            Some(staged) => staged.as_ref(),
            None => self.state.table.get(id, self.now),
        };
        found.cloned().ok_or_else(|| StoreError::NotFound {
            id,
            tombstone: self.state.table.tombstone(id).cloned(),
        })
    }

    /// The whole breadcrumb: each of its parts may fit and all of them together not.
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

    fn keep(&mut self, kind: EventKind, breadcrumb: Breadcrumb) {
        let breadcrumb = Arc::new(breadcrumb);
        let current = (kind != EventKind::Deleted).then(|| Arc::clone(&breadcrumb));
        self.current.insert(breadcrumb.id, current);
        self.written.push((kind, breadcrumb));
    }

    /// Later than every commit before, so that update order is commit order.
    fn next_time(&mut self) -> Timestamp {
        self.latest = self.now.as_micros().max(self.latest + 1);
        Timestamp::from_micros(self.latest)
    }
}
