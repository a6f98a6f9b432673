//! Commits and searches of a `WithLedger` store that fail once.

use super::{Joined, answer, asker, failing, refusing_after};
use crate::support::{Call, Do, Probe, Shim, all, eventually, put, runs, unavailable};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::executor::ExecutorError;
use universal_executor::store::{
    Claim, Claimed, Commit, DeadLetter, FailureClass, RunEnd, RunRef, RunState, StoreError,
};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, MemoryStore, Outcome, Profile, Runtime, WithLedger,
};

/// Returns profiles of executors that cannot be executed again after their only attempt.
fn only_attempt() -> [Profile; 3] {
    [
        Profile::default().attempts(1),
        Profile::default().at_most_once(),
        Profile::default().attempts(1).at_most_once(),
    ]
}

/// Returns the state of a run in its second attempt, after the first attempt was postponed.
async fn ended_later(probe: &Probe, question: &Breadcrumb) -> RunState {
    let error = probe.sees(question).await.unwrap_err();
    assert!(
        matches!(error, ExecutorError::Postponed { .. }),
        "{error:?}"
    );
    match probe.sees(question).await.unwrap() {
        Outcome::AlreadyDone { state, .. } => state,
        outcome => panic!("{outcome:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_whose_commit_fails_in_the_last_attempt_is_written_later_and_the_run_does_not_fail()
 {
    type Make = fn() -> Joined;
    let not_written: Make = || Joined::serving(failing(1, unavailable));
    let written: Make = || Joined::scripted(failing(1, unavailable));
    for (make, answers) in [(not_written, 1), (written, 2)] {
        for profile in only_attempt() {
            let joined = make();
            let question = joined.asked().await;
            let probe = joined.probe().profile(profile);

            let state = ended_later(&probe, &question).await;

            assert_eq!(state, RunState::Done);
            assert_eq!((joined.answers().await, probe.executed()), (answers, 1));
            assert!(probe.failures().is_empty());
            assert!(all(&joined.service, DeadLetter::SCHEMA).await.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_in_its_last_attempt_is_not_executed_again_if_the_store_refuses_its_saved_response() {
    for profile in only_attempt() {
        let joined = Joined::serving(refusing_after(5));
        let question = joined.asked().await;
        let probe = joined.probe().profile(profile);

        for _ in 0..5 {
            probe.sees(&question).await.unwrap_err();
        }
        let outcome = probe.sees(&question).await.unwrap();

        assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
        assert_eq!((joined.answers().await, probe.executed()), (0, 1));
        assert_eq!(all(&joined.service, DeadLetter::SCHEMA).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_whose_commit_fails_is_written_later_and_the_run_is_not_executed_again() {
    let joined = Joined::scripted(failing(1, unavailable));
    let question = joined.asked().await;
    let calls = AtomicUsize::new(0);
    let probe = joined
        .probe()
        .profile(Profile::default().attempts(1))
        .executing(move |_| {
            let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                match first {
                    true => Err("not today".into()),
                    false => Ok(json!({})),
                }
            }
        });

    let state = ended_later(&probe, &question).await;

    assert_eq!(state, RunState::Failed);
    assert_eq!((joined.answers().await, probe.executed()), (0, 1));
    assert_eq!(
        runs(&joined.ledger).await[0].reason.as_deref(),
        Some("attempts_used_up")
    );
}

#[tokio::test]
async fn the_lease_of_a_run_whose_response_is_saved_writes_nothing_else() {
    let joined = Joined::serving(failing(1, unavailable));
    let question = joined.asked().await;
    let run = RunRef::new("prober", question.id, 1);
    let ledger = joined.store.ledger().unwrap();
    let Claim::Granted(Claimed { lease, .. }) = ledger.claim(&run, None).await.unwrap() else {
        panic!("the claim of a new run must be granted")
    };
    let commit = |end| Commit {
        writes: vec![answer()],
        end: Some((lease.clone(), end)),
    };

    let saved = joined.store.commit(commit(RunEnd::Done)).await;
    let letter = DeadLetter::new(FailureClass::AttemptsUsedUp, "error", 1);
    let failed = joined.store.commit(commit(RunEnd::Failed(letter))).await;
    let claim = ledger.claim(&run, None).await.unwrap();

    assert!(
        matches!(saved, Err(StoreError::ResponseSaved(_))),
        "{saved:?}"
    );
    assert!(
        matches!(failed, Err(StoreError::LeaseLost { .. })),
        "{failed:?}"
    );
    assert!(matches!(claim, Claim::Done { .. }), "{claim:?}");
    assert_eq!(joined.answers().await, 1);
    assert!(all(&joined.service, DeadLetter::SCHEMA).await.is_empty());
}

/// Suspends the run of an [`asker`]. The reply arrives before the suspension is saved.
async fn answered_early(joined: &Joined) -> Arc<Breadcrumb> {
    let question = joined.asked().await;
    let probe = asker(joined);
    let reply = async {
        eventually(async || !all(&joined.service, "request.v1").await.is_empty()).await;
        put(&joined.service, "reply.v1", json!({})).await
    };
    let (outcome, reply) = tokio::join!(probe.sees(&question), reply);
    let outcome = outcome.unwrap();
    assert!(matches!(outcome, Outcome::Suspended { .. }), "{outcome:?}");
    reply
}

#[tokio::test(start_paused = true)]
async fn a_runtime_finds_an_early_reply_whose_search_failed_or_was_never_made() {
    let service = MemoryStore::default();
    let ledger = MemoryStore::default();
    let slow = Shim::new(&ledger, |call| match call {
        Call::Commit(_) => Do::Wait(Duration::from_secs(1)),
        _ => Do::Pass,
    });
    let unsearched = Shim::new(&service, |call| match call {
        Call::Search(_) => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let joined = Joined {
        store: WithLedger::new(unsearched, slow),
        service,
        ledger,
    };
    let reply = answered_early(&joined).await;
    assert_eq!(joined.state().await, RunState::Suspended);

    let passing = |store: &MemoryStore| Shim::new(store, |_| Do::Pass);
    let joined = Joined {
        store: WithLedger::new(passing(&joined.service), passing(&joined.ledger)),
        ..joined
    };
    let runtime = Runtime::builder(joined.service.events())
        .executor(asker(&joined))
        .build()
        .unwrap();
    let answered = eventually(async || joined.answers().await == 1);
    runtime.run_until(answered).await.unwrap();

    let answered = all(&joined.service, "answer.v1").await.remove(0);
    assert_eq!(answered.context["with"], json!(reply.id));
}
