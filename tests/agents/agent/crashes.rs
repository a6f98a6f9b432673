//! The steps that a retried run repeats, and the steps that it never repeats.

use crate::agent::{
    Arc, AtomicUsize, Breadcrumb, MemoryStore, ModelError, Ordering, Outcome, SECOND,
    ScriptedModel, Speaker, agent, answer, calling, count, event_of, put, registry, results, says,
    script, sees, tool,
};
use crate::support::{Call, Do, Shim, unavailable};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{advance, sleep};
use universal_executor::agent::AgentExecutor;
use universal_executor::store::{Fault, Faulty, Moment, Operation};
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::{BreadcrumbStore, RunLedger as _, UniversalExecutor as _};

const LEASE: Duration = Duration::from_secs(30);

/// An agent with two turns. In the first turn, it calls an idempotent tool, a tool without a guarantee, and an at-most-once tool, which
/// end one second after another. In the second turn, it answers.
struct Worker {
    agent: AgentExecutor,
    model: Arc<ScriptedModel>,
    calls: [Arc<AtomicUsize>; 3],
    question: Arc<Breadcrumb>,
}

impl Worker {
    async fn new(store: &MemoryStore, handle: &(impl BreadcrumbStore + Clone)) -> Self {
        let slow = |name, seconds| {
            tool(name, move |_| async move {
                tokio::task::yield_now().await;
                sleep(seconds * SECOND).await;
                tokio::task::yield_now().await;
                Ok(json!(name))
            })
        };
        let (again, agains) = slow("again", 1);
        let (once, onces) = slow("once", 2);
        let (most, mosts) = slow("most", 3);
        let tools = registry([again.idempotent(), once, most.at_most_once()]);
        let model = Arc::new(ScriptedModel::answering(|_, request| {
            let is_told = request.messages.last().unwrap().speaker == Speaker::Tool;
            Ok(match is_told {
                true => says("done"),
                false => calling([
                    ("1", "again", json!({})),
                    ("2", "once", json!({})),
                    ("3", "most", json!({})),
                ]),
            })
        }));
        Self {
            agent: agent(handle, &model, &tools, &json!({})).unwrap(),
            model,
            calls: [agains, onces, mosts],
            question: put(store, "question.v1", json!({})).await,
        }
    }

    /// Returns the number of model requests, and the number of calls of each tool.
    fn counts(&self) -> (usize, [usize; 3]) {
        let calls = self.calls.each_ref().map(|calls| count(calls));
        (self.model.requests().len(), calls)
    }

    /// Returns the last results of the three calls that the model received.
    fn told(&self) -> [String; 3] {
        let requests = self.model.requests();
        let told = results(requests.last().unwrap()).into_iter();
        let told = told.map(|(_, text, _)| text.split(':').next().unwrap().to_owned());
        told.collect::<Vec<_>>().try_into().unwrap()
    }
}

const UNKNOWN: &str = "outcome_unknown";

#[tokio::test(start_paused = true)]
async fn a_run_with_a_failed_save_repeats_only_that_step() {
    // Per save that fails: its number, the model requests and the tool calls in total, and the results that the model receives.
    let expected = [
        (1, 3, [1, 1, 1], ["again", "once", "most"]),
        (2, 2, [2, 1, 1], ["again", UNKNOWN, UNKNOWN]),
        (3, 2, [1, 1, 1], ["again", UNKNOWN, UNKNOWN]),
        (4, 2, [1, 1, 1], ["again", "once", UNKNOWN]),
        (5, 3, [1, 1, 1], ["again", "once", "most"]),
        (6, 2, [1, 1, 1], ["again", "once", "most"]),
    ];
    for (failing, asked, called, told) in expected {
        let store = MemoryStore::default();
        let saves = AtomicUsize::new(0);
        let shim = Shim::new(&store, move |call| match call {
            Call::Save if saves.fetch_add(1, Ordering::SeqCst) + 1 == failing => {
                Do::Fail(unavailable())
            }
            _ => Do::Pass,
        });
        let worker = Worker::new(&store, &shim).await;

        let first = sees(&worker.agent, &worker.question).await;
        advance(60 * SECOND).await;
        drop(sees(&worker.agent, &worker.question).await);

        assert_eq!(first.is_ok(), failing == 6, "{failing}: {first:?}");
        assert_eq!(answer(&store).await["message"], "done", "{failing}");
        assert_eq!(worker.counts(), (asked, called), "{failing}");
        assert_eq!(worker.told(), told, "{failing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_saved_step_is_not_repeated_after_a_lost_acknowledgement() {
    // Per save whose answer is lost: its number, and the results that the model receives in the end.
    let expected = [
        (1, ["again", UNKNOWN, UNKNOWN]),
        (2, ["again", UNKNOWN, UNKNOWN]),
        (3, ["again", "once", UNKNOWN]),
        (4, ["again", "once", "most"]),
        (5, ["again", "once", "most"]),
    ];
    for (failing, told) in expected {
        let store = MemoryStore::default();
        let saves = AtomicUsize::new(0);
        let faulty = Faulty::new(store.clone(), move |operation, moment| {
            let is_save = operation == Operation::Save && moment == Moment::After;
            match is_save && saves.fetch_add(1, Ordering::SeqCst) + 1 == failing {
                true => Fault::Fail,
                false => Fault::None,
            }
        });
        let worker = Worker::new(&store, &faulty).await;

        sees(&worker.agent, &worker.question).await.unwrap_err();
        advance(60 * SECOND).await;
        sees(&worker.agent, &worker.question).await.unwrap();

        assert_eq!(answer(&store).await["message"], "done", "{failing}");
        assert_eq!(worker.told(), told, "{failing}");
        let (asked, [again, rest @ ..]) = worker.counts();
        assert_eq!((asked, again), (2, 1), "{failing}");
        assert!(
            rest.iter().all(|called| *called <= 1),
            "{failing}: {rest:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_at_any_point_of_a_run_costs_one_step_and_no_call_that_must_not_be_repeated()
 {
    let mut points = 0;
    loop {
        let store = MemoryStore::default();
        let worker = Worker::new(&store, &store).await;

        let died = dies_after(points, &worker).await;
        advance(LEASE).await;
        let outcome = sees(&worker.agent, &worker.question).await.unwrap();

        assert_eq!(answer(&store).await["message"], "done", "{points}");
        let (asked, called) = worker.counts();
        assert!(asked <= 3, "{points}: {asked}");
        assert!(called[0] <= 2, "{points}: {called:?}");
        assert!(
            called[1..].iter().all(|called| *called <= 1),
            "{points}: {called:?}"
        );
        // A step is either a model request or the calls of one answer. A crash repeats only one of them.
        let repeated_request = asked == 3;
        let repeated_call = called[0] == 2;
        assert!(!(repeated_request && repeated_call), "{points}");
        for (place, told) in worker.told().iter().enumerate() {
            let is_known = told == ["again", "once", "most"][place];
            assert!(
                is_known || (place > 0 && told == UNKNOWN),
                "{points}: {told}"
            );
            assert!(!is_known || called[place] > 0, "{points}: {told}");
        }
        if !died {
            assert!(
                matches!(outcome, Outcome::AlreadyDone { .. }),
                "{outcome:?}"
            );
            assert_eq!((asked, called), (2, [1, 1, 1]));
            break;
        }
        points += 1;
    }
    assert!(points > 12, "{points}");
}

/// Drops the processing of the question after this number of polls. Returns `true` if the processing was dropped or has failed.
async fn dies_after(polls: usize, worker: &Worker) -> bool {
    let event = event_of(&worker.question);
    let mut run = Box::pin(worker.agent.process_event(&event));
    let mut polled = 0;
    std::future::poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(true);
        }
        polled += 1;
        match run.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(outcome.is_err()),
            Poll::Pending if polled == polls => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_costs_no_turn_and_no_call_that_was_there_before() {
    let store = MemoryStore::default();
    let (add, added) = crate::agent::echo("add");
    let model = script([
        Ok(calling([("1", "add", json!({"a": 1}))])),
        Err(ModelError::rate_limited(20 * SECOND)),
        Err(ModelError::Unavailable("503".into())),
        Ok(says("done")),
    ]);
    let worker = agent(&store, &model, &registry([add]), &json!({})).unwrap();
    let question = put(&store, "question.v1", json!({})).await;

    for _ in 0..2 {
        sees(&worker, &question).await.unwrap_err();
        advance(60 * SECOND).await;
    }
    sees(&worker, &question).await.unwrap();

    let answer = answer(&store).await;
    assert_eq!(
        (&answer["message"], &answer["usage"]["turns"]),
        (&json!("done"), &json!(2))
    );
    assert_eq!(count(&added), 1);
    let requests = model.requests();
    let told: Vec<_> = requests[1..].iter().map(results).collect();
    assert_eq!(told, vec![[("1", r#"{"a":1}"#, false)]; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_made_again_has_the_same_key_and_no_two_calls_have_one() {
    let store = MemoryStore::default();
    let keys: Arc<Mutex<Vec<(Value, String)>>> = Arc::default();
    let seen = Arc::clone(&keys);
    let pay = json_tool("pay", "For tests.", json!({}), move |input, context| {
        let key = context.idempotency_key().to_owned();
        assert_eq!(context.requested_by(), Some("worker"));
        seen.lock().unwrap().push((input, key));
        async {
            sleep(SECOND).await;
            Ok(json!("paid"))
        }
    });
    let (one, two) = (json!({"n": 1}), json!({"n": 2}));
    let model = script([
        Ok(calling([
            ("1", "pay", one.clone()),
            ("2", "pay", two.clone()),
        ])),
        Ok(calling([("1", "pay", one.clone())])),
        Ok(says("done")),
    ]);
    let tools = registry([pay.idempotent()]);
    let worker = agent(&store, &model, &tools, &json!({})).unwrap();
    let question = put(&store, "question.v1", json!({})).await;

    let killed = tokio::time::timeout(SECOND / 2, sees(&worker, &question)).await;
    advance(LEASE).await;
    sees(&worker, &question).await.unwrap();

    assert!(killed.is_err());
    let keys = keys.lock().unwrap().clone();
    let inputs: Vec<_> = keys.iter().map(|(input, _)| input).collect();
    assert_eq!(inputs, [&one, &two, &one, &two, &one]);
    assert_eq!(keys[..2], keys[2..4]);
    assert!(keys[0].1 != keys[1].1 && keys[4].1 != keys[0].1 && keys[4].1 != keys[1].1);
}

#[tokio::test(start_paused = true)]
async fn time_that_earlier_attempts_worked_counts_towards_the_budget() {
    let store = MemoryStore::default();
    let (slow, slows) = tool("slow", |_| async {
        sleep(6 * SECOND).await;
        Ok(json!("done"))
    });
    let call = || Ok(calling([("1", "slow", json!({}))]));
    let limited = Err(ModelError::rate_limited(600 * SECOND));
    let model = script([call(), limited, call(), Ok(says("done"))]);
    let more = json!({"budgets": {"seconds": 10}});
    let worker = agent(&store, &model, &registry([slow]), &more).unwrap();
    let question = put(&store, "question.v1", json!({})).await;

    sees(&worker, &question).await.unwrap_err();
    advance(600 * SECOND).await;
    let outcome = sees(&worker, &question).await.unwrap();

    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    assert_eq!((model.requests().len(), count(&slows)), (3, 2));
}

#[tokio::test]
async fn a_saved_state_that_is_not_an_agent_state_fails_the_run_without_a_model_request() {
    let store = MemoryStore::default();
    let model = script([Ok(says("done"))]);
    let worker = agent(&store, &model, &ToolRegistry::default(), &json!({})).unwrap();
    let question = put(&store, "question.v1", json!({})).await;
    let run = universal_executor::store::RunRef::of(worker.id(), &event_of(&question));
    let universal_executor::store::Claim::Granted(universal_executor::store::Claimed {
        lease, ..
    }) = store.claim(&run, None).await.unwrap()
    else {
        panic!("the claim was not granted")
    };
    store
        .save(&lease, json!({"of": "another"}).into())
        .await
        .unwrap();
    store.release(lease).await.unwrap();

    let outcome = sees(&worker, &question).await.unwrap();

    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    assert_eq!(model.requests(), []);
    assert_eq!(
        answer(&store).await["message"],
        "cannot read the saved state of the agent run; another version of the crate may have saved it"
    );
}
