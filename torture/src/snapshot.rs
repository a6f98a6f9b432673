//! What the store says in the end.

use crate::BoxError;
use crate::executors::{Answer, Role};
use crate::oracle::Trigger;
use std::collections::HashMap;
use std::sync::Arc;
use universal_executor::store::{DeadLetter, Query, RunFilter, RunState};
use universal_executor::{Breadcrumb, BreadcrumbStore, Selector};

/// A row of the ledger.
#[derive(Clone, Debug)]
pub struct Row {
    /// What triggered it.
    pub trigger: Trigger,
    /// How it ended, if it did.
    pub state: RunState,
    /// How many attempts were made.
    pub attempts: u32,
    /// Why it failed or was skipped.
    pub reason: Option<String>,
    /// Its lane.
    pub lane: Option<Arc<str>>,
}

/// All that counts.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The rows of each executor, in the order in which they were added.
    pub rows: HashMap<&'static str, Vec<Row>>,
    /// What each executor created as answers.
    pub answers: HashMap<&'static str, Vec<Answer>>,
    /// The second halves of answers of two.
    pub second: Vec<Answer>,
    /// Executor and trigger of each dead letter.
    pub letters: Vec<(String, Trigger)>,
    /// The versions that the breadcrumbs of loops have come to.
    pub loops: Vec<Trigger>,
}

impl Snapshot {
    /// Reads all of it.
    pub async fn read<S: BreadcrumbStore>(store: &S) -> Result<Self, BoxError> {
        let mut snapshot = Self::default();
        let ledger = store.ledger().ok_or("the store has no ledger")?;
        for role in Role::ALL {
            let runs = ledger.runs(&RunFilter::all().executor(role.id())).await?;
            let rows = runs.into_iter().map(|run| Row {
                trigger: Trigger {
                    id: run.run.trigger_id,
                    version: run.run.trigger_version,
                },
                state: run.state,
                attempts: run.attempts,
                reason: run.reason,
                lane: run.run.order,
            });
            snapshot.rows.insert(role.id(), rows.collect());
            if let Some(schema) = role.answers() {
                let answers = parsed(&all(store, schema).await?)?;
                snapshot.answers.insert(role.id(), answers);
            }
        }
        snapshot.second = parsed(&all(store, "second.v1").await?)?;
        for letter in all(store, DeadLetter::SCHEMA).await? {
            let run = DeadLetter::run_of(&letter).ok_or("a dead letter names no run")?;
            let trigger = Trigger {
                id: run.trigger_id,
                version: run.trigger_version,
            };
            snapshot.letters.push((run.executor.to_string(), trigger));
        }
        let loops = all(store, "loop.v1").await?;
        let loops = loops.iter().map(|found| Trigger {
            id: found.id,
            version: found.version,
        });
        snapshot.loops = loops.collect();
        Ok(snapshot)
    }
}

fn parsed(found: &[Arc<Breadcrumb>]) -> Result<Vec<Answer>, BoxError> {
    let answers = found.iter().map(|found| found.context.parse());
    Ok(answers.collect::<Result<_, _>>()?)
}

/// Every breadcrumb of a schema, page by page.
async fn all<S: BreadcrumbStore>(
    store: &S,
    schema: &str,
) -> Result<Vec<Arc<Breadcrumb>>, BoxError> {
    const PAGE: usize = 1_000;
    let mut found = Vec::new();
    let mut query = Query::new(Selector::schema(schema)).limit(PAGE);
    loop {
        let page = store.search(&query).await?;
        let is_last = page.len() < PAGE;
        if let Some(last) = page.last() {
            query = query.before((last.updated_at, last.version, last.id));
        }
        found.extend(page);
        if is_last {
            return Ok(found);
        }
    }
}
