use crate::error::{Retry, excerpt};
use crate::model::{
    ConditionError, DefinitionPath, Finding, MAX_DEPTH, Position, Severity, nearest, unknown_field,
};
use serde_json::Value;
use std::fmt;

/// A workflow definition cannot be used. The error has the details to fix it: the path, the value and the nearest valid name.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkflowLoadError {
    path: DefinitionPath,
    position: Option<Box<Position>>,
    problem: Box<LoadProblem>,
}

/// The problem at a path of a definition.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadProblem {
    /// The text is not JSON or YAML, has an object with a key twice, or has YAML that JSON does not have.
    #[error("{reason}")]
    Syntax {
        /// The message of the parser.
        reason: String,
    },
    /// The definition nests too deep.
    #[error("it nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// There is more of something than may be.
    #[error("{found} {what} where at most {most} are allowed")]
    TooMany {
        /// What there is too much of, in the plural.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// The most that is allowed.
        most: usize,
    },
    /// The value has the wrong type or is out of range.
    #[error("it must be {expected}, not {found}")]
    Shape {
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The field is absent and has no default.
    #[error("it is missing; write {expected}")]
    Missing {
        /// What to write.
        expected: String,
    },
    /// There is no such field.
    #[error("there is no such field{}", did_you_mean(nearest.as_deref()))]
    UnknownField {
        /// The closest field that exists.
        nearest: Option<String>,
    },
    /// Something is named that the definition does not have.
    #[error("there is no {what} {name:?}{}", or_write_it(what, nearest.as_deref()))]
    UnknownName {
        /// What kind of thing: `agent`, `tool`, `variable`.
        what: &'static str,
        /// The name found.
        name: String,
        /// The closest name that exists.
        nearest: Option<String>,
    },
    /// A name that cannot be used here.
    #[error("{name:?} cannot be a name here: {reason}")]
    Name {
        /// The name found.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// The fields of an object do not go together.
    #[error("{reason}")]
    Fields {
        /// Which, and what would do.
        reason: String,
    },
    /// The text between `${` and `}` cannot be read.
    #[error("{expression:?} cannot be read: {reason}")]
    Expression {
        /// The text found.
        expression: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A condition cannot be evaluated.
    #[error("{0}")]
    Condition(ConditionError),
    /// Things lead back to themselves.
    #[error("{what} go round in a circle: {}", names.join(" -> "))]
    Cycle {
        /// What goes round, in the plural: `flows`, `agents`, `steps`.
        what: &'static str,
        /// Those on the circle; the first is the last as well.
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

    /// Says where in the text it is; for loaders, which know lines and columns.
    #[must_use]
    pub fn at(mut self, position: Position) -> Self {
        self.position = Some(Box::new(position));
        self
    }

    /// Where in the definition it is.
    #[must_use]
    pub fn path(&self) -> &DefinitionPath {
        &self.path
    }

    /// Where in the text it is, if a loader said so.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        self.position.as_deref()
    }

    /// What is wrong there.
    #[must_use]
    pub fn problem(&self) -> &LoadProblem {
        &self.problem
    }

    /// Always [`Retry::Never`]: the definition has to change.
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

/// What would do in the place of a name that is not there. That a service has registered it is not enough: the definition has
/// to list what it names.
fn or_write_it(what: &str, nearest: Option<&str>) -> String {
    const SECTIONS: [&str; 6] = ["agent", "flow", "model", "prompt", "schema", "tool"];
    match nearest {
        None if SECTIONS.contains(&what) => {
            format!("; the definition has to have it in \"{what}s\"")
        }
        None | Some(_) => did_you_mean(nearest),
    }
}

/// A value for an error message.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("a list of {} items", items.len()),
        Value::Object(fields) => format!("an object of {} fields", fields.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            excerpt(&value.to_string(), 80).into_owned()
        }
    }
}

/// Something odd in a definition that can be used all the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkflowWarning {
    /// Where it is.
    pub path: DefinitionPath,
    /// Where in the text it is, if a loader said so.
    pub position: Option<Position>,
    /// What is odd.
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

/// What is odd in a definition.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Oddity {
    /// Nothing refers to it.
    Unused {
        /// What kind of thing: `agent`, `tool`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// No run gets here, because the step before always leaves the list.
    Unreachable,
    /// It asks for a part of a conversation, and is run without a session that would have one.
    NoSession,
    /// A variable of this name exists outside, and stays there as it is.
    Shadowed {
        /// The variable.
        name: String,
    },
    /// The field does not exist, so it has no effect. In strict mode this is an error.
    UnknownField {
        /// The name of the field.
        name: String,
        /// The fields that the author can mean.
        nearest: Vec<&'static str>,
    },
}

impl WorkflowWarning {
    /// Returns the warning as a finding of a check.
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
            Self::Unreachable => f.write_str("no run gets to this step"),
            Self::NoSession => {
                f.write_str("there is no session here to show messages of, so nothing is shown")
            }
            Self::Shadowed { name } => write!(
                f,
                "{name:?} hides a variable of the same name, which does not change with it"
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
