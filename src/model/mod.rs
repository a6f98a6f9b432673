//! Plain data types and pure functions: breadcrumbs, events, selectors and subscriptions.
//!
//! Use this module to write and read breadcrumbs, to define the breadcrumbs that trigger an executor, and to route events. Start
//! with [`Breadcrumb`], [`Event`], [`Selector`] and [`Subscriptions`].
//!
//! The module does no I/O and is not async. Only [`BreadcrumbId::unique`] reads a clock. Definitions are JSON, which is validated
//! and compiled once:
//!
//! ```
//! use serde_json::json;
//! use universal_executor::{Event, Route, Subscriptions};
//!
//! let subscriptions = Subscriptions::from_json(&json!([
//!     {"schema_name": "tool.request.v1", "role": "trigger",
//!      "context_match": [{"path": "$.tool", "op": "eq", "value": "adder"}]},
//!     {"schema_name": "browser.page.context.v1", "role": "context", "key": "page", "fetch": "latest"},
//! ]))?;
//! let event: Event = serde_json::from_str(
//!     r#"{"type": "breadcrumb.updated", "breadcrumb_id": "01890a5d-ac96-774b-bcce-b302099a8057", "version": 1,
//!         "schema_name": "tool.request.v1", "tags": [], "updated_at": "2026-11-21T20:33:40Z",
//!         "context": {"tool": "adder", "input": {"a": 1}}}"#,
//! )?;
//!
//! assert_eq!(subscriptions.route(&event), Route::Trigger { subscription: 0 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod breadcrumb;
mod breadcrumb_id;
mod compare;
mod condition;
mod definition;
mod definition_path;
mod event;
mod explain;
mod fields;
mod finding;
mod index;
mod json;
mod json_check;
mod json_sorted;
mod nearest;
mod new_breadcrumb;
mod op;
mod patch;
mod path;
mod reserved;
mod route;
mod selector;
#[cfg(test)]
mod strategies;
mod subscription;
mod timestamp;
mod visibility;

pub use breadcrumb::Breadcrumb;
pub use breadcrumb_id::{BreadcrumbId, InvalidId};
pub use condition::{Condition, ConditionError};
#[cfg(feature = "agents")]
pub(crate) use definition::{CONDITION_FIELDS, ConditionCount, read_conditions};
pub use definition::{
    DefinitionError, DefinitionOptions, DefinitionProblem, KeyPolicy, RolePolicy,
    SubscriptionWarning,
};
#[cfg(feature = "workflows")]
pub(crate) use definition::{MAX_CONDITIONS, MAX_REGEXES, subscriptions_path};
pub use definition_path::{DefinitionPath, DefinitionPathPart, Position};
pub use event::{Event, EventKind};
pub use explain::{Explained, Explanation};
pub(crate) use fields::KnownFields;
#[cfg(feature = "agents")]
pub(crate) use fields::is_comment;
#[cfg(feature = "workflows")]
pub(crate) use fields::unknown_field;
pub(crate) use finding::Findings;
pub use finding::{Finding, Severity};
pub(crate) use index::SelectorIndex;
pub use index::SubscriptionIndex;
pub use json::Json;
pub use json_check::{JsonError, MAX_DEPTH};
pub(crate) use json_check::{JsonLimitError, RESERVED_KEY, dismantle, parse_as, size_within};
#[cfg(feature = "workflows")]
pub(crate) use json_check::{admit, parse_strictly};
pub(crate) use json_sorted::{display_text, sorted_text};
pub(crate) use nearest::nearest;
pub use new_breadcrumb::NewBreadcrumb;
pub use op::Op;
pub use patch::Patch;
#[cfg(feature = "workflows")]
pub(crate) use path::MAX_SEARCH_STEPS;
pub use path::{Path, PathError};
pub(crate) use path::{PatternStep, pattern, search_steps};
pub(crate) use reserved::{
    CHAT_SESSION, CHAT_TURN, REQUEST_TAG, SESSION_TAG, WORKLOAD_RESULT, is_answer_schema,
    is_reserved_schema, is_reserved_tag, request_tag,
};
#[cfg(feature = "agents")]
pub(crate) use reserved::{WORKFLOW_DEFINITION, is_definition_schema};
pub use route::{Route, Subscriptions};
pub use selector::Selector;
pub use subscription::{Fetch, Method, Order, Role, Subscription};
pub use timestamp::{ParseTimestampError, Timestamp};
pub use visibility::{Sensitivity, Visibility};
