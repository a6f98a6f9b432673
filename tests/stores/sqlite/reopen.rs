//! A reopened file has all its earlier data.

use crate::sqlite::{Folder, quick};
use futures::StreamExt as _;
use serde_json::json;
use std::time::Duration;
use universal_executor::source::StartAt;
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, DeadLetter, ExecutorLimits, FailureClass, Lease, NewRequest,
    NewRun, Requested, Run, RunEnd, RunFilter, RunLedger, RunRef, SqliteStore, Wake, Write,
};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, Event, EventSource, NewBreadcrumb, Patch, Selector,
};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

async fn claimed(store: &SqliteStore, run: &RunRef) -> Lease {
    match store.claim(run, None).await.unwrap() {
        Claim::Granted(Claimed { lease, .. }) => lease,
        other => panic!("expected a granted claim, got {other:?}"),
    }
}

async fn end(store: &SqliteStore, lease: &Lease, end: RunEnd) {
    let commit = Commit {
        writes: vec![Write::Create(NewBreadcrumb::new("answer.v1"))],
        end: Some((lease.clone(), end)),
    };
    store.commit(commit).await.unwrap();
}

/// Returns a row without its lease, which belongs to a handle, and without the time since it is due, which grows.
fn shape(row: &Run) -> String {
    let mut row = row.clone();
    (row.lease, row.due_for) = (None, None);
    format!("{row:?} {:?} {:?}", row.run.event, row.run.order)
}

#[tokio::test]
async fn breadcrumbs_tombstones_and_lineage_are_there_again() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let full = note()
        .title("a")
        .description("b")
        .tags(["x", "x", "y"])
        .created_by("ann")
        .llm_hints(json!({"h": 1}))
        .context(json!({"n": 1.5, "s": "\u{1F600}", "big": u64::MAX}));
    let kept = store.create(full).await.unwrap();
    let kept = store
        .update(kept.id, 1, Patch::new().title("c").updated_by("bob"))
        .await
        .unwrap();
    let gone = store.create(note()).await.unwrap();
    store.delete(gone.id).await.unwrap();
    let lease = claimed(&store, &RunRef::new("agent", kept.id, 2)).await;
    end(&store, &lease, RunEnd::Done).await;
    let answer = store.latest("answer.v1").await.unwrap().unwrap();
    store.close().await;

    let store = quick(&folder.file()).open().await.unwrap();

    assert_eq!(*store.get(kept.id).await.unwrap(), *kept);
    assert_eq!(store.recent("note.v1", 10).await.unwrap(), [kept]);
    let error = store.get(gone.id).await.unwrap_err();
    assert!(
        format!("{error:?}").contains("version: 2"),
        "the tombstone: {error:?}"
    );
    let own = store
        .claim(&RunRef::new("agent", answer.id, 1), None)
        .await
        .unwrap();
    assert!(matches!(own, Claim::Own), "{own:?}");
    let other = store
        .claim(&RunRef::new("other", answer.id, 1), None)
        .await
        .unwrap();
    assert!(
        matches!(&other, Claim::Granted(Claimed { lineage, .. }) if lineage.hops == 1),
        "{other:?}"
    );
}

#[tokio::test]
async fn runs_in_every_state_are_there_again() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    store.hold_clock();
    let trigger = store.create(note().tag("t")).await.unwrap();
    let run = |executor: &str| {
        RunRef::of(executor, &Event::created(&trigger))
            .ordered_by(Some("line"))
            .lasting(Duration::from_secs(7))
    };
    store
        .enqueue(vec![run("ready").into(), run("late").into()])
        .await
        .unwrap();
    let mut late = NewRun::from(run("later"));
    late.at = Some(trigger.updated_at + Duration::from_secs(3_600));
    store.enqueue(vec![late]).await.unwrap();
    let running = claimed(&store, &run("running")).await;
    store
        .save(&running, json!({"step": 1}).into())
        .await
        .unwrap();
    let wake = Wake::on(Selector::schema("answer.v1").matching("$.n", "gte", 2))
        .until(trigger.updated_at + Duration::from_secs(60));
    let suspended = RunEnd::Suspended {
        wake,
        state: json!({"step": 2}).into(),
    };
    let failed = RunEnd::Failed(DeadLetter::new(FailureClass::Panic, "panic", 3));
    for (executor, how) in [
        ("suspended", suspended),
        ("failed", failed),
        ("done", RunEnd::Done),
        ("skipped", RunEnd::Skipped("gone")),
    ] {
        let lease = claimed(&store, &run(executor)).await;
        end(&store, &lease, how).await;
    }
    let before = store.runs(&RunFilter::all()).await.unwrap();
    store.close().await;

    let store = quick(&folder.file()).open().await.unwrap();
    let after = store.runs(&RunFilter::all()).await.unwrap();

    assert_eq!(
        after.iter().map(shape).collect::<Vec<_>>(),
        before.iter().map(shape).collect::<Vec<_>>()
    );
    assert_eq!(after.len(), 8);
    store
        .commit(Commit {
            writes: Vec::new(),
            end: Some((running, RunEnd::Done)),
        })
        .await
        .unwrap();
    store.resume(&run("suspended"), trigger.id).await.unwrap();
    store.redo(&run("failed")).await.unwrap();
    let claim = store.claim(&run("suspended"), None).await.unwrap();
    assert!(
        matches!(&claim, Claim::Granted(Claimed { state: Some(saved), .. }) if saved.with == Some(trigger.id) && saved.state["step"] == 2),
        "{claim:?}"
    );
}

#[tokio::test]
async fn a_lease_whose_worker_is_gone_runs_out_after_a_restart() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let trigger = store.create(note()).await.unwrap();
    let run = RunRef::new("agent", trigger.id, 1);
    store.enqueue(vec![run.clone().into()]).await.unwrap();
    let id = ClaimId::unique();
    store
        .claim_next(1, &[ExecutorLimits::new("agent", 1)], id)
        .await
        .unwrap();
    store.close().await;

    let store = quick(&folder.file()).open().await.unwrap();
    let claim = store.claim(&run, None).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
    let listed = store.runs(&RunFilter::of_claim(id)).await.unwrap();
    assert_eq!(listed.len(), 1);
    store.advance_clock(RunRef::DEFAULT_LEASE);

    let claim = store.claim(&run, None).await.unwrap();
    assert!(
        matches!(claim, Claim::Granted(Claimed { attempt: 2, .. })),
        "{claim:?}"
    );
}

#[tokio::test]
async fn event_positions_continue_after_a_restart() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let first = store.create(note()).await.unwrap();
    store.close().await;

    let store = quick(&folder.file()).open().await.unwrap();
    let second = store.create(note()).await.unwrap();
    let events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    let seen: Vec<_> = events
        .take(2)
        .map(|delivery| delivery.unwrap())
        .collect()
        .await;

    assert_eq!(
        seen.iter().map(|seen| seen.position).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    assert_eq!(
        seen.iter()
            .map(|seen| seen.event.breadcrumb_id)
            .collect::<Vec<_>>(),
        [first.id, second.id]
    );
}

#[tokio::test]
async fn handles_that_go_while_they_commit_leave_all_of_it_or_nothing() {
    let folder = Folder::new();
    for polls in 0..6 {
        let store = quick(&folder.file()).open().await.unwrap();
        let writes = vec![Write::Create(note()); 5];
        let mut commit = Box::pin(async move {
            let committed = store.commit(writes.into()).await;
            (store, committed)
        });
        for _ in 0..polls {
            if futures::poll!(commit.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(commit);

        let store = quick(&folder.file()).open().await.unwrap();
        let found = store.recent("note.v1", 1_000).await.unwrap().len();
        assert!(found.is_multiple_of(5), "{found}");
        store.close().await;
    }
}

#[tokio::test]
async fn the_last_handle_closes_the_file() {
    // Threads that close their connections at the same time sometimes leave the log behind if the store does not prevent it.
    for _ in 0..50 {
        let folder = Folder::new();
        let store = quick(&folder.file()).open().await.unwrap();
        let (other, tenant) = (store.clone(), store.in_tenant("acme"));
        let events = other.events().subscribe(StartAt::Now).await.unwrap();
        store.create(note()).await.unwrap();
        let wal = folder.0.join("store.db-wal");
        assert!(wal.exists());

        drop((other, tenant, events));
        store.close().await;

        assert!(!wal.exists(), "the last connection must remove the log");
        let store = SqliteStore::open(folder.file()).await.unwrap();
        assert_eq!(store.recent("note.v1", 10).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_paused_executor_is_paused_again() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let trigger = store.create(note()).await.unwrap();
    let run = RunRef::new("agent", trigger.id, 1);
    store.enqueue(vec![run.clone().into()]).await.unwrap();
    store.pause_executor("agent").await.unwrap();
    let paused = store.paused_executors().await.unwrap();
    store.close().await;

    let store = quick(&folder.file()).open().await.unwrap();

    assert_eq!(store.paused_executors().await.unwrap(), paused);
    let limits = [ExecutorLimits::new("agent", 9)];
    let due = store.claim_next(9, &limits, ClaimId::unique()).await;
    assert_eq!(due.unwrap().len(), 0);
    store.resume_executor("agent").await.unwrap();
    claimed(&store, &run).await;
}

#[tokio::test]
async fn a_key_of_a_request_is_there_again() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let request = |title| NewRequest::new("agent", "key", note().title(title));
    let first = store.request(request("a")).await.unwrap();
    store.close().await;

    let store = quick(&folder.file()).open().await.unwrap();

    let again = store.request(request("a")).await.unwrap();
    assert!(matches!(again, Requested::Existing { .. }), "{again:?}");
    assert_eq!(again.trigger(), first.trigger());
    let conflict = store.request(request("b")).await.unwrap_err();
    assert_eq!(conflict.code(), "key_conflict");
    assert_eq!(store.recent("note.v1", 9).await.unwrap().len(), 1);
}
