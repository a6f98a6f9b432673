//! Final state of the store.

use crate::BoxError;
use crate::backend::{OTHERS, Store};
use crate::executors::{Answer, Role};
use crate::oracle::Trigger;
use crate::payer::Payer;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use universal_executor::agent::AgentExecutor;
use universal_executor::store::{DeadLetter, Query, RunFilter, RunState};
use universal_executor::{Breadcrumb, BreadcrumbStore, Selector};

/// A row of the ledger.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Row {
    /// Trigger of the run.
    pub trigger: Trigger,
    /// State of the run.
    #[serde(with = "state")]
    pub state: RunState,
    /// Number of attempts.
    pub attempts: u32,
    /// Reason for a failed or skipped run.
    pub reason: Option<String>,
    /// Cause of the last attempt that failed.
    pub cause: Option<String>,
    /// Ordering key.
    pub lane: Option<String>,
}

/// The data of the store that the check needs.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Snapshot {
    /// The rows of each executor, in the order in which they were added.
    pub rows: HashMap<String, Vec<Row>>,
    /// Answers of each executor.
    pub answers: HashMap<String, Vec<Answer>>,
    /// Second breadcrumbs of answers of two breadcrumbs.
    pub second: Vec<Answer>,
    /// Payment numbers in the successful responses of the payer.
    pub receipts: Vec<u64>,
    /// Executor ID and trigger of each dead letter.
    pub letters: Vec<(String, Trigger)>,
    /// Breadcrumbs of endless chains, each with its last version.
    pub loops: Vec<Trigger>,
    /// Number of triggers of the other tenant.
    pub canaries: usize,
    /// Number of runs and answers of the other tenant, which must be zero.
    pub strays: usize,
}

impl Snapshot {
    /// Reads the snapshot from the store.
    pub async fn read(store: &Store) -> Result<Self, BoxError> {
        let mut snapshot = Self::default();
        snapshot
            .read_others(&store.in_tenant(OTHERS).handle())
            .await?;
        let store = &store.handle();
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
                cause: run.cause,
                lane: run.run.order.as_deref().map(str::to_owned),
            });
            snapshot.rows.insert(role.id().to_owned(), rows.collect());
            if let Some(schema) = role.answers() {
                let answers = parsed(&all(store, schema).await?)?;
                snapshot.answers.insert(role.id().to_owned(), answers);
            }
        }
        snapshot.second = parsed(&all(store, "second.v1").await?)?;
        let receipts = all(store, AgentExecutor::RESPONSE).await?;
        let receipts = receipts.iter().filter_map(|found| Payer::receipt(found));
        snapshot.receipts = receipts.collect();
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

    async fn read_others<S: BreadcrumbStore>(&mut self, store: &S) -> Result<(), BoxError> {
        let ledger = store.ledger().ok_or("the store has no ledger")?;
        self.strays = ledger.runs(&RunFilter::all()).await?.len();
        for schema in Role::ALL.into_iter().filter_map(Role::answers) {
            self.strays += all(store, schema).await?.len();
        }
        self.canaries = all(store, "job.v1").await?.len();
        Ok(())
    }

    const FILE: &'static str = "snapshot.json";

    /// Saves the snapshot in the campaign folder, because the servers are stopped later.
    pub fn write(&self, folder: &Path) -> Result<(), BoxError> {
        let text = serde_json::to_vec(self)?;
        Ok(std::fs::write(folder.join(Self::FILE), text)?)
    }

    /// Reads the saved snapshot of a campaign.
    pub fn load(folder: &Path) -> Result<Self, BoxError> {
        let text = std::fs::read(folder.join(Self::FILE))?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Serialisation of run states by name.
mod state {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
    use universal_executor::store::RunState;

    const STATES: [(&str, RunState); 7] = [
        ("ready", RunState::Ready),
        ("running", RunState::Running),
        ("suspended", RunState::Suspended),
        ("done", RunState::Done),
        ("failed", RunState::Failed),
        ("skipped", RunState::Skipped),
        ("superseded", RunState::Superseded),
    ];

    pub fn name(state: RunState) -> &'static str {
        let found = STATES.into_iter().find(|(_, other)| *other == state);
        found.map_or("unknown", |(name, _)| name)
    }

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that serde requires"
    )]
    pub fn serialize<S: Serializer>(state: &RunState, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(name(*state))
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<RunState, D::Error> {
        let text = String::deserialize(from)?;
        let found = STATES.into_iter().find(|(name, _)| *name == text);
        let (_, state) = found.ok_or_else(|| D::Error::custom("unknown run state"))?;
        Ok(state)
    }
}
pub use state::name as name_of;

fn parsed(found: &[Arc<Breadcrumb>]) -> Result<Vec<Answer>, BoxError> {
    let answers = found.iter().map(|found| found.context.parse());
    Ok(answers.collect::<Result<_, _>>()?)
}

/// Reads every breadcrumb of a schema, page by page.
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
