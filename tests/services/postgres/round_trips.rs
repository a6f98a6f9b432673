//! The number of round trips of each operation, which determines its cost on a distant server.

use crate::postgres::counter::Counter;
use crate::postgres::server::Namespaces;
use futures::future::join_all;
use serde_json::json;
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, Committed, ExecutorLimits, Lease, NewRequest, NewRun, Query,
    RunEnd, RunLedger, RunRef, Write,
};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch, PostgresStore,
    Selector,
};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1").tag("session:1")
}

async fn notes(store: &PostgresStore, n: usize) -> Vec<BreadcrumbId> {
    let written = store.commit(vec![Write::Create(note()); n].into()).await;
    written.unwrap().ids()
}

async fn claim(store: &PostgresStore, run: &RunRef) -> Lease {
    match store.claim(run, None).await.unwrap() {
        Claim::Granted(Claimed { lease, .. }) => lease,
        other => unreachable!("expected a granted claim, got {other:?}"),
    }
}

async fn respond(store: &PostgresStore, lease: Lease) -> Committed {
    let commit = Commit {
        writes: vec![Write::Create(NewBreadcrumb::new("answer.v1"))],
        end: Some((lease, RunEnd::Done)),
    };
    store.commit(commit).await.unwrap()
}

/// Creates a store behind a counting proxy.
async fn counted(namespaces: &Namespaces) -> (Counter, PostgresStore) {
    let counter = Counter::start().await;
    let builder = PostgresStore::builder(counter.url()).schema(namespaces.one());
    (counter, builder.connect().await.unwrap())
}

/// Returns the minimum number of round trips of each operation. Parallel work sometimes needs another connection, which must first
/// prepare its statements.
fn least(counts: Vec<Vec<(&'static str, usize)>>) -> Vec<(&'static str, usize)> {
    let least = counts.into_iter().reduce(|mut least, counts| {
        for (least, count) in least.iter_mut().zip(counts) {
            least.1 = least.1.min(count.1);
        }
        least
    });
    least.unwrap()
}

const ROUNDS: usize = 6;

/// Returns the number of round trips of each operation in the life of a run.
async fn life_of_a_run(counter: &Counter, store: &PostgresStore) -> Vec<(&'static str, usize)> {
    let trigger = notes(store, 1).await.remove(0);
    let run = RunRef::new("agent", trigger, 1);
    let limits = [ExecutorLimits::new("agent", 1)];
    let mut counts = Vec::new();

    let enqueued = store.enqueue(vec![NewRun::from(run.clone())]).await;
    counts.push(("enqueue", counter.take()));
    let claimed = store.claim_next(1, &limits, ClaimId::unique()).await;
    counts.push(("claim_next", counter.take()));
    let lease = claimed.unwrap().remove(0).lease;
    let lost = store.heartbeat(std::slice::from_ref(&lease)).await;
    counts.push(("heartbeat", counter.take()));
    let saved = store.save(&lease, json!({"step": 1}).into()).await;
    counts.push(("save", counter.take()));
    store.release(lease).await.unwrap();
    counts.push(("release", counter.take()));
    let lease = claim(store, &run).await;
    counts.push(("claim by hand", counter.take()));
    respond(store, lease).await;
    counts.push(("commit of a response", counter.take()));

    enqueued.unwrap();
    assert!(lost.unwrap().is_empty() && saved.is_ok());
    counts.remove(0);
    counts
}

async fn what_is_read_and_written(
    counter: &Counter,
    store: &PostgresStore,
) -> Vec<(&'static str, usize)> {
    let mut counts = Vec::new();
    counter.take();

    let made = store.create(note()).await.unwrap();
    counts.push(("create", counter.take()));
    let request = || NewRequest::new("agent", made.id.to_string(), note());
    store.request(request()).await.unwrap();
    counts.push(("request", counter.take()));
    store.request(request()).await.unwrap();
    counts.push(("repeated request", counter.take()));
    store
        .update(made.id, 1, Patch::new().title("t"))
        .await
        .unwrap();
    counts.push(("update", counter.take()));
    store.get(made.id).await.unwrap();
    counts.push(("get", counter.take()));
    store.latest("note.v1").await.unwrap();
    counts.push(("latest", counter.take()));
    store.recent("note.v1", 3).await.unwrap();
    counts.push(("search", counter.take()));

    counts
}

#[tokio::test]
async fn reads_cost_one_round_trip_and_commits_no_more_than_by_hand() {
    let namespaces = Namespaces::default();
    let (counter, store) = counted(&namespaces).await;

    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(what_is_read_and_written(&counter, &store).await);
    }
    let counts = least(rounds);

    // A commit locks the tenant's row, reads the rows that it changes, writes, and commits.
    let expected = [
        ("create", 2),
        ("request", 2),
        ("repeated request", 2),
        ("update", 2),
        ("get", 1),
        ("latest", 1),
        ("search", 1),
    ];
    assert_eq!(counts, expected);
}

#[tokio::test]
async fn each_step_of_a_run_costs_no_more_round_trips_than_it_did() {
    let namespaces = Namespaces::default();
    let (counter, store) = counted(&namespaces).await;

    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(life_of_a_run(&counter, &store).await);
    }
    let counts = least(rounds);

    let expected = [
        ("claim_next", 1),
        ("heartbeat", 1),
        ("save", 1),
        ("release", 2),
        ("claim by hand", 2),
        ("commit of a response", 2),
    ];
    assert_eq!(counts, expected);
}

#[tokio::test]
async fn older_matches_are_searched_in_pages() {
    const NOTES: u32 = 1_000;
    let namespaces = Namespaces::default();
    let (counter, store) = counted(&namespaces).await;
    for begin in (0..NOTES).step_by(100) {
        let notes = (begin..begin + 100).map(|n| Write::Create(note().context(json!({"n": n}))));
        store
            .commit(notes.collect::<Vec<_>>().into())
            .await
            .unwrap();
    }
    let query = Query::new(Selector::schema("note.v1").matching("$.n", "eq", 0)).limit(1);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        counter.take();
        let found = store.search(&query).await.unwrap();
        rounds.push(counter.take());
        assert_eq!(found[0].context["n"], 0);
    }

    // The snapshot starts and ends. In between, the search reads the newest breadcrumbs and then pages of 256.
    let asked = rounds.iter().min();
    assert!(asked <= Some(&12), "{rounds:?}");
}

#[tokio::test]
async fn a_group_of_waiting_calls_costs_as_many_round_trips_as_one_call() {
    let namespaces = Namespaces::default();
    let (counter, store) = counted(&namespaces).await;

    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(many_together(&counter, &store).await);
    }
    let counts = least(rounds);

    // The first operation has a separate transaction.
    assert_eq!(counts, [("enqueue 40", 2), ("commit 41", 2)]);
}

#[tokio::test]
async fn a_new_run_is_enqueued_and_claimed_with_its_trigger_in_two_round_trips() {
    let namespaces = Namespaces::default();
    let (counter, store) = counted(&namespaces).await;
    let limits = [ExecutorLimits::new("agent", 1)];
    let mut counts = Vec::new();
    for _ in 0..ROUNDS {
        let trigger = notes(&store, 1).await.remove(0);
        let run = RunRef::new("agent", trigger, 1);
        counter.take();

        let enqueued = store
            .enqueue_and_claim(vec![run.into()], 1, &limits, ClaimId::unique())
            .await;

        counts.push(counter.take());
        let claimed = enqueued.unwrap().claimed.unwrap().remove(0);
        assert_eq!(claimed.trigger.map(|found| found.id), Some(trigger));
        respond(&store, claimed.lease).await;
    }
    assert_eq!(counts.iter().min(), Some(&2), "{counts:?}");
}

async fn many_together(counter: &Counter, store: &PostgresStore) -> Vec<(&'static str, usize)> {
    let runs = notes(store, 40).await.into_iter();
    let runs: Vec<RunRef> = runs.map(|id| RunRef::new("agent", id, 1)).collect();
    let line = format!("line of {}", runs[0].trigger_id);
    let in_a_line = runs.iter().map(|run| run.clone().ordered_by(Some(&*line)));
    let in_a_line = in_a_line.map(NewRun::from).collect();
    counter.take();

    store.enqueue(in_a_line).await.unwrap();
    let enqueue = counter.take();
    let first = claim(store, &runs[0]).await;
    counter.take();
    let others = join_all((0..40).map(|_| store.create(note())));
    let (first, others) = tokio::join!(respond(store, first), others);
    let commits = counter.take();

    assert_eq!(first.written.len(), 1);
    assert!(others.iter().all(Result::is_ok));
    vec![("enqueue 40", enqueue), ("commit 41", commits)]
}
