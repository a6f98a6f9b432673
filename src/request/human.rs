//! Questions to people and their answers, as breadcrumbs.

#[cfg(feature = "agents")]
mod asking;
#[cfg(feature = "agents")]
pub(crate) mod questions;
mod schema;
mod terms;
mod write;

#[cfg(feature = "workflows")]
pub(crate) use asking::question;
#[cfg(feature = "agents")]
pub(crate) use asking::{
    approval, digest, fingerprint, fingerprint_of_question, question_of_tool, request,
    withheld_arguments,
};
pub(crate) use schema::QuestionSchema;
#[cfg(feature = "agents")]
pub(crate) use schema::has_fit_answer;
pub(crate) use terms::{CLOCK_MARGIN, QuestionTerms, texts};
pub(crate) use write::{WrittenAnswer, is_same, write_once};

use super::Reply;
pub(crate) use crate::hex::hash;
use crate::machine::Answer;
use crate::model::{
    Breadcrumb, Json, MAX_DEPTH, NewBreadcrumb, Timestamp, request_tag, size_within,
};
use crate::tool::{Approval, NeededApproval, People, ROLE};
use serde_json::Value;

/// Schema name of a question to a person.
pub(crate) const REQUEST: &str = "human.request.v1";

/// Schema name of a person's answer to a question.
pub(crate) const RESPONSE: &str = "human.response.v1";

/// Maximum size in bytes of tool call arguments that a person changed in an approval.
const MAX_CHANGED_BYTES: usize = 64 << 10;

/// Maximum JSON depth of tool call arguments that a person changed in an approval. The limit is lower than the limit of
/// a breadcrumb, because the saved state of a run nests them deeper.
const MAX_CHANGED_DEPTH: usize = MAX_DEPTH - 16;

/// Creates the breadcrumb of a person's answer, with the request ID of the question.
pub(crate) fn response(request_id: &str, by: &str, mut context: Value) -> NewBreadcrumb {
    if let Value::Object(fields) = &mut context {
        fields.insert("request_id".to_owned(), request_id.into());
    }
    NewBreadcrumb::new(RESPONSE)
        .tag(request_tag(request_id))
        .created_by(by)
        .context(context)
}

/// Reads a person's reply to a question from a breadcrumb: an answer, an approval or a rejection. Returns `None` if the
/// breadcrumb does not answer this question, or if the breadcrumb's writer is not permitted to answer.
///
/// A breadcrumb of an executor is not an answer, because every run stamps the field `creator`. The caller checks that
/// the breadcrumb was not [changed](crate::executor::is_changed).
///
/// `shown` is the part of the context that a model may see. An answer and a comment come from `shown`, and everything
/// that decides whether the response counts comes from the whole context. An answer that is excluded as a whole does
/// not count.
pub(crate) fn decision(
    response: &Breadcrumb,
    shown: &Json,
    request_id: &str,
    digest: Option<&str>,
    people: &People,
) -> Option<Reply> {
    let context = &response.context;
    let text = |field: &str| context.get(field).and_then(Value::as_str);
    let answers = [text("request_id"), text("requestId")].contains(&Some(request_id));
    let is_person = context.get("creator").is_none();
    let same_call = match (digest, text("digest")) {
        (Some(expected), Some(answered)) => expected == answered,
        (Some(_) | None, _) => true,
    };
    if response.schema_name.as_deref() != Some(RESPONSE)
        || !(answers && is_person && is_permitted(response, people) && same_call)
    {
        return None;
    }
    match digest {
        Some(_) => verdict(response, shown),
        None => shown
            .get("answer")
            .map(|answer| Reply::Answer(Answer::success(answer.clone()))),
    }
}

/// Returns `true` if the writer of an answer is one of the permitted people, by name or by role.
fn is_permitted(response: &Breadcrumb, people: &People) -> bool {
    let is_in = |by: &[String]| {
        response.created_by.as_ref().is_some_and(|writer| {
            let is_named = !writer.starts_with(ROLE) && by.contains(writer);
            is_named || has_role(&response.context, writer, by)
        })
    };
    people.list_without(is_in).is_none()
}

/// Tool call arguments in a person's approval, with the approval rules that decide whether this person may change them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'c> {
    /// The tool call arguments in the person's approval.
    pub(crate) arguments: &'c Value,
    /// If `true`, the approval and the question have the same tool call arguments.
    pub(crate) is_same: bool,
    /// The approval rules that decide which people may change the tool call arguments in an approval.
    pub(crate) rules: &'c [Approval],
    /// The creation time of the question. `None` if the time is unknown, so that the time of a rule counts as expired.
    pub(crate) asked_at: Option<Timestamp>,
}

impl Change<'_> {
    /// Returns `true` if the writer of an approval may change the tool call arguments. Each rule for the changed
    /// arguments must permit the writer, and the time limit of these rules must not have passed since the question.
    pub(crate) fn is_allowed(&self, response: &Breadcrumb) -> bool {
        if self.is_same {
            return true;
        }
        let Some(needed) = NeededApproval::by_rules(self.rules, &[], self.arguments) else {
            return true;
        };
        let is_in_time = needed.expires_in.is_none_or(|time| {
            let end = self.asked_at.map(|asked_at| asked_at + time);
            end.is_some_and(|end| response.updated_at <= end)
        });
        is_in_time && is_permitted(response, &needed.people)
    }
}

/// Returns the reason why tool call arguments from an approval are too large or too deep, or `None` if a run can save them.
pub(crate) fn unfit_arguments(arguments: &Value) -> Option<String> {
    match size_within(arguments, MAX_CHANGED_DEPTH) {
        Ok(size) if size <= MAX_CHANGED_BYTES => None,
        Ok(size) => Some(format!(
            "the changed arguments have {size} bytes where at most {MAX_CHANGED_BYTES} are allowed"
        )),
        Err(unfit) => Some(format!("the JSON of the changed arguments {unfit}")),
    }
}

/// Returns `true` if the writer of an answer has a role that the list `by` permits. The service that writes the answer
/// states the roles. The name next to the roles must be the author that the store recorded.
fn has_role(context: &Json, writer: &str, by: &[String]) -> bool {
    let name = context
        .get("principal")
        .and_then(|person| person.get("name"));
    if name.and_then(Value::as_str) != Some(writer) {
        return false;
    }
    let roles = context
        .get("principal")
        .and_then(|person| person.get("roles"));
    let roles = roles.and_then(Value::as_array).into_iter().flatten();
    let mut roles = roles.filter_map(Value::as_str);
    roles.any(|role| {
        by.iter()
            .any(|permitted| permitted.strip_prefix(ROLE) == Some(role))
    })
}

/// The message to the agent if a person rejects its tool call without a comment.
pub(crate) const REJECTED: &str = "a person rejected the call";

/// Returns a person's decision about a tool call, or `None` if a breadcrumb neither approves nor rejects the call.
fn verdict(response: &Breadcrumb, shown: &Json) -> Option<Reply> {
    let context = &response.context;
    if approved(context)? {
        return match context.get("arguments") {
            None | Some(Value::Null) => Some(Reply::Approved(None)),
            Some(changed) if unfit_arguments(changed).is_none() => {
                Some(Reply::Approved(Some(changed.clone().into())))
            }
            Some(_) => None,
        };
    }
    let comment = shown.get("comment").and_then(Value::as_str);
    let message = match comment {
        Some(comment) => format!("a person rejected the call, and says: {comment}"),
        None => REJECTED.to_owned(),
    };
    Some(Reply::Answer(Answer::error("rejected", message)))
}

/// Returns `true` if the context of a person's answer approves a tool call, `false` if it rejects the call, and `None`
/// if it does neither.
pub(crate) fn approved(context: &Json) -> Option<bool> {
    match (context.get("approved"), context.get("decision")) {
        (Some(Value::Bool(approved)), None) => Some(*approved),
        (None | Some(Value::Bool(true)), Some(Value::String(decision)))
            if decision == "approve" =>
        {
            Some(true)
        }
        (None | Some(Value::Bool(false)), Some(Value::String(decision)))
            if decision == "reject" =>
        {
            Some(false)
        }
        (Some(_) | None, Some(_) | None) => None,
    }
}

#[cfg(test)]
mod tests;
