//! Functions for `#[serde(deserialize_with = "..")]` that read values of a workflow definition. They reject values that exceed
//! limits.

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{
    Deserialize, Deserializer, Error, IgnoredAny, IntoDeserializer, Unexpected, Visitor,
};
use serde_json::Value;
#[cfg(feature = "schema")]
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Placeholder for a field of a workflow definition object that the compiler reads separately, into a value of type `T`.
#[derive(Debug, Default)]
pub(in crate::workflow) struct Nested<T>(PhantomData<T>);

impl<'de, T> Deserialize<'de> for Nested<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self(PhantomData))
    }
}

#[cfg(feature = "schema")]
impl<T: JsonSchema> JsonSchema for Nested<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Reads any JSON in a field of a workflow definition. Null is a value, and not an absent field.
pub(super) fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Reads an enum without fields from a string in a workflow definition. Serde would also accept `{"word": null}`.
pub(in crate::workflow) fn word<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let value = Value::deserialize(deserializer)?;
    // For a value of another type, the empty string gives an error that lists the valid strings.
    let word = value.as_str().unwrap_or_default();
    T::deserialize(word.into_deserializer())
}

/// Reads a whole number within a range from a field of a workflow definition.
pub(in crate::workflow) fn whole<'de, const FROM: u64, const TO: u64, D, T>(
    deserializer: D,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let range = Whole::<FROM, TO>;
    let number = deserializer.deserialize_u64(range)?;
    let read = T::try_from(number);
    read.map_err(|_| D::Error::invalid_value(Unexpected::Unsigned(number), &range))
}

/// Reads a whole number that is at least 1 from a field of a workflow definition.
pub(in crate::workflow) fn positive<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    whole::<1, { u64::MAX }, D, T>(deserializer)
}

#[derive(Clone, Copy)]
struct Whole<const FROM: u64, const TO: u64>;

impl<const FROM: u64, const TO: u64> Visitor<'_> for Whole<FROM, TO> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TO {
            u64::MAX => write!(f, "a whole number that is at least {FROM}"),
            _ => write!(f, "a whole number from {FROM} to {TO}"),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        match (FROM..=TO).contains(&number) {
            true => Ok(number),
            false => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }
}

/// Reads a number of seconds from a field of a workflow definition, rounded down to milliseconds, but at least one millisecond.
pub(in crate::workflow) fn seconds<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    let is_allowed = seconds > 0.0 && seconds <= f64::from(YEAR_SECONDS);
    let duration = Duration::try_from_secs_f64(seconds);
    let duration = duration.ok().filter(|_| is_allowed);
    let milliseconds = duration.and_then(|duration| u64::try_from(duration.as_millis()).ok());
    match milliseconds {
        Some(milliseconds) => Ok(Some(Duration::from_millis(milliseconds.max(1)))),
        None => {
            let expected = "a number of seconds greater than 0 and at most 31622400 (366 days)";
            Err(D::Error::invalid_value(
                Unexpected::Float(seconds),
                &expected,
            ))
        }
    }
}

/// Maximum number of seconds in a field of a workflow definition, which is 366 days.
pub(super) const YEAR_SECONDS: u32 = 366 * 24 * 60 * 60;
