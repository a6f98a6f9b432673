//! What has to be true of a run that was killed.

use crate::agent::Way;
use crate::agent::lives::{Lived, open, wait_for};
use crate::agent::note::Note;
use crate::agent::worker::{AGAIN, DONE, SERVED, TOOLS, UNKNOWN};
use std::collections::BTreeMap;
use universal_executor::agent::AgentExecutor;
use universal_executor::store::{DeadLetter, RunFilter};
use universal_executor::{BreadcrumbStoreExt as _, RunLedger as _, SqliteStore};

/// How often the model answers.
const TURNS: usize = 2;

/// What is wrong with a run, if anything.
pub(crate) fn problems(run: &Lived, way: Way) -> Vec<String> {
    let seen = Seen::of(run, way);
    let mut problems = seen.problems.clone();
    problems.extend(in_store(run, way, &seen));
    problems.extend(calls(run, &seen));
    let is_told = |note: &&Note| !matches!(note, Note::Passed { .. });
    let notes: Vec<_> = run.notes.iter().filter(is_told).collect();
    let deaths = &run.deaths;
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
    /// What was answered or done in this life, and not kept so far.
    unkept: Vec<&'r str>,
    /// What was done again although it was kept, or done before what it rests on was.
    problems: Vec<String>,
}

impl<'r> Seen<'r> {
    fn of(run: &'r Lived, way: Way) -> Self {
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
                // Whether the store has what it was told last is not known outside of it.
                Note::Dies { .. } => seen.unkept.clear(),
                Note::Passed { .. } => {}
            }
            // Who is woken by what was committed may go on before the one who committed it hears that it is kept.
            if way == Way::Breadcrumbs {
                seen.unkept.clear();
            }
        }
        seen
    }

    fn begins(&mut self, what: &str) {
        if self.kept.contains(&what) {
            let problem = format!("{what} was kept, and asked for again");
            self.problems.push(problem);
        }
        // Tools go on side by side, but not before the turn that calls them is kept; a turn is told of all.
        let is_turn = |what: &str| what.starts_with("turn");
        let rests_on = |unkept: &&str| is_turn(what) || is_turn(unkept);
        if let Some(unkept) = self.unkept.iter().copied().find(rests_on) {
            let problem = format!("{what} was asked for before {unkept} was kept");
            self.problems.push(problem);
        }
    }
}

/// There is one answer, which is what the model said last, and nothing went wrong.
fn in_store(run: &Lived, way: Way, seen: &Seen<'_>) -> Vec<String> {
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
        // A request whose outcome is unknown is a run that failed. A call within a run is none of its own.
        let expected = match way {
            Way::InProcess | Way::Approval => 0,
            Way::Breadcrumbs => said.matches(UNKNOWN).count(),
        };
        if letters != vec![Some(SERVED); expected] {
            problems.push(format!("there are dead letters of {letters:?}"));
        }
        problems.extend(asked_of_others(&store, way).await);
        let runs = store.runs(&RunFilter::all()).await.unwrap();
        if !runs.iter().all(|run| run.state.is_over()) {
            problems.push(format!("something goes on: {runs:?}"));
        }
        store.close().await;
        problems
    })
}

/// Whatever is asked of others is asked once, and answered once.
async fn asked_of_others(store: &SqliteStore, way: Way) -> Vec<String> {
    let (calls, questions) = match way {
        Way::InProcess => (0, 0),
        Way::Breadcrumbs => (TOOLS.len(), 0),
        Way::Approval => (0, 1),
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
            problems.push(format!("there are {found} of {schema}"));
        }
    }
    problems
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
