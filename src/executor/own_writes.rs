//! Breadcrumbs that a run created, recognised by the records of the store: a tag and a `creator` in a payload can be forged.

use super::context::ExecutionContext;
use super::context_error::ContextError;
use super::provenance::Stamp;
use crate::error::BoxError;
use crate::model::{Breadcrumb, BreadcrumbId, Selector};
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::collections::HashSet;
use std::sync::Arc;

impl ExecutionContext {
    /// Returns the breadcrumb that this run created with a tag, in this attempt or an earlier one.
    ///
    /// # Errors
    /// A [`StoreError`] or [`ContextError`] if the breadcrumbs or the record of the run cannot be read.
    pub(crate) async fn find_own(
        &self,
        store: &dyn BreadcrumbStore,
        schema: &str,
        tag: &str,
    ) -> Result<Option<Arc<Breadcrumb>>, BoxError> {
        let mut pages = Pages::of(store, Selector::schema(schema).all_tags([tag]));
        let mut page = pages.next().await?;
        // The record is read only if there is something to compare with it.
        if page.is_empty() {
            return Ok(None);
        }
        let proof = self.proof().await?;
        let mut oldest: Option<Arc<Breadcrumb>> = None;
        while !page.is_empty() {
            for found in page.into_iter().filter(|found| proof.covers(found)) {
                if let Proof::Ledger(_) = proof {
                    return Ok(Some(found));
                }
                let known = oldest.as_ref().map(|oldest| oldest.created_at);
                if known.is_none_or(|known| found.created_at < known) {
                    oldest = Some(found);
                }
            }
            page = pages.next().await?;
        }
        Ok(oldest)
    }

    async fn proof(&self) -> Result<Proof<'_>, ContextError> {
        let Some(stamp) = self.stamp() else {
            return Ok(Proof::Nothing);
        };
        Ok(match self.run().written().await? {
            Some(written) => Proof::Ledger(written),
            None => Proof::Creator(stamp),
        })
    }
}

/// Evidence that a run created a breadcrumb.
enum Proof<'a> {
    /// Record of the run in the ledger. It holds also after others changed the breadcrumb.
    Ledger(HashSet<BreadcrumbId>),
    /// Word of the first version, where the store records no writers.
    Creator(&'a Stamp),
    /// No evidence outside a run: the tag follows from a name that is random, so the oldest breadcrumb with the tag counts.
    Nothing,
}

impl Proof<'_> {
    fn covers(&self, found: &Breadcrumb) -> bool {
        match self {
            Self::Ledger(written) => written.contains(&found.id),
            Self::Creator(stamp) => found.version == 1 && stamp.is_of_run(found),
            Self::Nothing => true,
        }
    }
}

/// Breadcrumbs of a selector, page by page, the newest first. There are several pages, so that a flood of copies does not
/// hide the breadcrumb of the run.
pub(super) struct Pages<'a> {
    store: &'a dyn BreadcrumbStore,
    next: Option<Query>,
    left: usize,
}

impl<'a> Pages<'a> {
    /// Limit of the breadcrumbs in one page.
    const SIZE: usize = 256;
    /// Limit of the pages.
    const MOST: usize = 64;

    pub(super) fn of(store: &'a dyn BreadcrumbStore, selector: Selector) -> Self {
        Self {
            store,
            next: Some(Query::new(selector).limit(Self::SIZE)),
            left: Self::MOST,
        }
    }

    /// Reads the next page; an empty one is the end.
    ///
    /// # Errors
    /// Those of [`BreadcrumbStore::search`].
    pub(super) async fn next(&mut self) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        let Some(query) = self.next.take().filter(|_| self.left > 0) else {
            return Ok(Vec::new());
        };
        let page = self.store.search(&query).await?;
        self.left -= 1;
        if let Some(last) = page.last().filter(|_| page.len() == Self::SIZE) {
            self.next = Some(query.before(last.order_key()));
        }
        Ok(page)
    }
}
