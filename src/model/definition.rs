//! From JSON to subscriptions, with errors that name what to mend.

#[cfg(feature = "agents")]
mod condition_list;
mod conditions;
mod options;
mod path;
mod policy;
mod read;
mod validate;

#[cfg(feature = "agents")]
pub(crate) use condition_list::read_conditions;
#[cfg(feature = "agents")]
pub(crate) use conditions::CONDITION_FIELDS;
pub use options::DefinitionOptions;
pub use policy::{KeyPolicy, RolePolicy};
#[cfg(feature = "agents")]
pub(crate) use validate::ConditionCount;

use super::condition::{ConditionError, did_you_mean};
use super::fields::{did_you_mean_any, unknown_field};
#[cfg(feature = "workflows")]
use super::finding::Finding;
use super::finding::Severity;
use super::json_check::{self, JsonError, MAX_DEPTH};
use super::place::DefinitionPath;
use super::subscription::Subscription;
use crate::error::Retry;
use serde_json::Value;
use std::fmt;

/// Maximum number of conditions in the definition of an executor or a workflow.
pub(crate) const MAX_CONDITIONS: usize = 1_000;
/// Maximum number of regular expressions in the definition of an executor or a workflow. One takes up to 256 KiB of
/// memory, and several milliseconds to compile.
pub(crate) const MAX_REGEXES: usize = 100;

/// A definition cannot be used, and what to mend: the subscription by index and key, the field, the value and the
/// nearest valid name.
#[derive(Clone, Debug, PartialEq)]
pub struct DefinitionError {
    subscription: Option<usize>,
    key: Option<String>,
    field: String,
    problem: Box<DefinitionProblem>,
}

/// What is wrong with a field of a definition.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionProblem {
    /// The text is not JSON, or an object in it has a key twice.
    #[error("{reason}")]
    NotJson {
        /// What the parser says, with line and column.
        reason: String,
    },
    /// The definition nests too deep.
    #[error("it nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The definition is too large.
    #[error("{size} bytes where at most {limit} are allowed")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// The field has the wrong type.
    #[error("it must be {expected}, not {found}")]
    Shape {
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// The field is absent and has no default.
    #[error("it is missing; write {expected}")]
    Missing {
        /// What to write.
        expected: &'static str,
    },
    /// The field does not exist, and the definition is read in [strict](DefinitionOptions::strict) mode.
    #[error("unknown field{}", did_you_mean_any(nearest))]
    UnknownField {
        /// The fields that the author can mean.
        nearest: Vec<&'static str>,
    },
    /// The field is given in two places.
    #[error("it is given twice")]
    Twice,
    /// The value is not one of the names that exist.
    #[error("{value:?} is not known{}", instead(*nearest, known))]
    Unknown {
        /// The value found.
        value: String,
        /// The closest name that exists.
        nearest: Option<&'static str>,
        /// All names that exist.
        known: Vec<&'static str>,
    },
    /// A condition cannot be evaluated.
    #[error("{0}")]
    Condition(ConditionError),
    /// A limit of 0 or over the cap.
    #[error("{value} is not between 1 and {most}")]
    Limit {
        /// The value found.
        value: usize,
        /// The cap.
        most: usize,
    },
    /// The definition has more subscriptions, conditions or regular expressions than the limit.
    #[error(
        "{count} {what} in one definition where at most {most} are allowed; merge them or split the definition"
    )]
    TooMany {
        /// The counted items in the plural: `subscriptions`, `conditions` or `regular expressions`.
        what: &'static str,
        /// The number of items.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The key names what the context always has.
    #[error("\"trigger\" is reserved for the trigger breadcrumb; choose another key")]
    ReservedKey,
    /// Two sources would have the same name.
    #[error("{name:?} already names subscription {other}; give one of them another key")]
    KeyTaken {
        /// The name.
        name: String,
        /// The index of the subscription that has it.
        other: usize,
    },
    /// A source that nothing could be found under.
    #[error("a context subscription needs a key or a schema_name to be found under")]
    NoName,
    /// `event_data` is the trigger itself.
    #[error("\"event_data\" is for triggers; use \"latest\", \"recent\" or \"vector\"")]
    EventDataOnContext,
    /// A trigger that says nothing.
    #[error(
        "a trigger without any selector would fire on everything; write \"schema_name\": \"*\" if that is meant"
    )]
    EmptyTrigger,
}

/// What would do in the place of a name that is not known.
fn instead(nearest: Option<&str>, known: &[&str]) -> String {
    match nearest {
        Some(_) => did_you_mean(nearest),
        None => format!("; there are {}", known.join(", ")),
    }
}

impl DefinitionError {
    /// The subscription it is about, counted from 0, unless it is about the whole definition.
    #[must_use]
    pub fn subscription(&self) -> Option<usize> {
        self.subscription
    }

    /// The key of that subscription.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The field to mend: `role`, `fetch.limit`, `context_match[0].path`.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong with it.
    #[must_use]
    pub fn problem(&self) -> &DefinitionProblem {
        &self.problem
    }

    /// Never: the definition has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }

    /// Returns the path of the field in the definition that was read, for example
    /// `context.subscriptions.selectors[1].fetch.limit`.
    #[must_use]
    pub fn path(&self, definition: &Value) -> DefinitionPath {
        match self.subscription {
            Some(index) => path::list(definition).item(index).join(&self.field),
            None if self.field.is_empty() => path::list(definition),
            None => DefinitionPath::default().join(&self.field),
        }
    }

    fn whole(field: &str, problem: DefinitionProblem) -> Self {
        Self {
            subscription: None,
            key: None,
            field: field.to_owned(),
            problem: Box::new(problem),
        }
    }
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, self.subscription, self.key.as_deref())?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for DefinitionError {}

/// A problem of a definition that loads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SubscriptionWarning {
    subscription: usize,
    key: Option<String>,
    odd: Odd,
}

/// A problem of one subscription.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Odd {
    /// The path of the field in the subscription; empty for the subscription as a whole.
    field: String,
    message: String,
    /// The suggestions for a field that does not exist; `None` for another problem.
    unknown: Option<Vec<&'static str>>,
}

impl Odd {
    fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
            unknown: None,
        }
    }

    fn unknown_field(field: &str, nearest: Vec<&'static str>) -> Self {
        Self {
            message: unknown_field(Severity::Warning, field, &nearest),
            field: field.to_owned(),
            unknown: Some(nearest),
        }
    }
}

impl SubscriptionWarning {
    /// Returns the index of the subscription, counted from 0.
    #[must_use]
    pub fn subscription(&self) -> usize {
        self.subscription
    }

    /// Returns the problem.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.odd.message
    }

    /// Returns the path of the field in the subscription: `fetch.limit`. It is empty for the subscription as a whole.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.odd.field
    }

    /// Returns `true` if the field does not exist, which is an error in [strict](DefinitionOptions::strict) mode.
    #[must_use]
    pub fn is_unknown_field(&self) -> bool {
        self.odd.unknown.is_some()
    }

    /// Returns the path of the field in the definition that was read, for example
    /// `context.subscriptions.selectors[1].fetch.limit`.
    #[must_use]
    pub fn path(&self, definition: &Value) -> DefinitionPath {
        let subscription = path::list(definition).item(self.subscription);
        subscription.join(&self.odd.field)
    }

    /// Returns the warning as a finding, which is an error in strict mode if the field does not exist.
    #[cfg(feature = "workflows")]
    pub(crate) fn finding(&self, definition: &Value, is_strict: bool) -> Finding {
        let place = self.path(definition);
        match &self.odd.unknown {
            Some(nearest) if is_strict => {
                let message = unknown_field(Severity::Error, &self.odd.field, nearest);
                Finding::error(place, message)
            }
            Some(_) | None => Finding::warning(place, &*self.odd.message),
        }
    }

    fn of(index: usize, subscription: &Subscription, odd: Odd) -> Self {
        Self {
            subscription: index,
            key: subscription.key.clone(),
            odd,
        }
    }
}

impl fmt::Display for SubscriptionWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, Some(self.subscription), self.key.as_deref())?;
        f.write_str(&self.odd.message)
    }
}

fn write_place(f: &mut fmt::Formatter<'_>, index: Option<usize>, key: Option<&str>) -> fmt::Result {
    match (index, key) {
        (Some(index), Some(key)) => write!(f, "subscription {index} ({key:?}): "),
        (Some(index), None) => write!(f, "subscription {index}: "),
        (None, _) => Ok(()),
    }
}

/// The largest definition text that is read, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// Reads a definition text, in which no object may have a key twice.
pub(super) fn parse_text(text: &str) -> Result<Value, DefinitionError> {
    let whole = |problem| DefinitionError::whole("", problem);
    if text.len() > MAX_TEXT {
        return Err(whole(DefinitionProblem::TooLarge {
            size: text.len(),
            limit: MAX_TEXT,
        }));
    }
    json_check::parse_strictly(text).map_err(|error| whole(problem(&error)))
}

fn problem(error: &JsonError) -> DefinitionProblem {
    match error {
        JsonError::TooDeep => DefinitionProblem::TooDeep,
        JsonError::TooLarge { size, limit } => DefinitionProblem::TooLarge {
            size: *size,
            limit: *limit,
        },
        JsonError::Syntax(error) => DefinitionProblem::NotJson {
            reason: error.to_string(),
        },
        JsonError::ReservedKey => DefinitionProblem::NotJson {
            reason: error.to_string(),
        },
    }
}

/// Reads and validates the subscriptions of a definition.
pub(super) fn from_json(
    definition: &Value,
    options: &DefinitionOptions,
) -> Result<(Vec<Subscription>, Vec<SubscriptionWarning>), DefinitionError> {
    json_check::admit(definition).map_err(|error| DefinitionError::whole("", problem(&error)))?;
    let (subscriptions, mut warnings) = read::subscriptions(definition, options)?;
    warnings.extend(validate::validate(&subscriptions, options)?);
    warnings.sort_by_key(SubscriptionWarning::subscription);
    Ok((subscriptions, at_most(MAX_WARNINGS, warnings)))
}

/// The maximum number of warnings about one definition. A definition of 1 MiB can have 100,000 unknown fields.
const MAX_WARNINGS: usize = 100;

/// Returns the first warnings, and one more with the number of omitted warnings if there are any.
fn at_most(limit: usize, mut warnings: Vec<SubscriptionWarning>) -> Vec<SubscriptionWarning> {
    let omitted = warnings.len().saturating_sub(limit);
    if let Some(first) = warnings.get(limit).filter(|_| omitted > 1) {
        let summary = SubscriptionWarning {
            subscription: first.subscription,
            key: first.key.clone(),
            odd: Odd::new("", format!("{omitted} more problems are omitted")),
        };
        warnings.truncate(limit);
        warnings.push(summary);
    }
    warnings
}

/// Returns the path of the list of subscriptions in a definition.
#[cfg(feature = "workflows")]
pub(crate) fn list_place(definition: &Value) -> DefinitionPath {
    path::list(definition)
}

/// Validates subscriptions however they were made.
pub(super) fn validate(
    subscriptions: &[Subscription],
    options: &DefinitionOptions,
) -> Result<Vec<SubscriptionWarning>, DefinitionError> {
    validate::validate(subscriptions, options)
}

#[cfg(test)]
mod tests;
