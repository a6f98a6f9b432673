//! Random steps. They use numbers instead of IDs, because each store creates its own IDs.

use super::query::{self, RandomQuery};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use std::time::Duration;
use universal_executor::store::{RunFilter, RunQuery, RunState};

/// Maximum size of a breadcrumb in bytes.
pub(super) const MAX_BYTES: usize = 2_000;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Commit(Vec<Written>, Option<(Index, End)>),
    Get(Which),
    Search(RandomQuery),
    Pass(Duration),
    Enqueue(Vec<(Named, Option<u64>)>),
    Claim(Named, Option<Index>),
    ClaimNext(usize, Vec<(&'static str, usize)>),
    Heartbeat(Vec<Index>),
    /// Sends a heartbeat for leases that are listed for a claim.
    HeartbeatClaim(Index),
    Retry(Index, u64, bool),
    Release(Index),
    Save(Index, Value),
    Resume(Named, Which),
    Redo(Named),
    /// Cancels a run. If `true`, a missing run is added first.
    Cancel(Named, bool),
    /// Pauses an executor if `true`, otherwise ends the pause.
    Pause(&'static str, bool),
    /// Sends a request for an executor with a key.
    Request(&'static str, &'static str, Content),
    Runs(RunFilter),
    /// Reads a page of runs, or the next page if `true`.
    Page(RunQuery, bool),
}

/// A breadcrumb that was created earlier, or one that never existed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which {
    Created(Index),
    Never,
}

#[derive(Clone, Debug)]
pub(super) enum Written {
    Create(Content),
    Update(Which, Version, Content),
    Delete(Which, Option<&'static str>),
}

/// The version number in an update.
#[derive(Clone, Copy, Debug)]
pub(super) enum Version {
    Current,
    /// The version after the current one, which is correct for the second update in a commit.
    Next,
    Zero,
    Most,
}

/// The fields of a write. A patch leaves missing fields unchanged.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) schema: Option<&'static str>,
    pub(super) title: Option<String>,
    pub(super) tags: Option<Vec<String>>,
    pub(super) context: Option<Value>,
    pub(super) hints: Option<Value>,
    /// Expiry time in seconds since the origin.
    pub(super) ttl: Option<i64>,
    pub(super) author: Option<&'static str>,
}

/// A run, and the settings of its lease.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) executor: &'static str,
    pub(super) trigger: Which,
    pub(super) version: u64,
    pub(super) order: Option<&'static str>,
    pub(super) lease: Duration,
    pub has_event: bool,
}

#[derive(Clone, Debug)]
pub(super) enum End {
    Over(RunState),
    /// Suspends the run. The values are the query of its wait, the end time of the wait, and the state.
    Suspended(Option<Box<RandomQuery>>, Option<u64>, Value),
    /// Ends the run with a dead letter that has this number of tags.
    Failed(usize),
}

const EXECUTORS: [&str; 2] = ["agent", "a\0b"];

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        12 => any::<Index>().prop_map(Which::Created),
        1 => Just(Which::Never),
    ]
}

fn tags() -> impl Strategy<Value = Vec<String>> {
    let few = vec(select(query::TAGS.to_vec()).prop_map(str::to_owned), 0..4);
    prop_oneof![
        20 => few,
        1 => (255..258_usize).prop_map(|n| vec!["t".to_owned(); n]),
        1 => (255..258_usize).prop_map(|n| vec!["l".repeat(n)]),
        // The replacement of U+0000 is two bytes longer.
        1 => (253..256_usize).prop_map(|n| vec![format!("{}\0", "n".repeat(n))]),
    ]
}

/// Generates contexts for conditions, and some contexts at or above a limit.
pub(super) fn context() -> impl Strategy<Value = Value> {
    let deep = |levels| (0..levels).fold(json!(1), |inside, _| json!([inside]));
    let found = (query::value(), query::value(), vec(query::value(), 0..3));
    prop_oneof![
        12 => found.prop_map(|(n, s, list)| json!({"n": n, "s": s, "list": list, "in": {"k": n}})),
        1 => (1_700..2_050_usize).prop_map(|n| json!("x".repeat(n))),
        1 => (600..700_usize).prop_map(|n| json!("\0".repeat(n))),
        1 => (63..66).prop_map(deep),
        1 => query::value(),
    ]
}

fn content() -> impl Strategy<Value = Content> {
    let texts = (
        option::of(select(vec!["a.v1", "b.v1", "*", "", "c\0.v1"])),
        option::of(prop_oneof![
            Just("title".to_owned()),
            Just("t\0".to_owned()),
            ".{0,6}"
        ]),
        option::of(select(vec!["ann", "b\0b"])),
    );
    let parts = (
        option::of(tags()),
        option::of(context()),
        option::weighted(0.1, context()),
    );
    let ttl = option::weighted(
        0.2,
        prop_oneof![9 => 0..60_i64, 1 => Just(i64::MIN), 1 => Just(i64::MAX)],
    );
    (texts, parts, ttl).prop_map(
        |((schema, title, author), (tags, context, hints), ttl)| Content {
            schema,
            title,
            tags,
            context,
            hints,
            ttl,
            author,
        },
    )
}

fn written() -> impl Strategy<Value = Written> {
    let version = prop_oneof![
        9 => Just(Version::Current),
        2 => Just(Version::Next),
        1 => Just(Version::Zero),
        1 => Just(Version::Most),
    ];
    prop_oneof![
        4 => content().prop_map(Written::Create),
        3 => (which(), version, content()).prop_map(|(id, version, patch)| Written::Update(id, version, patch)),
        2 => (which(), option::of(Just("ann"))).prop_map(|(id, by)| Written::Delete(id, by)),
    ]
}

fn named() -> impl Strategy<Value = Named> {
    let name = (
        select(EXECUTORS.to_vec()),
        which(),
        prop_oneof![6 => Just(1), 3 => Just(2), 1 => Just(0), 1 => Just(u64::MAX)],
    );
    let how = (
        option::weighted(0.4, select(vec!["x", "y\0"])),
        prop_oneof![8 => Just(10), 1 => Just(1), 1 => Just(86_400)],
        any::<bool>(),
    );
    (name, how).prop_map(
        |((executor, trigger, version), (order, lease, has_event))| Named {
            executor,
            trigger,
            version,
            order,
            lease: Duration::from_secs(lease),
            has_event,
        },
    )
}

fn end() -> impl Strategy<Value = End> {
    let over = vec![
        RunState::Done,
        RunState::Skipped,
        RunState::Superseded,
        RunState::Running,
    ];
    let waits = (
        option::of(query::random_query()),
        option::of(0..30_u64),
        context(),
    );
    prop_oneof![
        4 => select(over).prop_map(End::Over),
        2 => waits.prop_map(|(on, until, state)| End::Suspended(on.map(Box::new), until, state)),
        2 => prop_oneof![Just(0_usize), 253..257_usize].prop_map(End::Failed),
    ]
}

fn filter() -> impl Strategy<Value = RunFilter> {
    let states = vec![
        RunState::Ready,
        RunState::Running,
        RunState::Suspended,
        RunState::Done,
        RunState::Failed,
        RunState::Skipped,
        RunState::Superseded,
    ];
    let parts = (
        option::of(select(EXECUTORS.to_vec())),
        vec(select(states), 0..3),
        option::of(0..4_usize),
    );
    parts.prop_map(|(executor, states, limit)| {
        let mut filter = RunFilter::all();
        filter.executor = executor.map(str::to_owned);
        (filter.states, filter.limit) = (states, limit);
        filter
    })
}

fn page() -> impl Strategy<Value = (RunQuery, bool)> {
    let code = option::weighted(0.3, select(vec!["error", "cancelled"]));
    let more = (code, any::<bool>());
    (filter(), more).prop_map(|(filter, (code, after))| {
        let mut query = RunQuery::all();
        (query.executor, query.states, query.limit) =
            (filter.executor, filter.states, filter.limit);
        query.code = code.map(str::to_owned);
        (query, after)
    })
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    let lease = any::<Index>;
    let commit = (
        vec(written(), 0..4),
        option::weighted(0.3, (lease(), end())),
    );
    let limits = vec((select(EXECUTORS.to_vec()), 0..3_usize), 0..3);
    let new = (named(), option::weighted(0.3, 0..30_u64));
    prop_oneof![
        10 => commit.prop_map(|(writes, end)| Step::Commit(writes, end)),
        1 => which().prop_map(Step::Get),
        4 => query::random_query().prop_map(Step::Search),
        4 => prop_oneof![(0..20_u64).prop_map(Duration::from_secs), (0..9_u64).prop_map(Duration::from_micros)]
            .prop_map(Step::Pass),
        3 => vec(new, 0..4).prop_map(Step::Enqueue),
        6 => (named(), option::weighted(0.2, lease())).prop_map(|(run, older)| Step::Claim(run, older)),
        3 => (0..4_usize, limits).prop_map(|(n, of)| Step::ClaimNext(n, of)),
        2 => vec(lease(), 0..3).prop_map(Step::Heartbeat),
        1 => lease().prop_map(Step::HeartbeatClaim),
        2 => (lease(), 0..30_u64, any::<bool>()).prop_map(|(lease, at, counts)| Step::Retry(lease, at, counts)),
        1 => lease().prop_map(Step::Release),
        2 => (lease(), context()).prop_map(|(lease, state)| Step::Save(lease, state)),
        2 => (named(), which()).prop_map(|(run, with)| Step::Resume(run, with)),
        2 => named().prop_map(Step::Redo),
        2 => (named(), any::<bool>()).prop_map(|(run, adds)| Step::Cancel(run, adds)),
        2 => (select(EXECUTORS.to_vec()), any::<bool>()).prop_map(|(executor, pauses)| Step::Pause(executor, pauses)),
        3 => (select(EXECUTORS.to_vec()), select(vec!["k", "l\0"]), content())
            .prop_map(|(executor, key, content)| Step::Request(executor, key, content)),
        2 => filter().prop_map(Step::Runs),
        2 => page().prop_map(|(query, after)| Step::Page(query, after)),
    ]
}
