//! Tests of the documented behaviour of hints.
#![expect(
    clippy::needless_pass_by_value,
    reason = "hints are written where they are used"
)]

#[cfg(feature = "templates")]
mod alike;
mod bounds;
mod faults;
mod filtering;
mod properties;
mod refusals;
mod rules;
#[cfg(feature = "templates")]
mod templates;

use super::{Hints, HintsError, HintsFailure};
use crate::model::Json;
use serde_json::Value;

fn try_apply(hints: &Value, context: &Value) -> Result<Json, HintsFailure> {
    let hints = Hints::from_json(hints).unwrap_or_else(|error| panic!("{hints}: {error}"));
    hints.apply(&Json::from(context.clone()))
}

fn apply(hints: &Value, context: &Value) -> Json {
    try_apply(hints, context).unwrap_or_else(|error| panic!("{hints}: {error}"))
}

/// Returns the error message of invalid hints.
fn refusal(hints: &Value) -> String {
    match Hints::from_json(hints) {
        Err(error) => error.to_string(),
        Ok(read) => panic!("{hints} was read as {read:?}"),
    }
}

#[test]
fn hints_and_their_errors_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + Clone + 'static>() {}

    shared::<Hints>();
    shared::<HintsError>();
    shared::<HintsFailure>();
}
