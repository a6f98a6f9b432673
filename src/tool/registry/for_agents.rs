//! Methods of tool registries for agents and flows, which call tools for a model.

use super::ToolRegistry;
use crate::executor::ExecutionContext;
use crate::machine::{Answer, MachineCall, ToolOutcome};
use crate::store::BreadcrumbStore;
use crate::tool::Tool;
#[cfg(feature = "workflows")]
use crate::tool::ToolError;
use crate::tool::entry::{ApprovalState, Entry};
#[cfg(feature = "workflows")]
use crate::tool::renamed::Renaming;
use crate::tool::settings::ServedBy;
use serde_json::Value;
use std::sync::Arc;

impl ToolRegistry {
    /// Returns a copy of the registry in which local tools are called as remote tools, through request breadcrumbs. This applies
    /// to tools with the setting `over_breadcrumbs`, or to all local tools if `all` is `true`.
    pub(crate) fn with_remote_tools(&self, all: bool) -> Self {
        let entries = self.entries.iter();
        let replaced = |entry: &Arc<Entry>| {
            let settings = entry.tool.settings();
            let is_replaced = all || settings.over_breadcrumbs;
            match is_replaced && settings.served_by == ServedBy::ThisProcess {
                true => Arc::new(entry.as_remote()),
                false => Arc::clone(entry),
            }
        };
        Self {
            entries: entries
                .map(|(name, entry)| (name.clone(), replaced(entry)))
                .collect(),
        }
    }

    /// Adds a tool of another registry under a new name. Both registries share the limit on concurrent calls of the tool.
    ///
    /// # Errors
    /// [`ToolError::BadName`].
    #[cfg(feature = "workflows")]
    pub(crate) fn with_renamed(
        mut self,
        renaming: &Renaming<'_>,
        tool: &str,
        registry: &Self,
    ) -> Result<Self, ToolError> {
        if let Some(entry) = registry.entry(tool) {
            let entry = match renaming.changes_nothing(&*entry.tool) {
                true => Arc::clone(entry),
                false => Arc::new(entry.renamed(renaming)?),
            };
            self.entries.insert(renaming.name.to_owned(), entry);
        }
        Ok(self)
    }

    /// Checks the input of a tool against its schema. The input of an unknown tool passes.
    ///
    /// # Errors
    /// The error for the model in place of a result.
    pub(crate) fn check_input(&self, tool: &str, input: &Value) -> Result<(), Answer> {
        match self.entry(tool) {
            Some(entry) => entry.check_input(input).map_err(Answer::from),
            None => Ok(()),
        }
    }

    /// Checks the answer of a remote tool like the output of a local tool, for example against the output schema of the tool.
    /// Returns `shown`, the part that a model may see, if the whole answer passes. A refusal contains no value of the hidden
    /// part.
    pub(crate) fn check_answer(&self, tool: &str, whole: &Answer, shown: Answer) -> Answer {
        let refuse = |answer: &Answer| match (self.entry(tool), answer) {
            (Some(entry), Answer::Success(output)) => entry.refuse(output),
            (Some(_) | None, _) => None,
        };
        match (refuse(whole), refuse(&shown)) {
            (None, _) => shown,
            (Some(_), Some(refusal)) => refusal.into(),
            (Some(_), None) => Answer::error(
                "invalid_output",
                format!(
                    "the output of tool {tool} is not valid, and hints exclude the part that is wrong"
                ),
            ),
        }
    }

    /// Returns a tool with its name and description from the registration, even if a workflow definition uses the tool with other
    /// ones.
    pub(crate) fn registered(&self, name: &str) -> Option<&dyn Tool> {
        self.entry(name).map(|entry| &*entry.registered)
    }

    /// Returns a shared handle of a tool with its name and description from the registration.
    pub(crate) fn registered_tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let entry = self.entry(name)?;
        Some(Arc::clone(&entry.registered))
    }

    /// Calls a tool within the run of another executor without an approval check, because the call needs no approval or a person has
    /// approved the call.
    pub(crate) async fn call_approved(
        &self,
        call: MachineCall,
        requested_by: Option<&str>,
        context: &ExecutionContext,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> ToolOutcome {
        self.call_with(call, requested_by, context, store, ApprovalState::Given)
            .await
    }
}
