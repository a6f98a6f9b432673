use super::ToolRegistry;
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Patch, Selector};
use crate::store::{
    BreadcrumbStore, Claim, Claimed, Commit, Query, RunEnd, RunRef, StoreError, Write,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Catalog of the tools of a registry: one `tool.catalog.v1` breadcrumb that people and models can read.
///
/// A catalog is only for display. The crate never reads tools from a catalog, so a forged catalog gives no one a tool.
///
/// Publish it when a service starts, so that people and other services see its tools. A catalog
/// lists the tools at the time of [`of`](Self::of), and does not follow later changes of the
/// registry.
///
/// ```
/// use serde_json::json;
/// use universal_executor::tool::{Catalog, Published, ToolRegistry, json_tool};
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore};
///
/// let echo = json_tool("echo", "Says it again.", json!({}), |input, _| async move { Ok(input) });
/// let registry = ToolRegistry::default().with(echo)?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// assert_eq!(Catalog::of(&registry).publish(&store).await?, Published::Created);
/// assert_eq!(Catalog::of(&registry).publish(&store).await?, Published::Unchanged);
///
/// let catalog = store.latest(Catalog::SCHEMA).await?.ok_or("no catalog")?;
/// assert_eq!(catalog.context["tools"][0]["name"], "echo");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Catalog {
    name: String,
    tools: Value,
}

/// Result of [`Catalog::publish`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Published {
    /// The tool catalog did not exist and was created.
    Created,
    /// The existing tool catalog had other content and was updated.
    Updated,
    /// The existing tool catalog had the same content and was not changed.
    Unchanged,
}

impl Catalog {
    /// The schema of a tool catalog.
    pub const SCHEMA: &'static str = "tool.catalog.v1";

    /// Author of tool catalogs, written to `created_by`.
    const AUTHOR: &'static str = "tool-catalog";
    /// Maximum number of attempts to write the tool catalog while other workers also write it.
    const ATTEMPTS: u32 = 20;
    /// Pause before the next attempt to write the tool catalog, used while another worker is creating the catalog.
    const RETRY_DELAY: Duration = Duration::from_millis(50);

    /// Creates a tool catalog with the name `tools` from the tools of a registry.
    #[must_use]
    pub fn of(registry: &ToolRegistry) -> Self {
        let tools = registry.specs().into_iter().map(|spec| json!(spec));
        Self {
            name: "tools".to_owned(),
            tools: tools.collect(),
        }
    }

    /// Sets the name of the tool catalog. Defaults to `tools`. Workers with different tools in one tenant need different names.
    ///
    /// The breadcrumb has the tags `tool:catalog` and `catalog:<name>`, and the name in the field
    /// `catalog`.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::tool::{Catalog, Published, ToolRegistry};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let catalog = Catalog::of(&ToolRegistry::default()).named("billing");
    /// assert_eq!(catalog.publish(&store).await?, Published::Created);
    ///
    /// let found = store.latest(Catalog::SCHEMA).await?.ok_or("no catalog")?;
    /// assert_eq!(found.tag("catalog:"), Some("billing"));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Creates the tool catalog in the store, or updates the existing catalog if its content differs.
    ///
    /// Several workers can publish the same catalog concurrently, and only one catalog is created. On a store without a ledger,
    /// concurrent calls may create several catalogs. Later calls then update the oldest one.
    ///
    /// # Errors
    /// The [`StoreError`] of a read or write, and [`StoreError::Conflict`] or [`StoreError::Unavailable`] if other workers keep changing
    /// the catalog during 20 attempts.
    ///
    /// # Cancel safety
    /// A dropped future may have written the catalog. On a store with a ledger, calls that have to
    /// create the catalog can fail with [`StoreError::Unavailable`] until the lease of the dropped
    /// call expires.
    pub async fn publish(&self, store: &dyn BreadcrumbStore) -> Result<Published, StoreError> {
        let mut version = 1;
        let mut attempts = 1;
        loop {
            let done = match self.find(store).await? {
                Some(found) => self.update(store, &found).await,
                None => self.create(store, &mut version).await,
            };
            match done {
                Ok(Some(published)) => return Ok(published),
                Ok(None) => {}
                // Another worker changed the catalog first, possibly to the same content.
                Err(StoreError::Conflict { .. } | StoreError::NotFound { .. })
                    if attempts < Self::ATTEMPTS => {}
                Err(error) => return Err(error),
            }
            if attempts >= Self::ATTEMPTS {
                return Err(StoreError::Unavailable {
                    store: "the tool catalog",
                    retry_after: Self::RETRY_DELAY,
                    source: "other workers keep creating and deleting the catalog".into(),
                });
            }
            attempts += 1;
        }
    }

    /// Returns the oldest tool catalog with this name in the store.
    async fn find(
        &self,
        store: &dyn BreadcrumbStore,
    ) -> Result<Option<Arc<Breadcrumb>>, StoreError> {
        const MAX_CATALOGS: usize = 16;
        let found = store
            .search(&Query::new(self.selector()).limit(MAX_CATALOGS))
            .await?;
        Ok(found
            .into_iter()
            .min_by_key(|found| (found.created_at, found.id)))
    }

    fn selector(&self) -> Selector {
        Selector::schema(Self::SCHEMA).all_tags([self.tag()])
    }

    fn tag(&self) -> String {
        format!("catalog:{}", self.name)
    }

    async fn update(
        &self,
        store: &dyn BreadcrumbStore,
        found: &Breadcrumb,
    ) -> Result<Option<Published>, StoreError> {
        let context = self.context();
        if *found.context == context {
            return Ok(Some(Published::Unchanged));
        }
        let update = Write::Update {
            id: found.id,
            version: found.version,
            patch: Patch::new().context(context).updated_by(Self::AUTHOR),
        };
        store.commit(vec![update].into()).await?;
        Ok(Some(Published::Updated))
    }

    /// Creates the breadcrumb of the tool catalog in a commit that ends a run which only one writer of the catalog can claim.
    /// Returns `None` if the search for the catalog has to be repeated.
    async fn create(
        &self,
        store: &dyn BreadcrumbStore,
        version: &mut u64,
    ) -> Result<Option<Published>, StoreError> {
        let Some(ledger) = store.ledger() else {
            store.commit(vec![self.create_write()].into()).await?;
            return Ok(Some(Published::Created));
        };
        // No breadcrumb triggers this run, so its trigger ID is the default.
        let run = RunRef::new(
            format!("{}:{}", Self::AUTHOR, self.name),
            BreadcrumbId::default(),
            *version,
        );
        match ledger.claim(&run, None).await? {
            Claim::Granted(Claimed { lease, .. }) => {
                let commit = Commit {
                    writes: vec![self.create_write()],
                    end: Some((lease.clone(), RunEnd::Done)),
                };
                if let Err(error) = store.commit(commit).await {
                    // Other writers then need not wait until the lease expires. If the commit took effect, the release is refused.
                    drop(ledger.release(lease).await);
                    return Err(error);
                }
                Ok(Some(Published::Created))
            }
            Claim::Done { written, .. } => {
                // The catalog was created and deleted since, so a run with the next version creates it again.
                if all_deleted(store, &written).await? {
                    *version += 1;
                }
                Ok(None)
            }
            Claim::Own | Claim::Superseded => {
                *version += 1;
                Ok(None)
            }
            Claim::Running { .. } | Claim::Suspended { .. } | Claim::Paused { .. } => {
                sleep(Self::RETRY_DELAY).await;
                Ok(None)
            }
        }
    }

    fn create_write(&self) -> Write {
        let new = NewBreadcrumb::new(Self::SCHEMA)
            .title(format!("Tools: {}", self.name))
            .tags(["tool:catalog", &self.tag()])
            .context(self.context())
            .created_by(Self::AUTHOR);
        Write::Create(new)
    }

    fn context(&self) -> Value {
        json!({"catalog": self.name, "tools": self.tools})
    }
}

async fn all_deleted(
    store: &dyn BreadcrumbStore,
    ids: &[BreadcrumbId],
) -> Result<bool, StoreError> {
    for id in ids {
        match store.get(*id).await {
            Ok(_) => return Ok(false),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
