//! Parsed text of a definition: its JSON value, and the line and column of each part.

#[cfg(feature = "yaml")]
use super::yaml;
use super::{ReadProblem, load_error, locate, problem};
use crate::model::{DefinitionPath, Json, JsonError, Position, parse_strictly};
use crate::workflow::WorkflowLoadError;
use serde_json::Value;
use std::borrow::Cow;

/// The parsed text of a definition, such as a workflow definition, in JSON or, with the feature `yaml`, in YAML.
#[derive(Debug)]
pub(crate) enum Document<'t> {
    Json {
        text: &'t str,
        value: Value,
    },
    #[cfg(feature = "yaml")]
    Yaml(yaml::Document),
}

impl<'t> Document<'t> {
    /// Parses the JSON text of a definition, such as a workflow definition, of at most 1 MiB.
    ///
    /// # Errors
    /// Returns the problem with its position. A duplicate key in an object is an error.
    pub(crate) fn json(text: &'t str) -> Result<Self, WorkflowLoadError> {
        let value = read(text).map_err(load_error)?;
        Ok(Self::Json { text, value })
    }

    /// Parses the text of a definition in YAML, which is one document that JSON can represent too.
    ///
    /// # Errors
    /// Returns the problem with its position.
    #[cfg(feature = "yaml")]
    pub(crate) fn yaml(text: &'t str) -> Result<Self, WorkflowLoadError> {
        yaml::read(text).map(Self::Yaml).map_err(load_error)
    }

    /// Parses the text of a workflow or other definition: as YAML if the feature `yaml` is enabled and the text does not start
    /// with `{`, otherwise as JSON.
    ///
    /// # Errors
    /// Returns the problem with its position.
    pub(crate) fn any(text: &'t str) -> Result<Self, WorkflowLoadError> {
        #[cfg(feature = "yaml")]
        if !text.trim_start().starts_with('{') {
            return Self::yaml(text);
        }
        Self::json(text)
    }

    pub(crate) fn value(&self) -> Cow<'_, Value> {
        match self {
            Self::Json { value, .. } => Cow::Borrowed(value),
            #[cfg(feature = "yaml")]
            Self::Yaml(document) => Cow::Owned(document.value()),
        }
    }

    /// Returns the line and column of a value in the definition's text. For a missing value, returns the position of the innermost existing
    /// value on its path.
    pub(crate) fn locate(&self, location: &DefinitionPath) -> Option<Position> {
        match self {
            Self::Json { text, .. } => Some(locate::locate(text, location)),
            #[cfg(feature = "yaml")]
            Self::Yaml(document) => document.locate(location),
        }
    }
}

fn read(text: &str) -> Result<Value, ReadProblem> {
    let (size, limit) = (text.len(), Json::MAX_BYTES);
    if size > limit {
        return Err(problem(JsonError::TooLarge { size, limit }));
    }
    parse_strictly(text).map_err(problem)
}
