//! Random searches of a store, compared with a filter over all its breadcrumbs.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use serde_json::json;
use std::sync::Arc;
use universal_executor::model::Order;
use universal_executor::store::Query;
use universal_executor::store::conformance::StoreUnderTest;
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch, Selector,
};

#[derive(Clone, Debug)]
enum Step {
    Create(&'static str, Vec<&'static str>, u8),
    Update(Index, Option<&'static str>, Option<Vec<&'static str>>, u8),
    Delete(Index),
}

#[derive(Clone, Debug)]
struct RandomQuery {
    schema: Option<&'static str>,
    any: Option<Vec<&'static str>>,
    all: Vec<&'static str>,
    scope: Vec<&'static str>,
    condition: Option<(&'static str, u8)>,
    before: Option<Index>,
    exclude: Option<Index>,
    limit: usize,
    oldest_first: bool,
}

fn schema() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a.v1", "b.v1", "*"])
}

fn tags() -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(vec!["w", "x", "y", "z"], 0..=3)
}

fn few_tags() -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(vec!["w", "x", "y", "z", "nowhere"], 0..=1)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (schema(), tags(), 0..4_u8).prop_map(|(schema, tags, n)| Step::Create(schema, tags, n)),
        3 => (any::<Index>(), option::of(schema()), option::of(tags()), 0..4_u8)
            .prop_map(|(which, schema, tags, n)| Step::Update(which, schema, tags, n)),
        1 => any::<Index>().prop_map(Step::Delete),
    ]
}

fn random_query() -> impl Strategy<Value = RandomQuery> {
    let what = (
        option::of(schema()),
        option::of(tags()),
        few_tags(),
        few_tags(),
    );
    let condition = option::of((prop::sample::select(vec!["eq", "ne", "lt", "gte"]), 0..4_u8));
    let place = (
        option::of(any::<Index>()),
        option::of(any::<Index>()),
        0..12_usize,
        any::<bool>(),
    );
    (what, condition, place).prop_map(
        |((schema, any, all, scope), condition, (before, exclude, limit, oldest_first))| {
            RandomQuery {
                schema,
                any,
                all,
                scope,
                condition,
                before,
                exclude,
                limit,
                oldest_first,
            }
        },
    )
}

impl RandomQuery {
    fn query(&self, created: &[Arc<Breadcrumb>]) -> Query {
        let mut selector = self.schema.map_or_else(Selector::default, Selector::schema);
        if let Some(any) = &self.any {
            selector = selector.any_tags(any.iter().copied());
        }
        selector = selector.all_tags(self.all.iter().copied());
        if let Some((op, n)) = self.condition {
            selector = selector.matching("n", op, n);
        }
        let mut query = Query::new(selector).limit(self.limit);
        for tag in &self.scope {
            query = query.scope_tag(*tag);
        }
        if let Some(before) = pick(self.before, created) {
            query = query.before(before.order_key());
        }
        if let Some(excluded) = pick(self.exclude, created) {
            query = query.exclude(excluded.id);
        }
        if self.oldest_first {
            query.order(Order::OldestFirst)
        } else {
            query
        }
    }

    /// Returns the expected result of the query, computed without an index.
    fn full_scan(&self, created: &[Arc<Breadcrumb>]) -> Vec<Arc<Breadcrumb>> {
        let has =
            |breadcrumb: &Breadcrumb, tag: &str| breadcrumb.tags.iter().any(|have| have == tag);
        let key =
            |breadcrumb: &Breadcrumb| (breadcrumb.updated_at, breadcrumb.version, breadcrumb.id);
        let before = pick(self.before, created).map(|before| key(&before));
        let excluded = pick(self.exclude, created).map(|excluded| excluded.id);
        let condition = self
            .condition
            .map(|(op, n)| Selector::any().matching("n", op, n));
        let mut found: Vec<Arc<Breadcrumb>> = created
            .iter()
            .filter(|one| {
                self.schema
                    .is_none_or(|name| name == "*" || one.schema_name.as_deref() == Some(name))
            })
            .filter(|one| {
                self.any
                    .as_ref()
                    .is_none_or(|any| any.iter().any(|tag| has(one, tag)))
            })
            .filter(|one| self.all.iter().chain(&self.scope).all(|tag| has(one, tag)))
            .filter(|one| before.is_none_or(|before| key(one) < before) && excluded != Some(one.id))
            .filter(|one| {
                condition
                    .as_ref()
                    .is_none_or(|condition| condition.matches(one))
            })
            .cloned()
            .collect();
        found.sort_by_key(|one| std::cmp::Reverse(key(one)));
        found.truncate(self.limit);
        if self.oldest_first {
            found.reverse();
        }
        found
    }
}

fn pick(which: Option<Index>, created: &[Arc<Breadcrumb>]) -> Option<Arc<Breadcrumb>> {
    which
        .filter(|_| !created.is_empty())
        .map(|which| Arc::clone(which.get(created)))
}

async fn run_step(store: &impl BreadcrumbStore, created: &mut Vec<Arc<Breadcrumb>>, step: Step) {
    match step {
        Step::Create(schema, tags, n) => {
            let new = NewBreadcrumb::new(schema)
                .tags(tags)
                .context(json!({"n": n}));
            created.push(store.create(new).await.unwrap());
        }
        Step::Update(..) | Step::Delete(_) if created.is_empty() => {}
        Step::Update(which, schema, tags, n) => {
            let at = which.index(created.len());
            let mut patch = Patch::new().context(json!({"n": n}));
            patch.schema_name = schema.map(str::to_owned);
            patch.tags = tags.map(|tags| tags.into_iter().map(str::to_owned).collect());
            created[at] = store
                .update(created[at].id, created[at].version, patch)
                .await
                .unwrap();
        }
        Step::Delete(which) => {
            let removed = created.swap_remove(which.index(created.len()));
            store.delete(removed.id).await.unwrap();
        }
    }
}

/// Runs `cases` random sequences of changes and searches on stores of `T`.
pub(crate) fn a_search_returns_the_same_breadcrumbs_as_a_full_scan<T: StoreUnderTest + Default>(
    cases: u32,
) {
    proptest!(
        ProptestConfig::with_cases(cases),
        |(steps in vec(step(), 0..40), random_query in vec(random_query(), 1..20))| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let subject = T::default();
                let store = subject.fresh().await;
                let mut created = Vec::new();
                for step in steps {
                    run_step(&store, &mut created, step).await;
                }
                for random_query in random_query {
                    let found = store.search(&random_query.query(&created)).await.unwrap();
                    prop_assert_eq!(found, random_query.full_scan(&created), "{:?}", random_query);
                }
                Ok(())
            })?;
        }
    );
}
