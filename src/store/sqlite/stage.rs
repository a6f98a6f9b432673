//! Execution of one commit of breadcrumbs in the savepoint of its SQLite job. An error rolls back the whole commit.

use super::error::Fault;
use super::table::{self, StoredBreadcrumb};
use super::tenant::TenantTransaction;
use super::{NAME, events, retention, runs};
use crate::model::{Breadcrumb, BreadcrumbId, Event, EventKind, JsonError, NewBreadcrumb, Patch};
use crate::store::durable::stored_breadcrumb::BreadcrumbWriter;
use crate::store::{Committed, Lease, RunEnd, StoreError, Write, canonical};
use std::sync::Arc;

/// Maximum number of expired breadcrumbs that a commit of fewer writes than this number removes. A larger commit removes at most one
/// expired breadcrumb more than it has writes.
pub(super) const EXPIRED_AT_ONCE: usize = 64;

/// Commits breadcrumb writes and, if given, the end of a run. Adds an event for each written breadcrumb. Also returns `true` if further
/// expired breadcrumbs may remain in the store.
pub(super) fn commit(
    transaction: &mut TenantTransaction<'_>,
    writes: Vec<Write>,
    end: Option<(Lease, RunEnd)>,
) -> Result<(Committed, bool), Fault> {
    let has_expired = table::expire(transaction, EXPIRED_AT_ONCE.max(writes.len() + 1))?;
    let row = match &end {
        Some((lease, _)) => Some(runs::find_leased(transaction, lease)?),
        None => None,
    };
    let writer = row.as_ref().map(|stored| BreadcrumbWriter {
        executor: Arc::clone(&stored.row.run.executor),
        lineage: stored.row.lineage().next(),
    });
    let mut stage = Stage {
        previous_commit: transaction.tenant.latest,
        creates: false,
        transaction,
        writer,
        written: Vec::new(),
    };
    for (index, write) in writes.into_iter().enumerate() {
        stage.write(index, write)?;
    }
    if let Some((lease, RunEnd::Failed(letter))) = &end {
        let (index, limits) = (stage.written.len(), stage.transaction.limits);
        let letter = letter.breadcrumb(lease, stage.transaction.name);
        let letter = canonical::new_breadcrumb(index, letter, limits.breadcrumb_bytes)?;
        stage.write(index, Write::Create(letter))?;
    }
    stage.check_breadcrumb_limit()?;
    let Stage {
        transaction,
        written,
        ..
    } = stage;
    let committed = Committed::new(written);
    if let (Some((_, end)), Some(row)) = (end, row) {
        if let RunEnd::Suspended { .. } = &end {
            // Later commits must have a later time than the suspension, even if this commit wrote nothing.
            transaction.next_time();
        }
        runs::end(transaction, row, end, &committed.ids())?;
    }
    retention::delete_excess(transaction)?;
    Ok((committed, has_expired))
}

/// Creates a breadcrumb outside of a run, with the ID `id`, or with a new unique ID if `id` is `None`.
pub(super) fn create(
    transaction: &mut TenantTransaction<'_>,
    id: Option<BreadcrumbId>,
    new: NewBreadcrumb,
) -> Result<(), Fault> {
    let at = transaction.next_time();
    let mut stage = Stage {
        previous_commit: transaction.tenant.latest,
        creates: false,
        transaction,
        writer: None,
        written: Vec::new(),
    };
    let id = id.unwrap_or_else(BreadcrumbId::unique);
    stage.create(0, new.first_version(id, at))?;
    Ok(stage.check_breadcrumb_limit()?)
}

struct Stage<'w, 't> {
    transaction: &'w mut TenantTransaction<'t>,
    writer: Option<BreadcrumbWriter>,
    written: Vec<Arc<Breadcrumb>>,
    /// Time of the tenant's previous commit.
    previous_commit: i64,
    creates: bool,
}

impl Stage<'_, '_> {
    fn write(&mut self, index: usize, write: Write) -> Result<(), Fault> {
        let at = self.transaction.next_time();
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
                table::replace(
                    self.transaction,
                    &before,
                    &after,
                    false,
                    self.writer.as_ref(),
                )?;
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
                    self.transaction,
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
        table::insert(self.transaction, &created, self.writer.as_ref())?;
        self.announce(EventKind::Created, created)
    }

    fn find(&self, id: BreadcrumbId) -> Result<StoredBreadcrumb, StoreError> {
        let stored = table::find(self.transaction.connection, self.transaction.tenant.id, id)
            .map_err(Fault::from)?;
        let live = StoredBreadcrumb::require_live(stored, id, self.transaction.now);
        live.map_err(|error| match error {
            // This commit deleted the breadcrumb and fails, so no tombstone will exist.
            StoreError::NotFound {
                id,
                tombstone: Some(tombstone),
            } if tombstone.updated_at.as_micros() > self.previous_commit => StoreError::NotFound {
                id,
                tombstone: None,
            },
            error => error,
        })
    }

    /// Returns an error if the total size of a breadcrumb exceeds the store's limit. Each part can be within its limit although the sum
    /// of the parts is too large.
    fn check_size(&self, index: usize, breadcrumb: &Breadcrumb) -> Result<(), StoreError> {
        let (size, limit) = (breadcrumb.size(), self.transaction.limits.breadcrumb_bytes);
        if size > limit {
            return Err(StoreError::Rejected {
                what: format!("write {index}"),
                source: JsonError::TooLarge { size, limit },
            });
        }
        Ok(())
    }

    fn check_breadcrumb_limit(&self) -> Result<(), StoreError> {
        let limit = self.transaction.limits.breadcrumbs;
        let count = usize::try_from(self.transaction.tenant.breadcrumbs).unwrap_or_default();
        if self.creates && count > limit {
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
        events::push(self.transaction, &event)?;
        self.written.push(Arc::new(breadcrumb));
        Ok(())
    }
}
