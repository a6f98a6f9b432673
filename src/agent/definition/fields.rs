//! The fields of agent definitions, and the findings about unknown and missing fields.

use crate::agent::{AgentCapabilities, AgentError};
use crate::model::{
    CONDITION_FIELDS, DefinitionOptions, DefinitionPath, Finding, Findings, KnownFields, Severity,
    nearest,
};
use serde_json::{Map, Value};

pub(in crate::agent) static AGENT: KnownFields<'static> = KnownFields {
    names: &[
        "agent_id",
        "approval",
        "budgets",
        "capabilities",
        "context_budget",
        "context_format",
        "delegate",
        "handoff",
        "max_turns",
        "model",
        "output_schema",
        "outputs",
        "reminders",
        "responds_with",
        "return_to_user",
        "selectors",
        "subscriptions",
        "system_prompt",
        "temperature",
        "tool_calls",
        "tools",
        "trust",
        "use",
        "wait_seconds",
    ],
    aliases: &[
        ("agents", &["use", "handoff", "delegate"]),
        ("id", &["agent_id"]),
        ("instruction", &["system_prompt"]),
        ("instructions", &["system_prompt"]),
        ("max_tokens", &["budgets"]),
        ("name", &["agent_id"]),
        ("permissions", &["capabilities"]),
        ("response_schema", &["output_schema"]),
        ("schema", &["output_schema"]),
        ("system", &["system_prompt"]),
        ("triggers", &["subscriptions"]),
        ("uses", &["use"]),
        ("writes", &["responds_with"]),
    ],
};

/// Additional fields of agent definitions for RCRT (Right Context Right Time) servers.
const RCRT: [&str; 1] = ["llm_config_id"];

/// Fields of an agent definition that restrict the agent or instruct its model. An unknown field with a similar name is an error in every
/// mode, because the author intended a restriction or an instruction that would have no effect.
const RESTRICTIONS: [&str; 12] = [
    "approval",
    "budgets",
    "capabilities",
    "context_budget",
    "max_turns",
    "output_schema",
    "responds_with",
    "return_to_user",
    "system_prompt",
    "temperature",
    "trust",
    "wait_seconds",
];

static CAPABILITIES: KnownFields<'static> = KnownFields {
    names: &AgentCapabilities::ALL,
    aliases: &[("can_use_tools", &[])],
};

static AGENT_REF: KnownFields<'static> = plain(&["agent", "description"]);
pub(super) static BUDGETS: KnownFields<'static> = plain(&["tokens", "calls", "seconds"]);
pub(super) static CONTEXT_BUDGET: KnownFields<'static> =
    plain(&["tokens", "bytes", "items_per_source"]);
pub(super) static OUTPUT: KnownFields<'static> =
    plain(&["name", "description", "schema", "required"]);
pub(super) static APPROVAL: KnownFields<'static> = plain(&["tools", "by"]);
static APPROVAL_RULE: KnownFields<'static> = plain(&["tool", "when", "by", "expires_in_seconds"]);
static CONDITION: KnownFields<'static> = plain(&CONDITION_FIELDS);
pub(super) static WAIT_SECONDS: KnownFields<'static> = plain(&["people", "agents", "model"]);
static TRUST: KnownFields<'static> = plain(&["private", "untrusted", "outward"]);

const fn plain(names: &'static [&'static str]) -> KnownFields<'static> {
    KnownFields {
        names,
        aliases: &[],
    }
}

/// Checks the field names of an agent definition, but not the values. Paths start at the context of the definition.
pub(super) fn check(fields: &Map<String, Value>, options: &DefinitionOptions) -> Findings {
    let top = DefinitionPath::default();
    let by_mode = match options.strict {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let mut found = Findings::default();
    let is_known = |field: &str| options.rcrt && RCRT.contains(&field);
    for field in AGENT.unknown(fields).filter(|field| !is_known(field)) {
        let severity = match nearest(field, RESTRICTIONS) {
            Some(_) => Severity::Error,
            None => by_mode,
        };
        found.push(AGENT.finding(severity, &top, field));
    }
    let parts = [
        ("approval", &APPROVAL, Severity::Error),
        ("budgets", &BUDGETS, Severity::Error),
        ("capabilities", &CAPABILITIES, Severity::Warning),
        ("context_budget", &CONTEXT_BUDGET, Severity::Error),
        ("delegate", &AGENT_REF, by_mode),
        ("handoff", &AGENT_REF, by_mode),
        ("outputs", &OUTPUT, Severity::Error),
        ("trust", &TRUST, Severity::Error),
        ("use", &AGENT_REF, by_mode),
        ("wait_seconds", &WAIT_SECONDS, Severity::Error),
    ];
    for (name, known, severity) in parts {
        let Some(value) = fields.get(name) else {
            continue;
        };
        for (place, object) in objects(value, &top.field(name)) {
            for field in known.unknown(object) {
                found.push(known.finding(severity, &place, field));
            }
        }
    }
    for (known, place, object) in approval_rules(fields, &top) {
        for field in known.unknown(object) {
            found.push(known.finding(Severity::Error, &place, field));
        }
    }
    let prompt = fields.get("system_prompt").filter(|value| !value.is_null());
    if prompt.is_none_or(|prompt| prompt.as_str().is_some_and(|text| text.trim().is_empty())) {
        let place = top.field("system_prompt");
        let message = "missing field \"system_prompt\": the model gets no instructions";
        found.push(Finding::warning(place, message));
    }
    found
}

/// An object in an agent definition, with its known fields and its path.
type Checked<'v> = (
    &'static KnownFields<'static>,
    DefinitionPath,
    &'v Map<String, Value>,
);

/// Returns each approval rule in `approval.tools` of an agent definition, and each condition of these rules. Each element has the known
/// fields, the path and the JSON object of one rule or condition.
fn approval_rules<'v>(fields: &'v Map<String, Value>, top: &DefinitionPath) -> Vec<Checked<'v>> {
    let mut found = Vec::new();
    let tools = fields.get("approval");
    let Some(tools) = tools.and_then(|approval| approval.get("tools")) else {
        return found;
    };
    let tools_place = top.field("approval").field("tools");
    for (place, rule) in objects(tools, &tools_place) {
        let when_place = place.field("when");
        found.push((&APPROVAL_RULE, place, rule));
        if let Some(when) = rule.get("when") {
            let conditions = objects(when, &when_place);
            found.extend(conditions.map(|(place, condition)| (&CONDITION, place, condition)));
        }
    }
    found
}

/// Fails if a finding about the fields of an agent definition is an error.
///
/// # Errors
/// [`AgentError::UnknownField`] for the first finding that is an error.
pub(super) fn refuse(found: &Findings) -> Result<(), AgentError> {
    match found.first_error() {
        Some(finding) => Err(AgentError::UnknownField {
            path: finding.path.clone(),
            problem: finding.message.clone(),
        }),
        None => Ok(()),
    }
}

/// Returns the JSON objects in the value of an agent definition's field, each with its path. The value is one object or a list of objects.
fn objects<'v>(
    value: &'v Value,
    place: &DefinitionPath,
) -> impl Iterator<Item = (DefinitionPath, &'v Map<String, Value>)> {
    let alone = value.as_object().map(|object| (place.clone(), object));
    let items = value.as_array().into_iter().flatten().enumerate();
    let items = items.filter_map({
        let place = place.clone();
        move |(at, item)| Some((place.item(at), item.as_object()?))
    });
    alone.into_iter().chain(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guide::tests::assert_fields;

    #[test]
    fn the_reference_lists_every_field_of_an_agent() {
        const PAGE: &str = include_str!("../../../docs/reference/agents.md");
        let tables = [
            ("Agent", &AGENT),
            ("Agent reference", &AGENT_REF),
            ("Approval", &APPROVAL),
            ("Approval rule", &APPROVAL_RULE),
            ("Budgets", &BUDGETS),
            ("Capabilities", &CAPABILITIES),
            ("Context budget", &CONTEXT_BUDGET),
            ("Output", &OUTPUT),
            ("Trust", &TRUST),
            ("Wait times", &WAIT_SECONDS),
        ];

        for (heading, known) in tables {
            assert_fields(PAGE, heading, known.names);
        }
        assert_fields(PAGE, "RCRT fields", &RCRT);
        assert_fields(PAGE, "RCRT capability", &[AgentCapabilities::USE_TOOLS]);
    }
}
