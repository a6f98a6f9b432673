//! Executors from workflow definitions, and the names that a definition may use.

use super::*;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::workflow::AssemblyError;
use universal_executor::workload::{EntryError, EntryPolicy, FlowDefinition, WorkloadError};

fn assembled(definition: &Value, services: &Services) -> Result<Assembly, AssemblyError> {
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    Assembly::new(Workflow::from_json(definition).unwrap(), services, store)
}

/// Creates a workflow whose flows each return their own name.
fn naming(names: &[&str]) -> Workflow {
    let flows = names
        .iter()
        .map(|name| ((*name).to_owned(), json!({"steps": [{"return": *name}]})));
    let flows: serde_json::Map<String, Value> = flows.collect();
    Workflow::from_json(&json!({"flows": flows})).unwrap()
}

/// Returns the output of a run whose request names no flow.
async fn output_of(store: &MemoryStore, executor: &WorkloadExecutor) -> Value {
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(json!({"workflow": ID}));
    let request = store.create(request).await.unwrap();
    let outcome = executor.process_event(&Event::created(&request)).await;
    outcome.unwrap();
    let result = store.latest(RESULT).await.unwrap().unwrap();
    result.context["output"].clone()
}

#[test]
fn an_unregistered_name_in_a_definition_is_an_error_with_the_nearest_name() {
    let (search, _) = tool("search", |_, _| Ok(json!(1)));
    let model: Arc<ScriptedModel> = Arc::new(no_model());
    let services = Services::new()
        .tools(registry([search]))
        .model("gpt-5", model);
    let cases = [
        (
            json!({"tools": {"serch": {}}}),
            "no tool named \"serch\" is registered; did you mean \"search\"?",
        ),
        (
            json!({"tools": {"weather": {}}}),
            "no tool named \"weather\" is registered; registered: search",
        ),
        (
            json!({"models": {"m": {"provider": "gpt-4"}}}),
            "no model named \"gpt-4\" is registered; did you mean \"gpt-5\"?",
        ),
        (
            json!({"models": {"m": {}}}),
            "model \"m\" names no model, and no default model is registered; name a model in the definition, or register one with Services::default_model",
        ),
        (
            json!({"agents": {"a": {"instruction": "A"}}}),
            "agent \"a\" names no model, and no default model is registered; name a model in the definition, or register one with Services::default_model",
        ),
        (
            json!({"policies": {"guardrails": {"input": ["x"]}}}),
            "no guardrail named \"x\" is registered; registered: none",
        ),
        (
            flow(
                &json!({}),
                json!([{"emit": {"schema_name": "tool.request.v1"}}]),
            ),
            "a step or agent of the workflow writes schema \"tool.request.v1\", which is protected; use another schema",
        ),
    ];
    for (definition, expected) in cases {
        let error = assembled(&definition, &services).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[cfg(not(feature = "validate"))]
#[test]
fn without_validation_a_definition_with_schemas_is_refused() {
    let definition = json!({"schemas": {"text": {"type": "string"}}});

    let error = assembled(&definition, &Services::new()).unwrap_err();

    assert!(matches!(error, AssemblyError::NoValidation), "{error}");
}

#[tokio::test]
async fn a_run_begins_with_main_then_default_then_the_only_flow() {
    for (names, first) in [
        (&["a", "default", "main"][..], "main"),
        (&["a", "default"][..], "default"),
        (&["a"][..], "a"),
    ] {
        let store = MemoryStore::default();
        let executor = WorkloadExecutor::of_workflow(ID, naming(names), &Services::new(), &store);
        assert_eq!(output_of(&store, &executor.unwrap()).await, first);
    }
    let (store, several) = (MemoryStore::default(), naming(&["a", "b"]));
    let executor = WorkloadExecutor::of_workflow(ID, several, &Services::new(), &store);
    let error = executor.unwrap_err();
    let WorkloadError::Entry { source, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(matches!(source, EntryError::Ambiguous { .. }), "{source}");
    assert!(source.to_string().ends_with("candidates: a, b"), "{source}");
}

#[tokio::test]
async fn a_workflow_without_a_main_flow_starts_with_the_named_entry() {
    let named = |flow: &str| {
        let several = naming(&["a", "b"]);
        FlowDefinition::with_entry(ID, several, Some(flow), EntryPolicy::default())
    };
    let (store, definition) = (MemoryStore::default(), Arc::new(named("b").unwrap()));
    let made = WorkloadExecutor::on_requests(ID, definition, &Services::new(), &store);

    let output = output_of(&store, &made.unwrap()).await;
    let error = named("c").unwrap_err();

    assert_eq!(output, "b");
    assert!(matches!(error, EntryError::Unknown { .. }), "{error}");
}

#[test]
fn a_flow_that_waits_or_has_tools_that_are_called_at_most_once_needs_a_ledger() {
    use universal_executor::executor::InvalidExecutor;
    use universal_executor::store::mock::store_with;
    let (pay, _) = tool("pay", |_, _| Ok(json!(1)));
    let services = Services::new().tools(registry([pay.at_most_once()]));
    let pays = flow(&json!({"tools": {"pay": {}}}), json!([{"tool": "pay"}]));
    let asks = flow(&json!({}), json!([{"ask": "Go on?"}]));
    let returns = flow(&json!({}), json!([{"return": 1}]));
    for (definition, expected) in [(pays, false), (asks, false), (returns, true)] {
        let store: Arc<dyn BreadcrumbStore> = Arc::new(store_with::<Breadcrumb>([]));
        let workflow = Workflow::from_json(&definition).unwrap();

        let made = WorkloadExecutor::of_workflow(ID, workflow, &services, &store);

        let is_refused = |error: &WorkloadError| {
            matches!(
                error,
                WorkloadError::Invalid(InvalidExecutor::NoLedger { .. })
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
    let services = Services::new().tools(registry([shout]));
    let definitions = StoredDefinitions::new(&store, &services).workflows();
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
    let defined = NewBreadcrumb::new(StoredDefinitions::WORKFLOW);
    let defined = defined.context(definition("hi ${input}"));
    let broken = json!({"workflow_id": "other", "definition": flow(
        &json!({"tools": {"shuot": {}}}),
        json!([{"tool": "shuot"}]),
    )});

    let mut said = None;
    let asks = async {
        store.create(defined).await.unwrap();
        let broken = NewBreadcrumb::new(StoredDefinitions::WORKFLOW).context(broken);
        store.create(broken).await.unwrap();
        while !runtime.executors().iter().any(|id| &**id == ID) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let request = json!({"workflow": ID, "input": "ann"});
        let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(request);
        store.create(request).await.unwrap();
        while store.latest(RESULT).await.unwrap().is_none()
            || store
                .latest(StoredDefinitions::REJECTED)
                .await
                .unwrap()
                .is_none()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        said = store.latest(RESULT).await.unwrap();
    };
    let ran = tokio::time::timeout(60 * SECOND, runtime.run_until(asks)).await;
    ran.unwrap().unwrap();

    assert_eq!(said.unwrap().context["output"], "HI ANN");
    let rejected = store.latest(StoredDefinitions::REJECTED).await.unwrap();
    let rejected = rejected.unwrap();
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
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(request);
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
