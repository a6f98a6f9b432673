//! Expressions of workflow definitions. An expression is a JSON value with `${path}` references, or a condition on variables.

mod reference;
mod test;
mod text;

pub(super) use reference::Reference;
pub(super) use test::Test;

use super::error::WorkflowLoadError;
use super::model_input::{ModelInput, TextPart};
use crate::model::DefinitionPath;
use crate::model::{Json, Path, PathError, size_within};
use serde_json::{Map, Value};
use text::Part;

/// A compiled JSON value of a workflow definition that can contain variables.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    /// An expression that is a value without variables.
    Literal(Json),
    /// An expression that is a string with only one `${path}`. The result has the type of the referenced value.
    Reference(Reference),
    /// An expression that is a string with variables in it.
    Text(Vec<Part>),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// Access to the values of a flow's variables, with limits on JSONPath searches and regular expressions.
pub(super) trait Variables {
    fn get(&self, name: &str) -> Option<Json>;

    /// Charges a JSONPath search in a value to the flow run's work budget, before the search.
    ///
    /// # Errors
    /// Returns [`Unresolved::Searches`] if the search takes too many steps.
    fn search(&self, path: &Path, value: &Value) -> Result<(), Unresolved>;

    /// Charges the compilation of a regular expression with variables to the flow run's work budget.
    ///
    /// # Errors
    /// Returns [`Unresolved::Patterns`] if the run has compiled too many.
    fn compile_pattern(&self) -> Result<(), Unresolved>;
}

/// Reason why an expression in a flow has no value.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unresolved {
    #[error("{0} has no value; write ? before the closing brace if the value is optional")]
    Missing(String),
    #[error("{0}")]
    Path(PathError),
    #[error("a value of the flow is larger than {0} bytes or nests too deep; use a smaller value")]
    TooLarge(usize),
    #[error(
        "the JSONPaths of the step take more than {0} steps to search values; search smaller values, or use only names and indexes"
    )]
    Searches(usize),
    #[error(
        "the run would compile more than {0} regular expressions with variables in them; write patterns without variables, or compare with another operator"
    )]
    Patterns(u64),
    #[error("cannot evaluate a condition of the step: {0}")]
    Condition(crate::model::ConditionError),
}

/// Maximum depth of nested lists and objects in a value of a flow. A store accepts 64 levels, and the saved state around the value needs
/// some of them.
pub(super) const DEPTH: usize = 48;

impl Expression {
    /// Compiles a JSON value of a workflow definition into an expression. The caller has checked its depth.
    pub(super) fn compile(
        value: &Value,
        location: &DefinitionPath,
    ) -> Result<Self, WorkflowLoadError> {
        let compiled = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::literal(value),
            Value::String(text) => match text::parse(text, location)? {
                text::Parsed::Plain(text) => Self::literal(&Value::String(text)),
                text::Parsed::Reference(reference) => Self::Reference(reference),
                text::Parsed::Parts(parts) => Self::Text(parts),
            },
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let items: Vec<_> = items
                    .map(|(at, item)| Self::compile(item, &location.item(at)))
                    .collect::<Result<_, _>>()?;
                Self::List(items)
            }
            Value::Object(fields) => {
                let fields = fields.iter();
                let fields: Vec<_> = fields
                    .map(|(name, field)| {
                        let compiled = Self::compile(field, &location.field(name))?;
                        Ok((name.clone(), compiled))
                    })
                    .collect::<Result<_, WorkflowLoadError>>()?;
                Self::Object(fields)
            }
        };
        Ok(compiled.folded())
    }

    pub(super) fn literal(value: &Value) -> Self {
        Self::Literal(value.clone().into())
    }

    /// Converts an expression that is a list or object without variables to a literal.
    fn folded(self) -> Self {
        match self {
            Self::List(items) => match items.iter().map(Self::as_literal).collect() {
                Some(items) => Self::Literal(Value::Array(items).into()),
                None => Self::List(items),
            },
            Self::Object(fields) => {
                let literals = fields.iter();
                let literals: Option<Map<_, _>> = literals
                    .map(|(name, field)| Some((name.clone(), field.as_literal()?)))
                    .collect();
                match literals {
                    Some(fields) => Self::Literal(Value::Object(fields).into()),
                    None => Self::Object(fields),
                }
            }
            other @ (Self::Literal(_) | Self::Reference(_) | Self::Text(_)) => other,
        }
    }

    /// Returns the string in a field of an expression that is an object, or `None` if the field is absent, has variables or is not a
    /// string.
    pub(super) fn literal_field(&self, field: &str) -> Option<String> {
        let found = match self {
            Self::Literal(json) => json.get(field).cloned(),
            Self::Object(fields) => {
                let found = fields.iter().find(|(name, _)| name == field);
                found.and_then(|(_, value)| value.as_literal())
            }
            Self::Reference(_) | Self::Text(_) | Self::List(_) => None,
        };
        found?.as_str().map(str::to_owned)
    }

    /// Returns `true` if the expression evaluates to a value that already exists and is not copied. A literal of the definition
    /// and the value of a whole variable are shared.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Self::Literal(_) => true,
            Self::Reference(reference) => reference.is_whole_variable(),
            Self::Text(_) | Self::List(_) | Self::Object(_) => false,
        }
    }

    fn as_literal(&self) -> Option<Value> {
        match self {
            Self::Literal(json) => Some((**json).clone()),
            Self::Reference(_) | Self::Text(_) | Self::List(_) | Self::Object(_) => None,
        }
    }

    /// Returns the value of the expression, or an error if the value has more than `most` bytes. The value of a whole variable is shared,
    /// not copied.
    pub(super) fn resolve(
        &self,
        variables: &dyn Variables,
        most: usize,
    ) -> Result<Json, Unresolved> {
        let json = match self {
            Self::Literal(json) => json.clone(),
            Self::Reference(reference) => reference.resolve(variables)?,
            Self::Text(_) | Self::List(_) | Self::Object(_) => {
                let mut remaining = RemainingSize { bytes: most, most };
                self.build(variables, &mut remaining)?.into()
            }
        };
        flow_value(json, most)
    }

    /// Returns the input of a step that calls a model, with the text of the workflow definition and the values of variables as
    /// separate parts. Both together have at most `most` bytes.
    pub(super) fn model_input(
        &self,
        variables: &dyn Variables,
        most: usize,
    ) -> Result<ModelInput, Unresolved> {
        let text = match self {
            Self::Literal(json) => json.as_str().map(str::to_owned),
            Self::Text(parts) => {
                let mut remaining = RemainingSize { bytes: most, most };
                return text::parts(parts, variables, &mut remaining).map(ModelInput::Text);
            }
            Self::Reference(_) | Self::List(_) | Self::Object(_) => None,
        };
        let value = self.resolve(variables, most)?;
        Ok(match text {
            Some(text) => ModelInput::Text(vec![TextPart::Text(text)]),
            None => ModelInput::Data(value),
        })
    }

    fn build(
        &self,
        variables: &dyn Variables,
        remaining: &mut RemainingSize,
    ) -> Result<Value, Unresolved> {
        Ok(match self {
            Self::Literal(json) => remaining.copy(json)?,
            Self::Reference(reference) => {
                let value = reference.resolve(variables)?;
                remaining.copy(&value)?
            }
            Self::Text(parts) => Value::String(text::render(parts, variables, remaining)?),
            Self::List(items) => items
                .iter()
                .map(|item| item.build(variables, remaining))
                .collect::<Result<Vec<_>, _>>()?
                .into(),
            Self::Object(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(name, field)| {
                    remaining.take(name.len())?;
                    Ok((name.clone(), field.build(variables, remaining)?))
                });
                Value::Object(fields.collect::<Result<_, Unresolved>>()?)
            }
        })
    }

    /// Calls a function with the name of each variable in the expression.
    pub(super) fn each_variable(&self, visit: &mut dyn FnMut(&str)) {
        match self {
            Self::Literal(_) => {}
            Self::Reference(reference) => visit(reference.variable()),
            Self::Text(parts) => text::each_variable(parts, visit),
            Self::List(items) => items.iter().for_each(|item| item.each_variable(visit)),
            Self::Object(fields) => {
                let fields = fields.iter();
                fields.for_each(|(_, field)| field.each_variable(visit));
            }
        }
    }
}

/// Returns the value if it has at most `most` bytes and is nested no deeper than [`DEPTH`], otherwise an error.
pub(super) fn flow_value(json: Json, most: usize) -> Result<Json, Unresolved> {
    match size_within(&json, DEPTH) {
        Ok(size) if size <= most => Ok(json),
        Ok(_) | Err(_) => Err(Unresolved::TooLarge(most)),
    }
}

/// The number of bytes that can still be copied into a value of an expression that is being built.
struct RemainingSize {
    bytes: usize,
    most: usize,
}

impl RemainingSize {
    fn take(&mut self, bytes: usize) -> Result<(), Unresolved> {
        match self.bytes.checked_sub(bytes) {
            Some(bytes_left) => {
                self.bytes = bytes_left;
                Ok(())
            }
            None => Err(Unresolved::TooLarge(self.most)),
        }
    }

    fn take_value(&mut self, value: &Value) -> Result<(), Unresolved> {
        let size = size_within(value, DEPTH).map_err(|_| Unresolved::TooLarge(self.most))?;
        self.take(size)
    }

    fn copy(&mut self, value: &Value) -> Result<Value, Unresolved> {
        self.take_value(value)?;
        Ok(value.clone())
    }
}

#[cfg(test)]
mod tests;
