//! Definitions of executors, agents and workflows.

use crate::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use crate::check::{Check, CheckSource, Kind, Severity};
use crate::fuzz::agents::{AGENT, TOOL_DEFINITION, TOOL_REQUEST};
use crate::fuzz::vocabulary::{EVENT, SUBSCRIPTIONS};
use crate::fuzz::workflows::WORKFLOW_DEFINITION;
use crate::fuzz::{Bytes, Tape, bytes, structured};
use crate::services::Services;
use crate::store::Query;
use crate::tool::ToolExecutor;
use crate::workload::WorkloadExecutor;
use crate::{
    BreadcrumbStore, BreadcrumbStoreExt, Event, Json, MemoryStore, NewBreadcrumb, Outcome,
    Selector, SubscriptionIndex, Subscriptions, UniversalExecutor,
};
use std::sync::Arc;

/// Maximum length of an error message in bytes.
const MAX_MESSAGE: usize = 2_000;

/// Generates subscriptions, and events to route.
fn subscriptions(tape: &mut Tape) -> (String, Vec<Bytes>) {
    let events = (0..=tape.below(3)).map(|_| {
        let event = EVENT.text(tape);
        bytes(tape, &event)
    });
    let events = events.collect();
    (SUBSCRIPTIONS.text(tape), events)
}

fn load_and_route((text, events): &(String, Vec<Bytes>)) -> bool {
    let parsed = Subscriptions::parse(text);
    if let Err(error) = &parsed {
        assert!(error.to_string().len() < MAX_MESSAGE, "{error}");
    }
    // A JSON value has only the last of two equal keys. Parsing a string refuses equal keys.
    let Ok(loaded) = Json::from_text(text.clone()).map(|json| Subscriptions::from_json(&json))
    else {
        assert!(parsed.is_err());
        return false;
    };
    let Ok(loaded) = loaded else {
        assert!(parsed.is_err());
        return false;
    };
    if let Ok(parsed) = &parsed {
        assert_eq!(parsed.as_slice(), loaded.as_slice());
    }
    let printed = serde_json::to_value(&loaded).unwrap();
    let again = Subscriptions::from_json(&printed).unwrap();
    assert_eq!(again.as_slice(), loaded.as_slice());
    assert_eq!(again.hash(), loaded.hash());

    let mut index = SubscriptionIndex::new();
    index.insert("x", &loaded);
    for event in events
        .iter()
        .filter_map(|event| serde_json::from_slice::<Event>(event).ok())
    {
        let route = loaded.route(&event);
        assert!(loaded.explain(&event).to_string().len() < 4 << 20);
        let found = index.matching(&event);
        let found = found.first().map(|(_, route)| route);
        assert_eq!(
            found.is_some(),
            route != crate::Route::Unmatched,
            "{route:?} and {found:?} in the index"
        );
        assert!(
            found.is_none_or(|found| *found == route),
            "{route:?} and {found:?} in the index"
        );
    }
    parsed.is_ok()
}

#[test]
fn any_subscriptions_load_or_are_refused_and_the_index_finds_the_same_matches() {
    structured(subscriptions, load_and_route);
}

fn agent(tape: &mut Tape) -> String {
    AGENT.text(tape)
}

fn load_agent(text: &str) -> bool {
    let Ok(value) = Json::from_text(text) else {
        return false;
    };
    let whole = serde_json::json!({"context": *value});
    let definition = match (
        AgentDefinition::from_json(&value),
        AgentDefinition::from_json(&whole),
    ) {
        (Ok(bare), Ok(whole)) => {
            assert_eq!(format!("{bare:?}"), format!("{whole:?}"));
            bare
        }
        (Err(bare), Err(_)) => {
            is_short(&bare);
            return false;
        }
        (bare, whole) => {
            // A bare definition with a field "context" is read as a breadcrumb.
            assert!(value.get("context").is_some(), "{bare:?} and {whole:?}");
            return false;
        }
    };
    let model = Arc::new(ScriptedModel::new(["yes"]));
    let store = Arc::new(MemoryStore::default());
    let agent = AgentExecutor::with_tools(definition, model, store, super::tools());
    if let Err(error) = &agent {
        is_short(error);
    }
    agent.is_ok()
}

/// Returns `true` if a check finds no error in an agent definition. Asserts that such a definition loads.
fn check_agent(text: &str) -> bool {
    let checked = Check::new()
        .strict(false)
        .one(&CheckSource::json("x", text));
    assert!(checked.findings.len() <= 101, "{}", checked.findings.len());
    for finding in &checked.findings {
        assert!(finding.to_string().len() < 2 * MAX_MESSAGE, "{finding}");
    }
    let mut found = checked.findings.iter();
    let has_errors = found.any(|finding| finding.severity == Severity::Error);
    if checked.kind != Kind::Agent || has_errors {
        return false;
    }
    let definition = Json::from_text(text).unwrap();
    assert!(AgentDefinition::from_json(&definition).is_ok(), "{text}");
    true
}

#[test]
fn any_agent_in_which_a_check_finds_no_error_loads() {
    structured(agent, |text| check_agent(text));
}

/// Checks a tool and a workflow in both modes.
fn check_others([tool, _, workflow]: &[String; 3]) -> bool {
    let mut is_sound = true;
    for is_strict in [true, false] {
        let sources = [tool, workflow].map(|text| CheckSource::json("x", &**text));
        let report = Check::new().strict(is_strict).all(sources);
        assert!(report.count(Severity::Warning) + report.count(Severity::Error) <= 303);
        is_sound &= !report.has_errors();
    }
    is_sound
}

#[test]
fn any_tool_and_workflow_definitions_are_checked() {
    structured(executors, check_others);
}

#[test]
fn any_agent_definition_loads_or_is_refused() {
    structured(agent, |text| load_agent(text));
}

/// Generates the definitions of a tool and of a workflow, and a request for the tool.
fn executors(tape: &mut Tape) -> [String; 3] {
    [&TOOL_DEFINITION, &TOOL_REQUEST, &WORKFLOW_DEFINITION].map(|shape| shape.text(tape))
}

fn load_executors([tool, request, workflow]: &[String; 3]) -> bool {
    let [tool, request, workflow] =
        [tool, request, workflow].map(|text| Json::from_text(text.clone()));
    let store = MemoryStore::default();
    if let Ok(workflow) = workflow {
        let services = Services::new().tools(super::tools().clone());
        let made = WorkloadExecutor::from_definition(&workflow, &services, &store);
        if let Err(error) = made {
            is_short(&error);
        }
    }
    let (Ok(tool), Ok(request)) = (tool, request) else {
        return false;
    };
    match ToolExecutor::from_definition(&tool, super::echo(), Arc::new(store.clone())) {
        Ok(executor) => super::block_on(is_served_once(&executor, &store, request)),
        Err(error) => {
            is_short(&error);
            false
        }
    }
}

/// Asserts a maximum length of an error message and of the messages of its sources.
pub(super) fn is_short(error: &dyn std::error::Error) {
    let mut next = Some(error);
    while let Some(error) = next {
        let message = error.to_string();
        assert!(message.len() < 2 * MAX_MESSAGE, "{message}");
        next = error.source();
    }
}

async fn is_served_once(executor: &ToolExecutor, store: &MemoryStore, request: Json) -> bool {
    let request = NewBreadcrumb::new(ToolExecutor::REQUEST).context(request);
    let Ok(request) = store.create(request).await else {
        return false;
    };
    let event = Event::created(&request);
    let first = executor.process_event(&event).await;
    drop(executor.process_event(&event).await);
    let responses = Query::new(Selector::schema(ToolExecutor::RESPONSE));
    let responses = store.search(&responses).await.unwrap();
    assert!(responses.len() <= 1, "{responses:?}");
    if let Err(error) = &first {
        is_short(error);
    }
    matches!(first, Ok(Outcome::Responded { .. }))
}

#[test]
fn any_tool_and_workflow_definitions_load_or_are_refused_and_requests_are_served_once() {
    structured(executors, load_executors);
}
