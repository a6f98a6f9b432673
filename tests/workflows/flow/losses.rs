//! Runs that lose their worker, exceed their time or meet store errors. Runs that make progress reach their end, and other runs
//! are abandoned.

use super::*;
use std::ops::RangeInclusive;
use universal_executor::Profile;
use universal_executor::store::{FailureClass, Operation};

/// Returns a tool with a duration per step, and the started steps. Without a duration, the call never ends and its worker is lost.
pub(super) fn timed<F>(name: &str, takes: F) -> (JsonTool, Arc<Mutex<Vec<u64>>>)
where
    F: Fn(u64, usize) -> Option<Duration> + Send + Sync + 'static,
{
    let begun: Arc<Mutex<Vec<u64>>> = Arc::default();
    let noted = Arc::clone(&begun);
    let tool = json_tool(name, "", json!({}), move |input, _| {
        let step = input["step"].as_u64().unwrap();
        let mut begun = noted.lock().unwrap();
        begun.push(step);
        let takes = takes(step, begun.iter().filter(|other| **other == step).count());
        async move {
            match takes {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
            Ok(json!(step))
        }
    });
    (tool.timeout(10_000 * SECOND), begun)
}

fn work(step: u64) -> Value {
    json!({"tool": "work", "input": {"step": step}})
}

/// Returns a definition with parallel branches.
fn beside(branches: &Value) -> Value {
    flow(
        &json!({"tools": {"work": {}}}),
        json!([{"parallel": branches}]),
    )
}

/// Returns the outcome of a run whose workers are each lost after a minute, and the number of workers.
async fn outlives(world: &World) -> (Outcome, usize) {
    let request = world.request(json!({})).await;
    let event = Event::created(&request);
    for workers in 1..60 {
        let worker = world.executor.process_event(&event);
        match tokio::time::timeout(60 * SECOND, worker).await {
            Ok(Ok(Outcome::Suspended { .. })) => {}
            Ok(ended) => return (ended.unwrap(), workers),
            Err(_) => tokio::time::advance(60 * SECOND).await,
        }
    }
    panic!("the run did not end in time");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_loses_its_worker_after_each_step_completes() {
    let (tool, begun) = timed("work", |_, time| (time > 1).then_some(SECOND));
    let steps: Vec<_> = (1..=8).map(work).collect();
    let definition = flow(&json!({"tools": {"work": {}}}), steps.into());
    let world = World::new(&definition, registry([tool.idempotent()]), no_model());

    let (ended, workers) = outlives(&world).await;

    assert!(matches!(ended, Outcome::Responded { .. }), "{ended:?}");
    assert_eq!(world.result().await["output"], 8);
    let begun = begun.lock().unwrap().clone();
    assert_eq!(begun, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]);
    assert_eq!(
        workers, 16,
        "each step loses one worker and is ended by another"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_loses_its_worker_three_times_at_one_step_is_a_crash_loop() {
    let poison = work(99);
    let steps = |from: u64, to: u64| -> Vec<Value> { (from..=to).map(work).collect() };
    let mut one_by_one = steps(1, 4);
    one_by_one.push(poison.clone());
    let beside = json!([{"parallel": [{"steps": steps(100, 300)}, poison]}]);
    for steps in [json!(one_by_one), beside] {
        let (tool, begun) = timed("work", |step, _| (step != 99).then_some(SECOND));
        let definition = flow(&json!({"tools": {"work": {}}}), steps);
        let world = World::new(&definition, registry([tool.idempotent()]), no_model());

        let (ended, workers) = outlives(&world).await;

        let is_crash_loop =
            matches!(&ended, Outcome::Failed { class, .. } if *class == FailureClass::CrashLoop);
        assert!(is_crash_loop, "{ended:?}");
        let begun = begun.lock().unwrap().clone();
        assert_eq!(begun.iter().filter(|step| **step == 99).count(), 3);
        assert_eq!(workers, 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_takes_longer_than_its_run_may_ends_without_a_step_that_is_cut_off() {
    let (tool, begun) = timed("work", |_, _| Some(3 * SECOND));
    let steps: Vec<_> = (1..=8).map(work).collect();
    let definition = flow(&json!({"tools": {"work": {}}}), steps.into());
    let store = MemoryStore::default();
    let services = Services::new().tools(registry([tool]));
    let profile = Profile::new("workflow").timeout(10 * SECOND).attempts(1);
    let executor = executor(&definition, &services, Arc::new(store.clone())).with_profile(profile);
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(json!({"workflow": ID}));
    store.create(request).await.unwrap();
    // The sweep finds nothing in time, so a run that yields must wake the next attempt itself.
    let runtime = Runtime::builder(store.events())
        .start_at(StartAt::Beginning)
        .sweep_every(10_000 * SECOND)
        .reconcile_every(10_000 * SECOND)
        .executor(Arc::new(executor))
        .build()
        .unwrap();

    let is_over = async {
        while store.latest(RESULT).await.unwrap().is_none() {
            tokio::time::sleep(SECOND).await;
        }
    };
    let worked = tokio::time::timeout(60 * SECOND, runtime.run_until(is_over)).await;

    assert!(worked.is_ok(), "the run did not end in time");
    let result = store.latest(RESULT).await.unwrap();
    let result = result.unwrap();
    assert_eq!(result.context["output"], 8, "{result:?}");
    assert_eq!(*begun.lock().unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Creates a world whose store fails at the operations with these numbers. `done` counts the successful operations.
pub(super) fn failing(
    definition: &Value,
    (tools, model): (ToolRegistry, ScriptedModel),
    (fails, at): (Operation, RangeInclusive<usize>),
    done: &Arc<AtomicUsize>,
) -> World {
    let (store, model) = (MemoryStore::default(), Arc::new(model));
    let (begun, done) = (AtomicUsize::new(0), Arc::clone(done));
    let faulty = Faulty::new(store.clone(), move |operation, moment| {
        match (operation == fails, moment) {
            (true, Moment::Before) if at.contains(&(begun.fetch_add(1, Ordering::SeqCst) + 1)) => {
                return Fault::Fail;
            }
            (true, Moment::After) => drop(done.fetch_add(1, Ordering::SeqCst)),
            (_, _) => {}
        }
        Fault::None
    });
    let services = Services::new().tools(tools);
    let services = services.default_model(Arc::clone(&model));
    World {
        executor: Arc::new(executor(definition, &services, Arc::new(faulty))),
        store,
        changed: Arc::default(),
        model,
        events: Arc::default(),
    }
}

/// Returns the result of a run whose first attempt ends with a store error.
async fn fails_and_goes_on(world: &World) -> Value {
    let request = world.request(json!({})).await;
    let event = Event::created(&request);
    let first = tokio::time::timeout(120 * SECOND, world.executor.process_event(&event)).await;
    assert!(
        matches!(first, Ok(Err(ExecutorError::Postponed { .. }))),
        "{first:?}"
    );
    goes_on(&world.executor, &event).await.unwrap();
    world.result().await
}

#[tokio::test(start_paused = true)]
async fn the_results_of_sibling_steps_are_saved_when_a_step_has_a_store_error() {
    let (tool, begun) = timed("work", |_, _| Some(5 * SECOND));
    let branches =
        json!([{"emit": {"schema_name": "note.v1"}}, work(1), {"steps": [work(2), work(3)]}]);
    let definition = beside(&branches);
    // The first commit saves the definition.
    let world = failing(
        &definition,
        (registry([tool]), no_model()),
        (Operation::Commit, 2..=2),
        &Arc::default(),
    );

    let result = fails_and_goes_on(&world).await;

    assert_eq!(result["output"], json!([null, 1, 3]), "{result}");
    assert_eq!(*begun.lock().unwrap(), [1, 2, 3]);
    assert_eq!(world.store.recent("note.v1", 10).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_the_last_step_survives_a_failed_commit_of_the_response() {
    let (tool, begun) = timed("work", |_, _| Some(SECOND));
    let definition = flow(&json!({"tools": {"work": {}}}), json!([work(1)]));
    // The first commit saves the definition.
    let world = failing(
        &definition,
        (registry([tool]), no_model()),
        (Operation::Commit, 2..=2),
        &Arc::default(),
    );

    let result = fails_and_goes_on(&world).await;

    assert_eq!(result["output"], json!(1), "{result}");
    assert_eq!(*begun.lock().unwrap(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_start_cannot_be_saved_does_not_start_and_its_siblings_finish() {
    let (tool, begun) = timed("work", |step, _| Some(step as u32 * SECOND));
    let branches = json!([{"steps": [work(1), work(2)]}, work(5)]);
    let definition = beside(&branches);
    // The second save precedes step 2.
    let world = failing(
        &definition,
        (registry([tool]), no_model()),
        (Operation::Save, 2..=2),
        &Arc::default(),
    );

    let result = fails_and_goes_on(&world).await;

    assert_eq!(result["output"], json!([2, 5]), "{result}");
    assert_eq!(*begun.lock().unwrap(), [1, 5, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_calls_a_tool_only_after_the_call_is_saved_despite_failed_saves() {
    let saved = Arc::new(AtomicUsize::new(0));
    let saves = Arc::clone(&saved);
    let (slow, begun) = timed("work", |_, _| Some(5 * SECOND));
    let (pay, calls) = tool("pay", move |_, _| Ok(json!(saves.load(Ordering::SeqCst))));
    let model = ScriptedModel::answering(|_, request| {
        let mut messages = request.messages.iter();
        let result = messages.find(|message| message.speaker == Speaker::Tool);
        Ok(match result {
            Some(result) => ChatResponse::new(result.text().into_owned()),
            None => ChatResponse::calling(vec![ToolCall::new("1", "pay", json!({}))]),
        })
    });
    let more = json!({
        "tools": {"work": {}, "pay": {}}, "agents": {"a": {"instruction": "A", "tools": ["pay"]}},
    });
    let definition = flow(&more, json!([{"parallel": [{"agent": "a"}, work(1)]}]));
    let parts = (registry([slow, pay.at_most_once()]), model);
    // The second save records the call, and the third one repeats the second.
    let world = failing(&definition, parts, (Operation::Save, 2..=3), &saved);

    let result = world.result_of(json!({})).await;

    assert_eq!(result["output"], json!(["2", 1]), "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(*begun.lock().unwrap(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_sibling_that_does_not_end_does_not_keep_an_attempt_with_an_error_from_ending() {
    let (tool, begun) = timed("work", |_, time| (time > 1).then_some(SECOND));
    let branches = json!([{"emit": {"schema_name": "note.v1"}}, work(1)]);
    let definition = beside(&branches);
    let parts = (registry([tool.idempotent()]), no_model());
    let world = failing(
        &definition,
        parts,
        (Operation::Commit, 2..=2),
        &Arc::default(),
    );

    let result = fails_and_goes_on(&world).await;

    assert_eq!(result["status"], "success", "{result}");
    assert_eq!(*begun.lock().unwrap(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_step_is_saved_even_if_two_saves_fail() {
    let (pay, calls) = tool("pay", |_, _| Ok(json!("paid")));
    let (next, _) = tool("next", |_, _| Ok(json!("next")));
    let definition = flow(
        &json!({"tools": {"pay": {}, "next": {}}}),
        json!([{"tool": "pay"}, {"tool": "next"}]),
    );
    let parts = (registry([pay.at_most_once(), next]), no_model());
    // The second save records the payment, and the third one is the attempt's last save.
    let world = failing(
        &definition,
        parts,
        (Operation::Save, 2..=3),
        &Arc::default(),
    );

    let result = fails_and_goes_on(&world).await;

    assert_eq!(result["output"], "next", "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// Creates a world whose attempts have a time limit in seconds, and whose steps call a tool.
fn in_time(steps: Value, tool: JsonTool, seconds: u32) -> World {
    let definition = flow(&json!({"tools": {"work": {}}}), steps);
    let store = MemoryStore::default();
    let services = Services::new().tools(registry([tool]));
    let profile = Profile::new("workflow").timeout(seconds * SECOND);
    let executor = executor(&definition, &services, Arc::new(store.clone())).with_profile(profile);
    World {
        executor: Arc::new(executor),
        store,
        changed: Arc::default(),
        model: Arc::new(no_model()),
        events: Arc::default(),
    }
}

/// Returns the result of a run that yields to further attempts.
async fn goes_on_to_its_end(world: &World) -> Value {
    let request = world.request(json!({})).await;
    let ended = goes_on(&world.executor, &Event::created(&request)).await;
    assert!(matches!(ended, Ok(Outcome::Responded { .. })), "{ended:?}");
    world.result().await
}

#[tokio::test(start_paused = true)]
async fn a_step_shorter_than_four_fifths_of_the_timeout_is_never_interrupted() {
    let times = [3, 8, 2, 7, 1, 8, 6];
    let (tool, begun) = timed("work", move |step, _| {
        Some(times[usize::try_from(step).unwrap()] * SECOND)
    });
    let steps: Vec<_> = (0..7).map(work).collect();
    let world = in_time(steps.into(), tool, 10);

    let result = goes_on_to_its_end(&world).await;

    assert_eq!(result["output"], 6, "{result}");
    assert_eq!(*begun.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6]);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_takes_long_does_not_keep_the_other_branches_from_going_on() {
    let short: Vec<_> = (1..=10).map(work).collect();
    let branches = json!([{"parallel": [{"steps": [work(60), work(99)]}, {"steps": short}]}]);
    let takes = |step: u64| Some(if step == 60 { 60 } else { 3 } * SECOND);
    let (tool, begun) = timed("work", move |step, _| takes(step));
    let world = in_time(branches, tool, 100);

    let result = goes_on_to_its_end(&world).await;

    assert_eq!(result["output"], json!([99, 10]), "{result}");
    let begun = begun.lock().unwrap().clone();
    assert_eq!(begun, [60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 99]);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_takes_long_does_not_keep_the_other_branches_from_going_on_after_a_crash_either()
 {
    let short: Vec<_> = (1..=10).map(work).collect();
    let branches = json!([{"parallel": [{"steps": [work(60), work(99)]}, {"steps": short}]}]);
    let (tool, begun) = timed("work", |step, time| match (step, time) {
        (60, 1) => None,
        (60, _) => Some(600 * SECOND),
        _ => Some(3 * SECOND),
    });
    let world = in_time(branches, tool.idempotent(), 3_600);
    let request = world.request(json!({})).await;
    let event = Event::created(&request);
    let lost = tokio::time::timeout(SECOND, world.executor.process_event(&event)).await;
    assert!(lost.is_err(), "{lost:?}");

    goes_on(&world.executor, &event).await.unwrap();

    let result = world.result().await;
    assert_eq!(result["output"], json!([99, 10]), "{result}");
    let begun = begun.lock().unwrap().clone();
    assert_eq!(begun, [60, 1, 60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 99]);
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_any_more_when_the_time_is_nearly_over_although_another_step_is_at_work() {
    let row: Vec<_> = (1..=8).map(work).collect();
    let branches = json!([{"parallel": [work(95), {"steps": row}]}]);
    let takes = |step: u64| Some(if step == 95 { 95 } else { 16 } * SECOND);
    let (tool, begun) = timed("work", move |step, _| takes(step));
    let world = in_time(branches, tool, 100);

    let result = goes_on_to_its_end(&world).await;

    assert_eq!(result["output"], json!([95, 8]), "{result}");
    assert_eq!(*begun.lock().unwrap(), [95, 1, 2, 3, 4, 5, 6, 7, 8]);
}
