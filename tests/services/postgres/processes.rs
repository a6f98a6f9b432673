//! Several processes on one database. Several connection pools are equivalent for PostgreSQL.

use crate::postgres::server::{Namespaces, store_in, url};
use crate::request_keys;
use futures::StreamExt as _;
use futures::future::{join, join_all};
use sqlx::Connection as _;
use std::collections::HashSet;
use std::time::Duration;
use universal_executor::model::Timestamp;
use universal_executor::source::{SourceError, StartAt};
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, ExecutorLimits, NewRequest, PostgresError, PostgresLimits,
    Requested, RunEnd, RunFilter, RunLedger, RunRef, RunState, Write,
};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, EventSource, NewBreadcrumb, PostgresStore,
};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

async fn two(namespaces: &Namespaces) -> (PostgresStore, PostgresStore) {
    let name = namespaces.one();
    (
        store_in(&name).connect().await.unwrap(),
        store_in(&name).connect().await.unwrap(),
    )
}

#[tokio::test]
async fn many_may_make_the_tables_at_once() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();

    let connected = join_all((0..8).map(|_| store_in(&name).connect())).await;

    let stores: Vec<PostgresStore> = connected.into_iter().map(Result::unwrap).collect();
    join_all(stores.iter().map(|store| store.create(note()))).await;
    assert_eq!(stores[0].recent("note.v1", 100).await.unwrap().len(), 8);
}

#[tokio::test]
async fn of_a_hundred_runs_each_is_claimed_by_one_of_two_processes() {
    let namespaces = Namespaces::default();
    let (one, other) = two(&namespaces).await;
    let made = one
        .commit(vec![Write::Create(note()); 100].into())
        .await
        .unwrap();
    let runs: Vec<RunRef> = made
        .ids()
        .into_iter()
        .map(|id| RunRef::new("agent", id, 1))
        .collect();
    one.enqueue(runs.iter().cloned().map(Into::into).collect())
        .await
        .unwrap();

    let by_hand = join_all(
        runs.iter()
            .take(50)
            .flat_map(|run| [one.claim(run, None), other.claim(run, None)]),
    )
    .await;
    let limits = [ExecutorLimits::new("agent", 100)];
    let claimed = join_all((0..20).map(|n| {
        let store = if n % 2 == 0 { &one } else { &other };
        store.claim_next(5, &limits, ClaimId::unique())
    }))
    .await;

    let granted = by_hand
        .iter()
        .filter(|claim| matches!(claim, Ok(Claim::Granted(_))));
    assert_eq!(granted.count(), 50);
    let claimed: Vec<_> = claimed.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(claimed.len(), 50);
    let seen: HashSet<BreadcrumbId> = claimed
        .into_iter()
        .map(|run| run.lease.run.trigger_id)
        .collect();
    assert_eq!(seen.len(), 50, "each run is claimed once");
    for row in one.runs(&RunFilter::all()).await.unwrap() {
        assert_eq!(
            (row.state, row.attempts),
            (RunState::Running, 1),
            "{:?}",
            row.run
        );
    }
}

#[tokio::test]
async fn a_pause_applies_to_running_processes_and_to_a_process_that_starts_later() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let one = store_in(&name).connect().await.unwrap();
    let other = store_in(&name).connect().await.unwrap();
    let trigger = one.create(note()).await.unwrap();
    let run = RunRef::new("agent", trigger.id, 1);
    one.enqueue(vec![run.clone().into()]).await.unwrap();
    let limits = [ExecutorLimits::new("agent", 9)];

    assert!(one.pause_executor("agent").await.unwrap());

    let later = store_in(&name).connect().await.unwrap();
    for store in [&one, &other, &later] {
        let claimed = store.claim_next(9, &limits, ClaimId::unique()).await;
        assert_eq!(claimed.unwrap().len(), 0);
        let claim = store.claim(&run, None).await.unwrap();
        assert!(matches!(claim, Claim::Paused { .. }), "{claim:?}");
    }
    assert!(later.resume_executor("agent").await.unwrap());
    let claimed = one.claim_next(9, &limits, ClaimId::unique()).await;
    assert_eq!(claimed.unwrap().len(), 1);
}

#[tokio::test]
async fn keys_of_requests_have_the_limit_of_runs() {
    let namespaces = Namespaces::default();
    let mut limits = PostgresLimits::default();
    (limits.open_runs, limits.finished_runs) = (1, 1);
    let store = namespaces.builder().limits(limits).connect().await.unwrap();
    request_keys::keys_have_the_limit_of_runs(&store, async |time| store.advance_clock(time)).await;
}

#[tokio::test]
async fn old_keys_of_requests_without_a_run_make_room_in_a_full_store() {
    let namespaces = Namespaces::default();
    let mut limits = PostgresLimits::default();
    (limits.open_runs, limits.finished_runs) = (80, 20);
    let store = namespaces.builder().limits(limits).connect().await.unwrap();
    let pass = async |time| store.advance_clock(time);
    request_keys::old_keys_without_a_run_make_room_in_a_full_store(&store, pass).await;
}

#[tokio::test]
async fn of_a_hundred_requests_of_two_processes_with_one_key_one_creates_a_breadcrumb() {
    let namespaces = Namespaces::default();
    let (one, other) = two(&namespaces).await;
    let request = || NewRequest::new("agent", "key", note());

    let answers = join_all((0..100).map(|n| {
        let store = if n % 2 == 0 { &one } else { &other };
        store.request(request())
    }));

    let answers: Vec<Requested> = answers.await.into_iter().map(Result::unwrap).collect();
    let creates = |answer: &&Requested| matches!(answer, Requested::Created { .. });
    assert_eq!(answers.iter().filter(creates).count(), 1);
    let created = one.recent("note.v1", 9).await.unwrap();
    assert_eq!(created.len(), 1);
    let is_it = |answer: &Requested| answer.trigger() == (created[0].id, 1);
    assert!(answers.iter().all(is_it));
    let other_note = NewRequest::new("agent", "key", note().title("other"));
    let conflict = other.request(other_note).await.unwrap_err();
    assert_eq!(conflict.code(), "key_conflict");
}

#[tokio::test]
async fn requests_of_two_processes_with_the_same_keys_and_other_commits_are_committed_once_each() {
    let namespaces = Namespaces::default();
    let (one, other) = two(&namespaces).await;
    let request = |store: &PostgresStore, key: u32| {
        let store = store.clone();
        let request = NewRequest::new("agent", key.to_string(), note().title(key.to_string()));
        async move { store.request(request).await.unwrap().trigger() }
    };
    let other_work = |store: &PostgresStore| {
        let store = store.clone();
        async move {
            let trigger = store.create(NewBreadcrumb::new("order.v1")).await.unwrap();
            let run = RunRef::new("agent", trigger.id, 1).ordered_by(Some("key"));
            store.enqueue(vec![run.clone().into()]).await.unwrap();
            drop(store.claim(&run, None).await.unwrap());
        }
    };

    let (mut ascending, mut descending, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for key in 0..60 {
        ascending.push(request(&one, key));
        descending.push(request(&other, 59 - key));
        others.push(other_work(if key % 2 == 0 { &one } else { &other }));
    }
    let requests = join(join_all(ascending), join_all(descending));
    let ((ascending, mut descending), _) = join(requests, join_all(others)).await;

    descending.reverse();
    assert_eq!(ascending, descending);
    let created = one.recent("note.v1", 200).await.unwrap();
    assert_eq!(created.len(), 60);
}

#[tokio::test]
async fn one_process_reads_and_receives_another_processs_commits_without_polling() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let never = Duration::from_secs(3_600);
    let one = store_in(&name).connect().await.unwrap();
    let other = store_in(&name).poll_every(never).connect().await.unwrap();
    let mut events = other.events().subscribe(StartAt::Now).await.unwrap();
    // A notification may arrive before the subscriber listens, so several are needed.
    let commits = async {
        loop {
            one.create(note()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };

    let heard = tokio::select! {
        () = commits => unreachable!(),
        heard = events.next() => heard.unwrap().unwrap().event.breadcrumb_id,
    };

    assert_eq!(
        other.get(heard).await.unwrap().schema_name.as_deref(),
        Some("note.v1")
    );
}

#[tokio::test]
async fn a_consumer_that_was_away_for_too_long_learns_since_when_events_are_missing() {
    let namespaces = Namespaces::default();
    let mut limits = PostgresLimits::default();
    limits.events = 3;
    let builder = store_in(&namespaces.one()).limits(limits);
    let store = builder.connect().await.unwrap();
    let before = store.create(note()).await.unwrap();
    let indexer = store.events_of("indexer");
    drop(indexer.subscribe(StartAt::Now).await.unwrap());
    for _ in 0..20 {
        store.create(note()).await.unwrap();
    }

    let mut events = indexer.subscribe(StartAt::Now).await.unwrap();

    let lagged = events.next().await.unwrap().unwrap_err();
    let SourceError::Lagged { missed, after } = lagged else {
        panic!("{lagged:?}");
    };
    // The commit of the last event may have had more events.
    let last = Timestamp::from_micros(before.updated_at.as_micros() - 1);
    assert_eq!((missed, after), (17, Some(last)));
}

#[tokio::test]
async fn events_arrive_through_polling_without_notifications() {
    let namespaces = Namespaces::default();
    let (one, other) = two(&namespaces).await;
    let position = {
        let mut events = other.events().subscribe(StartAt::Now).await.unwrap();
        one.create(note()).await.unwrap();
        events.next().await.unwrap().unwrap().position.unwrap()
    };

    assert_eq!(position, 1);
}

#[tokio::test]
async fn committed_data_survives_a_restart_of_the_process() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let store = store_in(&name).connect().await.unwrap();
    let trigger = store
        .create(note().title("kept").tags(["a", "b"]))
        .await
        .unwrap();
    let run = RunRef::new("agent", trigger.id, 1).ordered_by(Some("line"));
    let Claim::Granted(Claimed { lease, .. }) = store.claim(&run, None).await.unwrap() else {
        panic!("granted")
    };
    store.close().await;

    let store = store_in(&name).connect().await.unwrap();
    let commit = Commit {
        writes: vec![Write::Create(note())],
        end: Some((lease, RunEnd::Done)),
    };
    let written = store.commit(commit).await.unwrap().ids();
    let found = store.get(trigger.id).await.unwrap();
    let claim = store.claim(&run, None).await.unwrap();

    assert_eq!(found, trigger);
    let Claim::Done {
        state,
        written: told,
    } = claim
    else {
        panic!("expected a completed run, got {claim:?}")
    };
    assert_eq!((state, told), (RunState::Done, written));
}

#[tokio::test]
async fn tables_of_a_newer_version_are_left_alone() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    store_in(&name).connect().await.unwrap().close().await;
    let mut other = sqlx::PgConnection::connect(&url()).await.unwrap();
    let newer = format!("UPDATE {name}.ux_schema_version SET version = 99");
    sqlx::raw_sql(sqlx::AssertSqlSafe(newer))
        .execute(&mut other)
        .await
        .unwrap();

    let error = store_in(&name).connect().await.unwrap_err();

    let is_newer =
        matches!(&error, PostgresError::NewerSchema { found: 99, schema, .. } if *schema == name);
    assert!(is_newer, "{error:?}");
}
