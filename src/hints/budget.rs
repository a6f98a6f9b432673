//! What one application of hints may take and make.

use super::error::HintsReason;
use super::{MAX_OUTPUT_BYTES, MAX_STEPS};
use serde_json::Value;
use std::fmt;

/// What a step of a path that is searched for costs, since the evaluator writes down where each node is.
const SEARCH_STEPS: usize = 4;

/// The steps and bytes that are left.
pub(super) struct Budget {
    steps: usize,
    bytes: usize,
    /// The nodes of the context that paths search, counted once.
    nodes: Option<usize>,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            steps: MAX_STEPS,
            bytes: MAX_OUTPUT_BYTES,
            nodes: None,
        }
    }

    /// The steps taken so far.
    #[cfg(test)]
    pub(super) fn steps_taken(&self) -> usize {
        MAX_STEPS - self.steps
    }

    pub(super) fn step(&mut self, steps: usize) -> Result<(), HintsReason> {
        self.steps = self
            .steps
            .checked_sub(steps)
            .ok_or(HintsReason::TooManySteps)?;
        Ok(())
    }

    /// Takes the steps of searching the whole of `context`, which has to be the same each time.
    pub(super) fn search(&mut self, context: &Value) -> Result<(), HintsReason> {
        let nodes = *self.nodes.get_or_insert_with(|| count(context));
        self.step(nodes.saturating_mul(SEARCH_STEPS))
    }

    /// Copies a value of bounded depth into the result.
    pub(super) fn copy(&mut self, value: &Value) -> Result<Value, HintsReason> {
        self.step(1)?;
        self.make(2)?;
        Ok(match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
            Value::String(text) => {
                self.make(text.len())?;
                value.clone()
            }
            Value::Array(items) => items
                .iter()
                .map(|item| self.copy(item))
                .collect::<Result<_, _>>()?,
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, field)| {
                    self.make(name.len())?;
                    Ok((name.clone(), self.copy(field)?))
                });
                Value::Object(fields.collect::<Result<_, _>>()?)
            }
        })
    }

    fn make(&mut self, bytes: usize) -> Result<(), HintsReason> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(HintsReason::TooLarge)?;
        Ok(())
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
    }
}

/// A text in the making, which ends where the budget does.
pub(super) struct Text<'b> {
    pub(super) budget: &'b mut Budget,
    written: String,
}

impl<'b> Text<'b> {
    pub(super) fn new(budget: &'b mut Budget) -> Self {
        Self {
            budget,
            written: String::new(),
        }
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), HintsReason> {
        self.budget.make(text.len())?;
        self.written.push_str(text);
        Ok(())
    }

    /// Writes a value as it is shown within a text: strings raw, `null` as nothing, anything else as compact JSON.
    pub(super) fn show(&mut self, value: &Value) -> Result<(), HintsReason> {
        match value {
            Value::Null => Ok(()),
            Value::String(text) => self.push(text),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.print(value)
            }
        }
    }

    pub(super) fn print(&mut self, value: impl fmt::Display) -> Result<(), HintsReason> {
        // A value can always be printed: only a budget that is spent ends it early.
        fmt::write(self, format_args!("{value}")).map_err(|_| HintsReason::TooLarge)
    }

    pub(super) fn into_value(self) -> Value {
        Value::String(self.written)
    }
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text).map_err(|_| fmt::Error)
    }
}
