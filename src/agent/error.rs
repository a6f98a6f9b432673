use crate::error::{BoxError, Retry};
use crate::executor::InvalidExecutor;
use crate::model::{DefinitionError, DefinitionPath, DefinitionProblem};
use crate::tool::ToolError;

/// Error returned when an agent cannot be created from a definition.
///
/// Returned by [`AgentDefinition::from_json`](super::AgentDefinition::from_json), the constructors
/// of [`AgentExecutor`](super::AgentExecutor) and [`Agent::bind`](super::Agent::bind). Each message
/// has the field or the name to correct.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A field of the agent definition is missing or of the wrong type.
    ///
    /// Correct the field. `null` counts as missing.
    #[error("field {field:?} of the agent definition must be {expected}")]
    Field {
        /// The name of the invalid field of the agent definition.
        field: &'static str,
        /// The type or value that the field of the agent definition must have.
        expected: &'static str,
    },
    /// A field of the agent definition is unknown. This is an error if the name resembles that of a restriction, if the field is in an
    /// object of restrictions, or in [strict](crate::model::DefinitionOptions::strict) mode.
    ///
    /// The message of the problem has the nearest known fields. Correct the name, or remove the
    /// field. Fields that start with `x-` or end with `_comment` are never unknown.
    #[error("{path} of the agent definition: {problem}")]
    UnknownField {
        /// The path of the unknown field in the `context` of the `agent.def.v1` breadcrumb.
        path: DefinitionPath,
        /// The description of the unknown field: its name, and the known fields with similar names.
        problem: String,
    },
    /// A part of the field `approval` of the agent definition cannot be read.
    ///
    /// Correct the value at the path. The problem has the expected form.
    #[error("{path} of the agent definition: {problem}")]
    BadApproval {
        /// The path of the unreadable part of the field `approval` in the `context` of the `agent.def.v1` breadcrumb.
        path: DefinitionPath,
        /// The reason why this part of the agent definition's field `approval` cannot be read.
        problem: Box<DefinitionProblem>,
    },
    /// The subscriptions of the agent definition are invalid.
    ///
    /// The source has the path and the problem. Correct the subscription.
    #[error("agent {agent:?} has invalid subscriptions in its definition; see the cause")]
    Subscriptions {
        /// The ID of the agent with the invalid subscriptions.
        agent: String,
        /// The problem in the subscriptions of the agent definition.
        source: DefinitionError,
    },
    /// A tool of an [`Agent`](super::Agent) cannot be registered.
    ///
    /// The name or a schema of the tool is invalid, or the agent already has a tool with this name.
    #[error("cannot add tool {tool:?} to the agent; see the cause")]
    BadTool {
        /// The name of the tool that cannot be registered.
        tool: String,
        /// The reason why the tool cannot be registered.
        source: Box<ToolError>,
    },
    /// An [`Agent`](super::Agent) refers to its model by name, but was bound to a store without [`Services`](crate::Services),
    /// which contain the registered models.
    #[error(
        "agent {agent:?} names the model {model:?}, but no services are set; set RuntimeBuilder::services, or bind the agent with \
         Agent::bind_with"
    )]
    NamedModel {
        /// The ID of the agent that refers to its model by name.
        agent: String,
        /// The name of the model that the agent needs.
        model: String,
    },
    /// The model to which an [`Agent`](super::Agent) refers by name is not registered in the services.
    ///
    /// Register the model with [`Services::model`](crate::Services::model), or correct the name.
    #[error(
        "cannot find the model of agent {agent:?} in the services; see the cause for the known names"
    )]
    Model {
        /// The ID of the agent whose model is not registered in the services.
        agent: String,
        /// The error [`NotRegistered`](crate::runtime::definitions::NotRegistered) with the unknown model name and the registered names.
        source: BoxError,
    },
    /// The agent definition names a tool that the agent cannot call: the tool is not registered, or `approval` or `return_to_user` names a
    /// tool that is missing in `tools`.
    ///
    /// Register the tool, or correct the name. [`AgentExecutor::new`](super::AgentExecutor::new)
    /// has no tools, so it refuses every definition with tools.
    #[error(
        "agent {agent:?} names tool {tool:?}, which is not registered or not listed in \"tools\"; registered: {known}"
    )]
    UnknownTool {
        /// The ID of the agent whose definition names the tool.
        agent: String,
        /// The name of the tool that is not registered or not listed.
        tool: String,
        /// The names of the registered tools, separated by commas, or `none`.
        known: String,
    },
    /// The agent definition lists the agent itself in `use`, `handoff` or `delegate`.
    #[error(
        "agent {agent:?} lists itself among the agents to call; remove it from \"use\", \"handoff\" and \"delegate\""
    )]
    CallsItself {
        /// The ID of the agent that lists itself.
        agent: String,
    },
    /// Two tools, agents or outputs that the agent may call have the same name.
    ///
    /// An agent in `use` has its ID as tool name, and an additional output its own name.
    #[error(
        "agent {agent:?} has two tools, agents or outputs with the name {name:?}; rename one of them"
    )]
    OfferedTwice {
        /// The ID of the agent with two tools, agents or outputs of one name.
        agent: String,
        /// The name that two tools, agents or outputs of the agent share.
        name: String,
    },
    /// The schema of the agent's answers or of an additional output is not a valid JSON Schema, has external references, or exceeds a
    /// limit.
    #[error("agent {agent:?} has an invalid output schema: {reason}")]
    BadOutputSchema {
        /// The ID of the agent with the invalid output schema.
        agent: String,
        /// The reason why the output schema is invalid.
        reason: String,
    },
    /// The agent ID is empty, too long or contains a control character.
    ///
    /// The ID has 1 to 256 bytes and no control characters.
    #[error("field \"agent_id\" of the agent definition is not a valid executor ID; see the cause")]
    BadId(#[source] InvalidExecutor),
    /// The agent's settings are invalid, or the store lacks a feature that the agent needs.
    ///
    /// Examples are a subscription with the wrong role, an agent without a trigger, and a store
    /// without a ledger for an agent that waits for answers. See [`InvalidExecutor`].
    #[error(
        "the agent's settings are invalid, or its store lacks a feature that the agent needs; see the cause"
    )]
    Invalid(#[from] InvalidExecutor),
}

impl AgentError {
    /// Returns [`Retry::Never`]: the agent definition, the tool registry or the store must change before the agent can be created.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::error::Retry;
    /// use universal_executor::{MemoryStore, Subscription};
    ///
    /// let agent = Agent::new("desk", ScriptedModel::new(["Hello!"]))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .uses("desk", "Calls itself."); // not permitted
    /// let error = agent.bind(&MemoryStore::default()).unwrap_err();
    /// assert_eq!(error.retry(), Retry::Never);
    /// ```
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Error that ends a run of an agent although its model and its tools work.
///
/// None of these errors is retried.
///
/// The run ends with a dead letter, and the requester receives an `agent.response.v1` with the
/// status `error`. Find the error by its [code](Self::code) in the dead letter.
///
/// # Examples
/// An agent that never answers reaches its maximum number of turns:
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{Agent, ChatResponse, ScriptedModel, ToolCall};
/// use universal_executor::{
///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Outcome, Subscription,
///     UniversalExecutor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let stubborn = ScriptedModel::answering(|_, _| {
///     Ok(ChatResponse::calling(vec![ToolCall::new("1", "missing", json!({}))]))
/// });
/// let store = MemoryStore::default();
/// let helper = Agent::new("helper", stubborn)
///     .on(Subscription::trigger("task.v1"))
///     .max_turns(2)
///     .bind(&store)?;
/// let task = store.create(NewBreadcrumb::new("task.v1")).await?;
/// let outcome = helper.process_event(&Event::created(&task)).await?;
/// assert!(matches!(outcome, Outcome::Failed { .. }));
///
/// let letter = store.latest("executor.failed.v1").await?.ok_or("no dead letter")?;
/// assert_eq!(letter.context["code"], "turns_used_up");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentRunError {
    /// The agent's model or external program gave no final answer within the maximum number of model requests or program starts.
    ///
    /// Raise [`max_turns`](super::AgentDefinition::max_turns), or find out in the logs why the
    /// model repeats its calls.
    #[error(
        "the agent has no final answer after {turns} turns, the maximum; raise \"max_turns\" of its definition"
    )]
    TurnsUsedUp {
        /// The number of model requests in the run, or of starts of the agent's external program.
        turns: u32,
    },
    /// The agent's model gave no final answer before the run used up a budget.
    ///
    /// Tokens and calls are checked between model requests, and the time also during a request.
    #[error(
        "the agent used its budget of {limit} {budget} without a final answer; raise \"budgets\" of its definition"
    )]
    BudgetUsedUp {
        /// The budget that the run used up, one of `tokens`, `calls` or `seconds`.
        budget: &'static str,
        /// The limit that the run reached, in the unit of its budget: tokens, tool calls or seconds.
        limit: u64,
    },
    /// The final answer of the agent's model does not match the output schema, is an action that is not permitted, or was rejected by a
    /// guardrail. The model had received the problem and answered again, or the run had no turns or budget left for another answer.
    ///
    /// Improve the instructions or relax the schema. The failure response has the answer in `raw`.
    #[error("the model's answer does not meet the requirements: {problem}")]
    BadOutput {
        /// The problem in the model's final answer.
        problem: String,
        /// The model's answer, truncated to 2,048 bytes. Empty if a guardrail rejected the answer.
        raw: String,
    },
    /// The agent ended abnormally: the state machine of its tool calls reported an error or a cancellation.
    #[error("the agent run ended abnormally: {error}")]
    Broken {
        /// The error or cancellation that the state machine of the tool calls reported.
        error: String,
    },
    /// The conversation of an agent run is larger than the maximum size of a run's saved state.
    ///
    /// The limit is [`Json::MAX_BYTES`](crate::Json::MAX_BYTES), 1 MiB. Return smaller tool
    /// results, or reduce the number of turns.
    #[error(
        "cannot save the {size} bytes of an agent run's conversation, because the maximum is {limit} bytes; reduce tool results or turns"
    )]
    StateTooLarge {
        /// The size of the run's conversation in bytes.
        size: usize,
        /// The maximum size of a run's saved state in bytes.
        limit: usize,
    },
    /// An earlier attempt of the agent run saved a state that this version of the crate cannot read.
    ///
    /// Continue the run with the version of the crate that saved the state.
    #[error(
        "cannot read the saved state of the agent run; another version of the crate may have saved it"
    )]
    UnreadableState(#[source] serde_json::Error),
}

impl AgentRunError {
    /// Returns a stable short name of the agent run's error for logs, metrics and dead letters. It contains no text of the conversation.
    ///
    /// One of `turns_used_up`, `budget_used_up`, `bad_output`, `broken`, `state_too_large` and
    /// `unreadable_state`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TurnsUsedUp { .. } => "turns_used_up",
            Self::BudgetUsedUp { .. } => "budget_used_up",
            Self::BadOutput { .. } => "bad_output",
            Self::Broken { .. } => "broken",
            Self::StateTooLarge { .. } => "state_too_large",
            Self::UnreadableState(_) => "unreadable_state",
        }
    }

    /// Returns [`Retry::Never`]: a retry of the agent run would end in the same way.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}
