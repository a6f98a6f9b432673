//! Checks of definitions of breadcrumb schemas.

use super::common::CheckContext;
use super::related::Declaration;
use crate::hints::Hints;
use crate::model::{DefinitionPath, Finding, Subscriptions};
use serde_json::Value;

/// The prefix of the tag with which a schema definition names the defined schema.
const DEFINES: &str = "defines:";

pub(super) fn check(context: &mut CheckContext<'_>) -> Option<Declaration> {
    let top = DefinitionPath::default();
    for field in ["schema", "json_schema"] {
        context.check_schema(&top.field(field), context.value.get(field));
    }
    // Hints of the breadcrumb take precedence over hints in its context.
    let present = |value: &&Value| !value.is_null();
    let at_top = context.document.get("llm_hints").filter(present);
    let within = context.value.get("llm_hints").filter(present);
    let (hints, path) = match at_top {
        Some(hints) => (Some(hints), top.field("llm_hints")),
        None => (within, top.field("llm_hints").below(&context.prefix)),
    };
    if let Some(Err(error)) = hints.map(Hints::from_json) {
        let path = top.join(&error.field).below(&path);
        let finding = Finding::error(path, error.problem.to_string());
        context.findings.push(finding);
    }
    let tags = context.document.get("tags").and_then(Value::as_array);
    let tags = tags.into_iter().flatten().filter_map(Value::as_str);
    let mut defined = tags.filter_map(|tag| tag.strip_prefix(DEFINES));
    let Some(schema) = defined.next() else {
        let message = "no tag \"defines:<schema>\", so the definition has no effect";
        context
            .findings
            .push(Finding::warning(top.field("tags"), message));
        return None;
    };
    Some(Declaration {
        id: schema.to_owned(),
        kind: "schema",
        subscriptions: Subscriptions::default(),
        writes: Some(Vec::new()),
    })
}
