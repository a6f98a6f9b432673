//! How workflows are made into executors.

use super::{WorkflowError, WorkflowExecutor};
use crate::error::excerpt;
use crate::executor::{InvalidExecutor, Profile, check, check_id};
use crate::model::{
    DefinitionError, DefinitionOptions, Findings, KnownFields, Place, Severity, Subscription,
    Subscriptions, sorted_text,
};
use crate::store::BreadcrumbStore;
use crate::workflow::definition::Document;
use crate::workflow::drive::PROGRESS;
use crate::workflow::{Assembly, Parts, Workflow};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

impl WorkflowExecutor {
    /// A workflow that is set off by [requests](Self::REQUEST), and begins with its flow `main`, else `default`, else the only
    /// one it has; [`with_entry`](Self::with_entry) names another.
    ///
    /// # Errors
    /// [`WorkflowError::NoEntry`] if there is none of these; [`WorkflowError::Invalid`] if the store lacks what it needs: a
    /// ledger, if its flows wait for others or have tools that are called at most once.
    pub fn new(id: impl Into<String>, assembly: Assembly) -> Result<Self, WorkflowError> {
        let id = id.into();
        let subscriptions = requests(&id)?;
        Self::made(id, assembly, None, subscriptions)
    }

    /// The same, beginning with the flow of a name: for a workflow that has several flows and none that is called `main` or
    /// `default`. Requests can start no other flow.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`WorkflowError::NoEntry`] if there is no such flow.
    pub fn with_entry(
        id: impl Into<String>,
        assembly: Assembly,
        flow: &str,
    ) -> Result<Self, WorkflowError> {
        let id = id.into();
        let subscriptions = requests(&id)?;
        Self::made(id, assembly, Some(flow), subscriptions)
    }

    /// A workflow as a `workflow.def.v1` breadcrumb, or its context, defines it: `workflow_id`, `definition` (the workflow as an
    /// object, or as a text in JSON or, with the feature `yaml`, in YAML), and if wanted `flow` (the only flow that a run begins
    /// with) and `subscriptions` (its triggers; [requests](Self::REQUEST) by default).
    ///
    /// An unknown field has no effect, and [`warnings`](Self::warnings) names it.
    ///
    /// # Errors
    /// [`WorkflowError`] names what to mend.
    pub fn from_definition(
        definition: &Value,
        parts: &Parts,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, WorkflowError> {
        Self::from_definition_with(definition, parts, store, &DefinitionOptions::default())
    }

    /// Creates the executor of a definition with options, for example in [strict](DefinitionOptions::strict) mode.
    ///
    /// # Errors
    /// See [`from_definition`](Self::from_definition). In strict mode every unknown field is an error.
    pub fn from_definition_with(
        definition: &Value,
        parts: &Parts,
        store: Arc<dyn BreadcrumbStore>,
        options: &DefinitionOptions,
    ) -> Result<Self, WorkflowError> {
        let context = definition.get("context").unwrap_or(definition);
        if let Some(error) = Self::check_fields(context, options).first_error() {
            return Err(WorkflowError::UnknownField {
                place: error.place.clone(),
                problem: error.message.clone(),
            });
        }
        let text = |field| context.get(field).and_then(Value::as_str);
        let field = |field, expected| WorkflowError::Field { field, expected };
        let id = text("workflow_id").filter(|id| !id.is_empty());
        let id = id.ok_or(field("workflow_id", "a text"))?.to_owned();
        check_id(&id)?;
        let read = match context.get("definition") {
            Some(Value::String(text)) => {
                Document::any(text).and_then(|document| Workflow::of_document(&document, options))
            }
            Some(value @ Value::Object(_)) => Workflow::from_json_with(value, options),
            Some(_) | None => return Err(field("definition", "an object, or its text")),
        };
        let workflow = read.map_err(|source| WorkflowError::Load {
            workflow: id.clone(),
            source,
        })?;
        let assembly = Assembly::new(workflow, parts, store);
        let assembly = assembly.map_err(|source| WorkflowError::Assembly {
            workflow: id.clone(),
            source: Box::new(source),
        })?;
        let flow = match context.get("flow") {
            None | Some(Value::Null) => None,
            Some(Value::String(flow)) => Some(flow.as_str()),
            Some(_) => return Err(field("flow", "the name of a flow")),
        };
        let subscriptions = match context.get("subscriptions") {
            None | Some(Value::Null) => requests(&id)?,
            Some(_) => Subscriptions::from_json_with(context, options).map_err(unusable(&id))?,
        };
        let mut executor = Self::made(id, assembly, flow, subscriptions)?;
        executor.profile = executor.profile.definition(&sorted_text(context));
        Ok(executor)
    }

    /// Checks the fields of the context of a `workflow.def.v1` breadcrumb, except for the workflow in it.
    pub(crate) fn check_fields(context: &Value, options: &DefinitionOptions) -> Findings {
        let severity = match options.strict {
            true => Severity::Error,
            false => Severity::Warning,
        };
        let mut found = Findings::default();
        if let Some(object) = context.as_object() {
            let unknown = RECORD.unknown(object);
            let finding = |field| RECORD.finding(severity, &Place::default(), field);
            found.extend(unknown.map(finding));
        }
        found
    }

    fn made(
        id: String,
        assembly: Assembly,
        flow: Option<&str>,
        subscriptions: Subscriptions,
    ) -> Result<Self, WorkflowError> {
        const HOUR: Duration = Duration::from_secs(3600);
        let own = [Self::RESULT, PROGRESS];
        let written = own.into_iter().chain(assembly.writes()).map(str::to_owned);
        let written: Vec<String> = written.collect();
        let profile = Profile::new("workflow")
            .timeout(HOUR)
            .responds_with(written);
        let begins = entry(&id, assembly.workflow(), flow)?;
        let executor = Self {
            entries: entries(assembly.workflow(), &begins, flow),
            flow: begins,
            profile: profile.definition(assembly.workflow().hash()),
            id,
            assembly: Arc::new(assembly),
            subscriptions,
            events: None,
        };
        check(&executor)?;
        if executor.assembly.needs_a_ledger() && executor.assembly.store.ledger().is_none() {
            let executor = executor.id;
            return Err(InvalidExecutor::NoLedger { executor }.into());
        }
        Ok(executor)
    }
}

/// The fields of the context of a `workflow.def.v1` breadcrumb.
static RECORD: KnownFields<'static> = KnownFields {
    names: &[
        "definition",
        "description",
        "flow",
        "selectors",
        "subscriptions",
        "workflow_id",
    ],
    aliases: &[
        ("entry", &["flow"]),
        ("id", &["workflow_id"]),
        ("name", &["workflow_id"]),
        ("workflow", &["definition"]),
    ],
};

/// What sets off a workflow that says nothing else.
fn requests(id: &str) -> Result<Subscriptions, WorkflowError> {
    check_id(id)?;
    let request = Subscription::trigger(WorkflowExecutor::REQUEST);
    let request = request.matching("$.workflow", "eq", id);
    Subscriptions::new([request]).map_err(unusable(id))
}

fn unusable(id: &str) -> impl FnOnce(DefinitionError) -> WorkflowError {
    let workflow = id.to_owned();
    move |source| WorkflowError::Subscriptions { workflow, source }
}

/// The flow that a run begins with.
pub(super) fn entry(
    id: &str,
    workflow: &Workflow,
    named: Option<&str>,
) -> Result<String, WorkflowError> {
    let flows: Vec<&str> = workflow.flows().map(|flow| flow.name).collect();
    let known = |name: &str| flows.contains(&name).then(|| name.to_owned());
    let found = match named {
        Some(name) => known(name),
        None => known("main")
            .or_else(|| known("default"))
            .or(match flows.as_slice() {
                [only] => Some((*only).to_owned()),
                [] | [..] => None,
            }),
    };
    found.ok_or_else(|| WorkflowError::NoEntry {
        workflow: id.to_owned(),
        named: named.map_or_else(
            || "\"main\" or \"default\"".to_owned(),
            |name| format!("{:?}", excerpt(name, 80)),
        ),
        known: match flows.is_empty() {
            true => "none".to_owned(),
            false => flows.join(", "),
        },
    })
}

/// Returns the flows that a request can start: the one that the service or the definition names, otherwise the default flow and
/// the flows that no other flow runs.
pub(super) fn entries(workflow: &Workflow, flow: &str, named: Option<&str>) -> BTreeSet<String> {
    let outermost = match named {
        Some(_) => BTreeSet::new(),
        None => workflow.outermost_flows(),
    };
    outermost
        .into_iter()
        .chain([flow])
        .map(str::to_owned)
        .collect()
}
