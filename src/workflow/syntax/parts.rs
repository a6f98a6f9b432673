//! Syntax of the parts of a step that contain no other steps: retries, conditions and breadcrumbs.

#![expect(
    dead_code,
    reason = "the compiler reads nested fields, and values with variables, on their own"
)]

use super::read::{Written, names};
use super::values::{Nested, seconds, some, whole};
use crate::workflow::error::WorkflowLoadError;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Maximum number of attempts at a step: a number, or an object that can also set the delays between attempts.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a number of attempts from 1 to 100, or an object with \"attempts\""
)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub(in crate::workflow) enum Retry {
    /// Maximum number of attempts at the step.
    Number(
        #[serde(deserialize_with = "whole::<1, 100, _, _>")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100)))]
        u32,
    ),
    Attempts(Attempts),
}

impl Retry {
    pub(in crate::workflow) fn read(written: &Written<'_>) -> Result<Self, WorkflowLoadError> {
        if written.value.is_object() {
            return written.read().map(Self::Attempts);
        }
        // Serde would read a list as the fields of `Attempts`.
        let number = match written.value.is_number() {
            true => written.value,
            false => &Value::Null,
        };
        let retry = Self::deserialize(number);
        retry.map_err(|error| written.shape(error.to_string()))
    }
}

kinds! {
    /// A condition on the variables of a flow.
    Condition {
        "path" => Path(Comparison),
        "all" => All(AllOf),
        "any" => Any(AnyOf),
        "not" => Not(NotOf),
    }
}

// The JSON Schema of an inline struct is a part of the schema of its enum.
objects! {
    /// Maximum number of attempts at a step, and the delays between them.
    #[cfg_attr(feature = "schema", schemars(inline))]
    Attempts {
        /// Maximum number of attempts at the step.
        #[serde(deserialize_with = "whole::<1, 100, _, _>")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100)))]
        attempts: u32,
        /// Delay before the second attempt at the step in seconds. Each further delay is twice as long. Defaults to 1.
        #[serde(default, deserialize_with = "seconds")]
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::seconds"))]
        base_seconds: Option<Duration>,
        /// Maximum delay between two attempts at the step in seconds. Defaults to 60.
        #[serde(default, deserialize_with = "seconds")]
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::seconds"))]
        cap_seconds: Option<Duration>,
    }

    /// A condition that compares a variable of the flow with a value.
    #[cfg_attr(feature = "schema", schemars(inline))]
    Comparison {
        /// The flow variable to compare, or the JSONPath of a value in a flow variable, such as `draft.score`.
        path: String,
        /// The comparison operator: any operator that conditions of subscriptions can have, such as `eq`.
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::op"))]
        op: String,
        /// The value with which the variable is compared.
        #[serde(default, deserialize_with = "some")]
        value: Option<Value>,
    }

    /// A condition that holds if all of several conditions hold.
    #[cfg_attr(feature = "schema", schemars(inline))]
    AllOf {
        /// The conditions, all of which must hold.
        all: Nested<Vec<Condition>>,
    }

    /// A condition that holds if at least one of several conditions holds.
    #[cfg_attr(feature = "schema", schemars(inline))]
    AnyOf {
        /// The conditions, at least one of which must hold.
        any: Nested<Vec<Condition>>,
    }

    /// A condition that holds if another condition does not hold.
    #[cfg_attr(feature = "schema", schemars(inline))]
    NotOf {
        /// The condition that must not hold.
        not: Nested<Condition>,
    }

    /// A breadcrumb that a `wait_for` step waits for, selected as in a subscription.
    Event {
        /// Schema of the awaited breadcrumb.
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::schema_name"))]
        schema_name: String,
        /// Tags, at least one of which the awaited breadcrumb must have.
        #[serde(default)]
        any_tags: Vec<String>,
        /// Tags, all of which the awaited breadcrumb must have.
        #[serde(default)]
        all_tags: Vec<String>,
        /// Conditions on the context of the awaited breadcrumb. All of them must hold.
        #[serde(default)]
        context_match: Nested<Vec<EventCondition>>,
    }

    /// A condition on the context of a breadcrumb that a `wait_for` step waits for.
    EventCondition {
        /// JSONPath of the value to compare in the context of the awaited breadcrumb.
        path: String,
        /// The comparison operator: any operator that conditions of subscriptions can have, such as `eq`.
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::op"))]
        op: String,
        /// The value to compare with the value at `path` in the context of the awaited breadcrumb.
        #[serde(default, deserialize_with = "some")]
        value: Option<Value>,
    }

    /// A breadcrumb that an `emit` step writes.
    Emit {
        /// Schema of the new breadcrumb.
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::schema_name"))]
        schema_name: String,
        /// Title of the new breadcrumb.
        title: Option<String>,
        /// Tags of the new breadcrumb.
        #[serde(default)]
        tags: Vec<String>,
        /// Context of the new breadcrumb. Defaults to an empty object.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::context"))]
        context: Option<Value>,
    }
}
