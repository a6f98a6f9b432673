//! The syntax of workflow definitions, as types.
//!
//! The types derive `Deserialize`. With the feature `schema` they also derive `JsonSchema`, and their doc comments are the
//! descriptions in the JSON Schema of the language. The module `definition` compiles the types.
//!
//! [`Written::read`] fills one struct from the fields of one object. Nested parts are [`Nested`] in the structs: the compiler
//! reads each part separately, so an error has the path to fix, the value and the reason. These rules apply:
//! - The kind of a step, condition, case or escalation is the field that only this kind has.
//! - A field that is null is absent, unless the field can have any JSON.
//! - A field that the struct does not have is a comment, an error, or recorded in [`UnknownFields`].

/// Declares structs for the objects of a workflow definition.
macro_rules! objects {
    ($(
        $(#[$about:meta])*
        $name:ident {
            $($(#[$attribute:meta])* $field:ident: $type:ty,)*
        }
    )+) => {$(
        #[derive(Debug, Deserialize)]
        #[cfg_attr(feature = "schema", derive(JsonSchema))]
        $(#[$about])*
        pub(in crate::workflow) struct $name {
            $($(#[$attribute])* pub(in crate::workflow) $field: $type,)*
        }
    )+};
}

/// Declares an enum for objects that have several kinds in a workflow definition, such as steps. A kind is a field and the struct of the
/// objects that have this field.
macro_rules! kinds {
    (
        $(#[$about:meta])*
        $name:ident { $($(#[$attribute:meta])* $kind:literal => $variant:ident($type:ty),)+ }
    ) => {
        #[derive(Debug)]
        #[cfg_attr(feature = "schema", derive(JsonSchema), schemars(untagged))]
        $(#[$about])*
        pub(in crate::workflow) enum $name {
            $($(#[$attribute])* $variant($type),)+
        }

        impl $name {
            pub(in crate::workflow) fn read(
                written: &Written<'_>,
            ) -> Result<Self, WorkflowLoadError> {
                const KINDS: &[&str] = &[$($kind),+];
                let fields = || -> Vec<&'static str> { [$(names::<$type>()),+].concat() };
                let kind = written.kind(KINDS)?;
                match kind {
                    $(Some($kind) => written.read_kind(kind, &fields).map(Self::$variant),)+
                    None | Some(_) => Err(written.without_kind(KINDS, &fields())),
                }
            }
        }
    };
}

mod flows;
mod parts;
mod read;
#[cfg(feature = "schema")]
mod schema;
mod steps;
mod unknown;
mod values;

pub(super) use flows::{Flow, GraphStep};
pub(super) use parts::{Condition, Emit, Event, EventCondition, Retry};
pub(super) use read::{Written, names};
#[cfg(feature = "schema")]
pub(super) use schema::{
    history, instruction, json_schema, named, schemas, seconds as seconds_schema,
};
pub(super) use steps::{Case, Common, Escalation, ForEachStep, Join, Step};
pub(super) use unknown::UnknownFields;
pub(super) use values::{Nested, positive, seconds, whole, word};

use super::error::{LoadProblem, WorkflowLoadError};
use crate::error::excerpt;
use crate::model::DefinitionPath;
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of names in one section of a workflow definition.
pub(super) const NAMES: usize = 256;

/// Maximum size in bytes of a name in a workflow definition, for example of an agent, a step or a variable.
pub(super) const NAME_BYTES: usize = 64;

/// Maximum number of branches of one `parallel` step, and of cases of one `match` step.
pub(super) const BRANCHES: usize = 64;

/// Maximum number of variables that one `set` step sets.
pub(super) const VARIABLES: usize = 64;

/// Names of the variables that only the interpreter sets.
pub(super) const RESERVED: [&str; 8] = [
    "input",
    "last",
    "error",
    "item",
    "index",
    "iteration",
    "result",
    "matched",
];

/// Reads the named objects in a section of a workflow definition.
pub(super) fn section<T>(
    section: &str,
    named: &BTreeMap<String, Value>,
    unknown: &UnknownFields,
    mut read: impl FnMut(&Written<'_>) -> Result<T, WorkflowLoadError>,
) -> Result<BTreeMap<String, T>, WorkflowLoadError> {
    check_names(section, named)?;
    let section = DefinitionPath::default().field(section);
    let objects = named.iter().map(|(name, value)| {
        let object = read(&Written::new(value, section.field(name), unknown))?;
        Ok((name.clone(), object))
    });
    objects.collect()
}

/// Checks the number, length and characters of the names in a section of a workflow definition. Names are also parts of step paths, and of
/// paths in messages.
pub(super) fn check_names<T>(
    section: &str,
    named: &BTreeMap<String, T>,
) -> Result<(), WorkflowLoadError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let location = DefinitionPath::default().field(section);
    if named.len() > NAMES {
        let (what, found, most) = ("names", named.len(), NAMES);
        let problem = LoadProblem::TooMany { what, found, most };
        return Err(WorkflowLoadError::new(location, problem));
    }
    for name in named.keys() {
        let reason = if name.is_empty() {
            "a name must not be empty"
        } else if name.len() > NAME_BYTES {
            "a name has at most 64 bytes"
        } else if !name.chars().all(plain) {
            "only letters, digits, _, - and . are allowed"
        } else {
            continue;
        };
        let name = excerpt(name, 80).into_owned();
        return Err(WorkflowLoadError::new(
            location,
            LoadProblem::Name { name, reason },
        ));
    }
    Ok(())
}
