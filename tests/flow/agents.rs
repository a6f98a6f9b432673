//! Agents in flows.

use super::*;
use universal_executor::agent::guardrail::{Decision, on_input, on_tool_call};

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
    let world = World::new(&definition, registry([search]), model);
    let root = world.executor.assembly().build_agent("writer").unwrap();
    let asked = NewBreadcrumb::new("agent.request.v1")
        .context(json!({"agent": "writer", "prompt": "crabs"}));
    let asked = world.store.create(asked).await.unwrap();

    root.process_event(&Event::created(&asked)).await.unwrap();
    world.comes_to(json!({})).await;

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

    let result = world.comes_to(json!({})).await;

    assert_eq!(result["output"], "a shorter text");
    let requests = world.model.requests();
    let results: Vec<&Message> = requests[2]
        .messages
        .iter()
        .filter(|message| message.speaker == Speaker::Tool)
        .collect();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].text, "too long");
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

    let result = world.comes_to(json!({})).await;

    assert_eq!(result["output"], "They walk sideways.");
    assert_eq!(world.model.requests().len(), 2);
}

#[tokio::test]
async fn a_call_of_a_nested_agent_is_told_before_that_agent_ends() {
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

    world.comes_to(json!({"topic": "crabs"})).await;

    let told = world.told();
    let at = |path: &str, is_it: fn(&StepEventKind) -> bool| {
        let found = told
            .iter()
            .position(|event| event.path.as_str() == path && is_it(&event.kind));
        found.unwrap_or_else(|| panic!("nothing of {path}: {told:?}"))
    };
    let called = at(
        "main/text/critic",
        |kind| matches!(kind, StepEventKind::ToolCalled { tool, .. } if tool == "search"),
    );
    let answered = at("main/text/critic", |kind| {
        *kind == StepEventKind::Text("fine".to_owned())
    });
    let ended = at("main/text", |kind| {
        matches!(
            kind,
            StepEventKind::Flow {
                kind: FlowEventKind::Finished,
                ..
            }
        )
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
        assert_eq!(world.comes_to(json!({})).await["output"], expected);
    }
}

#[tokio::test]
async fn a_guardrail_that_denies_the_input_keeps_every_model_from_being_asked() {
    let model = Arc::new(ScriptedModel::new(["never"]));
    let guardrail = on_input("closed", |_| Decision::deny("not today"));
    let parts = Parts::new()
        .default_model(Arc::clone(&model) as _)
        .guardrail(guardrail);
    let more = json!({
        "models": {"m": {}}, "agents": {"a": {"instruction": "A"}},
        "policies": {"guardrails": {"input": ["closed"]}},
    });
    for steps in [
        json!([{"model": "m", "input": "?"}]),
        json!([{"agent": "a"}]),
    ] {
        let world = World::with_parts(&flow(&more, steps), &parts, Arc::clone(&model));
        assert_eq!(world.comes_to(json!({})).await["error"]["code"], "denied");
    }
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_guardrail_that_denies_a_call_lets_the_model_see_an_error_result() {
    let (pay, calls) = tool("pay", |_, _| Ok(json!("paid")));
    let model = Arc::new(ScriptedModel::answering(|_, request| {
        Ok(match last_is_tool(request) {
            false => calling("1", "pay", json!({})),
            true => ChatResponse::new(request.messages.last().unwrap().text.clone()),
        })
    }));
    let guardrail = on_tool_call("stingy", |_, _| Decision::deny("nothing is paid"));
    let parts = Parts::new()
        .tools(registry([pay]))
        .default_model(Arc::clone(&model) as _)
        .guardrail(guardrail);
    let more = json!({
        "tools": {"pay": {}}, "agents": {"a": {"instruction": "A", "tools": ["pay"]}},
        "policies": {"guardrails": {"tool_call": ["stingy"]}},
    });
    let world = World::with_parts(&flow(&more, json!([{"agent": "a"}])), &parts, model);

    let result = world.comes_to(json!({})).await;

    assert!(
        result["output"].as_str().unwrap().starts_with("denied"),
        "{result}"
    );
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_down_is_asked_again_if_the_step_says_so() {
    let model = ScriptedModel::script([
        Err(ModelError::Unavailable("down".into())),
        Ok(ChatResponse::new("here")),
    ]);
    let definition = flow(
        &json!({"agents": {"a": {"instruction": "A"}}}),
        json!([{"agent": "a", "retry": 2}]),
    );
    let world = World::new(&definition, ToolRegistry::default(), model);

    assert_eq!(world.comes_to(json!({})).await["output"], "here");
}

#[tokio::test]
async fn an_agent_writes_only_what_its_permissions_say() {
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
        world.comes_to(json!({})).await;
        assert_eq!(
            world.store.recent("report.v1", 10).await.unwrap().len(),
            expected
        );
    }
}
