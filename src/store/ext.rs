use super::{BreadcrumbStore, Commit, Query, StoreError, Write};
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Patch, Selector};
use std::sync::Arc;

/// Shortcuts for single writes and common queries, implemented for every store. Their writes belong to no run.
pub trait BreadcrumbStoreExt: BreadcrumbStore {
    /// Creates a breadcrumb and returns its first version.
    ///
    /// # Errors
    /// See [`BreadcrumbStore::commit`].
    fn create(
        &self,
        new: NewBreadcrumb,
    ) -> impl Future<Output = Result<Arc<Breadcrumb>, StoreError>> + Send {
        only(self, Write::Create(new))
    }

    /// Updates a breadcrumb if `version` is its current version, and returns the new version.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another version is current, and the other errors of [`BreadcrumbStore::commit`].
    fn update(
        &self,
        id: BreadcrumbId,
        version: u64,
        patch: Patch,
    ) -> impl Future<Output = Result<Arc<Breadcrumb>, StoreError>> + Send {
        only(self, Write::Update { id, version, patch })
    }

    /// Deletes a breadcrumb, whichever version is current.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the breadcrumb does not exist, and the other errors of [`BreadcrumbStore::commit`].
    fn delete(&self, id: BreadcrumbId) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move { only(self, Write::Delete { id, by: None }).await.map(drop) }
    }

    /// Returns the newest breadcrumb of a schema, or `None` if there is no breadcrumb of the schema.
    ///
    /// # Errors
    /// See [`BreadcrumbStore::search`].
    fn latest(
        &self,
        schema_name: &str,
    ) -> impl Future<Output = Result<Option<Arc<Breadcrumb>>, StoreError>> + Send {
        let newest = self.recent(schema_name, 1);
        async move { Ok(newest.await?.pop()) }
    }

    /// Returns the `n` newest breadcrumbs of a schema, newest first.
    ///
    /// # Errors
    /// See [`BreadcrumbStore::search`].
    fn recent(
        &self,
        schema_name: &str,
        n: usize,
    ) -> impl Future<Output = Result<Vec<Arc<Breadcrumb>>, StoreError>> + Send {
        let query = Query::new(Selector::schema(schema_name)).limit(n);
        async move { self.search(&query).await }
    }
}

impl<S: BreadcrumbStore + ?Sized> BreadcrumbStoreExt for S {}

/// Commits one write outside of runs and returns the written breadcrumb.
async fn only<S: BreadcrumbStore + ?Sized>(
    store: &S,
    write: Write,
) -> Result<Arc<Breadcrumb>, StoreError> {
    let committed = store.commit(Commit::from(vec![write])).await?;
    committed
        .written
        .into_iter()
        .next()
        .ok_or(StoreError::Unsupported {
            store: "this store",
            operation: "returning the written breadcrumb from a commit",
        })
}
