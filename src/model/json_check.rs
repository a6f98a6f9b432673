//! Validation of untrusted JSON: syntax, depth, number range and reserved keys.

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// Maximum nesting depth of arrays and objects in JSON.
///
/// Stores reject deeper payloads and hints, so that no reader of a breadcrumb overflows its stack.
/// Flatten deeper data, or store its text as a string.
pub const MAX_DEPTH: usize = 64;

/// Error of a JSON text or value that the validation rejects.
///
/// A retry cannot succeed: the caller must change the JSON.
/// [`Json::from_text`](super::Json::from_text) and stores return this error.
///
/// # Examples
/// ```
/// use universal_executor::Json;
/// use universal_executor::model::JsonError;
///
/// let deep = "[".repeat(100) + &"]".repeat(100);
/// assert!(matches!(Json::from_text(deep), Err(JsonError::TooDeep)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text is not JSON, or has a number or an escape that a `Value` cannot represent (`1e400`, a lone `\ud800`).
    ///
    /// The source names the line and the column.
    #[error("the text is not valid JSON")]
    Syntax(#[source] serde_json::Error),
    /// Arrays and objects nest deeper than [`MAX_DEPTH`].
    #[error("the JSON value nests deeper than {MAX_DEPTH} levels; flatten it")]
    TooDeep,
    /// An object has the key `$serde_json::private::RawValue`, which has a special meaning in `serde_json`.
    #[error("object key {RESERVED_KEY:?} is reserved; rename the key")]
    ReservedKey,
    /// The JSON has more bytes than the caller allows, for example for a breadcrumb's context.
    #[error("the JSON value has {size} bytes where at most {limit} are allowed; shorten it")]
    TooLarge {
        /// Size of the JSON in bytes.
        size: usize,
        /// Maximum size of the JSON in bytes.
        limit: usize,
    },
}

/// The object key by which `serde_json` marks nested JSON text. `Value` parses the string of this key as JSON with a new recursion
/// limit, so a short text can overflow the stack. No JSON with this key is accepted.
pub(crate) const RESERVED_KEY: &str = "$serde_json::private::RawValue";

/// Reason why a JSON text or value is rejected: nesting that is too deep, or a reserved key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum JsonLimitError {
    #[error("nests deeper than {0} levels")]
    TooDeep(usize),
    #[error("has the object key {RESERVED_KEY:?}, which is reserved")]
    ReservedKey,
}

/// Properties of a JSON text or value that its validation found.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct JsonProperties {
    limit_error: Option<JsonLimitError>,
    /// If `true`, a string or key contains U+0000, which SQL stores reject.
    pub(super) nul: bool,
    /// If `true`, an object has a duplicate key, or two keys with the same hash. In the second case the JSON is only formatted again.
    pub(super) repeated_key: bool,
}

/// Validates a JSON text without building a `Value`: syntax, number range, surrogates, depth and reserved keys.
pub(super) fn check_text(text: &str) -> Result<JsonProperties, JsonError> {
    check(serde_json::Deserializer::from_str(text))
}

fn check<'t>(
    mut reader: serde_json::Deserializer<impl serde_json::de::Read<'t>>,
) -> Result<JsonProperties, JsonError> {
    let mut properties = JsonProperties::default();
    let outcome = Check {
        remaining_depth: MAX_DEPTH,
        properties: &mut properties,
    }
    .deserialize(&mut reader)
    .and_then(|()| reader.end());
    match outcome {
        Ok(()) => Ok(properties),
        Err(error) => Err(parse_error(properties.limit_error, error)),
    }
}

/// Parses untrusted JSON, and rejects deep nesting and the object key [`RESERVED_KEY`]. Use this function for all untrusted text: the
/// parser of `serde_json` gives [`RESERVED_KEY`] a special meaning, and allows 128 levels.
///
/// # Errors
/// Returns [`JsonError`] if the text is not JSON, nests deeper than [`MAX_DEPTH`] levels or has the reserved key. The caller limits
/// the size.
pub(crate) fn parse(text: &str) -> Result<Value, JsonError> {
    build(text, false)
}

/// Parses JSON like [`parse`], and rejects objects with duplicate keys. The error has the key and its position.
pub(crate) fn parse_strictly(text: &str) -> Result<Value, JsonError> {
    build(text, true)
}

/// Parses untrusted JSON into a type whose fields can be [`Value`]s.
///
/// # Errors
/// Returns the error of `serde_json` if the JSON does not have the shape of `T`, or the [`JsonError`] as an error of `serde_json`.
pub(crate) fn parse_as<'t, T: Deserialize<'t>>(text: &'t [u8]) -> Result<T, serde_json::Error> {
    check(serde_json::Deserializer::from_slice(text)).map_err(JsonError::into_serde)?;
    serde_json::from_slice(text)
}

fn build(text: &str, unique_keys: bool) -> Result<Value, JsonError> {
    let mut limit_error = None;
    let mut reader = serde_json::Deserializer::from_str(text);
    let outcome = ValueBuilder {
        remaining_depth: MAX_DEPTH,
        unique_keys,
        limit_error: &mut limit_error,
    }
    .deserialize(&mut reader)
    .and_then(|value| reader.end().map(|()| value));
    outcome.map_err(|error| parse_error(limit_error, error))
}

fn parse_error(limit_error: Option<JsonLimitError>, error: serde_json::Error) -> JsonError {
    match limit_error {
        Some(JsonLimitError::TooDeep(_)) => JsonError::TooDeep,
        Some(JsonLimitError::ReservedKey) => JsonError::ReservedKey,
        None => JsonError::Syntax(error),
    }
}

impl JsonError {
    pub(crate) fn into_serde(self) -> serde_json::Error {
        match self {
            Self::Syntax(error) => error,
            Self::TooDeep | Self::ReservedKey | Self::TooLarge { .. } => de::Error::custom(self),
        }
    }
}

impl From<JsonLimitError> for JsonError {
    fn from(limit_error: JsonLimitError) -> Self {
        match limit_error {
            JsonLimitError::TooDeep(_) => Self::TooDeep,
            JsonLimitError::ReservedKey => Self::ReservedKey,
        }
    }
}

/// Validates the depth and the keys of a JSON value, and returns its size as text in bytes.
///
/// A value that was built in memory can have any depth. [`MAX_DEPTH`] limits the recursion.
pub(super) fn check_value(value: &Value) -> Result<(JsonProperties, usize), JsonError> {
    let mut properties = JsonProperties::default();
    let size = measure(value, MAX_DEPTH, &mut properties)?;
    Ok((properties, size))
}

/// Validates the depth and the keys of a JSON value that was built in memory, so that no parser has checked them.
pub(crate) fn admit(value: &Value) -> Result<(), JsonError> {
    check_value(value).map(|_| ())
}

/// Validates the depth and the keys of a JSON value, updates `properties`, and returns the value's size as text without spaces,
/// in bytes. `remaining_depth` is the number of further levels that are allowed.
fn measure(
    value: &Value,
    remaining_depth: usize,
    properties: &mut JsonProperties,
) -> Result<usize, JsonLimitError> {
    let enter = || {
        remaining_depth
            .checked_sub(1)
            .ok_or(JsonLimitError::TooDeep(MAX_DEPTH))
    };
    Ok(match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(number) => number_size(number),
        Value::String(text) => text_size(text, properties),
        Value::Array(items) => {
            let remaining_depth = enter()?;
            let mut size = 2 + items.len().saturating_sub(1);
            for item in items {
                size += measure(item, remaining_depth, properties)?;
            }
            size
        }
        Value::Object(fields) => {
            let remaining_depth = enter()?;
            let mut size = 2 + fields.len().saturating_sub(1);
            for (key, field) in fields {
                if key == RESERVED_KEY {
                    return Err(JsonLimitError::ReservedKey);
                }
                size +=
                    text_size(key, properties) + 1 + measure(field, remaining_depth, properties)?;
            }
            size
        }
    })
}

fn number_size(number: &Number) -> usize {
    let digits = |number: u64| number.checked_ilog10().map_or(1, |log| log as usize + 1);
    if let Some(whole) = number.as_u64() {
        digits(whole)
    } else if let Some(negative) = number.as_i64() {
        1 + digits(negative.unsigned_abs())
    } else {
        number.to_string().len()
    }
}

fn text_size(text: &str, properties: &mut JsonProperties) -> usize {
    let mut size = 2 + text.len();
    // Most strings need no escape. The compiler vectorises this count, because it has no branches.
    let is_special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    let special = text.bytes().map(is_special).map(usize::from);
    if special.sum::<usize>() == 0 {
        return size;
    }
    for byte in text.bytes() {
        size += match byte {
            b'"' | b'\\' | b'\x08' | b'\t' | b'\n' | b'\x0C' | b'\r' => 1,
            0 => {
                properties.nul = true;
                5
            }
            0x01..=0x1F => 5,
            0x20..=0xFF => 0,
        };
    }
    size
}

/// Returns a JSON value with U+FFFD in place of each U+0000. The depth, which is already validated, limits the recursion.
pub(super) fn without_nul(value: &Value) -> Value {
    let clean = |text: &str| text.replace('\0', "\u{FFFD}");
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => Value::String(clean(text)),
        Value::Array(items) => items.iter().map(without_nul).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| (clean(key), without_nul(field)))
            .collect::<Map<_, _>>()
            .into(),
    }
}

/// Drops a JSON value of any depth without recursion. The default drop is recursive and can overflow the stack.
pub(crate) fn dismantle(value: Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => open.extend(fields.into_iter().map(|(_, field)| field)),
        }
    }
}

/// Returns the size in bytes of a JSON value as text without spaces, if the value nests at most `depth` levels.
///
/// # Errors
/// Returns [`JsonLimitError`] if the value nests deeper than `depth` levels, at most [`MAX_DEPTH`], or has the reserved key.
pub(crate) fn size_within(value: &Value, depth: usize) -> Result<usize, JsonLimitError> {
    let depth = depth.min(MAX_DEPTH);
    measure(value, depth, &mut JsonProperties::default()).map_err(|limit_error| match limit_error {
        JsonLimitError::TooDeep(_) => JsonLimitError::TooDeep(depth),
        JsonLimitError::ReservedKey => limit_error,
    })
}

fn has_nul(text: &str) -> bool {
    text.as_bytes().contains(&0)
}

struct Check<'f> {
    /// Number of further nesting levels that are allowed in the JSON.
    remaining_depth: usize,
    properties: &'f mut JsonProperties,
}

impl Check<'_> {
    fn enter<E: de::Error>(&mut self) -> Result<usize, E> {
        match self.remaining_depth.checked_sub(1) {
            Some(remaining_depth) => Ok(remaining_depth),
            None => {
                self.properties.limit_error = Some(JsonLimitError::TooDeep(MAX_DEPTH));
                Err(E::custom(JsonError::TooDeep))
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Check<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Check<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.properties.nul |= has_nul(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let remaining_depth = self.enter()?;
        while items
            .next_element_seed(Check {
                remaining_depth,
                properties: self.properties,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let remaining_depth = self.enter()?;
        let mut key_hashes = KeyHashes::default();
        while let Some(key) = fields.next_key::<CowStr<'_>>()? {
            if key.0 == RESERVED_KEY {
                self.properties.limit_error = Some(JsonLimitError::ReservedKey);
                return Err(de::Error::custom(JsonError::ReservedKey));
            }
            self.properties.nul |= has_nul(&key.0);
            self.properties.repeated_key |= !key_hashes.insert(&key.0);
            fields.next_value_seed(Check {
                remaining_depth,
                properties: self.properties,
            })?;
        }
        Ok(())
    }
}

/// An object key, borrowed from the text if it has no escapes.
#[derive(Deserialize)]
struct CowStr<'a>(#[serde(borrow)] Cow<'a, str>);

/// The hashes of the keys of one object. The first hashes are in a list, because a linear search of a few is faster.
#[derive(Default)]
struct KeyHashes {
    first_hashes: Vec<u64>,
    other_hashes: HashSet<u64>,
}

impl KeyHashes {
    const LIST_LEN: usize = 16;

    /// Adds an object key's hash to the hashes of the earlier keys. Returns `false` if an earlier key of the object is the same, or has the
    /// same hash.
    fn insert(&mut self, key: &str) -> bool {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        if self.first_hashes.len() < Self::LIST_LEN {
            let new = !self.first_hashes.contains(&hash);
            self.first_hashes.push(hash);
            return new;
        }
        !self.first_hashes.contains(&hash) && self.other_hashes.insert(hash)
    }
}

/// Deserializer seed that builds a `Value` within the limits on depth and keys.
struct ValueBuilder<'r> {
    /// Number of further nesting levels that are allowed in the JSON.
    remaining_depth: usize,
    unique_keys: bool,
    /// Reason why a JSON text with valid syntax is rejected.
    limit_error: &'r mut Option<JsonLimitError>,
}

impl ValueBuilder<'_> {
    fn limit_exceeded<T, E: de::Error>(&mut self, limit_error: JsonLimitError) -> Result<T, E> {
        *self.limit_error = Some(limit_error);
        Err(E::custom(JsonError::from(limit_error)))
    }

    fn enter<E: de::Error>(&mut self) -> Result<usize, E> {
        match self.remaining_depth.checked_sub(1) {
            Some(remaining_depth) => Ok(remaining_depth),
            None => self.limit_exceeded(JsonLimitError::TooDeep(MAX_DEPTH)),
        }
    }

    fn with_remaining_depth(&mut self, remaining_depth: usize) -> ValueBuilder<'_> {
        ValueBuilder {
            remaining_depth,
            unique_keys: self.unique_keys,
            limit_error: self.limit_error,
        }
    }
}

impl<'de> DeserializeSeed<'de> for ValueBuilder<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueBuilder<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let remaining_depth = self.enter()?;
        let mut read = Vec::new();
        while let Some(item) =
            items.next_element_seed(self.with_remaining_depth(remaining_depth))?
        {
            read.push(item);
        }
        Ok(read.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Value, A::Error> {
        let remaining_depth = self.enter()?;
        let mut read = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if key == RESERVED_KEY {
                return self.limit_exceeded(JsonLimitError::ReservedKey);
            }
            if self.unique_keys && read.contains_key(&key) {
                let key = crate::error::excerpt(&key, 64);
                return Err(de::Error::custom(format_args!("duplicate key {key:?}")));
            }
            let field = fields.next_value_seed(self.with_remaining_depth(remaining_depth))?;
            read.insert(key, field);
        }
        Ok(read.into())
    }
}
