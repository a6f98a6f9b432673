//! Every state with every input, one row each.

use super::*;

/// What was before, what comes, what is to be done about it, and where that leads.
struct Row {
    name: &'static str,
    policy: Policy,
    before: Vec<Signal>,
    input: Input,
    effects: &'static [&'static str],
    state: &'static str,
}

/// A row of a run that delivers each result.
fn each(
    name: &'static str,
    before: impl Into<Vec<Signal>>,
    input: Signal,
    effects: &'static [&'static str],
    state: &'static str,
) -> Row {
    Row {
        name,
        policy: Policy::each(),
        before: before.into(),
        input: Input::new(&run(), input),
        effects,
        state,
    }
}

/// The same of a run that delivers batches.
fn batch(
    name: &'static str,
    before: impl Into<Vec<Signal>>,
    input: Signal,
    effects: &'static [&'static str],
    state: &'static str,
) -> Row {
    Row {
        policy: Policy::batch(),
        ..each(name, before, input, effects, state)
    }
}

impl Row {
    fn with(mut self, change: impl FnOnce(Policy) -> Policy) -> Self {
        self.policy = change(self.policy);
        self
    }

    fn of_run(mut self, other: &str) -> Self {
        self.input.run = RunId::new(other);
        self
    }

    fn is_anomaly(&self) -> bool {
        self.effects
            .first()
            .is_some_and(|effect| effect.starts_with("report"))
    }

    fn check(self) -> Result<(), String> {
        let mut machine = machine(self.policy.clone());
        feed(&mut machine, self.before.clone());
        let before = machine.clone();

        let effects = show(&machine.step(self.input.clone()));

        if effects != self.effects {
            return Err(format!(
                "{}: {effects:?} instead of {:?}",
                self.name, self.effects
            ));
        }
        if show_state(&machine) != self.state {
            let state = show_state(&machine);
            return Err(format!("{}: {state} instead of {}", self.name, self.state));
        }
        // A conflict under way is the only anomaly that leaves a trace: under Batch its caller waits for the turn.
        if self.is_anomaly() && machine != before && self.policy.delivery == Delivery::Each {
            return Err(format!("{}: an anomaly changed the machine", self.name));
        }
        Ok(())
    }
}

fn check(rows: Vec<Row>) {
    let wrong: Vec<String> = rows
        .into_iter()
        .filter_map(|row| row.check().err())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_run_that_is_idle_takes_calls_and_ends_and_reports_the_rest() {
    check(vec![
        each(
            "idle, received",
            [],
            received("a"),
            &["execute a"],
            "running",
        ),
        each("idle, finished", [], ok("a"), &["report unknown a"], "idle"),
        each(
            "idle, deferred",
            [],
            deferred("a"),
            &["report unknown a"],
            "idle",
        ),
        each(
            "idle, resolved",
            [],
            resolved("a"),
            &["report unknown a"],
            "idle",
        ),
        each(
            "idle, completed",
            [],
            completed(),
            &["finish with \"bye\""],
            "complete",
        ),
        each(
            "idle, failed",
            [],
            broke(),
            &["finish failed: the process died"],
            "failed",
        ),
        each(
            "idle, cancel",
            [],
            Signal::Cancel,
            &["finish cancelled"],
            "failed",
        ),
        each(
            "idle, other run",
            [],
            received("a"),
            &["report stale old"],
            "idle",
        )
        .of_run("old"),
    ]);
}

#[test]
fn a_run_that_is_running_executes_and_delivers_each() {
    let one = || vec![received("a")];
    let done = || vec![received("a"), ok("a")];
    let other = || asks("a", "adder", json!({"n": 2}));
    let tool = || asks("a", "other", json!({"n": 1}));
    check(vec![
        each(
            "running, received",
            one(),
            received("b"),
            &["execute b"],
            "running",
        ),
        each(
            "running, resent while pending",
            one(),
            received("a"),
            &[],
            "running",
        ),
        each(
            "running, resent when finished",
            done(),
            received("a"),
            &["deliver a=ok"],
            "running",
        ),
        each(
            "running, other payload",
            one(),
            other(),
            &["report conflict a", "deliver a=conflicting_call"],
            "running",
        ),
        each(
            "running, other tool",
            one(),
            tool(),
            &["report conflict a", "deliver a=conflicting_call"],
            "running",
        ),
        each(
            "running, other payload when finished",
            done(),
            other(),
            &["report conflict a", "deliver a=conflicting_call"],
            "running",
        ),
        each("running, ok", one(), ok("a"), &["deliver a=ok"], "running"),
        each(
            "running, error",
            one(),
            err("a"),
            &["deliver a=tool_failed"],
            "running",
        ),
        each(
            "running, ok with two callers",
            vec![received("a"), received("a")],
            ok("a"),
            &["deliver a=ok a=ok"],
            "running",
        ),
        each(
            "running, unknown finished",
            one(),
            ok("b"),
            &["report unknown b"],
            "running",
        ),
        each(
            "running, finished again",
            done(),
            err("a"),
            &["report duplicate a"],
            "running",
        ),
        each(
            "running, deferred after finished",
            done(),
            deferred("a"),
            &["report duplicate a"],
            "running",
        ),
        each(
            "running, deferred",
            one(),
            deferred("a"),
            &["defer a"],
            "suspended a",
        ),
        each(
            "running, resolved unknown",
            one(),
            resolved("b"),
            &["report unknown b"],
            "running",
        ),
        each(
            "running, resolved pending",
            one(),
            resolved("a"),
            &["report not deferred a"],
            "running",
        ),
        each(
            "running, resolved finished",
            done(),
            resolved("a"),
            &["report duplicate a"],
            "running",
        ),
        each(
            "running, completed",
            done(),
            completed(),
            &["finish with \"bye\""],
            "complete",
        ),
        each(
            "running, completed with a pending call",
            one(),
            completed(),
            &["cancel a", "deliver a=cancelled", "finish with \"bye\""],
            "complete",
        ),
        each(
            "running, failed",
            one(),
            broke(),
            &[
                "cancel a",
                "deliver a=cancelled",
                "finish failed: the process died",
            ],
            "failed",
        ),
        each(
            "running, cancel",
            one(),
            Signal::Cancel,
            &["cancel a", "deliver a=cancelled", "finish cancelled"],
            "failed",
        ),
        each(
            "running, other run",
            one(),
            ok("a"),
            &["report stale old"],
            "running",
        )
        .of_run("old"),
    ]);
}

#[test]
fn a_run_that_is_running_delivers_a_batch_once_it_is_complete() {
    let two = || vec![and_more(received("a")), received("b")];
    let first = || vec![received("a"), ok("a")];
    let other = || asks("a", "adder", json!({"n": 2}));
    check(vec![
        batch(
            "batch, ok of one",
            [received("a")],
            ok("a"),
            &["deliver a=ok"],
            "running",
        ),
        batch("batch, ok of two", two(), ok("b"), &[], "running"),
        batch(
            "batch, last ok",
            [two(), vec![ok("b")]].concat(),
            err("a"),
            &["deliver a=tool_failed b=ok"],
            "running",
        ),
        batch(
            "batch, ok while more follow",
            [and_more(received("a"))],
            ok("a"),
            &[],
            "running",
        ),
        batch(
            "batch, last call after ok",
            [and_more(received("a")), ok("a")],
            received("b"),
            &["execute b"],
            "running",
        ),
        batch(
            "batch, the next turn",
            first(),
            received("b"),
            &["execute b"],
            "running",
        ),
        batch(
            "batch, ok in the next turn",
            [first(), vec![received("b")]].concat(),
            ok("b"),
            &["deliver b=ok"],
            "running",
        ),
        batch(
            "batch, resent while pending",
            [two(), vec![received("a"), ok("a")]].concat(),
            ok("b"),
            &["deliver a=ok b=ok a=ok"],
            "running",
        ),
        batch(
            "batch, resent when finished",
            first(),
            received("a"),
            &["deliver a=ok"],
            "running",
        ),
        batch(
            "batch, conflict",
            two(),
            other(),
            &["report conflict a"],
            "running",
        ),
        batch(
            "batch, ok after conflict",
            [two(), vec![other(), ok("a")]].concat(),
            ok("b"),
            &["deliver a=ok b=ok a=conflicting_call"],
            "running",
        ),
        batch(
            "batch, unknown finished",
            two(),
            ok("c"),
            &["report unknown c"],
            "running",
        ),
        batch(
            "batch, finished again",
            [two(), vec![ok("a")]].concat(),
            ok("a"),
            &["report duplicate a"],
            "running",
        ),
        batch(
            "batch, completed",
            [two(), vec![ok("b")]].concat(),
            completed(),
            &[
                "cancel a",
                "deliver a=cancelled b=ok",
                "finish with \"bye\"",
            ],
            "complete",
        ),
        batch(
            "batch, failed while more follow",
            [and_more(received("a"))],
            broke(),
            &[
                "cancel a",
                "deliver a=cancelled",
                "finish failed: the process died",
            ],
            "failed",
        ),
        batch(
            "batch, completed after delivery",
            first(),
            completed(),
            &["finish with \"bye\""],
            "complete",
        ),
    ]);
}

#[test]
fn a_run_that_is_suspended_waits_for_its_deferral_and_keeps_the_rest() {
    let alone = || vec![received("a"), deferred("a")];
    let two = || vec![received("a"), received("b"), deferred("a")];
    let both = || [two(), vec![deferred("b")]].concat();
    let queued = || [alone(), vec![received("c")]].concat();
    let other = || asks("a", "adder", json!({"n": 2}));
    check(vec![
        each(
            "suspended, received",
            alone(),
            received("c"),
            &[],
            "suspended a",
        ),
        each(
            "suspended, resent",
            alone(),
            received("a"),
            &[],
            "suspended a",
        ),
        each(
            "suspended, other payload",
            alone(),
            other(),
            &["report conflict a", "deliver a=conflicting_call"],
            "suspended a",
        ),
        each(
            "suspended, ok of a sibling",
            two(),
            ok("b"),
            &["deliver b=ok"],
            "suspended a",
        ),
        each(
            "suspended, error of a sibling",
            two(),
            err("b"),
            &["deliver b=tool_failed"],
            "suspended a",
        ),
        each(
            "suspended, deferred finished",
            two(),
            ok("a"),
            &["report duplicate a"],
            "suspended a",
        ),
        each(
            "suspended, deferred again",
            alone(),
            deferred("a"),
            &["report duplicate a"],
            "suspended a",
        ),
        each(
            "suspended, unknown finished",
            alone(),
            ok("c"),
            &["report unknown c"],
            "suspended a",
        ),
        each(
            "suspended, queued finished",
            queued(),
            ok("c"),
            &["report unknown c"],
            "suspended a",
        ),
        each(
            "suspended, deferred",
            two(),
            deferred("b"),
            &[],
            "suspended a b",
        ),
        each(
            "suspended, resolved",
            alone(),
            resolved("a"),
            &["deliver a=child"],
            "running",
        ),
        each(
            "suspended, resolved with a sibling",
            two(),
            resolved("a"),
            &["deliver a=child"],
            "running",
        ),
        each(
            "suspended, resolved with another behind",
            both(),
            resolved("a"),
            &["deliver a=child", "defer b"],
            "suspended b",
        ),
        each(
            "suspended, resolved the last",
            [both(), vec![resolved("a")]].concat(),
            resolved("b"),
            &["deliver b=child"],
            "running",
        ),
        each(
            "suspended, resolved with a queue",
            queued(),
            resolved("a"),
            &["deliver a=child", "execute c"],
            "running",
        ),
        each(
            "suspended, queue and another behind",
            [both(), vec![received("c")]].concat(),
            resolved("a"),
            &["deliver a=child", "defer b"],
            "suspended b",
        ),
        each(
            "suspended, resolved out of turn",
            both(),
            resolved("b"),
            &["report not deferred b"],
            "suspended a b",
        ),
        each(
            "suspended, resolved a sibling",
            two(),
            resolved("b"),
            &["report not deferred b"],
            "suspended a",
        ),
        each(
            "suspended, resolved unknown",
            two(),
            resolved("c"),
            &["report unknown c"],
            "suspended a",
        ),
        each(
            "suspended, resolved again",
            [both(), vec![resolved("a")]].concat(),
            resolved("a"),
            &["report duplicate a"],
            "suspended b",
        ),
        each(
            "suspended, completed",
            two(),
            completed(),
            &[
                "cancel a",
                "cancel b",
                "deliver a=cancelled b=cancelled",
                "finish with \"bye\"",
            ],
            "complete",
        ),
        each(
            "suspended, failed",
            queued(),
            broke(),
            &[
                "cancel a",
                "deliver a=cancelled c=cancelled",
                "finish failed: the process died",
            ],
            "failed",
        ),
        each(
            "suspended, cancel",
            both(),
            Signal::Cancel,
            &[
                "cancel a",
                "cancel b",
                "deliver a=cancelled b=cancelled",
                "finish cancelled",
            ],
            "failed",
        ),
        each(
            "suspended, other run",
            alone(),
            resolved("a"),
            &["report stale old"],
            "suspended a",
        )
        .of_run("old"),
        batch(
            "suspended, batch, ok of a sibling",
            two(),
            ok("b"),
            &[],
            "suspended a",
        ),
        batch(
            "suspended, batch, resolved",
            [two(), vec![ok("b")]].concat(),
            resolved("a"),
            &["deliver a=child b=ok"],
            "running",
        ),
        batch(
            "suspended, batch, resolved before the sibling",
            two(),
            resolved("a"),
            &[],
            "running",
        ),
        batch(
            "suspended, batch, sibling after that",
            [two(), vec![resolved("a")]].concat(),
            ok("b"),
            &["deliver a=child b=ok"],
            "running",
        ),
    ]);
}

#[test]
fn a_policy_decides_on_siblings_and_on_calls_while_suspended() {
    let cancel = |policy: Policy| policy.siblings(Siblings::Cancel);
    let refuse = |policy: Policy| policy.while_suspended(WhileSuspended::Refuse);
    let two = || vec![received("a"), received("b")];
    let suspended = || vec![received("a"), deferred("a")];
    check(vec![
        each(
            "siblings are cancelled",
            two(),
            deferred("a"),
            &["defer a", "cancel b", "deliver b=cancelled"],
            "suspended a",
        )
        .with(cancel),
        batch(
            "siblings are cancelled in a batch",
            two(),
            deferred("a"),
            &["defer a", "cancel b"],
            "suspended a",
        )
        .with(cancel),
        batch(
            "siblings are answered in a batch",
            [two(), vec![deferred("a")]].concat(),
            resolved("a"),
            &["deliver a=child b=cancelled"],
            "running",
        )
        .with(cancel),
        each(
            "a cancelled sibling ends",
            [two(), vec![deferred("a")]].concat(),
            ok("b"),
            &["report duplicate b"],
            "suspended a",
        )
        .with(cancel),
        each(
            "a cancelled sibling is sent again",
            [two(), vec![deferred("a")]].concat(),
            received("b"),
            &["deliver b=cancelled"],
            "suspended a",
        )
        .with(cancel),
        each(
            "a call is refused",
            suspended(),
            received("c"),
            &["deliver c=suspended"],
            "suspended a",
        )
        .with(refuse),
        each(
            "a call that was refused comes later",
            [suspended(), vec![received("c"), resolved("a")]].concat(),
            received("c"),
            &["execute c"],
            "running",
        )
        .with(refuse),
        batch(
            "a call is refused in a batch",
            [suspended(), vec![received("c")]].concat(),
            resolved("a"),
            &["deliver a=child c=suspended"],
            "running",
        )
        .with(refuse),
    ]);
}

#[test]
fn a_run_that_is_over_absorbs_everything_and_leaves_no_caller_alone() {
    let complete = || vec![received("a"), ok("a"), completed()];
    let failed = || vec![received("a"), broke()];
    let after = &["report after the end"];
    let late = &["report after the end", "deliver a=cancelled"];
    check(vec![
        each(
            "complete, received",
            complete(),
            received("a"),
            late,
            "complete",
        ),
        each("complete, finished", complete(), ok("a"), after, "complete"),
        each(
            "complete, deferred",
            complete(),
            deferred("a"),
            after,
            "complete",
        ),
        each(
            "complete, resolved",
            complete(),
            resolved("a"),
            after,
            "complete",
        ),
        each(
            "complete, completed",
            complete(),
            completed(),
            after,
            "complete",
        ),
        each("complete, failed", complete(), broke(), after, "complete"),
        each(
            "complete, cancel",
            complete(),
            Signal::Cancel,
            after,
            "complete",
        ),
        each(
            "complete, other run",
            complete(),
            ok("a"),
            &["report stale old"],
            "complete",
        )
        .of_run("old"),
        each("failed, received", failed(), received("a"), late, "failed"),
        each("failed, finished", failed(), ok("a"), after, "failed"),
        each("failed, deferred", failed(), deferred("a"), after, "failed"),
        each("failed, resolved", failed(), resolved("a"), after, "failed"),
        each("failed, completed", failed(), completed(), after, "failed"),
        each("failed, failed", failed(), broke(), after, "failed"),
        each("failed, cancel", failed(), Signal::Cancel, after, "failed"),
        each(
            "failed, other run",
            failed(),
            ok("a"),
            &["report stale old"],
            "failed",
        )
        .of_run("old"),
        batch(
            "failed, batch, received",
            failed(),
            received("a"),
            late,
            "failed",
        ),
    ]);
}
