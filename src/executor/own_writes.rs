//! Breadcrumbs that a run created, recognised by the records of the store: a tag and a `creator` in a payload can be forged.

use super::context::ExecutionContext;
use super::context_error::ContextError;
use super::pages::Pages;
use super::provenance::Stamp;
use crate::error::BoxError;
use crate::model::{Breadcrumb, BreadcrumbId, Selector};
use crate::store::BreadcrumbStore;
use std::collections::HashSet;
use std::sync::Arc;

impl ExecutionContext {
    /// Returns the breadcrumb that this run created with a tag, in this attempt or an earlier one.
    ///
    /// # Errors
    /// A [`StoreError`](crate::store::StoreError) or [`ContextError`] if the breadcrumbs or the record of the run cannot be read.
    pub(crate) async fn find_own(
        &self,
        store: &dyn BreadcrumbStore,
        schema: &str,
        tag: &str,
    ) -> Result<Option<Arc<Breadcrumb>>, BoxError> {
        let mut pages = Pages::new(store, Selector::schema(schema).all_tags([tag]));
        let mut next = pages.next().await?.filter(|page| !page.is_empty());
        // The record is read only if there is something to compare with it.
        if next.is_none() {
            return Ok(None);
        }
        let proof = self.proof().await?;
        let mut oldest: Option<Arc<Breadcrumb>> = None;
        while let Some(page) = next {
            for found in page.into_iter().filter(|found| proof.covers(found)) {
                if let Proof::Ledger(_) = proof {
                    return Ok(Some(found));
                }
                let known = oldest.as_ref().map(|oldest| oldest.created_at);
                if known.is_none_or(|known| found.created_at < known) {
                    oldest = Some(found);
                }
            }
            next = pages.next().await?;
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
