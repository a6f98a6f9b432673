use super::error::WorkflowLoadError;
use super::syntax::{Retry, Written, positive, seconds, whole, word};
use crate::services::WorkflowLimits;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;

/// Settings that apply to a whole workflow: the section `policies`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub struct Policies {
    /// Retry policy of each agent, tool or model step that has no `retry`: the number of attempts, and the delays between them.
    /// Defaults to one attempt.
    #[serde(default, deserialize_with = "retry")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Retry>"))]
    pub retry: StepRetry,
    /// Timeout in seconds of each agent, tool or model step that has no `timeout_seconds`.
    #[serde(default, rename = "timeout_seconds", deserialize_with = "seconds")]
    #[cfg_attr(
        feature = "schema",
        schemars(schema_with = "super::syntax::seconds_schema")
    )]
    pub timeout: Option<Duration>,
    /// Settings for the compaction (shortening) of agents' conversations that became too long. Defaults to none.
    pub compaction: Option<Compaction>,
    /// Names of the registered guardrails that check requests, answers and tool calls of the workflow.
    #[serde(default)]
    pub guardrails: GuardrailNames,
    /// Limits of one run of a flow.
    #[serde(default, deserialize_with = "limits")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<LimitFields>"))]
    pub limits: WorkflowLimits,
}

impl Policies {
    pub(super) fn read(written: &Written<'_>) -> Result<Self, WorkflowLoadError> {
        written.read_with_parts(&[
            ("retry", |part| Retry::read(part).map(drop)),
            ("compaction", |part| part.check::<Compaction>()),
            ("guardrails", |part| part.check::<GuardrailNames>()),
            ("limits", |part| part.check::<LimitFields>()),
        ])
    }
}

/// Number of attempts at a step of a flow, and the delays between them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepRetry {
    /// Maximum number of attempts at a step, from 1 to 100, which the field `attempts` sets. Defaults to 1.
    pub attempts: u32,
    /// Delay before the second attempt at a step, which the field `base_seconds` sets. Each further delay is twice as long. Defaults to
    /// 1 s.
    pub base: Duration,
    /// Maximum delay between two attempts at a step, which the field `cap_seconds` sets. Defaults to 60 s.
    pub cap: Duration,
}

impl Default for StepRetry {
    fn default() -> Self {
        Self {
            attempts: 1,
            base: Duration::from_secs(1),
            cap: Duration::from_secs(60),
        }
    }
}

impl From<Retry> for StepRetry {
    fn from(retry: Retry) -> Self {
        let default = Self::default();
        match retry {
            Retry::Number(attempts) => Self {
                attempts,
                ..default
            },
            Retry::Attempts(retry) => Self {
                attempts: retry.attempts,
                base: retry.base_seconds.unwrap_or(default.base),
                cap: retry.cap_seconds.unwrap_or(default.cap),
            },
        }
    }
}

impl StepRetry {
    /// Returns the delay, without jitter, before the next attempt at a step that already had this number of attempts.
    pub(super) fn delay(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }
}

/// Settings for the compaction (shortening) of agents' conversations that became too long.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(extend("anyOf" = [
    {"properties": {"method": {"const": "summarise"}}},
    {"not": {"required": ["model"]}},
])))]
#[non_exhaustive]
pub struct Compaction {
    /// Method by which the old messages of a conversation are removed or summarised.
    #[serde(deserialize_with = "word")]
    pub method: CompactionMethod,
    /// Estimated number of tokens at which an agent's conversation is compacted. Messages that must stay count, too.
    #[serde(deserialize_with = "positive")]
    #[cfg_attr(
        feature = "schema",
        schemars(range(min = 1, max = 18_446_744_073_709_551_615_u64))
    )]
    pub at_tokens: u64,
    /// Number of the last messages of a conversation that stay unchanged. Defaults to 10.
    #[serde(
        default = "default_keep",
        deserialize_with = "whole::<1, 10_000, _, _>"
    )]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub keep: u64,
    /// Name of the model that writes summaries, from the section `models` of the workflow definition. Only for the method
    /// `summarise`.
    pub model: Option<String>,
}

/// Method by which compaction removes or summarises the old messages of a conversation.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub enum CompactionMethod {
    /// Removes the old messages of the conversation.
    Truncate,
    /// A model summarises the old messages of the conversation. The model receives the messages as JSON lines with their roles. The summary
    /// is data, not a user message.
    Summarise,
}

/// Names of the registered guardrails of a workflow, by the stage at which each guardrail checks.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub struct GuardrailNames {
    /// Names of the guardrails that check requests to models.
    #[serde(default, deserialize_with = "list")]
    pub input: Vec<String>,
    /// Names of the guardrails that check answers of models.
    #[serde(default)]
    pub output: Vec<String>,
    /// Names of the guardrails that check calls of tools.
    #[serde(default)]
    pub tool_call: Vec<String>,
    /// Names of the guardrails that check results of tools.
    #[serde(default)]
    pub tool_result: Vec<String>,
}

/// Reads the list of `input` guardrails of a workflow definition. Null counts as an empty list.
fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The fields of `policies.limits` in a workflow definition.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
struct LimitFields {
    /// Maximum number of steps that begin in one run of a flow. Defaults to 10,000.
    #[serde(default, deserialize_with = "whole::<1, 1_000_000, _, _>")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000)))]
    steps: Option<u64>,
    /// Maximum number of items of one `for_each` step. Defaults to 1,000.
    #[serde(default, deserialize_with = "whole::<1, 10_000, _, _>")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    items: Option<u64>,
    /// Maximum size of one value of a flow as JSON, in bytes. Defaults to 262,144.
    #[serde(default, deserialize_with = "whole::<1_024, 1_048_576, _, _>")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1_024, max = 1_048_576)))]
    value_bytes: Option<u64>,
    /// Maximum total size of all values of one flow run as JSON, in bytes. Defaults to 4,194,304.
    #[serde(default, deserialize_with = "whole::<1_024, 67_108_864, _, _>")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1_024, max = 67_108_864)))]
    total_bytes: Option<u64>,
}

fn limits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WorkflowLimits, D::Error> {
    let fields = LimitFields::deserialize(deserializer)?;
    let default = WorkflowLimits::default();
    let bytes = |bytes: Option<u64>| bytes.and_then(|bytes| usize::try_from(bytes).ok());
    Ok(WorkflowLimits {
        steps: fields.steps.unwrap_or(default.steps),
        items: fields.items.unwrap_or(default.items),
        value_bytes: bytes(fields.value_bytes).unwrap_or(default.value_bytes),
        total_bytes: bytes(fields.total_bytes).unwrap_or(default.total_bytes),
    })
}

fn retry<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StepRetry, D::Error> {
    Retry::deserialize(deserializer).map(StepRetry::from)
}

const fn default_keep() -> u64 {
    10
}
