//! The field `approval` of an agent definition: the tool calls that need the approval of a person.

use super::read::non_null;
use crate::agent::AgentError;
use crate::model::{
    ConditionCount, DefinitionOptions, DefinitionPath, DefinitionProblem, read_conditions,
};
use crate::tool::{Approval, NeededApproval};
use serde_json::{Map, Value};
use std::time::Duration;

/// The tool calls of an agent that need the approval of a person.
///
/// As JSON, an entry of `tools` is a rule, or the name of a tool whose calls all need an approval:
///
/// Without rules, the agent makes every call without a question. In code, use
/// [`Agent::needs_approval`](crate::agent::Agent::needs_approval) and
/// [`Agent::approval_rule`](crate::agent::Agent::approval_rule).
///
/// ```
/// use serde_json::json;
/// use universal_executor::agent::AgentDefinition;
/// use universal_executor::model::Condition;
/// use universal_executor::tool::Approval;
///
/// let definition = AgentDefinition::from_json(&json!({
///     "agent_id": "helper", "system_prompt": "Help.", "tools": ["pay", "refund"],
///     "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
///     "approval": {
///         "tools": [
///             "pay",
///             {"tool": "refund", "when": [{"path": "$.amount", "op": "gt", "value": 100}], "by": ["role:finance"],
///              "expires_in_seconds": 3600},
///         ],
///         "by": ["ann"],
///     },
/// }))?;
///
/// let is_large = Condition::new("$.amount", "gt", Some(json!(100)));
/// let rule = Approval::when_args(is_large).by("role:finance").expires_in(std::time::Duration::from_secs(3600));
/// assert_eq!(definition.approval.tools[1].rule, rule);
/// # Ok::<(), universal_executor::agent::AgentError>(())
/// ```
///
/// A rule applies if all conditions in `when` hold. Conditions have the form of `context_match` in a subscription, and
/// [fail closed](Approval::when_args).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Approvals {
    /// The approval rules of the agent definition. An [`AgentExecutor`](crate::agent::AgentExecutor) adds the [rules of its
    /// tools](crate::tool::ToolSettings::approvals).
    ///
    /// A tool can have several rules. A call needs an approval if one of them applies.
    pub tools: Vec<ToolApproval>,
    /// The people who may approve tool calls, by name or as `role:<name>`, for approval rules that name no approvers. Defaults to
    /// everyone. A name is compared with `created_by` of the answer.
    pub by: Vec<String>,
}

/// A rule of an agent definition that decides which calls of one tool need the approval of a person.
///
/// One tool can have several rules. The JSON form is the tool name, or an object with `tool`,
/// `when`, `by` and `expires_in_seconds`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolApproval {
    /// The name of the tool whose calls the approval rule checks.
    ///
    /// The name must be in `tools` of the definition, otherwise the agent cannot be created
    /// ([`AgentError::UnknownTool`]).
    pub tool: String,
    /// The rule that decides which calls of the tool need an approval.
    pub rule: Approval,
}

impl Approvals {
    /// Adds an approval rule for the calls of a tool, unless the list already contains the rule.
    pub(in crate::agent) fn add(&mut self, tool: &str, rule: Approval) {
        let tool = tool.to_owned();
        let rule = ToolApproval { tool, rule };
        if !self.tools.contains(&rule) {
            self.tools.push(rule);
        }
    }

    /// Returns the approval that a tool call with these arguments needs, or `None` if no rule applies.
    pub(in crate::agent) fn needed(&self, tool: &str, arguments: &Value) -> Option<NeededApproval> {
        NeededApproval::by_rules(self.rules_of(tool), &self.by, arguments)
    }

    /// Returns a tool's approval rules that limit which approvers may change the arguments of a call, or until when.
    pub(in crate::agent) fn for_changes(&self, tool: &str) -> Vec<Approval> {
        let rules = self.rules_of(tool);
        rules
            .filter_map(|rule| rule.for_changes(&self.by))
            .collect()
    }

    fn rules_of<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a Approval> {
        let rules = self.tools.iter().filter(move |rule| rule.tool == tool);
        rules.map(|rule| &rule.rule)
    }
}

/// Returns the JSON entry of an approval rule in `approval.tools` of an agent definition, or `None` if the rule has a condition in code.
pub(in crate::agent) fn entry(tool: String, rule: Approval) -> Option<Value> {
    let mut fields = rule.into_fields()?;
    if fields.is_empty() {
        return Some(tool.into());
    }
    fields.insert("tool".to_owned(), tool.into());
    Some(fields.into())
}

/// Reads the field `approval` of an agent definition.
///
/// # Errors
/// [`AgentError::BadApproval`] with the path of the problem. Unknown fields are rejected earlier, when the definition is read.
pub(super) fn approvals(
    fields: &Map<String, Value>,
    options: &DefinitionOptions,
) -> Result<Approvals, AgentError> {
    let path = DefinitionPath::default().field("approval");
    let approval = match non_null(fields, "approval") {
        None => return Ok(Approvals::default()),
        Some(Value::Object(approval)) => approval,
        Some(other) => return Err(shape(path, "an object of \"tools\" and \"by\"", other)),
    };
    let mut approvals = Approvals {
        tools: Vec::new(),
        by: people(approval, &path)?,
    };
    let path = path.field("tools");
    let entries = match non_null(approval, "tools") {
        None => return Ok(approvals),
        Some(Value::Array(entries)) => entries,
        Some(other) => return Err(shape(path, "a list of tool names and rules", other)),
    };
    let mut count = ConditionCount::default();
    for (at, entry) in entries.iter().enumerate() {
        let path = path.item(at);
        approvals.tools.push(match entry {
            Value::String(tool) => ToolApproval {
                tool: tool.clone(),
                rule: Approval::always(),
            },
            Value::Object(fields) => rule(fields, &path, &mut count, options)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                return Err(shape(path, "the name of a tool, or a rule", entry));
            }
        });
    }
    Ok(approvals)
}

fn rule(
    fields: &Map<String, Value>,
    path: &DefinitionPath,
    count: &mut ConditionCount,
    options: &DefinitionOptions,
) -> Result<ToolApproval, AgentError> {
    let tool = match non_null(fields, "tool") {
        Some(Value::String(tool)) => tool.clone(),
        Some(other) => return Err(shape(path.field("tool"), "a string", other)),
        None => {
            let expected = "the name of a tool";
            let problem = DefinitionProblem::Missing { expected };
            return Err(approval_error(path.field("tool"), problem));
        }
    };
    let mut rule = Approval::always();
    if let Some(when) = non_null(fields, "when") {
        let conditions = read_conditions(when, &path.field("when"), count, options);
        let conditions = conditions.map_err(|(path, problem)| approval_error(path, problem))?;
        rule = conditions.into_iter().fold(rule, Approval::and_args);
    }
    for person in people(fields, path)? {
        rule = rule.by(person);
    }
    if let Some(value) = non_null(fields, "expires_in_seconds") {
        let seconds = value.as_u64().filter(|seconds| *seconds > 0);
        let Some(seconds) = seconds else {
            let path = path.field("expires_in_seconds");
            return Err(shape(
                path,
                "a whole number of seconds greater than 0",
                value,
            ));
        };
        rule = rule.expires_in(Duration::from_secs(seconds));
    }
    Ok(ToolApproval { tool, rule })
}

/// Reads the list `by` of approvers in the object `approval` of an agent definition, or in one of its rules.
fn people(fields: &Map<String, Value>, path: &DefinitionPath) -> Result<Vec<String>, AgentError> {
    let Some(value) = non_null(fields, "by") else {
        return Ok(Vec::new());
    };
    let names = value.as_array().and_then(|list| {
        let names = list.iter().map(|name| name.as_str().map(str::to_owned));
        names.collect::<Option<Vec<String>>>()
    });
    names.ok_or_else(|| shape(path.field("by"), "a list of names and roles", value))
}

fn shape(path: DefinitionPath, expected: &'static str, found: &Value) -> AgentError {
    approval_error(path, DefinitionProblem::shape(expected, found))
}

fn approval_error(path: DefinitionPath, problem: DefinitionProblem) -> AgentError {
    let problem = Box::new(problem);
    AgentError::BadApproval { path, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentDefinition;
    use crate::model::Condition;
    use serde_json::json;

    fn read_approvals(approval: &Value) -> Result<Approvals, AgentError> {
        let definition = json!({
            "agent_id": "worker", "approval": approval,
            "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
        });
        AgentDefinition::from_json(&definition).map(|definition| definition.approval)
    }

    fn refund() -> Value {
        json!({
            "tool": "refund", "when": [{"path": "$.amount", "op": "gt", "value": 100}],
            "by": ["role:finance"], "expires_in_seconds": 3_600,
        })
    }

    #[test]
    fn a_rule_has_conditions_people_and_a_time() {
        let approvals =
            read_approvals(&json!({"tools": ["pay", refund()], "by": ["ann"]})).unwrap();

        let is_large = Condition::new("$.amount", "gt", Some(json!(100)));
        let rule = Approval::when_args(is_large)
            .by("role:finance")
            .expires_in(Duration::from_secs(3_600));
        let mut expected = Approvals {
            by: vec!["ann".to_owned()],
            ..Approvals::default()
        };
        expected.add("pay", Approval::always());
        expected.add("refund", rule.clone());
        assert_eq!(approvals, expected);
        assert_eq!(entry("refund".to_owned(), rule), Some(refund()));
        assert_eq!(
            entry("pay".to_owned(), Approval::always()),
            Some(json!("pay"))
        );
    }

    #[test]
    fn a_rule_without_approvers_uses_the_approvers_of_the_definition() {
        let approvals =
            read_approvals(&json!({"tools": ["pay", refund()], "by": ["ann"]})).unwrap();
        let lists = |tool: &str| {
            let needed = approvals.needed(tool, &json!({"amount": 101}))?;
            Some(needed.people.lists().to_vec())
        };

        assert_eq!(lists("pay"), Some(vec![vec!["ann".to_owned()]]));
        assert_eq!(lists("refund"), Some(vec![vec!["role:finance".to_owned()]]));
        assert_eq!(lists("other"), None);
        assert_eq!(approvals.needed("refund", &json!({"amount": 100})), None);
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_an_error_with_its_path() {
        let with = |field: &str, value: Value| {
            let mut rule = refund();
            rule[field] = value;
            json!({"tools": ["pay", rule]})
        };
        for (approval, named) in [
            (json!(["pay"]), "approval of the agent"),
            (json!({"tools": "pay"}), "approval.tools of"),
            (json!({"tools": [7]}), "approval.tools[0] of"),
            (json!({"by": "ann"}), "approval.by of"),
            (with("tool", json!(7)), "approval.tools[1].tool of"),
            (with("tool", Value::Null), "missing value"),
            (with("by", json!([7])), "approval.tools[1].by of"),
            (
                with("expires_in_seconds", json!(0)),
                "approval.tools[1].expires_in_seconds of",
            ),
            (
                with("when", json!({"path": "$.amount"})),
                "approval.tools[1].when of",
            ),
            (
                with("when", json!([{"path": "$.amount"}])),
                "approval.tools[1].when[0].op of",
            ),
            (
                with(
                    "when",
                    json!([{"path": "$.amount", "op": "gtt", "value": 1}]),
                ),
                "did you mean \"gt\"?",
            ),
        ] {
            let error = read_approvals(&approval).unwrap_err();

            assert!(matches!(error, AgentError::BadApproval { .. }), "{error:?}");
            assert!(error.to_string().contains(named), "{named}: {error}");
        }
    }

    #[test]
    fn an_unknown_field_of_a_rule_or_a_condition_is_an_error() {
        for (approval, named) in [
            (
                json!({"tools": [{"tool": "pay", "expires_in": 60}]}),
                "approval.tools[0].expires_in of",
            ),
            (
                json!({"tools": [{"tool": "pay", "when": [{"path": "$.a", "op": "eq", "valu": 1}]}]}),
                "approval.tools[0].when[0].valu of",
            ),
        ] {
            let error = read_approvals(&approval).unwrap_err();

            assert!(matches!(error, AgentError::UnknownField { .. }), "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
        let commented = json!({"tools": [{"tool": "pay", "comment": "a", "x-team": "b"}]});
        assert_eq!(read_approvals(&commented).unwrap().tools.len(), 1);
    }

    #[test]
    fn the_conditions_of_all_rules_count_for_the_limit_of_a_definition() {
        let condition = json!({"path": "$.a", "op": "matches", "value": "a"});
        let rule = json!({"tool": "pay", "when": vec![condition; 60]});

        let error = read_approvals(&json!({"tools": [rule, rule]})).unwrap_err();

        assert!(error.to_string().contains("regular expressions"), "{error}");
    }
}
