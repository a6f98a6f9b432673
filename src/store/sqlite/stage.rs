//! Execution of one commit of breadcrumbs in the savepoint of its SQLite job. An error rolls back the whole commit.

use super::error::Fault;
use super::table::{self, Found};
use super::tenant::Writing;
use super::{NAME, events, retention, runs};
use crate::model::{Breadcrumb, BreadcrumbId, Event, EventKind, JsonError, NewBreadcrumb, Patch};
use crate::store::durable::found::Writer;
use crate::store::{Committed, Lease, RunEnd, StoreError, Write, canonical};
use std::sync::Arc;

/// Number of expired breadcrumbs that a small commit can remove. A commit of at least this many writes can remove one more than it
/// writes.
pub(super) const EXPIRED_AT_ONCE: usize = 64;

/// Commits breadcrumb writes and, if given, the end of a run. Adds an event for each written breadcrumb. Also returns `true` if further
/// expired breadcrumbs may remain in the store.
pub(super) fn commit(
    writing: &mut Writing<'_>,
    writes: Vec<Write>,
    end: Option<(Lease, RunEnd)>,
) -> Result<(Committed, bool), Fault> {
    let has_expired = table::expire(writing, EXPIRED_AT_ONCE.max(writes.len() + 1))?;
    let row = match &end {
        Some((lease, _)) => Some(runs::held(writing, lease)?),
        None => None,
    };
    let writer = row.as_ref().map(|kept| Writer {
        executor: Arc::clone(&kept.row.run.executor),
        lineage: kept.row.lineage().next(),
    });
    let mut stage = Stage {
        begun: writing.tenant.latest,
        creates: false,
        writing,
        writer,
        written: Vec::new(),
    };
    for (index, write) in writes.into_iter().enumerate() {
        stage.write(index, write)?;
    }
    if let Some((lease, RunEnd::Failed(letter))) = &end {
        let (index, limits) = (stage.written.len(), stage.writing.limits);
        let letter = letter.breadcrumb(lease, stage.writing.name);
        let letter = canonical::new_breadcrumb(index, letter, limits.breadcrumb_bytes)?;
        stage.write(index, Write::Create(letter))?;
    }
    stage.check_room()?;
    let Stage {
        writing, written, ..
    } = stage;
    let committed = Committed::new(written);
    if let (Some((_, end)), Some(row)) = (end, row) {
        if let RunEnd::Suspended { .. } = &end {
            // Later commits must have a later time than the suspension, even if this commit wrote nothing.
            writing.next_time();
        }
        runs::end(writing, row, end, &committed.ids())?;
    }
    retention::forget(writing)?;
    Ok((committed, has_expired))
}

/// Creates a breadcrumb outside of a run, with a chosen ID if there is one.
pub(super) fn create(
    writing: &mut Writing<'_>,
    id: Option<BreadcrumbId>,
    new: NewBreadcrumb,
) -> Result<(), Fault> {
    let at = writing.next_time();
    let mut stage = Stage {
        begun: writing.tenant.latest,
        creates: false,
        writing,
        writer: None,
        written: Vec::new(),
    };
    let id = id.unwrap_or_else(BreadcrumbId::unique);
    stage.create(0, new.first_version(id, at))?;
    Ok(stage.check_room()?)
}

struct Stage<'w, 't> {
    writing: &'w mut Writing<'t>,
    writer: Option<Writer>,
    written: Vec<Arc<Breadcrumb>>,
    /// Time of the tenant's previous commit.
    begun: i64,
    creates: bool,
}

impl Stage<'_, '_> {
    fn write(&mut self, index: usize, write: Write) -> Result<(), Fault> {
        let at = self.writing.next_time();
        match write {
            Write::Create(new) => self.create(index, new.first_version(BreadcrumbId::unique(), at)),
            Write::Update { id, version, patch } => {
                let before = self.find(id)?;
                if before.breadcrumb.version != version {
                    let found = before.breadcrumb.version;
                    return Err(StoreError::Conflict {
                        id,
                        expected: version,
                        found,
                    }
                    .into());
                }
                let after = before.breadcrumb.patched(patch, at);
                self.check_size(index, &after)?;
                table::replace(self.writing, &before, &after, false, self.writer.as_ref())?;
                self.announce(EventKind::Updated, after)
            }
            Write::Delete { id, by } => {
                let before = self.find(id)?;
                let patch = Patch {
                    updated_by: by,
                    ..Patch::new()
                };
                let tombstone = before.breadcrumb.patched(patch, at);
                table::replace(
                    self.writing,
                    &before,
                    &tombstone,
                    true,
                    self.writer.as_ref(),
                )?;
                self.announce(EventKind::Deleted, tombstone)
            }
        }
    }

    fn create(&mut self, index: usize, created: Breadcrumb) -> Result<(), Fault> {
        self.check_size(index, &created)?;
        self.creates = true;
        table::insert(self.writing, &created, self.writer.as_ref())?;
        self.announce(EventKind::Created, created)
    }

    fn find(&self, id: BreadcrumbId) -> Result<Found, StoreError> {
        let found = table::find(self.writing.connection, self.writing.tenant.id, id)
            .map_err(Fault::from)?;
        let living = Found::living(found, id, self.writing.now);
        living.map_err(|error| match error {
            // This commit deleted the breadcrumb and fails, so no tombstone will exist.
            StoreError::NotFound {
                id,
                tombstone: Some(tombstone),
            } if tombstone.updated_at.as_micros() > self.begun => StoreError::NotFound {
                id,
                tombstone: None,
            },
            error => error,
        })
    }

    /// Checks the total size of a breadcrumb. Each part can be within its limit although the sum of the parts is too large.
    fn check_size(&self, index: usize, breadcrumb: &Breadcrumb) -> Result<(), StoreError> {
        let (size, limit) = (breadcrumb.size(), self.writing.limits.breadcrumb_bytes);
        if size > limit {
            return Err(StoreError::Rejected {
                what: format!("write {index}"),
                source: JsonError::TooLarge { size, limit },
            });
        }
        Ok(())
    }

    fn check_room(&self) -> Result<(), StoreError> {
        let limit = self.writing.limits.breadcrumbs;
        let kept = usize::try_from(self.writing.tenant.breadcrumbs).unwrap_or_default();
        if self.creates && kept > limit {
            return Err(StoreError::Full {
                store: NAME,
                what: "breadcrumbs",
                limit,
            });
        }
        Ok(())
    }

    fn announce(&mut self, kind: EventKind, breadcrumb: Breadcrumb) -> Result<(), Fault> {
        let event = match kind {
            EventKind::Created => Event::created(&breadcrumb),
            EventKind::Updated => Event::updated(&breadcrumb),
            EventKind::Deleted | EventKind::Ping => Event::deleted(&breadcrumb),
        };
        events::push(self.writing, &event)?;
        self.written.push(Arc::new(breadcrumb));
        Ok(())
    }
}
