//! Invalid or unreadable hints: the data does not enter the flow, and the failure names the cause.

use super::*;

/// Returns hints that are invalid.
fn unusable() -> Value {
    json!({"exclude": 7})
}

/// Returns steps that handle the failure of a step: they return its code and message, and send them to models.
fn handled(step: &Value) -> Value {
    let mut failed = shows("error");
    failed.push(json!({"return": "${error}"}));
    json!([{"try": [step], "on_failure": failed}])
}

fn assert_withheld(world: &World, result: &Breadcrumb) {
    let error = &result.context["output"];
    assert_eq!(error["code"], "withheld", "{result:?}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("exclude"), "{message}");
    for request in world.model.requests() {
        let all = format!("{request:?}");
        assert!(!all.contains(SECRET) && !all.contains(PUBLIC), "{all}");
    }
}

#[tokio::test]
async fn a_request_whose_hints_cannot_be_used_ends_with_an_error_and_asks_no_model() {
    for hints_in in BOTH {
        let world = world(vec![], "input");
        create(&world, request(), hints_in, unusable()).await;

        let result = world.works_until(RESULT, 1).await;

        assert_eq!(result.context["status"], "error", "{result:?}");
        assert_eq!(result.context["error"]["code"], "withheld");
        let message = result.context["error"]["message"].as_str().unwrap();
        assert!(message.contains("exclude"), "{message}");
        assert!(world.model.requests().is_empty());
    }
}

#[tokio::test]
async fn a_step_fails_that_waits_for_a_breadcrumb_whose_hints_cannot_be_used() {
    for hints_in in BOTH {
        let steps = handled(&json!({"wait_for": {"schema_name": PAID}}));
        let world = World::new(&flow(&parts(), steps), far(), gossip());
        world.request(json!({})).await;
        world.works_until("workflow.kept.v1", 1).await;
        let paid = NewBreadcrumb::new(PAID).context(payload());
        create(&world, paid, hints_in, unusable()).await;

        let result = world.works_until(RESULT, 1).await;

        assert_withheld(&world, &result);
    }
}

#[tokio::test]
async fn a_step_fails_whose_answer_of_a_person_has_hints_that_cannot_be_used() {
    for hints_in in BOTH {
        let steps = handled(&json!({"ask": "Go on?"}));
        let world = World::new(&flow(&parts(), steps), far(), gossip());
        world.request(json!({})).await;
        let answer = answer_to(&world, ASKED, TOLD, json!({"answer": payload()})).await;
        create(&world, answer, hints_in, unusable()).await;

        let result = world.works_until(RESULT, 1).await;

        assert_withheld(&world, &result);
    }
}

#[tokio::test]
async fn a_step_fails_whose_result_of_a_tool_of_another_service_has_hints_that_cannot_be_used() {
    for hints_in in BOTH {
        let steps = handled(&json!({"tool": "far", "input": {}}));
        let world = World::new(&flow(&parts(), steps), far(), gossip());
        world.request(json!({})).await;
        let output = json!({"tool": "far", "status": "success", "output": payload()});
        let answer = answer_to(&world, CALLED, RETURNED, output).await;
        create(&world, answer, hints_in, unusable()).await;

        let result = world.works_until(RESULT, 1).await;

        assert_withheld(&world, &result);
    }
}

#[tokio::test]
async fn a_step_fails_whose_answer_is_excluded_as_a_whole() {
    let steps = json!([{"try": [{"ask": "Go on?"}], "on_failure": [{"return": "${error.code}"}]}]);
    let world = World::new(&flow(&parts(), steps), far(), gossip());
    world.request(json!({})).await;
    let answer = answer_to(&world, ASKED, TOLD, json!({"answer": SECRET})).await;
    let hints = json!({"exclude": ["answer"]});
    create(&world, answer, HintsIn::Breadcrumb, hints).await;

    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], "withheld", "{result:?}");
}

#[tokio::test]
async fn an_approval_counts_although_its_hints_cannot_be_used() {
    let pay = json_tool("far", "Pays.", json!({}), |_, _| async {
        Ok(json!("paid"))
    });
    let tools = ToolRegistry::default()
        .with(pay.needs_approval(Approval::always()))
        .unwrap();
    let steps = json!([{"tool": "far", "input": {}}]);
    let world = World::new(&flow(&parts(), steps), tools, no_model());
    world.request(json!({})).await;
    let answer = answer_to(&world, ASKED, TOLD, json!({"approved": true})).await;
    create(&world, answer, HintsIn::Breadcrumb, unusable()).await;

    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], "paid", "{result:?}");
}

/// Runs a flow that waits for a breadcrumb with hints, on a store whose search number `at` fails.
async fn run_with_failing_search(at: usize, steps: Value, tools: ToolRegistry) -> World {
    use crate::flow::losses::failing;
    use universal_executor::store::Operation;
    let mut definition = flow(&parts(), steps);
    definition["tools"]["slow"] = json!({});
    let fails = (Operation::Search, at..=at);
    let world = failing(&definition, (tools, gossip()), fails, &Arc::default());
    let trigger = world.request(json!({})).await;
    let event = Event::created(&trigger);
    let paid = NewBreadcrumb::new(PAID).context(payload());
    let hints = json!({"exclude": ["secret"]});
    create(&world, paid, HintsIn::SchemaDefinition, hints).await;
    for _ in 0..6 {
        let outcome = world.executor.process_event(&event).await;
        if matches!(outcome, Ok(Outcome::Responded { .. })) {
            return world;
        }
        tokio::time::advance(120 * SECOND).await;
    }
    panic!("the run did not end after search {at} failed");
}

/// Returns a tool that takes two minutes, and a tool of another service.
fn slow() -> (ToolRegistry, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let slow = json_tool("slow", "Slow.", json!({}), move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(120 * SECOND).await;
            Ok(json!("slow"))
        }
    });
    let slow = slow.timeout(300 * SECOND);
    (far().with(slow).unwrap(), calls)
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_whose_hints_cannot_be_read_for_once_enters_the_flow_later_and_is_not_lost() {
    let steps = json!([
        {"id": "paid", "wait_for": {"schema_name": PAID}},
        {"model": "m", "input": "${paid}"},
    ]);
    for at in 1..=16 {
        let world = run_with_failing_search(at, steps.clone(), slow().0).await;

        let result = world.result().await;
        assert_eq!(result["status"], "success", "search {at} fails: {result}");
        assert_hidden(&world, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn hints_that_cannot_be_read_for_once_stop_no_step_that_is_running() {
    let steps = json!([{"parallel": [{"tool": "slow"}, {"wait_for": {"schema_name": PAID}}]}]);
    for at in 1..=16 {
        let (tools, calls) = slow();
        let world = run_with_failing_search(at, steps.clone(), tools).await;

        let result = world.result().await;
        let expected = json!(["slow", {"text": PUBLIC}]);
        assert_eq!(result["output"], expected, "search {at} fails: {result}");
        assert_eq!(calls.load(Ordering::SeqCst), 1, "search {at} fails");
    }
}

#[cfg(feature = "validate")]
#[tokio::test]
async fn the_whole_result_of_a_tool_is_checked_and_the_failure_quotes_nothing_that_hints_exclude() {
    use universal_executor::tool::remote_tool;
    let schema = json!({"required": ["secret"], "properties": {"secret": {"const": SECRET}}});
    let steps =
        json!([{"try": [{"tool": "far", "input": {}}], "on_failure": [{"return": "${error}"}]}]);
    let wrong = format!("{SECRET}-and-more");
    for (secret, expected) in [(SECRET, None), (&*wrong, Some("invalid_output"))] {
        let far = remote_tool("far", "Far away.", json!({"type": "object"}));
        let far = far.output_schema(schema.clone());
        let tools = ToolRegistry::default().with(far).unwrap();
        let world = World::new(&flow(&parts(), steps.clone()), tools, no_model());
        world.request(json!({})).await;
        let output = json!({"text": PUBLIC, "secret": secret});
        let fields = json!({"tool": "far", "status": "success", "output": output});
        let answer = answer_to(&world, CALLED, RETURNED, fields).await;
        let hints = json!({"exclude": ["output.secret"]});
        create(&world, answer, HintsIn::Breadcrumb, hints).await;

        let result = world.works_until(RESULT, 1).await;

        let output = &result.context["output"];
        assert_eq!(output["code"].as_str(), expected, "{output}");
        assert!(!output.to_string().contains(SECRET), "{output}");
        assert_eq!(output["text"] == PUBLIC, expected.is_none(), "{output}");
    }
}
