//! Records of the accepted tools of MCP servers in the store: one `mcp.tool.v1` breadcrumb for each tool.

use super::McpError;
use super::listed::Listed;
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Order, Patch, Selector};
use crate::store::{BreadcrumbStore, BreadcrumbStoreExt, Query, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Schema of the record of an MCP tool. Models and their actions cannot write it.
const SCHEMA: &str = "mcp.tool.v1";

/// Tag of the records with a change that waits for a person.
const HELD: &str = "mcp:held";

/// Maximum number of records that are read for one MCP server, or for the list of changes.
const MAX_RECORDS: usize = 1_000;

/// Name that is recorded for a definition that was accepted because it was the first one of its tool.
const FIRST_USE: &str = "first use";

/// A tool of an MCP server as a person, or the first connection to the server, has accepted it, with the change that the server made
/// since.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Record {
    server: String,
    tool: String,
    accepted: Option<Definition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accepted_by: Option<String>,
    /// The definition that the server lists, if no person has accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offered: Option<Definition>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Definition {
    digest: String,
    #[serde(flatten)]
    listed: Listed,
}

/// The accepted definition of an MCP tool with its digest. `None` for a tool that no person has accepted.
pub(super) type Accepted = Option<(String, Listed)>;

/// Records of the tools of one MCP server.
#[derive(Clone, Debug)]
pub(super) struct Records {
    store: Arc<dyn BreadcrumbStore>,
    server: String,
}

/// A record with its position in the store.
struct Stored {
    id: BreadcrumbId,
    version: u64,
    record: Record,
}

impl Records {
    pub(super) fn new(store: Arc<dyn BreadcrumbStore>, server: &str) -> Self {
        Self {
            store,
            server: server.to_owned(),
        }
    }

    /// Compares the tools that a server lists with the records, and returns the accepted definition of each listed tool. Records new
    /// tools, accepted at their first use unless `holds_new` is `true`, and each change of an accepted definition.
    pub(super) async fn compare(
        &self,
        listed: &BTreeMap<String, (String, Listed)>,
        holds_new: bool,
    ) -> Result<BTreeMap<String, Accepted>, McpError> {
        let mut stored = self.read().await?;
        let mut accepted = BTreeMap::new();
        for (tool, (digest, definition)) in listed {
            let offered = || Definition {
                digest: digest.clone(),
                listed: definition.clone(),
            };
            let known = match stored.remove(tool) {
                None => {
                    let record = self.first(tool, offered(), holds_new);
                    self.create(&record).await?;
                    record.accepted
                }
                Some(stored) => {
                    self.note(&stored, &offered()).await?;
                    stored.record.accepted
                }
            };
            let known = known.map(|known| (known.digest, known.listed));
            accepted.insert(tool.clone(), known);
        }
        Ok(accepted)
    }

    /// Returns the digest of the accepted definition of a tool, or `None` if no definition was accepted.
    pub(super) async fn accepted_digest(&self, tool: &str) -> Result<Option<String>, McpError> {
        let stored = self.read().await?.remove(tool);
        let accepted = stored.and_then(|stored| stored.record.accepted);
        Ok(accepted.map(|accepted| accepted.digest))
    }

    fn first(&self, tool: &str, offered: Definition, holds_new: bool) -> Record {
        let (accepted, offered) = match holds_new {
            true => (None, Some(offered)),
            false => (Some(offered), None),
        };
        Record {
            server: self.server.clone(),
            tool: tool.to_owned(),
            accepted_by: accepted.is_some().then(|| FIRST_USE.to_owned()),
            accepted,
            offered,
        }
    }

    async fn create(&self, record: &Record) -> Result<(), McpError> {
        let mut tags = vec!["workspace:mcp".to_owned(), tag(&self.server)];
        tags.extend(record.offered.is_some().then(|| HELD.to_owned()));
        let new = NewBreadcrumb::new(SCHEMA)
            .title(format!("MCP tool: {}.{}", record.server, record.tool))
            .tags(tags)
            .context(json!(record));
        let created = self.store.create(new).await;
        created.map_err(|error| self.failed("record a tool", error))?;
        Ok(())
    }

    /// Records the definition that the server lists as a change that waits for a person, or removes such a change if the server lists
    /// the accepted definition again.
    async fn note(&self, stored: &Stored, offered: &Definition) -> Result<(), McpError> {
        let digest = |definition: &Option<Definition>| {
            definition
                .as_ref()
                .map(|definition| definition.digest.clone())
        };
        let is_accepted = digest(&stored.record.accepted).as_ref() == Some(&offered.digest);
        let pending = (!is_accepted).then(|| offered.clone());
        if digest(&stored.record.offered) == digest(&pending) {
            return Ok(());
        }
        let mut record = stored.record.clone();
        record.offered = pending;
        match update(&*self.store, stored, &record).await {
            // Another worker has noted the same change.
            Ok(()) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(self.failed("record a changed tool", error)),
        }
    }

    /// Returns the oldest record of each tool. Workers that connect for the first time at the same moment can each create one.
    async fn read(&self) -> Result<BTreeMap<String, Stored>, McpError> {
        let query = Query::new(Selector::schema(SCHEMA).all_tags([tag(&self.server)]));
        let found = read(&*self.store, query, &self.server, "read the accepted tools").await?;
        let mut oldest = BTreeMap::new();
        for stored in found {
            oldest.entry(stored.record.tool.clone()).or_insert(stored);
        }
        Ok(oldest)
    }

    fn failed(&self, operation: &'static str, source: StoreError) -> McpError {
        McpError::Store {
            server: self.server.clone(),
            operation,
            source: Box::new(source),
        }
    }
}

fn tag(server: &str) -> String {
    format!("mcp:server:{server}")
}

/// Returns the records that a query selects, oldest first.
async fn read(
    store: &dyn BreadcrumbStore,
    query: Query,
    server: &str,
    operation: &'static str,
) -> Result<Vec<Stored>, McpError> {
    let query = match store.capabilities().oldest_first {
        true => query.order(Order::OldestFirst),
        false => query,
    };
    let found = store.search(&query.limit(MAX_RECORDS)).await;
    let mut found = found.map_err(|source| McpError::Store {
        server: server.to_owned(),
        operation,
        source: Box::new(source),
    })?;
    found.sort_by_key(|found| (found.created_at, found.id));
    found.iter().map(|found| stored(found, server)).collect()
}

fn stored(breadcrumb: &Breadcrumb, server: &str) -> Result<Stored, McpError> {
    let record =
        Record::deserialize(&*breadcrumb.context).map_err(|source| McpError::BadRecord {
            server: server.to_owned(),
            id: breadcrumb.id,
            source,
        })?;
    Ok(Stored {
        id: breadcrumb.id,
        version: breadcrumb.version,
        record,
    })
}

async fn update(
    store: &dyn BreadcrumbStore,
    stored: &Stored,
    record: &Record,
) -> Result<(), StoreError> {
    let mut tags = vec!["workspace:mcp".to_owned(), tag(&record.server)];
    tags.extend(record.offered.is_some().then(|| HELD.to_owned()));
    let patch = Patch::new().tags(tags).context(json!(record));
    store
        .update(stored.id, stored.version, patch)
        .await
        .map(drop)
}

/// The changes of MCP tools that wait for the acceptance of a person.
///
/// If a server changes the description, a schema or an annotation of a tool, calls of the tool are refused until a person accepts the
/// change, because the new description could make a model misuse the tool. Show [`McpChange`] to a person, then call
/// [`accept`](Self::accept). Any process that can open the store can do this.
///
/// # Examples
/// ```
/// use universal_executor::MemoryStore;
/// use universal_executor::mcp::McpChanges;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let changes = McpChanges::on(&MemoryStore::default());
/// for change in changes.list().await? {
///     println!("{change}");
///     changes.accept(&change, "ann").await?;
/// }
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct McpChanges {
    store: Arc<dyn BreadcrumbStore>,
}

/// A change of an MCP tool that no person has accepted.
///
/// Description and schemas come from the server and are not trusted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct McpChange {
    /// The name of the MCP server.
    pub server: String,
    /// The name of the tool on the MCP server.
    pub tool: String,
    /// The accepted definition: description, schemas and annotations. `None` for a tool that no person has accepted before.
    pub before: Option<Value>,
    /// The definition that the server lists now.
    pub after: Value,
    /// The digest of the definition that the server lists now.
    pub digest: String,
}

impl fmt::Display for McpChange {
    /// Writes the tool, then the fields of the definition that differ, with their values before and after the change.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tool {:?} of MCP server {:?}", self.tool, self.server)?;
        let fields = self.after.as_object().into_iter().flatten();
        for (name, after) in fields {
            let before = self.before.as_ref().and_then(|before| before.get(name));
            if before != Some(after) && name != "digest" {
                let before = before.unwrap_or(&Value::Null);
                write!(f, "\n  {name}: {before}\n    -> {after}")?;
            }
        }
        Ok(())
    }
}

impl McpChanges {
    /// Returns access to the changes of MCP tools that are recorded in a store.
    #[must_use]
    pub fn on<B: BreadcrumbStore + Clone>(store: &B) -> Self {
        Self {
            store: Arc::new(store.clone()),
        }
    }

    /// Returns the changes that wait for the acceptance of a person, oldest first. At most 1,000.
    ///
    /// # Errors
    /// [`McpError::Store`] and [`McpError::BadRecord`].
    pub async fn list(&self) -> Result<Vec<McpChange>, McpError> {
        let query = Query::new(Selector::schema(SCHEMA).all_tags([HELD]));
        let found = read(&*self.store, query, "any", "read the changed tools").await?;
        Ok(found.iter().filter_map(change).collect())
    }

    /// Accepts a change of a tool in the name of `person`. The tool can be called again as soon as each service that uses it has
    /// connected to the server again, because its models then see the new definition.
    ///
    /// # Errors
    /// [`McpError::ChangedAgain`] if the server has changed the tool since, [`McpError::Store`], and [`McpError::BadRecord`].
    pub async fn accept(
        &self,
        change: &McpChange,
        person: impl Into<String>,
    ) -> Result<(), McpError> {
        let records = Records::new(Arc::clone(&self.store), &change.server);
        let changed_again = || McpError::ChangedAgain {
            server: change.server.clone(),
            tool: change.tool.clone(),
        };
        let stored = records.read().await?.remove(&change.tool);
        let stored = stored.ok_or_else(changed_again)?;
        let offered = stored.record.offered.clone();
        let offered = offered.filter(|offered| offered.digest == change.digest);
        let mut record = stored.record.clone();
        record.accepted = Some(offered.ok_or_else(changed_again)?);
        record.accepted_by = Some(person.into());
        record.offered = None;
        match update(&*self.store, &stored, &record).await {
            Ok(()) => Ok(()),
            Err(StoreError::Conflict { .. }) => Err(changed_again()),
            Err(source) => Err(records.failed("accept a changed tool", source)),
        }
    }
}

fn change(stored: &Stored) -> Option<McpChange> {
    let Record {
        server,
        tool,
        accepted,
        offered,
        ..
    } = &stored.record;
    let offered = offered.as_ref()?;
    Some(McpChange {
        server: server.clone(),
        tool: tool.clone(),
        before: accepted.as_ref().map(|accepted| json!(accepted.listed)),
        after: json!(offered.listed),
        digest: offered.digest.clone(),
    })
}
