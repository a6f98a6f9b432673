//! Conditions that a killed run must satisfy.

use crate::agent::ToolMode;
use crate::agent::lives::{Lived, open, wait_for};
use crate::agent::note::Note;
use crate::agent::worker::{AGAIN, DONE, SERVED, TOOLS, UNKNOWN};
use std::collections::BTreeMap;
use universal_executor::agent::AgentExecutor;
use universal_executor::store::{DeadLetter, RunFilter};
use universal_executor::{BreadcrumbStoreExt as _, RunLedger as _, SqliteStore};

/// Number of model answers in an undisturbed run.
const TURNS: usize = 2;

/// Returns all violated conditions of a run.
pub(crate) fn problems(run: &Lived, tool_mode: ToolMode) -> Vec<String> {
    let seen = Seen::of(run, tool_mode);
    let mut problems = seen.problems.clone();
    problems.extend(in_store(run, tool_mode, &seen));
    problems.extend(calls(run, &seen));
    let is_told = |note: &&Note| !matches!(note, Note::Passed { .. });
    let notes: Vec<_> = run.notes.iter().filter(is_told).collect();
    let deaths = &run.deaths;
    let place = |problem| format!("{tool_mode:?}, killed at {deaths:?}: {problem}; {notes:?}");
    problems.into_iter().map(place).collect()
}

/// The content of a run's notes.
#[derive(Default)]
struct Seen<'r> {
    kept: Vec<&'r str>,
    ended: Vec<&'r str>,
    /// The idempotency keys of all calls of each tool.
    started: BTreeMap<&'r str, Vec<&'r str>>,
    said: Option<&'r str>,
    /// Turns and tools that ended in this life and are not yet known to be saved.
    unkept: Vec<&'r str>,
    /// Turns and tools that were repeated although they were saved, or that started before their basis was saved.
    problems: Vec<String>,
}

impl<'r> Seen<'r> {
    fn of(run: &'r Lived, tool_mode: ToolMode) -> Self {
        let mut seen = Self::default();
        for note in &run.notes {
            match note {
                Note::Asked { turn } => seen.begins(turn),
                Note::Answered { turn } => seen.unkept.push(turn),
                Note::Started { tool, key } => {
                    seen.begins(tool);
                    seen.started.entry(tool).or_default().push(key);
                }
                Note::Said { text } => seen.said = Some(text),
                Note::Ended { tool } => {
                    seen.ended.push(tool);
                    seen.unkept.push(tool);
                }
                Note::Kept { what } => {
                    seen.kept.push(what);
                    seen.unkept.retain(|unkept| unkept != what);
                }
                // After a kill, the notes do not show whether the store received the last call.
                Note::Dies { .. } => seen.unkept.clear(),
                Note::Passed { .. } => {}
            }
            // A commit can wake another run that continues before the committing worker knows that its data is saved.
            if tool_mode == ToolMode::Breadcrumbs {
                seen.unkept.clear();
            }
        }
        seen
    }

    fn begins(&mut self, what: &str) {
        if self.kept.contains(&what) {
            let problem = format!("{what} was repeated after it was saved");
            self.problems.push(problem);
        }
        // Tools run in parallel, but only after the turn that calls them is saved. A turn starts after all results are saved.
        let is_turn = |what: &str| what.starts_with("turn");
        let rests_on = |unkept: &&str| is_turn(what) || is_turn(unkept);
        if let Some(unkept) = self.unkept.iter().copied().find(rests_on) {
            let problem = format!("{what} started before {unkept} was saved");
            self.problems.push(problem);
        }
    }
}

/// Checks the store: one answer with the last text of the model, only expected dead letters, and no open run.
fn in_store(run: &Lived, tool_mode: ToolMode, seen: &Seen<'_>) -> Vec<String> {
    let said = seen.said.unwrap_or_default();
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
        if answered != [(Some("q-1"), Some("success"), Some(said))] {
            problems.push(format!("the answers are {answered:?}"));
        }
        let letters = store.recent(DeadLetter::SCHEMA, 10).await.unwrap();
        let letters = letters.iter().map(|letter| letter.context.text("executor"));
        let letters: Vec<_> = letters.collect();
        // A request with an unknown outcome is a failed run. A call within the agent's run has no separate run.
        let expected = match tool_mode {
            ToolMode::InProcess | ToolMode::Approval => 0,
            ToolMode::Breadcrumbs => said.matches(UNKNOWN).count(),
        };
        if letters != vec![Some(SERVED); expected] {
            problems.push(format!("there are dead letters of {letters:?}"));
        }
        problems.extend(asked_of_others(&store, tool_mode).await);
        let runs = store.runs(&RunFilter::all()).await.unwrap();
        if !runs.iter().all(|run| run.state.is_over()) {
            problems.push(format!("runs are still open: {runs:?}"));
        }
        store.close().await;
        problems
    })
}

/// Checks that each request to others exists once and has one answer.
async fn asked_of_others(store: &SqliteStore, tool_mode: ToolMode) -> Vec<String> {
    let (calls, questions) = match tool_mode {
        ToolMode::InProcess => (0, 0),
        ToolMode::Breadcrumbs => (TOOLS.len(), 0),
        ToolMode::Approval => (0, 1),
    };
    let mut problems = Vec::new();
    for (schema, expected) in [
        ("tool.request.v1", calls),
        ("tool.response.v1", calls),
        ("human.request.v1", questions),
        ("human.response.v1", questions),
    ] {
        let found = store.recent(schema, 10).await.unwrap().len();
        if found != expected {
            problems.push(format!("there are {found} breadcrumbs of {schema}"));
        }
    }
    problems
}

/// Checks the calls: each kill repeats at most one model request, no tool call is repeated without permission, and the text about each
/// call is true.
fn calls(run: &Lived, seen: &Seen<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    let asked = run.asked();
    if !(TURNS..=TURNS + run.kills).contains(&asked) {
        problems.push(format!("the model received {asked} requests"));
    }
    let said: Vec<_> = seen.said.unwrap_or_default().split(", ").collect();
    if said.len() != TOOLS.len() {
        problems.push(format!("the answer has wrong words about a call: {said:?}"));
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
            problems.push(format!("the answer has wrong words about a call: {said:?}"));
        }
    }
    problems
}
