//! Collects the unknown fields of a workflow definition.

use crate::model::{DefinitionPath, DefinitionPathPart};
use crate::workflow::error::{LoadProblem, Oddity, WorkflowLoadError, WorkflowWarning};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};

/// Collector of the unknown fields of a workflow definition. Stores at most [`MAX`](Self::MAX) of them and counts all.
#[derive(Debug, Default)]
pub(in crate::workflow) struct UnknownFields {
    /// If `true`, an unknown field of the workflow definition is an error.
    is_strict: bool,
    fields: RefCell<Vec<UnknownField>>,
    /// The number of all unknown fields of the workflow definition, including fields that are only counted.
    count: Cell<usize>,
}

/// An unknown field of a workflow definition. The field has no effect.
#[derive(Debug)]
pub(super) struct UnknownField {
    pub(super) path: DefinitionPath,
    pub(super) name: String,
    /// The known fields that the author may have meant instead of the unknown field.
    pub(super) nearest: Vec<&'static str>,
}

impl UnknownFields {
    const MAX: usize = 100;

    pub(in crate::workflow) fn new(is_strict: bool) -> Self {
        Self {
            is_strict,
            ..Self::default()
        }
    }

    /// Returns `true` if the maximum number of unknown fields is stored, so that further unknown fields are only counted.
    pub(super) fn is_full(&self) -> bool {
        self.fields.borrow().len() >= Self::MAX
    }

    /// Records an unknown field of the workflow definition.
    ///
    /// # Errors
    /// In strict mode, returns an error that names the field.
    pub(super) fn note(&self, field: UnknownField) -> Result<(), WorkflowLoadError> {
        if self.is_strict {
            return Err(unknown_field(field.path, field.nearest.first().copied()));
        }
        self.count.set(self.count.get() + 1);
        let mut fields = self.fields.borrow_mut();
        if fields.len() < Self::MAX {
            fields.push(field);
        }
        Ok(())
    }

    /// Returns the workflow definition without its unknown fields, and a warning for each of these fields.
    ///
    /// # Errors
    /// Returns the number of unknown fields if there are more than [`MAX`](Self::MAX).
    pub(in crate::workflow) fn remove_from(
        self,
        definition: &Value,
    ) -> Result<(Cow<'_, Value>, Vec<WorkflowWarning>), WorkflowLoadError> {
        let (what, found, most) = ("unknown fields", self.count.get(), Self::MAX);
        if found > most {
            let problem = LoadProblem::TooMany { what, found, most };
            return Err(WorkflowLoadError::new(DefinitionPath::default(), problem));
        }
        let mut known = Cow::Borrowed(definition);
        let mut warnings = Vec::new();
        for field in self.fields.into_inner() {
            remove(known.to_mut(), field.path.parts());
            let (name, nearest) = (field.name, field.nearest);
            let oddity = Oddity::UnknownField { name, nearest };
            warnings.push(WorkflowWarning::new(field.path, oddity));
        }
        Ok((known, warnings))
    }
}

/// Returns the error for an unknown field of a workflow definition.
pub(super) fn unknown_field(path: DefinitionPath, nearest: Option<&str>) -> WorkflowLoadError {
    let nearest = nearest.map(str::to_owned);
    WorkflowLoadError::new(path, LoadProblem::UnknownField { nearest })
}

fn remove(value: &mut Value, path: &[DefinitionPathPart]) {
    match (value, path) {
        (Value::Object(fields), [DefinitionPathPart::Field(name)]) => drop(fields.remove(name)),
        (Value::Object(fields), [DefinitionPathPart::Field(name), rest @ ..]) => {
            if let Some(inner) = fields.get_mut(name) {
                remove(inner, rest);
            }
        }
        (Value::Array(items), [DefinitionPathPart::Item(at), rest @ ..]) => {
            if let Some(inner) = items.get_mut(*at) {
                remove(inner, rest);
            }
        }
        (
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
            _,
        ) => {}
    }
}
