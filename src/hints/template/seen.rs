//! Values during the rendering of a template, as references to parts of the context or the template.

use crate::hints::budget::{Budget, Text};
use crate::hints::error::HintsReason;
use serde_json::{Number, Value};
use std::cmp::Ordering;

/// Number of string bytes to compare or count for one step of the hint budget.
const BYTES_A_STEP: usize = 256;

/// Value of an expression while a template is rendered.
#[derive(Clone, Copy)]
pub(super) enum Seen<'v> {
    Nothing,
    /// The root object of the template. The root has the field `context`, with the contained JSON value.
    Root(&'v Value),
    Value(&'v Value),
    Count(usize),
    Truth(bool),
    Name(&'v str),
}

impl<'v> Seen<'v> {
    /// Returns the member of this value with a name: a field, an item by its index, or the `length` of a list or a string.
    pub(super) fn member(self, name: &str, budget: &mut Budget) -> Result<Self, HintsReason> {
        budget.step(1 + name.len() / BYTES_A_STEP)?;
        Ok(match self {
            Self::Root(context) if name == "context" => Self::Value(context),
            Self::Value(Value::Object(fields)) => {
                fields.get(name).map_or(Self::Nothing, Self::Value)
            }
            Self::Value(Value::Array(_) | Value::String(_)) | Self::Name(_) if name == "length" => {
                self.length(budget)?
            }
            Self::Value(Value::Array(items)) => match name.parse() {
                Ok(index) => items.get::<usize>(index).map_or(Self::Nothing, Self::Value),
                Err(_) => Self::Nothing,
            },
            Self::Value(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_))
            | Self::Root(_)
            | Self::Nothing
            | Self::Count(_)
            | Self::Truth(_)
            | Self::Name(_) => Self::Nothing,
        })
    }

    /// Returns the member of this value with the name or the index in `key`.
    pub(super) fn lookup(self, key: Self, budget: &mut Budget) -> Result<Self, HintsReason> {
        match (key, self) {
            (Self::Name(name), _) => self.member(name, budget),
            (Self::Value(Value::String(name)), _) => self.member(name, budget),
            (key, Self::Value(Value::Array(items))) => {
                let item = key.whole().and_then(|index| items.get(index));
                Ok(item.map_or(Self::Nothing, Self::Value))
            }
            (_, _) => Ok(Self::Nothing),
        }
    }

    /// Returns the number of items, fields or characters of this value.
    pub(super) fn length(self, budget: &mut Budget) -> Result<Self, HintsReason> {
        Ok(match self {
            Self::Value(Value::Array(items)) => Self::Count(items.len()),
            Self::Value(Value::Object(fields)) => Self::Count(fields.len()),
            Self::Value(Value::String(text)) => Self::Count(characters(text, budget)?),
            Self::Name(text) => Self::Count(characters(text, budget)?),
            Self::Root(_) => Self::Count(1),
            Self::Value(Value::Null | Value::Bool(_) | Value::Number(_))
            | Self::Nothing
            | Self::Count(_)
            | Self::Truth(_) => Self::Count(0),
        })
    }

    pub(super) fn is_true(self, zero: bool) -> bool {
        match self {
            Self::Nothing | Self::Value(Value::Null) => false,
            Self::Root(_) => true,
            Self::Truth(truth) | Self::Value(&Value::Bool(truth)) => truth,
            Self::Count(count) => zero || count != 0,
            Self::Value(Value::Number(number)) => zero || number.as_f64() != Some(0.0),
            Self::Name(text) => !text.is_empty(),
            Self::Value(Value::String(text)) => !text.is_empty(),
            Self::Value(Value::Array(items)) => !items.is_empty(),
            Self::Value(Value::Object(fields)) => !fields.is_empty(),
        }
    }

    pub(super) fn show(self, out: &mut Text<'_>) -> Result<(), HintsReason> {
        match self {
            Self::Nothing => Ok(()),
            Self::Value(value) => out.show(value),
            Self::Count(count) => out.print(count),
            Self::Truth(truth) => out.print(truth),
            Self::Name(name) => out.push(name),
            Self::Root(context) => {
                out.push("{\"context\":")?;
                out.print(context)?;
                out.push("}")
            }
        }
    }

    /// Returns `true` if two template values are equal as JSON. Numbers compare by value, and a missing value equals null.
    pub(super) fn equals(self, other: Self, budget: &mut Budget) -> Result<bool, HintsReason> {
        if let (Self::Value(one), Self::Value(other)) = (self, other) {
            return equal(one, other, budget);
        }
        if let (Self::Root(_), Self::Root(_)) | (Self::Nothing, Self::Nothing) = (self, other) {
            return Ok(true);
        }
        Ok(match (self.scalar(), other.scalar()) {
            (Some(one), Some(other)) => one.order(&other, budget)? == Some(Ordering::Equal),
            (_, _) => matches!(
                (self, other),
                (Self::Nothing, Self::Value(Value::Null))
                    | (Self::Value(Value::Null), Self::Nothing)
            ),
        })
    }

    /// Returns the order of two template values if both are numbers, both are strings or both are booleans. Values with different types
    /// have no order.
    pub(super) fn order(
        self,
        other: Self,
        budget: &mut Budget,
    ) -> Result<Option<Ordering>, HintsReason> {
        match (self.scalar(), other.scalar()) {
            (Some(one), Some(other)) => one.order(&other, budget),
            (_, _) => Ok(None),
        }
    }

    fn whole(self) -> Option<usize> {
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
            | Self::Nothing
            | Self::Root(_)
            | Self::Truth(_)
            | Self::Name(_) => None,
        }
    }

    fn scalar(self) -> Option<Scalar<'v>> {
        match self {
            Self::Count(count) => Some(Scalar::Number(count.into())),
            Self::Truth(truth) | Self::Value(&Value::Bool(truth)) => Some(Scalar::Truth(truth)),
            Self::Name(text) => Some(Scalar::Text(text)),
            Self::Value(Value::String(text)) => Some(Scalar::Text(text)),
            Self::Value(Value::Number(number)) => Some(Scalar::Number(number.clone())),
            Self::Nothing
            | Self::Root(_)
            | Self::Value(Value::Null | Value::Array(_) | Value::Object(_)) => None,
        }
    }
}

enum Scalar<'v> {
    Number(Number),
    Text(&'v str),
    Truth(bool),
}

impl Scalar<'_> {
    fn order(&self, other: &Self, budget: &mut Budget) -> Result<Option<Ordering>, HintsReason> {
        Ok(match (self, other) {
            (Self::Number(one), Self::Number(other)) => numbers(one, other),
            (Self::Text(one), Self::Text(other)) => {
                budget.step(one.len().min(other.len()) / BYTES_A_STEP)?;
                Some(one.cmp(other))
            }
            (Self::Truth(one), Self::Truth(other)) => Some(one.cmp(other)),
            (Self::Number(_) | Self::Text(_) | Self::Truth(_), _) => None,
        })
    }
}

fn numbers(one: &Number, other: &Number) -> Option<Ordering> {
    let whole = |number: &Number| {
        let unsigned = number.as_u64().map(i128::from);
        unsigned.or_else(|| number.as_i64().map(i128::from))
    };
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        (_, _) => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

fn equal(one: &Value, other: &Value, budget: &mut Budget) -> Result<bool, HintsReason> {
    budget.step(1)?;
    match (one, other) {
        (Value::Array(ones), Value::Array(others)) => {
            if ones.len() != others.len() {
                return Ok(false);
            }
            for (one, other) in ones.iter().zip(others) {
                if !equal(one, other, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Object(ones), Value::Object(others)) => {
            if ones.len() != others.len() {
                return Ok(false);
            }
            for (name, one) in ones {
                budget.step(name.len() / BYTES_A_STEP)?;
                match others.get(name) {
                    Some(other) if equal(one, other, budget)? => {}
                    Some(_) | None => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::Null, Value::Null) => Ok(true),
        (_, _) => {
            let order = Seen::Value(one).order(Seen::Value(other), budget)?;
            Ok(order == Some(Ordering::Equal))
        }
    }
}

fn characters(text: &str, budget: &mut Budget) -> Result<usize, HintsReason> {
    budget.step(text.len() / BYTES_A_STEP)?;
    Ok(text.chars().count())
}
