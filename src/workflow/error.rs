use crate::error::{Retry, excerpt};
use crate::model::{
    ConditionError, DefinitionPath, Finding, MAX_DEPTH, Position, Severity, nearest, unknown_field,
};
use serde_json::Value;
use std::fmt;

/// Error of a workflow definition that cannot be used. Names the path to fix, the value and the nearest valid name.
///
/// [`Workflow::from_json`](crate::workflow::Workflow::from_json) and the other readers return the
/// first problem. To get all problems of a definition, use [`Check`](crate::check::Check).
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowLoadError {
    path: DefinitionPath,
    position: Option<Box<Position>>,
    problem: Box<LoadProblem>,
}

/// Problem at a path of a workflow definition.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadProblem {
    /// The text of the workflow definition cannot be parsed as JSON or YAML. This includes duplicate keys in an object, and YAML
    /// features without an equivalent in JSON.
    #[error("{reason}")]
    Syntax {
        /// Message of the JSON or YAML parser.
        reason: String,
    },
    /// The lists and objects of the workflow definition are nested too deeply.
    ///
    /// A definition in YAML has half of this limit.
    #[error("nesting deeper than {MAX_DEPTH} levels is not allowed")]
    TooDeep,
    /// The workflow definition has more items, such as steps or bytes, than a limit allows.
    #[error("{found} {what} where at most {most} are allowed")]
    TooMany {
        /// Kind of the items that a definition has too many of, in the plural, such as `steps` or `bytes`.
        what: &'static str,
        /// Number of the counted items, such as steps or bytes, in the workflow definition.
        found: usize,
        /// Maximum number of the counted items in a definition.
        most: usize,
    },
    /// A value in the definition has the wrong type or is out of range.
    #[error("the value must be {expected}, not {found}")]
    Shape {
        /// Description of the values that are valid at this place in the workflow definition.
        expected: String,
        /// Description of the invalid value in the definition.
        found: String,
    },
    /// A required field of the workflow definition is absent or an empty list.
    ///
    /// The path of the error names the field.
    #[error("missing value; write {expected}")]
    Missing {
        /// Description of the values that are valid for the missing field.
        expected: String,
    },
    /// The workflow definition has an unknown field.
    ///
    /// Rename or remove the field. A field for people can be named `comment`, or start with `x-`.
    #[error("unknown field{}", did_you_mean(nearest.as_deref()))]
    UnknownField {
        /// Name of the known field that is closest to the unknown field.
        nearest: Option<String>,
    },
    /// The workflow definition refers to a name that it does not define.
    ///
    /// Correct the name, or add an entry to the section of the definition. Registered items need an
    /// entry, too.
    #[error("unknown {what} {name:?}{}", or_write_it(what, nearest.as_deref()))]
    UnknownName {
        /// Kind of the item with the unknown name, such as `agent`, `tool` or `variable`.
        what: &'static str,
        /// The name that the workflow definition refers to but does not define.
        name: String,
        /// Name that the workflow definition defines and that is closest to the unknown name.
        nearest: Option<String>,
    },
    /// A name in the workflow definition violates a naming rule.
    #[error("invalid name {name:?}: {reason}")]
    Name {
        /// The name in the workflow definition that is not allowed.
        name: String,
        /// The naming rule that the invalid name violates.
        reason: &'static str,
    },
    /// The fields of an object in the workflow definition exclude each other, or a required choice of fields is missing.
    #[error("{reason}")]
    Fields {
        /// Description of the fields that exclude each other or are missing, and of the correction.
        reason: String,
    },
    /// The text between `${` and `}`, or the path of a condition, cannot be parsed.
    #[error("cannot parse expression {expression:?}: {reason}")]
    Expression {
        /// The text of the invalid expression in the workflow definition.
        expression: String,
        /// Message of the parser of expressions.
        reason: String,
    },
    /// A condition in the workflow definition cannot be compiled, for example because its operator does not exist.
    #[error("{0}")]
    Condition(ConditionError),
    /// Flows, agents or steps of the workflow definition refer to each other in a cycle.
    ///
    /// Flows cannot call themselves. A repetition is a `loop` or a `for_each`.
    #[error("{what} form a cycle: {}; remove one of the references", names.join(" -> "))]
    Cycle {
        /// Kind of the items on the cycle in the plural, such as `flows`, `agents` or `steps`.
        what: &'static str,
        /// Names of the items on the cycle. The first name is repeated at the end.
        names: Vec<String>,
    },
}

impl WorkflowLoadError {
    pub(super) fn new(path: DefinitionPath, problem: LoadProblem) -> Self {
        Self {
            path,
            position: None,
            problem: Box::new(problem),
        }
    }

    pub(super) fn shape(path: DefinitionPath, expected: impl Into<String>, found: &Value) -> Self {
        let expected = expected.into();
        let found = shown(found);
        Self::new(path, LoadProblem::Shape { expected, found })
    }

    pub(super) fn missing(path: DefinitionPath, expected: impl Into<String>) -> Self {
        let expected = expected.into();
        Self::new(path, LoadProblem::Missing { expected })
    }

    pub(super) fn fields(path: DefinitionPath, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::new(path, LoadProblem::Fields { reason })
    }

    pub(super) fn unknown<'n>(
        path: DefinitionPath,
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        let problem = LoadProblem::UnknownName {
            what,
            name: excerpt(name, 80).into_owned(),
            nearest: nearest(name, known).map(str::to_owned),
        };
        Self::new(path, problem)
    }

    /// Sets the line and column of the problem in the definition's text, for a loader that knows them.
    #[must_use]
    pub fn at(mut self, position: Position) -> Self {
        self.position = Some(Box::new(position));
        self
    }

    /// Returns the path of the problem in the definition.
    #[must_use]
    pub fn path(&self) -> &DefinitionPath {
        &self.path
    }

    /// Returns the line and column of the problem in the definition's text, or `None` if they are not known.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        self.position.as_deref()
    }

    /// Returns the problem of the definition, without its path and position.
    #[must_use]
    pub fn problem(&self) -> &LoadProblem {
        &self.problem
    }

    /// Returns [`Retry::Never`]: the workflow definition has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl fmt::Display for WorkflowLoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = &self.position {
            write!(f, "{position}: ")?;
        }
        write!(f, "{}: {}", self.path, self.problem)
    }
}

impl std::error::Error for WorkflowLoadError {}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |name| format!("; did you mean {name:?}?"))
}

/// Returns advice for an unknown name in a definition: the closest defined name, or the section to which to add the name. An
/// entry is needed even if the services register the name.
fn or_write_it(what: &str, nearest: Option<&str>) -> String {
    const SECTIONS: [&str; 6] = ["agent", "flow", "model", "prompt", "schema", "tool"];
    match nearest {
        None if SECTIONS.contains(&what) => {
            format!("; add it to the section \"{what}s\" of the definition")
        }
        None | Some(_) => did_you_mean(nearest),
    }
}

/// Formats a value of a workflow definition for an error message.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("a list of {} items", items.len()),
        Value::Object(fields) => format!("an object of {} fields", fields.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            excerpt(&value.to_string(), 80).into_owned()
        }
    }
}

/// Warning about a workflow definition that loads but is probably wrong.
///
/// A warning does not prevent a run. [`Workflow::warnings`](crate::workflow::Workflow::warnings)
/// returns the warnings, and its `Display` has the position, the path and the problem.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::workflow::{Oddity, Workflow};
///
/// let workflow = Workflow::from_json(&json!({
///     "tools": {"search": {}},
///     "flows": {"main": {"steps": [{"return": 1}]}},
/// }))?;
/// let warning = &workflow.warnings()[0];
/// assert!(matches!(&warning.oddity, Oddity::Unused { what: "tool", name } if name == "search"));
/// # Ok::<(), universal_executor::workflow::WorkflowLoadError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkflowWarning {
    /// Path of the problem in the workflow definition.
    pub path: DefinitionPath,
    /// Line and column of the problem in the definition's text, or `None` if they are not known.
    pub position: Option<Position>,
    /// Kind of the problem, with the names that it concerns.
    pub oddity: Oddity,
}

impl WorkflowWarning {
    pub(crate) fn new(path: DefinitionPath, oddity: Oddity) -> Self {
        Self {
            path,
            position: None,
            oddity,
        }
    }
}

/// Problem of a workflow definition that does not prevent its use.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Oddity {
    /// An entry of the definition, such as a tool, is unused: no other part refers to it.
    Unused {
        /// Kind of the unused entry, such as `agent` or `tool`.
        what: &'static str,
        /// Name of the unused entry.
        name: String,
    },
    /// The step is unreachable, because the step before it always ends the list of steps.
    Unreachable,
    /// The `history` of an agent has no effect, because the agent runs without a session.
    NoSession,
    /// A variable of a branch hides a variable of the same name outside of the branch. The outer variable keeps its value.
    Shadowed {
        /// Name of the variable that is hidden.
        name: String,
    },
    /// The workflow definition has an unknown field. The unknown field has no effect. In strict mode this is an error.
    UnknownField {
        /// Name of the unknown field.
        name: String,
        /// Known fields that the author can mean instead of the unknown one.
        nearest: Vec<&'static str>,
    },
}

impl WorkflowWarning {
    /// Converts the warning to a [`Finding`], the common form of all errors and warnings about a definition.
    pub(crate) fn finding(&self) -> Finding {
        let mut finding = Finding::warning(self.path.clone(), self.oddity.to_string());
        finding.position.clone_from(&self.position);
        finding
    }
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unused { what, name } => write!(f, "the {what} {name:?} is not used"),
            Self::Unreachable => {
                f.write_str("unreachable step: the previous step always ends the list")
            }
            Self::NoSession => {
                f.write_str("has no effect: without a session there are no earlier messages")
            }
            Self::Shadowed { name } => write!(
                f,
                "{name:?} hides an outer variable of the same name, whose value does not change"
            ),
            Self::UnknownField { name, nearest } => {
                f.write_str(&unknown_field(Severity::Warning, name, nearest))
            }
        }
    }
}

impl fmt::Display for WorkflowWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = &self.position {
            write!(f, "{position}: ")?;
        }
        write!(f, "{}: {}", self.path, self.oddity)
    }
}
