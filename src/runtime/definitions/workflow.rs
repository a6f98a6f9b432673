//! Executors created from stored workflow definitions.

use super::{BuildResult, StoredDefinitions};
use crate::model::{Breadcrumb, DefinitionPath};
use crate::workload::{WorkloadExecutor, check_fields};
use std::sync::Arc;

impl StoredDefinitions {
    /// Lets the runtime run each stored `workflow.def.v1` definition as a [`WorkloadExecutor`]. The executor is the same as from
    /// [`WorkloadExecutor::from_definition`]. A definition can name everything in the services, within the
    /// [limits](crate::Services::limits) of the services.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::runtime::definitions::StoredDefinitions;
    /// use universal_executor::{MemoryStore, Runtime, Services};
    ///
    /// let store = MemoryStore::default();
    /// let definitions = StoredDefinitions::new(&store, &Services::new()).workflows();
    /// let runtime = Runtime::on(&store).definitions(definitions).build()?;
    /// # drop(runtime);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn workflows(mut self) -> Self {
        self.runs_workflows = true;
        self
    }

    pub(super) fn workflow_executor(&self, definition: &Breadcrumb) -> BuildResult {
        let workflow = WorkloadExecutor::from_definition_with(
            &definition.context,
            &self.services,
            &self.store,
            &self.options,
        )?;
        let mut found = check_fields(&definition.context, &self.options);
        let inner = DefinitionPath::default().field("definition");
        found.extend(workflow.warnings().iter().map(|warning| {
            let mut finding = warning.finding();
            finding.path = finding.path.below(&inner);
            finding
        }));
        Ok((Arc::new(workflow), found.into_vec()))
    }
}
