//! A write-ahead log that ends in the middle, as after a power loss.

use crate::sqlite::{Folder, quick};
use proptest::prelude::*;
use proptest::sample::Index;
use std::cell::Cell;
use std::fs;
use universal_executor::store::{
    Claim, Claimed, Commit, RunEnd, RunFilter, RunLedger, RunRef, RunState, Write,
};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, SqliteStore};

/// Commits one round: a trigger, the claim of its run, and the end of the run with two answers.
async fn round(store: &SqliteStore, number: usize) {
    let context = serde_json::json!({"number": number, "text": "x".repeat(number * 37)});
    let trigger = store
        .create(NewBreadcrumb::new("question.v1").context(context))
        .await
        .unwrap();
    let Claim::Granted(Claimed { lease, .. }) = store
        .claim(&RunRef::new("agent", trigger.id, 1), None)
        .await
        .unwrap()
    else {
        panic!("granted")
    };
    let commit = Commit {
        writes: vec![Write::Create(NewBreadcrumb::new("answer.v1").tag("t")); 2],
        end: Some((lease, RunEnd::Done)),
    };
    store.commit(commit).await.unwrap();
}

/// Returns a file and its log after some rounds, copied while the store is open.
async fn copied() -> (Vec<u8>, Vec<u8>) {
    const ROUNDS: usize = 20;
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    for number in 0..ROUNDS {
        round(&store, number).await;
    }
    (
        fs::read(folder.file()).unwrap(),
        fs::read(folder.0.join("store.db-wal")).unwrap(),
    )
}

/// Returns the number of steps in the store: three per round. Fails if a step exists without all earlier steps.
async fn steps(store: &SqliteStore) -> usize {
    let mut questions = store.recent("question.v1", 1_000).await.unwrap();
    questions.reverse();
    let answers = store.recent("answer.v1", 1_000).await.unwrap().len();
    let rows = store.runs(&RunFilter::all()).await.unwrap();
    let state = |id| {
        rows.iter()
            .find(|row| row.run.trigger_id == id)
            .map(|row| row.state)
    };
    let mut steps = 0;
    for (at, question) in questions.iter().enumerate() {
        assert_eq!(
            question.context["number"], at,
            "a commit is missing between others"
        );
        let is_last = at + 1 == questions.len();
        steps += match state(question.id) {
            Some(RunState::Done) => 3,
            Some(RunState::Running) if is_last => 2,
            None if is_last => 1,
            other => panic!("question {at} has a run in an unexpected state: {other:?}"),
        };
    }
    assert_eq!(
        answers,
        2 * (steps / 3),
        "answers without the end of their run"
    );
    steps
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn a_torn_log_restores_the_state_after_some_commit() {
    let (file, log) = runtime().block_on(copied());
    let most = Cell::new(0);

    proptest!(ProptestConfig::with_cases(60), |(cut in any::<Index>(), is_whole in prop::bool::weighted(0.05))| {
        let folder = Folder::new();
        let end = if is_whole { log.len() } else { cut.index(log.len()) };
        fs::write(folder.file(), &file).unwrap();
        fs::write(folder.0.join("store.db-wal"), &log[..end]).unwrap();
        runtime().block_on(async {
            let store = quick(&folder.file()).open().await.unwrap();
            let left = steps(&store).await;
            round(&store, left.div_ceil(3)).await;
            let stats = store.stats().await.unwrap();
            let crumbs = store.search(&universal_executor::store::Query::new(universal_executor::Selector::any()).limit(1_000)).await.unwrap();
            assert_eq!(stats.breadcrumbs as usize, crumbs.len());
            assert_eq!(stats.position as usize, crumbs.len(), "each breadcrumb must have one event");
            most.set(most.get().max(left));
        });
    });
    assert!(most.get() > 0, "at least one cut must leave some steps");
}
