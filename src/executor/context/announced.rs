//! Announcements of the breadcrumbs that a flow may wait for while it executes.

use super::ExecutionContext;
use crate::model::Selector;
use crate::store::BreadcrumbStore;
use futures::FutureExt as _;
use futures::future::{BoxFuture, select_all};
use std::time::Duration;

/// Limit of the selectors of one run whose breadcrumbs are announced to it.
const MOST_ANNOUNCED: usize = 64;

impl ExecutionContext {
    /// Returns a future that ends when a breadcrumb of `store` is announced that matches one of the selectors, at the latest after
    /// `limit`. `None` if no runtime announces breadcrumbs of this store to the run, or if too many waits are open.
    pub(crate) fn announced(
        &self,
        store: &dyn BreadcrumbStore,
        selectors: &[Selector],
        limit: Duration,
    ) -> Option<BoxFuture<'static, ()>> {
        let scope = self.run().scope.as_ref()?;
        let is_possible = (1..=MOST_ANNOUNCED).contains(&selectors.len())
            && scope.store.waits.has_room_for(selectors.len())
            && scope.store.id == store.identity();
        if !is_possible {
            return None;
        }
        let begin = |selector: &Selector| scope.store.waits.begin(selector.clone(), limit).ok();
        let waits: Option<Vec<_>> = selectors.iter().map(begin).collect();
        let answered = waits?.into_iter().map(|wait| wait.answered().boxed());
        Some(select_all(answered).map(drop).boxed())
    }
}
