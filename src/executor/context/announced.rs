//! In-memory waits of an executing flow: each ends when the store's events report a matching breadcrumb, or at a timeout.

use super::ExecutionContext;
use crate::model::Selector;
use crate::store::BreadcrumbStore;
use futures::FutureExt as _;
use futures::future::{BoxFuture, select_all};
use std::time::Duration;

/// Maximum number of selectors in one call of `announced`, because each selector opens a wait for a breadcrumb.
const MAX_ANNOUNCED: usize = 64;

impl ExecutionContext {
    /// Returns a future that resolves when the store announces a breadcrumb that matches one of the selectors, or after `limit`.
    ///
    /// Returns `None` if no runtime announces breadcrumbs of `store` to this run, if `selectors` is empty or too long, or if too
    /// many waits are open.
    pub(crate) fn announced(
        &self,
        store: &dyn BreadcrumbStore,
        selectors: &[Selector],
        limit: Duration,
    ) -> Option<BoxFuture<'static, ()>> {
        let scope = self.run().scope.as_ref()?;
        let is_possible = (1..=MAX_ANNOUNCED).contains(&selectors.len())
            && scope.store.waits.has_capacity_for(selectors.len())
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
