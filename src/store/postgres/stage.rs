//! Store operation that commits breadcrumbs and the end of a run in PostgreSQL. An error rolls back the whole commit.

use super::commit_position::CommitPosition;
use super::error::Fault;
use super::facts::FactQuery;
use super::job::Job;
use super::sweep::expire;
use super::transaction::TenantTransaction;
use super::{NAME, runs};
use crate::model::{
    Breadcrumb, BreadcrumbId, Event, EventKind, JsonError, NewBreadcrumb, Patch, Timestamp,
};
use crate::store::durable::stored_breadcrumb::{BreadcrumbWriter, StoredBreadcrumb};
use crate::store::row::AttemptEnd;
use crate::store::{Committed, Lease, RunEnd, StoreError, Write, canonical};
use std::sync::Arc;

/// Maximum number of expired breadcrumbs that a commit of fewer writes than this number removes. A larger commit removes at most one
/// expired breadcrumb more than it has writes.
const EXPIRED_AT_ONCE: usize = 64;

/// Store operation that commits breadcrumb writes and, if given, the end of a run. Adds an event for each written breadcrumb.
pub(super) struct Stage {
    pub(super) writes: Vec<Write>,
    pub(super) end: Option<(Lease, RunEnd)>,
}

impl Job for Stage {
    /// The breadcrumb versions that the commit wrote, and `true` if the tenant may have more expired breadcrumbs.
    type Answer = (Committed, bool);

    fn request_facts(&self, fact_query: &mut FactQuery) {
        if let Some((lease, _)) = &self.end {
            fact_query.add_run(&lease.run);
        }
        let changed = self.writes.iter().filter_map(|write| match write {
            Write::Create(_) => None,
            Write::Update { id, .. } | Write::Delete { id, .. } => Some(*id),
        });
        fact_query.breadcrumbs.extend(changed);
    }

    async fn run(
        &self,
        transaction: &mut TenantTransaction<'_>,
    ) -> Result<(Committed, bool), Fault> {
        let at_once = EXPIRED_AT_ONCE.max(self.writes.len() + 1);
        let has_expired = expire(transaction, at_once).await?;
        let row = match &self.end {
            Some((lease, _)) => Some(runs::find_leased(transaction, lease).await?),
            None => None,
        };
        let writer = row.as_ref().map(|stored| BreadcrumbWriter {
            executor: Arc::clone(&stored.row.run.executor),
            lineage: stored.row.lineage().next(),
        });
        let mut staged = StagedCommit::begin(transaction, writer);
        for (index, write) in self.writes.iter().enumerate() {
            staged.write(index, write.clone()).await?;
        }
        if let Some((lease, RunEnd::Failed(letter))) = &self.end {
            let (index, limits) = (staged.written.len(), staged.transaction.limits);
            let letter = letter.breadcrumb(lease, staged.transaction.name);
            let letter = canonical::new_breadcrumb(index, letter, limits.breadcrumb_bytes)?;
            staged.write(index, Write::Create(letter)).await?;
        }
        let (transaction, committed) = staged.end()?;
        if let (Some((_, end)), Some(row)) = (self.end.clone(), row) {
            if let RunEnd::Suspended { .. } = &end {
                // Later commits must have a later time than the suspension, even if this commit wrote nothing.
                transaction.next_time();
            }
            let end = AttemptEnd::of(end, Timestamp::from_micros(transaction.tenant.latest));
            runs::end(transaction, row, end, &committed.ids());
        }
        Ok((committed, has_expired))
    }

    fn finalize_times((committed, _): &mut Self::Answer, commit_position: &CommitPosition) {
        committed
            .written
            .iter_mut()
            .for_each(|written| commit_position.finalize_times(written));
    }
}

/// Creates a breadcrumb outside of a run, with the ID `id`, or with a new unique ID if `id` is `None`. Also returns `true` if further
/// breadcrumbs may have expired.
pub(super) async fn create(
    transaction: &mut TenantTransaction<'_>,
    id: Option<BreadcrumbId>,
    new: NewBreadcrumb,
) -> Result<(Arc<Breadcrumb>, bool), Fault> {
    let has_expired = expire(transaction, EXPIRED_AT_ONCE).await?;
    let mut staged = StagedCommit::begin(transaction, None);
    let at = staged.transaction.next_time();
    let id = id.unwrap_or_else(BreadcrumbId::unique);
    let created = staged.create(0, new.first_version(id, at))?;
    staged.end()?;
    Ok((created, has_expired))
}

struct StagedCommit<'w, 't> {
    transaction: &'w mut TenantTransaction<'t>,
    writer: Option<BreadcrumbWriter>,
    has_created: bool,
    written: Vec<Arc<Breadcrumb>>,
    /// Newest breadcrumb update time that the transaction had assigned before this store operation. The time is provisional until
    /// the transaction has its position in the commit order.
    previous_time: i64,
}

impl<'w, 't> StagedCommit<'w, 't> {
    fn begin(transaction: &'w mut TenantTransaction<'t>, writer: Option<BreadcrumbWriter>) -> Self {
        Self {
            previous_time: transaction.tenant.latest,
            transaction,
            writer,
            has_created: false,
            written: Vec::new(),
        }
    }

    async fn write(&mut self, index: usize, write: Write) -> Result<(), Fault> {
        let at = self.transaction.next_time();
        match write {
            Write::Create(new) => {
                self.create(index, new.first_version(BreadcrumbId::unique(), at))?;
            }
            Write::Update { id, version, patch } => {
                let before = self.find(id).await?;
                if before.breadcrumb.version != version {
                    return Err(StoreError::Conflict {
                        id,
                        expected: version,
                        found: before.breadcrumb.version,
                    }
                    .into());
                }
                let after = Arc::new(before.breadcrumb.patched(patch, at));
                self.check_size(index, &after)?;
                self.transaction
                    .replace(&after, false, self.writer.as_ref());
                self.announce(EventKind::Updated, after);
            }
            Write::Delete { id, by } => {
                let before = self.find(id).await?;
                let patch = Patch {
                    updated_by: by,
                    ..Patch::new()
                };
                let tombstone = Arc::new(before.breadcrumb.patched(patch, at));
                self.transaction
                    .replace(&tombstone, true, self.writer.as_ref());
                self.announce(EventKind::Deleted, tombstone);
            }
        }
        Ok(())
    }

    fn create(&mut self, index: usize, created: Breadcrumb) -> Result<Arc<Breadcrumb>, StoreError> {
        let created = Arc::new(created);
        self.check_size(index, &created)?;
        self.transaction.create(&created, self.writer.as_ref());
        self.has_created = true;
        self.announce(EventKind::Created, Arc::clone(&created));
        Ok(created)
    }

    fn end(self) -> Result<(&'w mut TenantTransaction<'t>, Committed), StoreError> {
        let transaction = self.transaction;
        let limit = transaction.limits.breadcrumbs;
        let count = usize::try_from(transaction.tenant.breadcrumbs).unwrap_or_default();
        if self.has_created && count > limit {
            return Err(transaction.limit_error(StoreError::Full {
                store: NAME,
                what: "breadcrumbs",
                limit,
            }));
        }
        Ok((transaction, Committed::new(self.written)))
    }

    async fn find(&mut self, id: BreadcrumbId) -> Result<StoredBreadcrumb, Fault> {
        let stored = self.transaction.breadcrumb(id).await?;
        let live = StoredBreadcrumb::require_live(stored, id, self.transaction.now);
        let live = live.map_err(|error| match error {
            // This commit deleted the breadcrumb and fails, so no tombstone will exist.
            StoreError::NotFound {
                id,
                tombstone: Some(tombstone),
            } if tombstone.updated_at.as_micros() > self.previous_time => StoreError::NotFound {
                id,
                tombstone: None,
            },
            error => error,
        });
        Ok(live?)
    }

    /// Returns an error if the total size of a breadcrumb exceeds the store's limit. Each part can be within its limit although the
    /// sum of the parts is too large.
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

    fn announce(&mut self, kind: EventKind, breadcrumb: Arc<Breadcrumb>) {
        self.transaction.announce(match kind {
            EventKind::Created => Event::created(&breadcrumb),
            EventKind::Updated => Event::updated(&breadcrumb),
            EventKind::Deleted | EventKind::Ping => Event::deleted(&breadcrumb),
        });
        self.written.push(breadcrumb);
    }
}
