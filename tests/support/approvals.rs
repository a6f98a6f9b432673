//! Approvals by rules of tools, on every store: conditions, people and changed arguments.

use super::{LONG, reaches, says};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use universal_executor::agent::{Agent, ChatResponse, ScriptedModel, ToolCall};
use universal_executor::client::{
    AnswerError, Client, Principal, QuestionView, ReplyError, RequestHandle,
};
use universal_executor::model::Condition;
use universal_executor::runtime::Running;
use universal_executor::store::{RunState, StoreWithEvents};
use universal_executor::tool::{Approval, JsonTool, json_tool, role};
use universal_executor::{BoxError, NewBreadcrumb, Runtime, Subscription};

#[cfg(feature = "workflows")]
#[path = "approvals_flows.rs"]
mod flows;

#[cfg(feature = "workflows")]
pub(crate) use flows::the_questions_of_a_flow_are_answered_once;

/// The input of the tool `pay`.
#[derive(Deserialize)]
struct Payment {
    amount: u64,
}

/// The input of each payment call that ran.
type Payments = Arc<Mutex<Vec<Value>>>;

fn made(payments: &Payments) -> Vec<Value> {
    payments.lock().unwrap().clone()
}

/// Creates an approval rule for payments over `amount`.
fn over(amount: u64) -> Approval {
    Approval::when_args(Condition::new("$.amount", "gt", Some(json!(amount))))
}

/// Creates an agent that makes one payment and answers with the tool result that its model receives.
fn teller(id: &str, input: Value, rules: &[Approval], payments: &Payments) -> Agent {
    let payments = Arc::clone(payments);
    let schema = json!({
        "type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"],
    });
    let pay = json_tool("pay", "Pays an amount.", schema, move |input, _| {
        payments.lock().unwrap().push(input);
        async { Ok(json!("paid")) }
    });
    let pay = rules.iter().cloned().fold(pay, JsonTool::needs_approval);
    let model = ScriptedModel::answering(move |_, request| {
        let mut messages = request.messages.iter();
        let told = messages.find(|message| message.call_id().is_some());
        Ok(match told {
            Some(told) => ChatResponse::new(told.text()),
            None => ChatResponse::calling(vec![ToolCall::new("1", "pay", input.clone())]),
        })
    });
    Agent::new(id, model)
        .on(Subscription::trigger(format!("{id}.v1")))
        .tool(pay)
}

async fn start<S: StoreWithEvents>(store: &S, agent: Agent) -> Result<Running, BoxError> {
    Ok(Runtime::on(store).agent(agent).start().await?)
}

/// Sends a request to an agent.
async fn ask(client: &Client, id: &str) -> Result<RequestHandle, BoxError> {
    let trigger = NewBreadcrumb::new(format!("{id}.v1"));
    Ok(client.request(id, trigger).send().await?)
}

/// Waits until an agent has an open question, and returns the question.
async fn question_of(
    client: &Client,
    request: &RequestHandle,
    id: &str,
) -> Result<QuestionView, BoxError> {
    reaches(request, client, RunState::Suspended).await?;
    let open = client.questions().open().await?;
    let mut open = open.into_iter().filter(|question| question.asked_by == id);
    Ok(open.next().ok_or("no question")?)
}

/// A tool call runs without approval if the condition is false for its arguments. Any other call waits for a person, also a call whose
/// arguments cannot be read.
pub(crate) async fn an_approval_with_a_condition_asks_only_when_the_condition_holds<
    S: StoreWithEvents,
>(
    store: S,
    _: S,
) -> Result<(), BoxError> {
    let in_code = || Approval::when(|call: &Payment| call.amount > 100);
    for (name, rule) in [("code", in_code()), ("data", over(100))] {
        let (payments, rule) = (Payments::default(), [rule]);
        let [small, large, malformed] =
            ["small", "large", "malformed"].map(|call| format!("{name}-{call}"));
        let agent = |id: &str, amount: Value| {
            let input = json!({"amount": amount});
            teller(id, input, &rule, &payments)
        };
        let running = Runtime::on(&store)
            .agent(agent(&small, json!(100)))
            .agent(agent(&large, json!(101)))
            .agent(agent(&malformed, json!("1")))
            .start()
            .await?;
        let client = Client::new(&store);

        let paid = ask(&client, &small).await?;
        assert_eq!(says(&paid).await?, "paid");
        let questions = client.questions().open().await?;
        assert!(questions.is_empty(), "{questions:?}");
        for id in [&large, &malformed] {
            let asks = ask(&client, id).await?;
            let question = question_of(&client, &asks, id).await?;
            let ann = Principal::new("ann");
            client.questions().reject(&question.id, &ann, "no").await?;
            let told = says(&asks).await?;
            assert!(told.contains("a person rejected the call"), "{told}");
        }

        assert_eq!(made(&payments), [json!({"amount": 100})]);
        running.stop().await?;
    }
    Ok(())
}

/// The changed arguments are saved with the answer, and another worker calls the tool with them.
pub(crate) async fn changed_arguments_reach_the_tool_and_the_model_after_a_restart<
    S: StoreWithEvents,
>(
    store: S,
    other: S,
) -> Result<(), BoxError> {
    let payments = Payments::default();
    let rules = [over(100).by(role("finance"))];
    let agent = || teller("teller", json!({"amount": 500}), &rules, &payments);
    let running = start(&store, agent()).await?;
    let (client, there) = (Client::new(&store), Client::new(&other));
    let ann = Principal::new("ann").with_role("finance");
    let request = ask(&client, "teller").await?;
    let question = question_of(&client, &request, "teller").await?;
    running.stop().await?;

    assert!(question.changeable && question.arguments_schema.is_some());
    let (questions, id) = (there.questions(), &*question.id);
    questions
        .approve_with(id, &ann, json!({"amount": 50}))
        .await?;
    assert!(made(&payments).is_empty());
    let running = start(&store, agent()).await?;
    let told: Value = serde_json::from_str(&says(&request).await?)?;

    assert_eq!(made(&payments), [json!({"amount": 50})]);
    assert_eq!(told["arguments"], json!({"amount": 50}));
    assert_eq!(told["result"], "paid");
    assert!(
        told["note"]
            .as_str()
            .is_some_and(|note| note.contains("a person changed"))
    );
    questions
        .approve_with(id, &ann, json!({"amount": 50}))
        .await?;
    for late in [
        questions
            .approve_with(id, &ann, json!({"amount": 51}))
            .await,
        questions.approve(id, &ann).await,
    ] {
        let error = late.unwrap_err();
        assert!(matches!(error, AnswerError::NotOpen { .. }), "{error:?}");
    }
    running.stop().await?;
    Ok(())
}

/// Each rule that applies to the arguments, changed or not, must permit the person. Changed arguments must match the tool's schema.
pub(crate) async fn an_approval_is_permitted_by_the_rules_for_its_arguments<S: StoreWithEvents>(
    store: S,
    _: S,
) -> Result<(), BoxError> {
    let payments = Payments::default();
    let rules = [
        over(10).by(role("finance")).by("bob"),
        over(1_000).by(role("board")),
    ];
    let agent = teller("teller", json!({"amount": 500}), &rules, &payments);
    let running = start(&store, agent).await?;
    let client = Client::new(&store);
    let request = ask(&client, "teller").await?;
    let question = question_of(&client, &request, "teller").await?;
    let (questions, id) = (client.questions(), &*question.id);
    let eve = Principal::new("eve");
    let ann = Principal::new("ann").with_role("finance");
    let zoe = Principal::new("zoe").with_role("board");
    let both = zoe.clone().with_role("finance");

    assert_eq!(question.allowed, ["role:finance", "bob"]);
    assert!(question.permits(&ann) && question.permits(&"bob".into()));
    assert!(!question.permits(&eve) && !question.permits(&zoe));
    for person in [&eve, &zoe] {
        assert!(questions.open_for(person).await?.is_empty());
        let error = questions.approve(id, person).await.unwrap_err();
        let is_expected = matches!(&error, AnswerError::NotAllowed { person: named, .. } if *named == person.name);
        assert!(is_expected, "{error:?}");
    }
    let large = json!({"amount": 5_000});
    let error = questions.approve_with(id, &ann, large).await.unwrap_err();
    let is_expected =
        matches!(&error, AnswerError::NotAllowed { allowed, .. } if *allowed == ["role:board"]);
    assert!(is_expected, "{error:?}");
    let long = json!({"amount": "9".repeat(70_000)});
    let unfit = questions.approve_with(id, &both, long).await.unwrap_err();
    assert!(matches!(unfit, AnswerError::Invalid { .. }), "{unfit:?}");
    if cfg!(feature = "validate") {
        let text = json!({"amount": "many"});
        let error = questions.approve_with(id, &both, text).await.unwrap_err();
        assert!(matches!(error, AnswerError::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains("amount"), "{error}");
    }
    assert_eq!(questions.open().await?, std::slice::from_ref(&question));
    let error = request.wait(std::time::Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, ReplyError::TimedOut { .. }), "{error:?}");

    let small = json!({"amount": 400});
    questions.approve_with(id, &ann, small.clone()).await?;
    request.wait(LONG).await?;
    assert_eq!(made(&payments), [small]);
    running.stop().await?;
    Ok(())
}
