//! Runs within runs: subscribers of the outer run receive the events of the inner run while it runs, with its ID.

use crate::workload::{Setup, grammar};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use universal_executor::source::StartAt;
use universal_executor::store::{Fault, Faulty, Moment, Operation, Query};
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::workflow::StepPath;
use universal_executor::workload::{
    ExecutorDefinition, NativeDefinition, RunCx, SubscriberItem, WorkloadEvent, WorkloadEventKind,
    WorkloadExecutor, WorkloadMessage,
};
use universal_executor::{
    BoxError, BreadcrumbStore as _, BreadcrumbStoreExt as _, Event, MemoryStore, NewBreadcrumb,
    Outcome, Profile, Runtime, Selector, Services, Subscription, Subscriptions,
    UniversalExecutor as _, Wake, suspend,
};

/// Creates a workload that repeats its message and waits for a permit.
fn says(open: &Arc<Semaphore>) -> NativeDefinition {
    let open = Arc::clone(open);
    NativeDefinition::new("says", move |cx: RunCx, message| {
        let open = Arc::clone(&open);
        async move {
            let text = message.unwrap_or_default().text();
            cx.say(text.clone()).await;
            open.acquire().await?.forget();
            Ok(json!(text))
        }
    })
}

fn executor(open: &Arc<Semaphore>, setup: &Setup) -> WorkloadExecutor {
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
    setup
        .executor("inner", Arc::new(says(open)), messages)
        .unwrap()
}

type Told = Arc<Mutex<Vec<WorkloadEvent>>>;

fn noting(executor: WorkloadExecutor) -> (WorkloadExecutor, Told) {
    let told = Told::default();
    let notes = Arc::clone(&told);
    let executor = executor.with_events(move |event| notes.lock().unwrap().push(event));
    (executor, told)
}

#[tokio::test(start_paused = true)]
async fn events_of_an_inner_run_name_their_parent_and_arrive_while_it_runs() {
    let store = MemoryStore::default();
    let setup = Setup::new(Services::new(), Arc::new(store));
    let open = Arc::new(Semaphore::new(0));
    let (inner, of_inner) = noting(executor(&open, &setup));
    let outer = ExecutorDefinition::new(Arc::new(inner));
    let supervisor = setup.supervisor(Arc::new(outer)).build().unwrap();
    let mut subscriber = supervisor.subscribe("one").unwrap();
    let turn = supervisor.send("one", "hi").unwrap();
    let run: Arc<str> = turn.run().into();

    let mut events = Vec::new();
    let said = WorkloadEventKind::Text("hi".to_owned());
    let minute = Duration::from_secs(60);
    while let Ok(Some(SubscriberItem::Event(event))) = timeout(minute, subscriber.next()).await {
        events.push((*event).clone());
        // The inner run waits for its permit, so neither run has ended.
        if event.kind == said {
            open.add_permits(1);
        }
        if event.run == run && event.kind.is_end() {
            break;
        }
    }
    open.add_permits(1);
    let outcome = turn.outcome().await;

    assert_eq!(
        outcome.final_text().as_deref(),
        Some("hi"),
        "{:?}",
        outcome.status
    );
    let (of_outer, nested): (Vec<_>, Vec<_>) =
        events.into_iter().partition(|event| event.run == run);
    grammar::check(&of_outer);
    grammar::check(&nested);
    assert_eq!(nested, *of_inner.lock().unwrap());
    assert!(
        nested
            .iter()
            .all(|event| event.parent.as_ref() == Some(&run))
    );
    assert!(of_outer.iter().all(|event| event.parent.is_none()));
}

#[tokio::test]
async fn an_inner_run_has_its_own_conversation_in_the_session() {
    let store = MemoryStore::default();
    let setup = Setup::new(Services::new(), Arc::new(store));
    let open = Arc::new(Semaphore::new(2));
    let outer = ExecutorDefinition::new(Arc::new(executor(&open, &setup)));
    let supervisor = setup.supervisor(Arc::new(outer)).build().unwrap();

    for text in ["one", "two"] {
        let outcome = supervisor.send("one", text).unwrap().outcome().await;
        assert_eq!(
            outcome.final_text().as_deref(),
            Some(text),
            "{:?}",
            outcome.status
        );
    }

    let session = supervisor.sessions().session("one");
    let inner = session.child(&StepPath::new("executor:inner"));
    for session in [session, inner] {
        let log = session.load().await.unwrap();
        let said: Vec<_> = log
            .messages()
            .into_iter()
            .map(|said| said.text().into_owned())
            .collect();
        assert_eq!(said, ["one", "one", "two", "two"]);
    }
}

#[tokio::test]
async fn a_run_that_continues_alone_still_names_its_parent_run() {
    let store = MemoryStore::default();
    let setup = Setup::new(Services::new(), Arc::new(store.clone()));
    let open = Arc::new(Semaphore::new(1));
    let (inner, told) = noting(executor(&open, &setup));
    let trigger = NewBreadcrumb::new("user.message.v1")
        .tag("parent:run-1")
        .context(json!({"message": "hi"}));
    let trigger = store.create(trigger).await.unwrap();

    inner
        .process_event(&Event::created(&trigger))
        .await
        .unwrap();

    let told = told.lock().unwrap();
    assert!(
        told.iter()
            .all(|event| event.parent.as_deref() == Some("run-1"))
    );
    grammar::check(&told);
}

#[tokio::test]
async fn an_interrupted_executor_run_reports_a_cancelled_end() {
    let store = MemoryStore::default();
    let setup = Setup::new(Services::new(), Arc::new(store.clone()));
    let open = Arc::new(Semaphore::new(0));
    let (inner, told) = noting(executor(&open, &setup));
    let trigger = NewBreadcrumb::new("user.message.v1").context(json!({"message": "hi"}));
    let trigger = store.create(trigger).await.unwrap();

    {
        let event = Event::created(&trigger);
        let mut run = std::pin::pin!(inner.process_event(&event));
        while told.lock().unwrap().len() < 2 {
            assert!(futures::poll!(&mut run).is_pending());
            tokio::task::yield_now().await;
        }
    }

    let told = told.lock().unwrap();
    grammar::check(&told);
    let end = WorkloadEventKind::failed("cancelled", "the turn was stopped");
    assert_eq!(told.last().unwrap().kind, end);
}

fn echo() -> NativeDefinition {
    NativeDefinition::new("echo", |_, message: Option<WorkloadMessage>| async move {
        Ok(message.unwrap_or_default().content)
    })
}

fn inner(definition: NativeDefinition, schema: &str, setup: &Setup) -> WorkloadExecutor {
    let asked = Subscriptions::new([Subscription::trigger(schema)]).unwrap();
    setup
        .executor("inner", Arc::new(definition), asked)
        .unwrap()
}

fn outer(inner: ExecutorDefinition, setup: &Setup) -> WorkloadExecutor {
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
    setup.executor("outer", Arc::new(inner), messages).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_outer_run_is_not_triggered_by_the_trigger_of_its_inner_run() {
    let store = MemoryStore::default();
    let setup = Setup::new(Services::new(), Arc::new(store.clone()));
    let inner = inner(echo(), "user.message.v1", &setup);
    let outer = outer(ExecutorDefinition::new(Arc::new(inner)), &setup);
    let runtime = Runtime::builder(store.events())
        .start_at(StartAt::Beginning)
        .executor(Arc::new(outer))
        .build()
        .unwrap();
    let message = NewBreadcrumb::new("user.message.v1").tag("session:one");
    let message = message.context(json!({"message": "hi"}));
    store.create(message).await.unwrap();

    let minutes = tokio::time::sleep(Duration::from_secs(120));
    runtime.run_until(minutes).await.unwrap();

    let messages = Query::new(Selector::schema("user.message.v1")).limit(100);
    let messages = store.search(&messages).await.unwrap();
    assert_eq!(messages.len(), 2, "{messages:?}");
    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    let result = result.unwrap();
    assert_eq!(
        (result.author(), &result.context["output"]),
        (Some("outer"), &json!("hi"))
    );
}

#[tokio::test]
async fn an_inner_trigger_is_written_only_if_the_profile_lists_its_schema() {
    for (listed, is_written) in [
        (None, true),
        (Some("secret.order.v1"), true),
        (Some("x.v1"), false),
    ] {
        let store = MemoryStore::default();
        let setup = Setup::new(Services::new(), Arc::new(store.clone()));
        let inner = inner(echo(), "secret.order.v1", &setup);
        let inner = ExecutorDefinition::new(Arc::new(inner)).schema("secret.order.v1");
        let mut outer = outer(inner, &setup);
        if let Some(listed) = listed {
            let profile = Profile::new("workload");
            outer = outer.with_profile(profile.responds_with([WorkloadExecutor::RESULT, listed]));
        }
        let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "hi"}));
        let message = store.create(message).await.unwrap();

        let done = outer.process_event(&Event::created(&message)).await;

        let written = store.latest("secret.order.v1").await.unwrap();
        assert_eq!(written.is_some(), is_written, "{listed:?}: {done:?}");
        let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
        let status = result.map(|result| result.context["status"].clone());
        let expected = if is_written { "success" } else { "error" };
        assert_eq!(status, Some(json!(expected)), "{listed:?}: {done:?}");
    }
}

#[tokio::test]
async fn an_unfinished_executor_run_does_not_block_later_turns() {
    for (text, is_stopped) in [("hang", true), ("fail", false)] {
        let store = MemoryStore::default();
        let setup = Setup::new(Services::new(), Arc::new(store.clone()));
        let begun = Arc::new(Semaphore::new(0));
        let begins = Arc::clone(&begun);
        let works = NativeDefinition::new("works", move |_, message: Option<WorkloadMessage>| {
            begins.add_permits(1);
            async move {
                let text = message.unwrap_or_default().text();
                match text.as_str() {
                    "hang" => std::future::pending().await,
                    "fail" => Err("not yet".into()),
                    _ => Ok(json!(text)),
                }
            }
        });
        let inner = inner(works, "user.message.v1", &setup);
        let outer = ExecutorDefinition::new(Arc::new(inner));
        let supervisor = setup.supervisor(Arc::new(outer)).build().unwrap();
        let turn = supervisor.send("one", text).unwrap();
        begun.acquire().await.unwrap().forget();
        if is_stopped {
            supervisor.cancel("one");
        }
        turn.outcome().await;

        let outcome = supervisor.send("one", "second").unwrap().outcome().await;

        assert_eq!(
            outcome.final_text().as_deref(),
            Some("second"),
            "{outcome:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_executor_run_that_yields_continues_within_its_turn() {
    let store = MemoryStore::default();
    let setup = Setup::new(Services::new(), Arc::new(store));
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
    let makes_way = NativeDefinition::new("makes-way", |cx: RunCx, _| async move {
        match cx.context().resumed() {
            None => Err(suspend(Wake::at(cx.context().now()), json!("on my way")).into()),
            Some(_) => Ok(json!("there")),
        }
    });
    let inner = setup.executor("inner", Arc::new(makes_way), messages);
    let outer = ExecutorDefinition::new(Arc::new(inner.unwrap()));
    let supervisor = setup.supervisor(Arc::new(outer)).build().unwrap();

    let outcome = supervisor.send("one", "go").unwrap().outcome().await;

    assert_eq!(
        outcome.final_text().as_deref(),
        Some("there"),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outer_run_yields_with_its_inner_run_and_no_step_is_interrupted() {
    let store = MemoryStore::default();
    let begun: Arc<Mutex<Vec<i64>>> = Arc::default();
    let notes = Arc::clone(&begun);
    let work = json_tool("work", "", json!({}), move |input, _| {
        let step = input["step"].as_i64().unwrap();
        notes.lock().unwrap().push(step);
        async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok(json!(step))
        }
    });
    let tools = ToolRegistry::default().with(work.at_most_once()).unwrap();
    let setup = Setup::new(Services::new().tools(tools), Arc::new(store.clone()));
    let step = |step: i64| json!({"tool": "work", "input": {"step": step}});
    let steps: Vec<_> = (1..=8).map(step).collect();
    let steps =
        crate::workload::flow(json!({"tools": {"work": {}}, "flows": {"main": {"steps": steps}}}));
    let asked = Subscriptions::new([Subscription::trigger("order.v1")]).unwrap();
    let ten_seconds = || Profile::new("workload").timeout(Duration::from_secs(10));
    let inner = setup.executor("inner", Arc::new(steps), asked);
    let inner = Arc::new(inner.unwrap().with_profile(ten_seconds()));
    let inner = ExecutorDefinition::new(inner).schema("order.v1");
    let outer = outer(inner, &setup).with_profile(ten_seconds());
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "go"}));
    let event = Event::created(&store.create(message).await.unwrap());

    let mut outcome = outer.process_event(&event).await.unwrap();
    while matches!(outcome, Outcome::Suspended { .. }) {
        outcome = outer.process_event(&event).await.unwrap();
    }

    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    let result = result.unwrap();
    assert_eq!(result.context["output"], 8, "{result:?}");
    assert_eq!(*begun.lock().unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[tokio::test]
async fn an_inner_run_receives_exactly_the_input_of_its_outer_run() {
    let store = MemoryStore::default();
    let setup = Setup::new(Services::new(), Arc::new(store.clone()));
    let inner = inner(echo(), "order.v1", &setup);
    let inner = ExecutorDefinition::new(Arc::new(inner)).schema("order.v1");
    let outer = outer(inner, &setup);
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"crabs": 3}));
    let message = store.create(message).await.unwrap();

    outer
        .process_event(&Event::created(&message))
        .await
        .unwrap();

    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    assert_eq!(result.unwrap().context["output"], json!({"crabs": 3}));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_breadcrumb_with_the_tag_of_a_turn_does_not_replace_the_inner_trigger() {
    let store = MemoryStore::default();
    let commits = AtomicUsize::new(0);
    // The first commit writes the order for the inner run, but its answer is lost.
    let losing = Faulty::new(store.clone(), move |operation, moment| {
        let is_commit = operation == Operation::Commit && moment == Moment::After;
        match is_commit && commits.fetch_add(1, Ordering::SeqCst) == 0 {
            true => Fault::Fail,
            false => Fault::None,
        }
    });
    let setup = Setup::new(Services::new(), Arc::new(losing));
    let inner = inner(echo(), "order.v1", &setup);
    let inner = ExecutorDefinition::new(Arc::new(inner)).schema("order.v1");
    let outer = outer(inner, &setup);
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "hi"}));
    let event = Event::created(&store.create(message).await.unwrap());

    outer.process_event(&event).await.unwrap_err();
    let order = store.latest("order.v1").await.unwrap().unwrap();
    let forged = NewBreadcrumb::new("order.v1").tags(order.tags.clone());
    let forged = forged.created_by("mallory");
    store
        .create(forged.context(json!({"message": "forged"})))
        .await
        .unwrap();
    tokio::time::advance(Duration::from_secs(120)).await;
    outer.process_event(&event).await.unwrap();

    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    assert_eq!(result.unwrap().context["output"], "hi");
}

#[tokio::test(start_paused = true)]
async fn a_run_within_a_run_that_may_run_once_does_although_its_runtime_is_stopped_meanwhile() {
    let store = MemoryStore::default();
    let setup = Setup::new(Services::new(), Arc::new(store.clone()));
    let begun = Arc::new(Semaphore::new(0));
    let begins = Arc::clone(&begun);
    let hangs = NativeDefinition::new("hangs", move |_, _| {
        begins.add_permits(1);
        std::future::pending::<Result<Value, BoxError>>()
    });
    let once = Profile::new("workload").at_most_once();
    let inner = inner(hangs, "order.v1", &setup).with_profile(once);
    let inner = ExecutorDefinition::new(Arc::new(inner)).schema("order.v1");
    let outer = Arc::new(outer(inner, &setup));
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "hi"}));
    store.create(message).await.unwrap();
    let runtime = || {
        Runtime::builder(store.events())
            .start_at(StartAt::Beginning)
            .drain_timeout(Duration::ZERO)
            .executor(outer.clone())
            .build()
            .unwrap()
    };

    let is_begun = async { begun.acquire().await.unwrap().forget() };
    runtime().run_until(is_begun).await.unwrap();
    let minutes = tokio::time::sleep(Duration::from_secs(300));
    runtime().run_until(minutes).await.unwrap();

    assert_eq!(
        begun.available_permits(),
        0,
        "the inner run must not run again"
    );
    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    let result = result.unwrap();
    assert_eq!(result.context["status"], "error", "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stopping_runtime_releases_an_outer_run_and_its_inner_runs() {
    let store = MemoryStore::default();
    let setup = Setup::new(Services::new(), Arc::new(store.clone()));
    let begun = Arc::new(Semaphore::new(0));
    let begins = Arc::clone(&begun);
    let hangs = NativeDefinition::new("hangs", move |_, _| {
        begins.add_permits(1);
        std::future::pending::<Result<Value, BoxError>>()
    });
    let inner = inner(hangs, "order.v1", &setup);
    let inner = ExecutorDefinition::new(Arc::new(inner)).schema("order.v1");
    let outer = Arc::new(outer(inner, &setup));
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "hi"}));
    store.create(message).await.unwrap();

    // Without a release of the lease, three lost workers would end either run.
    for _ in 0..5 {
        let runtime = Runtime::builder(store.events())
            .start_at(StartAt::Beginning)
            .drain_timeout(Duration::ZERO)
            .executor(outer.clone())
            .build()
            .unwrap();
        let is_begun = async { begun.acquire().await.unwrap().forget() };
        let is_begun = timeout(Duration::from_secs(10), is_begun);
        let mut in_time = Ok(());
        let begins = async { in_time = is_begun.await };
        runtime.run_until(begins).await.unwrap();

        assert_eq!(in_time, Ok(()), "the run must continue immediately");
    }
}
