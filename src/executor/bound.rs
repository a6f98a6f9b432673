//! A store handle whose writes belong to a run.

use super::handle::RunHandle;
use super::provenance::Stamp;
use crate::error::excerpt;
use crate::model::{Breadcrumb, BreadcrumbId, is_reserved_tag};
use crate::store::{
    BreadcrumbStore, Capabilities, Commit, Committed, Lease, Query, RunEnd, RunLedger, Scored,
    StoreError, VectorQuery, Write,
};
use async_trait::async_trait;
use std::sync::Arc;

/// What a write of a run must satisfy, and what it is stamped with.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) stamp: Arc<Stamp>,
    pub(super) responds_with: Option<Vec<String>>,
    pub(super) lease: Lease,
    /// Whether the lease is one of a ledger, and so fences what is written.
    pub(super) in_ledger: bool,
}

/// Stamps writes and checks them against the schemas the executor may write.
///
/// # Errors
/// A sentence that says what to change; a store error if the target of a change cannot be read.
pub(super) async fn admit(
    writes: Vec<Write>,
    stamp: &Stamp,
    responds_with: Option<&[String]>,
    store: &dyn BreadcrumbStore,
) -> Result<Result<Vec<Write>, String>, StoreError> {
    let mut admitted = Vec::with_capacity(writes.len());
    for (index, write) in writes.into_iter().enumerate() {
        if let Some(refusal) = refusal(index, &write, responds_with, store).await? {
            return Ok(Err(refusal));
        }
        let write = with_library_tags(index, write, store).await?;
        match write.and_then(|write| stamp.apply(index, write)) {
            Ok(write) => admitted.push(write),
            Err(reason) => return Ok(Err(reason)),
        }
    }
    Ok(Ok(admitted))
}

/// Why the executor may not write this, if it may not: neither what it makes nor what it changes may be of another
/// schema than those on its list.
async fn refusal(
    index: usize,
    write: &Write,
    responds_with: Option<&[String]>,
    store: &dyn BreadcrumbStore,
) -> Result<Option<String>, StoreError> {
    let Some(allowed) = responds_with else {
        return Ok(None);
    };
    let may_write = |schema: Option<&str>| {
        schema.is_some_and(|schema| allowed.iter().any(|name| name == schema))
    };
    let refuse = |schema: Option<&str>| {
        let schema = schema.unwrap_or("none");
        let allowed = allowed.join(", ");
        format!("write {index} is of schema {schema:?}, this executor may write only: {allowed}")
    };
    let (id, made) = match write {
        Write::Create(new) => {
            let schema = new.schema_name.as_deref();
            return Ok((!may_write(schema)).then(|| refuse(schema)));
        }
        Write::Update { id, patch, .. } => (*id, patch.schema_name.as_deref()),
        Write::Delete { id, .. } => (*id, None),
    };
    if made.is_some() && !may_write(made) {
        return Ok(Some(refuse(made)));
    }
    let target = store.get(id).await?;
    let schema = target.schema_name.as_deref();
    Ok((!may_write(schema)).then(|| refuse(schema)))
}

/// Returns the write with the library's tags of the stored breadcrumb: by such tags a store without a ledger recognises the
/// writes of a run, so a patch can neither add nor drop one.
///
/// # Errors
/// The reason of the refusal if a patch adds such a tag; a store error if its target cannot be read.
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

/// A handle that writes as part of a run, these schemas only if any are given; the store itself where there is none.
pub(super) fn bind(
    store: Arc<dyn BreadcrumbStore>,
    run: &RunHandle,
    schemas: Option<&[String]>,
) -> Arc<dyn BreadcrumbStore> {
    let Some(mut terms) = run.terms.clone() else {
        return store;
    };
    if let Some(schemas) = schemas {
        terms.responds_with = Some(schemas.to_vec());
    }
    Arc::new(BoundStore { store, terms })
}

#[derive(Debug)]
struct BoundStore {
    store: Arc<dyn BreadcrumbStore>,
    terms: Terms,
}

const NAME: &str = "a run's store handle";

#[async_trait]
impl BreadcrumbStore for BoundStore {
    fn tenant(&self) -> &str {
        self.store.tenant()
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
        let terms = &self.terms;
        let writes = match admit(
            commit.writes,
            &terms.stamp,
            terms.responds_with.as_deref(),
            &self.store,
        )
        .await?
        {
            Ok(writes) => writes,
            Err(reason) => return Err(StoreError::Forbidden { reason }),
        };
        let tells_of_run = terms.in_ledger || self.store.capabilities().run_keys;
        let end = tells_of_run.then(|| (terms.lease.clone(), RunEnd::Continues));
        self.store.commit(Commit { writes, end }).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        None
    }
}
