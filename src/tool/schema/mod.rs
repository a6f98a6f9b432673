//! Checks JSON against a JSON Schema, with the feature `validate`. Without it every schema is taken and everything fits.
//!
//! A schema may come from a record that anybody wrote, so nothing it says may do harm: what it refers to is within
//! itself, its patterns run in linear time, and how much work it makes for a value is measured before that is done.

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

/// A schema that was admitted and compiled.
#[cfg(feature = "validate")]
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    schema: Value,
    compiled: jsonschema::Validator,
}

#[cfg(feature = "validate")]
impl Checker {
    /// Admits and compiles a schema.
    ///
    /// # Errors
    /// Says what is wrong with it, and where.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        admission::admit(schema)?;
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

    /// Whether a value fits.
    ///
    /// # Errors
    /// Says what does not fit, where, and what would.
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

/// Nothing is checked without the feature `validate`.
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
