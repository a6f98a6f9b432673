//! Limits on the computation steps and output bytes that hints (`llm_hints`) may use for one breadcrumb's context.

use super::error::HintsReason;
use super::{MAX_OUTPUT_BYTES, MAX_STEPS};
use crate::model::{Path, search_steps};
use serde::Serialize;
use serde_json::Value;
use std::io;

/// The computation steps and output bytes that hints (`llm_hints`) may still use for one breadcrumb's context.
pub(crate) struct Budget {
    steps: usize,
    bytes: usize,
    /// Cost in computation steps of a search of the breadcrumb's whole context by the shortest JSONPath, or `None` before the
    /// first search. A longer path costs a multiple.
    search: Option<usize>,
}

impl Budget {
    /// Creates a budget of `steps` and output `bytes` for the `llm_hints` of one breadcrumb, at most
    /// [`MAX_STEPS`] and [`MAX_OUTPUT_BYTES`].
    pub(crate) fn new(steps: usize, bytes: usize) -> Self {
        Self {
            steps: steps.min(MAX_STEPS),
            bytes: bytes.min(MAX_OUTPUT_BYTES),
            search: None,
        }
    }

    /// Returns the numbers of computation steps and output bytes that remain in the budget for applying `llm_hints`.
    pub(crate) fn remaining(&self) -> (usize, usize) {
        (self.steps, self.bytes)
    }

    pub(super) fn step(&mut self, steps: usize) -> Result<(), HintsReason> {
        self.steps = self
            .steps
            .checked_sub(steps)
            .ok_or(HintsReason::TooManySteps)?;
        Ok(())
    }

    /// Subtracts the steps for searching `context` with the JSONPath `path` from the `llm_hints` budget. All calls must pass
    /// the same context. The steps for one node grow with the length of the path.
    pub(super) fn search(&mut self, context: &Value, path: &Path) -> Result<(), HintsReason> {
        let steps = *self
            .search
            .get_or_insert_with(|| search_steps(context, usize::MAX).unwrap_or(usize::MAX));
        self.step(steps.saturating_mul(path.search_factor()))
    }

    /// Copies a JSON value to the result of `llm_hints`, and subtracts the steps and bytes of the copy from their budget. The
    /// depth of the value must be limited.
    pub(super) fn copy(&mut self, value: &Value) -> Result<Value, HintsReason> {
        self.step(1)?;
        self.take_bytes(2)?;
        Ok(match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
            Value::String(text) => {
                self.take_bytes(text.len())?;
                value.clone()
            }
            Value::Array(items) => items
                .iter()
                .map(|item| self.copy(item))
                .collect::<Result<_, _>>()?,
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, field)| {
                    self.take_bytes(name.len())?;
                    Ok((name.clone(), self.copy(field)?))
                });
                Value::Object(fields.collect::<Result<_, _>>()?)
            }
        })
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<(), HintsReason> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(HintsReason::TooLarge)?;
        Ok(())
    }
}

/// Builder for the result string of a `format` or `template` rule of `llm_hints`. The builder fails when the hint budget is
/// exhausted.
pub(super) struct Text<'b> {
    pub(super) budget: &'b mut Budget,
    written: Vec<u8>,
}

impl<'b> Text<'b> {
    pub(super) fn new(budget: &'b mut Budget) -> Self {
        Self {
            budget,
            written: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), HintsReason> {
        self.budget.take_bytes(text.len())?;
        self.written.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Appends a JSON value to the result string of a rule of `llm_hints`: a string as it is, `null` as nothing, and any
    /// other value as compact JSON.
    pub(super) fn show(&mut self, value: &Value) -> Result<(), HintsReason> {
        match value {
            Value::Null => Ok(()),
            Value::String(text) => self.push(text),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.print(value)
            }
        }
    }

    /// Appends a value to the result string of a rule of `llm_hints` as compact JSON, in which strings have quotes.
    pub(super) fn print(&mut self, value: impl Serialize) -> Result<(), HintsReason> {
        // Serialization of a value fails only if the budget is exhausted.
        serde_json::to_writer(self, &value).map_err(|_| HintsReason::TooLarge)
    }

    pub(super) fn into_value(self) -> Result<Value, HintsReason> {
        // Only whole strings were written, so the bytes are valid UTF-8.
        let text = String::from_utf8(self.written).map_err(|_| HintsReason::Unreadable)?;
        Ok(Value::String(text))
    }
}

impl io::Write for Text<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.budget.take_bytes(bytes.len());
        result.map_err(|_| io::ErrorKind::StorageFull)?;
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
