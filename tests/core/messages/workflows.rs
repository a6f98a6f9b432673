//! Errors of workflow definitions.

use serde_json::json;
use universal_executor::workflow::Workflow;
use universal_executor::workload::WorkloadExecutor;
use universal_executor::{MemoryStore, Services};

#[test]
fn several_flows_without_a_start_are_listed_with_the_ways_to_select_one() {
    let flow = json!({"steps": [{"return": "done"}]});
    let workflow = json!({"flows": {"review": flow, "write": flow}});
    let workflow = Workflow::from_json(&workflow).unwrap();
    let store = MemoryStore::default();

    let executor = WorkloadExecutor::of_workflow("writer", workflow, &Services::new(), &store);
    let error = executor.map(drop).unwrap_err();

    let expected = "cannot determine the flow or agent that starts a run of workflow \"writer\"; see the cause";
    assert_eq!(error.to_string(), expected);
    let cause = "several flows or agents can start a run, and none is named \"main\"; rename one to \"main\", or select one with FlowDefinition::with_entry, with a workload reference such as \"writer#review\", or with the field \"flow\" of the workflow.def.v1 definition; candidates: review, write";
    assert_eq!(super::cause_of(&error), cause);
}
