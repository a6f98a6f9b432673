//! Questions of a run to people, asked to the MCP client by elicitation.

use super::Shared;
use crate::client::{Principal, QuestionKind, QuestionView, RequestHandle};
use crate::clock::within;
use crate::error::Chain;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Time for which a client may take to answer one question. Then the question remains open for other people.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum number of questions of one call that the client is asked.
const MAX_QUESTIONS: usize = 100;

/// The IDs of the questions that the client was asked.
#[derive(Debug, Default)]
pub(super) struct Asked(BTreeSet<String>);

/// Returns a future that asks the client an open question of a run that it was not asked yet, and writes the answer. Returns `None` if
/// there is no such question, or if the client cannot be asked.
pub(super) async fn next<'c>(
    shared: &'c Shared,
    handle: &RequestHandle,
    context: &'c RequestContext<RoleServer>,
    asked: &mut Asked,
) -> Option<BoxFuture<'c, ()>> {
    let person = shared.person.as_ref()?;
    context.client_capabilities()?.elicitation?;
    if asked.0.len() >= MAX_QUESTIONS {
        return None;
    }
    // If the store fails, the next step reads again.
    let open = shared.client.questions().open_for(person).await.ok()?;
    let mut open = open.into_iter();
    let question =
        open.find(|question| question.run() == handle.run() && !asked.0.contains(&question.id))?;
    asked.0.insert(question.id.clone());
    let ask = async move {
        let form = context.peer.create_elicitation(elicitation(&question));
        if let Some(Ok(answer)) = within(ANSWER_TIMEOUT, form).await {
            write(shared, &question, person, answer).await;
        }
    };
    Some(ask.boxed())
}

/// Returns the question as a form with one field.
fn elicitation(question: &QuestionView) -> ElicitRequestParams {
    let field = match question.kind {
        QuestionKind::Approval => json!({"type": "boolean", "title": "Approve"}),
        QuestionKind::Question if question.options.is_empty() => {
            json!({"type": "string", "title": "Answer"})
        }
        QuestionKind::Question => {
            json!({"type": "string", "title": "Answer", "enum": question.options})
        }
    };
    let schema = json!({"type": "object", "properties": {FIELD: field}, "required": [FIELD]});
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question.to_string(),
        // The schema is valid, because it has one field of a primitive type.
        requested_schema: serde_json::from_value(schema)
            .unwrap_or_else(|_| ElicitationSchema::new(Default::default())),
    }
}

/// The name of the only field of the form.
const FIELD: &str = "answer";

/// Writes the answer of the client. A declined question remains open for other people, and a declined approval is a rejection.
async fn write(shared: &Shared, question: &QuestionView, person: &Principal, answer: ElicitResult) {
    let questions = shared.client.questions();
    let content = answer.content.unwrap_or_default();
    let given = content.get(FIELD).cloned();
    let is_accepted = match answer.action {
        ElicitationAction::Accept => true,
        ElicitationAction::Decline => false,
        // The enum can get further actions, which are no answers either.
        ElicitationAction::Cancel | _ => return,
    };
    let written = match question.kind {
        QuestionKind::Approval if is_accepted && given == Some(Value::Bool(true)) => {
            questions.approve(&question.id, person).await
        }
        QuestionKind::Approval => {
            let reason = "the person declined in the MCP client";
            questions.reject(&question.id, person, reason).await
        }
        QuestionKind::Question => match given.filter(|_| is_accepted) {
            Some(given) => questions.answer(&question.id, person, given).await,
            None => return,
        },
    };
    if let Err(error) = written {
        tracing::warn!(
            question = &*question.id,
            error = %Chain(&error),
            "cannot write the answer of an MCP client to a question"
        );
    }
}
