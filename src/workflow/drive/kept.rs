//! What is saved of a run: where the flow is, and what its driver knows of the steps under way.

use super::event::StepEventKind;
use super::heard::Listener;
use super::marks::{Lines, Marks};
use super::waiting::Wait;
use crate::agent::compaction::Compactor;
use crate::executor::{ContextError, KeepState};
use crate::model::{BreadcrumbId, Json, Timestamp, size_within};
use crate::workflow::expression::DEPTH;
use crate::workflow::{Progress, StepPath};
use async_trait::async_trait;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// What is read of a run that goes on.
#[derive(Debug, Deserialize)]
pub(super) struct Saved {
    pub(super) progress: Progress,
    pub(super) steps: BTreeMap<StepPath, Kept>,
    pub(super) looked: Looked,
    #[serde(default)]
    pub(super) lines: Lines,
}

/// The same, to be written.
#[derive(Debug, Serialize)]
pub(super) struct Saving<'s> {
    pub(super) progress: &'s Progress,
    pub(super) steps: &'s BTreeMap<StepPath, Kept>,
    pub(super) looked: &'s Looked,
    pub(super) lines: &'s Lines,
}

/// How far was looked for what others wrote.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Looked {
    /// Whatever of it is older than this was seen.
    pub(super) since: Timestamp,
    /// The last order that was carried out.
    pub(super) control: Option<(Timestamp, u64, BreadcrumbId)>,
    /// Versions of breadcrumbs that look like answers and do not count.
    #[serde(skip)]
    pub(super) refused: HashSet<(BreadcrumbId, u64)>,
}

/// A step under way.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Kept {
    pub(super) attempt: u32,
    /// It does not begin before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) due: Option<Timestamp>,
    /// Its time is up then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// Whether this attempt may have done something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) begun: bool,
    /// The digest of the call that a person agreed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) approved: Option<String>,
    /// The input that a person put in the place of that of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) changed: Option<Json>,
    /// Number of approvals of the call in this attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) approvals: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wait: Option<Wait>,
    #[serde(default, skip_serializing_if = "Agents::is_empty")]
    pub(super) agents: Agents,
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub(super) marks: Marks,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The agents that work on a step: the one of the step, whose key is empty, and those asked by others, by the ids of the
/// requests. Shared by who saves and who works.
#[derive(Clone, Debug, Default)]
pub(super) struct Agents(Arc<Mutex<BTreeMap<String, AtWork>>>);

/// An agent that works on a step.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct AtWork {
    pub(super) agent: String,
    pub(super) input: Json,
    /// Where it is; none before it has come anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<Json>,
    /// The key of the agent that asked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked_by: Option<String>,
    /// The context of its response, until the one that asked has taken it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<Json>,
}

impl Kept {
    /// Returns a size that the saved form has at least: that of the values of its agents.
    pub(super) fn least_size(&self) -> usize {
        let agents = self.agents.all();
        let values = agents.values().flat_map(|agent| {
            let values = [
                Some(&agent.input),
                agent.state.as_ref(),
                agent.answer.as_ref(),
            ];
            values.into_iter().flatten().map(Json::size)
        });
        values.fold(0, usize::saturating_add)
    }

    /// What another attempt goes on with: agents with what they said, and what their calls came to, so that none is made
    /// again.
    pub(super) fn for_another_attempt(self) -> Self {
        Self {
            attempt: self.attempt,
            agents: self.agents,
            ..Self::default()
        }
    }
}

impl Agents {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, AtWork>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn get(&self, key: &str) -> Option<AtWork> {
        self.all().get(key).cloned()
    }

    /// Adds one, unless it is there.
    pub(super) fn add(&self, key: impl Into<String>, agent: AtWork) {
        self.all().entry(key.into()).or_insert(agent);
    }

    pub(super) fn remove(&self, key: &str) {
        self.all().remove(key);
    }

    pub(super) fn set_state(&self, key: &str, state: Json) {
        if let Some(agent) = self.all().get_mut(key) {
            agent.state = Some(state);
        }
    }

    /// Keeps what one came to, until who asked has taken it. It is held to what values are held to, since it is kept among
    /// them.
    pub(super) fn set_answer(&self, key: &str, answer: Json) {
        let answer = match size_within(&answer, DEPTH) {
            Ok(_) => answer,
            Err(unfit) => {
                let message = format!("the answer {unfit}");
                json!({"status": "error", "message": message}).into()
            }
        };
        if let Some(agent) = self.all().get_mut(key) {
            (agent.answer, agent.state) = (Some(answer), None);
        }
    }

    /// The keys of those that one has asked.
    pub(super) fn asked_by(&self, key: &str) -> Vec<String> {
        let all = self.all();
        let asked = all
            .iter()
            .filter(|(_, agent)| agent.asked_by.as_deref() == Some(key));
        asked.map(|(key, _)| key.clone()).collect()
    }
}

impl Serialize for Agents {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Agents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = BTreeMap::deserialize(deserializer)?;
        Ok(Self(Arc::new(Mutex::new(all))))
    }
}

/// Asks the driver to save the run, for what works on a step.
#[derive(Clone, Debug)]
pub(super) struct Saver(pub(super) mpsc::Sender<oneshot::Sender<()>>);

impl Saver {
    /// Resolves when all that was changed before is kept.
    pub(super) async fn save(&self) -> Result<(), ContextError> {
        let over = || ContextError::Unsupported {
            operation: "save",
            reason: "the run has ended",
        };
        let (told, saved) = oneshot::channel();
        self.0.send(told).await.map_err(|_| over())?;
        saved.await.map_err(|_| over())
    }
}

/// Keeps the state of an agent that works on a step.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) agents: Agents,
    pub(super) key: String,
    pub(super) saver: Saver,
    /// What makes its conversation shorter, and who hears of that once it is kept.
    pub(super) told: Option<(Arc<Compactor>, Listener)>,
}

#[async_trait]
impl KeepState for Keeper {
    async fn keep(&self, state: Json) -> Result<(), ContextError> {
        self.agents.set_state(&self.key, state);
        self.saver.save().await?;
        if let Some((compactor, by)) = &self.told
            && let Some(shortened) = compactor.take_untold()
        {
            by.tell(StepEventKind::Compacted {
                left_out: shortened.left_out,
                summed_up: shortened.summed_up,
            });
        }
        Ok(())
    }
}

/// The state of a run gone over what a store keeps, or read from what another version wrote.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowStateError {
    /// Its variables and its agents take more than a state may.
    #[error(
        "the state of the run takes {size} bytes where {limit} can be kept; keep less in variables"
    )]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The most that is kept.
        limit: usize,
    },
    /// It cannot be read.
    #[error("the saved state of the run cannot be read")]
    Unreadable(#[source] serde_json::Error),
}
