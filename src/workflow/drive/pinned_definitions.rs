//! Saved workflow definitions in the store. A run continues with the definition with which it began, even after a new version replaced the
//! workflow.

use super::Assembly;
use crate::error::{Chain, Retry, excerpt};
use crate::model::{Json, NewBreadcrumb, Selector};
use crate::store::{BreadcrumbStoreExt as _, Query, StoreError};
use crate::workflow::{Progress, RunError, Workflow};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Schema of the breadcrumbs with saved workflow definitions. The definition is a JSON string in the context, so that its hash can be
/// checked.
const DEFINITION_SCHEMA: &str = "workflow.kept.v1";

/// Maximum size in bytes of a workflow definition that is saved in the store.
const MAX_DEFINITION_BYTES: usize = Json::MAX_BYTES / 2;

/// Number of saved workflow definitions in one query of the store.
const MAX_PAGE_SIZE: usize = 64;
/// Maximum number of store queries in the search for one saved workflow definition. Any client can write breadcrumbs with the tag
/// of a hash, so the hash of the content decides. Many breadcrumbs with a wrong definition must not hide the right definition.
const MAX_QUERIES: usize = 64;

impl Assembly {
    /// Saves the workflow's definition in the store, unless it is already saved, refused by the store or too large. Runs do not need the
    /// saved definition while the workflow does not change.
    pub(super) async fn save_definition(&self) {
        if self.is_definition_saved.load(Ordering::Relaxed)
            || self.workflow.text().len() > MAX_DEFINITION_BYTES
        {
            return;
        }
        match self.write_definition().await {
            Ok(()) => self.is_definition_saved.store(true, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(code = error.code(), error = %Chain(&error), "cannot save the definition of a workflow in the store; its runs cannot continue after the workflow has a new version");
                // A permanent refusal of the store is not retried.
                let is_settled = error.retry() == Retry::Never;
                self.is_definition_saved
                    .store(is_settled, Ordering::Relaxed);
            }
        }
    }

    async fn write_definition(&self) -> Result<(), StoreError> {
        let hash = self.workflow.hash();
        if self.saved_definition(hash).await?.is_some() {
            return Ok(());
        }
        let new = NewBreadcrumb::new(DEFINITION_SCHEMA)
            .title("Workflow Definition")
            .tag(tag(hash))
            .context(json!({"hash": hash, "definition": self.workflow.text()}));
        self.store.create(new).await.map(drop)
    }

    /// Returns an assembly with the definition with which a run began, and with the services that are registered now. A run needs this
    /// assembly if its definition was replaced.
    ///
    /// # Errors
    /// Returns errors of the store. A definition that is missing or cannot be used is the inner error.
    pub(super) async fn with_pinned_definition(
        &self,
        progress: &Progress,
    ) -> Result<Result<Self, RunError>, StoreError> {
        let began = progress.definition();
        let definition_gone = |reason: String| RunError::DefinitionGone {
            began: excerpt(began, 80).into_owned(),
            reason,
        };
        let Some(mut workflow) = self.saved_definition(began).await? else {
            return Ok(Err(definition_gone("is missing in this store".to_owned())));
        };
        // A workload that starts with an agent has a generated flow, which is not part of the definition.
        if workflow.flow(progress.flow()).is_none() {
            workflow = match workflow.with_flow_of(progress.flow()) {
                Ok(workflow) => workflow,
                Err(error) => return Ok(Err(definition_gone(format!("cannot be used: {error}")))),
            };
        }
        let assembly = Self::new(workflow, &self.services, Arc::clone(&self.store));
        Ok(assembly.map_err(|error| {
            definition_gone(format!("cannot run with the current services: {error}"))
        }))
    }

    /// Returns the workflow whose saved definition has this hash, or `None` if the store does not have it.
    async fn saved_definition(&self, hash: &str) -> Result<Option<Workflow>, StoreError> {
        let tagged = Selector::schema(DEFINITION_SCHEMA).all_tags([tag(hash)]);
        let mut query = Query::new(tagged).limit(MAX_PAGE_SIZE);
        for _ in 0..MAX_QUERIES {
            let page = self.store.search(&query).await?;
            let texts = page
                .iter()
                .filter_map(|found| found.context.text("definition"));
            let mut workflows = texts.filter_map(|text| Workflow::parse(text).ok());
            if let Some(found) = workflows.find(|workflow| workflow.hash() == hash) {
                return Ok(Some(found));
            }
            match page.last() {
                Some(oldest) if page.len() == MAX_PAGE_SIZE => {
                    query = query.before(oldest.order_key())
                }
                Some(_) | None => break,
            }
        }
        Ok(None)
    }
}

fn tag(hash: &str) -> String {
    format!("definition:{hash}")
}
