//! Conditions that killed sessions must satisfy.

use crate::flow::lives::{Lived, open, wait_for};
use crate::flow::notes::Note;
use crate::workload::shown::{Shown, written};
use crate::workload::worker::{SESSIONS, TURNS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use universal_executor::agent::ChatMessage;
use universal_executor::store::{DeadLetter, RunFilter};
use universal_executor::workflow::StepPath;
use universal_executor::workload::{Conversation, LogEntry, SessionStore, WorkloadExecutor};
use universal_executor::{BreadcrumbStoreExt as _, RunLedger as _};

/// The data of a run: the requests to its model, and the messages of its sessions, turn by turn.
#[derive(Debug)]
pub(crate) struct Remembered {
    shown: BTreeMap<(String, usize), Vec<Vec<String>>>,
    logs: BTreeMap<String, Vec<Vec<String>>>,
}

impl Remembered {
    pub(crate) fn of(run: &Lived) -> Self {
        let logs = wait_for(async {
            let sessions = SessionStore::new(Arc::new(open(&run.folder, 0).await));
            let mut logs = BTreeMap::new();
            for name in SESSIONS {
                let session = sessions.session(name);
                let parts = ["main/0", "main/2"].map(|path| session.child(&StepPath::new(path)));
                for (part, session) in [session].into_iter().chain(parts).enumerate() {
                    logs.insert(format!("{name} {part}"), turns(&session).await);
                }
            }
            logs
        });
        Self {
            shown: Shown::read(&run.folder),
            logs,
        }
    }
}

/// Returns each conversation of an undisturbed run that has an unexpected number of messages.
pub(crate) fn unlike_what_was_said(whole: &Remembered) -> Vec<String> {
    // An agent's turn has five messages: the user's, one with two calls, two results, and the answer. A flow's turn has two.
    let agent = vec![5; TURNS.len()];
    let expected = [
        ("flow 0", vec![2; TURNS.len()]),
        ("flow 1", agent.clone()),
        ("flow 2", agent.clone()),
        ("talk 0", agent),
        ("talk 1", Vec::new()),
        ("talk 2", Vec::new()),
    ];
    let sizes = expected.iter().filter_map(|(name, expected)| {
        let found: Vec<_> = whole.logs[*name].iter().map(Vec::len).collect();
        (found != *expected).then(|| format!("{name} has {found:?} messages"))
    });
    let grows = TURNS.iter().enumerate().filter_map(|(turn, name)| {
        // The system prompt, the task, and all earlier turns.
        let shown = whole.shown[&(format!("talk-{name}"), 0)][0].len();
        (shown != 2 + 5 * turn).then(|| format!("the request for {name} has {shown} messages"))
    });
    sizes.chain(grows).collect()
}

/// Returns the messages of each turn of a session.
async fn turns(session: &Conversation) -> Vec<Vec<String>> {
    let log = session.load().await.unwrap();
    // The model receives the whole log, because no compaction took place.
    let all: Vec<&ChatMessage> = log
        .entries()
        .flat_map(|entry| match entry {
            LogEntry::Said { messages } => messages.as_slice(),
            _ => &[],
        })
        .collect();
    assert_eq!(log.messages().iter().collect::<Vec<_>>(), all);
    log.entries()
        .map(|entry| match entry {
            LogEntry::Said { messages } => written(messages),
            other => vec![format!("{other:?}")],
        })
        .collect()
}

/// Returns all violated conditions of a run.
pub(crate) fn problems(run: &Lived, expected: &Remembered) -> Vec<String> {
    let mut problems = calls(run);
    problems.extend(in_store(run));
    let found = Remembered::of(run);
    for (name, turns) in &expected.logs {
        let found = &found.logs[name];
        if found != turns {
            problems.push(format!(
                "the log of {name} has {found:?} instead of {turns:?}"
            ));
        }
    }
    for (asked, shown) in &found.shown {
        let before = &expected.shown[asked][0];
        for shown in shown.iter().filter(|shown| *shown != before) {
            problems.push(format!(
                "{asked:?}: the model received {shown:?} instead of {before:?}"
            ));
        }
    }
    if !found.shown.keys().eq(expected.shown.keys()) {
        problems.push(format!(
            "the model received the questions {:?}",
            found.shown.keys()
        ));
    }
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
    for (step, keys) in &keys {
        let is_one = keys.iter().all(|key| Some(key) == keys.first());
        let most = if step.ends_with("most") {
            1
        } else {
            1 + run.kills
        };
        if keys.len() > most || !is_one {
            problems.push(format!("{step} was called with the keys {keys:?}"));
        }
        if !ended.contains(step) && !step.ends_with("most") {
            problems.push(format!("{step} did not end"));
        }
    }
    // Each agent turn calls two tools. Each flow turn calls two tools per agent step, and one tool in between.
    let most = keys.keys().filter(|step| step.ends_with("most")).count();
    if keys.len() - most != 4 * TURNS.len() || (run.kills == 0 && most != 3 * TURNS.len()) {
        problems.push(format!("the called steps are {:?}", keys.keys()));
    }
    problems
}

fn in_store(run: &Lived) -> Vec<String> {
    wait_for(async {
        let store = open(&run.folder, 0).await;
        let mut problems = Vec::new();
        let results = store.recent(WorkloadExecutor::RESULT, 100).await.unwrap();
        let outputs: BTreeSet<_> = results
            .iter()
            .filter_map(|result| result.context.text("output"))
            .collect();
        let expected: BTreeSet<_> = TURNS
            .iter()
            .flat_map(|turn| [format!("talk-{turn} done"), format!("flow-{turn} was done")])
            .collect();
        if !outputs.iter().copied().eq(expected.iter()) || results.len() != expected.len() {
            problems.push(format!("the results are {outputs:?}"));
        }
        let letters = store.recent(DeadLetter::SCHEMA, 10).await.unwrap();
        if !letters.is_empty() {
            problems.push(format!("there are dead letters: {letters:?}"));
        }
        let runs = store.runs(&RunFilter::all()).await.unwrap();
        if !runs.iter().all(|run| run.state.is_over()) {
            problems.push(format!("runs are still open: {runs:?}"));
        }
        store.close().await;
        problems
    })
}
