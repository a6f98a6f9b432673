#[cfg(feature = "agents")]
mod for_agents;

use super::entry::{ApprovalState, Entry};
use super::outcome::{self, Refusal};
use super::settings::ServedBy;
use super::{Tool, ToolContext, ToolError, ToolPermissions, ToolSettings, ToolSpec};
use crate::error::excerpt;
use crate::executor::ExecutionContext;
use crate::machine::{MachineCall, ToolArguments, ToolOutcome};
use crate::model::{Json, nearest};
use crate::store::BreadcrumbStore;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

/// Registry of the tools that agents, dispatchers and catalogs use, by tool name. A clone is cheap and shares the tools and their
/// limits on concurrent calls.
///
/// [`allowed`](Self::allowed) returns a registry with only the tools that a caller may call. For its holder, a forbidden tool is the
/// same as an unknown tool.
///
/// An agent, a [`ToolDispatcher`](super::ToolDispatcher) and [`Catalog::of`](super::Catalog::of)
/// take a registry. Register each tool once, and pass clones of the registry to all callers, so
/// that [`max_concurrent`](ToolSettings::max_concurrent) is one limit.
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::machine::{Answer, MachineCall, ToolOutcome};
/// use universal_executor::tool::{ToolPermissions, ToolRegistry, json_tool};
/// use universal_executor::{BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb};
///
/// let double = json_tool("double", "Doubles a number.", json!({"type": "integer"}), |input, _| async move {
///     Ok(json!(input.as_i64().unwrap_or(0) * 2))
/// });
/// let registry = ToolRegistry::default().with(double)?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// // An executor already has both: its context in `execute`, and its store.
/// let run = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
/// let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
///
/// let outcome = registry.call(MachineCall::new("c-1", "double", json!(4)), Some("greeter"), &run, &store).await;
/// assert_eq!(outcome, Answer::success(json!(8)).into());
///
/// let nobodys = registry.allowed(&ToolPermissions::none());
/// let outcome = nobodys.call(MachineCall::new("c-2", "double", json!(4)), Some("greeter"), &run, &store).await;
/// assert!(matches!(outcome, ToolOutcome::Answered(Answer::Error { code, .. }) if code == "unknown_tool"));
/// # });
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolRegistry {
    entries: BTreeMap<String, Arc<Entry>>,
}

impl ToolRegistry {
    /// Adds a tool to the registry.
    ///
    /// With the feature `validate`, an input or output schema may have at most 64 KiB, 32 levels
    /// and 32 patterns. A `$ref` must point into the schema itself. Without the feature, schemas
    /// are not checked.
    ///
    /// # Errors
    /// [`ToolError::BadName`] and [`ToolError::BadSchema`] for an invalid tool, and [`ToolError::Duplicate`], with the source locations of
    /// both registrations, if the name is already registered.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::tool::{ToolError, ToolRegistry, json_tool};
    ///
    /// let echo = |name| json_tool(name, "", json!({}), |input, _| async move { Ok(input) });
    /// let registry = ToolRegistry::default().with(echo("echo"))?;
    /// assert!(registry.get("echo").is_some());
    ///
    /// let duplicate = registry.clone().with(echo("echo"));
    /// assert!(matches!(duplicate, Err(ToolError::Duplicate { .. })));
    /// let invalid = registry.with(echo("Echo it"));
    /// assert!(matches!(invalid, Err(ToolError::BadName { .. })));
    /// # Ok::<(), ToolError>(())
    /// ```
    #[track_caller]
    pub fn with(self, tool: impl Tool + 'static) -> Result<Self, ToolError> {
        self.with_at(Arc::new(tool), Location::caller())
    }

    /// Adds a tool to the registry, with the source location of its registration.
    ///
    /// # Errors
    /// See [`with`](Self::with).
    pub(crate) fn with_at(
        mut self,
        tool: Arc<dyn Tool>,
        location: &'static Location<'static>,
    ) -> Result<Self, ToolError> {
        let entry = Entry::new(tool, location)?;
        let name = entry.tool.name().to_owned();
        if let Some(first) = self.entries.get(&name) {
            return Err(ToolError::Duplicate {
                name,
                first: first.location,
                second: entry.location,
            });
        }
        self.entries.insert(name, Arc::new(entry));
        Ok(self)
    }

    /// Returns a registry with only the tools that the permissions of a caller allow.
    ///
    /// The tools and their limits are shared with this registry. [`ToolPermissions`] has an
    /// example.
    #[must_use]
    pub fn allowed(&self, permissions: &ToolPermissions) -> Self {
        let allowed = |entry: &Arc<Entry>| permissions.allow(&*entry.tool);
        let entries = self.entries.iter().filter(|(_, entry)| allowed(entry));
        Self {
            entries: entries
                .map(|(name, entry)| (name.clone(), Arc::clone(entry)))
                .collect(),
        }
    }

    /// Returns the tool with exactly this name, or `None` if the registry has no such tool.
    ///
    /// Use it to read the schemas and the settings of a tool. To call a tool, use
    /// [`call`](Self::call), which applies the settings.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&dyn Tool> {
        self.entry(name).map(|entry| &*entry.tool)
    }

    /// Returns the names of all tools of the registry, in alphabetical order.
    ///
    /// Use it to log the tools of a service at its start.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.entries.keys().map(String::as_str).collect()
    }

    /// Returns the descriptions of all tools of the registry for a model, in the order of their names.
    ///
    /// Pass them to a model as the tools that it can call. A clone of a description shares the
    /// schemas.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        let specs = self.entries.values().map(|entry| entry.spec.clone());
        specs.collect()
    }

    /// Calls a tool within the run of another executor, such as an agent. Errors, panics and timeouts become outcomes of the call, so the
    /// run continues.
    ///
    /// The tool writes as part of the run, so the caller's [`responds_with`](crate::Profile::responds_with) limits its writes. An
    /// [agent](crate::agent::AgentExecutor) calls its tools with this method, and saves the outcomes for its next attempt.
    ///
    /// `requested_by` is the name of the requester, which the tool reads with [`ToolContext::requested_by`]. Permissions do not depend on
    /// the name.
    ///
    /// An error outcome of a local tool has one of the following codes. A [remote tool](super::remote_tool) can also return a code of the
    /// other service.
    ///
    /// | code | meaning |
    /// |---|---|
    /// | `approval_required` | a person has to approve the call first; the tool was not called |
    /// | `busy` | the tool has the maximum number of concurrent calls, and was not called |
    /// | `cannot_suspend` | the tool tried to suspend the run, which is not its own |
    /// | `failed` | the tool returned an error |
    /// | `invalid_arguments` | the arguments are [`Unreadable`](ToolArguments::Unreadable); the tool was not called |
    /// | `invalid_input` | the arguments do not match the input schema or the input type of the tool |
    /// | `invalid_output` | the output does not match the output schema of the tool |
    /// | `output_too_large` | the output or the deferral exceeds a limit |
    /// | `panic` | the tool panicked |
    /// | `rate_limited` | the tool did nothing, and returned the delay before the next call |
    /// | `timeout` | the tool returned no result within its timeout; it may have had effects |
    /// | `unknown_tool` | the registry has no tool with this name |
    ///
    /// # Cancel safety
    /// If the future is dropped, the tool may have had effects. A blocking function continues on its thread.
    pub async fn call(
        &self,
        call: MachineCall,
        requested_by: Option<&str>,
        context: &ExecutionContext,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> ToolOutcome {
        self.call_with(call, requested_by, context, store, ApprovalState::Missing)
            .await
    }

    async fn call_with(
        &self,
        call: MachineCall,
        requested_by: Option<&str>,
        context: &ExecutionContext,
        store: &Arc<dyn BreadcrumbStore>,
        approval: ApprovalState,
    ) -> ToolOutcome {
        let MachineCall {
            id,
            tool,
            arguments,
        } = call;
        let Some(entry) = self.entry(&tool) else {
            return self.unknown(&tool);
        };
        let input = match readable_input(arguments) {
            Ok(input) => input.into_value(),
            Err(refusal) => return refusal.into(),
        };
        let call = (id.as_str(), requested_by);
        let context = ToolContext::in_run(context, store, &tool, call);
        entry.call(input, context, approval).await
    }

    pub(super) fn entry(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// Splits the registry into the tools that this process serves, and the names of the remote tools.
    pub(super) fn split_remote(self) -> (Self, Vec<String>) {
        let is_local = |entry: &Entry| entry.tool.settings().served_by == ServedBy::ThisProcess;
        let (local, remote): (BTreeMap<_, _>, BTreeMap<_, _>) = self
            .entries
            .into_iter()
            .partition(|(_, entry)| is_local(entry));
        (Self { entries: local }, remote.into_keys().collect())
    }

    pub(super) fn settings(&self) -> impl Iterator<Item = &ToolSettings> {
        self.entries.values().map(|entry| entry.tool.settings())
    }

    /// Returns the outcome of a call of an unknown tool, which may exist but not be allowed.
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
        outcome::error("unknown_tool", message)
    }
}

/// Returns the arguments of a tool call as JSON input, or the refusal of the call if the arguments are unreadable or nest too
/// deeply.
fn readable_input(arguments: ToolArguments) -> Result<Json, Refusal> {
    match arguments {
        ToolArguments::Json(input) if input.size() == usize::MAX => Err(Refusal::new(
            "invalid_input",
            "the input nests too deeply, or has a number that is too large",
        )),
        ToolArguments::Json(input) => Ok(input),
        ToolArguments::Unreadable { problem, .. } => {
            let problem = excerpt(&problem, 150).replace(char::is_control, " ");
            let message =
                format!("the arguments cannot be read ({problem}); call again with valid JSON");
            Err(Refusal::new("invalid_arguments", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Answer;
    use crate::model::{Condition, NewBreadcrumb};
    use crate::store::MemoryStore;
    use crate::tool::{Approval, json_tool};
    use serde_json::json;

    #[tokio::test]
    async fn a_call_that_a_person_has_to_agree_to_is_made_once_one_has() {
        let pay = json_tool("pay", "", json!({}), |_, _| async { Ok(json!("paid")) });
        let tools = ToolRegistry::default()
            .with(pay.needs_approval(Approval::always()))
            .unwrap();
        let run = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
        let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
        let call = || MachineCall::new("c-1", "pay", json!({}));

        let refused = tools.call(call(), None, &run, &store).await;
        let approved = tools.call_approved(call(), None, &run, &store).await;

        let ToolOutcome::Answered(Answer::Error { code, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(code, "approval_required");
        assert_eq!(approved, Answer::success(json!("paid")).into());
    }

    #[tokio::test]
    async fn a_call_is_refused_without_an_approval_if_a_condition_holds_for_its_arguments() {
        let pay = json_tool("pay", "", json!({}), |_, _| async { Ok(json!("paid")) });
        let is_large = Condition::new("$.amount", "gt", Some(json!(100)));
        let rule = Approval::when_args(is_large);
        let tools = ToolRegistry::default().with(pay.needs_approval(rule));
        let tools = tools.unwrap();
        let run = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
        let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());

        for (arguments, is_made) in [
            (json!({"amount": 100}), true),
            (json!({"amount": 101}), false),
            (json!({"amount": "1"}), false),
            (json!({}), false),
        ] {
            let call = MachineCall::new("c-1", "pay", arguments.clone());
            let outcome = tools.call(call, None, &run, &store).await;
            let is_success = matches!(outcome, ToolOutcome::Answered(Answer::Success(_)));
            assert_eq!(is_success, is_made, "{arguments}: {outcome:?}");
        }
    }
}
