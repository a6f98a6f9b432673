//! The known fields of agent definitions, and the errors and warnings about unknown and missing fields.

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
const RCRT_FIELDS: [&str; 1] = ["llm_config_id"];

/// Fields of an agent definition that restrict the agent or instruct its model. An unknown field with a similar name is always an
/// error, even without strict mode. The author of such a field intended a restriction or an instruction that would have no
/// effect.
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

static AGENT_REF: KnownFields<'static> = without_aliases(&["agent", "description"]);
pub(super) static BUDGETS: KnownFields<'static> = without_aliases(&["tokens", "calls", "seconds"]);
pub(super) static CONTEXT_BUDGET: KnownFields<'static> =
    without_aliases(&["tokens", "bytes", "items_per_source"]);
pub(super) static OUTPUT: KnownFields<'static> =
    without_aliases(&["name", "description", "schema", "required"]);
pub(super) static APPROVAL: KnownFields<'static> = without_aliases(&["tools", "by"]);
static APPROVAL_RULE: KnownFields<'static> =
    without_aliases(&["tool", "when", "by", "expires_in_seconds"]);
static CONDITION: KnownFields<'static> = without_aliases(&CONDITION_FIELDS);
pub(super) static WAIT_SECONDS: KnownFields<'static> =
    without_aliases(&["people", "agents", "model"]);
static TRUST: KnownFields<'static> = without_aliases(&["private", "untrusted", "outward"]);

const fn without_aliases(names: &'static [&'static str]) -> KnownFields<'static> {
    KnownFields {
        names,
        aliases: &[],
    }
}

/// Checks the field names of an agent definition, but not the values. Paths start at the context of the definition.
pub(super) fn check(fields: &Map<String, Value>, options: &DefinitionOptions) -> Findings {
    let root = DefinitionPath::default();
    let default_severity = match options.strict {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let mut findings = Findings::default();
    let is_rcrt_field = |field: &str| options.rcrt && RCRT_FIELDS.contains(&field);
    for field in AGENT.unknown(fields).filter(|field| !is_rcrt_field(field)) {
        let severity = match nearest(field, RESTRICTIONS) {
            Some(_) => Severity::Error,
            None => default_severity,
        };
        findings.push(AGENT.finding(severity, &root, field));
    }
    let objects_to_check = [
        ("approval", &APPROVAL, Severity::Error),
        ("budgets", &BUDGETS, Severity::Error),
        ("capabilities", &CAPABILITIES, Severity::Warning),
        ("context_budget", &CONTEXT_BUDGET, Severity::Error),
        ("delegate", &AGENT_REF, default_severity),
        ("handoff", &AGENT_REF, default_severity),
        ("outputs", &OUTPUT, Severity::Error),
        ("trust", &TRUST, Severity::Error),
        ("use", &AGENT_REF, default_severity),
        ("wait_seconds", &WAIT_SECONDS, Severity::Error),
    ];
    for (name, known, severity) in objects_to_check {
        let Some(value) = fields.get(name) else {
            continue;
        };
        for (path, object) in objects(value, &root.field(name)) {
            for field in known.unknown(object) {
                findings.push(known.finding(severity, &path, field));
            }
        }
    }
    for (known, path, object) in approval_rules(fields, &root) {
        for field in known.unknown(object) {
            findings.push(known.finding(Severity::Error, &path, field));
        }
    }
    let prompt = fields.get("system_prompt").filter(|value| !value.is_null());
    if prompt.is_none_or(|prompt| prompt.as_str().is_some_and(|text| text.trim().is_empty())) {
        let path = root.field("system_prompt");
        let message = "missing field \"system_prompt\": the model gets no instructions";
        findings.push(Finding::warning(path, message));
    }
    findings
}

/// A JSON object in an agent definition, with its known fields and its path in the definition.
type ObjectWithFields<'v> = (
    &'static KnownFields<'static>,
    DefinitionPath,
    &'v Map<String, Value>,
);

/// Returns the JSON objects of an agent definition's approval rules, and of the conditions in these rules, to check their field
/// names. Each element has the known fields, the path and the JSON object of one rule or condition.
fn approval_rules<'v>(
    fields: &'v Map<String, Value>,
    root: &DefinitionPath,
) -> Vec<ObjectWithFields<'v>> {
    let mut rules = Vec::new();
    let tools = fields.get("approval");
    let Some(tools) = tools.and_then(|approval| approval.get("tools")) else {
        return rules;
    };
    let tools_path = root.field("approval").field("tools");
    for (path, rule) in objects(tools, &tools_path) {
        let when_path = path.field("when");
        rules.push((&APPROVAL_RULE, path, rule));
        if let Some(when) = rule.get("when") {
            let conditions = objects(when, &when_path);
            rules.extend(conditions.map(|(path, condition)| (&CONDITION, path, condition)));
        }
    }
    rules
}

/// Fails if one of the problems with the fields of an agent definition is an error and not only a warning.
///
/// # Errors
/// [`AgentError::UnknownField`] for the first problem that is an error.
pub(super) fn reject_errors(findings: &Findings) -> Result<(), AgentError> {
    match findings.first_error() {
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
    path: &DefinitionPath,
) -> impl Iterator<Item = (DefinitionPath, &'v Map<String, Value>)> {
    let single = value.as_object().map(|object| (path.clone(), object));
    let items = value.as_array().into_iter().flatten().enumerate();
    let items = items.filter_map({
        let path = path.clone();
        move |(at, item)| Some((path.item(at), item.as_object()?))
    });
    single.into_iter().chain(items)
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
        assert_fields(PAGE, "RCRT fields", &RCRT_FIELDS);
        assert_fields(PAGE, "RCRT capability", &[AgentCapabilities::USE_TOOLS]);
    }
}
