//! Cancellation of requests that no worker has received.

use super::harness::Block;
use super::{clerk, order};
use crate::client::LONG;
use crate::worker::{SubjectWithEvents, Worker};
use futures::future::join_all;
use serde_json::json;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tokio::task::yield_now;
use universal_executor::client::{
    Cascade, Client, ClientError, Reply, ReplyError, RequestHandle, TurnEnd, TurnEvent,
};
use universal_executor::executor::Executor;
use universal_executor::store::{Run, RunEnd, RunRef, RunState};
use universal_executor::{
    BoxError, BreadcrumbId, BreadcrumbStoreExt as _, NewBreadcrumb, Patch, Response, Subscription,
    executor,
};

/// Starts a worker with a [`clerk`] and a `witness` of the same triggers. A worker enqueues the runs of both at once.
async fn start<S: SubjectWithEvents>(store: &S::Store, block: &Block) -> Result<Worker, BoxError> {
    let witness = executor("witness")
        .on(Subscription::trigger("order.v1"))
        .execute(|_| async { Ok(Response::none()) });
    Worker::start(store, |builder, _| {
        Ok(builder.executor(clerk(block)).executor(witness))
    })
    .await
}

/// Waits until a worker has received a trigger.
async fn received(client: &Client, run: &RunRef) -> Result<(), BoxError> {
    let witness = format!("{}:{}:witness", run.trigger_id, run.trigger_version);
    client.attach(&witness)?.wait(LONG).await?;
    Ok(())
}

async fn run_of(client: &Client, request: &RequestHandle) -> Result<Run, BoxError> {
    Ok(client.run(request.run()).await?.ok_or("no run")?)
}

/// Fails unless a request was cancelled before any worker started its run.
async fn assert_not_executed(client: &Client, request: &RequestHandle) -> Result<(), BoxError> {
    let waited = request.wait(LONG).await;
    assert!(
        matches!(waited, Err(ReplyError::Cancelled { .. })),
        "{waited:?}"
    );
    let run = run_of(client, request).await?;
    assert_eq!(
        (run.state, run.code.as_deref(), run.attempts),
        (RunState::Failed, Some(RunEnd::CANCELLED), 0)
    );
    assert!(run.written.is_empty(), "{:?}", run.written);
    Ok(())
}

/// A request that is cancelled before any worker starts is never executed. A second request with the same key stays cancelled.
pub(crate) async fn a_run_that_no_worker_has_received_is_cancelled<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    let store = subject.fresh().await;
    let client = Client::new(&store);
    let send = || client.request("clerk", order()).key("order-1").send();
    let request = send().await?;

    let ended = client.cancel(request.run(), Cascade::Children).await?;

    assert_eq!(ended, 1);
    assert_not_executed(&client, &client.attach(&request.id())?).await?;
    let again = client.cancel(request.run(), Cascade::Children).await?;
    assert_eq!(again, 0, "a second cancellation ends no run");
    let same = send().await?;
    assert_eq!(same.id(), request.id(), "the key returns its first request");
    assert_not_executed(&client, &same).await?;

    let block = Block::default();
    block.release();
    let worker = start::<S>(&store, &block).await?;
    received(&client, request.run()).await?;
    let other = client.request("clerk", order()).send().await?;
    other.wait(LONG).await?;
    worker.stop().await?;
    assert_eq!(block.started(), 1, "only the other request starts a run");
    assert_not_executed(&client, &request).await
}

/// A cancelled run can be redone even if no worker had enqueued it.
pub(crate) async fn a_run_that_was_cancelled_before_any_worker_can_be_redone<
    S: SubjectWithEvents,
>(
    subject: &S,
) -> Result<(), BoxError> {
    let store = subject.fresh().await;
    let client = Client::new(&store);
    let request = client.request("clerk", order()).send().await?;
    client.cancel(request.run(), Cascade::Run).await?;
    let block = Block::default();
    block.release();
    let worker = start::<S>(&store, &block).await?;

    client.redo(request.run()).await?;

    request.wait(LONG).await?;
    worker.stop().await?;
    assert_eq!(block.started(), 1);
    assert_eq!(run_of(&client, &request).await?.state, RunState::Done);
    Ok(())
}

/// The run for one trigger version is cancelled, and the run for the next version is executed.
pub(crate) async fn a_later_version_of_a_cancelled_trigger_is_executed<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    let store = subject.fresh().await;
    let client = Client::new(&store);
    let request = client.request("clerk", order()).send().await?;
    let id = request.run().trigger_id;
    store.update(id, 1, Patch::new().title("changed")).await?;

    assert_eq!(client.cancel(request.run(), Cascade::Run).await?, 1);
    let block = Block::default();
    block.release();
    let worker = start::<S>(&store, &block).await?;

    let later = client.attach(&format!("{id}:2:clerk"))?;
    later.wait(LONG).await?;
    worker.stop().await?;
    assert_eq!(block.started(), 1, "only the later version starts a run");
    assert_not_executed(&client, &request).await
}

/// Cancelling a run without a trigger returns an error that names the run and the cause, and adds no row.
pub(crate) async fn a_run_without_its_trigger_is_not_cancelled<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    let store = subject.fresh().await;
    let client = Client::new(&store);
    let request = client.request("clerk", order()).send().await?;
    let id = request.run().trigger_id;
    for version in [0, 2] {
        let run = RunRef::new("clerk", id, version);
        let error = client.cancel(&run, Cascade::Run).await.unwrap_err();
        let is_expected = matches!(&error, ClientError::NoTrigger { found: Some(1), .. });
        assert!(is_expected, "{error:?}");
        assert!(error.to_string().contains("at version 1"), "{error}");
    }

    store.delete(id).await?;
    let cancelled = client.cancel(request.run(), Cascade::Children).await;

    let error = cancelled.unwrap_err();
    let is_expected =
        matches!(&error, ClientError::NoTrigger { run, found: None } if run == request.run());
    assert!(is_expected, "{error:?}");
    let message = error.to_string();
    assert!(message.contains(&id.to_string()), "{message}");
    assert!(message.contains("deleted"), "{message}");
    assert!(client.run(request.run()).await?.is_none());
    Ok(())
}

/// The triggers whose runs an executor has started.
type Started = Arc<Mutex<HashSet<BreadcrumbId>>>;

/// Creates an executor that answers each order with a receipt.
fn cashier(started: &Started) -> Executor {
    executor("cashier")
        .on(Subscription::trigger("order.v1"))
        .state(Arc::clone(started))
        .execute(|cx, started| async move {
            started.lock().unwrap().insert(cx.trigger().id);
            Ok(Response::create(NewBreadcrumb::new("receipt.v1")))
        })
}

/// Cancels a request after a number of tokio scheduler turns, and waits for the end of its run.
async fn race(
    client: &Client,
    request: &RequestHandle,
    turns: usize,
) -> Result<(usize, Result<Reply, ReplyError>), BoxError> {
    for _ in 0..turns {
        yield_now().await;
    }
    let ended = client.cancel(request.run(), Cascade::Children).await?;
    Ok((ended, request.wait(LONG).await))
}

/// Each of 100 cancellations while a worker starts has one of two effects: the run ends without a response, or it had already responded.
pub(crate) async fn a_request_that_races_with_a_worker_is_cancelled_or_answered<
    S: SubjectWithEvents,
>(
    subject: &S,
) -> Result<(), BoxError> {
    const ROUNDS: usize = 10;
    let store = subject.fresh().await;
    let (client, started) = (Client::new(&store), Started::default());
    let mut answered = HashSet::new();
    for round in 0..ROUNDS {
        let mut requests = Vec::new();
        for _ in 0..10 {
            requests.push(client.request("cashier", order()).send().await?);
        }

        let races = requests.iter().enumerate();
        let races = races.map(|(n, request)| race(&client, request, n * (round + 1) * 4));
        let worker = Worker::start(&store, |builder, _| Ok(builder.executor(cashier(&started))));
        let (worker, ends) = tokio::join!(worker, join_all(races));

        for (request, end) in requests.iter().zip(ends) {
            let run = run_of(&client, request).await?;
            let id = request.run().trigger_id;
            match end? {
                (1, Err(ReplyError::Cancelled { .. })) => {
                    assert!(run.written.is_empty(), "{:?}", run.written);
                    let is_started = started.lock().unwrap().contains(&id);
                    assert!(run.attempts > 0 || !is_started, "{run:?}");
                }
                (0, Ok(reply)) => {
                    assert_eq!(reply.written().len(), 1);
                    answered.insert(id.to_string());
                }
                (ended, waited) => return Err(format!("{ended} ended: {waited:?}").into()),
            }
        }
        worker?.stop().await?;
    }
    let receipts = store.recent("receipt.v1", 10 * ROUNDS + 1).await?;
    let triggers = receipts.iter().map(|receipt| {
        let trigger = receipt.context["creator"]["trigger_id"].as_str();
        trigger.unwrap_or_default().to_owned()
    });
    let triggers: HashSet<String> = triggers.collect();
    assert_eq!(triggers, answered);
    assert_eq!(
        receipts.len(),
        answered.len(),
        "one receipt for each answered request"
    );
    Ok(())
}

/// A turn that no worker has received can be cancelled, and the turns before and after it are answered.
pub(crate) async fn a_turn_that_no_worker_has_received_is_cancelled<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    let store = subject.fresh().await;
    let session = Client::new(&store).session("helper", "s-1")?;
    let first = session.send("a").await?;
    let mut cancelled = session.send("b").await?;

    cancelled.cancel().await?;
    cancelled.cancel().await?;

    let open = session.open_turns().await?;
    let open: Vec<String> = open.iter().map(|turn| turn.request().id()).collect();
    assert_eq!(
        open,
        [first.request().id()],
        "no worker has received the first turn"
    );
    let end = tokio::time::timeout(LONG, cancelled.next()).await?;
    let end = end.ok_or("the turn has no end")??.event;
    assert_eq!(end, TurnEvent::End(TurnEnd::Cancelled));

    let started = Arc::new(Mutex::new(Vec::new()));
    let helper = executor("helper")
        .on(Subscription::trigger("user.message.v1"))
        .state(Arc::clone(&started))
        .execute(|cx, started| async move {
            let message = cx.trigger().context["message"].as_str().unwrap_or_default();
            started.lock().unwrap().push(message.to_owned());
            let answer = NewBreadcrumb::new("agent.response.v1");
            Ok(Response::create(answer.context(json!({"message": "Hi."}))))
        });
    let worker = Worker::start(&store, |builder, _| Ok(builder.executor(helper))).await?;
    first.wait_for_end(LONG).await?;
    let last = session.send("c").await?;
    last.wait_for_end(LONG).await?;
    worker.stop().await?;

    assert_eq!(*started.lock().unwrap(), ["a", "c"]);
    let ends = session.history().await?.into_iter().map(|turn| turn.end);
    let ends: Vec<Option<TurnEnd>> = ends.collect();
    assert!(
        matches!(
            &ends[..],
            [
                Some(TurnEnd::Completed { .. }),
                Some(TurnEnd::Cancelled),
                Some(TurnEnd::Completed { .. })
            ]
        ),
        "{ends:?}"
    );
    assert!(session.open_turns().await?.is_empty());
    Ok(())
}
