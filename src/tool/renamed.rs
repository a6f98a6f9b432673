//! A tool under another name.

use super::{Tool, ToolContext, ToolSettings};
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
    /// Whether people have to agree to each call, also if the tool does not ask for it.
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
        self.name == of.name() && says && (!self.approval || of.settings().requires_approval)
    }

    pub(super) fn apply(&self, tool: Arc<dyn Tool>) -> Renamed {
        let settings = tool.settings();
        let settings = ToolSettings {
            requires_approval: settings.requires_approval || self.approval,
            ..settings.clone()
        };
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
