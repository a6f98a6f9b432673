//! Several processes on one file. Handles with separate connections are equivalent for SQLite.

use crate::child::run_alone;
use crate::sqlite::{Folder, quick};
use futures::StreamExt as _;
use futures::future::join_all;
use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;
use universal_executor::source::StartAt;
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, ExecutorLimits, RunEnd, RunFilter, RunLedger, RunRef,
    RunState, Write,
};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, EventSource, NewBreadcrumb, SqliteStore,
};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

#[tokio::test]
async fn many_may_open_a_new_file_at_once() {
    let folder = Folder::new();

    let opened = join_all((0..8).map(|_| quick(&folder.file()).unshared().open())).await;

    let stores: Vec<SqliteStore> = opened.into_iter().map(|store| store.unwrap()).collect();
    join_all(stores.iter().map(|store| store.create(note()))).await;
    assert_eq!(stores[0].recent("note.v1", 100).await.unwrap().len(), 8);
}

#[tokio::test]
async fn of_a_hundred_runs_each_is_claimed_by_one_of_two_processes() {
    let folder = Folder::new();
    let (one, other) = (
        quick(&folder.file()).unshared().open().await.unwrap(),
        quick(&folder.file()).unshared().open().await.unwrap(),
    );
    let mut runs = Vec::new();
    for _ in 0..100 {
        runs.push(RunRef::new(
            "agent",
            one.create(note()).await.unwrap().id,
            1,
        ));
    }
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
        .into_iter()
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
async fn one_process_reads_and_receives_the_commits_of_another() {
    let folder = Folder::new();
    let poll = Duration::from_millis(5);
    let process = quick(&folder.file()).poll_every(poll).unshared();
    let one = process.clone().open().await.unwrap();
    let other = process.open().await.unwrap();
    let mut events = other.events().subscribe(StartAt::Now).await.unwrap();

    let first = one.create(note()).await.unwrap();
    let heard = events.next().await.unwrap().unwrap().event.breadcrumb_id;
    let second = other.create(note()).await.unwrap();

    assert_eq!(heard, first.id);
    assert!(
        second.updated_at > first.updated_at,
        "both processes must see the same order of commits"
    );
    assert_eq!(one.recent("note.v1", 10).await.unwrap(), [second, first]);
}

/// The test path of the child process.
const CHILD: &str = concat!(module_path!(), "::child_that_commits_until_it_is_killed");
const FILE_OF_CHILD: &str = "UNIVERSAL_EXECUTOR_TEST_FILE";

/// The child process that [`a_killed_process_leaves_every_commit_that_was_answered`] starts and kills. It does nothing by itself.
#[tokio::test]
async fn child_that_commits_until_it_is_killed() {
    let Some(path) = std::env::var_os(FILE_OF_CHILD) else {
        return;
    };
    let store = SqliteStore::open(path).await.unwrap();
    let mut out = std::io::stdout();
    loop {
        let trigger = store.create(note()).await.unwrap();
        let Claim::Granted(Claimed { lease, .. }) = store
            .claim(&RunRef::new("agent", trigger.id, 1), None)
            .await
            .unwrap()
        else {
            panic!("granted")
        };
        let commit = Commit {
            writes: vec![Write::Create(NewBreadcrumb::new("answer.v1")); 2],
            end: Some((lease, RunEnd::Done)),
        };
        store.commit(commit).await.unwrap();
        writeln!(out, "answered {}", trigger.id).unwrap();
    }
}

#[tokio::test]
async fn a_killed_process_leaves_every_commit_that_was_answered() {
    let folder = Folder::new();
    let mut answered: Vec<BreadcrumbId> = Vec::new();
    for round in 0..3 {
        let mut child = run_alone(CHILD)
            .env(FILE_OF_CHILD, folder.file())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines
            .map_while(Result::ok)
            .filter_map(|line| line.split("answered ").nth(1)?.parse::<BreadcrumbId>().ok());
        let mut told = told.fuse();
        answered.extend(told.by_ref().take(20 + 7 * round));
        child.kill().unwrap();
        answered.extend(told);
        child.wait().unwrap();
    }

    let store = quick(&folder.file()).open().await.unwrap();
    let rows = store.runs(&RunFilter::all()).await.unwrap();

    let done = |id: &BreadcrumbId| {
        rows.iter()
            .any(|row| row.run.trigger_id == *id && row.state == RunState::Done)
    };
    assert!(answered.len() >= 60, "{}", answered.len());
    assert!(answered.iter().all(done), "an answered commit is missing");
    let finished = rows.iter().filter(|row| row.state == RunState::Done);
    let answers = store.recent("answer.v1", 10_000).await.unwrap().len();
    assert_eq!(
        answers,
        2 * finished.count(),
        "responses without their runs, or half of them"
    );
}
