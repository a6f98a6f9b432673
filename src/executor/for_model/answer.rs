//! Presentation of a single breadcrumb to a model, for example of an answer that a run reads: the context, shaped by hints
//! (`llm_hints`).

use super::shape::Shaper;
use crate::executor::context::ExecutionContext;
use crate::executor::context_error::{ContextError, READ_HINTS};
use crate::model::{Breadcrumb, Json};
use crate::store::{BreadcrumbStore, schema_hints};
use std::sync::Arc;

impl ExecutionContext {
    /// Returns the part of a breadcrumb's context that a model may see. The breadcrumb's own hints apply, else the hints of its
    /// schema. Outside a run, the hints of the schema are read from `store`.
    ///
    /// # Errors
    /// [`ContextError::Withheld`] if the hints cannot be used, [`ContextError::Store`] if the store cannot read them.
    pub(crate) async fn shown(
        &self,
        found: &Breadcrumb,
        store: &dyn BreadcrumbStore,
    ) -> Result<Json, ContextError> {
        let schema = match schema_hints::own(found) {
            Some(_) => None,
            None => found.schema_name.clone(),
        };
        let schemas: Vec<String> = schema.into_iter().collect();
        let by_schema = match self.run().terms {
            Some(_) => self.hints_of(schemas).await?,
            None => {
                let read = schema_hints::find(None, store, schemas).await;
                let mut by_schema =
                    read.map_err(|error| ContextError::of_store(READ_HINTS, error))?;
                by_schema.extend(self.test_hints());
                by_schema
            }
        };
        // Hints can take long, and any writer of the tenant can set them, so other tasks run first.
        tokio::task::yield_now().await;
        let shaped = Shaper::of_one(by_schema).shape(found);
        shaped.map(|item| item.context).map_err(|cause| {
            let schema = found.schema_name.as_deref().unwrap_or_default();
            tracing::warn!(
                breadcrumb = %found.id,
                schema,
                cause = cause.to_string(),
                "withheld a breadcrumb from the model, because its llm_hints cannot be applied"
            );
            ContextError::Withheld {
                key: schema.to_owned(),
                cause: Arc::new(cause),
            }
        })
    }
}
