//! Conditions that a killed run must satisfy.

use crate::flow::lives::{Lived, open, wait_for};
use crate::flow::notes::Note;
use crate::flow::worker::expected;
use std::collections::{BTreeMap, BTreeSet};
use universal_executor::store::{DeadLetter, RunFilter};
use universal_executor::workload::WorkloadExecutor;
use universal_executor::{BreadcrumbStoreExt as _, RunLedger as _};

/// The steps that may run at most once.
const MOST: [&str; 8] = ["m1", "x2", "y2", "y3", "z1", "m2", "y5", "a2"];
/// The steps that may run several times.
const AGAIN: [&str; 14] = [
    "first", "x1", "x3", "x4", "y1", "y4", "z2", "z3", "z4", "item1", "item2", "item3", "a1",
    "after",
];

/// Returns all violated conditions of a run.
pub(crate) fn problems(run: &Lived) -> Vec<String> {
    let mut problems = calls(run);
    problems.extend(in_store(run));
    problems
}

fn calls(run: &Lived) -> Vec<String> {
    let mut problems = Vec::new();
    let mut kept = BTreeSet::new();
    let mut keys: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for note in &run.notes {
        match note {
            Note::Began { step, key } => {
                if kept.contains(step) {
                    problems.push(format!("{step} was repeated after it was saved"));
                }
                keys.entry(step).or_default().push(key);
            }
            Note::Ended { step } => drop(ended.insert(step.as_str())),
            Note::Kept { step } => drop(kept.insert(step.clone())),
            Note::Passed { .. } | Note::Dies => {}
        }
    }
    for step in MOST {
        let began = keys.get(step).map_or(0, Vec::len);
        if began > 1 || (began == 0 && run.kills == 0) {
            problems.push(format!("{step} ran {began} times"));
        }
    }
    for step in AGAIN {
        let keys = keys.get(step).map_or(&[][..], Vec::as_slice);
        let is_one = keys.iter().all(|key| Some(key) == keys.first());
        if keys.len() > 1 + run.kills || !is_one || !ended.contains(step) {
            problems.push(format!("{step} was called with the keys {keys:?}"));
        }
    }
    problems
}

fn in_store(run: &Lived) -> Vec<String> {
    wait_for(async {
        let store = open(&run.folder, 0).await;
        let mut problems = Vec::new();
        let results = store.recent(WorkloadExecutor::REQUEST_RESULT, 10);
        let results = results.await.unwrap();
        let outputs: Vec<_> = results
            .iter()
            .map(|result| &result.context["output"])
            .collect();
        if outputs != [&expected()] || !results[0].tags.contains(&"request:q-1".to_owned()) {
            let results: Vec<_> = results.iter().map(|result| &result.context).collect();
            problems.push(format!("the results are {results:?}"));
        }
        for (schema, expected) in [("note.v1", 1), (DeadLetter::SCHEMA, 0)] {
            let found = store.recent(schema, 10).await.unwrap().len();
            if found != expected {
                problems.push(format!("there are {found} breadcrumbs of {schema}"));
            }
        }
        let runs = store.runs(&RunFilter::all()).await.unwrap();
        if !runs.iter().all(|run| run.state.is_over()) {
            problems.push(format!("runs are still open: {runs:?}"));
        }
        store.close().await;
        problems
    })
}
