//! Attacks on hints of breadcrumbs whose data enters a flow: an excluded field appears in no model request.

mod fences;
mod random;
mod withheld;

use super::*;
use universal_executor::workload::FlowDefinition;
use universal_executor::{Json, Subscription, Subscriptions};

/// The value of an excluded field.
const SECRET: &str = "canary-4711";
/// The value of a field that a model may see.
const PUBLIC: &str = "public-0815";

const PAID: &str = "paid.v1";
const ASKED: &str = "human.request.v1";
const TOLD: &str = "human.response.v1";
const CALLED: &str = "tool.request.v1";
const RETURNED: &str = "tool.response.v1";

/// The location of a breadcrumb's hints.
#[derive(Clone, Copy, Debug)]
enum HintsIn {
    Breadcrumb,
    SchemaDefinition,
}

const BOTH: [HintsIn; 2] = [HintsIn::Breadcrumb, HintsIn::SchemaDefinition];

/// Writes a breadcrumb with hints, which are in the breadcrumb or in the definition of its schema.
async fn create(world: &World, new: NewBreadcrumb, hints_in: HintsIn, hints: Value) {
    let new = match hints_in {
        HintsIn::Breadcrumb => new.llm_hints(hints),
        HintsIn::SchemaDefinition => {
            let schema = new.schema_name.clone().unwrap();
            let definition = NewBreadcrumb::new("schema.def.v1")
                .tag(format!("defines:{schema}"))
                .context(json!({"llm_hints": hints}));
            world.store.create(definition).await.unwrap();
            new
        }
    };
    world.store.create(new).await.unwrap();
}

/// Returns a payload with an excluded field.
fn payload() -> Value {
    json!({"text": PUBLIC, "secret": SECRET})
}

/// Returns a request for a run. Hints exclude `input.secret`.
fn request() -> NewBreadcrumb {
    let context = json!({"workflow": ID, "input": payload()});
    NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(context)
}

/// Returns an answer to the newest request of a schema.
async fn answer_to(world: &World, schema: &str, answer: &str, more: Value) -> NewBreadcrumb {
    let asked = world.works_until(schema, 1).await;
    let id = asked.context.text("requestId").unwrap();
    let mut context = json!({"request_id": id});
    let fields = context.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    NewBreadcrumb::new(answer)
        .tag(format!("request:{id}"))
        .created_by("ann")
        .context(context)
}

/// Returns a registry with one tool of another service.
fn far() -> ToolRegistry {
    use universal_executor::tool::remote_tool;
    let far = remote_tool("far", "Far away.", json!({"type": "object"}));
    ToolRegistry::default().with(far).unwrap()
}

/// Returns the definitions that [`shows`] needs.
fn parts() -> Value {
    json!({
        "tools": {"far": {}},
        "models": {"m": {}},
        "prompts": {"sum": "Sum it up."},
        "agents": {
            "lead": {"instruction": "Lead.", "use": ["helper"]},
            "helper": {"instruction": "Help."},
        },
        "flows": {"sub": {"steps": [{"model": "m", "prompt": "sum", "input": "${input}"}]}},
    })
}

/// Returns steps that send a value to models in every way that a definition allows.
fn shows(value: &str) -> Vec<Value> {
    let whole = format!("${{{value}}}");
    let within = format!("Sum up: ${{{value}}}");
    let steps = json!([
        {"agent": "lead", "input": whole},
        {"agent": "lead", "input": within},
        {"model": "m", "input": whole},
        {"model": "m", "prompt": "sum", "input": {"page": whole}},
        {"model": "m", "input": within},
        {"for_each": [whole], "steps": [{"model": "m", "input": "${item}"}]},
        {"parallel": [{"model": "m", "input": within}, {"agent": "helper", "input": whole}]},
        {"flow": "sub", "input": whole},
    ]);
    let Value::Array(steps) = steps else {
        panic!("a list");
    };
    steps
}

/// Creates a model that repeats its input. Its lead agent passes its whole input to the helper.
fn gossip() -> ScriptedModel {
    ScriptedModel::answering(|_, request| {
        let seen = shown(request);
        let has_result = request
            .messages
            .iter()
            .any(|message| message.speaker == Speaker::Tool);
        Ok(match seen.contains("Lead.") && !has_result {
            true => {
                let prompt = json!({"prompt": seen});
                ChatResponse::calling(vec![ToolCall::new("1", "helper", prompt)])
            }
            false => ChatResponse::new(seen),
        })
    })
}

/// Fails unless models received the public field in at least `fewest` requests, and never received the secret.
fn assert_hidden(world: &World, fewest: usize) {
    let requests = world.model.requests();
    let with_public = requests
        .iter()
        .filter(|request| shown(request).contains(PUBLIC))
        .count();
    assert!(with_public >= fewest, "{with_public} of {requests:#?}");
    for request in &requests {
        let all = format!("{request:?}");
        assert!(!all.contains(SECRET), "{all}");
    }
}

/// Number of model requests of [`shows`].
const SHOWN: usize = 14;

/// Fails unless the run succeeds with an answer of this schema, and [`shows`] sends the public field and never the secret to models.
async fn assert_shows_no_secret(world: &World, schema: &str) {
    let result = world.works_until(schema, 1).await;
    assert_eq!(result.context["status"], "success", "{result:?}");
    assert_hidden(world, SHOWN);
}

fn world(mut first: Vec<Value>, value: &str) -> World {
    first.extend(shows(value));
    World::new(&flow(&parts(), first.into()), far(), gossip())
}

#[tokio::test]
async fn an_excluded_field_of_the_request_for_a_flow_reaches_no_model() {
    for hints_in in BOTH {
        let world = world(vec![], "input");
        let hints = json!({"exclude": ["input.secret"]});
        create(&world, request(), hints_in, hints).await;

        assert_shows_no_secret(&world, RESULT).await;
    }
}

#[tokio::test]
async fn an_excluded_field_of_any_trigger_that_is_the_input_reaches_no_model() {
    for hints_in in BOTH {
        let world = world(vec![], "input");
        let hints = json!({"exclude": ["secret"]});
        let order = NewBreadcrumb::new("order.v1").context(payload());
        create(&world, order, hints_in, hints).await;
        let triggers = Subscriptions::new([Subscription::trigger("order.v1")]).unwrap();
        let workflow = Workflow::from_json(&flow(&parts(), shows("input").into())).unwrap();
        let definition = Arc::new(FlowDefinition::new(ID, workflow).unwrap());
        let services = Services::new()
            .tools(far())
            .default_model(Arc::clone(&world.model));
        let store = watched(&world.store, &world.changed);
        let executor = WorkloadExecutor::new(ID, definition, &services, &store, triggers);
        let world = World {
            executor: Arc::new(executor.unwrap()),
            ..world
        };

        assert_shows_no_secret(&world, WorkloadExecutor::RESULT).await;
    }
}

#[tokio::test]
async fn an_excluded_field_of_a_breadcrumb_that_a_flow_waits_for_reaches_no_model() {
    for hints_in in BOTH {
        let wait = json!({"id": "paid", "wait_for": {"schema_name": PAID}});
        let world = world(vec![wait], "paid");
        world.request(json!({})).await;
        world.works_until("workflow.kept.v1", 1).await;
        let paid = NewBreadcrumb::new(PAID).context(payload());
        create(&world, paid, hints_in, json!({"exclude": ["secret"]})).await;

        assert_shows_no_secret(&world, RESULT).await;
    }
}

#[tokio::test]
async fn an_excluded_field_of_the_answer_of_a_person_reaches_no_model() {
    for hints_in in BOTH {
        let world = world(vec![json!({"id": "said", "ask": "Go on?"})], "said");
        world.request(json!({})).await;
        let answer = answer_to(&world, ASKED, TOLD, json!({"answer": payload()})).await;
        let hints = json!({"exclude": ["answer.secret"]});
        create(&world, answer, hints_in, hints).await;

        assert_shows_no_secret(&world, RESULT).await;
    }
}

#[tokio::test]
async fn an_excluded_field_of_the_result_of_a_tool_of_another_service_reaches_no_model() {
    for hints_in in BOTH {
        let call = json!({"id": "called", "tool": "far", "input": {}});
        let world = world(vec![call], "called");
        world.request(json!({})).await;
        let output = json!({"tool": "far", "status": "success", "output": payload()});
        let answer = answer_to(&world, CALLED, RETURNED, output).await;
        let hints = json!({"exclude": ["output.secret"]});
        create(&world, answer, hints_in, hints).await;

        assert_shows_no_secret(&world, RESULT).await;
    }
}

#[tokio::test]
async fn an_excluded_comment_on_a_rejected_call_reaches_no_model() {
    let pay = json_tool("far", "Pays.", json!({}), |_, _| async {
        Ok(json!("paid"))
    });
    let tools = ToolRegistry::default()
        .with(pay.needs_approval(Approval::always()))
        .unwrap();
    let mut failed = vec![json!({"set": {"public": PUBLIC}})];
    failed.push(json!({"set": {"why": {"reason": "${error.message}", "text": "${public}"}}}));
    failed.extend(shows("why"));
    let steps = json!([{"try": [{"tool": "far", "input": {}}], "on_failure": failed}]);
    let world = World::new(&flow(&parts(), steps), tools, gossip());
    world.request(json!({})).await;
    let rejected = json!({"approved": false, "comment": SECRET});
    let answer = answer_to(&world, ASKED, TOLD, rejected).await;
    let hints = json!({"exclude": ["comment"]});
    create(&world, answer, HintsIn::Breadcrumb, hints).await;

    world.works_until(RESULT, 1).await;

    assert_hidden(&world, SHOWN);
}

#[tokio::test]
async fn values_in_the_saved_state_of_a_flow_are_shaped_before_they_are_saved() {
    use universal_executor::RunLedger as _;
    use universal_executor::store::RunFilter;
    let first = vec![
        json!({"id": "paid", "wait_for": {"schema_name": PAID}}),
        json!({"set": {"both": {"paid": "${paid}", "input": "${input}"}}}),
        json!({"ask": "Go on?"}),
    ];
    let world = world(first, "both");
    let hints = json!({"exclude": ["input.secret"]});
    create(&world, request(), HintsIn::SchemaDefinition, hints).await;
    world.works_until("workflow.kept.v1", 1).await;
    let paid = NewBreadcrumb::new(PAID).context(payload());
    let hints = json!({"exclude": ["secret"]});
    create(&world, paid, HintsIn::SchemaDefinition, hints).await;
    let answer = answer_to(&world, ASKED, TOLD, json!({"answer": "yes"})).await;

    let runs = world.store.runs(&RunFilter::all()).await.unwrap();
    let saved: Vec<String> = runs.iter().map(|run| format!("{run:?}")).collect();
    world.store.create(answer).await.unwrap();
    world.works_until(RESULT, 1).await;

    assert!(saved.iter().all(|run| !run.contains(SECRET)), "{saved:?}");
    assert_hidden(&world, SHOWN);
}

#[tokio::test]
async fn a_tool_reads_the_excluded_field_of_the_trigger_from_its_context() {
    let read = json_tool("read", "Reads.", json!({}), |_, context| async move {
        let trigger: &Json = &context.context().trigger().context;
        Ok(json!(trigger["input"]["secret"] == SECRET))
    });
    let definition = flow(&json!({"tools": {"read": {}}}), json!([{"tool": "read"}]));
    let world = World::new(&definition, registry([read]), no_model());
    let hints = json!({"exclude": ["input.secret"]});
    create(&world, request(), HintsIn::Breadcrumb, hints).await;

    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], true, "{result:?}");
}
