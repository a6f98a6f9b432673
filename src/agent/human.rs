//! What people are asked, and what they answer, as breadcrumbs.

use crate::machine::{Answer, ToolCall};
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Timestamp, sorted_text};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A question to a person.
pub(crate) const REQUEST: &str = "human.request.v1";

/// What the person answers.
pub(crate) const RESPONSE: &str = "human.response.v1";

/// What a person decided.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    Approved,
    Answered(Answer),
}

/// The question whether a call may be made. It shows exactly what would be called, and the digest of that.
pub(crate) fn approval(call: &ToolCall, arguments: &Json, digest: &str) -> Value {
    json!({
        "kind": "approval",
        "question": format!("May {} be called with these arguments?", call.tool),
        "options": ["approve", "reject"],
        "tool": call.tool,
        "arguments": arguments,
        "digest": digest,
    })
}

/// A question that a tool asks: a text, options, or whatever it is made of.
pub(crate) fn question(payload: &Json) -> Value {
    let mut fields = json!({"kind": "question"});
    if let Value::Object(fields) = &mut fields {
        match &**payload {
            Value::Object(asked) => fields.extend(asked.clone()),
            other => {
                fields.insert("question".to_owned(), other.clone());
            }
        }
        fields.insert("kind".to_owned(), "question".into());
    }
    fields
}

/// The breadcrumb that asks.
pub(crate) fn request(
    mut fields: Value,
    request_id: &str,
    agent: &str,
    until: Timestamp,
) -> NewBreadcrumb {
    if let Value::Object(fields) = &mut fields {
        fields.insert("requestId".to_owned(), request_id.into());
        fields.insert("requestedBy".to_owned(), agent.into());
        fields.insert("expires_at".to_owned(), json!(until));
    }
    NewBreadcrumb::new(REQUEST)
        .title(format!("{agent} asks"))
        .tags(["human:request".to_owned(), format!("request:{request_id}")])
        .context(fields)
}

/// The breadcrumb that answers a question in the name of somebody.
pub(crate) fn answer(ticket: &str, answer: &Json, by: &str) -> NewBreadcrumb {
    NewBreadcrumb::new(RESPONSE)
        .tag(format!("request:{ticket}"))
        .created_by(by)
        .context(json!({"request_id": ticket, "answer": **answer}))
}

/// What a breadcrumb says to a question, if it answers that one and is from somebody who may.
///
/// What an executor wrote is from no person: it carries the `creator` that every run stamps.
pub(crate) fn decision(
    response: &Breadcrumb,
    request_id: &str,
    digest: Option<&str>,
    by: &[String],
) -> Option<Decision> {
    let context = &response.context;
    let text = |field: &str| context.get(field).and_then(Value::as_str);
    let answers = [text("request_id"), text("requestId")].contains(&Some(request_id));
    let is_person = context.get("creator").is_none();
    let writer = match response.version {
        0 | 1 => &response.created_by,
        2.. => &response.updated_by,
    };
    let may = by.is_empty() || writer.as_ref().is_some_and(|writer| by.contains(writer));
    let same_call = match (digest, text("digest")) {
        (Some(asked), Some(answered)) => asked == answered,
        (Some(_) | None, _) => true,
    };
    if response.schema_name.as_deref() != Some(RESPONSE)
        || !(answers && is_person && may && same_call)
    {
        return None;
    }
    match digest {
        Some(_) => verdict(response),
        None => context
            .get("answer")
            .map(|answer| Decision::Answered(Answer::success(answer.clone()))),
    }
}

/// Whether a call may be made. What is neither yes nor no is no decision.
fn verdict(response: &Breadcrumb) -> Option<Decision> {
    let context = &response.context;
    let approved = match (context.get("approved"), context.get("decision")) {
        (Some(Value::Bool(approved)), None) => *approved,
        (None | Some(Value::Bool(true)), Some(Value::String(decision)))
            if decision == "approve" =>
        {
            true
        }
        (None | Some(Value::Bool(false)), Some(Value::String(decision)))
            if decision == "reject" =>
        {
            false
        }
        (Some(_) | None, Some(_) | None) => return None,
    };
    if approved {
        return Some(Decision::Approved);
    }
    let comment = context.get("comment").and_then(Value::as_str);
    let message = match comment {
        Some(comment) => format!("a person rejected the call, and says: {comment}"),
        None => "a person rejected the call".to_owned(),
    };
    Some(Decision::Answered(Answer::error("rejected", message)))
}

/// What an approval is bound to: the tool, what it is called with, and the definition of who calls it.
pub(crate) fn digest(tool: &str, arguments: &Json, definition: &str) -> String {
    hash(&[tool, &sorted_text(arguments), definition])
}

/// The hash of some texts, as hex: no two lists of texts give the same.
pub(crate) fn hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_is_of_a_value_and_not_of_the_order_of_its_keys() {
        let digest_of = |text| digest("pay", &Json::from_text(text).unwrap(), "definition");

        let approved = digest_of(r#"{"amount": 5, "to": {"iban": "X", "name": "Ann"}}"#);

        assert_eq!(
            digest_of(r#"{"to": {"name": "Ann", "iban": "X"}, "amount": 5}"#),
            approved
        );
        assert_ne!(
            digest_of(r#"{"amount": 6, "to": {"iban": "X", "name": "Ann"}}"#),
            approved
        );
    }
}
