//! Tests of the work limits of steps: searches and regular expressions.

use super::*;
use crate::model::Selector;

/// Returns a workflow with default limits.
fn workflow(flows: Value) -> Arc<Workflow> {
    let mut definition = definition(flows);
    definition["policies"] = json!({});
    Arc::new(Workflow::from_json(&definition).unwrap())
}

/// Runs a flow whose steps need no driver, and returns its output or failure.
fn end_of(steps: &Value, input: Value) -> Result<Value, StepFailure> {
    let workflow = workflow(json!({"main": {"steps": steps}}));
    let (_, next) = FlowRun::begin(workflow, "main", "run", input).unwrap();
    match next.finished.expect("the flow needs no driver") {
        Finish::Completed { output } => Ok(output.into_value()),
        Finish::Failed { failure } => Err(failure),
        Finish::Cancelled => panic!("the run was cancelled unexpectedly"),
    }
}

/// Returns a list that takes about 400,000 steps to search.
fn list() -> Value {
    json!({"items": vec![0; 100_000]})
}

#[test]
fn the_paths_of_one_step_search_no_more_than_a_limit_together() {
    let searches = |count: usize| json!([{"return": vec!["${input..nothing}"; count]}]);
    let tests = |count: usize| {
        let test = json!({"path": "input.items[?@ == 1]", "op": "exists", "value": true});
        json!([{"if": {"any": vec![test; count]}, "then": [{"return": 1}]}, {"return": 0}])
    };

    assert!(end_of(&searches(5), list()).is_ok());
    assert_eq!(end_of(&tests(5), list()), Ok(json!(0)));
    for steps in [searches(20), tests(20)] {
        let failure = end_of(&steps, list()).unwrap_err();
        assert_eq!(failure.code, "too_much_work", "{failure:?}");
        assert!(failure.message.contains("4194304 steps"), "{failure:?}");
    }
}

#[test]
fn each_step_may_search_as_much_as_the_one_before() {
    let steps = json!([
        {"loop": [{"set": {"found": "${input..nothing}"}}], "max": 20},
        {"return": "${found}"},
    ]);

    assert_eq!(end_of(&steps, list()), Ok(json!([])));
}

#[test]
fn a_run_compiles_only_so_many_patterns_with_variables() {
    let steps = |pattern: &str, max: usize| {
        let tests: Vec<_> = (0..100)
            .map(|_| json!({"path": "input.text", "op": "matches", "value": pattern}))
            .collect();
        json!([{"loop": [{"if": {"any": tests}, "then": [{"return": 1}]}], "max": max}, {"return": 0}])
    };
    let input = || json!({"text": "a", "pattern": "b"});

    assert_eq!(end_of(&steps("b", 12), input()), Ok(json!(0)));
    assert_eq!(
        end_of(&steps("${input.pattern}", 10), input()),
        Ok(json!(0))
    );
    let failure = end_of(&steps("${input.pattern}", 11), input()).unwrap_err();
    assert_eq!(failure.code, "too_much_work", "{failure:?}");
    assert!(failure.message.contains("1000 regular"), "{failure:?}");
}

#[test]
fn a_run_that_continues_has_not_compiled_fewer_patterns() {
    let test = json!({"path": "input.text", "op": "matches", "value": "${input.pattern}"});
    let steps = json!([
        {"loop": [{"if": {"any": vec![test.clone(); 99]}, "then": [{"return": 1}]}], "max": 10},
        {"tool": "search"},
        {"loop": [{"if": test, "then": [{"return": 1}]}], "max": 11},
        {"return": 0},
    ]);
    let workflow = workflow(json!({"main": {"steps": steps}}));
    let input = json!({"text": "a", "pattern": "b"});
    let (run, _) = FlowRun::begin(Arc::clone(&workflow), "main", "run", input).unwrap();
    let saved = serde_json::to_string(run.progress()).unwrap();
    let mut run = FlowRun::restore(workflow, serde_json::from_str(&saved).unwrap()).unwrap();

    let next = run.tell(&"main/1".into(), 1, StepOutcome::success(json!(1)));

    let Some(Finish::Failed { failure }) = next.finished else {
        panic!("{next:?}");
    };
    assert_eq!(failure.code, "too_much_work", "{failure:?}");
}

/// Returns the selectors of the ready `wait_for` steps.
fn awaited(next: &Next) -> Vec<Selector> {
    let tasks = next.ready.iter().map(|ready| &ready.task);
    tasks
        .map(|task| match task {
            StepTask::WaitFor { event } => event.clone(),
            other => panic!("{other:?} is not a wait for an event"),
        })
        .collect()
}

fn waits(conditions: &Value) -> Value {
    let items: Vec<_> = (0..20).collect();
    json!({"main": {"steps": [{
        "for_each": items, "at_once": 20, "join": "all",
        "steps": [{"wait_for": {"schema_name": "a.v1", "context_match": conditions}}],
    }]}})
}

#[test]
fn steps_that_wait_for_the_same_event_share_one_compiled_selector() {
    let conditions = json!([{"path": "$.a", "op": "matches", "value": "x+"}]);
    let workflow = workflow(waits(&conditions));

    let (run, next) = FlowRun::begin(workflow, "main", "run", json!({})).unwrap();

    let mut selectors = awaited(&next);
    assert_eq!(selectors.len(), 20);
    let restored: Vec<_> = run.outstanding();
    let restored = Next {
        ready: restored,
        ..Next::default()
    };
    selectors.extend(awaited(&restored));
    let first = selectors[0].conditions().as_ptr();
    for selector in &selectors {
        assert!(std::ptr::eq(selector.conditions().as_ptr(), first));
    }
}
