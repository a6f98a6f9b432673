use super::json_check::{self, JsonError, JsonProperties};
use super::path::Path;
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

/// An immutable, shared JSON value that dereferences to [`Value`]. A clone copies a pointer.
///
/// A `Json` from text stores the text and parses it once, on the first access to the value. The text is validated in full when it is
/// read (syntax, depth, number range, surrogates), so the access cannot fail. A `Json` from a [`Value`] is not validated until a store
/// commits it.
///
/// Reading an [`Event`](super::Event) validates only the syntax of its context. A context that [`Value`] cannot represent dereferences to
/// `null`, equals only a context with the same text, and matches as if the event had no context.
///
/// The serde implementations are for `serde_json`. Reading inside a serde `tag` or `flatten` is not supported, because serde buffers
/// such values in its own form.
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

/// The content of a [`Json`]: the text, the parsed value or both. At least one is set on creation.
struct Repr {
    text: Option<Box<RawValue>>,
    /// The parsed value, or `None` if the JSON parser rejects the unvalidated text, for example because of the number `1e400`.
    value: OnceLock<Option<Value>>,
    /// The JSON's size and properties that the validation found, set after the validation.
    shape: OnceLock<Shape>,
}

/// The value to which a [`Json`] dereferences if the JSON parser rejects its text.
static NULL: Value = Value::Null;

#[derive(Clone, Copy)]
struct Shape {
    size: usize,
    properties: JsonProperties,
}

impl Json {
    /// Maximum size of a JSON text in bytes: 1 MiB.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Validates a JSON text and stores it as text.
    ///
    /// Use this function for JSON from a network or a file. It checks the whole text once, so that
    /// later accesses cannot fail.
    ///
    /// # Errors
    /// Returns [`JsonError`] if the text is not JSON, nests deeper than 64 levels, has the key `$serde_json::private::RawValue` or is
    /// larger than [`Self::MAX_BYTES`].
    ///
    /// - [`JsonError::TooLarge`] for more than 1 MiB.
    /// - [`JsonError::Syntax`] for text that is not JSON, and for numbers such as `1e400`.
    /// - [`JsonError::TooDeep`] and [`JsonError::ReservedKey`] for nesting and for the reserved
    ///   key.
    ///
    /// ```
    /// use universal_executor::Json;
    /// use universal_executor::model::JsonError;
    ///
    /// assert_eq!(Json::from_text(r#"{"count": 3}"#)?["count"], 3);
    /// assert!(matches!(Json::from_text("{count: 3}"), Err(JsonError::Syntax(_))));
    /// # Ok::<(), JsonError>(())
    /// ```
    pub fn from_text(text: impl Into<String>) -> Result<Self, JsonError> {
        let text = text.into();
        check_size(text.len(), Self::MAX_BYTES)?;
        let properties = json_check::check_text(&text)?;
        let text = RawValue::from_string(text).map_err(JsonError::Syntax)?;
        Ok(Self::of_text(text, properties))
    }

    /// Returns the string that a JSONPath selects in the JSON, without quotes, or `None` if the JSONPath selects no string. An
    /// example is `page.text("links[0].text")`.
    ///
    /// If the path selects several nodes, only the first node counts. Returns `None` if the node is missing or not a string, or if the
    /// path is invalid. To distinguish these cases, use a [`Path`].
    ///
    /// The path is compiled at each call. In a loop, compile a [`Path`] once and call
    /// [`Path::first`].
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Json;
    ///
    /// let page = Json::from(json!({"title": "Rust", "links": [{"text": "Issues"}], "size": 7}));
    /// assert_eq!(page.text("title"), Some("Rust"));
    /// assert_eq!(page.text("$.links[-1].text"), Some("Issues"));
    /// assert_eq!(page.text("size"), None);
    /// ```
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        Path::parse(path).ok()?.first(self).ok()??.as_str()
    }

    /// Deserializes the JSON as a `T`.
    ///
    /// # Errors
    /// Returns the error of `serde_json` if the JSON does not have the shape of `T`, or is the context of an event that [`Value`]
    /// cannot represent.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Json;
    ///
    /// let sizes = Json::from(json!([1, 2, 3])).parse::<Vec<u32>>()?;
    /// assert_eq!(sizes, [1, 2, 3]);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match (self.0.value.get(), self.0.shape.get(), &self.0.text) {
            (None, Some(_), Some(text)) => serde_json::from_str(text.get()), // validated text
            (Some(_) | None, _, _) => match self.read() {
                Some(value) => T::deserialize(value),
                None => Err(self.read_error()),
            },
        }
    }

    /// Returns the size of the JSON as text, in bytes. Computed once.
    ///
    /// Returns [`usize::MAX`] for a value that nests deeper than 64 levels or has the reserved key, and for a text that [`Value`] cannot
    /// represent.
    ///
    /// Stores compare this size with their limits, such as 1 MiB for a payload on the memory store.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shape().map_or(usize::MAX, |shape| shape.size)
    }

    /// Returns the parsed value, or `null` if the JSON parser rejects the text. Clones the value unless this is the only pointer
    /// to it.
    ///
    /// A [`Value`] is cloned and dropped recursively, so a value with very deep nesting overflows the stack. Check the
    /// [`size`](Self::size) of a value from an untrusted origin first: it is [`usize::MAX`] for such a value.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Json;
    ///
    /// let mut order = Json::from(json!({"count": 3})).into_value();
    /// order["count"] = json!(4);
    /// assert_eq!(Json::from(order)["count"], 4);
    /// ```
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

    /// Returns the JSON in the canonical form, which all stores persist. In this form, U+FFFD replaces U+0000, the last of duplicate keys
    /// remains, and the text has no line breaks. Returns the same pointer if the JSON already has this form.
    ///
    /// Your own store calls this method before it writes a payload. `limit` is in bytes.
    ///
    /// # Errors
    /// Returns [`JsonError`] if the JSON nests deeper than 64 levels, has the reserved key, is larger than `limit` bytes, or is a text
    /// that [`Value`] cannot represent.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Json;
    ///
    /// let text = Json::from_text("{\n\"a\": 1,\n\"a\": 2}")?;
    /// assert_eq!(text.canonical(1_000)?.to_string(), r#"{"a":2}"#);
    /// assert!(text.canonical(5).is_err());
    /// # Ok::<(), universal_executor::model::JsonError>(())
    /// ```
    pub fn canonical(&self, limit: usize) -> Result<Self, JsonError> {
        let shape = self.shape()?;
        check_size(shape.size, limit)?;
        let spread = self
            .0
            .text
            .as_ref()
            .is_some_and(|text| text.get().contains(['\n', '\r']));
        if shape.properties.nul {
            let clean = Self::from(json_check::without_nul(self));
            check_size(clean.size(), limit)?;
            return Ok(clean);
        }
        if shape.properties.repeated_key || spread {
            return Ok(Self::from(self.value().clone()));
        }
        Ok(self.clone())
    }

    /// Creates a `Json` from a stored text in [`canonical`](Self::canonical) form, and validates only the syntax.
    ///
    /// # Errors
    /// Returns the error of `serde_json` if the text is not JSON.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn from_validated_text(text: String) -> Result<Self, serde_json::Error> {
        let text = RawValue::from_string(text)?;
        Ok(Self::of_text(text, JsonProperties::default()))
    }

    /// Returns the JSON of an empty object, which all callers share.
    pub(super) fn empty_object() -> Self {
        static SHARED: LazyLock<Json> = LazyLock::new(|| Value::Object(Map::new()).into());
        SHARED.clone()
    }

    /// Creates a `Json` from a text with valid syntax, without further validation.
    pub(crate) fn unchecked(text: Box<RawValue>) -> Self {
        Self(Arc::new(Repr {
            text: Some(text),
            value: OnceLock::new(),
            shape: OnceLock::new(),
        }))
    }

    /// Returns the parsed value, or `None` if the JSON parser rejects the text. The parser rejects numbers such as `1e400`, a lone
    /// `\ud800`, more than 64 levels, and the key `$serde_json::private::RawValue`.
    pub(super) fn read(&self) -> Option<&Value> {
        let repr = &*self.0;
        let value = repr.value.get_or_init(|| {
            let text = repr.text.as_ref()?;
            json_check::parse(text.get()).ok()
        });
        value.as_ref()
    }

    /// Returns the unparsed JSON text, or `None` if the value was already parsed or never was text.
    pub(super) fn unparsed_text(&self) -> Option<&str> {
        match self.0.value.get() {
            None => self.0.text.as_ref().map(|text| text.get()),
            Some(_) => None,
        }
    }

    fn of_text(text: Box<RawValue>, properties: JsonProperties) -> Self {
        let size = text.get().len();
        Self(Arc::new(Repr {
            text: Some(text),
            value: OnceLock::new(),
            shape: OnceLock::from(Shape { size, properties }),
        }))
    }

    fn value(&self) -> &Value {
        self.read().unwrap_or(&NULL)
    }

    fn shape(&self) -> Result<Shape, JsonError> {
        if let Some(shape) = self.0.shape.get() {
            return Ok(*shape);
        }
        let (properties, size) = match &self.0.text {
            Some(text) => (json_check::check_text(text.get())?, text.get().len()),
            None => json_check::check_value(self.value())?,
        };
        Ok(*self.0.shape.get_or_init(|| Shape { size, properties }))
    }

    /// Returns the error for a JSON text that [`Value`] cannot represent.
    fn read_error(&self) -> serde_json::Error {
        match self.shape() {
            Err(error) => error.into_serde(),
            Ok(_) => de::Error::custom("the text is not valid JSON"),
        }
    }
}

fn check_size(size: usize, limit: usize) -> Result<(), JsonError> {
    if size > limit {
        return Err(JsonError::TooLarge { size, limit });
    }
    Ok(())
}

impl Drop for Repr {
    /// Drops a value of unknown depth without recursion, because the recursive drop of 20,000 levels overflows the stack.
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
    /// Returns the JSON value `null`.
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
    /// Writes the JSON as text to the formatter.
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
        check_size(text.get().len(), Self::MAX_BYTES).map_err(de::Error::custom)?;
        let properties = json_check::check_text(text.get())
            .map_err(|error| de::Error::custom(error.into_serde()))?;
        Ok(Self::of_text(text, properties))
    }
}

#[cfg(test)]
mod tests;
