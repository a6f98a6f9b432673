//! What the objects of a definition are made of: the fields of each, and of what form they are.
//!
//! The reader takes from here which fields there are, and the JSON Schema of the language is made of the same tables. What
//! a reader makes of a value stands with the reader; tests hold the two to each other.

mod parts;
#[cfg(feature = "schema")]
mod schema;
mod sections;
mod steps;
mod unknown;

pub(super) use parts::{BRANCH, CASE, CONDITION, EMIT, ESCALATION, TEST, WAIT_FOR};
#[cfg(feature = "schema")]
pub(super) use schema::json_schema;
pub(super) use sections::{
    AGENT, COMPACTION, COMPACTION_METHODS, GUARDRAILS, LIMITS, MODEL, PERMISSIONS, POLICIES,
    PROMPT, RETRY, TOOL, WORKFLOW,
};
pub(super) use steps::{
    BRANCHES, FLOW, JOINS, RESERVED, STEP, VARIABLES, node_fields, node_kinds, step_fields,
};
pub(super) use unknown::UnknownFields;

/// The most names in one section of a definition.
pub(super) const NAMES: usize = 256;

/// The most bytes of a name.
pub(super) const NAME_BYTES: usize = 64;

/// An object, in each of the ways in which it can be written.
pub(super) struct Object {
    /// What it is called in the JSON Schema.
    #[cfg_attr(
        not(feature = "schema"),
        expect(dead_code, reason = "the schema says it")
    )]
    pub(super) name: &'static str,
    #[cfg_attr(
        not(feature = "schema"),
        expect(dead_code, reason = "the schema says it")
    )]
    pub(super) about: &'static str,
    pub(super) ways: &'static [Way],
}

/// One way to write an object: the fields that it may have then.
pub(super) struct Way {
    pub(super) fields: &'static [&'static [Field]],
}

pub(super) struct Field {
    pub(super) name: &'static str,
    #[cfg_attr(
        not(feature = "schema"),
        expect(dead_code, reason = "the schema says it")
    )]
    pub(super) about: &'static str,
    pub(super) form: &'static Form,
    #[cfg_attr(
        not(feature = "schema"),
        expect(dead_code, reason = "the schema says it")
    )]
    pub(super) need: Need,
}

/// Whether a field may be absent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Need {
    /// It may, and null says the same.
    Optional,
    Required,
}

/// What a value looks like.
#[cfg_attr(
    not(feature = "schema"),
    expect(dead_code, reason = "the schema says it")
)]
pub(super) enum Form {
    /// Any JSON, with places for variables in its texts.
    Any,
    Text,
    Texts,
    Flag,
    Number,
    /// A number of seconds over 0, at most a year.
    Seconds,
    Whole(u64, u64),
    /// One of these.
    Word(&'static [&'static str]),
    /// This flag.
    Only(bool),
    Null,
    /// A name that a variable can have.
    Variable,
    /// The same, or this one, which is there by itself.
    VariableOr(&'static str),
    /// The name of a schema, without variables in it.
    SchemaName,
    /// An operator of conditions.
    Op,
    JsonSchema,
    /// What a breadcrumb has as its context: an object, or a text that becomes one.
    Context,
    Object(&'static Object),
    /// So many of these at the least and at the most.
    List(&'static Self, usize, usize),
    /// Some of these, one of which has the field `depends_on`.
    Dependent(&'static Self),
    /// These by name.
    Named(&'static Self),
    /// Values by the variables that take them.
    Variables,
    Either(&'static [&'static Self]),
}

impl Object {
    /// The names of the fields that it can have, whichever way it is written.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for field in self.ways.iter().flat_map(Way::all) {
            if !names.contains(&field.name) {
                names.push(field.name);
            }
        }
        names
    }
}

impl Way {
    pub(super) fn all(&self) -> impl Iterator<Item = &'static Field> {
        self.fields.iter().copied().flatten()
    }
}

const fn optional(name: &'static str, form: &'static Form, about: &'static str) -> Field {
    let need = Need::Optional;
    Field {
        name,
        about,
        form,
        need,
    }
}

const fn required(name: &'static str, form: &'static Form, about: &'static str) -> Field {
    let need = Need::Required;
    Field {
        name,
        about,
        form,
        need,
    }
}
