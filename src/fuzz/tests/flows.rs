//! Workflow definitions, and runs of their flows.

use super::definitions::is_short;
use super::{block_on, tools};
use crate::agent::ScriptedModel;
use crate::fuzz::workflows::WORKFLOW;
use crate::fuzz::{CONTEXT, Tape, structured};
use crate::services::Services;
use crate::store::Query;
use crate::workflow::{Workflow, WorkflowLoadError};
use crate::workload::{EntryPolicy, FlowDefinition, WorkloadExecutor};
use crate::{
    BreadcrumbStore, BreadcrumbStoreExt, Event, Json, MemoryStore, NewBreadcrumb, Selector,
    UniversalExecutor,
};
use serde_json::json;
use std::sync::Arc;

/// Maximum length of an error message in bytes.
const MAX_MESSAGE: usize = 4_000;

fn definition(tape: &mut Tape) -> String {
    WORKFLOW.text(tape)
}

/// Asserts a maximum length of an error message.
pub(super) fn refused(error: &WorkflowLoadError) {
    let message = error.to_string();
    assert!(message.len() < MAX_MESSAGE, "{message}");
}

fn load(text: &str) -> bool {
    let parsed = Workflow::parse(text);
    let value = Json::from_text(text).map(|json| Workflow::from_json(&json));
    match (&parsed, &value) {
        (Ok(parsed), Ok(Ok(value))) => assert_eq!(parsed.hash(), value.hash()),
        (Err(error), _) => refused(error),
        (Ok(_), _) => panic!("only the text form loads: {value:?}"),
    }
    parsed.is_ok()
}

#[test]
fn any_workflow_definition_loads_or_is_refused() {
    structured(definition, |text| load(text));
}

/// Generates a workflow and the context of a request.
fn flow(tape: &mut Tape) -> (String, String) {
    (WORKFLOW.text(tape), CONTEXT.text(tape))
}

fn run_flow((definition, input): &(String, String)) -> bool {
    let (Ok(workflow), Ok(input)) = (Workflow::parse(definition), Json::from_text(input.clone()))
    else {
        return false;
    };
    block_on(async {
        let model = ScriptedModel::answering(|number, _| {
            Ok(crate::agent::ChatResponse::new(format!(
                "{{\"a\": {number}}}"
            )))
        });
        let model = Arc::new(model);
        let services = Services::new().tools(tools().clone());
        let services = services.model("m", model.clone()).default_model(model);
        let store = MemoryStore::default();
        let entry = FlowDefinition::with_entry("w", workflow, Some("main"), EntryPolicy::default());
        let definition = match entry {
            Ok(definition) => Arc::new(definition),
            Err(error) => {
                is_short(&error);
                return false;
            }
        };
        let executor = match WorkloadExecutor::on_requests("w", definition, &services, &store) {
            Ok(executor) => executor,
            Err(error) => {
                is_short(&error);
                return false;
            }
        };
        let request = json!({"workflow": "w", "input": *input});
        let request = NewBreadcrumb::new("workflow.request.v1").context(request);
        let Ok(request) = store.create(request).await else {
            return false;
        };
        let event = Event::created(&request);
        let first = executor.process_event(&event).await;
        if let Err(error) = &first {
            assert!(error.to_string().len() < MAX_MESSAGE, "{error}");
        }
        let again = executor.process_event(&event).await;
        let result = store.latest("workflow.result.v1").await.unwrap();
        let results = Query::new(Selector::schema("workflow.result.v1"));
        let results = store.search(&results).await.unwrap();
        assert!(results.len() <= 1, "{first:?}, then {again:?}");
        if let Some(result) = &result {
            assert!(
                ["success", "error", "cancelled"]
                    .contains(&result.context["status"].as_str().unwrap())
            );
            assert_eq!(result.context["creator"]["id"], "w", "{result:?}");
        }
        result.is_some_and(|result| result.context["status"] == "success")
    })
}

#[test]
fn any_flow_that_loads_runs_to_one_result_or_waits() {
    structured(flow, run_flow);
}
