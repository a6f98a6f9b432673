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

/// Maximum number of questions of one call that the server sends to the client.
const MAX_QUESTIONS: usize = 100;

/// The questions that the server has sent to the client.
#[derive(Debug, Default)]
pub(super) struct Asked {
    ids: BTreeSet<String>,
    /// The number of sent questions. A question counts again after a refused answer.
    count: usize,
}

impl Asked {
    pub(super) fn insert(&mut self, question: &QuestionView) {
        self.ids.insert(question.id.clone());
        self.count += 1;
    }

    /// Permits the server to send a question to the client again.
    pub(super) fn ask_again(&mut self, id: Option<String>) {
        if let Some(id) = id {
            self.ids.remove(&id);
        }
    }
}

/// Returns the open questions of a run that the server has not sent to the client, the newest first. The list is empty if the client does
/// not support forms, or if no person is set.
pub(super) async fn open(
    shared: &Shared,
    handle: &RequestHandle,
    context: &RequestContext<RoleServer>,
    asked: &Asked,
) -> Vec<QuestionView> {
    let Some(person) = shared.person.as_ref().filter(|_| supports_forms(context)) else {
        return Vec::new();
    };
    // If the store fails, the next step reads again.
    let open = shared.client.questions().open_for(person).await;
    let mut open = open.unwrap_or_default();
    open.retain(|question| question.run() == handle.run() && !asked.ids.contains(&question.id));
    open.truncate(MAX_QUESTIONS.saturating_sub(asked.count));
    open
}

/// Returns `true` if the client can ask a person to fill in a form.
fn supports_forms(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation);
    // A capability without modes, as in versions before 2025-11-25, is that for forms.
    elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

/// Returns a future that asks the client a question, and writes the answer. The future returns the ID of the question if its answer was
/// refused. `None` if no person is set.
pub(super) fn ask<'c>(
    shared: &'c Shared,
    question: QuestionView,
    context: &'c RequestContext<RoleServer>,
) -> Option<BoxFuture<'c, Option<String>>> {
    let person = shared.person.as_ref()?;
    let ask = async move {
        let form = context.peer.create_elicitation(elicitation(&question));
        let answer = within(ANSWER_TIMEOUT, form).await?.ok()?;
        let is_written = write(shared, &question, person, answer).await;
        (!is_written).then_some(question.id)
    };
    Some(ask.boxed())
}

/// Returns the question as a form with one field.
pub(super) fn elicitation(question: &QuestionView) -> ElicitRequestParams {
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

/// Writes the answer of the client. A declined question remains open for other people, and a declined approval is a rejection. Returns
/// `false` if the answer was refused.
pub(super) async fn write(
    shared: &Shared,
    question: &QuestionView,
    person: &Principal,
    answer: ElicitResult,
) -> bool {
    let questions = shared.client.questions();
    let content = answer.content.unwrap_or_default();
    let given = content.get(FIELD).cloned();
    let is_accepted = match answer.action {
        ElicitationAction::Accept => true,
        ElicitationAction::Decline => false,
        // The enum can get further actions, which are no answers either.
        ElicitationAction::Cancel | _ => return true,
    };
    let written = match question.kind {
        QuestionKind::Approval if is_accepted && given == Some(Value::Bool(true)) => {
            questions.approve(&question.id, person).await
        }
        QuestionKind::Approval => {
            let reason = "the person declined in the MCP client";
            questions.reject(&question.id, person, reason).await
        }
        QuestionKind::Question if !is_accepted => return true,
        QuestionKind::Question => {
            let given = given.unwrap_or(Value::Null);
            questions.answer(&question.id, person, given).await
        }
    };
    if let Err(error) = &written {
        tracing::warn!(
            question = &*question.id,
            error = %Chain(error),
            "cannot write the answer of an MCP client to a question"
        );
    }
    written.is_ok()
}
