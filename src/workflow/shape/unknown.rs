//! Fields of a definition that no object at their path can have.

use super::{Form, Object, WORKFLOW};
use crate::model::{DefinitionPath, KnownFields};
use serde_json::Value;

/// Unknown fields. At most [`MAX`](Self::MAX) of them are retained.
#[derive(Debug, Default)]
pub(in crate::workflow) struct UnknownFields {
    pub(in crate::workflow) fields: Vec<UnknownField>,
    /// The number of all unknown fields.
    pub(in crate::workflow) count: usize,
}

/// A field that has no effect.
#[derive(Debug)]
pub(in crate::workflow) struct UnknownField {
    pub(in crate::workflow) place: DefinitionPath,
    pub(in crate::workflow) name: String,
    /// The fields that the author can mean.
    pub(in crate::workflow) nearest: Vec<&'static str>,
}

impl UnknownFields {
    pub(in crate::workflow) const MAX: usize = 100;

    /// Finds the unknown fields of a definition, which nests no deeper than JSON may nest.
    pub(in crate::workflow) fn of(definition: &Value) -> Self {
        static TOP: Form = Form::Object(&WORKFLOW);
        let mut found = Self::default();
        found.walk(definition, &[&TOP], &DefinitionPath::default());
        found
    }

    fn walk(&mut self, value: &Value, forms: &[&'static Form], place: &DefinitionPath) {
        let forms = alternatives(forms);
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            Value::Array(items) => {
                let of: Vec<&Form> = forms.iter().filter_map(|form| form.items()).collect();
                for (at, item) in items.iter().enumerate().filter(|_| !of.is_empty()) {
                    self.walk(item, &of, &place.item(at));
                }
            }
            Value::Object(fields) => {
                let named: Vec<&Form> = forms.iter().filter_map(|form| form.named()).collect();
                let objects: Vec<&Object> = forms.iter().filter_map(|form| form.object()).collect();
                // An object that can also be any JSON has no unknown fields.
                let is_closed = named.is_empty() && forms.iter().all(|form| !form.is_open());
                let names: Vec<&str> = objects.iter().flat_map(|object| object.names()).collect();
                let known = KnownFields {
                    names: &names,
                    aliases: &ALIASES,
                };
                for (name, value) in fields {
                    let place = place.field(name);
                    let ways = objects.iter().flat_map(|object| object.ways);
                    let same = ways.flat_map(|way| way.all().filter(|field| field.name == name));
                    let mut inner: Vec<&Form> = same.map(|field| field.form).collect();
                    inner.extend(&named);
                    if !inner.is_empty() {
                        self.walk(value, &inner, &place);
                    } else if is_closed && !objects.is_empty() && !known.contains(name) {
                        self.add(place, name, &known);
                    }
                }
            }
        }
    }

    fn add(&mut self, place: DefinitionPath, name: &str, known: &KnownFields<'_>) {
        self.count += 1;
        if self.fields.len() < Self::MAX {
            self.fields.push(UnknownField {
                place,
                name: name.to_owned(),
                nearest: known.suggest(name),
            });
        }
    }
}

/// Wrong names that occur in practice.
const ALIASES: [(&str, &[&str]); 4] = [
    ("prompt", &["instruction"]),
    ("instructions", &["instruction"]),
    ("system_prompt", &["instruction"]),
    ("on_error", &["on_failure"]),
];

/// Returns the forms without [`Form::Either`], each once.
fn alternatives(forms: &[&'static Form]) -> Vec<&'static Form> {
    let mut open = forms.to_vec();
    let mut found: Vec<&Form> = Vec::new();
    while let Some(form) = open.pop() {
        match form {
            Form::Either(either) => open.extend(*either),
            form if found.iter().any(|known| std::ptr::eq(*known, form)) => {}
            form => found.push(form),
        }
    }
    found
}

impl Form {
    fn object(&self) -> Option<&'static Object> {
        if let Self::Object(object) = self {
            return Some(object);
        }
        None
    }

    /// Returns the form of the items of a list.
    fn items(&self) -> Option<&'static Self> {
        if let Self::List(of, ..) | Self::Dependent(of) = self {
            return Some(of);
        }
        None
    }

    /// Returns the form of the values of an object with free names.
    fn named(&self) -> Option<&'static Self> {
        if let Self::Named(of) = self {
            return Some(of);
        }
        None
    }

    /// Reports whether an object of this form can have any fields.
    fn is_open(&self) -> bool {
        matches!(
            self,
            Self::Any | Self::Context | Self::JsonSchema | Self::Variables
        )
    }
}
