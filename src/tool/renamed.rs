//! A tool under another name. The workflow definition that uses the tool sets the name.

use super::{Approval, Tool, ToolContext, ToolSettings};
use crate::error::BoxError;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;

/// Name, description and approval rule with which a workflow definition uses a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renaming<'n> {
    pub(crate) name: &'n str,
    /// The description of the tool in the workflow definition, or `None` for the tool's own description.
    pub(crate) description: Option<&'n str>,
    /// If `true`, each call of the renamed tool needs the approval of a person, in addition to the rules of the tool.
    pub(crate) approval: bool,
}

pub(super) struct Renamed {
    tool: Arc<dyn Tool>,
    name: String,
    description: String,
    settings: ToolSettings,
}

impl Renaming<'_> {
    /// Returns `true` if a tool already has this name, description and approval rule.
    pub(super) fn changes_nothing(&self, tool: &dyn Tool) -> bool {
        let same_description = self
            .description
            .is_none_or(|description| description == tool.description());
        self.name == tool.name()
            && same_description
            && (!self.approval || is_always_approved(tool.settings()))
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

/// Returns `true` if a tool has a rule by which each call needs an approval.
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
