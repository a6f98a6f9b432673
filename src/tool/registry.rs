use super::entry::Entry;
use super::outcome::{ToolCall, ToolOutcome};
use super::{Permissions, Tool, ToolContext, ToolError, ToolSettings};
use crate::error::excerpt;
use crate::executor::ExecutionContext;
use crate::model::{dismantle, nearest};
use crate::store::BreadcrumbStore;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

/// Tools by their exact names. A clone is cheap, and its tools are the same ones: they share their limits.
///
/// Who may call what is said in one place: [`allowed`](Self::allowed) gives a registry that has only those tools, so
/// that to its holder a forbidden tool and one that does not exist are the same.
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::tool::{Permissions, ToolCall, ToolOutcome, ToolRegistry, json_tool};
/// use universal_executor::{BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb};
///
/// let double = json_tool("double", "Doubles a number.", json!({"type": "integer"}), |input, _| async move {
///     Ok(json!(input.as_i64().unwrap_or(0) * 2))
/// });
/// let registry = ToolRegistry::default().with(double)?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// // Within `execute` of an agent both are there already.
/// let run = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
/// let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
///
/// let outcome = registry.call(ToolCall::new("c-1", "double", 4), &run, &store).await;
/// assert_eq!(outcome, ToolOutcome::Success { output: json!(8) });
///
/// let nobodys = registry.allowed(&Permissions::none());
/// let outcome = nobodys.call(ToolCall::new("c-2", "double", 4), &run, &store).await;
/// assert!(matches!(outcome, ToolOutcome::Error { code, .. } if code == "unknown_tool"));
/// # });
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolRegistry {
    entries: BTreeMap<String, Arc<Entry>>,
}

/// What a model is told of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its input.
    #[serde(rename = "inputSchema")]
    pub input_schema: Value,
    /// The JSON Schema of its output, if it has one.
    #[serde(rename = "outputSchema", skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

impl ToolRegistry {
    /// Adds a tool.
    ///
    /// # Errors
    /// [`ToolError::BadName`]; [`ToolError::BadSchema`]; [`ToolError::Duplicate`] names both places that register the
    /// name.
    #[track_caller]
    pub fn with(mut self, tool: impl Tool + 'static) -> Result<Self, ToolError> {
        let entry = Entry::new(Arc::new(tool), Location::caller())?;
        let name = entry.tool.name().to_owned();
        if let Some(first) = self.entries.get(&name) {
            return Err(ToolError::Duplicate {
                name,
                first: first.place,
                second: entry.place,
            });
        }
        self.entries.insert(name, Arc::new(entry));
        Ok(self)
    }

    /// A registry that has only what is allowed: this is how a caller is given its tools. It can only become less.
    #[must_use]
    pub fn allowed(&self, permissions: &Permissions) -> Self {
        let allowed = |entry: &Arc<Entry>| permissions.allow(&*entry.tool);
        let entries = self.entries.iter().filter(|(_, entry)| allowed(entry));
        Self {
            entries: entries
                .map(|(name, entry)| (name.clone(), Arc::clone(entry)))
                .collect(),
        }
    }

    /// The tool of a name, to the letter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&dyn Tool> {
        self.entry(name).map(|entry| &*entry.tool)
    }

    /// The names of all tools, in order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.entries.keys().map(String::as_str).collect()
    }

    /// What a model is told of the tools, in the order of their names.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        let spec = |entry: &Arc<Entry>| ToolSpec {
            name: entry.tool.name().to_owned(),
            description: entry.tool.description().to_owned(),
            input_schema: entry.tool.input_schema().clone(),
            output_schema: entry.tool.settings().output_schema.clone(),
        };
        self.entries.values().map(spec).collect()
    }

    /// Calls a tool within a run of somebody else's, such as an agent's. However the call ends, the run goes on.
    ///
    /// The tool writes as part of that run, so [`responds_with`](crate::Profile::responds_with) of whoever calls limits
    /// it. An [agent](crate::agent::AgentExecutor) calls them this way, and keeps what they came to for its next attempt.
    pub async fn call(
        &self,
        call: ToolCall,
        context: &ExecutionContext,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> ToolOutcome {
        let Some(entry) = self.entry(&call.tool) else {
            dismantle(call.input);
            return self.unknown(&call.tool);
        };
        let ToolCall {
            id,
            tool,
            input,
            requested_by,
        } = call;
        let context = ToolContext::in_run(context, store, &tool, (id, requested_by));
        entry.call(input, context).await
    }

    pub(super) fn entry(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    pub(super) fn settings(&self) -> impl Iterator<Item = &ToolSettings> {
        self.entries.values().map(|entry| entry.tool.settings())
    }

    /// What is answered for a tool that is not here, which may be because it is not allowed.
    pub(super) fn unknown(&self, name: &str) -> ToolOutcome {
        const LISTED: usize = 20;
        let near = nearest(name, self.entries.keys().map(String::as_str));
        let name = excerpt(name, 80);
        let message = match near {
            Some(near) => format!("there is no tool {name:?}; did you mean {near:?}?"),
            None if self.entries.is_empty() => {
                format!("there is no tool {name:?}, and no other either")
            }
            None => {
                let names: Vec<&str> = self.names().into_iter().take(LISTED).collect();
                let more = self.entries.len().saturating_sub(LISTED);
                let more = match more {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let names = names.join(", ");
                format!("there is no tool {name:?}; there are {names}{more}")
            }
        };
        ToolOutcome::error("unknown_tool", message)
    }
}
