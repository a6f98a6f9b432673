//! Loading and listing of workloads that are defined in breadcrumbs.

use super::{Listed, Listing, LoaderSource, Tried, WorkloadManager, WorkloadOrigin};
use crate::error::{BoxError, excerpt};
use crate::model::{Breadcrumb, BreadcrumbId, DefinitionOptions, Selector, WORKFLOW_DEFINITION};
use crate::store::Query;
use crate::workflow::{Document, Workflow};
use crate::workload::Definition;
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of workload definitions that are listed from a store.
const MAX_LISTED: usize = 500;
/// Maximum number of workload definitions that one query of the store returns.
const PAGE: usize = 50;

impl WorkloadManager {
    pub(super) async fn load_stored(
        &self,
        id: BreadcrumbId,
        entry: Option<&str>,
    ) -> Result<Arc<dyn Definition>, Tried> {
        let location = format!("store:{id}");
        let Some(store) = &self.store else {
            return Err(Tried::new(
                location,
                "no store is configured; call WorkloadManagerBuilder::store",
            ));
        };
        let found = store.get(id).await;
        let found = found.map_err(|error| Tried::unreadable(location, &error))?;
        self.definition_in(&found, entry)
    }

    /// Returns the workload definition in a breadcrumb. Another schema is an error, because its writers may not be
    /// allowed to decide which workloads run.
    fn definition_in(
        &self,
        found: &Breadcrumb,
        entry: Option<&str>,
    ) -> Result<Arc<dyn Definition>, Tried> {
        let location = format!("store:{}", found.id);
        let schema = found.schema_name.as_deref().unwrap_or_default();
        if schema != WORKFLOW_DEFINITION {
            let (schema, expected) = (excerpt(schema, 80), WORKFLOW_DEFINITION);
            let reason = format!("schema is {schema:?}, expected {expected:?}");
            return Err(Tried::new(location, reason));
        }
        let Some(definition) = found.context.get("definition") else {
            return Err(Tried::new(location, "context has no field \"definition\""));
        };
        let text = match definition {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let flow = found.context.text("flow");
        if let (Some(flow), Some(entry)) = (flow, entry)
            && flow != entry
        {
            let (flow, entry) = (excerpt(flow, 80), excerpt(entry, 80));
            let reason = format!(
                "definition names the flow {flow:?}, so the identifier cannot start {entry:?}; omit the part after #"
            );
            return Err(Tried::new(location, reason));
        }
        let source = LoaderSource {
            name: name_of(found).unwrap_or(&location),
            text: &text,
            entry: entry.or(flow),
            policy: self.policy,
        };
        let loaded = self
            .cache
            .get_or("store", &source, || source.flow(read(found, &text)?));
        loaded.map_err(|error| Tried::invalid(&*location, &error))
    }

    /// Adds the workload definitions in the store to a listing, the newest first.
    pub(super) async fn list_stored(&self, listing: &mut Listing) {
        let Some(store) = &self.store else {
            return;
        };
        let mut query = Query::new(Selector::schema(WORKFLOW_DEFINITION)).limit(PAGE);
        let mut listed = 0;
        loop {
            let page = match store.search(&query).await {
                Ok(page) => page,
                Err(error) => {
                    listing.unseen.push(Tried::unreadable("store", &error));
                    return;
                }
            };
            let Some(oldest) = page.last() else { return };
            if listed >= MAX_LISTED {
                let reason =
                    format!("more than {MAX_LISTED} definitions; older ones are not listed");
                listing.unseen.push(Tried::new("store", reason));
                return;
            }
            listed += page.len();
            listing
                .workloads
                .extend(page.iter().map(|found| self.listed(found)));
            query = query.before(oldest.order_key());
        }
    }

    fn listed(&self, found: &Breadcrumb) -> Listed {
        let (description, error) = match self.definition_in(found, None) {
            Ok(definition) => (definition.meta().description.clone(), None),
            Err(tried) => (None, Some(tried)),
        };
        let name = name_of(found).map(str::to_owned);
        Listed {
            name: name.unwrap_or_else(|| format!("store:{}", found.id)),
            origin: WorkloadOrigin::Store(found.id),
            description,
            error,
            is_hidden: false,
        }
    }
}

fn name_of(found: &Breadcrumb) -> Option<&str> {
    found
        .context
        .text("workflow_id")
        .filter(|id| !id.is_empty())
}

/// Reads the workflow of a definition breadcrumb in JSON or YAML, and logs its unknown fields.
fn read(found: &Breadcrumb, text: &str) -> Result<Workflow, BoxError> {
    let document = Document::any(text)?;
    let workflow = Workflow::of_document(&document, &DefinitionOptions::default())?;
    for warning in workflow.warnings() {
        tracing::warn!(
            definition = %found.id,
            version = found.version,
            path = warning.path.to_string(),
            problem = warning.oddity.to_string(),
            "a stored workflow definition has a problem, but was loaded"
        );
    }
    Ok(workflow)
}
