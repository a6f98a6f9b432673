use super::*;
use crate::oracle::{Accepted, Harm, Record};
use crate::settings::On;
use universal_executor::model::BreadcrumbId;

const PID: u32 = 7;

fn trigger() -> Trigger {
    Trigger {
        id: BreadcrumbId::NIL,
        version: 1,
    }
}

fn attempt(trigger: Trigger) -> Attempt {
    Attempt {
        executor: "clerk".to_owned(),
        trigger,
        attempt: 1,
        pid: PID,
    }
}

/// Returns two jobs with one ordering key: accepted, executed in sequence and answered.
fn all_well() -> (Vec<Record>, Snapshot) {
    let (mut records, mut snapshot) = (Vec::new(), Snapshot::default());
    for version in 1..=2 {
        let trigger = Trigger {
            version,
            ..trigger()
        };
        let job = Job::Plain;
        let n = version;
        records.push(Record::Accepted(Accepted { n, trigger, job }));
        records.push(Record::Started(attempt(trigger)));
        records.push(Record::Ended(attempt(trigger)));
        let row = Row {
            trigger,
            state: RunState::Done,
            attempts: 1,
            reason: None,
            cause: None,
            lane: Some("lane:1".into()),
        };
        snapshot
            .rows
            .entry("clerk".to_owned())
            .or_default()
            .push(row);
        let answer = Answer {
            trigger,
            attempt: 1,
            pid: PID,
            failed: false,
        };
        snapshot
            .answers
            .entry("clerk".to_owned())
            .or_default()
            .push(answer);
    }
    (records, snapshot)
}

/// Returns the broken promises after a change of the records or the snapshot.
fn found(harm: impl FnOnce(&mut Vec<Record>, &mut Snapshot)) -> Vec<String> {
    let (mut records, mut snapshot) = all_well();
    harm(&mut records, &mut snapshot);
    check(&History::of(&records), &snapshot, &Settings::ci(1)).broken
}

fn rows(snapshot: &mut Snapshot) -> &mut Vec<Row> {
    snapshot.rows.get_mut("clerk").unwrap()
}

#[test]
fn a_flawless_campaign_has_no_findings() {
    assert_eq!(found(|_, _| ()), Vec::<String>::new());
}

type Change = fn(&mut Vec<Record>, &mut Snapshot);

fn each_is_found(harms: &[(&str, Change)]) {
    for (name, harm) in harms {
        let found = found(*harm);
        assert!(
            found.iter().any(|found| found.contains(name)),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn each_kind_of_harm_is_found_by_its_name() {
    each_is_found(&[
        ("lost", |_, snapshot| drop(rows(snapshot).pop())),
        ("2 runs for one trigger", |_, snapshot| {
            let again = rows(snapshot)[0].clone();
            rows(snapshot).push(again);
        }),
        ("2 answers", |_, snapshot| {
            let answers = snapshot.answers.get_mut("clerk").unwrap();
            answers.push(answers[0]);
        }),
        ("done without an answer", |_, snapshot| {
            snapshot.answers.get_mut("clerk").unwrap().pop();
        }),
        ("had the lease", |_, snapshot| {
            rows(snapshot)[0].attempts = 2
        }),
        ("unexpected end", |_, snapshot| {
            rows(snapshot)[0].state = RunState::Running;
        }),
        ("dead letters", |_, snapshot| {
            rows(snapshot)[0].state = RunState::Failed;
        }),
        ("before", |records, _| records.swap(2, 4)),
        ("2 effects", |records, _| {
            let effect = Record::Effect { trigger: trigger() };
            records.extend([effect.clone(), effect]);
        }),
        ("took 9000 ms to exit", |records, _| {
            records.push(Record::Gone {
                pid: PID,
                code: Some(0),
                took: Some(9_000),
            });
        }),
    ]);
}

#[test]
fn an_unaccepted_trigger_may_fail_only_if_an_unclear_job_explains_it() {
    let judged = |unclear: Option<Job>| {
        found(|records, snapshot| {
            records.retain(|record| !matches!(record, Record::Accepted(one) if one.n == 2));
            records.extend(unclear.map(|job| Record::Unclear { n: 2, job }));
            let row = &mut rows(snapshot)[1];
            (row.state, row.reason) = (RunState::Failed, Some("permanent".to_owned()));
            let letter = ("clerk".to_owned(), row.trigger);
            snapshot.letters.push(letter);
            snapshot.answers.get_mut("clerk").unwrap().pop();
        })
    };

    assert_eq!(judged(Some(Job::Refused)), Vec::<String>::new());
    assert!(!judged(Some(Job::Plain)).is_empty());
    assert!(!judged(None).is_empty());
}

#[test]
fn one_run_may_lose_each_of_its_attempts_to_faults_and_no_more() {
    let judged = |cause: &str, failed: usize| {
        found(|_, snapshot| {
            for row in rows(snapshot).iter_mut().take(failed) {
                (row.state, row.attempts) = (RunState::Failed, ATTEMPTS);
                row.reason = Some("attempts_used_up".to_owned());
                row.cause = Some(cause.to_owned());
            }
            let failed = rows(snapshot)[..failed].to_vec();
            let letters = failed.iter().map(|row| ("clerk".to_owned(), row.trigger));
            snapshot.letters.extend(letters);
            snapshot
                .answers
                .get_mut("clerk")
                .unwrap()
                .drain(..failed.len());
        })
    };
    let fault =
        "Faulty is unavailable or overloaded; see the cause: a fault was injected before commit";
    let finds = |found: &[String], what| found.iter().any(|found| found.contains(what));

    assert_eq!(judged(fault, 1), Vec::<String>::new());
    assert!(finds(&judged(fault, 2), "2 runs used up their attempts"));
    assert!(finds(
        &judged("the method execute of the executor failed: no", 1),
        "unexpected end"
    ));
}

#[test]
fn attempts_beyond_the_last_are_found() {
    each_is_found(&[
        ("unexpected end", |_, snapshot| {
            let row = &mut rows(snapshot)[0];
            (row.state, row.attempts) = (RunState::Failed, 5);
            row.reason = Some("attempts_used_up".to_owned());
        }),
        ("more attempts", |_, snapshot| {
            rows(snapshot)[0].attempts = 6;
        }),
        ("more often than allowed", |records, _| {
            let sixth = |record: &Record| match record {
                Record::Started(attempt) => Some(Record::Started(Attempt {
                    attempt: 6,
                    ..attempt.clone()
                })),
                _ => None,
            };
            records.extend(records.iter().find_map(sixth));
        }),
    ]);
}

#[test]
fn a_failed_run_with_a_waiting_requester_needs_an_answer() {
    let judged = |is_told: bool| {
        found(|_, snapshot| {
            let lost = Row {
                trigger: Trigger {
                    id: BreadcrumbId::NIL,
                    version: 1,
                },
                state: RunState::Failed,
                attempts: 3,
                reason: Some("crash_loop".to_owned()),
                cause: None,
                lane: None,
            };
            let told = Answer {
                trigger: lost.trigger,
                attempt: 3,
                pid: PID,
                failed: true,
            };
            snapshot.letters.push(("helper".to_owned(), lost.trigger));
            snapshot.rows.insert("helper".to_owned(), vec![lost]);
            let answers = if is_told { vec![told] } else { Vec::new() };
            snapshot.answers.insert("helper".to_owned(), answers);
        })
    };
    let untold = |found: &[String]| {
        found
            .iter()
            .any(|found| found.contains("without an answer to the requester"))
    };

    assert!(untold(&judged(false)));
    assert!(!untold(&judged(true)));
}

#[test]
fn a_worker_may_take_longer_to_end_while_the_store_is_locked() {
    let broken_while = |locked: bool| {
        found(|records, _| {
            if locked {
                records.push(Record::Locked);
            }
            records.push(Record::Told { pid: PID });
            records.push(Record::Gone {
                pid: PID,
                code: Some(0),
                took: Some(Settings::ci(1).drain + 2_500),
            });
        })
    };

    assert_eq!(broken_while(true), Vec::<String>::new());
    assert_eq!(broken_while(false).len(), 1);
}

#[test]
fn a_leak_of_another_tenants_data_is_found() {
    each_is_found(&[
        ("saw data of another tenant", |records, _| {
            records.push(Record::Leaked {
                executor: "clerk".to_owned(),
                trigger: trigger(),
            });
        }),
        ("runs and answers of another tenant", |_, snapshot| {
            snapshot.strays = 1;
        }),
        ("only 0 triggers of another tenant remain", |records, _| {
            records.push(Record::Canary);
        }),
    ]);
}

#[test]
fn a_version_without_a_run_is_lost_unless_its_event_may_be_and_a_newer_one_has_a_run() {
    let judged = |on: On, passed_over: usize| {
        let (records, mut snapshot) = all_well();
        drop(rows(&mut snapshot).remove(passed_over));
        snapshot
            .answers
            .get_mut("clerk")
            .unwrap()
            .remove(passed_over);
        check(&History::of(&records), &snapshot, &Settings::ci_on(1, on))
    };

    let [kept, older, newest] = [(On::Postgres, 0), (On::Nats, 0), (On::Nats, 1)]
        .map(|(on, passed_over)| judged(on, passed_over));

    assert!(kept.broken.iter().any(|found| found.contains("lost")));
    assert_eq!((older.broken.as_slice(), older.passed_over), (&[][..], 1));
    assert!(newest.broken.iter().any(|found| found.contains("lost")));
}

#[test]
fn a_run_that_failed_may_have_been_claimed_more_often_than_executed() {
    let found = found(|_, snapshot| {
        let row = &mut rows(snapshot)[0];
        (row.state, row.attempts) = (RunState::Failed, 9);
        row.reason = Some("crash_loop".to_owned());
    });

    assert!(
        !found.iter().any(|found| found.contains("more attempts")),
        "{found:?}"
    );
}

#[test]
fn planned_harm_that_did_not_happen_is_reported() {
    let (mut records, snapshot) = all_well();
    records.push(Record::Harmed(Harm::Cut));

    let verdict = check(
        &History::of(&records),
        &snapshot,
        &Settings::ci_on(1, On::Postgres),
    );

    for told in [
        "connections_cut: 1 times instead of 3",
        "postgres_restarted: 0 times instead of 1",
    ] {
        assert!(
            verdict.unshown.iter().any(|what| what == told),
            "{verdict:?}"
        );
    }
}

#[test]
fn a_campaign_without_kills_is_reported_as_inconclusive() {
    let (records, snapshot) = all_well();

    let verdict = check(&History::of(&records), &snapshot, &Settings::ci(1));

    assert!(
        verdict.unshown.iter().any(|what| what == "only 0 kills"),
        "{verdict:?}"
    );
}

#[test]
fn payments_without_a_valid_approval_and_payments_made_twice_are_found() {
    let judged = |job: Job, times: usize, receipts: usize| {
        found(|records, snapshot| {
            let (n, trigger) = (
                9,
                Trigger {
                    version: 9,
                    ..trigger()
                },
            );
            records.push(Record::Accepted(Accepted { n, trigger, job }));
            records.extend(vec![Record::Paid { n }; times]);
            snapshot.receipts = vec![n; receipts];
            let row = Row {
                trigger,
                ..rows(snapshot)[0].clone()
            };
            snapshot.rows.insert("payer".to_owned(), vec![row]);
        })
    };
    let finds = |found: &[String], what| found.iter().any(|found| found.contains(what));

    assert_eq!(judged(Job::Approved, 1, 1), Vec::<String>::new());
    assert_eq!(judged(Job::Forged, 0, 1), Vec::<String>::new());
    assert!(finds(
        &judged(Job::Forged, 1, 1),
        "paid with a forged approval"
    ));
    assert!(finds(&judged(Job::Approved, 2, 1), "made 2 times"));
    assert!(finds(
        &judged(Job::Approved, 1, 0),
        "0 responses to payment"
    ));
    assert!(finds(
        &judged(Job::Approved, 1, 2),
        "2 responses to payment"
    ));
}

#[test]
fn work_dropped_after_sigterm_is_found_unless_its_lease_can_have_expired() {
    let judged = |settings: &Settings, fault: Option<Record>| {
        let (mut records, snapshot) = all_well();
        records[2] = Record::Dropped(attempt(trigger()));
        records.insert(2, Record::Told { pid: PID });
        records.splice(1..1, fault);
        let found = check(&History::of(&records), &snapshot, settings).broken;
        let dropped = |found: &String| found.contains("that received SIGTERM: Dropped");
        found.iter().any(dropped)
    };
    let clock_jumps = Settings::clock_on(1, On::Sqlite);

    assert!(judged(&Settings::ci(1), None));
    assert!(!judged(&Settings::ci(1), Some(Record::Locked)));
    assert!(!judged(&clock_jumps, None));
}
