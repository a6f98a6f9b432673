//! What has to be true of a run that was killed.

use crate::Way;
use crate::lives::{Lived, open, wait_for};
use crate::note::Note;
use crate::worker::{AGAIN, DONE, TOOLS, UNKNOWN};
use std::collections::BTreeMap;
use universal_executor::agent::AgentExecutor;
use universal_executor::store::{DeadLetter, RunFilter};
use universal_executor::{BreadcrumbStoreExt as _, RunLedger as _};

/// How often the model answers.
const TURNS: usize = 2;

/// What is wrong with a run, if anything.
pub(crate) fn problems(run: &Lived, way: Way) -> Vec<String> {
    let seen = Seen::of(run);
    let mut problems = seen.repeated.clone();
    problems.extend(in_store(run, &seen));
    problems.extend(calls(run, &seen));
    let (deaths, notes) = (&run.deaths, &run.notes);
    let place = |problem| format!("{way:?}, killed at {deaths:?}: {problem}; {notes:?}");
    problems.into_iter().map(place).collect()
}

/// What the notes tell.
#[derive(Default)]
struct Seen<'r> {
    kept: Vec<&'r str>,
    ended: Vec<&'r str>,
    /// The keys of all calls of a tool.
    started: BTreeMap<&'r str, Vec<&'r str>>,
    said: Option<&'r str>,
    /// What was done again although it was kept.
    repeated: Vec<String>,
}

impl<'r> Seen<'r> {
    fn of(run: &'r Lived) -> Self {
        let mut seen = Self::default();
        for note in &run.notes {
            match note {
                Note::Asked { turn: what } => seen.begins(what),
                Note::Started { tool, key } => {
                    seen.begins(tool);
                    seen.started.entry(tool).or_default().push(key);
                }
                Note::Said { text } => seen.said = Some(text),
                Note::Ended { tool } => seen.ended.push(tool),
                Note::Kept { what } => seen.kept.push(what),
                Note::Answered { .. } | Note::Passed { .. } | Note::Dies { .. } => {}
            }
        }
        seen
    }

    fn begins(&mut self, what: &str) {
        if self.kept.contains(&what) {
            let problem = format!("{what} was kept, and asked for again");
            self.repeated.push(problem);
        }
    }
}

/// There is one answer, which is what the model said last, and nothing went wrong.
fn in_store(run: &Lived, seen: &Seen<'_>) -> Vec<String> {
    wait_for(async {
        let store = open(&run.folder, 0).await;
        let mut problems = Vec::new();
        let answers = store.recent(AgentExecutor::RESPONSE, 10).await.unwrap();
        let answered = answers.iter().map(|answer| {
            let of = answer.tag("request:");
            (
                of,
                answer.context.text("status"),
                answer.context.text("message"),
            )
        });
        let answered: Vec<_> = answered.collect();
        if answered != [(Some("q-1"), Some("success"), seen.said)] {
            problems.push(format!("the answers are {answered:?}"));
        }
        let letters = store.recent(DeadLetter::SCHEMA, 10).await.unwrap();
        if !letters.is_empty() {
            problems.push(format!("dead letters: {letters:?}"));
        }
        let runs = store.runs(&RunFilter::all()).await.unwrap();
        if !runs.iter().all(|run| run.state.is_over()) {
            problems.push(format!("something goes on: {runs:?}"));
        }
        store.close().await;
        problems
    })
}

/// The model was asked no more often than it was interrupted, no tool was called that must not be, and what is said of
/// each call is true.
fn calls(run: &Lived, seen: &Seen<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    let asked = run.asked();
    if !(TURNS..=TURNS + run.kills).contains(&asked) {
        problems.push(format!("the model was asked {asked} times"));
    }
    let said: Vec<_> = seen.said.unwrap_or_default().split(", ").collect();
    if said.len() != TOOLS.len() {
        problems.push(format!("the model was told {said:?}"));
    }
    for (tool, said) in TOOLS.into_iter().zip(said) {
        let keys = seen.started.get(tool).map_or(&[][..], Vec::as_slice);
        let most = if tool == AGAIN { 1 + run.kills } else { 1 };
        if keys.len() > most || keys.iter().any(|key| keys.first() != Some(key)) {
            problems.push(format!("{tool} was called with {keys:?}"));
        }
        let has_ended = seen.ended.contains(&tool);
        let is_kept = seen.kept.contains(&tool);
        let may_be_unknown = tool != AGAIN && !is_kept && run.kills > 0;
        let is_true = match said.strip_prefix(tool).map(str::trim_start) {
            Some(DONE) => has_ended,
            Some(UNKNOWN) => may_be_unknown,
            Some(_) | None => false,
        };
        if !is_true {
            problems.push(format!("the model was told {said:?}"));
        }
    }
    problems
}
