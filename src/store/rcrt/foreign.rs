//! Cache of the IDs of other owners' breadcrumbs. Lists have the breadcrumbs of every owner, and only a read of the whole
//! breadcrumb returns its owner.

use crate::model::BreadcrumbId;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of cached IDs of other owners' breadcrumbs. The owner of any other breadcrumb is read again.
const MOST: usize = 65_536;

/// The most recently found IDs of other owners' breadcrumbs. The owner of a breadcrumb never changes.
#[derive(Debug, Default)]
pub(super) struct Foreign(Mutex<(HashSet<BreadcrumbId>, VecDeque<BreadcrumbId>)>);

impl Foreign {
    pub(super) fn note(&self, id: BreadcrumbId) {
        let mut held = self.lock();
        let (known, order) = &mut *held;
        if !known.insert(id) {
            return;
        }
        order.push_back(id);
        if order.len() > MOST
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }

    pub(super) fn knows(&self, id: BreadcrumbId) -> bool {
        self.lock().0.contains(&id)
    }

    fn lock(&self) -> MutexGuard<'_, (HashSet<BreadcrumbId>, VecDeque<BreadcrumbId>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
