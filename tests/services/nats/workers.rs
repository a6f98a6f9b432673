//! Workers that share PostgreSQL and NATS, with separate connection pools as in separate processes.

use crate::nats::harness::{Answers, Relayed, answered, answers, ask_all, eventually, runtime};
use crate::nats::server::{Server, url, uuid};
use crate::postgres::server::{Namespaces, store_in};
use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use std::time::Duration;
use universal_executor::source::{FallbackSource, NatsServer, NatsSource, StartAt};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt as _, EventSource as _, NewBreadcrumb, PostgresStore,
    Runtime, Selector,
};

/// Creates a worker with a relay, on a store and a server.
async fn worker(
    server: impl Into<NatsServer>,
    tenant: &str,
    store: &PostgresStore,
) -> (Runtime, Relayed) {
    let server = server.into();
    let relayed = Relayed::of(server.clone(), tenant, store.events_of("nats")).await;
    let quick = NatsSource::builder(server, tenant).group("workers");
    let quick = quick.connect().await.unwrap();
    let source =
        FallbackSource::new(quick, store.events_of("workers")).ask_every(Duration::from_secs(2));
    (runtime(source, store).build().unwrap(), relayed)
}

async fn answered_once(store: &impl BreadcrumbStore, questions: usize) {
    let answers = answers(store).await;
    assert_eq!(answers.len(), questions);
    assert!(answers.values().all(|count| *count == 1), "{answers:?}");
}

#[tokio::test]
async fn four_workers_with_two_stores_answer_each_question_once() {
    let (namespaces, tenant) = (Namespaces::default(), uuid());
    let name = namespaces.one();
    let stores = join_all((0..2).map(|_| store_in(&name).connect())).await;
    let stores: Vec<PostgresStore> = stores.into_iter().map(Result::unwrap).collect();
    let workers = join_all((0..4).map(|n| worker(url(), &tenant, &stores[n % 2]))).await;
    let asked = async {
        for begin in (0..200).step_by(20) {
            ask_all(&stores[0], begin..begin + 20).await;
        }
    };

    let ended = answered(&stores[1], 200).shared();
    let all = workers
        .iter()
        .map(|(worker, _)| worker.run_until(ended.clone()));
    let (reports, ()) = futures::join!(join_all(all), asked);

    answered_once(&stores[0], 200).await;
    let responded: u64 = reports
        .into_iter()
        .map(|report| report.unwrap().responded)
        .sum();
    assert_eq!(responded, 200);
}

#[tokio::test]
async fn waits_of_one_worker_are_answered_though_the_group_shares_the_events() {
    let (namespaces, tenant) = (Namespaces::default(), uuid());
    let store = namespaces.builder().connect().await.unwrap();
    let _relay = Relayed::of(url(), &tenant, store.events_of("nats")).await;
    let worker = || async {
        let source = NatsSource::builder(url(), &*tenant).group("workers");
        let source = source.connect().await.unwrap();
        runtime(source, &store)
            .reconcile_every(Duration::from_secs(3_600))
            .build()
            .unwrap()
    };
    let (waiting, other) = futures::join!(worker(), worker());
    let answered = async {
        // Wait until the start is over, because each worker checks the whole store then.
        ask_all(&store, 0..20).await;
        answered(&store, 20).await;
        let waits = (0..12).map(|n| {
            let selector = Selector::schema("reply.v1").all_tags([format!("reply:{n}")]);
            waiting.wait_for(selector, Duration::from_secs(30))
        });
        let waits: Vec<_> = waits.collect();
        for n in 0..12 {
            let reply = NewBreadcrumb::new("reply.v1").tag(format!("reply:{n}"));
            store.create(reply).await.unwrap();
        }
        let answers = join_all(waits).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    };

    let ended = answered.shared();
    let (one, two) = futures::join!(
        waiting.run_until(ended.clone()),
        other.run_until(ended.clone())
    );

    one.unwrap();
    two.unwrap();
}

#[tokio::test]
async fn events_lost_by_the_server_during_a_downtime_are_answered_later() {
    let mut server = Server::started().await;
    let (namespaces, tenant) = (Namespaces::default(), uuid());
    let store = namespaces.builder().connect().await.unwrap();
    {
        let (first, _relay) = worker(server.url(), &tenant, &store).await;
        ask_all(&store, 0..5).await;
        first.run_until(answered(&store, 5)).await.unwrap();
    }
    // JetStream acknowledges the published events and then loses them, before any worker has received them.
    ask_all(&store, 5..25).await;
    let relay = Relayed::of(server.url(), &tenant, store.events_of("nats")).await;
    let relayed = store.events_of("nats");
    eventually(async || relayed.behind().await.unwrap() == Some(0)).await;
    drop(relay);
    server.kill();
    server.wipe();
    server.start().await;

    let (next, _relay) = worker(server.url(), &tenant, &store).await;
    next.run_until(answered(&store, 25)).await.unwrap();

    answered_once(&store, 25).await;
}

#[tokio::test]
async fn questions_are_answered_from_the_store_while_the_server_is_down() {
    let mut server = Server::started().await;
    let (namespaces, tenant) = (Namespaces::default(), uuid());
    let store = namespaces.builder().connect().await.unwrap();
    let (worker, _relay) = worker(server.url(), &tenant, &store).await;
    let harm = async {
        ask_all(&store, 0..5).await;
        answered(&store, 5).await;
        server.kill();
        ask_all(&store, 5..25).await;
        answered(&store, 25).await;
        server.start().await;
        ask_all(&store, 25..30).await;
        answered(&store, 30).await;
    };

    worker.run_until(harm).await.unwrap();

    answered_once(&store, 30).await;
}

#[tokio::test]
async fn a_backlog_reports_pending_events_and_due_runs() {
    let (namespaces, tenant) = (Namespaces::default(), uuid());
    let store = namespaces.builder().connect().await.unwrap();
    let named = store.events_of("workers");
    let mut events = named.subscribe(StartAt::Now).await.unwrap();
    ask_all(&store, 0..30).await;
    let answers = Answers::on(store.clone());
    let runs: Vec<_> = {
        let mut runs = Vec::new();
        for _ in 0..10 {
            let delivery = events.next().await.unwrap().unwrap();
            let event = &delivery.event;
            let run = universal_executor::store::RunRef::new(
                "answers",
                event.breadcrumb_id,
                event.version,
            );
            runs.push(run.into());
            delivery.ack().await.unwrap();
        }
        runs
    };
    store.ledger().unwrap().enqueue(runs).await.unwrap();
    eventually(async || named.behind().await.unwrap() == Some(20)).await;
    let quick = NatsSource::builder(url(), &*tenant)
        .connect()
        .await
        .unwrap();
    let source = FallbackSource::new(quick, store.events_of("workers"));
    let runtime = Runtime::builder(source).executor(answers).build().unwrap();

    let before = runtime.backlog().await.unwrap();
    runtime.run_until(answered(&store, 30)).await.unwrap();
    let after = runtime.backlog().await.unwrap();

    assert_eq!((before.behind, before.executors[0].due), (Some(20), 10));
    assert!(before.executors[0].oldest.is_some(), "{before:?}");
    assert_eq!(
        (after.executors[0].due, after.executors[0].oldest),
        (0, None)
    );
    assert_eq!(store.events_of("nobody").behind().await.unwrap(), None);
    assert_eq!(store.events().behind().await.unwrap(), None);
}
