use super::error::WorkflowLoadError;
use super::fields::Fields;
use super::shape;
use crate::model::DefinitionPath;
use crate::services::WorkflowLimits;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// What holds for all of a workflow: its `policies`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Policies {
    /// For steps that run an agent, a tool or a model and say nothing else; by default they are tried once.
    pub retry: StepRetry,
    /// How long such a step may take: `timeout_seconds`. What the driver says if absent.
    pub timeout: Option<Duration>,
    /// How a conversation that became too long is made shorter.
    pub compaction: Option<Compaction>,
    /// Guardrails by the names under which the service has registered them.
    pub guardrails: GuardrailNames,
    /// What one run may use up at the most.
    pub limits: WorkflowLimits,
}

/// How often a step is tried, and how long is waited in between.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepRetry {
    /// How often at the most: `attempts`, 1 to 100; 1 by default.
    pub attempts: u32,
    /// How long before the second attempt: `base_seconds`. It doubles with each further one. 1 s by default.
    pub base: Duration,
    /// How long at the most: `cap_seconds`; 60 s by default.
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

impl StepRetry {
    pub(super) fn read(value: &Value, place: &DefinitionPath) -> Result<Self, WorkflowLoadError> {
        let default = Self::default();
        // A bare number is how often.
        if value.is_number() {
            let attempts = value.as_u64().filter(|number| (1..=100).contains(number));
            let attempts = attempts.and_then(|number| u32::try_from(number).ok());
            return match attempts {
                Some(attempts) => Ok(Self {
                    attempts,
                    ..default
                }),
                None => {
                    let expected = "a whole number from 1 to 100, or an object with it as attempts";
                    Err(WorkflowLoadError::shape(place.clone(), expected, value))
                }
            };
        }
        if !value.is_object() {
            let expected = "a number of attempts, or an object with it as attempts";
            return Err(WorkflowLoadError::shape(place.clone(), expected, value));
        }
        let fields = Fields::of(value, place, &shape::RETRY)?;
        let attempts = fields.whole("attempts", 1..=100)?;
        let attempts = attempts.ok_or_else(|| fields.missing("attempts", "how often to try"))?;
        Ok(Self {
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            base: fields.seconds("base_seconds")?.unwrap_or(default.base),
            cap: fields.seconds("cap_seconds")?.unwrap_or(default.cap),
        })
    }

    /// How long to wait after so many attempts, before jitter.
    pub(super) fn delay(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }
}

/// How a conversation that became too long is made shorter: `compaction`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Compaction {
    /// By leaving out what is oldest, or by a summary of it: `method`.
    pub method: CompactionMethod,
    /// From how many tokens on, what has to stay included: `at_tokens`.
    pub at_tokens: u64,
    /// How many of the last messages stay as they are: `keep`; 10 by default.
    pub keep: u64,
    /// Which model writes the summary, by its name in `models`.
    pub model: Option<String>,
}

/// What becomes of old messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CompactionMethod {
    /// They are left out.
    Truncate,
    /// A model summarises them, as JSON lines with the role of each message. The summary is data, not words of the user.
    Summarise,
}

/// Guardrails by name, for each place where they stand: `guardrails`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct GuardrailNames {
    /// Before a model is asked.
    pub input: Vec<String>,
    /// Before an answer is used.
    pub output: Vec<String>,
    /// Before a tool is called.
    pub tool_call: Vec<String>,
    /// Before a model sees what a tool said.
    pub tool_result: Vec<String>,
}

impl Policies {
    pub(super) fn read(value: &Value, place: &DefinitionPath) -> Result<Self, WorkflowLoadError> {
        let fields = Fields::of(value, place, &shape::POLICIES)?;
        let retry = fields.get("retry");
        let compaction = fields.get("compaction");
        let guardrails = fields.get("guardrails");
        let limits = fields.get("limits");
        Ok(Self {
            retry: retry
                .map(|(value, place)| StepRetry::read(value, &place))
                .transpose()?
                .unwrap_or_default(),
            timeout: fields.seconds("timeout_seconds")?,
            compaction: compaction
                .map(|(value, place)| read_compaction(value, &place))
                .transpose()?,
            guardrails: guardrails
                .map(|(value, place)| read_guardrails(value, &place))
                .transpose()?
                .unwrap_or_default(),
            limits: limits
                .map(|(value, place)| read_limits(value, &place))
                .transpose()?
                .unwrap_or_default(),
        })
    }
}

fn read_compaction(value: &Value, place: &DefinitionPath) -> Result<Compaction, WorkflowLoadError> {
    const METHODS: [(&str, CompactionMethod); 2] = [
        (shape::COMPACTION_METHODS[0], CompactionMethod::Truncate),
        (shape::COMPACTION_METHODS[1], CompactionMethod::Summarise),
    ];
    let fields = Fields::of(value, place, &shape::COMPACTION)?;
    let method = fields.word("method", &METHODS)?;
    let method = method.ok_or_else(|| fields.missing("method", "\"truncate\" or \"summarise\""))?;
    let at_tokens = fields.whole("at_tokens", 1..=u64::MAX)?;
    let at_tokens = at_tokens.ok_or_else(|| fields.missing("at_tokens", "a number of tokens"))?;
    match method {
        CompactionMethod::Summarise => {}
        CompactionMethod::Truncate => fields.refuse("model", "only a summary is written by one")?,
    }
    Ok(Compaction {
        method,
        at_tokens,
        keep: fields.whole("keep", 1..=10_000)?.unwrap_or(10),
        model: fields.text("model")?,
    })
}

fn read_guardrails(
    value: &Value,
    place: &DefinitionPath,
) -> Result<GuardrailNames, WorkflowLoadError> {
    let fields = Fields::of(value, place, &shape::GUARDRAILS)?;
    Ok(GuardrailNames {
        input: fields.texts("input")?,
        output: fields.texts("output")?,
        tool_call: fields.texts("tool_call")?,
        tool_result: fields.texts("tool_result")?,
    })
}

fn read_limits(value: &Value, place: &DefinitionPath) -> Result<WorkflowLimits, WorkflowLoadError> {
    let fields = Fields::of(value, place, &shape::LIMITS)?;
    let default = WorkflowLimits::default();
    let bytes = |field, range, default| {
        let bytes = fields.whole(field, range)?;
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        Ok::<_, WorkflowLoadError>(bytes.unwrap_or(default))
    };
    Ok(WorkflowLimits {
        steps: fields
            .whole("steps", 1..=1_000_000)?
            .unwrap_or(default.steps),
        items: fields.whole("items", 1..=10_000)?.unwrap_or(default.items),
        value_bytes: bytes("value_bytes", 1_024..=1 << 20, default.value_bytes)?,
        total_bytes: bytes("total_bytes", 1_024..=64 << 20, default.total_bytes)?,
    })
}
