//! The outcome of a turn of a chat session, read from its run and its answer.

use super::super::{Client, ClientError, creator_of};
use super::event::TurnEnd;
use crate::model::{Breadcrumb, WORKLOAD_RESULT, is_answer_schema, is_reserved_schema};
use crate::request::agents;
use crate::store::{Run, RunEnd, RunState};

/// Returns the outcome of the chat turn of an ended run.
pub(super) async fn outcome(client: &Client, run: Run) -> Result<TurnEnd, ClientError> {
    match run.state {
        RunState::Failed if run.code.as_deref() == Some(RunEnd::CANCELLED) => {
            Ok(TurnEnd::Cancelled)
        }
        RunState::Failed => Ok(TurnEnd::Failed {
            code: run.code.unwrap_or_default(),
            cause: run.cause,
        }),
        RunState::Skipped | RunState::Superseded => Ok(TurnEnd::Unanswered {
            state: run.state,
            reason: run.reason,
        }),
        RunState::Ready | RunState::Running | RunState::Suspended | RunState::Done => {
            Ok(match answer_text(client, &run).await? {
                Ok(text) => TurnEnd::Completed {
                    text: text.unwrap_or_default(),
                },
                Err(ReportedFailure { code, message }) => TurnEnd::Failed {
                    code,
                    cause: message,
                },
            })
        }
    }
}

/// The failure that the breadcrumb with an executor's answer reports instead of an answer text.
struct ReportedFailure {
    code: String,
    message: Option<String>,
}

/// Returns the text of a run's answer, or the failure that the answer reports. The text is `None` if the run has no answer.
async fn answer_text(
    client: &Client,
    run: &Run,
) -> Result<Result<Option<String>, ReportedFailure>, ClientError> {
    let mut last_created = None;
    for id in run.written.iter().rev() {
        let Some(found) = client.find(*id).await? else {
            continue;
        };
        if creator_of(&found).as_ref() != Some(&run.run) {
            continue;
        }
        let schema = found.schema_name.as_deref().unwrap_or_default();
        if is_answer_schema(schema) || schema == WORKLOAD_RESULT {
            return Ok(match found.context.text("status") == Some("error") {
                true => Err(reported_failure(&found)),
                false => Ok(Some(agents::answer_text(&found.context))),
            });
        }
        // The response of another executor is the last breadcrumb that it created.
        if !is_reserved_schema(schema) && last_created.is_none() {
            last_created = Some(agents::answer_text(&found.context));
        }
    }
    Ok(Ok(last_created))
}

fn reported_failure(answer: &Breadcrumb) -> ReportedFailure {
    let error = answer.context.get("error").unwrap_or(&answer.context);
    let text = |field: &str| error.get(field)?.as_str().map(str::to_owned);
    ReportedFailure {
        code: text("code").unwrap_or_else(|| "error".to_owned()),
        message: text("message"),
    }
}
