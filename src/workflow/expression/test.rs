use super::reference::split;
use super::{Expression, Unresolved, Variables};
use crate::error::excerpt;
use crate::model::{Condition, DefinitionPath};
use crate::workflow::error::{LoadProblem, WorkflowLoadError};
use crate::workflow::syntax::{self, Written};
use serde_json::{Map, Value};

/// A compiled condition on the variables of a flow: one comparison, or `all`, `any` or `not` of conditions.
#[derive(Clone, Debug)]
pub(in crate::workflow) enum Test {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Holds(Box<Comparison>),
}

/// Maximum size in bytes of a condition's comparison value after its variables are replaced by their values.
const VALUE_BYTES: usize = 64 << 10;

/// A compiled comparison of one variable of a flow with a value.
#[derive(Clone, Debug)]
pub(in crate::workflow) struct Comparison {
    variable: String,
    /// Condition to evaluate on the value of the compared variable, if this variable exists.
    within: Condition,
    /// Condition to evaluate on an empty object instead, if the compared variable is absent.
    absent: Condition,
    /// Expression for the value to compare the variable with, or `None` if this value contains no variables.
    value: Option<Expression>,
}

impl Test {
    pub(in crate::workflow) fn compile(written: &Written<'_>) -> Result<Self, WorkflowLoadError> {
        let all = |field: &str| {
            let conditions = written.list(field)?;
            let conditions = conditions.iter().map(Self::compile);
            conditions.collect::<Result<Vec<_>, WorkflowLoadError>>()
        };
        Ok(match syntax::Condition::read(written)? {
            syntax::Condition::All(_) => Self::All(all("all")?),
            syntax::Condition::Any(_) => Self::Any(all("any")?),
            syntax::Condition::Not(_) => Self::Not(Box::new(Self::of_field(written, "not")?)),
            syntax::Condition::Path(one) => {
                let (path, value) = (&written.path, one.value.as_ref());
                let one = Comparison::compile(&one.path, &one.op, value, path)?;
                Self::Holds(Box::new(one))
            }
        })
    }

    /// Compiles the condition in a required field of a step, of an escalation, or of another condition such as `not`.
    pub(in crate::workflow) fn of_field(
        written: &Written<'_>,
        field: &str,
    ) -> Result<Self, WorkflowLoadError> {
        match written.field(field) {
            Some(condition) => Self::compile(&condition),
            None => {
                let location = written.path.field(field);
                Err(WorkflowLoadError::missing(location, "a condition"))
            }
        }
    }

    /// Compiles a condition that compares a variable with a constant value.
    pub(in crate::workflow) fn of_variable(
        variable: &str,
        path: &str,
        op: &str,
        value: Option<&Value>,
        location: &DefinitionPath,
    ) -> Result<Self, WorkflowLoadError> {
        let rest = path.trim();
        let rest = rest.strip_prefix('$').unwrap_or(rest);
        let dot = if rest.is_empty() || rest.starts_with(['.', '[']) {
            ""
        } else {
            "."
        };
        let one = Comparison::new(variable, &format!("{dot}{rest}"), op, value, location)?;
        Ok(Self::Holds(Box::new(one)))
    }

    pub(in crate::workflow) fn holds(&self, variables: &dyn Variables) -> Result<bool, Unresolved> {
        Ok(match self {
            Self::All(tests) => {
                for test in tests {
                    if !test.holds(variables)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Any(tests) => {
                for test in tests {
                    if test.holds(variables)? {
                        return Ok(true);
                    }
                }
                false
            }
            Self::Not(test) => !test.holds(variables)?,
            Self::Holds(one) => one.holds(variables)?,
        })
    }

    /// Calls a function with the name of each variable in the condition.
    pub(in crate::workflow) fn each_variable(&self, visit: &mut dyn FnMut(&str)) {
        match self {
            Self::All(tests) | Self::Any(tests) => {
                tests.iter().for_each(|test| test.each_variable(visit));
            }
            Self::Not(test) => test.each_variable(visit),
            Self::Holds(one) => {
                visit(&one.variable);
                if let Some(value) = &one.value {
                    value.each_variable(visit);
                }
            }
        }
    }
}

impl Comparison {
    fn compile(
        path: &str,
        op: &str,
        value: Option<&Value>,
        location: &DefinitionPath,
    ) -> Result<Self, WorkflowLoadError> {
        let (variable, rest) = split(path).map_err(|reason| {
            let expression = excerpt(path, 80).into_owned();
            let problem = LoadProblem::Expression { expression, reason };
            WorkflowLoadError::new(location.field("path"), problem)
        })?;
        let value = value
            .map(|value| Expression::compile(value, &location.field("value")))
            .transpose()?;
        match value {
            None => Self::new(variable, rest, op, None, location),
            Some(Expression::Literal(value)) => {
                Self::new(variable, rest, op, Some(&value), location)
            }
            // The value is not known yet. A placeholder that every operator accepts lets the other parts be checked.
            Some(value) => {
                let stand_in = Value::Bool(true);
                let mut one = Self::new(variable, rest, op, Some(&stand_in), location)?;
                one.value = Some(value);
                Ok(one)
            }
        }
    }

    fn new(
        variable: &str,
        rest: &str,
        op: &str,
        value: Option<&Value>,
        location: &DefinitionPath,
    ) -> Result<Self, WorkflowLoadError> {
        let compile = |path: String| {
            let condition = Condition::new(path, op, value.cloned());
            match condition.error() {
                None => Ok(condition),
                Some(error) => {
                    let location = location.field(error.field());
                    Err(WorkflowLoadError::new(
                        location,
                        LoadProblem::Condition(error.clone()),
                    ))
                }
            }
        };
        Ok(Self {
            variable: variable.to_owned(),
            within: compile(format!("${rest}"))?,
            absent: compile(format!("$['{variable}']{rest}"))?,
            value: None,
        })
    }

    fn holds(&self, variables: &dyn Variables) -> Result<bool, Unresolved> {
        let found = variables.get(&self.variable);
        let condition = match found {
            Some(_) => &self.within,
            None => &self.absent,
        };
        let nothing = Value::Object(Map::new());
        let context = found.as_deref().unwrap_or(&nothing);
        if let Some(path) = condition.search_path() {
            variables.search(path, context)?;
        }
        let Some(value) = &self.value else {
            return Ok(condition.holds(context));
        };
        let value = value.resolve(variables, VALUE_BYTES)?.into_value();
        if condition.has_regex() {
            variables.compile_pattern()?;
        }
        let condition = condition.with_value(value);
        match condition.error() {
            None => Ok(condition.holds(context)),
            Some(error) => Err(Unresolved::Condition(error.clone())),
        }
    }
}
