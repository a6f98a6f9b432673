//! Parsing and validation of subscriptions from JSON, with errors that name the field to fix.

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
use super::definition_path::DefinitionPath;
use super::fields::{did_you_mean_any, unknown_field};
#[cfg(feature = "workflows")]
use super::finding::Finding;
use super::finding::Severity;
use super::json_check::{self, JsonError, MAX_DEPTH};
use super::subscription::Subscription;
use crate::error::Retry;
use serde_json::Value;
use std::fmt;

/// Maximum number of conditions in the definition of an executor or a workflow.
pub(crate) const MAX_CONDITIONS: usize = 1_000;
/// Maximum number of regular expressions in the definition of an executor or a workflow. Each takes up to 256 KiB of memory and
/// several milliseconds to compile.
pub(crate) const MAX_REGEXES: usize = 100;

/// Error of a definition whose subscriptions are invalid or exceed a limit. Names the subscription by index and key, the field to fix, the
/// value and the nearest valid name.
///
/// A retry cannot succeed before the definition changes.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::Subscriptions;
/// use universal_executor::model::DefinitionProblem;
///
/// let definition = json!([{"schema_name": "order.v1", "role": "triger"}]);
/// let error = Subscriptions::from_json(&definition).unwrap_err();
///
/// assert_eq!(error.field(), "role");
/// assert!(matches!(error.problem(), DefinitionProblem::Unknown { nearest: Some("trigger"), .. }));
/// assert!(error.to_string().contains("did you mean \"trigger\"?"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DefinitionError {
    subscription: Option<usize>,
    key: Option<String>,
    field: String,
    problem: Box<DefinitionProblem>,
}

/// Reason why a field in a definition of subscriptions is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionProblem {
    /// The text with the subscriptions is not JSON, or has an object with a duplicate or reserved key.
    ///
    /// Use the line and the column of `reason` to find the mistake.
    #[error("the JSON of the subscriptions is not valid: {reason}")]
    NotJson {
        /// Message of the JSON parser about the definition text, with line and column.
        reason: String,
    },
    /// The JSON text with the subscriptions nests deeper than 64 levels.
    #[error("the JSON of the subscriptions nests deeper than {MAX_DEPTH} levels; flatten it")]
    TooDeep,
    /// The JSON text with the subscriptions exceeds the maximum size.
    ///
    /// The maximum is 1 MiB.
    #[error(
        "the JSON of the subscriptions has {size} bytes where at most {limit} are allowed; split it"
    )]
    TooLarge {
        /// Size of the JSON text with the subscriptions, in bytes.
        size: usize,
        /// Maximum size of a JSON text with subscriptions, in bytes.
        limit: usize,
    },
    /// A field of the definition has a value of the wrong type.
    ///
    /// Write the value that `expected` describes.
    #[error("the value must be {expected}, not {found}")]
    Shape {
        /// Description of a valid value for the field of the definition.
        expected: &'static str,
        /// The value of the wrong type that the field of the definition has, shortened.
        found: String,
    },
    /// A required field is missing in the definition, such as the field `role` of a subscription.
    ///
    /// Add the field, such as `role`, which every subscription needs by default.
    #[error("missing value; write {expected}")]
    Missing {
        /// Description of a valid value for the missing field of the definition.
        expected: &'static str,
    },
    /// A subscription has an unknown field, and the definition is read in [strict](DefinitionOptions::strict) mode.
    ///
    /// Outside of this mode, the field is a [`SubscriptionWarning`].
    #[error("unknown field{}", did_you_mean_any(nearest))]
    UnknownField {
        /// The known fields that the author of the unknown field probably means.
        nearest: Vec<&'static str>,
    },
    /// A field of a subscription is both inside and outside of its `selector`.
    #[error("the field is both inside and outside of \"selector\"; remove one of the two")]
    Twice,
    /// A field of the definition that accepts only certain names, such as the field `role`, has another value.
    ///
    /// The nearest name is in the message if one is close.
    #[error("unknown value {value:?}{}", instead(*nearest, known))]
    Unknown {
        /// The invalid name in a field of a subscription that accepts only certain names, such as `role`.
        value: String,
        /// The accepted name that is closest to the invalid name in the subscription's field, or `None` if no name is close.
        nearest: Option<&'static str>,
        /// All names that the field of the definition accepts.
        known: Vec<&'static str>,
    },
    /// A condition of the definition does not compile.
    ///
    /// [`DefinitionError::field`] has the index of the condition and its field.
    #[error("{0}")]
    Condition(ConditionError),
    /// The maximum number of breadcrumbs that a subscription fetches is 0, or higher than [`DefinitionOptions::max_limit`].
    ///
    /// The maximum is 1,000 by default.
    #[error("the fetch limit {value} is out of range; set a limit from 1 to {most}")]
    Limit {
        /// The invalid maximum number of fetched breadcrumbs, as the definition states it.
        value: usize,
        /// The highest number that a definition may state as the maximum number of fetched breadcrumbs.
        most: usize,
    },
    /// The definition has more subscriptions, conditions or regular expressions than the limit.
    ///
    /// The defaults are 256 subscriptions, 1,000 conditions and 100 regular expressions, see
    /// [`DefinitionOptions`].
    #[error(
        "{count} {what} in one definition where at most {most} are allowed; merge them or split the definition"
    )]
    TooMany {
        /// The kind of definition items that exceed their limit: `subscriptions`, `conditions` or `regular expressions`.
        what: &'static str,
        /// The number of subscriptions, conditions or regular expressions in the definition.
        count: usize,
        /// The maximum number of subscriptions, conditions or regular expressions in one definition.
        most: usize,
    },
    /// The key of a subscription is `trigger`, which is reserved for the trigger breadcrumb in the context of every run.
    ///
    /// The context already has the trigger under this name.
    #[error("\"trigger\" is reserved for the trigger breadcrumb; choose another key")]
    ReservedKey,
    /// Two subscriptions of the definition have the same name.
    ///
    /// The name is the key, or the schema name of a context subscription without a key. Two
    /// triggers may share a key.
    #[error("{name:?} is already the name of subscription {other}; choose another key")]
    KeyTaken {
        /// The name that both subscriptions have.
        name: String,
        /// The index of the earlier subscription with this name, counted from 0.
        other: usize,
    },
    /// A context subscription has neither a key nor a schema name, so a run's context has no name for its breadcrumbs.
    ///
    /// Without a name, `execute` could not read the breadcrumbs.
    #[error("a context subscription needs a name; add \"key\" or \"schema_name\"")]
    NoName,
    /// A context subscription has the fetch method `event_data`, but only a trigger subscription can have this method. The method fetches
    /// the trigger breadcrumb.
    ///
    /// The trigger is always in the context, so no subscription is needed to read it.
    #[error(
        "fetch method \"event_data\" is only for triggers; use \"latest\", \"recent\" or \"vector\""
    )]
    EventDataOnContext,
    /// A trigger subscription has no schema name, no tags and no conditions, so it would match every breadcrumb.
    ///
    /// The rule prevents an executor that runs for every breadcrumb by mistake.
    #[error(
        "a trigger without a selector would match every breadcrumb; to match every breadcrumb, write \"schema_name\": \"*\""
    )]
    EmptyTrigger,
}

/// Returns the end of an error message about an unknown name: the nearest name, or all known names.
fn instead(nearest: Option<&str>, known: &[&str]) -> String {
    match nearest {
        Some(_) => did_you_mean(nearest),
        None => format!("; expected one of {}", known.join(", ")),
    }
}

impl DefinitionError {
    /// Returns the index of the subscription with the problem, counted from 0, or `None` if the problem concerns the whole definition.
    ///
    /// The messages of this error have the same index.
    #[must_use]
    pub fn subscription(&self) -> Option<usize> {
        self.subscription
    }

    /// Returns the key of the subscription with the problem, or `None` if it has no key or the problem concerns the whole
    /// definition.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the path of the field to fix in the subscription, for example `role`, `fetch.limit` or `context_match[0].path`.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns the reason why the field of the subscription or the definition is invalid.
    #[must_use]
    pub fn problem(&self) -> &DefinitionProblem {
        &self.problem
    }

    /// Returns [`Retry::Never`], because another read of the unchanged subscriptions fails again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }

    /// Returns the path of the field to fix in the definition that was read, for example
    /// `context.subscriptions.selectors[1].fetch.limit`.
    #[must_use]
    pub fn path(&self, definition: &Value) -> DefinitionPath {
        match self.subscription {
            Some(index) => path::list(definition).item(index).join(&self.field),
            None if self.field.is_empty() => path::list(definition),
            None => DefinitionPath::default().join(&self.field),
        }
    }

    fn of_definition(field: &str, problem: DefinitionProblem) -> Self {
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
        write_subscription_prefix(f, self.subscription, self.key.as_deref())?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for DefinitionError {}

/// Warning about a subscription that probably does not work as intended. The definition of the subscription loads nevertheless.
///
/// [`Subscriptions::warnings`](super::Subscriptions::warnings) returns the warnings. Examples are
/// an unknown field, an empty `any_tags`, and a limit on `latest`. A [`Runtime`](crate::Runtime)
/// logs them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SubscriptionWarning {
    subscription: usize,
    key: Option<String>,
    detail: WarningDetail,
}

/// Problem of a subscription in a definition that loads. For example, a field has no effect, or the subscription never matches.
#[derive(Clone, Debug, Eq, PartialEq)]
struct WarningDetail {
    /// The path of the field with the problem in the subscription; empty for the subscription as a whole.
    field: String,
    message: String,
    /// The known fields that the author of an unknown field probably means; `None` if the warning is not about an unknown field.
    unknown: Option<Vec<&'static str>>,
}

impl WarningDetail {
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
    /// Returns the index of the subscription that the warning is about, counted from 0.
    #[must_use]
    pub fn subscription(&self) -> usize {
        self.subscription
    }

    /// Returns the problem of the subscription in one sentence.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.detail.message
    }

    /// Returns the path of the subscription's field that the warning is about, for example `fetch.limit`. Empty for the subscription as a
    /// whole.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.detail.field
    }

    /// Returns `true` if the warning is about a field that does not exist, which is an error in [strict](DefinitionOptions::strict) mode.
    #[must_use]
    pub fn is_unknown_field(&self) -> bool {
        self.detail.unknown.is_some()
    }

    /// Returns the path of the field that the warning is about, in the definition that was read, for example
    /// `context.subscriptions.selectors[1].fetch.limit`.
    #[must_use]
    pub fn path(&self, definition: &Value) -> DefinitionPath {
        let subscription = path::list(definition).item(self.subscription);
        subscription.join(&self.detail.field)
    }

    /// Converts the warning to a problem of the definition: an error if the field is unknown and strict mode is on, otherwise a
    /// warning.
    #[cfg(feature = "workflows")]
    pub(crate) fn finding(&self, definition: &Value, is_strict: bool) -> Finding {
        let path = self.path(definition);
        match &self.detail.unknown {
            Some(nearest) if is_strict => {
                let message = unknown_field(Severity::Error, &self.detail.field, nearest);
                Finding::error(path, message)
            }
            Some(_) | None => Finding::warning(path, &*self.detail.message),
        }
    }

    fn of(index: usize, subscription: &Subscription, detail: WarningDetail) -> Self {
        Self {
            subscription: index,
            key: subscription.key.clone(),
            detail,
        }
    }
}

impl fmt::Display for SubscriptionWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_subscription_prefix(f, Some(self.subscription), self.key.as_deref())?;
        f.write_str(&self.detail.message)
    }
}

fn write_subscription_prefix(
    f: &mut fmt::Formatter<'_>,
    index: Option<usize>,
    key: Option<&str>,
) -> fmt::Result {
    match (index, key) {
        (Some(index), Some(key)) => write!(f, "subscription {index} ({key:?}): "),
        (Some(index), None) => write!(f, "subscription {index}: "),
        (None, _) => Ok(()),
    }
}

/// Maximum size of a JSON text with subscriptions, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// Parses a JSON text with subscriptions, and rejects objects with duplicate keys.
pub(super) fn parse_text(text: &str) -> Result<Value, DefinitionError> {
    let definition_error = |problem| DefinitionError::of_definition("", problem);
    if text.len() > MAX_TEXT {
        return Err(definition_error(DefinitionProblem::TooLarge {
            size: text.len(),
            limit: MAX_TEXT,
        }));
    }
    json_check::parse_strictly(text).map_err(|error| definition_error(problem_of(&error)))
}

fn problem_of(error: &JsonError) -> DefinitionProblem {
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
    json_check::admit(definition)
        .map_err(|error| DefinitionError::of_definition("", problem_of(&error)))?;
    let (subscriptions, mut warnings) = read::subscriptions(definition, options)?;
    warnings.extend(validate::validate(&subscriptions, options)?);
    warnings.sort_by_key(SubscriptionWarning::subscription);
    Ok((subscriptions, truncate_warnings(MAX_WARNINGS, warnings)))
}

/// The maximum number of warnings about the subscriptions in one definition. A definition of 1 MiB can have 100,000 unknown
/// fields.
const MAX_WARNINGS: usize = 100;

/// Returns the first `limit` warnings about the subscriptions in a definition. If warnings were omitted, a last warning has their
/// number.
fn truncate_warnings(
    limit: usize,
    mut warnings: Vec<SubscriptionWarning>,
) -> Vec<SubscriptionWarning> {
    let omitted = warnings.len().saturating_sub(limit);
    if let Some(first) = warnings.get(limit).filter(|_| omitted > 1) {
        let summary = SubscriptionWarning {
            subscription: first.subscription,
            key: first.key.clone(),
            detail: WarningDetail::new("", format!("{omitted} more problems are omitted")),
        };
        warnings.truncate(limit);
        warnings.push(summary);
    }
    warnings
}

/// Returns the path of the list of subscriptions in a definition.
#[cfg(feature = "workflows")]
pub(crate) fn subscriptions_path(definition: &Value) -> DefinitionPath {
    path::list(definition)
}

/// Validates subscriptions from a definition or from code.
pub(super) fn validate(
    subscriptions: &[Subscription],
    options: &DefinitionOptions,
) -> Result<Vec<SubscriptionWarning>, DefinitionError> {
    validate::validate(subscriptions, options)
}

#[cfg(test)]
mod tests;
