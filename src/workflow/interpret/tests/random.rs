//! Generators of random flows and random outcomes of their steps.

use super::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Generates steps of every kind, some of them nested.
pub(super) fn steps() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        8 => (1_u8..4).prop_map(|attempts| json!({"tool": "search", "input": "${last?}", "retry": attempts})),
        2 => Just(json!({"agent": "writer", "escalate": [
            {"when": {"path": "result", "op": "eq", "value": 0}, "steps": [{"tool": "publish"}]},
            {"when": {"path": "result", "op": "eq", "value": 1}, "abort": "one"},
            {"when": {"path": "result", "op": "eq", "value": 2}, "continue": [2]},
            {"when": {"path": "result", "op": "eq", "value": 3}, "return": "three"},
        ]})),
        1 => Just(json!({"ask": "Go on?"})),
        1 => Just(json!({"emit": {"schema_name": "note.v1"}})),
        2 => Just(json!({"set": {"a": ["${last?}"]}})),
        1 => Just(json!({"return": "${last?}"})),
        1 => Just(json!({"fail": "no"})),
        1 => Just(json!({"tool": "search", "input": "${last.gone}"})),
        2 => Just(json!({"flow": "sub", "input": 1})),
    ];
    let step = leaf.prop_recursive(4, 24, 4, |inner| {
        let steps = || vec(inner.clone(), 1..4);
        let join = || select(&["all", "fail_fast", "first"][..]);
        let branches = vec(steps().prop_map(|steps| json!({"steps": steps})), 1..4);
        let zero = || json!({"path": "last", "op": "eq", "value": 0});
        prop_oneof![
            3 => (branches, join()).prop_map(|(all, join)| json!({"parallel": all, "join": join})),
            2 => (steps(), join(), 0_u8..4, 1_u8..3).prop_map(|(steps, join, items, at_once)| {
                let items: Vec<u8> = (0..items).collect();
                json!({"for_each": items, "steps": steps, "join": join, "at_once": at_once})
            }),
            2 => (steps(), 1_u8..4, any::<bool>()).prop_map(move |(steps, max, until)| {
                let until = until.then(zero);
                json!({"loop": steps, "max": max, "until": until})
            }),
            2 => (steps(), option::of(steps())).prop_map(move |(then, otherwise)| {
                json!({"if": zero(), "then": then, "else": otherwise})
            }),
            1 => (steps(), option::of(steps())).prop_map(|(then, otherwise)| {
                json!({"match": "${last?}", "cases": [{"is": 0, "then": then}], "else": otherwise})
            }),
            3 => (steps(), steps()).prop_map(|(body, handler)| json!({"try": body, "on_failure": handler})),
        ]
    });
    vec(step, 1..5).prop_map(Value::from)
}

pub(super) fn flows() -> impl Strategy<Value = Value> {
    // A recursive flow would be refused, so the inner flow runs a third one.
    (steps(), steps()).prop_map(|(main, sub)| {
        let sub = sub.to_string().replace("\"sub\"", "\"third\"");
        let sub: Value = serde_json::from_str(&sub).unwrap();
        json!({
            "main": {"steps": main}, "sub": {"steps": sub}, "third": {"steps": [{"tool": "search"}, {"return": 0}]},
        })
    })
}

/// Random choice of the next action: the number of a step in flight, and the number of an outcome.
pub(super) type Chance = (u8, u8);

pub(super) fn chances() -> impl Strategy<Value = Vec<Chance>> {
    vec(any::<Chance>(), 0..80)
}

/// A recorded call of a run, which can be repeated.
#[derive(Clone, Debug)]
pub(super) enum Done {
    Reported(StepPath, u32, StepOutcome),
    Resumed(String),
    Paused,
    Unpaused,
    Cancelled,
}

impl Done {
    pub(super) fn to(&self, run: &mut FlowRun) -> Next {
        match self {
            Self::Reported(path, attempt, outcome) => run.tell(path, *attempt, outcome.clone()),
            Self::Resumed(ticket) => run.resume(ticket, json!(1)),
            Self::Paused => run.pause(),
            Self::Unpaused => run.unpause(),
            Self::Cancelled => run.cancel(),
        }
    }
}

/// A driver that makes random choices.
#[derive(Default)]
pub(super) struct Player {
    /// Steps that were handed out and neither reported nor cancelled.
    pub(super) in_flight: Vec<Ready>,
    tickets: Vec<(StepPath, String)>,
    paused: bool,
    tickets_issued: u32,
}

impl Player {
    pub(super) fn record(&mut self, next: &Next) {
        for path in &next.cancel {
            let before = self.in_flight.len() + self.tickets.len();
            self.in_flight.retain(|ready| ready.path != *path);
            self.tickets.retain(|(waiting, _)| waiting != path);
            let after = self.in_flight.len() + self.tickets.len();
            assert_eq!(before, after + 1, "{path} was not in flight");
        }
        self.in_flight.extend(next.ready.iter().cloned());
    }

    /// Returns the next call. Without a choice, a step in flight succeeds.
    pub(super) fn choose(&mut self, chance: Option<Chance>) -> Option<Done> {
        // The order of steps that are handed out together is not guaranteed, so the choice must not depend on it.
        self.in_flight
            .sort_by(|one, other| one.path.as_str().cmp(other.path.as_str()));
        let (which, how) = chance.unwrap_or((0, u8::MAX));
        match how {
            0..4 if !self.paused => {
                self.paused = true;
                return Some(Done::Paused);
            }
            4..6 => return Some(Done::Cancelled),
            _ => {}
        }
        if self.paused && (how < 60 || self.in_flight.is_empty()) {
            self.paused = false;
            return Some(Done::Unpaused);
        }
        if self.in_flight.is_empty() || (how < 80 && !self.tickets.is_empty()) {
            let (_, ticket) = self.tickets.pop()?;
            return Some(Done::Resumed(ticket));
        }
        let at = usize::from(which) % self.in_flight.len();
        let ready = self.in_flight.remove(at);
        let outcome = match how {
            0..110 => StepOutcome::failure("broken", "it broke"),
            110..150 => StepOutcome::transient("busy", "try later"),
            150..165 => StepOutcome::TimedOut,
            165..190 => {
                self.tickets_issued += 1;
                let ticket = format!("t{}", self.tickets_issued);
                self.tickets.push((ready.path.clone(), ticket.clone()));
                StepOutcome::Suspended { ticket }
            }
            190.. => StepOutcome::success(json!(how % 6)),
        };
        Some(Done::Reported(ready.path, ready.attempt, outcome))
    }
}

/// Generates a graph: the dependencies of each step by number, and the order of the steps in the definition.
pub(super) fn graphs() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<usize>)> {
    (1_usize..12).prop_flat_map(|count| {
        let edges = vec(vec(any::<prop::sample::Index>(), 0..3), count);
        let edges = edges.prop_map(|edges| {
            let edges = edges.into_iter().enumerate();
            edges
                .map(|(at, on)| match at {
                    0 => Vec::new(),
                    _ => on.into_iter().map(|on| on.index(at)).collect(),
                })
                .collect()
        });
        let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
        (edges, order)
    })
}
