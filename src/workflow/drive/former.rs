//! Definitions that runs began with, kept so that these can go on after another one has taken its place.

use super::Assembly;
use crate::error::{Chain, Retry, excerpt};
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

/// How many that say they are the one are looked at together, and how often. Anybody may write one, so it is the hash
/// that decides, and whoever writes many must not hide the one that is it.
const AT_ONCE: usize = 64;
const MOST_LOOKS: usize = 64;

impl Assembly {
    /// Keeps the definition in the store, unless that is settled or it is too large. A run gets along without.
    pub(super) async fn keep_definition(&self) {
        if self.is_kept.load(Ordering::Relaxed) || self.workflow.text().len() > KEPT_BYTES {
            return;
        }
        match self.write_definition().await {
            Ok(()) => self.is_kept.store(true, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(code = error.code(), error = %Chain(&error), "cannot save the definition of a workflow");
                // A store that does not take it is not asked again.
                let is_settled = error.retry() == Retry::Never;
                self.is_kept.store(is_settled, Ordering::Relaxed);
            }
        }
    }

    async fn write_definition(&self) -> Result<(), StoreError> {
        let hash = self.workflow.hash();
        if self.kept_definition(hash).await?.is_some() {
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
        let Some(mut workflow) = self.kept_definition(began).await? else {
            return Ok(Err(gone("is not kept in this store".to_owned())));
        };
        // A workload that begins with an agent has a flow for it that no definition has.
        if workflow.flow(progress.flow()).is_none() {
            workflow = match workflow.with_flow_of(progress.flow()) {
                Ok(workflow) => workflow,
                Err(error) => return Ok(Err(gone(format!("cannot be used: {error}")))),
            };
        }
        let assembly = Self::new(workflow, &self.services, Arc::clone(&self.store));
        Ok(assembly.map_err(|error| gone(format!("cannot be used here any more: {error}"))))
    }

    /// The definition of this hash, if it is in the store.
    async fn kept_definition(&self, hash: &str) -> Result<Option<Workflow>, StoreError> {
        let tagged = Selector::schema(KEPT).all_tags([tag(hash)]);
        let mut query = Query::new(tagged).limit(AT_ONCE);
        for _ in 0..MOST_LOOKS {
            let page = self.store.search(&query).await?;
            let texts = page
                .iter()
                .filter_map(|found| found.context.text("definition"));
            let mut workflows = texts.filter_map(|text| Workflow::parse(text).ok());
            if let Some(found) = workflows.find(|workflow| workflow.hash() == hash) {
                return Ok(Some(found));
            }
            match page.last() {
                Some(oldest) if page.len() == AT_ONCE => query = query.before(oldest.order_key()),
                Some(_) | None => break,
            }
        }
        Ok(None)
    }
}

fn tag(hash: &str) -> String {
    format!("definition:{hash}")
}
