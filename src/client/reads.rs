//! Methods of a client that read from its store, and that name the failed operation in each error.

use super::{Client, ClientError, creator_of};
use crate::error::excerpt;
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::store::{Query, Run, RunFilter, RunRef, StoreError, WrittenBy};
use serde_json::json;
use std::sync::Arc;

impl Client {
    /// Returns a breadcrumb from the client's store, or `None` if the store does not have it.
    pub(super) async fn find(
        &self,
        id: BreadcrumbId,
    ) -> Result<Option<Arc<Breadcrumb>>, ClientError> {
        match self.store.get(id).await {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => {
                let operation = format!("read breadcrumb {id}");
                Err(ClientError::of_store(operation, error))
            }
        }
    }

    /// Returns the breadcrumbs of the client's store that a query selects.
    pub(super) async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, ClientError> {
        let found = self.store.search(query).await;
        found.map_err(|error| {
            let selector = query.selector.to_string();
            let operation = format!("search for breadcrumbs with {}", excerpt(&selector, 200));
            ClientError::of_store(operation, error)
        })
    }

    /// Returns the runs of all executors on all versions of a breadcrumb.
    pub(super) async fn runs_on(&self, id: BreadcrumbId) -> Result<Vec<Run>, ClientError> {
        let runs = self.ledger()?.runs(&RunFilter::all().trigger(id)).await;
        runs.map_err(|error| {
            let operation = format!("list the runs on breadcrumb {id}");
            ClientError::of_store(operation, error)
        })
    }

    /// Returns the recorded writer of each breadcrumb version in `versions`, in the same order.
    pub(super) async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, ClientError> {
        let writers = self.ledger()?.written_by(versions).await;
        writers.map_err(|error| {
            let operation = format!("read the writers of {} breadcrumbs", versions.len());
            ClientError::of_store(operation, error)
        })
    }

    /// Returns the runs that wrote the breadcrumbs found by a query, such as responses or dead letters. Only runs of `executor`
    /// on these `triggers` count.
    pub(super) async fn writers(
        &self,
        executor: &Arc<str>,
        triggers: &[String],
        mut written: Query,
    ) -> Result<Vec<RunRef>, ClientError> {
        written.selector = written
            .selector
            .matching("$.creator.id", "eq", &**executor)
            .matching("$.creator.trigger_id", "in", json!(triggers));
        let found = self.search(&written).await?;
        let versions: Vec<_> = found
            .iter()
            .map(|found| (found.id, found.version))
            .collect();
        let writers = self.written_by(&versions).await?;
        let by = WrittenBy::Executor(Arc::clone(executor));
        let matching = found
            .iter()
            .zip(writers)
            .filter(|(_, writer)| *writer == by);
        Ok(matching
            .filter_map(|(found, _)| creator_of(found))
            .collect())
    }
}
