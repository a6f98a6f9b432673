//! What people are asked, and what they answer, as breadcrumbs.

use crate::error::excerpt;
use crate::hex::hex;
use crate::machine::{Answer, ToolCall};
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Timestamp, sorted_text};
use crate::tool::Tool;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A question to a person.
pub(crate) const REQUEST: &str = "human.request.v1";

/// What the person answers.
pub(crate) const RESPONSE: &str = "human.response.v1";

/// The prefix of a role in a list of people.
pub(crate) const ROLE: &str = "role:";

/// What a person decided.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    Approved,
    Answered(Answer),
}

/// Returns the question whether a call may be made, with its arguments and its digest. It names the tool as the service
/// registered it, because a definition can give a dangerous tool a harmless name.
pub(crate) fn approval(
    call: &ToolCall,
    registered: Option<&dyn Tool>,
    arguments: &Json,
    digest: &str,
    by: &[String],
) -> Value {
    /// Limit of the shown description, in bytes.
    const DESCRIPTION: usize = 1_000;
    let tool = registered.map_or(call.tool.as_str(), Tool::name);
    let description = registered.map_or("", Tool::description);
    let mut fields = json!({
        "kind": "approval",
        "question": format!("May {tool} be called with these arguments?"),
        "options": ["approve", "reject"],
        "tool": tool,
        "description": excerpt(description, DESCRIPTION),
        "arguments": arguments,
        "digest": digest,
    });
    if let Value::Object(fields) = &mut fields {
        if call.tool != tool {
            fields.insert("called_as".to_owned(), call.tool.as_str().into());
        }
        if !by.is_empty() {
            fields.insert("of".to_owned(), by.into());
        }
    }
    fields
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
        // Fields of an approval.
        for field in ["digest", "tool", "arguments"] {
            fields.remove(field);
        }
    }
    fields
}

/// The breadcrumb that asks. Characters that change the order of displayed text are escaped in all fields: a model could
/// use them to make arguments look different from the values that the tool gets.
pub(crate) fn request(
    fields: Value,
    request_id: &str,
    agent: &str,
    until: Timestamp,
) -> NewBreadcrumb {
    let mut fields = revealed(fields);
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

/// Returns the value with each bidirectional control character replaced by its escape, such as `\u{202e}`. An object with
/// such a character in a key becomes a list of keys and values, because two keys could become equal.
fn revealed(value: Value) -> Value {
    match value {
        Value::String(text) => revealed_text(text).into(),
        Value::Array(items) => items.into_iter().map(revealed).collect(),
        Value::Object(fields) if fields.keys().any(|key| key.contains(reorders)) => {
            let entry = |(key, value)| json!({"key": revealed_text(key), "value": revealed(value)});
            fields.into_iter().map(entry).collect()
        }
        Value::Object(fields) => {
            let field = |(key, value)| (key, revealed(value));
            Value::Object(fields.into_iter().map(field).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

fn revealed_text(text: String) -> String {
    if !text.contains(reorders) {
        return text;
    }
    let mut revealed = String::with_capacity(text.len());
    for c in text.chars() {
        match reorders(c) {
            true => revealed.extend(c.escape_unicode()),
            false => revealed.push(c),
        }
    }
    revealed
}

/// Returns `true` for the embeddings, overrides and isolates of Unicode Standard Annex 9, and for the characters that end
/// them. Text in Hebrew or Arabic does not need them, and its marks (U+200E, U+200F) reorder no other text.
fn reorders(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
///
/// `shown` is the part of the context that a model may see: an answer and a comment come from there, and everything that
/// decides whether the response counts comes from the whole context. An answer that is excluded as a whole is none.
pub(crate) fn decision(
    response: &Breadcrumb,
    shown: &Json,
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
    let may = by.is_empty()
        || writer
            .as_ref()
            .is_some_and(|writer| !writer.starts_with(ROLE) && by.contains(writer))
        || writer
            .as_ref()
            .is_some_and(|writer| has_role(context, writer, by));
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
        Some(_) => verdict(response, shown),
        None => shown
            .get("answer")
            .map(|answer| Decision::Answered(Answer::success(answer.clone()))),
    }
}

/// Returns `true` if the writer of an answer has one of the roles in a list of people. The service that writes answers of people
/// states the roles; the name next to them must be the writer that the store has noted.
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
    roles.any(|role| by.iter().any(|one| one.strip_prefix(ROLE) == Some(role)))
}

/// The message of a rejection without a comment.
pub(crate) const REJECTED: &str = "a person rejected the call";

/// Whether a call may be made. What is neither yes nor no is no decision.
fn verdict(response: &Breadcrumb, shown: &Json) -> Option<Decision> {
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
    let comment = shown.get("comment").and_then(Value::as_str);
    let message = match comment {
        Some(comment) => format!("a person rejected the call, and says: {comment}"),
        None => REJECTED.to_owned(),
    };
    Some(Decision::Answered(Answer::error("rejected", message)))
}

/// Returns the digest that binds an approval to the tool, its arguments and the definition of the caller.
pub(crate) fn digest(tool: &str, arguments: &Json, definition: &str) -> String {
    hash(&[tool, &sorted_text(arguments), definition])
}

/// Returns the definition of a caller with the tool as the service registered it, for [`digest`].
pub(crate) fn fingerprint(definition: &str, registered: Option<&dyn Tool>) -> String {
    let Some(tool) = registered else {
        return hash(&[definition, "", ""]);
    };
    let (description, schema) = (tool.description(), sorted_text(tool.input_schema()));
    hash(&[definition, description, &schema])
}

/// The hash of some texts, as hex: no two lists of texts give the same.
pub(crate) fn hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(fields: Value) -> Json {
        request(fields, "r-1", "teller", Timestamp::from_micros(1)).context
    }

    #[test]
    fn a_question_shows_the_characters_that_reorder_text_as_escapes() {
        let arguments: Json =
            json!({"to": "DE\u{202e}89", "notes": [{"a": "\u{2066}b\u{2069}"}], "amount": 5})
                .into();
        let call = ToolCall::new("1", "pay\u{202a}", arguments.clone());

        let approval = asked(approval(&call, None, &arguments, "d", &[]));
        let question = asked(question(
            &json!({"question": "a\u{202d}b", "options": ["\u{2068}"]}).into(),
        ));

        assert_eq!(
            approval["arguments"],
            json!({"to": "DE\\u{202e}89", "notes": [{"a": "\\u{2066}b\\u{2069}"}], "amount": 5})
        );
        assert_eq!(approval["tool"], "pay\\u{202a}");
        assert_eq!(approval["digest"], "d");
        assert_eq!(question["question"], "a\\u{202d}b");
        assert_eq!(question["options"], json!(["\\u{2068}"]));
    }

    #[test]
    fn no_argument_disappears_because_its_escaped_name_is_that_of_another() {
        let shown = asked(json!({"arguments": {"n\u{202e}": 1, "n\\u{202e}": 1_000_000}}));

        let entries = [1, 1_000_000].map(|n| json!({"key": "n\\u{202e}", "value": n}));
        let found = shown["arguments"].as_array().unwrap();
        assert_eq!(found.len(), 2);
        assert!(
            entries.iter().all(|entry| found.contains(entry)),
            "{found:?}"
        );
    }

    #[test]
    fn right_to_left_text_and_emoji_are_shown_unchanged() {
        let text = "שלום\u{200f} مرحبا 👩\u{200d}🔬";

        assert_eq!(asked(json!({"question": text}))["question"], text);
    }

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
