use super::{BreadcrumbStore, Commit, Query, StoreError, Write};
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Patch, Selector};
use std::sync::Arc;

/// Shortcuts for single writes and common queries, implemented for every store. Their writes belong to no run.
///
/// Import the trait to call its methods on any store, also on an `Arc<dyn BreadcrumbStore>`. Each
/// write is one commit with one event. Use [`BreadcrumbStore::commit`] for several writes in one
/// step.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let page = NewBreadcrumb::new("page.v1").tag("site:1").context(json!({"url": "a"}));
/// let first = store.create(page).await?;
/// let second = store.update(first.id, first.version, Patch::new().title("A page")).await?;
/// assert_eq!((first.version, second.version), (1, 2));
/// assert_eq!(second.context["url"], "a", "a patch retains the other fields");
///
/// assert_eq!(store.latest("page.v1").await?, Some(second));
/// store.delete(first.id).await?;
/// assert!(store.recent("page.v1", 10).await?.is_empty());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub trait BreadcrumbStoreExt: BreadcrumbStore {
    /// Creates a breadcrumb and returns its first version.
    ///
    /// The store assigns the ID, version 1 and the times. The event of the creation triggers the
    /// executors that subscribe to the breadcrumb. To create a breadcrumb at most once, use
    /// [`RunLedger::request`](super::RunLedger::request).
    ///
    /// # Errors
    /// See [`BreadcrumbStore::commit`].
    ///
    /// - [`StoreError::Rejected`], [`StoreError::TooManyTags`], [`StoreError::TagTooLong`] or
    ///   [`StoreError::SchemaTooLong`] if the content exceeds a limit of all stores.
    /// - [`StoreError::Full`] if the store has reached a limit.
    /// - [`StoreError::Unavailable`] if the backend does not answer. The breadcrumb may have been
    ///   created.
    ///
    /// # Cancel safety
    /// If the future is dropped, the breadcrumb may have been created.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let message = NewBreadcrumb::new("user.message.v1")
    ///     .tag("session:1")
    ///     .created_by("ann")
    ///     .context(json!({"message": "hello"}));
    /// let message = store.create(message).await?;
    ///
    /// assert_eq!(message.version, 1);
    /// assert_eq!(message.created_at, message.updated_at);
    /// assert_eq!(message.context["message"], "hello");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    fn create(
        &self,
        new: NewBreadcrumb,
    ) -> impl Future<Output = Result<Arc<Breadcrumb>, StoreError>> + Send {
        only(self, Write::Create(new))
    }

    /// Updates a breadcrumb if `version` is its current version, and returns the new version.
    ///
    /// The patch replaces the fields that it names and retains the others. Pass the version that
    /// your program read, not the newest one: the conflict then shows that another writer changed
    /// the breadcrumb.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another version is current, and the other errors of [`BreadcrumbStore::commit`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the update may have been made. A repeated update is then a
    /// conflict.
    ///
    /// # Examples
    /// Read the breadcrumb again after a conflict:
    ///
    /// ```
    /// use serde_json::json;
    /// use universal_executor::store::StoreError;
    /// use universal_executor::{
    ///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let counter = NewBreadcrumb::new("counter.v1").context(json!({"n": 0}));
    /// let counter = store.create(counter).await?;
    /// let mut current = store.get(counter.id).await?;
    /// let updated = loop {
    ///     let n = current.context["n"].as_u64().unwrap_or_default();
    ///     let patch = Patch::new().context(json!({"n": n + 1}));
    ///     match store.update(current.id, current.version, patch).await {
    ///         Err(StoreError::Conflict { id, .. }) => current = store.get(id).await?,
    ///         other => break other?,
    ///     }
    /// };
    /// assert_eq!(updated.context["n"], 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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
    /// A store with [`Capabilities::tombstones`](super::Capabilities::tombstones) retains the last
    /// version, and a deletion can then trigger executors.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the breadcrumb does not exist, and the other errors of [`BreadcrumbStore::commit`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the breadcrumb may have been deleted. A repeated deletion is then
    /// [`StoreError::NotFound`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::StoreError;
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let note = store.create(NewBreadcrumb::new("note.v1")).await?;
    /// store.delete(note.id).await?;
    ///
    /// let again = store.delete(note.id).await;
    /// assert!(matches!(again, Err(StoreError::NotFound { .. })));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    fn delete(&self, id: BreadcrumbId) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move { only(self, Write::Delete { id, by: None }).await.map(drop) }
    }

    /// Returns the newest breadcrumb of a schema, or `None` if there is no breadcrumb of the schema.
    ///
    /// The newest breadcrumb is the one with the latest update, not the latest creation.
    ///
    /// # Errors
    /// See [`BreadcrumbStore::search`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// assert!(store.latest("note.v1").await?.is_none());
    ///
    /// let first = store.create(NewBreadcrumb::new("note.v1")).await?;
    /// store.create(NewBreadcrumb::new("note.v1")).await?;
    /// store.update(first.id, 1, Patch::new().title("changed")).await?;
    /// let latest = store.latest("note.v1").await?.ok_or("no note")?;
    /// assert_eq!(latest.id, first.id, "the last update counts");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    fn latest(
        &self,
        schema_name: &str,
    ) -> impl Future<Output = Result<Option<Arc<Breadcrumb>>, StoreError>> + Send {
        let newest = self.recent(schema_name, 1);
        async move { Ok(newest.await?.pop()) }
    }

    /// Returns the `n` newest breadcrumbs of a schema, newest first.
    ///
    /// The order is by update time. The memory, SQLite and PostgreSQL stores have no maximum for
    /// `n`, and the result is in memory as a whole. Use [`Query`] for tags, conditions and pages.
    ///
    /// # Errors
    /// See [`BreadcrumbStore::search`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// for title in ["a", "b", "c"] {
    ///     store.create(NewBreadcrumb::new("note.v1").title(title)).await?;
    /// }
    /// let notes = store.recent("note.v1", 2).await?;
    /// let titles: Vec<_> = notes.iter().map(|note| &*note.title).collect();
    /// assert_eq!(titles, ["c", "b"]);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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
