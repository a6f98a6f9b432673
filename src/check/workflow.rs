//! Checks of workflow definitions in files and in breadcrumbs. A workflow can also run as a workload, so the checks include its entry.

use super::common::{CheckContext, load_finding};
use super::related::Declaration;
use crate::model::{DefinitionPath, Finding, Severity, Subscription, Subscriptions, unknown_field};
use crate::workflow::{Document, Oddity, Workflow, WorkflowWarning};
use crate::workload::{
    Entry, EntryError, EntryPolicy, WorkloadExecutor, check_fields, select_entry,
    select_entry_of_request,
};
use serde_json::Value;
use std::path::Path;

pub(super) fn check(context: &mut CheckContext<'_>, source: &str) -> Option<Declaration> {
    let is_plain = context.value.get("flows").is_some() || context.value.get("agents").is_some();
    match is_plain {
        true => check_file(context, source),
        false => check_record(context),
    }
}

/// Checks a workflow definition in a file. Requests with its name trigger the workload.
fn check_file(context: &mut CheckContext<'_>, source: &str) -> Option<Declaration> {
    let workflow = check_workflow(context, &DefinitionPath::default(), context.value)?;
    let entry = select_entry(&workflow, None, EntryPolicy::default());
    check_entry(context, &DefinitionPath::default(), entry);
    let stem = Path::new(source).file_stem()?.to_str()?;
    let name = workflow.name.as_deref().unwrap_or(stem);
    declare(name, requests(name)?)
}

/// Checks the context of a `workflow.def.v1` breadcrumb.
fn check_record(context: &mut CheckContext<'_>) -> Option<Declaration> {
    let (value, top) = (context.value, DefinitionPath::default());
    context.extend(check_fields(value, context.options));
    let id = context.text("workflow_id").filter(|id| !id.is_empty());
    if id.is_none() {
        let message = "field \"workflow_id\" must be a string that is not empty";
        context.push(Finding::error(top.field("workflow_id"), message));
    }
    let subscriptions = match value.get("subscriptions") {
        None | Some(Value::Null) => requests(id.unwrap_or_default()),
        Some(_) => context.subscriptions("workflow"),
    };
    let path = top.field("definition");
    let definition = value.get("definition");
    let Some(definition) = definition.filter(|one| one.is_object() || one.is_string()) else {
        let message = "field \"definition\" must be a workflow as an object, or its text";
        context.push(Finding::error(path, message));
        return None;
    };
    let workflow = check_workflow(context, &path, definition)?;
    match value.get("flow") {
        None | Some(Value::Null) => {
            check_entry(context, &top, select_entry_of_request(&workflow, None));
        }
        Some(Value::String(flow)) => {
            check_entry(
                context,
                &top,
                select_entry_of_request(&workflow, Some(flow)),
            );
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            let message = "field \"flow\" must be the name of a flow";
            context.push(Finding::error(top.field("flow"), message));
        }
    }
    declare(id?, subscriptions?)
}

/// Reads a workflow from a definition that is an object or a string. Paths in a string start at the field that contains the string.
fn check_workflow(
    context: &mut CheckContext<'_>,
    path: &DefinitionPath,
    value: &Value,
) -> Option<Workflow> {
    let options = context.lenient();
    let read = match value {
        Value::String(text) => {
            let document = Document::any(text);
            document.and_then(|document| Workflow::of_document(&document, &options))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Workflow::from_json_with(value, &options)
        }
    };
    let below = |mut finding: Finding| {
        finding.path = finding.path.below(path);
        finding
    };
    match read {
        Ok(workflow) => {
            for warning in workflow.warnings() {
                context.push(below(warning_finding(warning, context.severity())));
            }
            Some(workflow)
        }
        Err(error) => {
            context.push(below(load_finding(&error)));
            None
        }
    }
}

/// Converts a warning about a workflow to a finding of the check. An unknown field has the severity of the mode.
fn warning_finding(warning: &WorkflowWarning, mode: Severity) -> Finding {
    let mut finding = warning.finding();
    match &warning.oddity {
        Oddity::UnknownField { name, nearest } => {
            finding.severity = mode;
            finding.message = unknown_field(mode, name, nearest);
        }
        Oddity::Unused { .. }
        | Oddity::Unreachable
        | Oddity::NoSession
        | Oddity::Shadowed { .. } => {}
    }
    finding
}

/// Checks that the workload's file determines which flow or agent starts when a request names no flow.
fn check_entry(
    context: &mut CheckContext<'_>,
    path: &DefinitionPath,
    entry: Result<Entry, EntryError>,
) {
    let Err(error) = entry else {
        return;
    };
    let message = format!("workload: {error}");
    context.push(match error {
        EntryError::Unknown { .. } => Finding::error(path.field("flow"), message),
        // A request can name the flow, so the definition is usable.
        EntryError::Ambiguous { .. } | EntryError::Empty => Finding::warning(path.clone(), message),
    });
}

fn requests(id: &str) -> Option<Subscriptions> {
    let request = Subscription::trigger(WorkloadExecutor::REQUEST);
    Subscriptions::new([request.matching("$.workflow", "eq", id)]).ok()
}

fn declare(id: &str, subscriptions: Subscriptions) -> Option<Declaration> {
    Some(Declaration {
        id: id.to_owned(),
        kind: "workflow",
        subscriptions,
        writes: Some(vec![WorkloadExecutor::REQUEST_RESULT.to_owned()]),
    })
}
