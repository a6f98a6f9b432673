//! A tool under another name.

use super::{Approval, Tool, ToolContext, ToolSettings};
use crate::error::BoxError;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;

/// What a tool is called where it is used, and what is said of it there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renaming<'n> {
    pub(crate) name: &'n str,
    /// What the tool says of itself if absent.
    pub(crate) description: Option<&'n str>,
    /// If `true`, each call needs the approval of a person, in addition to the rules of the tool.
    pub(crate) approval: bool,
}

pub(super) struct Renamed {
    tool: Arc<dyn Tool>,
    name: String,
    description: String,
    settings: ToolSettings,
}

impl Renaming<'_> {
    /// Whether a tool is just as this says.
    pub(super) fn changes_nothing(&self, of: &dyn Tool) -> bool {
        let says = self.description.is_none_or(|says| says == of.description());
        self.name == of.name() && says && (!self.approval || is_always_approved(of.settings()))
    }

    pub(super) fn apply(&self, tool: Arc<dyn Tool>) -> Renamed {
        let mut settings = tool.settings().clone();
        if self.approval && !is_always_approved(&settings) {
            settings.approvals.push(Approval::always());
        }
        Renamed {
            name: self.name.to_owned(),
            description: self
                .description
                .unwrap_or_else(|| tool.description())
                .to_owned(),
            settings,
            tool,
        }
    }
}

/// Returns `true` if a tool has the rule that each call needs an approval.
fn is_always_approved(settings: &ToolSettings) -> bool {
    settings.approvals.iter().any(Approval::is_plain)
}

#[async_trait]
impl Tool for Renamed {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn input_schema(&self) -> &Value {
        self.tool.input_schema()
    }

    fn settings(&self) -> &ToolSettings {
        &self.settings
    }

    async fn call(&self, input: Value, context: ToolContext) -> Result<Value, BoxError> {
        self.tool.call(input, context).await
    }
}
