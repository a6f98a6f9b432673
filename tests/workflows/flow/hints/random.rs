//! Random flows over breadcrumbs with excluded fields.

use super::*;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::atomic::AtomicU64;

/// The variables of each flow: the data after hints, the last result, and a mixture.
const VALUES: [&str; 6] = ["input", "paid", "said", "called", "mixed", "last?"];

fn reference() -> impl Strategy<Value = String> {
    select(&VALUES[..]).prop_map(|value| format!("${{{value}}}"))
}

/// Generates an input of a step: a value, a text with values, a list or an object.
fn input() -> impl Strategy<Value = Value> {
    prop_oneof![
        reference().prop_map(Value::from),
        (reference(), reference()).prop_map(|(a, b)| json!(format!("Compare {a} with {b}."))),
        (reference(), reference()).prop_map(|(a, b)| json!({"a": a, "b": [b]})),
    ]
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        input().prop_map(|input| json!({"agent": "lead", "input": input})),
        input().prop_map(|input| json!({"agent": "helper", "input": input})),
        input().prop_map(|input| json!({"model": "m", "input": input})),
        input().prop_map(|input| json!({"model": "m", "prompt": "sum", "input": input})),
        input().prop_map(|input| json!({"flow": "sub", "input": input})),
        input().prop_map(|input| json!({"set": {"mixed": input}})),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Value>> {
    let step = leaf().prop_recursive(3, 12, 3, |inner| {
        let block = prop::collection::vec(inner, 1..3);
        prop_oneof![
            (reference(), block.clone())
                .prop_map(|(list, steps)| json!({"for_each": [list], "steps": steps})),
            block
                .clone()
                .prop_map(|steps| json!({"parallel": [{"steps": steps}]})),
            block
                .clone()
                .prop_map(|steps| json!({"loop": steps, "max": 2})),
            block.clone().prop_map(|steps| json!({
                "if": {"path": "input", "op": "exists", "value": true}, "then": steps,
            })),
            block.prop_map(|steps| json!({"try": [{"fail": "${said}"}], "on_failure": steps})),
        ]
    });
    prop::collection::vec(step, 1..5)
}

/// Creates a model that repeats parts of its input, so that leaked data spreads.
fn repeats() -> ScriptedModel {
    let gossip = gossip();
    ScriptedModel::answering(move |_, request| {
        use futures::FutureExt as _;
        use universal_executor::agent::ChatModel as _;
        let mut response = gossip.chat(request).now_or_never().unwrap()?;
        if response.text().len() > 8_000 {
            response = ChatResponse::new(PUBLIC);
        }
        Ok(response)
    })
}

/// Runs a flow in which each breadcrumb has an excluded field.
async fn run(steps: Vec<Value>, hints_in: HintsIn) -> World {
    let mut all = vec![
        json!({"id": "paid", "wait_for": {"schema_name": PAID}}),
        json!({"id": "said", "ask": "Go on?"}),
        json!({"id": "called", "tool": "far", "input": {"n": "${paid}"}}),
        json!({"set": {"mixed": "${paid} ${said} ${called}"}}),
    ];
    all.extend(steps);
    let world = World::new(&flow(&parts(), all.into()), far(), repeats());
    let hints = json!({"exclude": ["input.secret"]});
    create(&world, request(), hints_in, hints).await;
    world.works_until("workflow.kept.v1", 1).await;
    let paid = NewBreadcrumb::new(PAID).context(payload());
    create(&world, paid, hints_in, json!({"exclude": ["..secret"]})).await;
    let said = answer_to(&world, ASKED, TOLD, json!({"answer": payload()})).await;
    create(
        &world,
        said,
        hints_in,
        json!({"exclude": ["answer.secret"]}),
    )
    .await;
    let output = json!({"tool": "far", "status": "success", "output": payload()});
    let called = answer_to(&world, CALLED, RETURNED, output).await;
    create(
        &world,
        called,
        hints_in,
        json!({"exclude": ["output.secret"]}),
    )
    .await;
    world.works_until(RESULT, 1).await;
    world
}

#[test]
fn no_request_of_a_random_flow_contains_an_excluded_field() {
    let with_public = AtomicU64::new(0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let config = ProptestConfig::with_cases(24);
    proptest!(config, |(steps in steps(), own in any::<bool>())| {
        let hints_in = if own { HintsIn::Breadcrumb } else { HintsIn::SchemaDefinition };
        let world = runtime.block_on(run(steps, hints_in));
        for request in world.model.requests() {
            let all = format!("{request:?}");
            prop_assert!(!all.contains(SECRET), "{}", all);
            with_public.fetch_add(u64::from(all.contains(PUBLIC)), Ordering::Relaxed);
        }
    });
    assert!(
        with_public.into_inner() > 24,
        "no flow showed data to a model"
    );
}
