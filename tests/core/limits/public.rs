//! The limits that users of the crate can read, by their names in docs/reference/limits.md.

use universal_executor::agent::{
    Budgets, ChatRequest, ChatResponse, FallbackModel, Media, RecordedModel,
};
use universal_executor::executor::RetryPolicy;
use universal_executor::model::DefinitionOptions;
use universal_executor::runtime::Due;
#[cfg(feature = "postgres")]
use universal_executor::store::PostgresLimits;
#[cfg(feature = "sqlite")]
use universal_executor::store::SqliteLimits;
use universal_executor::store::{
    Commit, DeadLetter, MemoryLimits, NewRequest, PausedExecutor, RunQuery, SavedPosition, Worker,
    embedding,
};
use universal_executor::tool::{BlockingPool, ToolSettings};
use universal_executor::{Breadcrumb, Event, Json, Profile, hints, machine, model};

type Value = (&'static str, Option<u128>);

/// Returns fields with their names in the document and their values.
macro_rules! fields {
    ($all:ident, $name:literal, $of:expr, $($field:ident),+) => {
        let of = $of;
        $($all.push((concat!($name, ".", stringify!($field)), Some(of.$field as u128)));)+
    };
}

/// Returns constants with their names in the document and their values.
macro_rules! constants {
    ($($path:path),+ $(,)?) => {
        vec![$((spelled(stringify!($path)), Some($path as u128))),+]
    };
}

/// Returns a path without the spaces that a compiler may add.
fn spelled(path: &'static str) -> &'static str {
    assert!(!path.contains(' '), "{path}");
    path
}

pub(super) fn values() -> Vec<Value> {
    [constants(), stores(), others()].concat()
}

fn constants() -> Vec<Value> {
    constants!(
        Breadcrumb::MAX_SCHEMA_BYTES,
        Breadcrumb::MAX_TAGS,
        Breadcrumb::MAX_TAG_BYTES,
        ChatRequest::MAX_MEDIA_BYTES,
        ChatResponse::MAX_BYTES,
        ChatResponse::MAX_TOOL_CALLS,
        Commit::MAX_WRITES,
        DeadLetter::LONGEST_CAUSE,
        Due::MOST_COUNTED,
        Event::MAX_CONTEXT_BYTES,
        FallbackModel::MAX_MODELS,
        Json::MAX_BYTES,
        Media::MAX_BYTES,
        NewRequest::MAX_KEY_BYTES,
        PausedExecutor::MOST,
        RecordedModel::MAX_BYTES,
        RunQuery::MAX_LIMIT,
        SavedPosition::MAX_BYTES,
        SavedPosition::MOST,
        Worker::MOST,
        embedding::MAX_TEXT_BYTES,
        hints::MAX_HINTS_BYTES,
        hints::MAX_OUTPUT_BYTES,
        hints::MAX_PATHS,
        hints::MAX_TEMPLATE_BYTES,
        hints::MAX_TRANSFORMS,
        model::MAX_DEPTH,
    )
}

fn stores() -> Vec<Value> {
    let mut all = Vec::new();
    fields!(
        all,
        "MemoryLimits",
        MemoryLimits::default(),
        breadcrumbs,
        breadcrumb_bytes,
        open_runs,
        finished_runs,
        events,
        event_bytes,
        tombstones,
        tombstone_bytes
    );
    #[cfg(feature = "sqlite")]
    fields!(
        all,
        "SqliteLimits",
        SqliteLimits::default(),
        breadcrumbs,
        breadcrumb_bytes,
        open_runs,
        finished_runs,
        events,
        tombstones
    );
    #[cfg(feature = "postgres")]
    fields!(
        all,
        "PostgresLimits",
        PostgresLimits::default(),
        breadcrumbs,
        breadcrumb_bytes,
        open_runs,
        finished_runs,
        events,
        tombstones
    );
    all
}

fn others() -> Vec<Value> {
    let mut all = Vec::new();
    fields!(
        all,
        "DefinitionOptions",
        DefinitionOptions::default(),
        max_conditions,
        max_limit,
        max_regexes,
        max_subscriptions
    );
    fields!(
        all,
        "MachineLimits",
        machine::MachineLimits::default(),
        answered_bytes,
        bytes,
        callers,
        calls,
        item_bytes,
        pending
    );
    #[cfg(feature = "workflows")]
    fields!(
        all,
        "WorkflowLimits",
        universal_executor::workflow::WorkflowLimits::default(),
        items,
        steps,
        total_bytes,
        value_bytes
    );
    fields!(all, "Profile", Profile::default(), context_bytes, hop_limit);
    fields!(
        all,
        "RetryPolicy",
        RetryPolicy::default(),
        attempts,
        crashes
    );
    fields!(
        all,
        "ToolSettings",
        ToolSettings::default(),
        max_output_bytes
    );
    all.extend(limits_that_can_be_off());
    all
}

fn limits_that_can_be_off() -> [Value; 5] {
    let of_agent = Budgets::default();
    let calls = ToolSettings::default()
        .max_concurrent
        .map(|calls| calls.get() as u128);
    [
        (
            "BlockingPool::shared",
            Some(BlockingPool::shared().slots() as u128),
        ),
        ("Budgets.calls", of_agent.calls.map(u128::from)),
        ("Budgets.tokens", of_agent.tokens.map(u128::from)),
        (
            "Profile.max_inflight",
            Profile::default().max_inflight.map(|runs| runs as u128),
        ),
        ("ToolSettings.max_concurrent", calls),
    ]
}
