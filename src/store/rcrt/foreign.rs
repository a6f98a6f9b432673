//! Cache of the IDs of breadcrumbs whose owner is not the store's owner. The server's lists have the breadcrumbs of every owner, and
//! only a read of the whole breadcrumb returns its owner. The cache avoids a second read.

use crate::model::BreadcrumbId;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of cached IDs of breadcrumbs whose owner is not the store's owner. The store reads the owner of any other breadcrumb
/// again.
const MOST: usize = 65_536;

/// IDs of breadcrumbs whose owner is not the store's owner, as found by the most recent reads. The owner of a breadcrumb never changes.
#[derive(Debug, Default)]
pub(super) struct ForeignIds(Mutex<(HashSet<BreadcrumbId>, VecDeque<BreadcrumbId>)>);

impl ForeignIds {
    pub(super) fn record(&self, id: BreadcrumbId) {
        let mut guard = self.lock();
        let (ids, order) = &mut *guard;
        if !ids.insert(id) {
            return;
        }
        order.push_back(id);
        if order.len() > MOST
            && let Some(oldest) = order.pop_front()
        {
            ids.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, id: BreadcrumbId) -> bool {
        self.lock().0.contains(&id)
    }

    fn lock(&self) -> MutexGuard<'_, (HashSet<BreadcrumbId>, VecDeque<BreadcrumbId>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
