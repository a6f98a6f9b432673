use crate::request_keys;
use futures::StreamExt as _;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::error::Retry;
use universal_executor::source::StartAt;
use universal_executor::store::{
    Claim, Claimed, Commit, DeadLetter, FailureClass, MemoryLimits, NewRun, Query, RunEnd,
    RunFilter, RunLedger, RunRef, StoreError, Wake, Write,
};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, EventSource as _, MemoryStore, NewBreadcrumb,
    Patch, Selector,
};

fn store(change: impl FnOnce(&mut MemoryLimits)) -> MemoryStore {
    let mut limits = MemoryLimits::default();
    change(&mut limits);
    MemoryStore::with_limits(limits)
}

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

#[tokio::test]
async fn one_breadcrumb_too_many_is_full() {
    let store = store(|limits| limits.breadcrumbs = 2);
    let first = store.create(note()).await.unwrap();

    let two = store.commit(vec![Write::Create(note()); 2].into()).await;
    store.create(note()).await.unwrap();
    let third = store.create(note()).await;

    for full in [two.map(drop), third.map(drop)] {
        assert!(
            matches!(
                full,
                Err(StoreError::Full {
                    what: "breadcrumbs",
                    limit: 2,
                    ..
                })
            ),
            "{full:?}"
        );
    }
    store.update(first.id, 1, Patch::new()).await.unwrap();
    let replaced = vec![
        Write::Delete {
            id: first.id,
            by: None,
        },
        Write::Create(note()),
    ];
    store.commit(replaced.into()).await.unwrap();
}

#[test]
fn default_limits_are_one_mebibyte_per_breadcrumb_and_100k_runs_and_events() {
    let limits = MemoryLimits::default();

    assert_eq!(limits.breadcrumb_bytes, 1_048_576);
    assert_eq!((limits.finished_runs, limits.events), (100_000, 100_000));
}

#[tokio::test]
async fn a_mebibyte_is_the_bound_of_a_breadcrumb() {
    let store = MemoryStore::default();
    let of = |bytes: usize| note().context(json!({"text": "x".repeat(bytes)}));

    store.create(of(1_048_000)).await.unwrap();
    let larger = store.create(of(1_048_576)).await.unwrap_err();

    assert_eq!((larger.code(), larger.retry()), ("rejected", Retry::Never));
}

#[tokio::test]
async fn a_breadcrumb_too_large_is_rejected() {
    let store = store(|limits| limits.breadcrumb_bytes = 100);

    let large = store
        .create(note().context(json!({"text": "x".repeat(100)})))
        .await;

    assert!(
        matches!(large, Err(StoreError::Rejected { .. })),
        "{large:?}"
    );
    assert!(
        large
            .unwrap_err()
            .to_string()
            .contains("the context of write 0")
    );
}

#[tokio::test(start_paused = true)]
async fn keys_of_requests_have_the_limit_of_runs() {
    let store = store(|limits| (limits.open_runs, limits.finished_runs) = (1, 1));
    request_keys::keys_have_the_limit_of_runs(&store, tokio::time::advance).await;
}

#[tokio::test(start_paused = true)]
async fn old_keys_of_requests_without_a_run_make_room_in_a_full_store() {
    let store = store(|limits| (limits.open_runs, limits.finished_runs) = (80, 20));
    let pass = tokio::time::advance;
    request_keys::old_keys_without_a_run_make_room_in_a_full_store(&store, pass).await;
}

#[tokio::test]
async fn a_batch_beyond_the_open_run_limit_is_refused_as_a_whole() {
    let store = store(|limits| limits.open_runs = 2);
    let trigger = store.create(note()).await.unwrap();
    let run = |executor: &str| RunRef::new(executor, trigger.id, 1);

    let three = store
        .enqueue(["a", "b", "c"].map(|id| run(id).into()).to_vec())
        .await;
    assert!(
        matches!(
            three,
            Err(StoreError::Full {
                what: "open runs",
                limit: 2,
                ..
            })
        ),
        "{three:?}"
    );
    assert_eq!(store.runs(&RunFilter::all()).await.unwrap().len(), 0);
    store
        .enqueue(["a", "a", "b", "b"].map(|id| run(id).into()).to_vec())
        .await
        .unwrap();
    store.enqueue(vec![run("a").into()]).await.unwrap();
    let third = store.claim(&run("c"), None).await;
    assert!(matches!(third, Err(StoreError::Full { .. })), "{third:?}");

    let Claim::Granted(Claimed { lease, .. }) = store.claim(&run("a"), None).await.unwrap() else {
        panic!("granted")
    };
    let later = RunRef::new("a", trigger.id, 2);
    let claim = store.claim(&later, Some(lease)).await.unwrap();
    assert!(
        matches!(claim, Claim::Granted(_)),
        "the superseded run must make room: {claim:?}"
    );
}

#[tokio::test]
async fn only_the_newest_finished_runs_are_retained() {
    let store = store(|limits| limits.finished_runs = 3);
    for n in 0..10 {
        let trigger = store.create(note()).await.unwrap();
        let run = RunRef::new(format!("executor {n}"), trigger.id, 1);
        let Claim::Granted(Claimed { lease, .. }) = store.claim(&run, None).await.unwrap() else {
            panic!("granted")
        };
        store
            .commit(Commit {
                writes: Vec::new(),
                end: Some((lease, RunEnd::Done)),
            })
            .await
            .unwrap();
    }

    let kept = store.runs(&RunFilter::all()).await.unwrap();

    let executors: Vec<&str> = kept.iter().map(|row| &*row.run.executor).collect();
    assert_eq!(executors, ["executor 7", "executor 8", "executor 9"]);
}

#[tokio::test]
async fn a_run_that_was_redone_is_not_forgotten_for_its_first_end() {
    let store = store(|limits| limits.finished_runs = 1);
    let fail = || RunEnd::Failed(DeadLetter::new(FailureClass::Permanent, "error", 1));
    let first = RunRef::new("a", store.create(note()).await.unwrap().id, 1);
    let Claim::Granted(Claimed { lease, .. }) = store.claim(&first, None).await.unwrap() else {
        panic!("granted")
    };
    store
        .commit(Commit {
            writes: Vec::new(),
            end: Some((lease, fail())),
        })
        .await
        .unwrap();
    store.redo(&first).await.unwrap();

    let second = RunRef::new("b", first.trigger_id, 1);
    let Claim::Granted(Claimed { lease, .. }) = store.claim(&second, None).await.unwrap() else {
        panic!("granted")
    };
    store
        .commit(Commit {
            writes: Vec::new(),
            end: Some((lease, RunEnd::Done)),
        })
        .await
        .unwrap();

    let claim = store.claim(&first, None).await.unwrap();
    assert!(
        matches!(&claim, Claim::Granted(Claimed { lease, .. }) if lease.epoch == 1),
        "{claim:?}"
    );
}

fn large(bytes: usize) -> NewBreadcrumb {
    note().context(json!({"text": "x".repeat(bytes)}))
}

fn is_full_of_bytes<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Full { what, limit: 10_000, .. }) if what.starts_with("bytes"))
}

#[tokio::test]
async fn breadcrumbs_with_too_many_bytes_are_full() {
    let store = store(|limits| limits.bytes = 10_000);
    let first = store.create(large(6_000)).await.unwrap();

    assert!(is_full_of_bytes(&store.create(large(6_000)).await));
    let larger = Patch::new().context(json!({"text": "x".repeat(11_000)}));
    assert!(is_full_of_bytes(&store.update(first.id, 1, larger).await));
    assert!(store.create(large(1_000)).await.is_ok());
    let smaller = Patch::new().context(json!({}));
    let first = store.update(first.id, 1, smaller).await.unwrap();
    let second = store.create(large(7_000)).await.unwrap();
    assert!(is_full_of_bytes(&store.create(large(7_000)).await));
    store.delete(second.id).await.unwrap();
    let expiring = large(7_000).ttl(store.get(first.id).await.unwrap().updated_at);
    store.create(expiring).await.unwrap();
    assert!(
        store.create(large(7_000)).await.is_ok(),
        "an expired breadcrumb must make room"
    );
}

#[tokio::test]
async fn saved_states_with_too_many_bytes_are_full() {
    let store = store(|limits| limits.bytes = 10_000);
    let trigger = store.create(note()).await.unwrap();
    let lease = async |executor: &str| {
        let run = RunRef::new(executor, trigger.id, 1);
        match store.claim(&run, None).await.unwrap() {
            Claim::Granted(Claimed { lease, .. }) => lease,
            other => panic!("{other:?}"),
        }
    };
    let text = |bytes| universal_executor::Json::from(json!({"text": "x".repeat(bytes)}));
    let suspend = |lease, bytes| {
        let wake = Wake::on(Selector::schema("reply.v1"));
        let state = text(bytes);
        store.commit(Commit {
            writes: Vec::new(),
            end: Some((lease, RunEnd::Suspended { wake, state })),
        })
    };
    let (first, second) = (lease("first").await, lease("second").await);

    store.save(&first, text(6_000)).await.unwrap();
    assert!(is_full_of_bytes(&store.save(&second, text(6_000)).await));
    assert!(is_full_of_bytes(&suspend(second.clone(), 6_000).await));
    assert!(is_full_of_bytes(&store.create(large(6_000)).await));
    suspend(first, 500).await.unwrap();
    store.save(&second, text(9_000)).await.unwrap();
    assert!(is_full_of_bytes(&store.create(large(2_000)).await));
    // The end of the run frees space for its answer.
    let done = Some((second, RunEnd::Done));
    let writes = vec![Write::Create(large(2_000))];
    store.commit(Commit { writes, end: done }).await.unwrap();
    assert!(
        store.create(large(6_000)).await.is_ok(),
        "a run that has ended must have no saved state"
    );
}

#[tokio::test]
async fn only_the_newest_tombstones_are_retained() {
    let store = store(|limits| limits.tombstones = 1);
    let (first, second) = (
        store.create(note()).await.unwrap(),
        store.create(note()).await.unwrap(),
    );

    store.delete(first.id).await.unwrap();
    store.delete(second.id).await.unwrap();

    let gone = store.get(first.id).await.unwrap_err();
    assert!(
        matches!(
            gone,
            StoreError::NotFound {
                tombstone: None,
                ..
            }
        ),
        "{gone:?}"
    );
    let kept = store.get(second.id).await.unwrap_err();
    assert!(
        matches!(
            kept,
            StoreError::NotFound {
                tombstone: Some(_),
                ..
            }
        ),
        "{kept:?}"
    );
}

#[tokio::test]
async fn a_store_with_a_tombstone_limit_of_zero_reports_no_tombstones() {
    let store = store(|limits| limits.tombstones = 0);
    let gone = store.create(note()).await.unwrap();

    store.delete(gone.id).await.unwrap();

    assert!(!store.capabilities().tombstones);
    let error = store.get(gone.id).await.unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::NotFound {
                tombstone: None,
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn endless_updates_and_runs_keep_within_the_bounds() {
    let store = store(|limits| {
        (
            limits.breadcrumbs,
            limits.events,
            limits.finished_runs,
            limits.open_runs,
        ) = (1, 10, 10, 1);
    });
    let mut last = store.create(note().tag("t")).await.unwrap();

    for n in 0..50_000_u64 {
        let patch = Patch::new()
            .tags([format!("t{}", n % 7)])
            .context(json!({"n": n}));
        last = store.update(last.id, last.version, patch).await.unwrap();
        let run = RunRef::new("agent", last.id, last.version);
        let Claim::Granted(Claimed { lease, .. }) = store.claim(&run, None).await.unwrap() else {
            panic!("granted")
        };
        store
            .commit(Commit {
                writes: Vec::new(),
                end: Some((lease, RunEnd::Done)),
            })
            .await
            .unwrap();
    }

    assert_eq!(store.runs(&RunFilter::all()).await.unwrap().len(), 10);
    assert_eq!(
        store
            .search(&Query::new(Selector::any()).limit(100))
            .await
            .unwrap(),
        [last]
    );
    let of = Selector::any().any_tags((0..7).map(|n| format!("t{n}")).chain(["t".to_owned()]));
    assert_eq!(
        store
            .search(&Query::new(of).limit(100))
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(super::events::kept(&store).await, 10);
}

#[tokio::test(start_paused = true)]
async fn expired_breadcrumbs_free_capacity() {
    let store = store(|limits| limits.breadcrumbs = 100);
    let first = store.create(note()).await.unwrap();
    let until = first.created_at + Duration::from_secs(60);
    store
        .commit(vec![Write::Create(note().ttl(until)); 99].into())
        .await
        .unwrap();
    assert!(store.create(note()).await.is_err());

    tokio::time::advance(Duration::from_secs(60)).await;

    assert_eq!(
        store
            .search(&Query::new(Selector::any()).limit(100))
            .await
            .unwrap(),
        [first]
    );
    store
        .commit(vec![Write::Create(note()); 99].into())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn commit_order_is_update_order_even_if_the_clock_does_not_advance() {
    let store = MemoryStore::default();
    let writes = vec![Write::Create(note()); 3];

    let mut written = store.commit(writes.clone().into()).await.unwrap().written;
    written.extend(store.commit(writes.into()).await.unwrap().written);
    let first = &written[0];
    written.push(store.update(first.id, 1, Patch::new()).await.unwrap());

    assert!(
        written.is_sorted_by(|before, after| before.updated_at < after.updated_at),
        "{written:?}"
    );
}

#[tokio::test]
async fn tenants_have_their_own_bounds_and_are_reached_from_any_handle() {
    let store = store(|limits| limits.breadcrumbs = 1);
    let acme = store.in_tenant("acme");
    let kept = acme.create(note()).await.unwrap();
    store.create(note()).await.unwrap();

    assert_eq!(acme.in_tenant("default").tenant(), "default");
    assert_eq!(
        store
            .in_tenant("default")
            .in_tenant("acme")
            .get(kept.id)
            .await
            .unwrap(),
        kept
    );
    assert!(acme.create(note()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_names_the_run_and_nothing_else() {
    let store = MemoryStore::default();
    let trigger = store
        .create(note().context(json!({"secret": "x"})))
        .await
        .unwrap();
    let run = RunRef::new("summary", trigger.id, 1);
    store
        .enqueue(vec![NewRun::from(run.clone())])
        .await
        .unwrap();
    let Claim::Granted(Claimed { lease, .. }) = store.claim(&run, None).await.unwrap() else {
        panic!("granted")
    };
    let mut letter = DeadLetter::new(FailureClass::AttemptsUsedUp, "error", 5);
    (letter.digest, letter.tags) = ("e3b0".to_owned(), vec!["session:1".to_owned()]);
    letter.creator = json!({"type": "agent", "id": "summary", "hops": 1}).into();

    let end = Some((lease, RunEnd::Failed(letter)));
    let written = store
        .commit(Commit {
            writes: Vec::new(),
            end,
        })
        .await
        .unwrap()
        .written;

    let dead = &written[0];
    assert_eq!(
        serde_json::to_value(dead).unwrap(),
        json!({
            "id": dead.id,
            "schema_name": "executor.failed.v1",
            "title": "Run failed: summary",
            "tags": ["executor:failed", "executor:summary", "session:1"],
            "context": {
                "run_key": run.key("default", 0),
                "executor": "summary",
                "trigger_id": trigger.id,
                "trigger_version": 1,
                "attempts": 5,
                "class": "attempts_used_up",
                "code": "error",
                "digest": "e3b0",
                "creator": {"type": "agent", "id": "summary", "hops": 1},
            },
            "visibility": "team",
            "sensitivity": "low",
            "version": 1,
            "created_at": dead.created_at,
            "updated_at": dead.updated_at,
            "created_by": "summary",
            "updated_by": "summary",
        })
    );
}

/// Returns the number of breadcrumbs of 100 kB in memory after each of a hundred was created and then changed by `change`.
async fn in_memory_after(change: impl AsyncFn(&MemoryStore, &Breadcrumb)) -> usize {
    let store = store(|limits| limits.event_bytes = 1_000_000);
    let context = json!({"text": "x".repeat(100_000)});
    let mut all = Vec::new();
    for _ in 0..100 {
        let created = store.create(note().context(context.clone())).await.unwrap();
        all.push(Arc::downgrade(&created));
        change(&store, &created).await;
    }
    all.iter().filter(|one| one.strong_count() > 0).count()
}

#[tokio::test]
async fn the_event_log_retains_a_limited_number_of_bytes_of_deleted_breadcrumbs() {
    let kept = in_memory_after(async |store, created| {
        store.delete(created.id).await.unwrap();
    });
    assert!(kept.await <= 10);
}

#[tokio::test]
async fn tombstones_have_a_limit_in_bytes() {
    let store = store(|limits| limits.tombstone_bytes = 250_000);
    let context = json!({"text": "x".repeat(100_000)});
    let mut has_tombstone = Vec::new();
    let mut deleted = Vec::new();
    for _ in 0..5 {
        let created = store.create(note().context(context.clone())).await.unwrap();
        store.delete(created.id).await.unwrap();
        deleted.push(created.id);
    }

    for id in deleted {
        let Err(StoreError::NotFound { tombstone, .. }) = store.get(id).await else {
            panic!("the breadcrumb was deleted, so the read must fail")
        };
        has_tombstone.push(tombstone.is_some());
    }
    assert_eq!(has_tombstone, [false, false, false, true, true]);
}

#[tokio::test]
async fn the_event_log_retains_a_limited_number_of_bytes_of_replaced_breadcrumbs() {
    let kept = in_memory_after(async |store, created| {
        let small = Patch::new().context(json!({"text": null}));
        store
            .update(created.id, created.version, small)
            .await
            .unwrap();
    });
    assert!(kept.await <= 10);
}

#[tokio::test]
async fn events_beyond_the_limit_of_bytes_are_delivered_without_context() {
    let store = store(|limits| limits.event_bytes = 250_000);
    let context = json!({"text": "x".repeat(100_000)});
    let mut created = Vec::new();
    for _ in 0..5 {
        created.push(store.create(note().context(context.clone())).await.unwrap());
    }

    let events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    let events: Vec<_> = events.take(5).map(Result::unwrap).collect().await;

    let ids: Vec<_> = events.iter().map(|one| one.event.breadcrumb_id).collect();
    let expected: Vec<_> = created.iter().map(|one| one.id).collect();
    assert_eq!(ids, expected);
    let has_context: Vec<bool> = events
        .iter()
        .map(|one| one.event.context.is_some())
        .collect();
    assert_eq!(has_context, [false, false, false, true, true]);
}
