//! Search for breadcrumbs that a run itself created. The records of the store decide, because payloads can be forged.

use super::context::ExecutionContext;
use super::context_error::ContextError;
use super::pages::PagedSearch;
use super::provenance::Stamp;
use crate::error::BoxError;
use crate::model::{Breadcrumb, BreadcrumbId, Selector};
use crate::store::BreadcrumbStore;
use std::collections::HashSet;
use std::sync::Arc;

impl ExecutionContext {
    /// Searches by schema and tag for a breadcrumb that this run created, in this attempt or an earlier one. Returns `None` if no such
    /// breadcrumb exists.
    ///
    /// # Errors
    /// A [`StoreError`](crate::store::StoreError) or [`ContextError`] if the breadcrumbs or the record of the run cannot be read.
    pub(crate) async fn find_own(
        &self,
        store: &dyn BreadcrumbStore,
        schema: &str,
        tag: &str,
    ) -> Result<Option<Arc<Breadcrumb>>, BoxError> {
        let mut pages = PagedSearch::new(store, Selector::schema(schema).all_tags([tag]));
        let mut next = pages.next().await?.filter(|page| !page.is_empty());
        // The record of the run is read only if a breadcrumb has to be compared with it.
        if next.is_none() {
            return Ok(None);
        }
        let proof = self.proof().await?;
        let mut oldest: Option<Arc<Breadcrumb>> = None;
        while let Some(page) = next {
            for found in page.into_iter().filter(|found| proof.proves(found)) {
                if let CreationProof::Ledger(_) = proof {
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

    async fn proof(&self) -> Result<CreationProof<'_>, ContextError> {
        let Some(stamp) = self.stamp() else {
            return Ok(CreationProof::Nothing);
        };
        Ok(match self.run().written().await? {
            Some(written) => CreationProof::Ledger(written),
            None => CreationProof::Creator(stamp),
        })
    }
}

/// Evidence that a run created a breadcrumb.
enum CreationProof<'a> {
    /// The breadcrumbs that the run wrote according to the run ledger: each of them counts as created by the run. A later change
    /// of such a breadcrumb by another writer does not invalidate this evidence.
    Ledger(HashSet<BreadcrumbId>),
    /// The run's executor and trigger, which the `creator` in a breadcrumb's first version must name if the store records no
    /// writers.
    Creator(&'a Stamp),
    /// The code executes outside of a run, so no evidence exists. The tag is derived from a random name, so the oldest breadcrumb with the
    /// tag counts.
    Nothing,
}

impl CreationProof<'_> {
    fn proves(&self, found: &Breadcrumb) -> bool {
        match self {
            Self::Ledger(written) => written.contains(&found.id),
            Self::Creator(stamp) => found.version == 1 && stamp.is_of_run(found),
            Self::Nothing => true,
        }
    }
}
