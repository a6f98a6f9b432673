use super::json_check::{self, Findings, JsonError};
use super::path::Path;
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

/// Any JSON, immutable and shared: a clone is a pointer.
///
/// Read from text it stays text until something looks into it, and is then parsed once. The text is checked in
/// full when it is read (syntax, depth, number range, surrogates), so looking in cannot fail; it dereferences to
/// [`Value`]. Made [`From<Value>`](Value) it is not checked; a store's `commit` does that. Of the context of an
/// [`Event`](super::Event) only the syntax is checked when it is read: what no value can hold reads as `null`,
/// equals nothing but the same text, and matches as if the event had no context.
///
/// Reading and writing needs a self-describing JSON format (serde_json); inside a serde `tag` or `flatten` the
/// text form does not survive.
///
/// ```
/// use serde_json::json;
/// use universal_executor::Json;
///
/// let page = Json::from_text(r#"{"url": "https://github.com", "links": [{"text": "Issues"}]}"#)?;
///
/// assert_eq!(page["url"], "https://github.com");
/// assert_eq!(page.text("links[0].text"), Some("Issues"));
/// assert_eq!(page.clone(), Json::from(json!({"url": "https://github.com", "links": [{"text": "Issues"}]})));
/// # Ok::<(), universal_executor::model::JsonError>(())
/// ```
#[derive(Clone)]
pub struct Json(Arc<Repr>);

/// Text, value or both; at least one is set from the start.
struct Repr {
    text: Option<Box<RawValue>>,
    /// `None` of a text that no value can hold, which only a text that was not checked can be.
    value: OnceLock<Option<Value>>,
    /// Set once the content was checked.
    shape: OnceLock<Shape>,
}

/// What a text that no value can hold reads as.
static NULL: Value = Value::Null;

#[derive(Clone, Copy)]
struct Shape {
    size: usize,
    findings: Findings,
}

impl Json {
    /// The largest text that is read, in bytes: 1 MiB.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Reads and checks a text, and keeps it as text.
    ///
    /// # Errors
    /// [`JsonError`] if it is not JSON, nests deeper than 64 levels, has the key `$serde_json::private::RawValue` or is
    /// larger than [`Self::MAX_BYTES`].
    pub fn from_text(text: impl Into<String>) -> Result<Self, JsonError> {
        let text = text.into();
        within(text.len(), Self::MAX_BYTES)?;
        let findings = json_check::check_text(&text)?;
        let text = RawValue::from_string(text).map_err(JsonError::Syntax)?;
        Ok(Self::of_text(text, findings))
    }

    /// The string at a path, unquoted: `page.text("links[0].text")`. The first one, if the path yields several nodes.
    ///
    /// `None` also if the path does not parse; compile a [`Path`] where that has to be told apart.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        Path::parse(path).ok()?.first(self).ok()??.as_str()
    }

    /// A typed view.
    ///
    /// # Errors
    /// The serde error if the JSON does not have the shape of `T`, or is the context of an event that no value
    /// can hold.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match (self.0.value.get(), self.0.shape.get(), &self.0.text) {
            (None, Some(_), Some(text)) => serde_json::from_str(text.get()), // it was checked
            (Some(_) | None, _, _) => match self.read() {
                Some(value) => T::deserialize(value),
                None => Err(self.flaw()),
            },
        }
    }

    /// Its size as text, in bytes. Counted once; a value too deep to be printed safely counts as [`usize::MAX`], as
    /// does a text that no value can hold.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shape().map_or(usize::MAX, |shape| shape.size)
    }

    /// The value, taken out if this is the only pointer to it, else cloned.
    ///
    /// A [`Value`] is cloned and dropped level by level, so one that nests without end overflows the stack out here.
    /// Where a value comes from elsewhere look at its [`size`](Self::size) first.
    #[must_use]
    pub fn into_value(self) -> Value {
        match Arc::try_unwrap(self.0) {
            Ok(mut only) => {
                let value = match (only.value.take(), only.text.take()) {
                    (Some(value), _) => value,
                    (None, Some(text)) => json_check::parse(text.get()).ok(),
                    (None, None) => None,
                };
                value.unwrap_or_default()
            }
            Err(shared) => Self(shared).value().clone(),
        }
    }

    /// What a store keeps of this: checked against the limits, and with one form for all stores (U+FFFD for U+0000,
    /// the last of two equal keys, no line breaks). The same pointer if it has that form already.
    ///
    /// # Errors
    /// [`JsonError`] if it is too deep or larger than `limit` bytes, or a text that no value can hold.
    pub fn canonical(&self, limit: usize) -> Result<Self, JsonError> {
        let shape = self.shape()?;
        within(shape.size, limit)?;
        let spread = self
            .0
            .text
            .as_ref()
            .is_some_and(|text| text.get().contains(['\n', '\r']));
        if shape.findings.nul {
            let clean = Self::from(json_check::without_nul(self));
            within(clean.size(), limit)?;
            return Ok(clean);
        }
        if shape.findings.repeated_key || spread {
            return Ok(Self::from(self.value().clone()));
        }
        Ok(self.clone())
    }

    /// Reads a text that a store made of what is [`canonical`](Self::canonical), and of which only the syntax is
    /// checked again.
    ///
    /// # Errors
    /// The serde error if it is not JSON after all.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn checked_before(text: String) -> Result<Self, serde_json::Error> {
        let text = RawValue::from_string(text)?;
        Ok(Self::of_text(text, Findings::default()))
    }

    /// An object without fields. All callers share one.
    pub(super) fn empty_object() -> Self {
        static SHARED: LazyLock<Json> = LazyLock::new(|| Value::Object(Map::new()).into());
        SHARED.clone()
    }

    /// Keeps a text whose syntax is known to be right and of which nothing else is checked.
    pub(crate) fn unchecked(text: Box<RawValue>) -> Self {
        Self(Arc::new(Repr {
            text: Some(text),
            value: OnceLock::new(),
            shape: OnceLock::new(),
        }))
    }

    /// The value, unless it is a text that no value can hold (`1e400`, a lone `\ud800`, more than 64 levels, the reserved
    /// key).
    pub(super) fn read(&self) -> Option<&Value> {
        let repr = &*self.0;
        let value = repr.value.get_or_init(|| {
            let text = repr.text.as_ref()?;
            json_check::parse(text.get()).ok()
        });
        value.as_ref()
    }

    /// The text, as long as nothing looked into it.
    pub(super) fn unread(&self) -> Option<&str> {
        match self.0.value.get() {
            None => self.0.text.as_ref().map(|text| text.get()),
            Some(_) => None,
        }
    }

    fn of_text(text: Box<RawValue>, findings: Findings) -> Self {
        let size = text.get().len();
        Self(Arc::new(Repr {
            text: Some(text),
            value: OnceLock::new(),
            shape: OnceLock::from(Shape { size, findings }),
        }))
    }

    fn value(&self) -> &Value {
        self.read().unwrap_or(&NULL)
    }

    fn shape(&self) -> Result<Shape, JsonError> {
        if let Some(shape) = self.0.shape.get() {
            return Ok(*shape);
        }
        let (findings, size) = match &self.0.text {
            Some(text) => (json_check::check_text(text.get())?, text.get().len()),
            None => json_check::check_value(self.value())?,
        };
        Ok(*self.0.shape.get_or_init(|| Shape { size, findings }))
    }

    /// The reason why no value can hold the text.
    fn flaw(&self) -> serde_json::Error {
        match self.shape() {
            Err(error) => error.into_serde(),
            Ok(_) => de::Error::custom("not valid JSON"),
        }
    }
}

fn within(size: usize, limit: usize) -> Result<(), JsonError> {
    if size > limit {
        return Err(JsonError::TooLarge { size, limit });
    }
    Ok(())
}

impl Drop for Repr {
    /// A value of unknown depth is taken apart step by step: dropping one of 20,000 levels overflows the stack.
    fn drop(&mut self) {
        if self.text.is_none()
            && self.shape.get().is_none()
            && let Some(Some(value)) = self.value.take()
            && (value.is_array() || value.is_object())
        {
            json_check::dismantle(value);
        }
    }
}

impl Default for Json {
    /// `null`.
    fn default() -> Self {
        static SHARED: LazyLock<Json> = LazyLock::new(|| Value::Null.into());
        SHARED.clone()
    }
}

impl Deref for Json {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value()
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self(Arc::new(Repr {
            text: None,
            value: OnceLock::from(Some(value)),
            shape: OnceLock::new(),
        }))
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        match (self.read(), other.read()) {
            (Some(one), Some(other)) => one == other,
            (None, None) => self.to_string() == other.to_string(),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl PartialEq<Value> for Json {
    fn eq(&self, other: &Value) -> bool {
        self.read() == Some(other)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Json {
    /// The compact JSON text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.text {
            Some(text) => f.write_str(text.get()),
            None => self.value().fmt(f),
        }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.text {
            Some(text) => text.serialize(serializer),
            None => self.value().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        within(text.get().len(), Self::MAX_BYTES).map_err(de::Error::custom)?;
        let findings = json_check::check_text(text.get())
            .map_err(|error| de::Error::custom(error.into_serde()))?;
        Ok(Self::of_text(text, findings))
    }
}

#[cfg(test)]
mod tests;
