//! Saved state of a flow run: the progress of the flow, and the execution state of the steps in flight.

use super::event::StepEventKind;
use super::model_tap::Listener;
use super::step_breadcrumbs::{EndedBreadcrumbs, StepBreadcrumbs};
use super::waiting::Wait;
use crate::agent::compaction::Compactor;
use crate::executor::{ContextError, StateStorage};
use crate::model::{BreadcrumbId, Json, Timestamp, size_within};
use crate::workflow::expression::DEPTH;
use crate::workflow::{Progress, StepPath};
use async_trait::async_trait;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Saved state of a flow run, as it is read when the run continues.
#[derive(Debug, Deserialize)]
pub(super) struct SavedCheckpoint {
    pub(super) progress: Progress,
    pub(super) steps: BTreeMap<StepPath, StepCheckpoint>,
    pub(super) looked: PollProgress,
    #[serde(default)]
    pub(super) lines: EndedBreadcrumbs,
}

/// Saved state of a flow run, as it is written when the run is saved.
#[derive(Debug, Serialize)]
pub(super) struct RunCheckpoint<'s> {
    pub(super) progress: &'s Progress,
    pub(super) steps: &'s BTreeMap<StepPath, StepCheckpoint>,
    pub(super) looked: &'s PollProgress,
    pub(super) lines: &'s EndedBreadcrumbs,
}

/// Progress of a flow run's polls for answers and control orders (cancel, pause and resume), from which the next poll continues.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct PollProgress {
    /// Time up to which answers and control orders have been read.
    pub(super) since: Timestamp,
    /// Sort key of the last processed control order (cancel, pause or resume) to the run, or `None` before the first order.
    pub(super) control: Option<(Timestamp, u64, BreadcrumbId)>,
    /// Breadcrumb versions that later polls skip, because an earlier poll rejected them as answers to the run's steps.
    #[serde(skip)]
    pub(super) refused: HashSet<(BreadcrumbId, u64)>,
}

/// Execution state of a step in flight, which is saved with the state of the flow run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct StepCheckpoint {
    pub(super) attempt: u32,
    /// Time before which the step does not begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) due: Option<Timestamp>,
    /// Time at which the timeout of the step ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// If `true`, this attempt at the step has begun and may have had effects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) begun: bool,
    /// Digest of the tool call that a person approved for the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) approved: Option<String>,
    /// Changed input for the step's tool call, written by the approver. Replaces the input of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) changed: Option<Json>,
    /// Number of approvals of the step's tool call in this attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) approvals: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wait: Option<Wait>,
    #[serde(default, skip_serializing_if = "Agents::is_empty")]
    pub(super) agents: Agents,
    #[serde(default, skip_serializing_if = "StepBreadcrumbs::is_empty")]
    pub(super) marks: StepBreadcrumbs,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Agents that work on a step of a flow, by a key that identifies the agent within the step. The key is empty for the agent of
/// the step, and is the request ID for an agent that another agent called. Shared between the driver, which saves them, and the
/// running step.
#[derive(Clone, Debug, Default)]
pub(super) struct Agents(Arc<Mutex<BTreeMap<String, AgentState>>>);

/// State of an agent that works on a step.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct AgentState {
    pub(super) agent: String,
    pub(super) input: Json,
    /// Saved state of the agent, or `None` before its first save.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<Json>,
    /// Key of the agent that called this agent, or `None` for the agent of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked_by: Option<String>,
    /// Context of the agent's response, until the calling agent has received it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<Json>,
}

impl StepCheckpoint {
    /// Returns the total size in bytes of the inputs, saved states and responses of the step's agents. The saved state of the
    /// step has at least this size.
    pub(super) fn min_size(&self) -> usize {
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

    /// Returns the execution state with which the next attempt at a step starts: only the attempt number and the agents
    /// remain. The step's agents retain their conversations and the results of their calls, so that no call is repeated.
    pub(super) fn for_another_attempt(self) -> Self {
        Self {
            attempt: self.attempt,
            agents: self.agents,
            ..Self::default()
        }
    }
}

impl Agents {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, AgentState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn get(&self, key: &str) -> Option<AgentState> {
        self.all().get(key).cloned()
    }

    /// Adds an agent that works on the step, unless an agent with this key exists.
    pub(super) fn add(&self, key: impl Into<String>, agent: AgentState) {
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

    /// Stores the answer of an agent until the calling agent has received it. An answer that cannot be a value of a flow, for example
    /// because it nests too deep, is replaced by an error, because answers are part of the saved state.
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

    /// Returns the keys of the agents that an agent has called.
    pub(super) fn called_by(&self, key: &str) -> Vec<String> {
        let all = self.all();
        let called = all
            .iter()
            .filter(|(_, agent)| agent.asked_by.as_deref() == Some(key));
        called.map(|(key, _)| key.clone()).collect()
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

/// Handle with which a running step requests that the state of its flow run is saved.
#[derive(Clone, Debug)]
pub(super) struct Saver(pub(super) mpsc::Sender<oneshot::Sender<()>>);

impl Saver {
    /// Waits until all changes of the flow run's state that were made before the call are saved.
    pub(super) async fn save(&self) -> Result<(), ContextError> {
        let over = || ContextError::Unsupported {
            operation: "save",
            reason: "the run has ended",
        };
        let (sender, saved) = oneshot::channel();
        self.0.send(sender).await.map_err(|_| over())?;
        saved.await.map_err(|_| over())
    }
}

/// Saves the state of an agent that works on a step, as part of the run's state.
#[derive(Debug)]
pub(super) struct AgentStateSaver {
    pub(super) agents: Agents,
    pub(super) key: String,
    pub(super) saver: Saver,
    /// Compactor of the agent's conversation, and the listener to which a compaction is reported once it is saved.
    pub(super) compaction: Option<(Arc<Compactor>, Listener)>,
}

#[async_trait]
impl StateStorage for AgentStateSaver {
    async fn save_state(&self, state: Json) -> Result<(), ContextError> {
        self.agents.set_state(&self.key, state);
        self.saver.save().await?;
        if let Some((compactor, listener)) = &self.compaction
            && let Some(shortened) = compactor.take_unreported()
        {
            listener.report(StepEventKind::Compacted {
                left_out: shortened.omitted,
                summed_up: shortened.is_summarised,
            });
        }
        Ok(())
    }
}

/// Error of a flow run whose state cannot be saved or read.
///
/// It is the source of an error of [`Assembly::drive`](crate::workflow::Assembly::drive). A retry
/// fails again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowStateError {
    /// The state of the flow run is larger than the maximum size of a saved state. The run's variables and the conversations of its agents
    /// count.
    #[error(
        "cannot save the state of the flow run, which has {size} bytes where at most {limit} are allowed; store less in variables"
    )]
    TooLarge {
        /// Size of the run's state in bytes.
        size: usize,
        /// Maximum size of a saved state in bytes.
        limit: usize,
    },
    /// The saved state of the flow run cannot be read, for example because another version of the crate wrote it.
    #[error(
        "cannot read the saved state of the flow run, which another version of the crate may have written; see the cause"
    )]
    Unreadable(#[source] serde_json::Error),
}
