//! Executors on a store without a ledger that is joined with the ledger of another store.

mod outages;

use crate::support::{Call, Do, Probe, Shim, all, event_of, eventually, put, runs, unavailable};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use universal_executor::executor::ExecutorError;
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, DeadLetter, ExecutorLimits, FailureClass, Lease, NewRequest,
    Query, RunEnd, RunRef, RunState, StoreError, Write,
};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Json, MemoryStore, NewBreadcrumb, Outcome,
    Patch, Response, RunLedger, Selector, UniversalExecutor, Wake, WithLedger, suspend,
};

/// The store of the breadcrumbs, the store of the runs, and the store that joins both.
struct Joined {
    service: MemoryStore,
    ledger: MemoryStore,
    store: WithLedger<Shim, Shim>,
}

impl Joined {
    fn new() -> Self {
        Self::scripted(|_| Do::Pass)
    }

    /// Creates a joined store. The calls of the ledger's store follow a script.
    fn scripted(script: impl Fn(Call<'_>) -> Do + Send + Sync + 'static) -> Self {
        let (service, ledger) = (MemoryStore::default(), MemoryStore::default());
        let with_runs = Shim::new(&ledger, script);
        let store = WithLedger::new(Shim::without_ledger(&service), with_runs);
        Self {
            service,
            ledger,
            store,
        }
    }

    /// Creates a joined store. The calls of the breadcrumbs' store follow a script.
    fn serving(script: impl Fn(Call<'_>) -> Do + Send + Sync + 'static) -> Self {
        let (service, ledger) = (MemoryStore::default(), MemoryStore::default());
        let passing = Shim::new(&ledger, |_| Do::Pass);
        let store = WithLedger::new(Shim::new(&service, script), passing);
        Self {
            service,
            ledger,
            store,
        }
    }

    async fn asked(&self) -> Arc<Breadcrumb> {
        put(&self.service, "question.v1", json!({})).await
    }

    fn probe(&self) -> Probe {
        Probe::on("question.v1", "prober", &self.store)
    }

    async fn state(&self) -> RunState {
        runs(&self.ledger).await.remove(0).state
    }

    async fn answers(&self) -> usize {
        all(&self.service, "answer.v1").await.len()
    }
}

/// Returns a script that fails the first `times` commits.
fn failing(times: usize, error: fn() -> StoreError) -> impl Fn(Call<'_>) -> Do + Send + Sync {
    let commits = AtomicUsize::new(0);
    move |call| match call {
        Call::Commit(_) if commits.fetch_add(1, Ordering::SeqCst) < times => Do::Fail(error()),
        _ => Do::Pass,
    }
}

/// Returns a script that fails the first `times` commits temporarily and refuses the next one permanently.
fn refusing_after(times: usize) -> impl Fn(Call<'_>) -> Do + Send + Sync {
    let commits = AtomicUsize::new(0);
    move |call| match call {
        Call::Commit(_) => match commits.fetch_add(1, Ordering::SeqCst) {
            commit if commit < times => Do::Fail(unavailable()),
            commit if commit == times => Do::Fail(StoreError::Forbidden {
                reason: "not any more".to_owned(),
            }),
            _ => Do::Pass,
        },
        _ => Do::Pass,
    }
}

fn answer() -> Write {
    Write::Create(NewBreadcrumb::new("answer.v1"))
}

#[tokio::test]
async fn a_redelivered_event_is_answered_once_by_all_workers() {
    let joined = Joined::new();
    let question = joined.asked().await;
    let (one, other) = (joined.probe(), joined.probe());

    let outcome = one.sees(&question).await.unwrap();
    let again = [
        one.sees(&question).await.unwrap(),
        other.sees(&question).await.unwrap(),
    ];

    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    for again in again {
        assert!(
            matches!(
                again,
                Outcome::AlreadyDone {
                    state: RunState::Done,
                    ..
                }
            ),
            "{again:?}"
        );
    }
    assert_eq!((one.executed(), other.executed()), (1, 0));
    assert_eq!(
        (joined.answers().await, joined.state().await),
        (1, RunState::Done)
    );
    assert!(all(&joined.ledger, "answer.v1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_is_tried_again_and_its_dead_letter_is_in_the_store() {
    let joined = Joined::new();
    let question = joined.asked().await;
    let probe = joined.probe().failing(|| "not today".into());

    let mut postponed = 0;
    let outcome = loop {
        match probe.sees(&question).await {
            Err(ExecutorError::Postponed { .. }) => postponed += 1,
            other => break other.unwrap(),
        }
    };

    assert!(
        matches!(
            outcome,
            Outcome::Failed {
                class: FailureClass::AttemptsUsedUp,
                ..
            }
        ),
        "{outcome:?}"
    );
    assert_eq!(probe.executed(), postponed + 1);
    assert_eq!(joined.state().await, RunState::Failed);
    let letters = all(&joined.service, DeadLetter::SCHEMA).await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].context["trigger_id"], json!(question.id));
    assert!(matches!(&outcome, Outcome::Failed { written, .. } if *written == [letters[0].id]));

    joined
        .ledger
        .redo(&runs(&joined.ledger).await[0].run)
        .await
        .unwrap();
    let redone = joined.probe().sees(&question).await.unwrap();
    assert!(matches!(redone, Outcome::Responded { .. }), "{redone:?}");
}

#[tokio::test]
async fn its_own_breadcrumbs_are_known_by_their_creator() {
    let joined = Joined::new();
    let note = put(&joined.service, "note.v1", json!({})).await;
    let probe = Probe::on("note.v1", "prober", &joined.store)
        .writing(Response::create(NewBreadcrumb::new("note.v1")));
    probe.sees(&note).await.unwrap();
    let own = all(&joined.service, "note.v1").await.remove(0);

    let outcome = probe.sees(&own).await.unwrap();
    let again = probe.sees(&own).await.unwrap();

    assert!(matches!(outcome, Outcome::OwnBreadcrumb), "{outcome:?}");
    assert!(
        matches!(
            again,
            Outcome::AlreadyDone {
                state: RunState::Skipped,
                ..
            }
        ),
        "{again:?}"
    );
    assert_eq!(probe.executed(), 1);
    let rows = runs(&joined.ledger).await;
    let row = rows
        .iter()
        .find(|row| row.run.trigger_id == own.id)
        .unwrap();
    assert_eq!(row.reason.as_deref(), Some("own"));
}

#[tokio::test]
async fn hops_are_counted_from_the_stamped_creator() {
    let joined = Joined::new();
    let mut last = put(&joined.service, "a.v1", json!({})).await;
    let first = last.id.to_string();
    let step = |from: &str, to: &str| {
        let next = Response::create(NewBreadcrumb::new(to));
        Probe::on(from, &format!("{from}-to-{to}"), &joined.store).writing(next)
    };
    let cycle = [step("a.v1", "b.v1"), step("b.v1", "a.v1")];

    let mut hops = 0;
    let class = loop {
        match cycle[hops % 2].sees(&last).await.unwrap() {
            Outcome::Responded { written } => last = joined.service.get(written[0]).await.unwrap(),
            Outcome::Failed { class, .. } => break class,
            other => panic!("{other:?}"),
        }
        hops += 1;
        assert_eq!(last.context["creator"]["hops"], json!(hops));
        assert_eq!(last.context["creator"]["correlation_id"], json!(first));
    };

    assert_eq!((class, hops), (FailureClass::HopLimit, 16));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_under_a_lease_that_is_lost() {
    let joined = Joined::new();
    let question = joined.asked().await;
    let run = RunRef::new("prober", question.id, 1);
    let ledger = joined.store.ledger().unwrap();
    let Claim::Granted(Claimed { lease: stale, .. }) = ledger.claim(&run, None).await.unwrap()
    else {
        panic!("the claim of a new run must be granted")
    };
    tokio::time::advance(RunRef::DEFAULT_LEASE).await;
    let Claim::Granted(Claimed { lease, .. }) = ledger.claim(&run, None).await.unwrap() else {
        panic!("the claim must be granted after the lease has expired")
    };

    let letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
    for end in [RunEnd::Done, RunEnd::Continues, RunEnd::Failed(letter)] {
        let commit = Commit {
            writes: vec![answer()],
            end: Some((stale.clone(), end)),
        };
        let refused = joined.store.commit(commit).await;
        assert!(
            matches!(refused, Err(StoreError::LeaseLost { .. })),
            "{refused:?}"
        );
    }

    let everything = Query::new(Selector::any());
    assert_eq!(
        joined.service.search(&everything).await.unwrap(),
        [question]
    );
    let commit = Commit {
        writes: vec![answer()],
        end: Some((lease, RunEnd::Done)),
    };
    joined.store.commit(commit).await.unwrap();
    assert_eq!(
        (joined.answers().await, joined.state().await),
        (1, RunState::Done)
    );
}

#[tokio::test]
async fn a_run_writes_nothing_if_the_ledger_cannot_confirm_its_lease() {
    let joined = Joined::scripted(|call| match call {
        Call::Heartbeat => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let question = joined.asked().await;

    let error = joined.probe().sees(&question).await.unwrap_err();

    assert!(
        matches!(error, ExecutorError::Postponed { .. }),
        "{error:?}"
    );
    assert_eq!(joined.answers().await, 0);
}

#[tokio::test]
async fn a_ledger_that_fails_after_the_write_repeats_the_response_and_not_the_work() {
    let joined = Joined::scripted(failing(1, unavailable));
    let question = joined.asked().await;
    let probe = joined.probe();

    let error = probe.sees(&question).await.unwrap_err();
    let outcome = probe.sees(&question).await.unwrap();

    assert!(
        matches!(error, ExecutorError::Postponed { .. }),
        "{error:?}"
    );
    let Outcome::AlreadyDone { state, written } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((state, written.len()), (RunState::Done, 1));
    assert_eq!((joined.answers().await, probe.executed()), (2, 1));
    assert_eq!(joined.state().await, RunState::Done);
}

#[tokio::test(start_paused = true)]
async fn a_response_waits_for_a_store_that_is_away_and_is_not_made_again() {
    const AWAY: usize = 30;
    let joined = Joined::serving(failing(AWAY, unavailable));
    let question = joined.asked().await;
    let worker = joined.probe();
    worker.sees(&question).await.unwrap_err();

    // Another worker tries the write more often than the run's maximum number of attempts.
    let other = joined.probe();
    let mut refused = 0;
    let outcome = loop {
        match other.sees(&question).await {
            Err(ExecutorError::Postponed { source, .. }) => {
                assert_eq!(source.code(), "unavailable");
                assert_eq!(joined.state().await, RunState::Ready);
                refused += 1;
            }
            outcome => break outcome.unwrap(),
        }
    };

    assert!(
        matches!(outcome, Outcome::AlreadyDone { .. }),
        "{outcome:?}"
    );
    assert_eq!(refused, AWAY - 1);
    assert_eq!((worker.executed(), other.executed()), (1, 0));
    assert_eq!(
        (joined.answers().await, joined.state().await),
        (1, RunState::Done)
    );
    let answer = all(&joined.service, "answer.v1").await.remove(0);
    assert_eq!(answer.context["creator"]["id"], json!("prober"));
}

#[tokio::test(start_paused = true)]
async fn a_response_waits_for_minutes_at_the_most_and_not_for_ever() {
    const MINUTE: Duration = Duration::from_secs(60);
    let joined = Joined::serving(failing(usize::MAX, || StoreError::Unavailable {
        store: "shim",
        retry_after: 60 * 24 * 365 * MINUTE,
        source: "down for maintenance".into(),
    }));
    let question = joined.asked().await;
    let probe = joined.probe();
    probe.sees(&question).await.unwrap_err();

    tokio::time::advance(60 * MINUTE).await;
    probe.sees(&question).await.unwrap_err();
    let row = runs(&joined.ledger).await.remove(0);
    let (waiting, due) = (probe.executed(), row.due.unwrap());
    tokio::time::advance(4 * 24 * 60 * MINUTE).await;
    probe.sees(&question).await.unwrap_err();

    assert_eq!((waiting, probe.executed()), (1, 2));
    assert!(due.since(row.since) <= 65 * MINUTE + MINUTE / 60);
}

#[tokio::test(start_paused = true)]
async fn the_longer_a_response_waits_the_longer_are_its_pauses() {
    let joined = Joined::serving(failing(usize::MAX, unavailable));
    let question = joined.asked().await;
    let probe = joined.probe();
    probe.sees(&question).await.unwrap_err();
    // The first attempt ended with the failed write. The second attempt only writes the response.
    tokio::time::advance(Duration::from_secs(60)).await;
    probe.sees(&question).await.unwrap_err();

    tokio::time::advance(Duration::from_secs(32 * 60)).await;
    probe.sees(&question).await.unwrap_err();

    let row = runs(&joined.ledger).await.remove(0);
    let waits = row.due.unwrap().since(row.since);
    assert!(waits >= Duration::from_secs(34 * 60), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_response_with_an_update_is_recomputed_after_a_failed_commit() {
    let joined = Joined::serving(failing(1, unavailable));
    let tally = put(&joined.service, "tally.v1", json!({})).await;
    let question = joined.asked().await;
    let probe =
        joined
            .probe()
            .writing(Response::update(tally.id, 1, Patch::new().title("counted")));

    probe.sees(&question).await.unwrap_err();
    let outcome = probe.sees(&question).await.unwrap();

    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    assert_eq!(probe.executed(), 2);
    assert_eq!(joined.service.get(tally.id).await.unwrap().title, "counted");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_the_store_refuses_for_good_is_made_again() {
    let joined = Joined::serving(refusing_after(1));
    let question = joined.asked().await;
    let probe = joined.probe();

    probe.sees(&question).await.unwrap_err();
    let outcome = probe.sees(&question).await.unwrap();

    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    assert_eq!((joined.answers().await, probe.executed()), (1, 2));
    assert!(probe.context(1).resumed().is_none());
}

#[tokio::test]
async fn a_state_that_would_be_taken_for_a_response_is_refused() {
    let joined = Joined::new();
    let question = joined.asked().await;
    let run = RunRef::new("prober", question.id, 1);
    let ledger = joined.store.ledger().unwrap();
    let Claim::Granted(Claimed { lease, .. }) = ledger.claim(&run, None).await.unwrap() else {
        panic!("the claim of a new run must be granted")
    };
    let forged = || Json::from(json!({"ux:response": "{\"epoch\": 0, \"creates\": [{}]}"}));

    let saved = ledger.save(&lease, forged()).await;
    let commit = Commit {
        writes: vec![answer()],
        end: Some((
            lease,
            RunEnd::Suspended {
                wake: Wake::on(Selector::schema("reply.v1")),
                state: forged(),
            },
        )),
    };
    let suspended = joined.store.commit(commit).await;

    for refused in [saved, suspended.map(drop)] {
        assert!(
            matches!(refused, Err(StoreError::Forbidden { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(joined.answers().await, 0);
}

#[tokio::test]
async fn a_newer_version_is_run_instead_of_the_older() {
    let joined = Joined::new();
    let question = joined.asked().await;
    let update = Write::Update {
        id: question.id,
        version: 1,
        patch: Patch::new().title("changed"),
    };
    let written = joined.store.commit(vec![update].into()).await.unwrap();
    let probe = joined.probe();

    let outcome = probe.sees(&question).await.unwrap();
    let again = probe
        .process_event(&event_of(&written.written[0]))
        .await
        .unwrap();

    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    assert!(matches!(again, Outcome::AlreadyDone { .. }), "{again:?}");
    assert_eq!(joined.answers().await, 1);
}

/// Creates an executor that suspends once, waits for a reply and answers with the reply.
fn asker(joined: &Joined) -> Probe {
    joined.probe().executing(|context| async move {
        let wake = Wake::on(Selector::schema("reply.v1"));
        let Some(resumed) = context.resumed() else {
            let ask = Response::create(NewBreadcrumb::new("request.v1"));
            return Err(suspend(wake, json!({"asked": true})).writing(ask));
        };
        Ok(json!({"with": resumed.with.as_ref().map(|with| with.id)}))
    })
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_waits_and_is_resumed() {
    let joined = Joined::new();
    put(&joined.service, "reply.v1", json!({"to": "something else"})).await;
    let question = joined.asked().await;
    let probe = asker(&joined);

    let outcome = probe.sees(&question).await.unwrap();
    let row = runs(&joined.ledger).await.remove(0);

    assert!(matches!(outcome, Outcome::Suspended { .. }), "{outcome:?}");
    assert_eq!(row.state, RunState::Suspended);
    let asked = all(&joined.service, "request.v1").await;
    assert!(asked[0].updated_at <= row.suspended_at.unwrap());
    let reply = put(&joined.service, "reply.v1", json!({})).await;
    joined.ledger.resume(&row.run, reply.id).await.unwrap();
    probe.sees(&question).await.unwrap();
    let answered = all(&joined.service, "answer.v1").await.remove(0);
    assert_eq!(answered.context["with"], json!(reply.id));
    assert_eq!(all(&joined.service, "request.v1").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_comes_before_the_run_is_suspended_wakes_it() {
    let joined = Joined::scripted(|call| match call {
        Call::Commit(_) => Do::Wait(Duration::from_secs(1)),
        _ => Do::Pass,
    });
    put(&joined.service, "reply.v1", json!({"to": "something else"})).await;
    let question = joined.asked().await;
    let probe = asker(&joined);

    let reply = async {
        eventually(async || !all(&joined.service, "request.v1").await.is_empty()).await;
        put(&joined.service, "reply.v1", json!({})).await
    };
    let (outcome, reply) = tokio::join!(probe.sees(&question), reply);

    let outcome = outcome.unwrap();
    assert!(matches!(outcome, Outcome::Suspended { .. }), "{outcome:?}");
    assert_eq!(joined.state().await, RunState::Ready);
    probe.sees(&question).await.unwrap();
    let answered = all(&joined.service, "answer.v1").await.remove(0);
    assert_eq!(answered.context["with"], json!(reply.id));
}

#[tokio::test]
async fn a_wait_without_end_is_refused_before_anything_is_written() {
    let joined = Joined::new();
    let question = joined.asked().await;
    let run = RunRef::new("prober", question.id, 1);
    let Claim::Granted(Claimed { lease, .. }) = joined.ledger.claim(&run, None).await.unwrap()
    else {
        panic!("the claim of a new run must be granted")
    };
    let (wake, state) = (Wake::default(), Json::default());

    let commit = Commit {
        writes: vec![answer()],
        end: Some((lease, RunEnd::Suspended { wake, state })),
    };
    let refused = joined.store.commit(commit).await;

    assert!(matches!(refused, Err(StoreError::EmptyWake)), "{refused:?}");
    assert_eq!(joined.answers().await, 0);
}

#[tokio::test]
async fn runs_of_one_key_take_turns_as_in_the_ledger() {
    let joined = Joined::new();
    let ledger = joined.store.ledger().unwrap();
    for _ in 0..2 {
        let question = joined.asked().await;
        let run = RunRef::new("prober", question.id, 1).ordered_by(Some("session:1"));
        ledger.enqueue(vec![run.into()]).await.unwrap();
    }

    let limits = [ExecutorLimits::new("prober", 9)];

    let claimed = ledger.claim_next(9, &limits, ClaimId::unique()).await;
    assert_eq!(claimed.unwrap().len(), 1);
}

#[tokio::test]
async fn a_pair_of_stores_without_a_ledger_has_no_ledger() {
    let service = MemoryStore::default();
    let plain = Shim::without_ledger(&service);
    let store = WithLedger::new(plain.clone(), plain);
    let question = put(&service, "question.v1", json!({})).await;
    let lease = Lease::new(
        RunRef::new("prober", question.id, 1),
        1,
        question.updated_at,
    );

    let commit = Commit {
        writes: vec![answer()],
        end: Some((lease, RunEnd::Done)),
    };
    let refused = store.commit(commit).await;

    assert!(store.ledger().is_none());
    assert!(
        matches!(refused, Err(StoreError::Unsupported { .. })),
        "{refused:?}"
    );
    assert!(all(&service, "answer.v1").await.is_empty());
    let outcome = Probe::on("question.v1", "prober", &store)
        .sees(&question)
        .await;
    assert!(
        matches!(outcome, Ok(Outcome::Responded { .. })),
        "{outcome:?}"
    );
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_ledger_of_another_tenant_is_warned_of() {
    // With only one dispatcher, `tracing` may decide on another test's thread that no subscriber is interested.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let warned = |tenant: &str| {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        let store = MemoryStore::default().in_tenant("ours");
        tracing::subscriber::with_default(subscriber, || {
            WithLedger::new(store, MemoryStore::default().in_tenant(tenant))
        });
        let said = log.0.lock().unwrap();
        String::from_utf8_lossy(&said).contains("different tenants")
    };

    assert_eq!((warned("theirs"), warned("ours")), (true, false));
}

#[test]
fn a_store_with_a_ledger_has_no_lineage_atomic_ends_or_keyed_requests() {
    let Joined { store, service, .. } = Joined::new();

    let able = service.capabilities();
    assert_eq!(
        store.capabilities(),
        able.lineage(false).atomic_ends(false).keyed_requests(false)
    );
    assert_eq!(store.tenant(), service.tenant());
}

#[tokio::test]
async fn a_request_with_a_key_is_refused_with_the_reason() {
    let (store, runs) = (MemoryStore::default(), MemoryStore::default());
    let both = WithLedger::new(store.clone(), runs.clone());
    let request = NewRequest::new("agent", "key", NewBreadcrumb::new("question.v1"));

    let refused = both.request(request).await.unwrap_err();

    assert_eq!(refused.code(), "unsupported");
    let reason = "WithLedger does not support requests with a key, because the breadcrumbs and the ledger are in different stores";
    assert_eq!(refused.to_string(), reason);
    assert!(!both.capabilities().keyed_requests);
    for one in [store, runs] {
        assert!(one.recent("question.v1", 9).await.unwrap().is_empty());
    }
}
