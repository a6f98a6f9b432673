//! Breadcrumbs that can answer the `wait_for` steps of a flow run.

use super::Assembly;
use super::attempt::Drive;
use crate::model::{Breadcrumb, Selector, Timestamp};
use crate::store::{Query, StoreError};
use crate::workflow::ast::TaskForm;
use crate::workflow::{Ready, StepTask};
use std::sync::Arc;

impl Drive<'_> {
    /// Returns the lower limit, exclusive, of the update time of a breadcrumb that can end a `wait_for` step's wait.
    pub(super) fn since(&self, ready: &Ready) -> Timestamp {
        let trigger = self.context.trigger().updated_at;
        let StepTask::WaitFor { event } = &ready.task else {
            return trigger;
        };
        let (progress, of) = (self.run.progress(), event.schema_name());
        let since = self.ended_breadcrumbs.since(progress, &ready.path, of);
        since.unwrap_or(trigger)
    }

    /// Returns those breadcrumbs in `found` that may end the wait of a step of a flow run. `found` contains breadcrumbs that
    /// match the step's selector.
    pub(super) fn may_answer(
        &self,
        ready: &Ready,
        mut found: Vec<Arc<Breadcrumb>>,
    ) -> Vec<Arc<Breadcrumb>> {
        if let StepTask::WaitFor { event } = &ready.task {
            let (progress, of) = (self.run.progress(), event.schema_name());
            self.ended_breadcrumbs
                .retain_unused(progress, &ready.path, of, &mut found);
        }
        found
    }

    /// Prevents breadcrumbs that already exist when the flow starts from answering `wait_for` steps. Only a flow outside of a run needs
    /// this call: the time of its trigger is from this process's clock, which can differ from the store's clock.
    pub(super) async fn mark_existing(&mut self) -> Result<(), StoreError> {
        // The trigger of a run has a time of the store's clock.
        if self.context.correlation_id().is_some() {
            return Ok(());
        }
        for schema in awaited(self.assembly) {
            let query = Query::new(Selector::schema(&*schema)).limit(1);
            let found = self.assembly.store.search(&query).await?;
            let newest = found.first().map(|newest| newest.updated_at);
            let at = newest.unwrap_or(Timestamp::from_micros(0));
            self.poll_progress.since = self.poll_progress.since.min(at);
            self.ended_breadcrumbs.begin_after(at, schema);
        }
        Ok(())
    }
}

/// Returns the names of the schemas that the `wait_for` steps of a workflow wait for.
fn awaited(assembly: &Assembly) -> Vec<String> {
    let tasks = assembly.workflow().tasks();
    let mut schemas: Vec<String> = tasks
        .iter()
        .filter_map(|task| match task {
            TaskForm::WaitFor { event } => event.expression().literal_field("schema_name"),
            TaskForm::Agent { .. }
            | TaskForm::Tool { .. }
            | TaskForm::Model { .. }
            | TaskForm::Ask { .. }
            | TaskForm::Emit { .. } => None,
        })
        .collect();
    schemas.sort_unstable();
    schemas.dedup();
    schemas
}
