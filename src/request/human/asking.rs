//! Questions to people, as breadcrumbs.

use super::{REQUEST, hash};
use crate::error::excerpt;
use crate::executor::{ContextError, ExecutionContext};
use crate::machine::{Answer, MachineCall};
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Timestamp, request_tag, sorted_text};
use crate::store::BreadcrumbStore;
use crate::tool::{Approval, Checker, People, Tool};
use serde_json::{Map, Value, json};

/// Maximum size in bytes of a tool's input schema in a question. A larger schema is omitted.
pub(super) const MAX_SCHEMA_BYTES: usize = 16 << 10;

/// Maximum total size in bytes of the approval rules for changed arguments that a question about a tool call contains. If the rules
/// are larger, the client refuses changed arguments.
const MAX_RULES_BYTES: usize = 16 << 10;

/// The names of the fields that only a question about a tool call has.
const APPROVAL_FIELDS: [&str; 7] = [
    "also_of",
    "arguments",
    "arguments_schema",
    "change_rules",
    "changeable",
    "digest",
    "tool",
];

/// Returns the fields of a question that asks a person to approve a tool call, with the arguments and the digest of the call. The
/// question names the tool as the service registered it, because a definition can give a dangerous tool a harmless name. `changes` are
/// the approval rules for the right to change the arguments.
pub(crate) fn approval(
    call: &MachineCall,
    registered: Option<&dyn Tool>,
    arguments: &Json,
    digest: &str,
    people: &People,
    changes: &[Approval],
) -> Value {
    /// Maximum length in bytes of the tool description in a question.
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
        if let [first, others @ ..] = people.lists() {
            fields.insert("of".to_owned(), json!(first));
            if !others.is_empty() {
                fields.insert("also_of".to_owned(), json!(others));
            }
        }
        add_change_terms(fields, registered, changes);
        // The question shows these arguments with escapes, so they differ from the arguments of the call.
        if (**arguments).to_string().contains(reorders_text) {
            fields.remove("changeable");
            fields.remove("change_rules");
        }
    }
    fields
}

/// Adds to a question the tool's input schema, and the rules that decide which people may change the tool call arguments. Clients
/// need both to change arguments.
fn add_change_terms(
    fields: &mut Map<String, Value>,
    registered: Option<&dyn Tool>,
    changes: &[Approval],
) {
    // Characters that reorder text are escaped in a question, and would change a schema or a rule.
    let fits = |value: &Value, limit: usize| {
        let text = value.to_string();
        text.len() <= limit && !text.contains(reorders_text)
    };
    let schema = registered.map(Tool::input_schema);
    if let Some(schema) = schema.filter(|schema| fits(schema, MAX_SCHEMA_BYTES)) {
        fields.insert("arguments_schema".to_owned(), schema.clone());
    }
    let rules: Value = changes
        .iter()
        .map(Approval::data)
        .map(Value::from)
        .collect();
    if !fits(&rules, MAX_RULES_BYTES) {
        return;
    }
    fields.insert("changeable".to_owned(), true.into());
    if !changes.is_empty() {
        fields.insert("change_rules".to_owned(), rules);
    }
}

/// Returns the fields of a question to a person, from the text of the question or from an object with the question, options and
/// other fields. Omits a schema that cannot be used, because no answer would fit it.
pub(crate) fn question(payload: &Json) -> Value {
    let mut fields = json!({"kind": "question"});
    if let Value::Object(fields) = &mut fields {
        match &**payload {
            Value::Object(question) => fields.extend(question.clone()),
            other => {
                fields.insert("question".to_owned(), other.clone());
            }
        }
        fields.insert("kind".to_owned(), "question".into());
        for field in APPROVAL_FIELDS {
            fields.remove(field);
        }
        // The log has only the reason, because a model can have written the schema.
        if let Some(reason) = fields.get("schema").and_then(schema_problem) {
            tracing::warn!(
                reason,
                "answer schema of a question cannot be used; the question omits the schema, so its answers are not checked"
            );
            fields.remove("schema");
        }
    }
    fields
}

/// Returns the fields of a question that a tool asks, and that everyone may answer.
pub(crate) fn question_of_tool(payload: &Json) -> Value {
    let mut fields = question(payload);
    if let Value::Object(fields) = &mut fields {
        fields.remove("of");
    }
    fields
}

/// Returns the reason why the JSON Schema in a question cannot check answers, or `None` if it can.
fn schema_problem(schema: &Value) -> Option<&'static str> {
    if schema.to_string().contains(reorders_text) {
        // A question shows these characters as escapes, which would change the schema.
        return Some("the schema has characters that reorder text");
    }
    let compiled = Checker::compile(schema);
    compiled.is_err().then_some("the schema cannot be compiled")
}

/// Returns the hash of the fields of a question, for the ID of the question. Questions with different contents have
/// different IDs.
pub(crate) fn fingerprint_of_question(fields: &Value) -> String {
    hash(&[&sorted_text(fields)])
}

/// Creates the breadcrumb of a question to a person. Escapes characters that change the order of displayed text in all fields: a
/// model could use them to make arguments look different from the values that the tool gets.
pub(crate) fn request(
    fields: Value,
    request_id: &str,
    agent: &str,
    until: Timestamp,
) -> NewBreadcrumb {
    let mut fields = escaped(fields);
    if let Value::Object(fields) = &mut fields {
        fields.insert("requestId".to_owned(), request_id.into());
        fields.insert("requestedBy".to_owned(), agent.into());
        fields.insert("expires_at".to_owned(), json!(until));
    }
    NewBreadcrumb::new(REQUEST)
        .title(format!("{agent} asks"))
        .tags(["human:request".to_owned(), request_tag(request_id)])
        .context(fields)
}

/// Returns a JSON value from a question to a person, with each bidirectional control character replaced by its escape, such as
/// `\u{202e}`. An object with such a character in a key becomes a list of keys and values, because two keys could become equal.
fn escaped(value: Value) -> Value {
    match value {
        Value::String(text) => escaped_text(text).into(),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(fields) if fields.keys().any(|key| key.contains(reorders_text)) => {
            let entry = |(key, value)| json!({"key": escaped_text(key), "value": escaped(value)});
            fields.into_iter().map(entry).collect()
        }
        Value::Object(fields) => {
            let field = |(key, value)| (key, escaped(value));
            Value::Object(fields.into_iter().map(field).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

fn escaped_text(text: String) -> String {
    if !text.contains(reorders_text) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match reorders_text(c) {
            true => escaped.extend(c.escape_unicode()),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Returns `true` for characters that reorder text. They are the embeddings, overrides and isolates of Unicode Standard
/// Annex 9, and the characters that end them. Text in Hebrew or Arabic does not need them, and its marks (U+200E,
/// U+200F) reorder no other text.
fn reorders_text(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns an error answer if the `llm_hints` of an approval exclude the tool call arguments that the approver changed, or `None`
/// if the call may be executed. The result of the call could show the arguments.
pub(crate) async fn withheld_arguments(
    approval: &Breadcrumb,
    changed: Option<&Json>,
    context: &ExecutionContext,
    store: &dyn BreadcrumbStore,
) -> Result<Option<Answer>, ContextError> {
    let Some(changed) = changed else {
        return Ok(None);
    };
    let is_shown = match context.shown(approval, store).await {
        Ok(shown) => shown.get("arguments") == Some(&**changed),
        Err(ContextError::Withheld { .. }) => false,
        Err(error) => return Err(error),
    };
    let message = "a person changed the arguments of the call, and llm_hints exclude the changed ones; the call was not made";
    Ok((!is_shown).then(|| Answer::error("withheld", message)))
}

/// Returns the digest that binds a person's approval to the tool, its arguments and the definition of the calling agent or
/// workflow.
pub(crate) fn digest(tool: &str, arguments: &Json, definition: &str) -> String {
    hash(&[tool, &sorted_text(arguments), definition])
}

/// Returns the hash of a registered tool and of the definition of the calling agent or workflow, for the [`digest`] of an
/// approval.
pub(crate) fn fingerprint(definition: &str, registered: Option<&dyn Tool>) -> String {
    let Some(tool) = registered else {
        return hash(&[definition, "", ""]);
    };
    let (description, schema) = (tool.description(), sorted_text(tool.input_schema()));
    let rules = tool.settings().approvals.iter();
    let rules: Vec<String> = rules.filter_map(Approval::text).collect();
    match rules.is_empty() {
        // The digests of questions that earlier versions asked have no rules.
        true => hash(&[definition, description, &schema]),
        false => hash(&[definition, description, &schema, &rules.join("\n")]),
    }
}
