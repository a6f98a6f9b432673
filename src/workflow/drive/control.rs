//! Control orders to a flow run: cancel, pause and resume.

use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Selector};
use serde_json::json;

/// Control order to a flow run (cancel, pause or resume), written as a `workflow.control.v1` breadcrumb.
///
/// Any program with access to the store can write it. A control order for a run that has ended has
/// no effect.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::workflow::Control;
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let request = json!({"workflow": "writer", "input": "crabs"});
/// let request = store.create(NewBreadcrumb::new("workflow.request.v1").context(request)).await?;
///
/// // The trigger's ID identifies the run.
/// let order = store.create(Control::Cancel.of(request.id)).await?;
/// assert_eq!(order.context["action"], "cancel");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Control {
    /// Ends the run and stops its steps in flight (the action `cancel`).
    Cancel,
    /// Prevents further steps of the run from beginning (the action `pause`). Steps in flight can end.
    Pause,
    /// Ends the pause of a run, so that its further steps can begin (the action `resume`).
    Resume,
}

impl Control {
    /// Schema of the breadcrumbs with control orders to flow runs.
    pub const SCHEMA: &'static str = "workflow.control.v1";

    const ALL: [Self; 3] = [Self::Cancel, Self::Pause, Self::Resume];

    const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }

    /// Returns the breadcrumb that sends this control order (cancel, pause or resume) to the flow run
    /// of a trigger.
    ///
    /// Its context has `run`, the ID of the trigger, and `action`. Its tag is `run:<id>`.
    #[must_use]
    pub fn of(self, trigger: BreadcrumbId) -> NewBreadcrumb {
        let action = self.name();
        NewBreadcrumb::new(Self::SCHEMA)
            .title(format!("Workflow: {action}"))
            .tag(tag(trigger))
            .context(json!({"run": trigger, "action": action}))
    }

    pub(super) fn selector(trigger: BreadcrumbId) -> Selector {
        Selector::schema(Self::SCHEMA).all_tags([tag(trigger)])
    }

    /// Returns the control order (cancel, pause or resume) in a breadcrumb, or `None` if its action is
    /// unknown.
    pub(super) fn read(order: &Breadcrumb) -> Option<Self> {
        let action = order.context.text("action")?;
        let mut all = Self::ALL.into_iter();
        all.find(|control| control.name() == action)
    }
}

fn tag(trigger: BreadcrumbId) -> String {
    format!("run:{trigger}")
}
