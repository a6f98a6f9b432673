//! A store handle through which the code of one run reads and writes breadcrumbs. Its writes are checked, stamped and fenced as
//! writes of the run.

use super::handle::{RunHandle, Terms};
use super::profile::Profile;
use super::provenance::Stamp;
use crate::error::excerpt;
use crate::model::{
    Breadcrumb, BreadcrumbId, is_answer_schema, is_reserved_schema, is_reserved_tag,
};
use crate::store::{
    BreadcrumbStore, Capabilities, Commit, Committed, Query, RunEnd, RunLedger, Scored, StoreError,
    StoreId, VectorQuery, Write,
};
use async_trait::async_trait;
use std::sync::Arc;

/// Schemas of the breadcrumbs that a part of a run, such as one of its tools, may write. The executor must be allowed to write them too.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "workflows"),
    allow(
        dead_code,
        reason = "agents create one of the variants, and flows the other one"
    )
)]
pub(crate) enum WriteRestriction {
    /// A part of a run, such as a tool, may write only these schemas.
    Listed(Arc<[String]>),
    /// A part of a run, such as a tool, may write all schemas except reserved ones, such as requests and answers. Only the run
    /// itself writes these.
    Unreserved,
}

impl WriteRestriction {
    fn refusal(&self, schema: Option<&str>) -> Option<String> {
        match self {
            Self::Listed(listed) => not_listed(listed, schema),
            Self::Unreserved => {
                let is_reserved =
                    |schema: &&str| is_reserved_schema(schema) || is_answer_schema(schema);
                let schema = schema.filter(is_reserved)?;
                Some(format!(
                    "of schema {schema:?}, which is reserved for the run itself, so its tools may not write it; use another schema"
                ))
            }
        }
    }
}

/// The schemas of the breadcrumbs that a run may write. The executor limits them, and so does the part of the run that writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AllowedSchemas<'a> {
    /// Schemas that the executor may write, or `None` for all schemas.
    pub(super) executor: Option<&'a [String]>,
    /// Schemas that a part of the run, such as a tool, may write, or `None` if only the executor limits the schemas.
    pub(super) restriction: Option<&'a WriteRestriction>,
}

impl<'a> AllowedSchemas<'a> {
    pub(super) fn by(profile: &'a Profile) -> Self {
        Self {
            executor: profile.responds_with.as_deref(),
            restriction: None,
        }
    }

    fn is_unlimited(self) -> bool {
        self.executor.is_none() && self.restriction.is_none()
    }

    fn refusal(self, schema: Option<&str>) -> Option<String> {
        let executor = self.executor.and_then(|listed| not_listed(listed, schema));
        executor.or_else(|| self.restriction?.refusal(schema))
    }
}

fn not_listed(listed: &[String], schema: Option<&str>) -> Option<String> {
    if schema.is_some_and(|schema| listed.iter().any(|name| name == schema)) {
        return None;
    }
    let (schema, listed) = (schema.unwrap_or("none"), listed.join(", "));
    Some(format!(
        "of schema {schema:?}, but this executor may write only: {listed}"
    ))
}

/// Checks the writes of a run against the allowed schemas. With a `stamp`, also adds the creator, the author and the session tags to each
/// write.
///
/// # Errors
/// The inner error is a sentence with the refused write, the reason and a remedy. The outer error is a [`StoreError`] if the
/// breadcrumb that a write updates or deletes cannot be read.
pub(super) async fn admit(
    writes: Vec<Write>,
    stamp: Option<&Stamp>,
    allowed: AllowedSchemas<'_>,
    store: &dyn BreadcrumbStore,
) -> Result<Result<Vec<Write>, String>, StoreError> {
    let mut admitted = Vec::with_capacity(writes.len());
    for (index, write) in writes.into_iter().enumerate() {
        if let Some(refusal) = refusal(&write, allowed, store).await? {
            return Ok(Err(format!("write {index} is {refusal}")));
        }
        let write = match with_library_tags(index, write, store).await? {
            Ok(write) => write,
            Err(reason) => return Ok(Err(reason)),
        };
        let stamped = match stamp {
            Some(stamp) => stamp.apply(index, write),
            None => Ok(write),
        };
        match stamped {
            Ok(write) => admitted.push(write),
            Err(reason) => return Ok(Err(reason)),
        }
    }
    Ok(Ok(admitted))
}

/// Returns the reason why a write of a run is refused, or `None` if the write is permitted. A write is permitted if its new
/// schema and the schema of the changed or deleted breadcrumb are both allowed.
async fn refusal(
    write: &Write,
    allowed: AllowedSchemas<'_>,
    store: &dyn BreadcrumbStore,
) -> Result<Option<String>, StoreError> {
    if allowed.is_unlimited() {
        return Ok(None);
    }
    let (id, new_schema) = match write {
        Write::Create(new) => return Ok(allowed.refusal(new.schema_name.as_deref())),
        Write::Update { id, patch, .. } => (*id, patch.schema_name.as_deref()),
        Write::Delete { id, .. } => (*id, None),
    };
    if new_schema.is_some()
        && let Some(refusal) = allowed.refusal(new_schema)
    {
        return Ok(Some(refusal));
    }
    let target = store.get(id).await?;
    Ok(allowed.refusal(target.schema_name.as_deref()))
}

/// Adds the reserved tags of the stored breadcrumb to an update's tags, so that the update removes no reserved tag. A store without a
/// ledger recognises the writes of a run by reserved tags, so a patch can neither add nor remove one.
///
/// # Errors
/// The inner error is the reason of the refusal if a patch adds a reserved tag. The outer error is a [`StoreError`] if the
/// breadcrumb that the patch updates cannot be read.
async fn with_library_tags(
    index: usize,
    mut write: Write,
    store: &dyn BreadcrumbStore,
) -> Result<Result<Write, String>, StoreError> {
    if let Write::Update { id, patch, .. } = &mut write
        && let Some(tags) = &mut patch.tags
    {
        let stored = &store.get(*id).await?.tags;
        let is_added = |tag: &&String| is_reserved_tag(tag) && !stored.contains(tag);
        if let Some(tag) = tags.iter().find(is_added) {
            return Ok(Err(format!(
                "write {index} adds the tag {:?} to breadcrumb {id}, but tags that start with \"ux:\" are reserved for \
                 the library; rename it",
                excerpt(tag, 80)
            )));
        }
        let is_dropped = |tag: &&String| is_reserved_tag(tag) && !tags.contains(tag);
        let dropped: Vec<String> = stored.iter().filter(is_dropped).cloned().collect();
        tags.extend(dropped);
    }
    Ok(Ok(write))
}

/// Returns a store handle whose writes belong to a run. With a `restriction`, the handle writes only the schemas that
/// the restriction allows. Outside a run and without a restriction, returns `store` unchanged.
pub(super) fn bind(
    store: Arc<dyn BreadcrumbStore>,
    run: &RunHandle,
    restriction: Option<&WriteRestriction>,
) -> Arc<dyn BreadcrumbStore> {
    let (terms, restriction) = (run.terms.clone(), restriction.cloned());
    if terms.is_none() && restriction.is_none() {
        return store;
    }
    Arc::new(BoundStore {
        store,
        terms,
        restriction,
    })
}

#[derive(Debug)]
struct BoundStore {
    store: Arc<dyn BreadcrumbStore>,
    /// Conditions for the writes of the run (allowed schemas, lease, and origin data such as the author), or `None` outside a
    /// run.
    terms: Option<Terms>,
    restriction: Option<WriteRestriction>,
}

const NAME: &str = "a run's store handle";

#[async_trait]
impl BreadcrumbStore for BoundStore {
    fn tenant(&self) -> &str {
        self.store.tenant()
    }

    fn identity(&self) -> StoreId {
        self.store.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.store.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.store.search(query).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.store.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        if commit.end.is_some() {
            return Err(StoreError::Unsupported {
                store: NAME,
                operation: "ending a run",
            });
        }
        let terms = self.terms.as_ref();
        let allowed = AllowedSchemas {
            executor: terms.and_then(|terms| terms.responds_with.as_deref()),
            restriction: self.restriction.as_ref(),
        };
        let stamp = terms.map(|terms| &*terms.stamp);
        let writes = match admit(commit.writes, stamp, allowed, &self.store).await? {
            Ok(writes) => writes,
            Err(reason) => return Err(StoreError::Forbidden { reason }),
        };
        let run_keys = self.store.capabilities().run_keys;
        let recorded = terms.filter(|terms| terms.in_ledger || run_keys);
        let end = recorded.map(|terms| (terms.lease.clone(), RunEnd::Continues));
        self.store.commit(Commit { writes, end }).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        None
    }
}
