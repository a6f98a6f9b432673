//! What JSON must satisfy before anything looks into it.

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// How deep arrays and objects may nest.
pub const MAX_DEPTH: usize = 64;

/// Why a JSON text or value was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Not JSON, or a number or escape that no `Value` can hold (`1e400`, a lone `\ud800`).
    #[error("not valid JSON")]
    Syntax(#[source] serde_json::Error),
    /// Arrays and objects nest deeper than [`MAX_DEPTH`].
    #[error("JSON nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// More bytes than the place it is meant for takes.
    #[error("{size} bytes of JSON where at most {limit} are allowed")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The most that is allowed.
        limit: usize,
    },
}

/// What a check saw on the way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Findings {
    too_deep: bool,
    /// A string or key holds U+0000, which SQL stores refuse.
    pub(super) nul: bool,
    /// An object has a key twice (or two keys whose hashes collide, which costs a re-print and nothing else).
    pub(super) repeated_key: bool,
}

/// Checks a whole text: syntax, number range, surrogates and depth, without building a `Value`.
pub(super) fn check_text(text: &str) -> Result<Findings, JsonError> {
    let mut findings = Findings::default();
    let mut reader = serde_json::Deserializer::from_str(text);
    let outcome = Check {
        room: MAX_DEPTH,
        findings: &mut findings,
    }
    .deserialize(&mut reader)
    .and_then(|()| reader.end());
    match outcome {
        Ok(()) => Ok(findings),
        Err(_) if findings.too_deep => Err(JsonError::TooDeep),
        Err(error) => Err(JsonError::Syntax(error)),
    }
}

/// Checks the depth of a value, looks for U+0000 and counts the bytes it has when printed.
///
/// A value built in memory may be of any depth; the recursion ends at [`MAX_DEPTH`].
pub(super) fn check_value(value: &Value) -> Result<(Findings, usize), JsonError> {
    let mut findings = Findings::default();
    let size = measure(value, MAX_DEPTH, &mut findings)?;
    Ok((findings, size))
}

/// The bytes of a value when printed without spaces, with room for so many more levels.
fn measure(value: &Value, room: usize, findings: &mut Findings) -> Result<usize, JsonError> {
    let inside = || room.checked_sub(1).ok_or(JsonError::TooDeep);
    Ok(match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(number) => number_size(number),
        Value::String(text) => text_size(text, findings),
        Value::Array(items) => {
            let room = inside()?;
            let mut size = 2 + items.len().saturating_sub(1);
            for item in items {
                size += measure(item, room, findings)?;
            }
            size
        }
        Value::Object(fields) => {
            let room = inside()?;
            let mut size = 2 + fields.len().saturating_sub(1);
            for (key, field) in fields {
                size += text_size(key, findings) + 1 + measure(field, room, findings)?;
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

fn text_size(text: &str, findings: &mut Findings) -> usize {
    let mut size = 2 + text.len();
    for byte in text.bytes() {
        size += match byte {
            b'"' | b'\\' | b'\x08' | b'\t' | b'\n' | b'\x0C' | b'\r' => 1,
            0 => {
                findings.nul = true;
                5
            }
            0x01..=0x1F => 5,
            0x20..=0xFF => 0,
        };
    }
    size
}

/// The value with U+FFFD in place of every U+0000. Recursion is bounded: the depth is checked.
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

/// Drops a value of any depth without recursion, which the compiler's own drop would overflow the stack with.
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

/// Whether a text has enough brackets to nest deeper than [`MAX_DEPTH`]; most have not, and need no other look.
pub(super) fn may_be_too_deep(text: &str) -> bool {
    // `[` and `{` differ in this bit only.
    text.bytes().filter(|byte| byte | 0x20 == b'{').count() > MAX_DEPTH
}

/// Whether a value nests deeper than [`MAX_DEPTH`].
pub(crate) fn is_too_deep(value: &Value) -> bool {
    check_value(value).is_err()
}

/// The bytes of a value when printed without spaces, unless it nests deeper than `depth`, at most [`MAX_DEPTH`], levels.
pub(crate) fn size_within(value: &Value, depth: usize) -> Option<usize> {
    measure(value, depth.min(MAX_DEPTH), &mut Findings::default()).ok()
}

fn has_nul(text: &str) -> bool {
    text.as_bytes().contains(&0)
}

struct Check<'f> {
    /// How many more levels may open.
    room: usize,
    findings: &'f mut Findings,
}

impl Check<'_> {
    fn enter<E: de::Error>(&mut self) -> Result<usize, E> {
        match self.room.checked_sub(1) {
            Some(room) => Ok(room),
            None => {
                self.findings.too_deep = true;
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
        self.findings.nul |= has_nul(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let room = self.enter()?;
        while items
            .next_element_seed(Check {
                room,
                findings: self.findings,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let room = self.enter()?;
        let mut seen = Keys::default();
        while let Some(key) = fields.next_key::<CowStr<'_>>()? {
            self.findings.nul |= has_nul(&key.0);
            self.findings.repeated_key |= !seen.insert(&key.0);
            fields.next_value_seed(Check {
                room,
                findings: self.findings,
            })?;
        }
        Ok(())
    }
}

/// A key as serde offers it: borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct CowStr<'a>(#[serde(borrow)] Cow<'a, str>);

/// The hashes of the keys of one object; few keys are compared one by one.
#[derive(Default)]
struct Keys {
    few: Vec<u64>,
    many: HashSet<u64>,
}

impl Keys {
    const FEW: usize = 16;

    /// False if the key (or one of the same hash) was there already.
    fn insert(&mut self, key: &str) -> bool {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        if self.few.len() < Self::FEW {
            let new = !self.few.contains(&hash);
            self.few.push(hash);
            return new;
        }
        !self.few.contains(&hash) && self.many.insert(hash)
    }
}

/// Reads a text into a `Value` and refuses an object with a key twice, naming where it stands.
///
/// The depth is bounded by serde_json's own limit of 128; [`MAX_DEPTH`] is checked by the caller.
pub(crate) fn read_strictly(text: &str) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            read.push(item);
        }
        Ok(read.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if read.contains_key(&key) {
                let key = crate::error::excerpt(&key, 64);
                return Err(de::Error::custom(format_args!("duplicate key {key:?}")));
            }
            let field = fields.next_value_seed(Self)?;
            read.insert(key, field);
        }
        Ok(read.into())
    }
}
