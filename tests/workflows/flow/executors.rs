//! How workflows become executors, and what they may name.

use super::*;
use universal_executor::runtime::definitions::Definitions;
use universal_executor::workflow::{AssemblyError, WorkflowError};

fn assembled(definition: &Value, parts: &Parts) -> Result<Assembly, AssemblyError> {
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    Assembly::new(Workflow::from_json(definition).unwrap(), parts, store)
}

#[test]
fn a_definition_names_only_what_is_registered_and_is_told_the_nearest_name() {
    let (search, _) = tool("search", |_, _| Ok(json!(1)));
    let model: Arc<ScriptedModel> = Arc::new(no_model());
    let parts = Parts::new().tools(registry([search])).model("gpt-5", model);
    let cases = [
        (
            json!({"tools": {"serch": {}}}),
            "tool \"serch\" is not registered here; did you mean \"search\"?",
        ),
        (
            json!({"tools": {"weather": {}}}),
            "tool \"weather\" is not registered here; there are: search",
        ),
        (
            json!({"models": {"m": {"provider": "gpt-4"}}}),
            "model \"gpt-4\" is not registered here; did you mean \"gpt-5\"?",
        ),
        (
            json!({"models": {"m": {}}}),
            "model \"m\" names no model, and no default model is registered here",
        ),
        (
            json!({"agents": {"a": {"instruction": "A"}}}),
            "agent \"a\" names no model, and no default model is registered here",
        ),
        (
            json!({"policies": {"guardrails": {"input": ["x"]}}}),
            "guardrail \"x\" is not registered here; there are: none",
        ),
        (
            flow(
                &json!({}),
                json!([{"emit": {"schema_name": "tool.request.v1"}}]),
            ),
            "a step emits \"tool.request.v1\", which no definition may write",
        ),
    ];
    for (definition, expected) in cases {
        let error = assembled(&definition, &parts).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[cfg(not(feature = "validate"))]
#[test]
fn without_validation_a_definition_with_schemas_is_refused() {
    let definition = json!({"schemas": {"text": {"type": "string"}}});

    let error = assembled(&definition, &Parts::new()).unwrap_err();

    assert!(matches!(error, AssemblyError::NoValidation), "{error}");
}

#[test]
fn a_run_begins_with_main_then_default_then_the_only_flow() {
    let of = |names: &[&str]| {
        let flows = names
            .iter()
            .map(|name| (*name, json!({"steps": [{"return": *name}]})));
        let flows: serde_json::Map<String, Value> =
            flows.map(|(name, flow)| (name.to_owned(), flow)).collect();
        let assembly = assembled(&json!({"flows": flows}), &Parts::new()).unwrap();
        WorkflowExecutor::new(ID, assembly).map(|executor| format!("{executor:?}"))
    };

    assert!(of(&["a", "default", "main"]).unwrap().contains("\"main\""));
    assert!(of(&["a", "default"]).unwrap().contains("\"default\""));
    assert!(of(&["a"]).unwrap().contains("\"a\""));
    let error = of(&["a", "b"]).unwrap_err();
    assert!(matches!(error, WorkflowError::NoEntry { .. }));
    assert!(
        error.to_string().ends_with("name one of its flows: a, b"),
        "{error}"
    );
}

#[test]
fn a_workflow_of_several_flows_without_main_begins_with_the_one_that_is_named() {
    let steps = json!({"steps": [{"return": 1}]});
    let definition = json!({"flows": {"a": steps, "b": steps}});
    let named = |flow| {
        let assembly = assembled(&definition, &Parts::new()).unwrap();
        WorkflowExecutor::with_entry(ID, assembly, flow)
    };

    let made = named("b").unwrap();
    let error = named("c").unwrap_err();

    assert!(format!("{made:?}").contains("\"b\""));
    assert!(matches!(error, WorkflowError::NoEntry { .. }), "{error}");
}

#[test]
fn a_flow_that_waits_or_has_tools_that_are_called_at_most_once_needs_a_ledger() {
    use universal_executor::executor::InvalidExecutor;
    use universal_executor::store::mock::store_with;
    let (pay, _) = tool("pay", |_, _| Ok(json!(1)));
    let parts = Parts::new().tools(registry([pay.at_most_once()]));
    let pays = flow(&json!({"tools": {"pay": {}}}), json!([{"tool": "pay"}]));
    let asks = flow(&json!({}), json!([{"ask": "Go on?"}]));
    let returns = flow(&json!({}), json!([{"return": 1}]));
    for (definition, expected) in [(pays, false), (asks, false), (returns, true)] {
        let store = Arc::new(store_with::<Breadcrumb>([]));
        let workflow = Workflow::from_json(&definition).unwrap();
        let assembly = Assembly::new(workflow, &parts, store).unwrap();

        let made = WorkflowExecutor::new(ID, assembly);

        let is_refused = |error: &WorkflowError| {
            matches!(
                error,
                WorkflowError::Invalid(InvalidExecutor::NoLedger { .. })
            )
        };
        assert_eq!(made.is_ok(), expected);
        assert!(made.err().is_none_or(|error| is_refused(&error)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_in_the_store_becomes_an_executor_that_runs() {
    let store = MemoryStore::default();
    let (shout, _) = tool("shout", |_, input| {
        Ok(json!(input.as_str().unwrap().to_uppercase()))
    });
    let parts = Parts::new().tools(registry([shout]));
    let definitions = Definitions::new(Arc::new(store.clone())).workflows(parts);
    let runtime = Runtime::builder(store.events())
        .definitions(definitions)
        .build()
        .unwrap();
    let definition = |text: &str| {
        json!({"workflow_id": ID, "definition": flow(
            &json!({"tools": {"shout": {}}}),
            json!([{"tool": "shout", "input": text}]),
        )})
    };
    let defined = NewBreadcrumb::new(Definitions::WORKFLOW).context(definition("hi ${input}"));
    let broken = json!({"workflow_id": "other", "definition": {"tools": {"shuot": {}}}});

    let mut said = None;
    let asks = async {
        store.create(defined).await.unwrap();
        let broken = NewBreadcrumb::new(Definitions::WORKFLOW).context(broken);
        store.create(broken).await.unwrap();
        while !runtime.executors().iter().any(|id| &**id == ID) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let request = json!({"workflow": ID, "input": "ann"});
        let request = NewBreadcrumb::new(WorkflowExecutor::REQUEST).context(request);
        store.create(request).await.unwrap();
        while store
            .latest(WorkflowExecutor::RESULT)
            .await
            .unwrap()
            .is_none()
            || store.latest(Definitions::REJECTED).await.unwrap().is_none()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        said = store.latest(WorkflowExecutor::RESULT).await.unwrap();
    };
    let ran = tokio::time::timeout(60 * SECOND, runtime.run_until(asks)).await;
    ran.unwrap().unwrap();

    assert_eq!(said.unwrap().context["output"], "HI ANN");
    let rejected = store.latest(Definitions::REJECTED).await.unwrap().unwrap();
    let reason = rejected.context.text("reason").unwrap();
    assert!(reason.contains("did you mean \"shout\"?"), "{reason}");
}

#[tokio::test]
async fn a_request_for_a_flow_that_is_not_there_is_answered_with_an_error() {
    let world = World::new(
        &flow(&json!({}), json!([{"return": 1}])),
        ToolRegistry::default(),
        no_model(),
    );
    let request = json!({"workflow": ID, "flow": "man"});
    let request = NewBreadcrumb::new(WorkflowExecutor::REQUEST).context(request);
    let request = world.store.create(request).await.unwrap();

    world
        .executor
        .process_event(&Event::created(&request))
        .await
        .unwrap();

    let result = world.result().await;
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains("did you mean \"main\"?"), "{message}");
}
