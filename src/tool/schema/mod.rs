//! Validation of JSON against a JSON Schema, with the feature `validate`. Without the feature, every schema and value passes.
//!
//! Any writer of the tenant can write a schema, so a schema must not do harm. Its references point into the schema itself, its
//! patterns run in linear time, and the work of a check is measured before the check.

#[cfg(feature = "validate")]
mod admission;
#[cfg(feature = "validate")]
mod report;
#[cfg(all(test, feature = "validate"))]
mod tests;
#[cfg(feature = "validate")]
mod work;

use serde_json::Value;
#[cfg(feature = "validate")]
use work::Reportable;

/// A compiled JSON Schema that checks values.
#[cfg(feature = "validate")]
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    schema: Value,
    compiled: jsonschema::Validator,
}

#[cfg(feature = "validate")]
impl Checker {
    /// Checks the limits of a JSON Schema, and compiles it.
    ///
    /// # Errors
    /// A sentence with the problem of the schema and its path.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        admission::check_limits(schema)?;
        let patterns = jsonschema::PatternOptions::regex()
            .size_limit(admission::PATTERN_BYTES)
            .dfa_size_limit(admission::PATTERN_BYTES);
        let compiled = jsonschema::options()
            .offline()
            .should_validate_formats(false)
            .without_content_media_type_support("application/json")
            .with_pattern_options(patterns)
            .build(schema)
            .map_err(|error| report::of_schema(&error))?;
        Ok(Self {
            schema: schema.clone(),
            compiled,
        })
    }

    /// Checks a value against the JSON Schema.
    ///
    /// # Errors
    /// A sentence with the violations of the schema, their paths, and the expected values.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let reportable = work::measure(&self.schema, value)?;
        if self.compiled.is_valid(value) {
            return Ok(());
        }
        // `iter_errors` collects every error before the first call of `next`, so the measured bound applies before it.
        match reportable {
            Reportable::All => Err(report::of(self.compiled.iter_errors(value))),
            Reportable::First => self
                .compiled
                .validate(value)
                .map_err(|error| report::of_first(&error)),
            Reportable::Nothing => Err(report::WITHHELD.to_owned()),
        }
    }
}

/// Replacement for the compiled JSON Schema in builds without the feature `validate`, which accepts every schema and every value.
#[cfg(not(feature = "validate"))]
#[derive(Clone, Debug)]
pub(crate) struct Checker;

#[cfg(not(feature = "validate"))]
impl Checker {
    pub(crate) fn compile(_: &Value) -> Result<Self, String> {
        Ok(Self)
    }

    pub(crate) fn check(&self, _: &Value) -> Result<(), String> {
        Ok(())
    }
}
