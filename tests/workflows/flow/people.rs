//! Flows that wait for people, breadcrumbs, agents and control orders. Each stage runs in another process.

use super::*;
use futures::StreamExt as _;
use universal_executor::EventSource as _;
use universal_executor::store::Operation;
use universal_executor::tool::{Question, ask_human};

const ASKED: &str = "human.request.v1";

async fn answer(world: &World, asked: &Breadcrumb, more: Value) {
    let id = asked.context.text("requestId").unwrap();
    let mut context = json!({"request_id": id});
    context
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let says = NewBreadcrumb::new("human.response.v1")
        .tag(format!("request:{id}"))
        .created_by("ann")
        .context(context);
    world.store.create(says).await.unwrap();
}

#[tokio::test]
async fn a_run_whose_process_restarts_between_ask_and_answer_completes_with_the_answer() {
    let (before, calls) = tool("before", |_, _| Ok(json!("drafted")));
    let definition = flow(
        &json!({"tools": {"before": {}}}),
        json!([
            {"id": "draft", "tool": "before"},
            {"id": "verdict", "ask": "Is ${draft} fine?", "of": ["ann"]},
            {"return": {"draft": "${draft}", "verdict": "${verdict}"}},
        ]),
    );
    let world = World::new(&definition, registry([before]), no_model());
    world.request(json!({})).await;

    let asked = world.works_until(ASKED, 1).await;
    answer(&world, &asked, json!({"answer": "yes"})).await;
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(asked.context["question"], "Is drafted fine?");
    assert_eq!(
        result.context["output"],
        json!({"draft": "drafted", "verdict": "yes"})
    );
    assert!(result.tags.contains(&"request:q-1".to_owned()));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(world.store.recent(ASKED, 10).await.unwrap().len(), 1);
}

#[cfg(feature = "validate")]
#[tokio::test]
async fn a_question_contains_its_permitted_answerers_and_its_answer_schema() {
    let schema = json!({"enum": ["yes", "no"]});
    let definition = flow(
        &json!({"schemas": {"decision": schema}}),
        json!([{"ask": "Go on?", "of": ["ann"], "output": "decision"}, {"ask": "And now?"}]),
    );
    let world = World::new(&definition, ToolRegistry::default(), no_model());
    world.request(json!({})).await;

    let bounded = world.works_until(ASKED, 1).await;
    answer(&world, &bounded, json!({"answer": "yes"})).await;
    let free = world.works_until(ASKED, 2).await;

    assert_eq!(bounded.context["of"], json!(["ann"]));
    assert_eq!(bounded.context["schema"], schema);
    assert_eq!(free.context["question"], "And now?");
    assert!(free.context.get("of").is_none() && free.context.get("schema").is_none());
}

#[tokio::test]
async fn an_answer_of_an_unlisted_person_is_ignored() {
    let definition = flow(&json!({}), json!([{"ask": "Go on?", "of": ["bob"]}]));
    let world = World::new(&definition, ToolRegistry::default(), no_model());
    world.request(json!({})).await;

    let asked = world.works_until(ASKED, 1).await;
    answer(&world, &asked, json!({"answer": "ann says yes"})).await;
    let id = asked.context.text("requestId").unwrap();
    world.works_until("human.response.v1", 1).await;
    world.answers(id, json!("bob says no"), "bob").await;
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], "bob says no");
}

#[tokio::test]
async fn an_agent_that_asks_a_person_suspends_its_step_and_continues_from_there() {
    let ask = json_tool("ask", "Asks a person.", json!({}), |_, _| async {
        Err(ask_human(Question::new("Which color?")))
    });
    let model = ScriptedModel::answering(|_, request| {
        let told = request
            .messages
            .iter()
            .find(|message| message.speaker == Speaker::Tool);
        Ok(match told {
            None => ChatResponse::calling(vec![ToolCall::new("1", "ask", json!({}))]),
            Some(told) => ChatResponse::new(format!("painted {}", told.text())),
        })
    });
    let more = json!({"tools": {"ask": {}}, "agents": {
        "lead": {"instruction": "Lead.", "use": ["painter"]},
        "painter": {"instruction": "Paint.", "tools": ["ask"]},
    }});
    let definition = flow(
        &more,
        json!([{"parallel": [{"agent": "painter"}, {"ask": "And the size?"}]}]),
    );
    let world = World::new(&definition, registry([ask]), model);
    world.request(json!({})).await;

    world.works_until(ASKED, 2).await;
    for asked in world.store.recent(ASKED, 10).await.unwrap() {
        let is_color = asked.context.text("question") == Some("Which color?");
        answer(
            &world,
            &asked,
            json!({"answer": if is_color { "red" } else { "large" }}),
        )
        .await;
        drop(world.works_until(ASKED, 2).await);
    }
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], json!(["painted red", "large"]));
    assert_eq!(world.model.requests().len(), 2);
}

#[tokio::test]
async fn an_agent_asked_by_another_may_ask_a_person() {
    let ask = json_tool("ask", "Asks a person.", json!({}), |_, _| async {
        Err(ask_human(Question::new("Which color?")))
    });
    let model = ScriptedModel::answering(|_, request| {
        let told = request
            .messages
            .iter()
            .find(|message| message.speaker == Speaker::Tool);
        let told = told.map(|told| told.text().into_owned());
        Ok(match (shown(request).contains("Lead."), told) {
            (true, None) => ChatResponse::calling(vec![ToolCall::new(
                "1",
                "painter",
                json!({"prompt": "Paint it."}),
            )]),
            (false, None) => ChatResponse::calling(vec![ToolCall::new("1", "ask", json!({}))]),
            (_, Some(told)) => ChatResponse::new(format!("{told}!")),
        })
    });
    let more = json!({"tools": {"ask": {}}, "agents": {
        "lead": {"instruction": "Lead.", "use": ["painter"]},
        "painter": {"instruction": "Paint.", "tools": ["ask"]},
    }});
    let world = World::new(
        &flow(&more, json!([{"agent": "lead"}])),
        registry([ask]),
        model,
    );
    world.request(json!({})).await;

    let asked = world.works_until(ASKED, 1).await;
    answer(&world, &asked, json!({"answer": "red"})).await;
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], "red!!");
    assert_eq!(world.model.requests().len(), 4);
}

#[tokio::test]
async fn a_tool_that_needs_approval_is_called_once_if_approved_and_never_if_rejected() {
    for (approved, expected) in [(true, 1), (false, 0)] {
        let (pay, calls) = tool("pay", |_, _| Ok(json!("paid")));
        let definition = flow(
            &json!({"tools": {"pay": {"approval": true}}}),
            json!([{"tool": "pay", "input": {"amount": 3}}]),
        );
        let world = World::new(&definition, registry([pay.at_most_once()]), no_model());
        world.request(json!({})).await;

        let asked = world.works_until(ASKED, 1).await;
        answer(&world, &asked, json!({"approved": approved})).await;
        let result = world.works_until(RESULT, 1).await;

        assert_eq!(asked.context["arguments"], json!({"amount": 3}));
        assert_eq!(calls.load(Ordering::SeqCst), expected);
        let status = if approved { "success" } else { "error" };
        assert_eq!(result.context["status"], status, "{result:?}");
    }
}

#[tokio::test]
async fn a_wait_ignores_earlier_and_non_matching_breadcrumbs() {
    let definition = flow(
        &json!({}),
        json!([
            {"emit": {"schema_name": "ready.v1"}},
            {"wait_for": {"schema_name": "paid.v1", "context_match": [{"path": "$.order", "op": "eq", "value": "${input.order}"}]}},
        ]),
    );
    let world = World::new(&definition, ToolRegistry::default(), no_model());
    let paid =
        |order: u32| NewBreadcrumb::new("paid.v1").context(json!({"order": order, "by": "ann"}));
    world.store.create(paid(7)).await.unwrap();
    world.request(json!({"order": 7})).await;

    world.works_until("ready.v1", 1).await;
    world.store.create(paid(8)).await.unwrap();
    world.works_until("paid.v1", 2).await;
    assert!(world.store.latest(RESULT).await.unwrap().is_none());
    world.store.create(paid(7)).await.unwrap();
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], json!({"order": 7, "by": "ann"}));
}

#[tokio::test]
async fn a_run_that_waits_is_cancelled_by_an_order() {
    let definition = flow(&json!({}), json!([{"ask": "Go on?"}]));
    let world = World::new(&definition, ToolRegistry::default(), no_model());
    let request = world.request(json!({})).await;

    world.works_until(ASKED, 1).await;
    world.orders(Control::Cancel, &request).await;
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["status"], "cancelled");
}

#[tokio::test]
async fn a_cancel_order_cancels_a_running_run_and_stops_its_tool() {
    let is_at_work = Arc::new(());
    let held = Arc::downgrade(&is_at_work);
    let begun = Arc::new(tokio::sync::Notify::new());
    let begins = Arc::clone(&begun);
    let slow = json_tool("slow", "", json!({}), move |_, _| {
        let held = Arc::clone(&is_at_work);
        begins.notify_one();
        async move {
            std::future::pending::<()>().await;
            drop(held);
            Ok(json!(1))
        }
    });
    let slow = slow.timeout(600 * SECOND);
    let world = World::new(
        &flow(&json!({"tools": {"slow": {}}}), json!([{"tool": "slow"}])),
        registry([slow]),
        no_model(),
    );
    let request = world.request(json!({})).await;

    let cancelled = async {
        begun.notified().await;
        world.orders(Control::Cancel, &request).await;
    };
    let result = world.works_until(RESULT, 1);
    let (result, ()) = tokio::join!(result, cancelled);

    assert_eq!(result.context["status"], "cancelled");
    assert_eq!(held.strong_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_at_work_learns_of_an_order_at_once_and_does_not_poll_the_store() {
    let begun = Arc::new(tokio::sync::Notify::new());
    let begins = Arc::clone(&begun);
    let slow = json_tool("slow", "", json!({}), move |_, _| {
        begins.notify_one();
        std::future::pending()
    });
    let services = Services::new().tool(slow.timeout(600 * SECOND)).unwrap();
    let (store, searches) = (MemoryStore::default(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&searches);
    let counting = Faulty::new(store.clone(), move |operation, moment| {
        if (operation, moment) == (Operation::Search, Moment::Before) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Fault::None
    });
    let definition = flow(&json!({"tools": {"slow": {}}}), json!([{"tool": "slow"}]));
    let running = Runtime::builder(store.events())
        .executor(executor(&definition, &services, Arc::new(counting)))
        .start()
        .await
        .unwrap();
    let request = json!({"workflow": ID, "input": {}});
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(request);
    let request = store.create(request).await.unwrap();
    begun.notified().await;

    // The time is longer than the interval of a frequent check, and shorter than the interval of the check for lost events.
    let before = searches.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(9_500)).await;
    assert_eq!(searches.load(Ordering::SeqCst), before);
    let ordered = tokio::time::Instant::now();
    let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
    store.create(Control::Cancel.of(request.id)).await.unwrap();
    while events
        .next()
        .await
        .unwrap()
        .unwrap()
        .event
        .schema_name
        .as_deref()
        != Some(RESULT)
    {}

    assert!(ordered.elapsed() < Duration::from_millis(100));
    let result = store.latest(RESULT).await.unwrap().unwrap();
    assert_eq!(result.context["status"], "cancelled");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_run_that_is_cancelled_before_it_begins_does_nothing() {
    let (work, calls) = tool("work", |_, _| Ok(json!("done")));
    let definition = flow(&json!({"tools": {"work": {}}}), json!([{"tool": "work"}]));
    let world = World::new(&definition, registry([work]), no_model());
    let request = world.request(json!({})).await;
    world.orders(Control::Cancel, &request).await;

    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["status"], "cancelled");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

/// Returns a tool that fails once and is retried after at most this number of seconds.
fn fails_once(seconds: u32) -> (World, Arc<AtomicUsize>) {
    let (work, calls) = tool("work", |number, _| match number {
        1 => Err("the first time it fails".into()),
        _ => Ok(json!("done")),
    });
    let retry = json!({"attempts": 3, "base_seconds": seconds});
    let definition = flow(
        &json!({"tools": {"work": {}}}),
        json!([{"tool": "work", "retry": retry}]),
    );
    let world = World::new(&definition, registry([work.idempotent()]), no_model());
    (world, calls)
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_made_after_a_cancel_that_came_while_it_was_waited_for() {
    let (world, calls) = fails_once(4);
    let request = world.request(json!({})).await;

    let event = Event::created(&request);
    let cancelled = async {
        tokio::time::sleep(SECOND / 2).await;
        world.orders(Control::Cancel, &request).await;
    };
    let (worked, ()) = tokio::join!(world.executor.process_event(&event), cancelled);

    worked.unwrap();
    assert_eq!(world.result().await["status"], "cancelled");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// Runs a new runtime for this time.
async fn works_for(world: &World, time: Duration) {
    let runtime = Runtime::builder(world.store.events())
        .start_at(StartAt::Beginning)
        .executor(world.executor.clone())
        .build()
        .unwrap();
    runtime.run_until(tokio::time::sleep(time)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_paused_before_a_retry_makes_the_retry_after_it_resumes() {
    let (world, calls) = fails_once(60);
    let request = world.request(json!({})).await;

    works_for(&world, SECOND).await;
    world.orders(Control::Pause, &request).await;
    works_for(&world, 600 * SECOND).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    world.orders(Control::Resume, &request).await;
    works_for(&world, 600 * SECOND).await;

    assert_eq!(world.result().await["output"], "done");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn an_at_most_once_remote_tool_is_requested_once_even_without_a_response() {
    use universal_executor::tool::remote_tool;
    let remote = remote_tool("far", "Far away.", json!({"type": "object"}));
    let here = json_tool("far", "Far away.", json!({}), |_, _| async { Ok(json!(1)) });
    let remote = ToolRegistry::default().with(remote.at_most_once());
    let moved = ToolRegistry::default().with(here.at_most_once().over_breadcrumbs());
    for tools in [remote.unwrap(), moved.unwrap()] {
        let definition = flow(
            &json!({"tools": {"far": {}}}),
            json!([{"tool": "far", "input": {}, "retry": 3, "timeout_seconds": 60}]),
        );
        let world = World::new(&definition, tools, no_model());
        world.request(json!({})).await;

        works_for(&world, 600 * SECOND).await;

        let asked = world.store.recent("tool.request.v1", 10).await.unwrap();
        assert_eq!(asked.len(), 1);
        let error = &world.result().await["error"];
        assert_eq!(error["code"], "timed_out");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("may have done its work"), "{message}");
    }
}

#[tokio::test]
async fn a_paused_run_starts_no_step_until_it_resumes_and_accepts_answers() {
    let (after, calls) = tool("after", |_, _| Ok(json!("done")));
    let definition = flow(
        &json!({"tools": {"after": {}}}),
        json!([{"ask": "Go on?"}, {"tool": "after"}]),
    );
    let world = World::new(&definition, registry([after]), no_model());
    let request = world.request(json!({})).await;

    let asked = world.works_until(ASKED, 1).await;
    world.orders(Control::Pause, &request).await;
    world.works_until("workflow.control.v1", 1).await;
    answer(&world, &asked, json!({"answer": "yes"})).await;
    world.works_until("human.response.v1", 1).await;
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    world.orders(Control::Resume, &request).await;
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], "done");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_tool_that_is_served_elsewhere_is_asked_by_a_breadcrumb() {
    use universal_executor::tool::remote_tool;
    let tools = ToolRegistry::default()
        .with(remote_tool("far", "Far away.", json!({"type": "object"})))
        .unwrap();
    let definition = flow(
        &json!({"tools": {"far": {}}}),
        json!([{"tool": "far", "input": {"n": 1}}]),
    );
    let world = World::new(&definition, tools, no_model());
    world.request(json!({})).await;

    let asked = world.works_until("tool.request.v1", 1).await;
    let id = asked.context.text("requestId").unwrap();
    let response = NewBreadcrumb::new("tool.response.v1")
        .tag(format!("request:{id}"))
        .context(json!({"request_id": id, "tool": "far", "status": "success", "output": {"n": 2}}));
    world.store.create(response).await.unwrap();
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], json!({"n": 2}));
}

#[tokio::test]
async fn a_response_of_an_executor_to_something_else_is_not_the_result_of_a_step() {
    use universal_executor::tool::remote_tool;
    let tools = ToolRegistry::default()
        .with(remote_tool("far", "Far away.", json!({"type": "object"})))
        .unwrap();
    let definition = flow(
        &json!({"tools": {"far": {}}}),
        json!([{"tool": "far", "input": {}}]),
    );
    let world = World::new(&definition, tools, no_model());
    world.request(json!({})).await;
    let asked = world.works_until("tool.request.v1", 1).await;
    let id = asked.context.text("requestId").unwrap().to_owned();
    let says = move |output: &str| {
        let context =
            json!({"request_id": id, "tool": "far", "status": "success", "output": output});
        NewBreadcrumb::new("tool.response.v1")
            .tag(format!("request:{id}"))
            .context(context)
    };

    // The library stamps an executor's trigger into the breadcrumbs that it writes.
    let go = world
        .store
        .create(NewBreadcrumb::new("go.v1"))
        .await
        .unwrap();
    let mut forged = says("forged").context.into_value();
    forged["creator"] = json!({"id": "eve", "trigger_id": go.id, "trigger_version": 1});
    let forged = says("forged").created_by("eve").context(forged);
    world.store.create(forged).await.unwrap();
    world.store.create(says("real")).await.unwrap();
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], "real");
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_question_that_was_changed_does_not_count() {
    let definition = flow(
        &json!({}),
        json!([{"try": [{"ask": "Go on?", "timeout_seconds": 60}], "on_failure": [{"return": "${error.code}"}]}]),
    );
    let world = World::new(&definition, ToolRegistry::default(), no_model());
    world.request(json!({})).await;
    works_for(&world, SECOND).await;
    let asked = world.store.latest(ASKED).await.unwrap().unwrap();

    let title = universal_executor::Patch::new().title("Stop?");
    world
        .store
        .update(asked.id, asked.version, title)
        .await
        .unwrap();
    answer(&world, &asked, json!({"answer": "yes"})).await;
    works_for(&world, 600 * SECOND).await;

    assert_eq!(world.result().await["output"], "timed_out");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_times_out_fails_its_step() {
    let definition = flow(
        &json!({}),
        json!([{"try": [{"ask": "Go on?", "timeout_seconds": 60}], "on_failure": [{"return": "${error.code}"}]}]),
    );
    let world = World::new(&definition, ToolRegistry::default(), no_model());
    world.request(json!({})).await;
    let runtime = Runtime::builder(world.store.events())
        .start_at(StartAt::Beginning)
        .executor(world.executor.clone())
        .build()
        .unwrap();
    let found = async {
        while world.store.latest(RESULT).await.unwrap().is_none() {
            tokio::time::sleep(SECOND).await;
        }
    };
    tokio::time::timeout(600 * SECOND, runtime.run_until(found))
        .await
        .unwrap()
        .unwrap();

    assert_eq!(world.result().await["output"], "timed_out");
}
