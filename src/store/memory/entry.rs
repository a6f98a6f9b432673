//! A stored breadcrumb of a tenant with its writer, its position in the update order, and its expiry.

use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::store::Lineage;
use std::sync::Arc;

/// Position of a breadcrumb in the update order: update time, version and ID.
pub(super) type OrderKey = (Timestamp, u64, BreadcrumbId);

/// The run that wrote a breadcrumb version: the run's executor and the run's lineage.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) executor: Arc<str>,
    pub(super) lineage: Lineage,
}

/// A breadcrumb of the store or its tombstone, with its writer.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) breadcrumb: Arc<Breadcrumb>,
    /// The run that wrote the breadcrumb version; `None` for a write from outside of runs.
    pub(super) writer: Option<Writer>,
}

/// Returns `true` if the time to live of a breadcrumb has not ended.
pub(super) fn is_alive(breadcrumb: &Breadcrumb, now: Timestamp) -> bool {
    breadcrumb.ttl.is_none_or(|end| now < end)
}
