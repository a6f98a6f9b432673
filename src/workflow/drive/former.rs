//! Definitions that runs began with, kept so that these can go on after another one has taken its place.

use super::Assembly;
use crate::error::{Retry, excerpt};
use crate::model::{Json, NewBreadcrumb, Selector};
use crate::store::{BreadcrumbStoreExt as _, Query, StoreError};
use crate::workflow::{Progress, RunError, Workflow};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The schema of definitions that are kept. A text in JSON, since a hash has to come out as it was.
const KEPT: &str = "workflow.kept.v1";

/// How large a definition may be that is kept.
const KEPT_BYTES: usize = Json::MAX_BYTES / 2;

/// How many that say they are the one are looked at. Anybody may write one, so it is the hash that decides.
const LOOKED_AT: usize = 64;

impl Assembly {
    /// Keeps the definition in the store, unless that is settled or it is too large. A run gets along without.
    pub(super) async fn keep_definition(&self) {
        if self.is_kept.load(Ordering::Relaxed) || self.workflow.text().len() > KEPT_BYTES {
            return;
        }
        match self.write_definition().await {
            Ok(()) => self.is_kept.store(true, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!("the definition of a workflow is not kept: {error}");
                // A store that does not take it is not asked again.
                let is_settled = error.retry() == Retry::Never;
                self.is_kept.store(is_settled, Ordering::Relaxed);
            }
        }
    }

    async fn write_definition(&self) -> Result<(), StoreError> {
        let hash = self.workflow.hash();
        if !self.store.search(&kept(hash).limit(1)).await?.is_empty() {
            return Ok(());
        }
        let new = NewBreadcrumb::new(KEPT)
            .title("Workflow Definition")
            .tag(tag(hash))
            .context(json!({"hash": hash, "definition": self.workflow.text()}));
        self.store.create(new).await.map(drop)
    }

    /// The workflow that a run began with, with what is registered here now.
    ///
    /// # Errors
    /// What the store says. That the definition is not to be had is no error of it, and within.
    pub(super) async fn former(
        &self,
        progress: &Progress,
    ) -> Result<Result<Self, RunError>, StoreError> {
        let began = progress.definition();
        let gone = |reason: String| RunError::DefinitionGone {
            began: excerpt(began, 80).into_owned(),
            reason,
        };
        let found = self.store.search(&kept(began).limit(LOOKED_AT)).await?;
        let texts = found
            .iter()
            .filter_map(|found| found.context.text("definition"));
        let mut workflows = texts.filter_map(|text| Workflow::parse(text).ok());
        let Some(mut workflow) = workflows.find(|workflow| workflow.hash() == began) else {
            return Ok(Err(gone("is not kept in this store".to_owned())));
        };
        // A workload that begins with an agent has a flow for it that no definition has.
        if workflow.flow(progress.flow()).is_none() {
            workflow = match workflow.with_flow_of(progress.flow()) {
                Ok(workflow) => workflow,
                Err(error) => return Ok(Err(gone(format!("cannot be used: {error}")))),
            };
        }
        let assembly = Self::new(workflow, &self.parts, Arc::clone(&self.store));
        Ok(assembly.map_err(|error| gone(format!("cannot be used here any more: {error}"))))
    }
}

fn kept(hash: &str) -> Query {
    Query::new(Selector::schema(KEPT).all_tags([tag(hash)]))
}

fn tag(hash: &str) -> String {
    format!("definition:{hash}")
}
