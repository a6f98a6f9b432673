//! Agents in flows.

use super::*;
use universal_executor::agent::Usage;
use universal_executor::agent::guardrail::{Decision, on_input, on_output, on_tool_call};

fn calling(id: &str, tool: &str, arguments: Value) -> ChatResponse {
    ChatResponse::calling(vec![ToolCall::new(id, tool, arguments)])
}

fn last_is_tool(request: &ChatRequest) -> bool {
    request
        .messages
        .last()
        .is_some_and(|last| last.speaker == Speaker::Tool)
}

#[tokio::test]
async fn the_same_agent_offers_the_same_tools_as_root_and_in_a_flow() {
    let (search, _) = tool("web-search", |_, _| Ok(json!([])));
    let more = json!({
        "tools": {"search": {"tool": "web-search", "description": "Finds pages."}},
        "agents": {
            "writer": {"instruction": "Write.", "tools": ["search"], "use": ["critic"], "delegate": ["editor"]},
            "critic": {"instruction": "Criticise.", "description": "Finds mistakes."},
            "editor": {"instruction": "Edit."},
        },
    });
    let definition = flow(&more, json!([{"agent": "writer", "input": "crabs"}]));
    let model = ScriptedModel::answering(|_, _| Ok(ChatResponse::new("done")));
    let model = Arc::new(model);
    let services = Services::new()
        .tools(registry([search]))
        .default_model(Arc::clone(&model));
    let world = World::with_services(&definition, &services, model);
    let workflow = Workflow::from_json(&definition).unwrap();
    let assembly = Assembly::new(workflow, &services, Arc::new(world.store.clone())).unwrap();
    let root = assembly.build_agent("writer").unwrap();
    let asked = NewBreadcrumb::new("agent.request.v1")
        .context(json!({"agent": "writer", "prompt": "crabs"}));
    let asked = world.store.create(asked).await.unwrap();

    root.process_event(&Event::created(&asked)).await.unwrap();
    world.result_of(json!({})).await;

    let requests = world.model.requests();
    let names = |request: &ChatRequest| -> Vec<String> {
        request.tools.iter().map(|tool| tool.name.clone()).collect()
    };
    assert_eq!(
        names(&requests[0]),
        ["search", "critic", "delegate-to-editor"]
    );
    assert_eq!(requests[0].tools, requests[1].tools);
    assert!(requests[0].tools[0].description.contains("Finds pages."));
}

#[tokio::test]
async fn an_agent_that_uses_another_is_given_one_result_and_has_the_last_word() {
    let model = ScriptedModel::answering(|_, request| {
        Ok(
            match (shown(request).contains("Criticise."), last_is_tool(request)) {
                (true, _) => ChatResponse::new("too long"),
                (false, false) => calling("1", "critic", json!({"prompt": "Is it good?"})),
                (false, true) => ChatResponse::new("a shorter text"),
            },
        )
    });
    let more = json!({"agents": {
        "writer": {"instruction": "Write.", "use": ["critic"]},
        "critic": {"instruction": "Criticise."},
    }});
    let definition = flow(&more, json!([{"agent": "writer", "input": "crabs"}]));
    let world = World::new(&definition, ToolRegistry::default(), model);

    let result = world.result_of(json!({})).await;

    assert_eq!(result["output"], "a shorter text");
    let requests = world.model.requests();
    let results: Vec<&ChatMessage> = requests[2]
        .messages
        .iter()
        .filter(|message| message.speaker == Speaker::Tool)
        .collect();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].text(), "too long");
    assert!(
        world
            .store
            .latest("agent.request.v1")
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn an_agent_that_delegates_leaves_the_last_word_to_the_specialist() {
    let model = ScriptedModel::answering(|_, request| {
        Ok(match shown(request).contains("You know crabs.") {
            true => ChatResponse::new("They walk sideways."),
            false => calling(
                "1",
                "delegate-to-expert",
                json!({"prompt": "How do crabs walk?"}),
            ),
        })
    });
    let more = json!({"agents": {
        "front": {"instruction": "Answer.", "delegate": ["expert"]},
        "expert": {"instruction": "You know crabs."},
    }});
    let definition = flow(&more, json!([{"agent": "front", "input": "crabs"}]));
    let world = World::new(&definition, ToolRegistry::default(), model);

    let result = world.result_of(json!({})).await;

    assert_eq!(result["output"], "They walk sideways.");
    assert_eq!(world.model.requests().len(), 2);
}

#[tokio::test]
async fn a_tool_call_of_a_nested_agent_is_reported_before_the_agent_finishes() {
    let (search, _) = tool("search", |_, _| Ok(json!("pages")));
    let model = ScriptedModel::answering(|_, request| {
        let is_critic = shown(request).contains("Criticise.");
        Ok(match (is_critic, last_is_tool(request)) {
            (true, false) => calling("1", "search", json!({})),
            (true, true) => ChatResponse::new("fine"),
            (false, false) => calling("1", "critic", json!({"prompt": "?"})),
            (false, true) => ChatResponse::new("done"),
        })
    });
    let more = json!({"tools": {"search": {}}, "agents": {
        "writer": {"instruction": "Write.", "use": ["critic"]},
        "critic": {"instruction": "Criticise.", "tools": ["search"]},
    }});
    let definition = flow(&more, json!([{"id": "text", "agent": "writer"}]));
    let world = World::new(&definition, registry([search]), model);

    world.result_of(json!({"topic": "crabs"})).await;

    let told = world.recorded_events();
    let at = |path: &str, is_it: fn(&WorkloadEventKind) -> bool| {
        let found = told
            .iter()
            .position(|event| event.path.as_str() == path && is_it(&event.kind));
        found.unwrap_or_else(|| panic!("no event of {path}: {told:?}"))
    };
    let called = at(
        "main/text/critic",
        |kind| matches!(kind, WorkloadEventKind::ToolCalled { tool, .. } if tool == "search"),
    );
    let answered = at("main/text/critic", |kind| {
        *kind == WorkloadEventKind::Text("fine".to_owned())
    });
    let ended = at("main/text", |kind| {
        *kind == WorkloadEventKind::Step(FlowEventKind::Finished)
    });
    assert!(called < answered && answered < ended, "{told:?}");
}

#[tokio::test]
async fn without_a_return_the_last_agent_has_the_answer_and_with_one_the_value() {
    let model = || ScriptedModel::new(["first", "second"]);
    let agents = json!({"agents": {"a": {"instruction": "A"}, "b": {"instruction": "B"}}});
    let open = flow(&agents, json!([{"agent": "a"}, {"agent": "b"}]));
    let closed = flow(
        &agents,
        json!([{"id": "x", "agent": "a"}, {"agent": "b"}, {"return": "${x}"}]),
    );

    for (definition, expected) in [(open, "second"), (closed, "first")] {
        let world = World::new(&definition, ToolRegistry::default(), model());
        assert_eq!(world.result_of(json!({})).await["output"], expected);
    }
}

#[tokio::test]
async fn an_input_guardrail_that_denies_prevents_all_model_requests() {
    let model = Arc::new(ScriptedModel::new(["never"]));
    let guardrail = on_input("closed", |_| Decision::deny("not today"));
    let services = Services::new()
        .default_model(Arc::clone(&model))
        .guardrail(guardrail);
    let more = json!({
        "models": {"m": {}}, "agents": {"a": {"instruction": "A"}},
        "policies": {"guardrails": {"input": ["closed"]}},
    });
    for steps in [
        json!([{"model": "m", "input": "?"}]),
        json!([{"agent": "a"}]),
    ] {
        let world = World::with_services(&flow(&more, steps), &services, Arc::clone(&model));
        assert_eq!(world.result_of(json!({})).await["error"]["code"], "denied");
    }
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_guardrail_that_denies_a_call_lets_the_model_see_an_error_result() {
    let (pay, calls) = tool("pay", |_, _| Ok(json!("paid")));
    let model = Arc::new(ScriptedModel::answering(|_, request| {
        Ok(match last_is_tool(request) {
            false => calling("1", "pay", json!({})),
            true => ChatResponse::new(request.messages.last().unwrap().text().into_owned()),
        })
    }));
    let guardrail = on_tool_call("stingy", |_, _| Decision::deny("nothing is paid"));
    let services = Services::new()
        .tools(registry([pay]))
        .default_model(Arc::clone(&model))
        .guardrail(guardrail);
    let more = json!({
        "tools": {"pay": {}}, "agents": {"a": {"instruction": "A", "tools": ["pay"]}},
        "policies": {"guardrails": {"tool_call": ["stingy"]}},
    });
    let world = World::with_services(&flow(&more, json!([{"agent": "a"}])), &services, model);

    let result = world.result_of(json!({})).await;

    assert!(
        result["output"].as_str().unwrap().starts_with("denied"),
        "{result}"
    );
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_to_an_unavailable_model_is_retried_if_the_step_allows_it() {
    let model = ScriptedModel::script([
        Err(ModelError::Unavailable("down".into())),
        Ok(ChatResponse::new("here")),
    ]);
    let definition = flow(
        &json!({"agents": {"a": {"instruction": "A"}}}),
        json!([{"agent": "a", "retry": 2}]),
    );
    let world = World::new(&definition, ToolRegistry::default(), model);

    assert_eq!(world.result_of(json!({})).await["output"], "here");
}

#[tokio::test]
async fn an_agent_writes_only_the_schemas_of_its_permissions() {
    let action = r#"{"action": "create", "breadcrumb": {"schema_name": "report.v1", "title": "R", "context": {"n": 1}}}"#;
    let may =
        json!({"agents": {"a": {"instruction": "A", "permissions": {"writes": ["report.v1"]}}}});
    let may_not = json!({"agents": {"a": {"instruction": "A"}}});
    for (agents, expected) in [(may, 1), (may_not, 0)] {
        let model = ScriptedModel::answering(move |_, _| Ok(ChatResponse::new(action)));
        let world = World::new(
            &flow(&agents, json!([{"agent": "a"}])),
            ToolRegistry::default(),
            model,
        );
        world.result_of(json!({})).await;
        assert_eq!(
            world.store.recent("report.v1", 10).await.unwrap().len(),
            expected
        );
    }
}

/// Returns the token usage of one summary.
fn summed_up() -> Usage {
    Usage::new(30, 4)
}

/// Returns an agent that reads six pages of about 80 tokens each before it answers.
fn reading(compaction: &Value) -> (Value, ToolRegistry, ScriptedModel) {
    let (search, _) = tool("search", |_, _| Ok(json!("a page about crabs ".repeat(12))));
    let model = ScriptedModel::answering(|number, request| {
        let sums_up = request.messages[0].text().starts_with("Sum up");
        Ok(match (sums_up, number) {
            (true, _) => ChatResponse::new("Crabs were found.").with_usage(summed_up()),
            (false, 1..=6) => calling("1", "search", json!({"page": number})),
            (false, _) => ChatResponse::new("done"),
        })
    });
    let more = json!({
        "tools": {"search": {}},
        "models": {"small": {"model": "tiny", "max_tokens": 99}},
        "agents": {"reader": {"instruction": "Read.", "tools": ["search"]}},
        "policies": {"compaction": compaction},
    });
    let definition = flow(&more, json!([{"agent": "reader", "input": "crabs"}]));
    (definition, registry([search]), model)
}

/// Returns `true` if each call in a request is followed by its result, and each result belongs to a call.
fn is_well_formed(request: &ChatRequest) -> bool {
    let mut open = 0;
    request.messages.iter().all(|message| {
        let is_result = message.speaker == Speaker::Tool;
        let fits = is_result == (open > 0);
        open = match is_result {
            true => open - usize::from(open > 0),
            false => message.tool_calls().len(),
        };
        fits
    }) && open == 0
}

fn compacted(event: &WorkloadEvent) -> Option<(u64, bool)> {
    match event.kind {
        WorkloadEventKind::Compacted {
            left_out,
            summed_up,
        } => Some((left_out, summed_up)),
        _ => None,
    }
}

#[tokio::test]
async fn over_the_threshold_the_next_request_is_smaller_and_no_call_is_without_its_result() {
    let (definition, tools, model) =
        reading(&json!({"method": "truncate", "at_tokens": 400, "keep": 2}));
    let world = World::new(&definition, tools, model);

    assert_eq!(world.result_of(json!({})).await["output"], "done");

    let requests = world.model.requests();
    let sizes: Vec<usize> = requests
        .iter()
        .map(|request| request.messages.len())
        .collect();
    assert_eq!(sizes.len(), 7);
    assert!(sizes.windows(2).any(|pair| pair[1] < pair[0]), "{sizes:?}");
    assert!(requests.iter().all(is_well_formed), "{requests:?}");
    let asked = |request: &ChatRequest| shown(request).contains("crabs\"");
    assert!(
        requests.iter().all(asked),
        "every request must contain the question"
    );
    let told: Vec<_> = world
        .recorded_events()
        .iter()
        .filter_map(compacted)
        .collect();
    assert!(
        !told.is_empty() && told.iter().all(|(_, summed_up)| !summed_up),
        "{told:?}"
    );
}

#[tokio::test]
async fn hidden_messages_are_summarised_by_the_model_of_the_policy() {
    let (definition, tools, model) = reading(&json!({
        "method": "summarise", "at_tokens": 400, "keep": 2, "model": "small",
    }));
    let world = World::new(&definition, tools, model);

    world.result_of(json!({})).await;

    let requests = world.model.requests();
    let sums_up = |request: &&ChatRequest| request.messages[0].text().starts_with("Sum up");
    let asked = requests.iter().find(sums_up).unwrap();
    assert_eq!(
        (asked.model.as_deref(), asked.max_output_tokens),
        (Some("tiny"), Some(99))
    );
    let last = requests.iter().rfind(|request| !sums_up(request)).unwrap();
    let summary = ChatMessage::data(json!({"summary": "Crabs were found."}));
    assert!(last.messages.contains(&summary), "{last:?}");
    assert!(
        world
            .recorded_events()
            .iter()
            .filter_map(compacted)
            .any(|(_, summed_up)| summed_up)
    );
}

#[tokio::test]
async fn a_summary_passes_the_guardrails_and_reports_its_cost_but_not_its_content() {
    let (mut definition, tools, model) =
        reading(&json!({"method": "summarise", "at_tokens": 400, "keep": 2}));
    definition["policies"]["guardrails"] = json!({"output": ["no-crabs"]});
    let model = Arc::new(model);
    let no_crabs = |text: &str| Decision::Replace(text.replace("Crabs", "[Animals]"));
    let services = Services::new()
        .tools(tools)
        .default_model(Arc::clone(&model))
        .guardrail(on_output("no-crabs", no_crabs));
    let world = World::with_services(&definition, &services, model);

    world.result_of(json!({})).await;

    let requests = world.model.requests();
    let shown = shown(requests.last().unwrap());
    assert!(shown.contains("[Animals] were found."), "{shown}");
    assert!(!shown.contains("Crabs were found."), "{shown}");
    let told = world.recorded_events();
    let kinds = told.windows(2).map(|pair| (&pair[0].kind, &pair[1].kind));
    let summaries = requests.iter();
    let summaries = summaries.filter(|request| request.messages[0].text().starts_with("Sum up"));
    let cost = WorkloadEventKind::Usage(summed_up());
    let costs = kinds.filter(|kinds| *kinds == (&WorkloadEventKind::Asked, &cost));
    assert_eq!(costs.count(), summaries.count());
    let texts = told.iter().filter_map(|event| match &event.kind {
        WorkloadEventKind::Text(text) => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(texts.collect::<String>(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_compaction_is_reported_only_after_it_is_saved() {
    use universal_executor::store::Operation;
    let (definition, tools, model) =
        reading(&json!({"method": "truncate", "at_tokens": 1, "keep": 2}));
    let model = Arc::new(model);
    let services = Services::new()
        .tools(tools)
        .default_model(Arc::clone(&model));
    let store = MemoryStore::default();
    let asks = Arc::clone(&model);
    // Saves after the third answer fail. The third request is the first one with a shortened conversation.
    let faulty = Faulty::new(store.clone(), move |operation, moment| {
        let is_save = operation == Operation::Save && moment == Moment::Before;
        match is_save && asks.requests().len() >= 3 {
            true => Fault::Fail,
            false => Fault::None,
        }
    });
    let told: Arc<Mutex<Vec<WorkloadEvent>>> = Arc::default();
    let heard = Arc::clone(&told);
    let executor = executor(&definition, &services, Arc::new(faulty));
    let executor = executor.with_events(move |event| heard.lock().unwrap().push(event));
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(json!({"workflow": ID}));
    let request = store.create(request).await.unwrap();

    executor
        .process_event(&Event::created(&request))
        .await
        .unwrap_err();

    let sizes = model.requests();
    let sizes: Vec<usize> = sizes.iter().map(|request| request.messages.len()).collect();
    assert_eq!(sizes[1], sizes[2], "the conversation must be shortened");
    assert_eq!(told.lock().unwrap().iter().find_map(compacted), None);
}

#[tokio::test]
async fn a_compaction_policy_without_a_model_is_refused() {
    let (definition, tools, _) = reading(&json!({"method": "summarise", "at_tokens": 1}));
    let workflow = Workflow::from_json(&definition).unwrap();
    let model: Arc<ScriptedModel> = Arc::new(no_model());
    let provider = universal_executor::agent::ApiProvider::new(model);
    let services = Services::new().tools(tools).provider("own", provider);
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());

    let error = Assembly::new(workflow, &services, store).unwrap_err();

    assert!(error.to_string().contains("names no model"), "{error}");
}

#[test]
fn an_executor_without_sessions_warns_of_a_history_that_shows_nothing() {
    let agents = json!({"agents": {
        "a": {"instruction": "A", "history": 3},
        "b": {"instruction": "B", "history": "none"},
    }});
    let definition = flow(&agents, json!([{"agent": "a"}, {"agent": "b"}]));
    let world = World::new(&definition, ToolRegistry::default(), no_model());

    let warnings: Vec<String> = world
        .executor
        .warnings()
        .iter()
        .map(ToString::to_string)
        .collect();

    assert_eq!(
        warnings,
        ["agents.a.history: has no effect: without a session there are no earlier messages"]
    );
}
