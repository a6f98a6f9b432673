//! Rules for the event streams of all workloads.

use crate::workload::{agent, events, flow, parrot, setup};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use universal_executor::MemoryStore;
use universal_executor::workflow::FlowEventKind;
use universal_executor::workload::{WorkloadEvent, WorkloadEventKind};

/// Fails unless the events are one complete and correctly nested run.
pub(crate) fn check(events: &[WorkloadEvent]) {
    let numbers = events.iter().map(|event| event.sequence);
    assert!(numbers.eq(1..=events.len() as u64), "{events:?}");
    assert_eq!(events[0].kind, WorkloadEventKind::Started);
    let starts = events
        .iter()
        .filter(|event| event.kind == WorkloadEventKind::Started);
    assert_eq!(starts.count(), 1, "{events:?}");
    let (last, before) = events.split_last().unwrap();
    assert!(
        last.kind.is_end() && !before.iter().any(|event| event.kind.is_end()),
        "{events:?}"
    );
    assert!(
        events.iter().all(|event| event.run == last.run),
        "{events:?}"
    );
    assert!(
        events.windows(2).all(|two| two[0].at <= two[1].at),
        "{events:?}"
    );

    let mut open: BTreeSet<&str> = BTreeSet::new();
    let below = |path: &str, outer: &str| {
        path.strip_prefix(outer)
            .is_some_and(|rest| rest.starts_with(['/', '#']))
    };
    for event in events {
        let path = event.path.as_str();
        let kind = match &event.kind {
            WorkloadEventKind::Step(kind) => kind,
            WorkloadEventKind::Restarted { .. } => {
                assert!(open.is_empty(), "steps {open:?} did not end: {events:?}");
                continue;
            }
            _ => continue,
        };
        match kind {
            FlowEventKind::Started => {
                let is_root = open.is_empty();
                assert!(
                    is_root || open.iter().any(|outer| below(path, outer)),
                    "{path}: {events:?}"
                );
                assert!(open.insert(path), "step {path} started twice: {events:?}");
            }
            FlowEventKind::Finished | FlowEventKind::Failed(_) | FlowEventKind::Cancelled => {
                assert!(
                    !open.iter().any(|inner| below(inner, path)),
                    "{path}: {events:?}"
                );
                assert!(
                    open.remove(path),
                    "step {path} ended without a start: {events:?}"
                );
            }
            _ => assert!(open.contains(path), "{path}: {events:?}"),
        }
    }
    let waits = matches!(last.kind, WorkloadEventKind::Suspended { .. });
    assert!(waits || open.is_empty(), "{open:?} did not end: {events:?}");
}

/// Fails unless the events are numbered without gaps and have one end. A resumed run can end steps that started earlier.
#[cfg(all(feature = "validate", feature = "yaml"))]
pub(crate) fn check_end(events: &[WorkloadEvent]) {
    let numbers = events.iter().map(|event| event.sequence);
    assert!(numbers.eq(1..=events.len() as u64), "{events:?}");
    let ends = events.iter().filter(|event| event.kind.is_end()).count();
    assert!(
        ends == 1 && events.last().unwrap().kind.is_end(),
        "{events:?}"
    );
}

/// Generates steps that succeed, fail, repeat and branch.
fn any_steps() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"agent": "a"})),
        Just(json!({"tool": "double", "input": {"n": 2}})),
        Just(json!({"set": {"x": 1}})),
        Just(json!({"fail": "No."})),
        Just(json!({"return": 7})),
    ];
    let step = leaf.prop_recursive(3, 24, 3, |step| {
        let steps = || prop::collection::vec(step.clone(), 1..4).prop_map(Value::from);
        let join = prop::sample::select(vec!["all", "fail_fast", "first"]);
        prop_oneof![
            (steps(), join.clone())
                .prop_map(|(steps, join)| json!({"parallel": steps, "join": join})),
            (steps(), 1..4).prop_map(|(steps, max)| json!({"loop": steps, "max": max})),
            (steps(), join).prop_map(|(steps, join)| {
                json!({"for_each": [1, 2, 3], "steps": steps, "join": join})
            }),
            (steps(), steps())
                .prop_map(|(steps, other)| json!({"try": steps, "on_failure": other})),
        ]
    });
    prop::collection::vec(step, 1..4).prop_map(Value::from)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_events_of_any_flow_are_well_nested_and_numbered_without_gaps(steps in any_steps()) {
        let definition = json!({
            "tools": {"double": {}},
            "agents": {"a": {"instruction": "Help."}},
            "flows": {"main": {"steps": steps}},
        });
        // Some generated definitions are invalid, for example those with unreachable steps.
        if let Ok(workflow) = universal_executor::workflow::Workflow::from_json(&definition) {
            let definition = universal_executor::workload::FlowDefinition::new("it", workflow).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            let setup = setup(&parrot(), &MemoryStore::default());
            check(&runtime.block_on(events(&definition, &setup, "go")));
        }
    }
}

#[tokio::test]
async fn an_agent_and_a_flow_that_fails_keep_to_it_too() {
    let setup = setup(&parrot(), &MemoryStore::default());
    let fails = flow(json!({"flows": {"main": {"steps": [{"fail": "No."}]}}}));

    check(&events(&agent(), &setup, "hi").await);
    check(&events(&fails, &setup, "hi").await);
}
