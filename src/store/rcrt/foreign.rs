//! Which breadcrumbs belong to others: lists have those of every owner, and only a whole breadcrumb says whose it is.

use crate::model::BreadcrumbId;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are remembered; of others it is asked again.
const MOST: usize = 65_536;

/// The last ones that were found to belong to others, which they do for life.
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
