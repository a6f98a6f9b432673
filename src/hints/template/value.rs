//! Values during the rendering of a template, as references to parts of the context or the template.

use crate::hints::budget::{Budget, Text};
use crate::hints::error::HintsReason;
use serde_json::{Number, Value};
use std::cmp::Ordering;

/// Number of string bytes whose comparison or counting costs one computation step of the `llm_hints` budget.
const BYTES_PER_STEP: usize = 256;

/// Value of an expression while a template is rendered.
#[derive(Clone, Copy)]
pub(super) enum TemplateValue<'v> {
    Missing,
    /// The root object of a template, whose only field `context` is the contained JSON value.
    Root(&'v Value),
    Value(&'v Value),
    Count(usize),
    Bool(bool),
    Name(&'v str),
}

impl<'v> TemplateValue<'v> {
    /// Returns the member of a template value with this name: an object field, a list item by its index, or the `length` of a
    /// list or string.
    pub(super) fn member(self, name: &str, budget: &mut Budget) -> Result<Self, HintsReason> {
        budget.step(1 + name.len() / BYTES_PER_STEP)?;
        Ok(match self {
            Self::Root(context) if name == "context" => Self::Value(context),
            Self::Value(Value::Object(fields)) => {
                fields.get(name).map_or(Self::Missing, Self::Value)
            }
            Self::Value(Value::Array(_) | Value::String(_)) | Self::Name(_) if name == "length" => {
                self.length(budget)?
            }
            Self::Value(Value::Array(items)) => match name.parse() {
                Ok(index) => items.get::<usize>(index).map_or(Self::Missing, Self::Value),
                Err(_) => Self::Missing,
            },
            Self::Value(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_))
            | Self::Root(_)
            | Self::Missing
            | Self::Count(_)
            | Self::Bool(_)
            | Self::Name(_) => Self::Missing,
        })
    }

    /// Returns the object field or the list item that `key` names in a template value, where `key` is a template value itself.
    pub(super) fn lookup(self, key: Self, budget: &mut Budget) -> Result<Self, HintsReason> {
        match (key, self) {
            (Self::Name(name), _) => self.member(name, budget),
            (Self::Value(Value::String(name)), _) => self.member(name, budget),
            (key, Self::Value(Value::Array(items))) => {
                let item = key.index_value().and_then(|index| items.get(index));
                Ok(item.map_or(Self::Missing, Self::Value))
            }
            (_, _) => Ok(Self::Missing),
        }
    }

    /// Returns the length of a template value: the number of list items, object fields or string characters, or 0 for other
    /// values.
    pub(super) fn length(self, budget: &mut Budget) -> Result<Self, HintsReason> {
        Ok(match self {
            Self::Value(Value::Array(items)) => Self::Count(items.len()),
            Self::Value(Value::Object(fields)) => Self::Count(fields.len()),
            Self::Value(Value::String(text)) => Self::Count(count_characters(text, budget)?),
            Self::Name(text) => Self::Count(count_characters(text, budget)?),
            Self::Root(_) => Self::Count(1),
            Self::Value(Value::Null | Value::Bool(_) | Value::Number(_))
            | Self::Missing
            | Self::Count(_)
            | Self::Bool(_) => Self::Count(0),
        })
    }

    pub(super) fn is_true(self, zero_is_true: bool) -> bool {
        match self {
            Self::Missing | Self::Value(Value::Null) => false,
            Self::Root(_) => true,
            Self::Bool(truth) | Self::Value(&Value::Bool(truth)) => truth,
            Self::Count(count) => zero_is_true || count != 0,
            Self::Value(Value::Number(number)) => zero_is_true || number.as_f64() != Some(0.0),
            Self::Name(text) => !text.is_empty(),
            Self::Value(Value::String(text)) => !text.is_empty(),
            Self::Value(Value::Array(items)) => !items.is_empty(),
            Self::Value(Value::Object(fields)) => !fields.is_empty(),
        }
    }

    pub(super) fn show(self, out: &mut Text<'_>) -> Result<(), HintsReason> {
        match self {
            Self::Missing => Ok(()),
            Self::Value(value) => out.show(value),
            Self::Count(count) => out.print(count),
            Self::Bool(truth) => out.print(truth),
            Self::Name(name) => out.push(name),
            Self::Root(context) => {
                out.push("{\"context\":")?;
                out.print(context)?;
                out.push("}")
            }
        }
    }

    /// Returns `true` if two template values are equal as JSON. Numbers compare by value, and a missing value equals null.
    pub(super) fn equals(self, right: Self, budget: &mut Budget) -> Result<bool, HintsReason> {
        if let (Self::Value(left), Self::Value(right)) = (self, right) {
            return equal(left, right, budget);
        }
        if let (Self::Root(_), Self::Root(_)) | (Self::Missing, Self::Missing) = (self, right) {
            return Ok(true);
        }
        Ok(match (self.scalar(), right.scalar()) {
            (Some(left), Some(right)) => left.order(&right, budget)? == Some(Ordering::Equal),
            (_, _) => matches!(
                (self, right),
                (Self::Missing, Self::Value(Value::Null))
                    | (Self::Value(Value::Null), Self::Missing)
            ),
        })
    }

    /// Compares two template values, and returns `None` unless both are numbers, both are strings or both are booleans.
    pub(super) fn order(
        self,
        right: Self,
        budget: &mut Budget,
    ) -> Result<Option<Ordering>, HintsReason> {
        match (self.scalar(), right.scalar()) {
            (Some(left), Some(right)) => left.order(&right, budget),
            (_, _) => Ok(None),
        }
    }

    fn index_value(self) -> Option<usize> {
        match self {
            Self::Count(count) => Some(count),
            Self::Value(Value::Number(number)) => usize::try_from(number.as_u64()?).ok(),
            Self::Value(
                Value::Null
                | Value::Bool(_)
                | Value::String(_)
                | Value::Array(_)
                | Value::Object(_),
            )
            | Self::Missing
            | Self::Root(_)
            | Self::Bool(_)
            | Self::Name(_) => None,
        }
    }

    fn scalar(self) -> Option<Scalar<'v>> {
        match self {
            Self::Count(count) => Some(Scalar::Number(count.into())),
            Self::Bool(truth) | Self::Value(&Value::Bool(truth)) => Some(Scalar::Bool(truth)),
            Self::Name(text) => Some(Scalar::Text(text)),
            Self::Value(Value::String(text)) => Some(Scalar::Text(text)),
            Self::Value(Value::Number(number)) => Some(Scalar::Number(number.clone())),
            Self::Missing
            | Self::Root(_)
            | Self::Value(Value::Null | Value::Array(_) | Value::Object(_)) => None,
        }
    }
}

enum Scalar<'v> {
    Number(Number),
    Text(&'v str),
    Bool(bool),
}

impl Scalar<'_> {
    fn order(&self, right: &Self, budget: &mut Budget) -> Result<Option<Ordering>, HintsReason> {
        Ok(match (self, right) {
            (Self::Number(left), Self::Number(right)) => numbers(left, right),
            (Self::Text(left), Self::Text(right)) => {
                budget.step(left.len().min(right.len()) / BYTES_PER_STEP)?;
                Some(left.cmp(right))
            }
            (Self::Bool(left), Self::Bool(right)) => Some(left.cmp(right)),
            (Self::Number(_) | Self::Text(_) | Self::Bool(_), _) => None,
        })
    }
}

fn numbers(left: &Number, right: &Number) -> Option<Ordering> {
    let whole = |number: &Number| {
        let unsigned = number.as_u64().map(i128::from);
        unsigned.or_else(|| number.as_i64().map(i128::from))
    };
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (_, _) => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn equal(left: &Value, right: &Value, budget: &mut Budget) -> Result<bool, HintsReason> {
    budget.step(1)?;
    match (left, right) {
        (Value::Array(left_values), Value::Array(right_values)) => {
            if left_values.len() != right_values.len() {
                return Ok(false);
            }
            for (left, right) in left_values.iter().zip(right_values) {
                if !equal(left, right, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Object(left_values), Value::Object(right_values)) => {
            if left_values.len() != right_values.len() {
                return Ok(false);
            }
            for (name, left) in left_values {
                budget.step(name.len() / BYTES_PER_STEP)?;
                match right_values.get(name) {
                    Some(right) if equal(left, right, budget)? => {}
                    Some(_) | None => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::Null, Value::Null) => Ok(true),
        (_, _) => {
            let order = TemplateValue::Value(left).order(TemplateValue::Value(right), budget)?;
            Ok(order == Some(Ordering::Equal))
        }
    }
}

fn count_characters(text: &str, budget: &mut Budget) -> Result<usize, HintsReason> {
    budget.step(text.len() / BYTES_PER_STEP)?;
    Ok(text.chars().count())
}
