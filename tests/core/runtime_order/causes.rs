//! The cause of a failed attempt in the log, the run and the dead letter.

use crate::runtime_order::harness::{from_beginning, until};
use crate::support::log::Log;
use crate::support::{Probe, all, put, runs};
use serde_json::json;
use std::io;
use std::sync::Arc;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::store::Run;
use universal_executor::{BoxError, Breadcrumb, MemoryStore, Profile, permanent};

/// A part of each secret in these tests.
const PLANTED: &str = "PLANTED12345";

#[derive(Debug, thiserror::Error)]
#[error("cannot look up the customer at postgres://ann:{PLANTED}@db/app")]
struct Lookup(#[source] io::Error);

fn lookup() -> BoxError {
    let refused = format!("connection refused, the key was sk-proj-{PLANTED}");
    Lookup(io::Error::other(refused)).into()
}

/// Processes one trigger with an executor until a dead letter exists. Returns the log lines at `WARN` and above, the run and the
/// dead letter.
async fn fail(probe: impl FnOnce(Probe) -> Probe) -> (Vec<String>, Run, Arc<Breadcrumb>) {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let (log, _guard) = Log::capture(tracing::Level::WARN, FmtSpan::NONE);
    let runtime = from_beginning(&store)
        .executor(probe(Probe::on("question.v1", "fails", &store)))
        .build()
        .unwrap();

    let failed = until(&store, "executor.failed.v1", 1);
    runtime.run_until(failed).await.unwrap();

    let run = runs(&store).await.remove(0);
    let letter = all(&store, "executor.failed.v1").await.remove(0);
    let lines = log.text().lines().map(str::to_owned).collect();
    (lines, run, letter)
}

fn expect_parts(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_failed_attempt_is_logged_with_its_cause_and_the_delay_of_the_next_one() {
    let policy = Profile::default().attempts(2);

    let (lines, run, letter) = fail(|probe| probe.profile(policy).failing(lookup)).await;

    let cause = "the method execute of the executor failed: cannot look up the customer at postgres://[hidden]@db/app: \
                 connection refused, the key was [hidden]";
    let [first, second, end] = &*lines else {
        panic!("{lines:#?}");
    };
    let run_id = format!("run={}", run.run);
    expect_parts(
        first,
        &[
            "WARN",
            "will retry",
            &run_id,
            "fails",
            "attempt=1",
            "delay=",
        ],
    );
    expect_parts(second, &["WARN", "will not retry", &run_id, "attempt=2"]);
    expect_parts(end, &["ERROR", "Client::redo", &run_id, "attempts_used_up"]);
    for line in &lines {
        expect_parts(line, &[cause]);
    }
    assert_eq!(run.cause.as_deref(), Some(cause));
    assert_eq!(letter.context["cause"], cause);
    let everything = format!("{lines:?} {run:?} {letter:?}");
    assert!(!everything.contains(PLANTED), "{everything}");
}

#[tokio::test(start_paused = true)]
async fn the_message_of_a_panic_is_in_the_log_the_run_and_the_dead_letter() {
    let policy = Profile::default().attempts(1);
    let panics = |probe: Probe| {
        let probe = probe.profile(policy);
        probe.executing(|_| async { panic!("index 7 is out of range") })
    };

    let (lines, run, letter) = fail(panics).await;

    let cause = "the executor panicked: index 7 is out of range";
    expect_parts(&lines[0], &["WARN", "code=\"panic\"", cause]);
    assert_eq!(run.cause.as_deref(), Some(cause));
    assert_eq!(letter.context["cause"], cause);
}

#[tokio::test(start_paused = true)]
async fn hidden_errors_do_not_appear_in_logs_runs_or_dead_letters() {
    let hides = || Profile::default().attempts(1).hide_errors();
    let private = || permanent("Ann Smith, born 1980, is unknown");
    let fails = |probe: Probe| probe.profile(hides()).failing(private);
    let panics = |probe: Probe| {
        let probe = probe.profile(hides());
        probe.executing(|_| async { panic!("Ann Smith") })
    };
    let refuses = |probe: Probe| {
        let probe = probe.profile(hides()).failing(private);
        probe.answering_failures(|_, _| Err("Ann Smith".into()))
    };

    for (seen, code) in [
        (fail(fails).await, "error"),
        (fail(panics).await, "panic"),
        (fail(refuses).await, "error"),
    ] {
        let everything = format!("{seen:?}");
        assert!(!everything.contains("Smith"), "{everything}");
        expect_parts(&seen.0[0], &["WARN", &format!("code={code:?}")]);
        assert!(seen.1.cause.is_some(), "{everything}");
        assert!(seen.2.context["cause"].is_string(), "{everything}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_respond_failure_is_logged_with_its_cause() {
    let policy = || Profile::default().attempts(1).responds_with(["answer.v1"]);
    let fails = |probe: Probe| {
        let probe = probe.profile(policy()).failing(|| permanent("no"));
        probe.answering_failures(|_, _| Err(lookup()))
    };
    let panics = |probe: Probe| {
        let probe = probe.profile(policy()).failing(|| permanent("no"));
        probe.answering_failures(|_, _| panic!("no template"))
    };
    let forbidden = |probe: Probe| {
        let probe = probe.profile(policy()).failing(|| permanent("no"));
        probe.answering_failures(|_, _| {
            let other = universal_executor::NewBreadcrumb::new("other.v1");
            Ok(universal_executor::Response::create(other))
        })
    };

    for (lines, cause) in [
        (fail(fails).await.0, "connection refused"),
        (fail(panics).await.0, "no template"),
        (fail(forbidden).await.0, "other.v1"),
    ] {
        let line = lines.iter().find(|line| line.contains("respond_failure"));
        expect_parts(line.unwrap(), &["WARN", cause, "run="]);
    }
}
