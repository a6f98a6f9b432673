//! The fields of one object of a definition, each with the error that names it.

use super::error::{LoadProblem, WorkflowLoadError};
use super::shape::{NAME_BYTES, Object};
use crate::error::excerpt;
use crate::model::{DefinitionPath, KnownFields};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;
use std::time::Duration;

pub(super) struct Fields<'v> {
    map: &'v Map<String, Value>,
    place: DefinitionPath,
}

/// What a field that is absent reads as.
static NULL: Value = Value::Null;

impl<'v> Fields<'v> {
    /// The fields of an object that has no others than it can have.
    pub(super) fn of(
        value: &'v Value,
        place: &DefinitionPath,
        object: &Object,
    ) -> Result<Self, WorkflowLoadError> {
        let fields = Self::of_any(value, place)?;
        fields.only(&object.names())?;
        Ok(fields)
    }

    /// The fields of an object, whatever they are called.
    pub(super) fn of_any(
        value: &'v Value,
        place: &DefinitionPath,
    ) -> Result<Self, WorkflowLoadError> {
        match value {
            Value::Object(map) => Ok(Self {
                map,
                place: place.clone(),
            }),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(WorkflowLoadError::shape(place.clone(), "an object", value)),
        }
    }

    /// Refuses every unknown field that is not a comment.
    pub(super) fn only(&self, names: &[&'static str]) -> Result<(), WorkflowLoadError> {
        let known = KnownFields {
            names,
            aliases: &[],
        };
        let Some(unknown) = self.map.keys().find(|name| !known.contains(name)) else {
            return Ok(());
        };
        let nearest = known.suggest(unknown).first().map(|&near| near.to_owned());
        let unknown = excerpt(unknown, 80);
        Err(self.error(&unknown, LoadProblem::UnknownField { nearest }))
    }

    pub(super) fn place(&self) -> &DefinitionPath {
        &self.place
    }

    pub(super) fn error(&self, field: &str, problem: LoadProblem) -> WorkflowLoadError {
        WorkflowLoadError::new(self.place.field(field), problem)
    }

    pub(super) fn missing(&self, field: &str, expected: &str) -> WorkflowLoadError {
        WorkflowLoadError::missing(self.place.field(field), expected)
    }

    /// Whether the field is written, if only as null.
    pub(super) fn has(&self, field: &str) -> bool {
        self.map.contains_key(field)
    }

    /// The field as it is written; null if it is absent.
    pub(super) fn raw(&self, field: &str) -> &'v Value {
        self.map.get(field).unwrap_or(&NULL)
    }

    /// The field; null counts as absent.
    pub(super) fn get(&self, field: &str) -> Option<(&'v Value, DefinitionPath)> {
        let value = self.map.get(field).filter(|value| !value.is_null())?;
        Some((value, self.place.field(field)))
    }

    /// Refuses a field that makes no sense here.
    pub(super) fn refuse(&self, field: &str, reason: &str) -> Result<(), WorkflowLoadError> {
        if self.has(field) {
            let reason = format!("it has no meaning here: {reason}");
            return Err(WorkflowLoadError::fields(self.place.field(field), reason));
        }
        Ok(())
    }

    /// Which one of some fields is written.
    pub(super) fn only_one_of(
        &self,
        names: &[&'static str],
    ) -> Result<&'static str, WorkflowLoadError> {
        let mut written = names.iter().copied().filter(|name| self.has(name));
        match (written.next(), written.next()) {
            (Some(one), None) => Ok(one),
            (Some(one), Some(other)) => {
                let reason = format!("{one:?} and {other:?} cannot stand side by side; write one");
                Err(WorkflowLoadError::fields(self.place.clone(), reason))
            }
            (None, _) => {
                let reason = format!("one of these is missing: {}", names.join(", "));
                Err(WorkflowLoadError::fields(self.place.clone(), reason))
            }
        }
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<String>, WorkflowLoadError> {
        self.read(field, "a text", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn required_text(
        &self,
        field: &str,
        expected: &str,
    ) -> Result<String, WorkflowLoadError> {
        match self.text(field)? {
            Some(text) => Ok(text),
            None => Err(self.missing(field, expected)),
        }
    }

    pub(super) fn texts(&self, field: &str) -> Result<Vec<String>, WorkflowLoadError> {
        let Some(list) = self.list(field)? else {
            return Ok(Vec::new());
        };
        let texts = list.into_iter().map(|(item, place)| match item.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(WorkflowLoadError::shape(place, "a text", item)),
        });
        texts.collect()
    }

    pub(super) fn flag(&self, field: &str) -> Result<Option<bool>, WorkflowLoadError> {
        self.read(field, "true or false", Value::as_bool)
    }

    pub(super) fn whole(
        &self,
        field: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, WorkflowLoadError> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.read(field, &expected, |value| {
            value.as_u64().filter(|number| range.contains(number))
        })
    }

    pub(super) fn number(&self, field: &str) -> Result<Option<f64>, WorkflowLoadError> {
        self.read(field, "a number", Value::as_f64)
    }

    /// A number of seconds over 0, at most a year.
    pub(super) fn seconds(&self, field: &str) -> Result<Option<Duration>, WorkflowLoadError> {
        const YEAR: f64 = 366.0 * 24.0 * 60.0 * 60.0;
        let expected = "a number of seconds over 0, at most a year";
        self.read(field, expected, |value| {
            let seconds = value.as_f64()?;
            let milliseconds = Duration::try_from_secs_f64(seconds).ok()?.as_millis();
            let milliseconds = u64::try_from(milliseconds).ok()?.max(1);
            (seconds > 0.0 && seconds <= YEAR).then(|| Duration::from_millis(milliseconds))
        })
    }

    pub(super) fn list(
        &self,
        field: &str,
    ) -> Result<Option<Vec<(&'v Value, DefinitionPath)>>, WorkflowLoadError> {
        let Some((value, place)) = self.get(field) else {
            return Ok(None);
        };
        let Some(items) = value.as_array() else {
            return Err(WorkflowLoadError::shape(place, "a list", value));
        };
        let items = items.iter().enumerate();
        let items = items.map(|(at, item)| (item, place.item(at))).collect();
        Ok(Some(items))
    }

    /// An object by the names in it, at most so many.
    pub(super) fn named(
        &self,
        field: &str,
        most: usize,
    ) -> Result<Vec<(&'v str, &'v Value, DefinitionPath)>, WorkflowLoadError> {
        let Some((value, place)) = self.get(field) else {
            return Ok(Vec::new());
        };
        let Value::Object(map) = value else {
            return Err(WorkflowLoadError::shape(
                place,
                "an object of them by name",
                value,
            ));
        };
        if map.len() > most {
            let (what, found) = ("names", map.len());
            let problem = LoadProblem::TooMany { what, found, most };
            return Err(WorkflowLoadError::new(place, problem));
        }
        let named = map.iter().map(|(name, value)| {
            check_name(name, &place)?;
            Ok((name.as_str(), value, place.field(name)))
        });
        named.collect()
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(
        &self,
        field: &str,
        words: &[(&'static str, T)],
    ) -> Result<Option<T>, WorkflowLoadError> {
        let Some(text) = self.text(field)? else {
            return Ok(None);
        };
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let (found, known) = (excerpt(&text, 80).into_owned(), known.join(", "));
                Err(self.error(field, LoadProblem::NoChoice { found, known }))
            }
        }
    }

    fn read<T>(
        &self,
        field: &str,
        expected: &str,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Result<Option<T>, WorkflowLoadError> {
        let Some((value, place)) = self.get(field) else {
            return Ok(None);
        };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(WorkflowLoadError::shape(place, expected, value)),
        }
    }
}

/// The names of things are also parts of paths of steps, and of places in messages.
pub(super) fn check_name(name: &str, place: &DefinitionPath) -> Result<(), WorkflowLoadError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_BYTES {
        "it is longer than 64 bytes"
    } else if !name.chars().all(plain) {
        "it may have letters, digits, _, - and . only"
    } else {
        return Ok(());
    };
    let name = excerpt(name, 80).into_owned();
    Err(WorkflowLoadError::new(
        place.clone(),
        LoadProblem::Name { name, reason },
    ))
}
