//! Requests of clients, on every store: replies, keys, lists, explanations and questions.

use futures::future::join_all;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::agent::{Agent, ChatResponse, ScriptedModel, ToolCall};
use universal_executor::client::{
    AnswerError, Cascade, Client, ClientError, Principal, QuestionKind, QuestionState,
    QuestionView, Questions, ReplyError, RequestHandle,
};
use universal_executor::executor::Executor;
use universal_executor::model::Timestamp;
use universal_executor::runtime::Running;
use universal_executor::store::{RunQuery, RunState, StoreWithEvents, Wake};
use universal_executor::tool::json_tool;
use universal_executor::{
    BoxError, BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Response, Runtime, Selector,
    Subscription, executor, permanent, suspend,
};

#[path = "approvals.rs"]
mod approvals;

#[cfg(feature = "workflows")]
pub(crate) use approvals::the_questions_of_a_flow_are_answered_once;
pub(crate) use approvals::{
    an_approval_is_permitted_by_the_rules_for_its_arguments,
    an_approval_with_a_condition_asks_only_when_the_condition_holds,
    changed_arguments_reach_the_tool_and_the_model_after_a_restart,
};

/// A timeout that no passing test reaches.
pub(crate) const LONG: Duration = Duration::from_secs(120);

fn order(id: u64) -> NewBreadcrumb {
    NewBreadcrumb::new("order.v1").context(json!({"id": id}))
}

fn receipt(id: u64) -> Response {
    Response::create(NewBreadcrumb::new("receipt.v1").context(json!({"id": id})))
}

/// Creates an executor that answers each order. The order's ID decides how.
fn clerk() -> Executor {
    executor("clerk")
        .on(Subscription::trigger("order.v1"))
        .attempts(1)
        .execute(|cx| async move {
            match cx.trigger().context["id"].as_u64() {
                Some(0) => Ok(Response::none()),
                Some(13) => Err(permanent("the order has the number 13")),
                Some(99) if cx.resumed().is_none() => {
                    let asked =
                        json!({"kind": "question", "requestId": "q-99", "question": "Who?"});
                    let question = NewBreadcrumb::new("human.request.v1").tag("request:q-99");
                    let question = question.context(asked);
                    let answer = Wake::on(Selector::schema("human.response.v1"));
                    Err(suspend(answer, json!({})).writing(Response::create(question)))
                }
                id => Ok(receipt(id.unwrap_or_default())),
            }
        })
}

async fn start<S: StoreWithEvents>(store: &S, executor: Executor) -> Result<Running, BoxError> {
    Ok(Runtime::on(store).executor(executor).start().await?)
}

/// Sends a request to the clerk.
async fn send(client: &Client, id: u64) -> Result<RequestHandle, ClientError> {
    client.request("clerk", order(id)).send().await
}

/// Waits until the run of a request is in a state.
pub(crate) async fn reaches(
    request: &RequestHandle,
    client: &Client,
    state: RunState,
) -> Result<(), BoxError> {
    let mut last = None;
    let reached = poll(async || {
        last = client.run(request.run()).await?.map(|run| run.state);
        Ok::<_, ClientError>((last == Some(state)).then_some(()))
    });
    let reached = reached.await?;
    let run = request.run();
    reached.ok_or_else(|| format!("{run} did not reach {state:?}; it is {last:?}").into())
}

/// Repeats a read until it returns a value. Returns `None` after [`LONG`] without a value.
async fn poll<T>(
    mut read: impl AsyncFnMut() -> Result<Option<T>, ClientError>,
) -> Result<Option<T>, ClientError> {
    let polling = async {
        loop {
            if let Some(found) = read().await? {
                return Ok(Some(found));
            }
            tokio::task::yield_now().await;
        }
    };
    let polled = tokio::time::timeout(LONG, polling).await;
    polled.unwrap_or(Ok(None))
}

/// Waits until a question is open, and returns it. Waiting for an event would not be enough, because the event of an earlier question
/// can arrive late.
pub(crate) async fn open_question(client: &Client) -> Result<QuestionView, BoxError> {
    let opened = poll(async || {
        let open = client.questions().open().await?;
        Ok::<_, ClientError>(open.into_iter().next())
    });
    let opened = opened.await?;
    opened.ok_or_else(|| "no question was opened in time".into())
}

/// One client sends a request, and a client on another handle receives the reply.
pub(crate) async fn a_request_has_its_reply<S: StoreWithEvents>(
    store: S,
    other: S,
) -> Result<(), BoxError> {
    let running = start(&store, clerk()).await?;
    let (here, there) = (Client::new(&store), Client::new(&other));

    let request = send(&here, 7).await?;
    let reply = request.wait(LONG).await?;
    let attached = there.attach(&request.id())?.wait(LONG).await?;
    let late = there
        .attach(&request.id())?
        .wait(Duration::from_secs(10))
        .await?;

    assert_eq!(reply.written().len(), 1);
    assert_eq!(reply.written()[0].context["id"], 7);
    assert_eq!(reply.run(), request.run());
    assert_eq!(
        (attached.written(), late.written()),
        (reply.written(), reply.written())
    );
    assert!(send(&here, 0).await?.wait(LONG).await?.written().is_empty());
    running.stop().await?;
    Ok(())
}

/// Many clients that wait at the same time each receive their own reply.
pub(crate) async fn many_requests_have_their_replies<S: StoreWithEvents>(
    store: S,
    other: S,
) -> Result<(), BoxError> {
    let running = start(&store, clerk()).await?;
    let client = Client::new(&other);

    let replies = (100..150).map(|id| {
        let client = &client;
        async move {
            let reply = send(client, id).await?.wait(LONG).await?;
            Ok::<_, BoxError>((id, reply.written()[0].context["id"].as_u64()))
        }
    });
    let replies = join_all(replies).await;

    for reply in replies {
        let (id, answered) = reply?;
        assert_eq!(answered, Some(id));
    }
    running.stop().await?;
    Ok(())
}

/// One hundred clients send a request with the same key at once: one trigger exists, and all clients receive its reply.
pub(crate) async fn a_key_makes_one_trigger<S: StoreWithEvents>(
    store: S,
    other: S,
) -> Result<(), BoxError> {
    let running = start(&store, clerk()).await?;
    let clients: Vec<Client> = (0..100)
        .map(|n| Client::new(if n % 2 == 0 { &store } else { &other }))
        .collect();

    let sent = clients
        .iter()
        .map(|client| client.request("clerk", order(7)).key("order-7").send());
    let requests: Vec<RequestHandle> =
        join_all(sent).await.into_iter().collect::<Result<_, _>>()?;

    let ids: HashSet<String> = requests.iter().map(RequestHandle::id).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(store.recent("order.v1", 10).await?.len(), 1);
    for request in requests.iter().take(3) {
        assert_eq!(request.wait(LONG).await?.written()[0].context["id"], 7);
    }
    assert_eq!(store.recent("receipt.v1", 10).await?.len(), 1);

    let other = clients[0]
        .request("clerk", order(8))
        .key("order-7")
        .send()
        .await
        .unwrap_err();
    let is_expected = matches!(&other, ClientError::KeyConflict { key, .. } if &**key == "order-7");
    assert!(is_expected, "{other:?}");
    running.stop().await?;
    Ok(())
}

/// The error of a run that ends without a reply describes the end of the run.
pub(crate) async fn a_request_without_a_reply_says_why<S: StoreWithEvents>(
    store: S,
    _: S,
) -> Result<(), BoxError> {
    let client = Client::new(&store);
    let unheard = send(&client, 1).await?;
    let error = unheard.wait(Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(error, ReplyError::TimedOut { state: None, .. }),
        "{error:?}"
    );

    let running = start(&store, clerk()).await?;
    assert_eq!(unheard.wait(LONG).await?.written().len(), 1);
    let failed = send(&client, 13).await?;
    let error = failed.wait(LONG).await.unwrap_err();
    let is_expected = matches!(&error, ReplyError::Failed { cause: Some(cause), .. } if cause.contains("number 13"));
    assert!(is_expected, "{error:?}");

    let asks = send(&client, 99).await?;
    reaches(&asks, &client, RunState::Suspended).await?;
    let error = asks.wait(Duration::ZERO).await.unwrap_err();
    let is_expected = matches!(
        &error,
        ReplyError::TimedOut {
            state: Some(RunState::Suspended),
            question: Some(_),
            ..
        }
    );
    assert!(is_expected, "{error:?}");
    assert!(error.to_string().contains("answer of a person"), "{error}");

    let nobody = client.request("clerk", NewBreadcrumb::new("other.v1"));
    let error = nobody.require_listener().send().await.unwrap_err();
    assert!(
        error.to_string().contains("do not match the breadcrumb"),
        "{error}"
    );
    let error = client
        .request("nobody", order(1))
        .require_listener()
        .send()
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no live worker has the executor"),
        "{error}"
    );
    let heard = client
        .request("clerk", order(2))
        .require_listener()
        .send()
        .await?;
    assert_eq!(heard.wait(LONG).await?.written().len(), 1);
    running.stop().await?;
    Ok(())
}

/// A client lists runs in pages, redoes a failed run, and explains a breadcrumb.
pub(crate) async fn runs_are_listed_redone_and_explained<S: StoreWithEvents>(
    store: S,
    _: S,
) -> Result<(), BoxError> {
    let running = start(&store, clerk()).await?;
    let client = Client::new(&store);
    for id in 1..=5 {
        send(&client, id).await?.wait(LONG).await?;
    }
    let failed = send(&client, 13).await?;
    failed.wait(LONG).await.unwrap_err();

    let (mut query, mut pages) = (RunQuery::all().executor("clerk").limit(4), Vec::new());
    loop {
        let page = client.runs(&query).await?;
        pages.push(page.runs.len());
        let Some(next) = page.next else { break };
        query = query.after(next);
    }
    assert_eq!(pages, [4, 2]);
    let listed = client.runs(&RunQuery::failed()).await?.runs;
    assert_eq!((listed.len(), &listed[0].run), (1, failed.run()));

    client.redo(failed.run()).await?;
    let error = failed.wait(LONG).await.unwrap_err();
    assert!(matches!(error, ReplyError::Failed { .. }), "{error:?}");

    let report = client.explain(failed.run().trigger_id).await?;
    assert_eq!(report.executors.len(), 1);
    let printed = report.to_string();
    for part in [
        "executor \"clerk\", live workers: 1",
        "run: failed",
        "number 13",
        "order.v1",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let other = store.create(NewBreadcrumb::new("other.v1")).await?;
    let report = client.explain(other.id).await?;
    assert!(report.executors[0].run.is_none());
    assert_eq!(client.workers().await?.len(), 1);
    running.stop().await?;
    Ok(())
}

/// Creates an agent that pays after an approval by the finance department and counts its payments.
pub(crate) fn teller(payments: &Arc<AtomicUsize>) -> Result<Agent, BoxError> {
    let payments = Arc::clone(payments);
    let pay = json_tool("pay", "Pays an amount.", json!({}), move |_, _| {
        payments.fetch_add(1, Ordering::SeqCst);
        async { Ok(json!("paid")) }
    });
    let model = ScriptedModel::answering(|_, request| {
        let is_answered = request
            .messages
            .iter()
            .any(|message| message.call_id().is_some());
        Ok(match is_answered {
            true => ChatResponse::new("Done."),
            false => {
                let call = ToolCall::new("1", "pay", json!({"amount": 7}));
                ChatResponse::calling(vec![call])
            }
        })
    });
    Ok(Agent::new("teller", model)
        .on(Subscription::trigger("wish.v1"))
        .tool(pay)
        .needs_approval(["pay"])
        .approved_by(["role:finance"]))
}

/// Sends a wish to the teller, and waits for its question.
pub(crate) async fn ask(client: &Client) -> Result<(RequestHandle, QuestionView), BoxError> {
    let wish = NewBreadcrumb::new("wish.v1").context(json!({"message": "Pay 7."}));
    let request = client.request("teller", wish).send().await?;
    reaches(&request, client, RunState::Suspended).await?;
    let question = client
        .questions()
        .open()
        .await?
        .pop()
        .ok_or("no question")?;
    Ok((request, question))
}

/// Returns the message of the reply to a request.
pub(crate) async fn says(request: &RequestHandle) -> Result<String, BoxError> {
    let reply = request.wait(LONG).await?;
    let response = reply.response().ok_or("no response")?;
    Ok(response
        .context
        .text("message")
        .ok_or("no message")?
        .to_owned())
}

/// Writes a copy of a question that shows a smaller amount, as an attacker with write access could.
async fn forge(
    store: &impl BreadcrumbStore,
    request: &RequestHandle,
    id: &str,
) -> Result<(), BoxError> {
    let run = request.run();
    let copy = json!({
        "kind": "approval", "requestId": id, "tool": "pay", "arguments": {"amount": 1}, "digest": "0", "requestedBy": "teller",
        "creator": {"id": "teller", "trigger_id": run.trigger_id, "trigger_version": run.trigger_version},
    });
    let copy = NewBreadcrumb::new("human.request.v1")
        .tag(format!("request:{id}"))
        .context(copy);
    store.create(copy).await?;
    Ok(())
}

/// Checks that an answer by a person without the role, of the wrong kind, or to an unknown question is an error.
async fn refuses_answers_without_effect(
    questions: &Questions,
    question: &QuestionView,
) -> Result<(), BoxError> {
    let id = &*question.id;
    let bob = Principal::new("bob");
    assert!(questions.open_for(&bob).await?.is_empty());
    let error = questions.approve(id, &bob).await.unwrap_err();
    assert!(
        matches!(&error, AnswerError::NotAllowed { person, .. } if person == "bob"),
        "{error:?}"
    );
    let ann = Principal::new("ann").with_role("finance");
    assert_eq!(
        questions.open_for(&ann).await?,
        std::slice::from_ref(question)
    );
    let error = questions.answer(id, &ann, "yes").await.unwrap_err();
    assert!(matches!(error, AnswerError::WrongKind { .. }), "{error:?}");
    let error = questions.approve("nothing", &ann).await.unwrap_err();
    assert!(matches!(error, AnswerError::Unknown { .. }), "{error:?}");
    let error = questions.state("nothing").await.unwrap_err();
    assert!(matches!(error, AnswerError::Unknown { .. }), "{error:?}");
    Ok(())
}

/// Many people answer one question at once: one answer counts, and every other call returns an error with this cause.
pub(crate) async fn a_question_is_answered_once<S: StoreWithEvents>(
    store: S,
    other: S,
) -> Result<(), BoxError> {
    let payments = Arc::default();
    let running = Runtime::on(&store)
        .agent(teller(&payments)?)
        .start()
        .await?;
    let (client, there) = (Client::new(&store), Client::new(&other));
    let (request, question) = ask(&client).await?;
    let (questions, id) = (there.questions(), &*question.id);
    forge(&store, &request, id).await?;
    assert_eq!(questions.open().await?, std::slice::from_ref(&question));
    assert_eq!(questions.state(id).await?, QuestionState::Open);

    assert_eq!(
        (question.kind, question.tool.as_deref()),
        (QuestionKind::Approval, Some("pay"))
    );
    assert!(
        question.to_string().contains("pay({\"amount\":7})"),
        "{question}"
    );
    refuses_answers_without_effect(&questions, &question).await?;

    let people: Vec<Principal> = (0..8)
        .map(|n| Principal::new(format!("person-{n}")).with_role("finance"))
        .collect();
    let answers = join_all(people.iter().map(|person| questions.approve(id, person))).await;
    let winners: Vec<usize> = (0..8).filter(|n| answers[*n].is_ok()).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    let winner = &people[winners[0]];
    for error in answers.into_iter().filter_map(Result::err) {
        let is_expected =
            matches!(&error, AnswerError::NotOpen { by: Some(by), .. } if *by == winner.name);
        assert!(is_expected, "{error:?}");
    }

    assert_eq!(says(&request).await?, "Done.");
    assert_eq!(payments.load(Ordering::SeqCst), 1);
    assert!(questions.open().await?.is_empty());
    let state = questions.state(id).await?;
    let is_expected = matches!(
        &state,
        QuestionState::Answered { by: Some(by), approved: Some(true), .. } if *by == winner.name
    );
    assert!(is_expected, "{state:?}");
    questions.approve(id, winner).await?;
    let error = questions.reject(id, winner, "no").await.unwrap_err();
    assert!(matches!(error, AnswerError::NotOpen { .. }), "{error:?}");
    running.stop().await?;
    Ok(())
}

/// One question is rejected by a person, and another is closed because its run is cancelled.
pub(crate) async fn a_question_can_be_rejected_or_closed<S: StoreWithEvents>(
    store: S,
    _: S,
) -> Result<(), BoxError> {
    let payments = Arc::default();
    let running = Runtime::on(&store)
        .agent(teller(&payments)?)
        .start()
        .await?;
    let client = Client::new(&store);
    let ann = Principal::new("ann").with_role("finance");

    let (denied, question) = ask(&client).await?;
    client
        .questions()
        .reject(&question.id, &ann, "too much")
        .await?;
    assert_eq!(says(&denied).await?, "Done.");
    let state = client.questions().state(&question.id).await?;
    let is_expected = matches!(
        &state,
        QuestionState::Answered { by: Some(by), approved: Some(false), .. } if by == "ann"
    );
    assert!(is_expected, "{state:?}");

    let (cancelled, question) = ask(&client).await?;
    client.cancel(cancelled.run(), Cascade::Run).await?;
    let error = client
        .questions()
        .approve(&question.id, &ann)
        .await
        .unwrap_err();
    let is_expected = matches!(
        &error,
        AnswerError::NotOpen {
            run: Some(RunState::Failed),
            by: None,
            ..
        }
    );
    assert!(is_expected, "{error:?}");
    assert!(client.questions().open().await?.is_empty());
    let state = client.questions().state(&question.id).await?;
    let run = RunState::Failed;
    assert_eq!(state, QuestionState::Closed { run });
    assert_eq!(payments.load(Ordering::SeqCst), 0);
    running.stop().await?;
    Ok(())
}

/// A question expires at the end of its time limit. An answer to a question that is not an approval has no decision.
pub(crate) async fn a_question_that_is_not_an_approval_has_a_state<S: StoreWithEvents>(
    store: S,
    other: S,
) -> Result<(), BoxError> {
    const END: &str = "2020-01-01T00:00:00Z";
    let asker = executor("asker")
        .on(Subscription::trigger("order.v1"))
        .execute(|cx| async move {
            if cx.resumed().is_some() {
                return Ok(receipt(1));
            }
            let id = format!("q-{}", cx.trigger().context["id"]);
            let mut asked = json!({"kind": "question", "requestId": id, "question": "Who?"});
            if id == "q-1" {
                asked["expires_at"] = json!(END);
            }
            let tag = format!("request:{id}");
            let question = NewBreadcrumb::new("human.request.v1").tag(&*tag);
            let question = question.context(asked);
            let answer = Wake::on(Selector::schema("human.response.v1").all_tags([tag]));
            Err(suspend(answer, json!({})).writing(Response::create(question)))
        });
    let running = start(&store, asker).await?;
    let (client, questions) = (Client::new(&store), Client::new(&other).questions());
    let mut requests = Vec::new();
    for id in [1, 2] {
        let request = client.request("asker", order(id)).send().await?;
        reaches(&request, &client, RunState::Suspended).await?;
        requests.push(request);
    }

    let at: Timestamp = END.parse()?;
    assert_eq!(questions.state("q-1").await?, QuestionState::Expired { at });
    assert_eq!(questions.state("q-2").await?, QuestionState::Open);
    let ann = Principal::new("ann");
    questions.answer("q-2", &ann, "Bob").await?;
    requests[1].wait(LONG).await?;
    let state = questions.state("q-2").await?;
    let is_expected = matches!(
        &state,
        QuestionState::Answered { by: Some(by), approved: None, .. } if by == "ann"
    );
    assert!(is_expected, "{state:?}");
    running.stop().await?;
    Ok(())
}

/// Defines a module with one test per scenario. Each test runs its scenario on fresh stores of a subject.
macro_rules! clients {
    ($name:ident, $subject:expr) => {
        mod $name {
            use super::*;

            $crate::client::clients! { @each $subject,
                a_request_has_its_reply
                many_requests_have_their_replies
                a_key_makes_one_trigger
                a_request_without_a_reply_says_why
                runs_are_listed_redone_and_explained
                a_question_is_answered_once
                a_question_can_be_rejected_or_closed
                a_question_that_is_not_an_approval_has_a_state
                an_approval_with_a_condition_asks_only_when_the_condition_holds
                changed_arguments_reach_the_tool_and_the_model_after_a_restart
                an_approval_is_permitted_by_the_rules_for_its_arguments
                #[cfg(feature = "workflows")]
                the_questions_of_a_flow_are_answered_once
            }
        }
    };
    (@each $subject:expr, $($(#[$attribute:meta])* $scenario:ident)+) => {
        $(
            $(#[$attribute])*
            #[tokio::test]
            async fn $scenario() -> Result<(), universal_executor::BoxError> {
                let subject = $subject;
                let store = subject.fresh().await;
                $crate::client::$scenario(store.clone(), store).await
            }
        )+
    };
}
pub(crate) use clients;
