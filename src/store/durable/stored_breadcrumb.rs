//! Rows of breadcrumbs in SQLite and PostgreSQL, and the runs that wrote the breadcrumbs.

use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::store::{Lineage, StoreError};
use std::sync::Arc;

/// A breadcrumb or its tombstone, as a SQLite or PostgreSQL store has saved it.
#[derive(Clone, Debug)]
pub(in crate::store) struct StoredBreadcrumb<R = ()> {
    /// Row ID of the breadcrumb in SQLite, or `()` in PostgreSQL.
    #[cfg_attr(
        not(feature = "sqlite"),
        expect(dead_code, reason = "only the SQLite store reads it")
    )]
    pub(in crate::store) row_id: R,
    pub(in crate::store) breadcrumb: Breadcrumb,
    pub(in crate::store) deleted: bool,
}

/// Run that wrote a breadcrumb version: the run's executor and the run's lineage.
#[derive(Clone, Debug)]
pub(in crate::store) struct BreadcrumbWriter {
    pub(in crate::store) executor: Arc<str>,
    pub(in crate::store) lineage: Lineage,
}

impl<R> StoredBreadcrumb<R> {
    /// Returns `true` if the breadcrumb is neither deleted nor expired at the time `now`.
    pub(in crate::store) fn is_live(&self, now: Timestamp) -> bool {
        !self.deleted && self.breadcrumb.ttl.is_none_or(|end| now < end)
    }

    /// Returns the breadcrumb in `stored` unless the breadcrumb is deleted or expired. Otherwise returns the error of a missing
    /// breadcrumb.
    pub(in crate::store) fn require_live(
        stored: Option<Self>,
        id: BreadcrumbId,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        match stored {
            Some(stored) if stored.is_live(now) => Ok(stored),
            Some(Self {
                breadcrumb,
                deleted: true,
                ..
            }) => Err(StoreError::NotFound {
                id,
                tombstone: Some(Arc::new(breadcrumb)),
            }),
            Some(_) | None => Err(StoreError::NotFound {
                id,
                tombstone: None,
            }),
        }
    }
}
