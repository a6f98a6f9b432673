//! Classification of the crate's error types for retries: a retry after a delay, or no retry. This module alone names the errors
//! of every layer, so that a run knows the class of an error from a layer above its own.

#[cfg(feature = "agents")]
use crate::agent;
use crate::error::{ErrorClass, ErrorNode, Retry, Verdict};
#[cfg(feature = "mcp")]
use crate::mcp;
use crate::session_log::SessionError;
use crate::tool::ToolError;
#[cfg(feature = "workflows")]
use crate::workflow;
#[cfg(feature = "workflows")]
use crate::workload;
use crate::{client, executor, hints, model, runtime, source, store};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of errors of one error chain that the search for an error class inspects. A longer chain may be a cycle.
const DEPTH: usize = 16;

/// Returns the class of an error (the retry decision and an error code): the class of the error itself, or of the first source
/// that has one.
///
/// The decision and the code can come from different errors of the chain, because an [`ErrorNode`] can have only one of the two.
/// An error without a class is transient and has the code `error`. Inspects the error and up to 15 sources.
///
/// A run decides in this way about a retry of a failed attempt. Use it in your own code that calls
/// the store or a model outside of a run, to decide about a retry or to label a metric.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::error::Retry;
/// use universal_executor::{BoxError, class_of, permanent, retry_after};
///
/// let bad: BoxError = permanent("no such order");
/// assert_eq!(class_of(bad.as_ref()).retry(), Retry::Never);
///
/// let busy: BoxError = retry_after(Duration::from_secs(5), "the printer is busy");
/// assert_eq!(class_of(busy.as_ref()).retry(), Retry::After(Duration::from_secs(5)));
///
/// let other = std::io::Error::other("broken pipe");
/// assert_eq!(class_of(&other).code(), "error");
/// ```
#[must_use]
pub fn class_of(error: &(dyn Error + 'static)) -> ErrorClass {
    let (verdict, code) = find(error);
    ErrorClass {
        verdict: verdict.unwrap_or_else(|| of_foreign(error)),
        code: code.unwrap_or(ErrorClass::UNKNOWN),
    }
}

/// Returns the retry decision (permanent, transient or rate limited) for an error with which a run failed.
pub(crate) fn verdict(error: &(dyn Error + 'static)) -> Verdict {
    class_of(error).verdict
}

/// Returns the first retry decision in an error chain, or `None` if no error of the chain has a decision.
pub(crate) fn decided(error: &(dyn Error + 'static)) -> Option<Verdict> {
    find(error).0
}

/// Searches an error chain from the outermost error, and returns the first retry decision and the first error code.
fn find(error: &(dyn Error + 'static)) -> (Option<Verdict>, Option<&'static str>) {
    let (mut verdict, mut code) = (None, None);
    let mut link = Some(error);
    for _ in 0..DEPTH {
        let Some(mut current) = link else { break };
        if let Some(node) = current.downcast_ref::<ErrorNode>() {
            (verdict, code) = (verdict.or(node.verdict()), code.or(node.code()));
            current = node.inner();
        }
        if let Some(class) = own(current) {
            return (verdict.or(Some(class.verdict)), code.or(Some(class.code)));
        }
        link = current.source();
    }
    (verdict, code)
}

/// Returns the retry decision for an error without a class: permanent for invalid JSON, because the same input fails again,
/// otherwise transient.
fn of_foreign(error: &(dyn Error + 'static)) -> Verdict {
    match error.is::<serde_json::Error>() {
        true => Verdict::Permanent,
        false => Verdict::Transient(Duration::ZERO),
    }
}

/// Returns the class (retry decision and error code) of an error whose type belongs to this crate, or `None` for any other error.
fn own(error: &(dyn Error + 'static)) -> Option<ErrorClass> {
    KNOWN.iter().find_map(|class| class(error))
}

/// Returns the class (retry decision and error code) of a model's error, or `None` for an error of another type. Rate limits of a
/// model use no attempt.
#[cfg(feature = "agents")]
fn of_model(error: &(dyn Error + 'static)) -> Option<ErrorClass> {
    let error = error.downcast_ref::<agent::ModelError>()?;
    let verdict = match (error, error.retry()) {
        (error, Retry::After(delay)) if error.is_rate_limit() => Verdict::RateLimited(delay),
        (_, retry) => retry.into(),
    };
    let code = error.code();
    Some(ErrorClass { verdict, code })
}

type Class = fn(&(dyn Error + 'static)) -> Option<ErrorClass>;

/// Functions that return the class (retry decision and error code) of the crate's error types.
const KNOWN: &[Class] = &[
    #[cfg(feature = "agents")]
    of_model,
    |error| class(error, |e: &store::StoreError| (e.retry(), e.code())),
    |error| {
        class(error, |e: &store::SavedResponse| {
            (e.source.retry(), e.source.code())
        })
    },
    |error| {
        class(error, |_: &store::PartialSearch| {
            (Retry::After(Duration::ZERO), "partial")
        })
    },
    |error| {
        class(error, |e: &store::embedding::EmbedError| {
            (e.retry(), "embedding")
        })
    },
    #[cfg(feature = "sqlite")]
    |error| class(error, |e: &store::SqliteError| (e.retry(), "sqlite")),
    #[cfg(feature = "postgres")]
    |error| class(error, |e: &store::PostgresError| (e.retry(), "postgres")),
    #[cfg(feature = "rcrt")]
    |error| class(error, |e: &store::RcrtError| (e.retry(), "rcrt")),
    #[cfg(feature = "rcrt")]
    |error| {
        class(error, |e: &store::SplitCharacter| {
            (e.retry(), "split_character")
        })
    },
    |error| class(error, |e: &source::SourceError| (e.retry(), e.code())),
    #[cfg(feature = "mcp")]
    |error| class(error, |e: &mcp::McpError| (e.retry(), e.code())),
    #[cfg(feature = "nats")]
    |error| class(error, |e: &source::NatsError| (e.retry(), "nats")),
    #[cfg(feature = "rcrt")]
    |error| class(error, |e: &source::SseError| (e.retry(), "sse")),
    #[cfg(feature = "rcrt")]
    |error| class(error, |e: &source::TokenError| (e.retry(), "token")),
    |error| class(error, |e: &executor::ExecutorError| (e.retry(), e.code())),
    |error| class(error, |e: &executor::ContextError| (e.retry(), e.code())),
    |error| class(error, |e: &executor::WaitError| (e.retry(), e.code())),
    |error| {
        class(error, |e: &executor::BudgetError| {
            (e.retry(), "over_budget")
        })
    },
    |error| {
        class(error, |e: &executor::InvalidExecutor| {
            (e.retry(), "invalid_executor")
        })
    },
    |error| {
        class(error, |e: &executor::MissingReason| {
            (e.retry(), "missing_source")
        })
    },
    |error| never::<executor::WithheldBy>(error, "withheld"),
    |error| never::<executor::BadRate>(error, "bad_rate"),
    |error| never::<executor::Bound>(error, "missing_source"),
    |error| never::<model::ConditionError>(error, "bad_condition"),
    |error| {
        class(error, |e: &model::DefinitionError| {
            (e.retry(), "bad_definition")
        })
    },
    |error| never::<model::DefinitionProblem>(error, "bad_definition"),
    |error| never::<model::InvalidId>(error, "bad_id"),
    |error| never::<model::JsonError>(error, "bad_json"),
    |error| never::<model::PathError>(error, "bad_path"),
    |error| never::<model::ParseTimestampError>(error, "bad_timestamp"),
    |error| never::<hints::HintsError>(error, "bad_hints"),
    |error| never::<hints::HintsProblem>(error, "bad_hints"),
    |error| never::<hints::HintsFailure>(error, "hints_failed"),
    |error| never::<hints::HintsReason>(error, "hints_failed"),
    #[cfg(feature = "agents")]
    |error| class(error, |e: &agent::AgentError| (e.retry(), "bad_agent")),
    #[cfg(feature = "agents")]
    |error| class(error, |e: &agent::AgentRunError| (e.retry(), e.code())),
    |error| class(error, |e: &ToolError| (e.retry(), "bad_tool")),
    #[cfg(feature = "agents")]
    |error| class(error, |e: &agent::guardrail::Denied| (e.retry(), "denied")),
    #[cfg(feature = "agents")]
    |error| never::<agent::BadArguments>(error, "bad_arguments"),
    #[cfg(any(feature = "genai", feature = "openai"))]
    |error| class(error, |e: &agent::ProviderError| (e.retry(), "provider")),
    #[cfg(feature = "agents")]
    |error| class(error, |e: &agent::FallbackError| (e.retry(), "fallback")),
    #[cfg(feature = "cli")]
    |error| class(error, |e: &agent::CliError| (e.retry(), "cli")),
    #[cfg(feature = "workflows")]
    |error| {
        class(error, |e: &workflow::WorkflowLoadError| {
            (e.retry(), "bad_workflow")
        })
    },
    #[cfg(feature = "workflows")]
    |error| never::<workflow::LoadProblem>(error, "bad_workflow"),
    #[cfg(feature = "workflows")]
    |error| {
        class(error, |e: &workflow::AssemblyError| {
            (e.retry(), "bad_workflow")
        })
    },
    #[cfg(feature = "workflows")]
    |error| class(error, |e: &workflow::RunError| (e.retry(), "flow")),
    #[cfg(feature = "workflows")]
    |error| never::<workflow::FlowStateError>(error, "flow_state"),
    |error| class(error, |e: &runtime::RuntimeError| (e.retry(), "runtime")),
    |error| class(error, |e: &client::ClientError| (e.retry(), e.code())),
    |error| {
        class(error, |e: &client::StoreFailure| {
            (e.source.retry(), e.source.code())
        })
    },
    |error| class(error, |e: &client::ReplyError| (e.retry(), e.code())),
    |error| class(error, |e: &client::AnswerError| (e.retry(), e.code())),
    #[cfg(feature = "testing")]
    |error| {
        class(error, |e: &crate::testing::TestError| {
            (e.retry(), "testing")
        })
    },
    #[cfg(feature = "agents")]
    |error| never::<runtime::definitions::NotRegistered>(error, "not_registered"),
    #[cfg(feature = "agents")]
    |error| never::<runtime::definitions::BadModelConfig>(error, "bad_model_config"),
    #[cfg(feature = "workloads")]
    |error| {
        class(error, |e: &workload::SupervisorError| {
            (e.retry(), "supervisor")
        })
    },
    #[cfg(feature = "workloads")]
    |error| class(error, |e: &workload::TurnAnswerError| (e.retry(), e.code())),
    |error| class(error, |e: &SessionError| (e.retry(), "session")),
    #[cfg(feature = "workflows")]
    |error| class(error, |e: &workload::EntryError| (e.retry(), "entry")),
    #[cfg(feature = "workloads")]
    |error| class(error, |e: &workload::IdentError| (e.retry(), "bad_name")),
    #[cfg(feature = "workloads")]
    |error| {
        class(error, |e: &workload::ManagerError| {
            (e.retry(), "bad_workload")
        })
    },
    #[cfg(feature = "workloads")]
    |error| {
        class(error, |e: &workload::WorkloadLoadError| {
            (e.retry(), "bad_workload")
        })
    },
    #[cfg(feature = "workflows")]
    |error| {
        class(error, |e: &workload::WorkloadError| {
            (e.retry(), "bad_workload")
        })
    },
];

/// Returns the class of an error of type `E` that is never retried, or `None` for an error of another type.
fn never<E: Error + 'static>(
    error: &(dyn Error + 'static),
    code: &'static str,
) -> Option<ErrorClass> {
    class::<E>(error, |_| (Retry::Never, code))
}

fn class<E: Error + 'static>(
    error: &(dyn Error + 'static),
    class: impl FnOnce(&E) -> (Retry, &'static str),
) -> Option<ErrorClass> {
    let shared = || error.downcast_ref::<Arc<E>>().map(|error| &**error);
    let (retry, code) = class(error.downcast_ref::<E>().or_else(shared)?);
    let verdict = retry.into();
    Some(ErrorClass { verdict, code })
}

#[cfg(test)]
mod tests;
