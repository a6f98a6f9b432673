//! Every state with every input, one row each. The columns are the policy, a name, the earlier signals, the input, the
//! expected effects and the expected state. [`signal`] parses signals, and [`show`] prints effects.

use super::*;

/// One test case: a row of the table.
struct Row<'t> {
    name: &'t str,
    policy: Policy,
    before: Vec<Signal>,
    input: Input,
    effects: Vec<&'t str>,
    state: &'t str,
}

impl<'t> Row<'t> {
    fn read(line: &'t str) -> Self {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [how, name, before, input, effects, state] = columns.as_slice() else {
            panic!("the row {line:?} does not have six columns");
        };
        let (of, what) = input.split_once('/').unwrap_or(("run", input));
        Row {
            name,
            policy: policy(how),
            before: list(before).into_iter().map(signal).collect(),
            input: Input::new(&RunId::new(of), signal(what)),
            effects: list(effects),
            state,
        }
    }

    /// Runs the row. Returns a description of the difference, or `None` if the row holds.
    fn check(self) -> Option<String> {
        let mut machine = machine(self.policy.clone());
        feed(&mut machine, self.before);
        let before = machine.clone();

        let effects = show(&machine.step(self.input));

        let state = show_state(&machine);
        let is_anomaly = effects.first().is_some_and(|one| one.starts_with("report"));
        // Under Batch, the caller of a conflicting call waits for the turn. Otherwise an anomaly changes nothing.
        let changed = machine != before && self.policy.delivery == ResultDelivery::Each;
        let name = self.name;
        if effects != self.effects {
            Some(format!(
                "{name}: effects {effects:?}, not {:?}",
                self.effects
            ))
        } else if state != self.state {
            Some(format!("{name}: state {state}, not {}", self.state))
        } else if is_anomaly && changed {
            Some(format!("{name}: an anomaly changed the machine"))
        } else {
            None
        }
    }
}

fn policy(how: &str) -> Policy {
    match how {
        "each" => Policy::each(),
        "each cancels" => Policy::each().siblings(Siblings::Cancel),
        "each refuses" => Policy::each().while_suspended(WhileSuspended::Refuse),
        "batch" => Policy::batch(),
        "batch cancels" => Policy::batch().siblings(Siblings::Cancel),
        "batch refuses" => Policy::batch().while_suspended(WhileSuspended::Refuse),
        other => panic!("unknown policy {other}"),
    }
}

fn signal(text: &str) -> Signal {
    match text.split_once(' ').unwrap_or((text, "")) {
        ("call", id) => received(id),
        ("more", id) => and_more(received(id)),
        ("other", id) => asks(id, "adder", json!({"n": 2})),
        ("tool", id) => asks(id, "other", json!({"n": 1})),
        ("ok", id) => ok(id),
        ("err", id) => err(id),
        ("defer", id) => deferred(id),
        ("resolve", id) => resolved(id),
        ("complete", "") => completed(),
        ("fail", "") => broke(),
        ("cancel", "") => Signal::Cancel,
        _ => panic!("unknown signal {text}"),
    }
}

fn list(texts: &str) -> Vec<&str> {
    texts.split(", ").filter(|text| !text.is_empty()).collect()
}

fn check(table: &str) {
    let rows = table.trim().lines().map(Row::read);
    let wrong: Vec<String> = rows.filter_map(Row::check).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_run_that_is_idle_takes_calls_and_ends_and_reports_the_rest() {
    check(
        r#"
each | received  |  | call a     | execute a           | running
each | finished  |  | ok a       | report unknown a    | idle
each | deferred  |  | defer a    | report unknown a    | idle
each | resolved  |  | resolve a  | report unknown a    | idle
each | completed |  | complete   | finish with "bye"   | complete
each | failed    |  | fail       | finish failed: died | failed
each | cancel    |  | cancel     | finish cancelled    | failed
each | other run |  | old/call a | report stale old    | idle
"#,
    );
}

#[test]
fn a_run_that_is_running_executes_and_delivers_each() {
    check(
        r#"
each | received                      | call a               | call b    | execute b                                                                | running
each | resent while pending          | call a               | call a    |                                                                          | running
each | resent when finished          | call a, ok a         | call a    | deliver a=ok                                                             | running
each | other payload                 | call a               | other a   | report conflict a, deliver a=conflicting_call                            | running
each | other tool                    | call a               | tool a    | report conflict a, deliver a=conflicting_call                            | running
each | other payload when finished   | call a, ok a         | other a   | report conflict a, deliver a=conflicting_call                            | running
each | ok                            | call a               | ok a      | deliver a=ok                                                             | running
each | ok of the second              | call a, call b       | ok b      | deliver b=ok                                                             | running
each | ok of the first after that    | call a, call b, ok b | ok a      | deliver a=ok                                                             | running
each | error                         | call a               | err a     | deliver a=tool_failed                                                    | running
each | ok with two callers           | call a, call a       | ok a      | deliver a=ok a=ok                                                        | running
each | unknown finished              | call a               | ok b      | report unknown b                                                         | running
each | finished again                | call a, ok a         | err a     | report duplicate a                                                       | running
each | deferred after finished       | call a, ok a         | defer a   | report duplicate a                                                       | running
each | deferred                      | call a               | defer a   | defer a                                                                  | suspended a
each | resolved unknown              | call a               | resolve b | report unknown b                                                         | running
each | resolved pending              | call a               | resolve a | report not deferred a                                                    | running
each | resolved finished             | call a, ok a         | resolve a | report duplicate a                                                       | running
each | completed                     | call a, ok a         | complete  | finish with "bye"                                                        | complete
each | completed with a pending call | call a               | complete  | cancel a, deliver a=cancelled, finish with "bye"                         | complete
each | failed                        | call a               | fail      | cancel a, deliver a=cancelled, finish failed: died                       | failed
each | failed with two pending       | call a, call b       | fail      | cancel a, cancel b, deliver a=cancelled b=cancelled, finish failed: died | failed
each | cancel                        | call a               | cancel    | cancel a, deliver a=cancelled, finish cancelled                          | failed
each | other run                     | call a               | old/ok a  | report stale old                                                         | running
"#,
    );
}

#[test]
fn a_run_that_is_running_delivers_a_batch_once_it_is_complete() {
    check(
        r#"
batch | ok of one                | call a                        | ok a     | deliver a=ok                                          | running
batch | ok of two                | more a, call b                | ok b     |                                                       | running
batch | last ok                  | more a, call b, ok b          | err a    | deliver a=tool_failed b=ok                            | running
batch | ok while more follow     | more a                        | ok a     |                                                       | running
batch | last call after ok       | more a, ok a                  | call b   | execute b                                             | running
batch | the next turn            | call a, ok a                  | call b   | execute b                                             | running
batch | ok in the next turn      | call a, ok a, call b          | ok b     | deliver b=ok                                          | running
batch | resent while pending     | more a, call b, call a, ok a  | ok b     | deliver a=ok b=ok a=ok                                | running
batch | resent when finished     | call a, ok a                  | call a   | deliver a=ok                                          | running
batch | conflict                 | more a, call b                | other a  | report conflict a                                     | running
batch | ok after conflict        | more a, call b, other a, ok a | ok b     | deliver a=ok b=ok a=conflicting_call                  | running
batch | unknown finished         | more a, call b                | ok c     | report unknown c                                      | running
batch | finished again           | more a, call b, ok a          | ok a     | report duplicate a                                    | running
batch | completed                | more a, call b, ok b          | complete | cancel a, deliver a=cancelled b=ok, finish with "bye" | complete
batch | failed while more follow | more a                        | fail     | cancel a, deliver a=cancelled, finish failed: died    | failed
batch | completed after delivery | call a, ok a                  | complete | finish with "bye"                                     | complete
"#,
    );
}

#[test]
fn a_suspended_run_waits_for_its_deferral_and_queues_other_calls() {
    check(
        r#"
each  | received                     | call a, defer a                             | call c        |                                                                        | suspended a
each  | resent                       | call a, defer a                             | call a        |                                                                        | suspended a
each  | other payload                | call a, defer a                             | other a       | report conflict a, deliver a=conflicting_call                          | suspended a
each  | resent when finished         | call a, call b, ok b, defer a               | call b        | deliver b=ok                                                           | suspended a
batch | resent when finished         | call a, ok a, call b, defer b               | call a        |                                                                        | suspended b
batch | resolved after a resend      | call a, ok a, call b, defer b, call a       | resolve b     | deliver b=child a=ok                                                   | running
each  | ok of a sibling              | call a, call b, defer a                     | ok b          | deliver b=ok                                                           | suspended a
each  | error of a sibling           | call a, call b, defer a                     | err b         | deliver b=tool_failed                                                  | suspended a
each  | deferred finished            | call a, call b, defer a                     | ok a          | report duplicate a                                                     | suspended a
each  | deferred again               | call a, defer a                             | defer a       | report duplicate a                                                     | suspended a
each  | unknown finished             | call a, defer a                             | ok c          | report unknown c                                                       | suspended a
each  | queued finished              | call a, defer a, call c                     | ok c          | report unknown c                                                       | suspended a
each  | deferred                     | call a, call b, defer a                     | defer b       |                                                                        | suspended a b
each  | resolved                     | call a, defer a                             | resolve a     | deliver a=child                                                        | running
each  | resolved with a sibling      | call a, call b, defer a                     | resolve a     | deliver a=child                                                        | running
each  | resolved with another behind | call a, call b, defer a, defer b            | resolve a     | deliver a=child, defer b                                               | suspended b
each  | deferred behind another      | call a, call b, call c, defer a, defer b    | defer c       |                                                                        | suspended a b c
each  | resolved the last            | call a, call b, defer a, defer b, resolve a | resolve b     | deliver b=child                                                        | running
each  | resolved with a queue        | call a, defer a, call c                     | resolve a     | deliver a=child, execute c                                             | running
each  | queue and another behind     | call a, call b, defer a, defer b, call c    | resolve a     | deliver a=child, defer b                                               | suspended b
each  | resolved out of turn         | call a, call b, defer a, defer b            | resolve b     | report not deferred b                                                  | suspended a b
each  | resolved a sibling           | call a, call b, defer a                     | resolve b     | report not deferred b                                                  | suspended a
each  | resolved unknown             | call a, call b, defer a                     | resolve c     | report unknown c                                                       | suspended a
each  | resolved again               | call a, call b, defer a, defer b, resolve a | resolve a     | report duplicate a                                                     | suspended b
each  | completed                    | call a, call b, defer a                     | complete      | cancel a, cancel b, deliver a=cancelled b=cancelled, finish with "bye" | complete
each  | failed                       | call a, defer a, call c                     | fail          | cancel a, deliver a=cancelled c=cancelled, finish failed: died         | failed
each  | cancel                       | call a, call b, defer a, defer b            | cancel        | cancel a, cancel b, deliver a=cancelled b=cancelled, finish cancelled  | failed
each  | other run                    | call a, defer a                             | old/resolve a | report stale old                                                       | suspended a
batch | ok of a sibling              | call a, call b, defer a                     | ok b          |                                                                        | suspended a
batch | resolved                     | call a, call b, defer a, ok b               | resolve a     | deliver a=child b=ok                                                   | running
batch | resolved before the sibling  | call a, call b, defer a                     | resolve a     |                                                                        | running
batch | sibling after that           | call a, call b, defer a, resolve a          | ok b          | deliver a=child b=ok                                                   | running
"#,
    );
}

#[test]
fn a_policy_decides_on_siblings_and_on_calls_while_suspended() {
    check(
        r#"
each cancels  | siblings are cancelled              | call a, call b                     | defer a   | defer a, cancel b, deliver b=cancelled | suspended a
batch cancels | siblings are cancelled in a batch   | call a, call b                     | defer a   | defer a, cancel b                      | suspended a
batch cancels | siblings are answered in a batch    | call a, call b, defer a            | resolve a | deliver a=child b=cancelled            | running
each cancels  | a cancelled sibling ends            | call a, call b, defer a            | ok b      | report duplicate b                     | suspended a
each cancels  | a cancelled sibling is sent again   | call a, call b, defer a            | call b    | deliver b=cancelled                    | suspended a
each refuses  | a call is refused                   | call a, defer a                    | call c    | deliver c=suspended                    | suspended a
each refuses  | a call that was refused comes later | call a, defer a, call c, resolve a | call c    | execute c                              | running
batch refuses | a call is refused in a batch        | call a, defer a, call c            | resolve a | deliver a=child c=suspended            | running
"#,
    );
}

#[test]
fn a_run_that_is_over_absorbs_everything_and_leaves_no_caller_alone() {
    check(
        r#"
each  | complete, received      | call a, ok a, complete | call a    | report after the end, deliver a=cancelled | complete
each  | complete, finished      | call a, ok a, complete | ok a      | report after the end                      | complete
each  | complete, deferred      | call a, ok a, complete | defer a   | report after the end                      | complete
each  | complete, resolved      | call a, ok a, complete | resolve a | report after the end                      | complete
each  | complete, completed     | call a, ok a, complete | complete  | report after the end                      | complete
each  | complete, failed        | call a, ok a, complete | fail      | report after the end                      | complete
each  | complete, cancel        | call a, ok a, complete | cancel    | report after the end                      | complete
each  | complete, other run     | call a, ok a, complete | old/ok a  | report stale old                          | complete
each  | failed, received        | call a, fail           | call a    | report after the end, deliver a=cancelled | failed
each  | failed, finished        | call a, fail           | ok a      | report after the end                      | failed
each  | failed, deferred        | call a, fail           | defer a   | report after the end                      | failed
each  | failed, resolved        | call a, fail           | resolve a | report after the end                      | failed
each  | failed, completed       | call a, fail           | complete  | report after the end                      | failed
each  | failed, failed          | call a, fail           | fail      | report after the end                      | failed
each  | failed, cancel          | call a, fail           | cancel    | report after the end                      | failed
each  | failed, other run       | call a, fail           | old/ok a  | report stale old                          | failed
batch | failed, batch, received | call a, fail           | call a    | report after the end, deliver a=cancelled | failed
"#,
    );
}
