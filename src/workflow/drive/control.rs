//! Orders to a run: cancel it, let no further steps begin, let them begin again.

use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Selector};
use serde_json::json;

/// An order to a run, as a `workflow.control.v1`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Control {
    /// Ends the run, and all that is under way in it: `cancel`.
    Cancel,
    /// Lets no further steps begin; what is under way may end: `pause`.
    Pause,
    /// Lets steps begin again: `resume`.
    Resume,
}

impl Control {
    /// The schema of orders.
    pub const SCHEMA: &'static str = "workflow.control.v1";

    const ALL: [Self; 3] = [Self::Cancel, Self::Pause, Self::Resume];

    const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }

    /// The breadcrumb that orders it of the run that a trigger set off. Its context has `run`, the id of that trigger, and
    /// `action`; its tag is `run:<id>`.
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

    /// What a breadcrumb orders; none if it says nothing that is known.
    pub(super) fn read(order: &Breadcrumb) -> Option<Self> {
        let action = order.context.text("action")?;
        let mut all = Self::ALL.into_iter();
        all.find(|control| control.name() == action)
    }
}

fn tag(trigger: BreadcrumbId) -> String {
    format!("run:{trigger}")
}
