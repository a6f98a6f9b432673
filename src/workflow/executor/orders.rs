//! What is ordered of runs, and answered to their questions.

use super::WorkflowExecutor;
use crate::agent::human;
use crate::model::{Breadcrumb, BreadcrumbId, Json};
use crate::store::{BreadcrumbStoreExt as _, StoreError};
use crate::workflow::Control;
use std::sync::Arc;

impl WorkflowExecutor {
    /// Orders something of the run that a trigger set off. The run looks for orders each second while it is at work, and is
    /// woken by them else.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn control(
        &self,
        trigger: BreadcrumbId,
        control: Control,
    ) -> Result<Arc<Breadcrumb>, StoreError> {
        self.assembly.store.create(control.of(trigger)).await
    }

    /// Ends the run that a trigger set off: its result has the status `cancelled`.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn cancel(&self, trigger: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.control(trigger, Control::Cancel).await
    }

    /// Lets no further steps of a run begin.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn pause(&self, trigger: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.control(trigger, Control::Pause).await
    }

    /// Lets the steps of a run begin again.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn unpause(&self, trigger: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.control(trigger, Control::Resume).await
    }

    /// Answers the question of a step in the name of somebody, by the ticket of its
    /// [`Suspended`](crate::workflow::FlowEventKind::Suspended), which is the `requestId` of the `human.request.v1` too. What
    /// [does not count](crate::workflow#questions-to-people) is written all the same, and the step waits on.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn resume(
        &self,
        ticket: &str,
        answer: impl Into<Json>,
        by: &str,
    ) -> Result<Arc<Breadcrumb>, StoreError> {
        let response = human::answer(ticket, &answer.into(), by);
        self.assembly.store.create(response).await
    }
}
