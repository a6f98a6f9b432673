//! What a definition may use up, and what becomes of a run that has no room.

use super::*;
use universal_executor::workflow::{AssemblyError, Limits};

#[test]
fn a_definition_that_asks_for_more_than_is_let_is_refused_with_the_limit_and_the_way_out() {
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let assembled = |parts: &Parts, limit: &str, value: u64| {
        let definition = json!({
            "policies": {"limits": {limit: value}},
            "flows": {"main": {"steps": [{"return": 1}]}},
        });
        let workflow = Workflow::from_json(&definition).unwrap();
        Assembly::new(workflow, parts, Arc::clone(&store))
    };
    let mut more = Limits::default();
    (more.steps, more.items, more.value_bytes) = (20_000, 2_000, 1 << 20);
    let (default, more) = (Parts::new(), Parts::new().limits(more));
    for (name, within, over) in [
        ("steps", 10_000, 20_000),
        ("items", 1_000, 2_000),
        ("value_bytes", 256 << 10, 1 << 20),
    ] {
        assert!(assembled(&default, name, within).is_ok());
        let refused = assembled(&default, name, over).unwrap_err();
        let AssemblyError::OverLimit { limit, found, most } = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((limit, found, most), (name, over, within));
        let said = refused.to_string();
        assert!(
            said.contains(&over.to_string()) && said.contains("Parts::limits"),
            "{said}"
        );
        assert!(assembled(&more, name, over).is_ok());
    }
}

#[tokio::test]
async fn a_long_row_of_steps_that_do_nothing_lets_others_have_their_turn() {
    let steps =
        json!([{"loop": [{"set": {"n": "${iteration}"}}], "max": 9_000}, {"return": "${n}"}]);
    let world = World::new(
        &flow(&json!({}), steps),
        ToolRegistry::default(),
        no_model(),
    );
    let is_done = std::cell::Cell::new(false);

    let turns = async {
        let mut turns = 0;
        while !is_done.get() {
            tokio::task::yield_now().await;
            turns += 1;
        }
        turns
    };
    let work = async {
        let result = world.comes_to(json!({})).await;
        is_done.set(true);
        result
    };
    let (result, turns) = tokio::join!(work, turns);

    assert_eq!(result["output"], 9_000);
    assert!(turns >= 30, "others had {turns} turns");
}

#[tokio::test(start_paused = true)]
async fn a_long_row_of_steps_that_do_nothing_is_cancelled_by_an_order() {
    let steps = json!([{"loop": [{"set": {"n": "${iteration}"}}], "max": 9_000}]);
    let world = World::new(
        &flow(&json!({}), steps),
        ToolRegistry::default(),
        no_model(),
    );
    let request = world.asks(json!({})).await;

    let event = Event::created(&request);
    let cancels = async {
        world.executor.cancel(request.id).await.unwrap();
        tokio::time::advance(2 * SECOND).await;
    };
    let (outcome, ()) = tokio::join!(world.executor.process_event(&event), cancels);

    outcome.unwrap();
    assert_eq!(world.result().await["status"], "cancelled");
}

/// Agents that read or talk much, if they are told to: their tool gives them a page of so many bytes.
fn readers(steps: Value) -> World {
    let page = json_tool("page", "A page.", json!({}), |input, _| async move {
        let bytes = usize::try_from(input["bytes"].as_u64().unwrap_or(0)).unwrap();
        Ok(json!("x".repeat(bytes)))
    });
    let model = ScriptedModel::answering(|_, request| {
        let said = shown(request);
        let results = request.messages.iter();
        let results = results
            .filter(|message| message.speaker == Speaker::Tool)
            .count();
        let call = ToolCall::new("1", "page", json!({"bytes": 60_000}));
        let mut calling = ChatResponse::calling(vec![call]);
        match results {
            0..9 if said.contains("talks much") => {
                calling.text = "y".repeat(300_000);
                Ok(calling)
            }
            0..6 if said.contains("reads much") => Ok(calling),
            _ => Ok(ChatResponse::new("read")),
        }
    });
    let more = json!({
        "tools": {"page": {}},
        "agents": {"reader": {"instruction": "Read.", "tools": ["page"]}},
    });
    let mut definition = flow(&more, steps);
    definition["flows"]["told"]["steps"] = json!([{"return": "${input}"}]);
    World::new(&definition, registry([page]), model)
}

#[tokio::test]
async fn the_step_that_leaves_no_room_for_what_is_kept_fails_and_the_flow_goes_on() {
    let reader = |input: &str| {
        let error = json!({"code": "${error.code}", "message": "${error.message}"});
        let told = json!([{"flow": "told", "input": error}]);
        json!({"steps": [{"try": [{"agent": "reader", "input": input}], "on_failure": told}]})
    };
    let steps = json!([
        {"set": {"a": "x".repeat(240 << 10)}},
        {"set": {"b": "${a}", "c": "${a}"}},
        {"parallel": [reader("reads little"), reader("reads much"), reader("reads little")]},
    ]);
    let world = readers(steps);

    let result = world.comes_to(json!({})).await;

    let output = &result["output"];
    assert_eq!(
        (&output[0], &output[2]),
        (&json!("read"), &json!("read")),
        "{result}"
    );
    assert_eq!(output[1]["code"], "too_large");
    let message = output[1]["message"].as_str().unwrap();
    assert!(message.contains("1048576 can be kept"), "{message}");
    assert!(message.contains("policies.compaction"), "{message}");
}

#[tokio::test]
async fn an_agent_whose_own_conversation_is_too_large_fails_its_step_with_the_same_code() {
    let world = readers(json!([
        {"try": [{"agent": "reader", "input": "talks much"}], "on_failure": [{"return": "${error}"}]},
    ]));

    let result = world.comes_to(json!({})).await;

    assert_eq!(result["output"]["code"], "too_large", "{result}");
}

#[tokio::test]
async fn a_run_whose_variables_alone_are_too_large_fails_and_says_so() {
    let set = |name: &str| json!({"set": {name: "${input.large}"}});
    let steps = json!([
        {"set": {"a": "x"}}, set("b"), set("c"), set("d"), set("e"), set("f"), {"tool": "page", "input": {"bytes": 1}},
    ]);
    let world = readers(steps);

    let result = world
        .comes_to(json!({"large": "x".repeat(200 << 10)}))
        .await;

    assert_eq!(result["error"]["code"], "too_large", "{result}");
    assert_eq!(result["error"]["step"], "main/6");
}
