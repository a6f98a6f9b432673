//! Paged search of the store for a run's requests, questions and answers. The number of pages is limited.

use crate::model::{Breadcrumb, Selector};
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::sync::Arc;

/// Maximum number of breadcrumbs on one page of a search for a run's requests, questions and answers.
const PAGE_SIZE: usize = 256;
/// Maximum number of pages of one search for a run's requests, questions and answers.
const MAX_PAGES: usize = 64;

/// Pages of a search for the breadcrumbs that match a selector, newest first.
///
/// With a single page, one writer could hide an answer behind 256 other breadcrumbs. Without a limit, the same writer could keep
/// a run busy. After [`MAX_PAGES`] pages the search ends with a warning.
pub(crate) struct PagedSearch<'s> {
    store: &'s dyn BreadcrumbStore,
    /// The query for the next page of the search, or `None` after the last page.
    query: Option<Query>,
    pages_left: usize,
}

impl<'s> PagedSearch<'s> {
    pub(crate) fn new(store: &'s dyn BreadcrumbStore, selector: Selector) -> Self {
        Self {
            store,
            query: Some(Query::new(selector).limit(PAGE_SIZE)),
            pages_left: MAX_PAGES,
        }
    }

    /// Reads the next page of the search, or returns `None` after the last one.
    ///
    /// # Errors
    /// A [`StoreError`] if the page cannot be read.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Arc<Breadcrumb>>>, StoreError> {
        let Some(query) = self.query.take() else {
            return Ok(None);
        };
        if self.pages_left == 0 {
            tracing::warn!(
                limit = PAGE_SIZE * MAX_PAGES,
                schema = query.selector.schema_name(),
                "too many breadcrumbs match the answer that a run waits for; the search ended, and older answers are missed"
            );
            return Ok(None);
        }
        self.pages_left -= 1;
        let page = self.store.search(&query).await?;
        if page.len() >= PAGE_SIZE {
            let oldest = page.last().map(|oldest| oldest.order_key());
            self.query = oldest.map(|oldest| query.before(oldest));
        }
        Ok(Some(page))
    }
}
