//! Reads objects of a workflow definition into structs that derive `Deserialize`, one object at a time, to find its unknown
//! fields.

use super::unknown::{UnknownField, UnknownFields, unknown_field};
use crate::model::{DefinitionPath, KnownFields, is_comment, nearest};
use crate::workflow::error::WorkflowLoadError;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use std::cell::Cell;

/// Names of the fields of an object in a workflow definition.
pub(in crate::workflow) type Names = &'static [&'static str];

/// Name of a field with an inner object, and the function that checks this object.
type Part = (
    &'static str,
    fn(&Written<'_>) -> Result<(), WorkflowLoadError>,
);

/// Names of the fields of steps and conditions that can have any JSON value, even null. Other fields that are null are absent.
const NULL_IS_A_VALUE: [&str; 7] = [
    "continue", "for_each", "input", "is", "match", "return", "value",
];

/// Wrong field names that occur in workflow definitions in practice, with the right names.
const ALIASES: [(&str, &[&str]); 4] = [
    ("prompt", &["instruction"]),
    ("instructions", &["instruction"]),
    ("system_prompt", &["instruction"]),
    ("on_error", &["on_failure"]),
];

/// A value of a workflow definition, its path, and the collector of the definition's unknown fields.
#[derive(Clone, Debug)]
pub(in crate::workflow) struct Written<'v> {
    pub(in crate::workflow) value: &'v Value,
    pub(in crate::workflow) path: DefinitionPath,
    unknown: &'v UnknownFields,
    /// Names of the object's fields that other code reads, and that a read of the other fields does not report as unknown.
    apart: Names,
}

impl<'v> Written<'v> {
    pub(in crate::workflow) const fn new(
        value: &'v Value,
        path: DefinitionPath,
        unknown: &'v UnknownFields,
    ) -> Self {
        Self {
            value,
            path,
            unknown,
            apart: &[],
        }
    }

    /// Returns the value of a field of this definition object, or `None` if the field is absent or null.
    pub(in crate::workflow) fn field(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(Self::new(value, self.path.field(name), self.unknown))
    }

    /// Returns the items of the list in a field of this workflow definition object, or an empty list if the field is absent or
    /// null.
    pub(in crate::workflow) fn list(&self, name: &str) -> Result<Vec<Self>, WorkflowLoadError> {
        let Some(list) = self.field(name) else {
            return Ok(Vec::new());
        };
        let Some(items) = list.value.as_array() else {
            return Err(list.shape("a list"));
        };
        let items = items.iter().enumerate();
        let items = items.map(|(at, item)| Self::new(item, list.path.item(at), self.unknown));
        Ok(items.collect())
    }

    /// Returns a copy of this workflow definition object in which the fields `apart` do not count as unknown, because other code
    /// reads them.
    pub(super) fn apart(&self, apart: Names) -> Self {
        Self {
            apart,
            ..self.clone()
        }
    }

    /// Reads the fields of a workflow definition object into a struct of type `T`, and reports unknown fields. An unknown field
    /// is an error if its name is similar to that of a known field. Other unknown fields are recorded.
    pub(in crate::workflow) fn read<T: DeserializeOwned>(&self) -> Result<T, WorkflowLoadError> {
        self.read_kind(None, &Vec::<&'static str>::new)
    }

    /// Reads a workflow definition object of a known kind, such as a tool step, into the struct for this kind. A field that only
    /// other kinds have is an error.
    pub(super) fn read_kind<T: DeserializeOwned>(
        &self,
        kind: Option<&str>,
        others: &dyn Fn() -> Vec<&'static str>,
    ) -> Result<T, WorkflowLoadError> {
        let read = self.read_some()?;
        self.check_unknown(names::<T>(), kind, others)?;
        Ok(read)
    }

    /// Reads the fields of a workflow definition object into a struct of type `T`, and ignores fields that the struct does not
    /// have.
    pub(in crate::workflow) fn read_some<T: DeserializeOwned>(
        &self,
    ) -> Result<T, WorkflowLoadError> {
        let fields = Fields {
            object: self.object()?,
            names: &Cell::<Names>::new(&[]),
        };
        let read = serde_path_to_error::deserialize(fields);
        read.map_err(|error| self.error(&error, names::<T>()))
    }

    /// Reads a workflow definition object into a struct of type `T` that contains other structs, after a separate check of each
    /// inner object. One read finds null and unknown fields in one object only.
    pub(in crate::workflow) fn read_with_parts<T: DeserializeOwned>(
        &self,
        parts: &[Part],
    ) -> Result<T, WorkflowLoadError> {
        for (name, check) in parts {
            self.field(name).map_or(Ok(()), |part| check(&part))?;
        }
        let mut value = self.value.clone();
        for (_, inner) in value.as_object_mut().into_iter().flatten() {
            if let Value::Object(fields) = inner {
                fields.retain(|_, field| !field.is_null());
            }
        }
        Written::new(&value, self.path.clone(), self.unknown).read()
    }

    /// Checks that a workflow definition object can be read into a struct of type `T`.
    pub(in crate::workflow) fn check<T: DeserializeOwned>(&self) -> Result<(), WorkflowLoadError> {
        self.read::<T>().map(drop)
    }

    /// Returns those fields of a workflow definition object that the struct `T` has, with their values as written in the
    /// definition.
    pub(in crate::workflow) fn fields_of<T: DeserializeOwned>(&self) -> Map<String, Value> {
        let fields = self.value.as_object().into_iter().flatten();
        let fields = fields.filter(|(name, _)| names::<T>().contains(&name.as_str()));
        let fields = fields.map(|(name, value)| (name.clone(), value.clone()));
        fields.collect()
    }

    /// Returns the kind of a workflow definition object, for example of a step, which the name of one of its fields determines.
    /// `kinds` lists the field names that determine a kind. An object with several of them is an error.
    pub(super) fn kind(&self, kinds: Names) -> Result<Option<&'static str>, WorkflowLoadError> {
        let object = self.object()?;
        let present = kinds.iter().copied();
        let mut present: Vec<_> = present.filter(|kind| object.contains_key(*kind)).collect();
        // The steps of a `for_each` do not decide its kind.
        if present.len() > 1 {
            present.retain(|kind| *kind != "steps");
        }
        if let [one, other, ..] = present.as_slice() {
            let reason = format!("{one:?} and {other:?} are mutually exclusive; write one of them");
            return Err(WorkflowLoadError::fields(self.path.clone(), reason));
        }
        Ok(present.first().copied())
    }

    /// Returns the error for an object whose kind is missing, such as a step without any of the fields in `kinds`.
    pub(super) fn without_kind(&self, kinds: Names, others: &[&str]) -> WorkflowLoadError {
        let names = self.value.as_object().into_iter().flat_map(Map::keys);
        let mut names = names.filter(|name| !others.contains(&name.as_str()) && !is_comment(name));
        let near = names.find_map(|name| Some((name, nearest(name, kinds.iter().copied())?)));
        match near {
            Some((name, near)) => unknown_field(self.path.field(name), Some(near)),
            None => {
                let reason = format!("one of these fields is required: {}", kinds.join(", "));
                WorkflowLoadError::fields(self.path.clone(), reason)
            }
        }
    }

    pub(in crate::workflow) fn shape(&self, expected: impl Into<String>) -> WorkflowLoadError {
        WorkflowLoadError::shape(self.path.clone(), expected, self.value)
    }

    fn object(&self) -> Result<&'v Map<String, Value>, WorkflowLoadError> {
        let object = self.value.as_object();
        object.ok_or_else(|| self.shape("an object"))
    }

    /// Converts a serde error to an error of the workflow definition, with the path of the invalid value and a description of
    /// this value.
    fn error(
        &self,
        error: &serde_path_to_error::Error<serde_json::Error>,
        names: Names,
    ) -> WorkflowLoadError {
        let (mut path, mut found) = (self.path.clone(), Some(self.value));
        for segment in error.path() {
            match segment {
                Segment::Map { key } => {
                    path = path.field(key);
                    found = found.and_then(|value| value.get(key.as_str()));
                }
                Segment::Seq { index } => {
                    path = path.item(*index);
                    found = found.and_then(|value| value.get(*index));
                }
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        let message = error.inner().to_string();
        let missing = message.strip_prefix("missing field `");
        let Some(field) = missing.and_then(|rest| rest.strip_suffix('`')) else {
            let found = found.unwrap_or(self.value);
            return WorkflowLoadError::shape(path, expected(&message), found);
        };
        let mut present = self.value.as_object().into_iter().flat_map(Map::keys);
        let is_near =
            |name: &&String| !self.is_known(name, names) && nearest(name, [field]).is_some();
        match present.find(is_near) {
            Some(name) => unknown_field(path.field(name), Some(field)),
            None => WorkflowLoadError::missing(path.field(field), remedy(field)),
        }
    }

    fn is_known(&self, name: &str, names: Names) -> bool {
        names.contains(&name) || self.apart.contains(&name) || is_comment(name)
    }

    fn check_unknown(
        &self,
        names: Names,
        kind: Option<&str>,
        others: &dyn Fn() -> Vec<&'static str>,
    ) -> Result<(), WorkflowLoadError> {
        let is_unknown = |name: &&String| !self.is_known(name, names);
        let mut unknown = self.object()?.keys().filter(is_unknown).peekable();
        if unknown.peek().is_none() {
            return Ok(());
        }
        let others = others();
        let fields = KnownFields {
            names: &[names, self.apart, others.as_slice()].concat(),
            aliases: &ALIASES,
        };
        for name in unknown {
            let path = self.path.field(name);
            if others.contains(&name.as_str()) {
                let location = kind.map_or("here".to_owned(), |kind| format!("next to {kind:?}"));
                let names = names.join(", ");
                let reason = format!("unknown field {location}; known fields: {names}");
                return Err(WorkflowLoadError::fields(path, reason));
            }
            // Above the maximum number of unknown fields the definition is refused, so further suggestions would only take time.
            let suggested = match self.unknown.is_full() {
                true => Vec::new(),
                false => fields.suggest(name),
            };
            if let Some(near) = nearest(name, suggested.iter().copied()) {
                return Err(unknown_field(path, Some(near)));
            }
            self.unknown.note(UnknownField {
                path,
                name: name.clone(),
                nearest: suggested,
            })?;
        }
        Ok(())
    }
}

/// Returns the names of the fields that serde reads into the struct `T`.
pub(in crate::workflow) fn names<T: DeserializeOwned>() -> Names {
    let (object, names) = (Map::new(), Cell::<Names>::new(&[]));
    let fields = Fields {
        object: &object,
        names: &names,
    };
    drop(T::deserialize(fields));
    names.get()
}

/// Deserializer that gives a struct only the struct's own fields of a workflow definition object, without nulls that mean absent
/// fields.
struct Fields<'de, 'n> {
    object: &'de Map<String, Value>,
    /// Field names of the struct that serde reads, set when serde calls `deserialize_struct`. Empty before this call.
    names: &'n Cell<Names>,
}

impl<'de> Deserializer<'de> for Fields<'de, '_> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: Names,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.names.set(names);
        let is_present = |name: &str, value: &Value| {
            names.contains(&name) && (!value.is_null() || NULL_IS_A_VALUE.contains(&name))
        };
        let present = self.object.iter();
        let present = present.filter(|(name, value)| is_present(name, value));
        let present = present.map(|(name, value)| (name.as_str(), value));
        MapDeserializer::<_, Self::Error>::new(present).deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Extracts the description of the expected value from the end of a serde error message.
fn expected(message: &str) -> String {
    let expected = message.rsplit_once(", expected ");
    let expected = match expected.map_or(message, |(_, expected)| expected) {
        "a boolean" => "true or false",
        "a map" => "an object",
        "a sequence" => "a list",
        "f64" => "a number",
        other => other,
    };
    expected.replace('`', "\"")
}

/// Returns the description of the value to write for a missing field of a workflow definition.
fn remedy(field: &str) -> &'static str {
    match field {
        "agent" | "flow" | "model" | "tool" => "the name of an entry in the definition",
        "all" | "any" => "a list of conditions",
        "at_tokens" => "a number of tokens",
        "attempts" | "max" => "a maximum number",
        "cases" => "a list of cases",
        "id" => "a name that other steps can depend on",
        "if" | "not" | "when" => "a condition: {\"path\", \"op\", \"value\"}",
        "instruction" => "the instructions to the model",
        "loop" | "on_failure" | "parallel" | "steps" | "then" | "try" => "a list of steps",
        "method" => "\"truncate\" or \"summarise\"",
        "op" => "an operator such as \"eq\"",
        "path" => "a path such as \"draft.score\"",
        "prompt" => "a name in \"prompts\"",
        "schema_name" => "the schema of the breadcrumb",
        "set" => "at least one variable",
        _ => "a value",
    }
}
