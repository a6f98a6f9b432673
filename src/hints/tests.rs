//! What hints promise, by name.

mod bounds;
mod faults;
mod filtering;
mod properties;
mod refusals;
mod rules;
#[cfg(feature = "templates")]
mod templates;

use super::{Hints, HintsFailure};
use crate::model::Json;
use serde_json::Value;

fn try_apply(hints: &Value, context: &Value) -> Result<Json, HintsFailure> {
    let hints = Hints::from_json(hints).unwrap_or_else(|error| panic!("{hints}: {error}"));
    hints.apply(&Json::from(context.clone()))
}

fn apply(hints: &Value, context: &Value) -> Json {
    try_apply(hints, context).unwrap_or_else(|error| panic!("{hints}: {error}"))
}

/// What hints are refused for, as it is printed.
fn refusal(hints: &Value) -> String {
    match Hints::from_json(hints) {
        Err(error) => error.to_string(),
        Ok(read) => panic!("{hints} was read as {read:?}"),
    }
}
