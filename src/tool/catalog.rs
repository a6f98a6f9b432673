use super::ToolRegistry;
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Patch, Selector};
use crate::store::{
    BreadcrumbStore, Claim, Claimed, Commit, Query, RunEnd, RunRef, StoreError, Write,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// What tools there are, as one `tool.catalog.v1` breadcrumb that people and models can read.
///
/// It is for display: nobody takes a tool from it, so writing one by hand gives nobody a tool.
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

/// What publishing a catalog did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Published {
    /// There was none.
    Created,
    /// It said something else.
    Updated,
    /// It said the same, and was left alone.
    Unchanged,
}

impl Catalog {
    /// The schema of a catalog.
    pub const SCHEMA: &'static str = "tool.catalog.v1";

    /// Who writes catalogs, as `created_by` says.
    const AUTHOR: &'static str = "tool-catalog";
    /// How often it is tried to be written while others write it too.
    const TRIES: u32 = 20;
    /// How long another writer is waited for at a time.
    const PAUSE: Duration = Duration::from_millis(50);

    /// The catalog of a registry, named `tools`.
    #[must_use]
    pub fn of(registry: &ToolRegistry) -> Self {
        let tools = registry.specs().into_iter().map(|spec| json!(spec));
        Self {
            name: "tools".to_owned(),
            tools: tools.collect(),
        }
    }

    /// Sets its name: workers with other tools in the same tenant need catalogs of their own.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Creates the catalog, or updates it if it says something else. Any number of workers may do so at once, and one
    /// catalog comes of it; on a store without a ledger two that create it at the very same time may leave two, of which
    /// the older is kept up to date.
    ///
    /// # Errors
    /// [`StoreError`]; `Conflict` or `Unavailable` if others write it all the time.
    pub async fn publish(&self, store: &dyn BreadcrumbStore) -> Result<Published, StoreError> {
        let mut version = 1;
        let mut tries = 1;
        loop {
            let done = match self.find(store).await? {
                Some(found) => self.update(store, &found).await,
                None => self.create(store, &mut version).await,
            };
            match done {
                Ok(Some(published)) => return Ok(published),
                Ok(None) => {}
                // Another worker was first: what it wrote may be what is wanted.
                Err(StoreError::Conflict { .. } | StoreError::NotFound { .. })
                    if tries < Self::TRIES => {}
                Err(error) => return Err(error),
            }
            if tries >= Self::TRIES {
                return Err(StoreError::Unavailable {
                    store: "the tool catalog",
                    retry_after: Self::PAUSE,
                    source: "others create and delete it all the time".into(),
                });
            }
            tries += 1;
        }
    }

    /// The oldest catalog of the name.
    async fn find(
        &self,
        store: &dyn BreadcrumbStore,
    ) -> Result<Option<Arc<Breadcrumb>>, StoreError> {
        const MOST: usize = 16;
        let found = store
            .search(&Query::new(self.selector()).limit(MOST))
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

    /// Creates it, as the end of a run that all writers know by the same name: only one of them has it. None if it has
    /// to be looked for again.
    async fn create(
        &self,
        store: &dyn BreadcrumbStore,
        version: &mut u64,
    ) -> Result<Option<Published>, StoreError> {
        let Some(ledger) = store.ledger() else {
            store.commit(vec![self.first()].into()).await?;
            return Ok(Some(Published::Created));
        };
        // Nothing triggers it, so it is about no breadcrumb.
        let run = RunRef::new(
            format!("{}:{}", Self::AUTHOR, self.name),
            BreadcrumbId::default(),
            *version,
        );
        match ledger.claim(&run, None).await? {
            Claim::Granted(Claimed { lease, .. }) => {
                let commit = Commit {
                    writes: vec![self.first()],
                    end: Some((lease.clone(), RunEnd::Done)),
                };
                if let Err(error) = store.commit(commit).await {
                    // Without this the others would wait until the lease is over; if it was done after all, it is refused.
                    drop(ledger.release(lease).await);
                    return Err(error);
                }
                Ok(Some(Published::Created))
            }
            Claim::Done { written, .. } => {
                // One that was created and is not found was deleted, and is created in a run of its own.
                if is_gone(store, &written).await? {
                    *version += 1;
                }
                Ok(None)
            }
            Claim::Own | Claim::Superseded => {
                *version += 1;
                Ok(None)
            }
            Claim::Running { .. } | Claim::Suspended { .. } | Claim::Paused { .. } => {
                sleep(Self::PAUSE).await;
                Ok(None)
            }
        }
    }

    fn first(&self) -> Write {
        let first = NewBreadcrumb::new(Self::SCHEMA)
            .title(format!("Tools: {}", self.name))
            .tags(["tool:catalog", &self.tag()])
            .context(self.context())
            .created_by(Self::AUTHOR);
        Write::Create(first)
    }

    fn context(&self) -> Value {
        json!({"catalog": self.name, "tools": self.tools})
    }
}

async fn is_gone(store: &dyn BreadcrumbStore, ids: &[BreadcrumbId]) -> Result<bool, StoreError> {
    for id in ids {
        match store.get(*id).await {
            Ok(_) => return Ok(false),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
