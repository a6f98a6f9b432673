use super::AnyStore;
use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, same, some};
use super::fixtures::{AFTER_SHORT, SHORT, note, other_tenant};
use crate::model::{BreadcrumbId, NewBreadcrumb, Patch, Selector};
use crate::store::embedding::{EmbedError, Embedder};
use crate::store::{BreadcrumbStoreExt, Query, Scored, StoreError, VectorQuery};
use async_trait::async_trait;
use serde_json::json;

const APPLES: &str = "red apples grow on old trees";
const MARKET: &str = "the stock market fell sharply today";
const CAT: &str = "a cat sleeps in the warm sun";

/// An embedder for tests that needs no model: strings with more words in common are more similar.
///
/// ```
/// use universal_executor::MemoryStore;
/// use universal_executor::store::MemoryLimits;
/// use universal_executor::store::conformance::WordCounts;
/// use universal_executor::store::embedding::EmbeddingConfig;
///
/// let store = MemoryStore::with_embeddings(MemoryLimits::default(), EmbeddingConfig::new(WordCounts));
/// ```
///
/// Use it in tests of a store with vector search, instead of a real model.
#[derive(Clone, Copy, Debug, Default)]
pub struct WordCounts;

#[async_trait]
impl Embedder for WordCounts {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|text| self.count(text)).collect())
    }

    fn dimensions(&self) -> usize {
        512
    }

    fn model(&self) -> &str {
        "word-counts"
    }
}

impl WordCounts {
    /// Returns the word counts of a text as its embedding vector, for tests of vector search. The FNV-1a hash of a word selects
    /// its element.
    fn count(self, text: &str) -> Vec<f32> {
        let mut counts = vec![0.0; self.dimensions()];
        for word in text.to_lowercase().split(|c: char| !c.is_alphanumeric()) {
            let hash = word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            let place = usize::try_from(hash >> 32).unwrap_or_default() % counts.len();
            if let Some(count) = counts.get_mut(place).filter(|_| !word.is_empty()) {
                *count += 1.0;
            }
        }
        counts
    }
}

/// In a vector search, a breadcrumb with the text of the query comes first, and each result has a score if the store's
/// capabilities declare scores.
///
/// Configure the store under test with [`WordCounts`](crate::store::conformance::WordCounts), which
/// needs no model.
///
/// Not checked for a store without
/// [`Capabilities::vector_search`](crate::store::Capabilities::vector_search).
///
/// Checked only in part without [`Capabilities::scores`](crate::store::Capabilities::scores).
pub async fn the_most_similar_breadcrumbs_come_first(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let (store, [apples, market, cat]) = three(subject).await?;

    for (text, first) in [(APPLES, apples), (MARKET, market), (CAT, cat)] {
        let found = store.vector_search(&notes(text)).await?;
        same(ids(&found).first(), Some(&first), "the first result")?;
        same(found.len(), 3, "the number of results")?;
        let scores: Vec<_> = found.iter().filter_map(|one| one.score).collect();
        let tells = store.capabilities().scores;
        expect(
            !tells || scores.len() == 3,
            "each result has a score if the capabilities declare scores",
        )?;
        expect(
            scores.is_sorted_by(|a, b| a >= b),
            "the highest score comes first",
        )?;
        expect(
            scores.iter().all(|score| (-1.0..=1.0).contains(score)),
            "a score is a cosine",
        )?;
    }
    let mut one = notes(CAT);
    one.query.limit = 1;
    same(
        search(&store, &one).await?,
        [cat],
        "the result with limit 1",
    )?;
    one.query.limit = 0;
    same(search(&store, &one).await?, [], "the result with limit 0")
}

/// A vector search applies each condition of its query (selector, scope tags, excluded breadcrumb, `before` and `after`), even if
/// other breadcrumbs are more similar.
///
/// A vector index that filters afterwards can return too few results, so search again without it.
///
/// Not checked for a store without
/// [`Capabilities::vector_search`](crate::store::Capabilities::vector_search).
pub async fn vector_search_applies_the_whole_selector(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let (store, [apples, market, cat]) = three(subject).await?;
    let mut other = note(CAT).tag("other").context(json!({"text": CAT, "n": 5}));
    other.schema_name = Some("other.v1".to_owned());
    let other = store.create(other).await?;

    let vector_query = |query: Query| VectorQuery::new(query.limit(2), CAT);
    let all = || Query::new(Selector::schema("note.v1"));
    for (query, found) in [
        (Query::new(Selector::schema("other.v1")), vec![other.id]),
        (
            Query::new(Selector::any().any_tags(["other"])),
            vec![other.id],
        ),
        (
            Query::new(Selector::any().matching("n", "gt", 4)),
            vec![other.id],
        ),
        (
            Query::new(Selector::any()).scope_tag("other"),
            vec![other.id],
        ),
        (Query::new(Selector::schema("note.v2")), vec![]),
    ] {
        same(
            search(&store, &vector_query(query)).await?,
            found,
            "the results that match the query",
        )?;
    }
    let found = search(&store, &vector_query(all().exclude(cat))).await?;
    expect(
        found.len() == 2 && !found.contains(&cat),
        "an excluded breadcrumb does not count towards the limit",
    )?;
    let before = store.get(cat).await?.order_key();
    let mut found = search(&store, &vector_query(all().before(before))).await?;
    found.sort_unstable();
    same(
        found,
        sorted([apples, market]),
        "the results before a position",
    )
}

/// A vector search omits breadcrumbs with a score below the query's minimum.
///
/// A breadcrumb with exactly the minimum score is in the result.
///
/// Not checked for a store without
/// [`Capabilities::vector_search`](crate::store::Capabilities::vector_search) or
/// [`Capabilities::scores`](crate::store::Capabilities::scores).
pub async fn vector_search_applies_the_minimum_score(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let (store, [_, _, cat]) = three(subject).await?;

    let all = store.vector_search(&notes(CAT)).await?;
    let score_at = |place: usize| all.get(place).and_then(|one| one.score);
    let first = some(score_at(0), "the score of the nearest")?;
    let second = some(score_at(1), "the score of the second")?;
    let middle = f64::midpoint(first, second);

    same(
        search(&store, &notes(CAT).min_score(middle)).await?,
        [cat],
        "the results above the minimum score",
    )?;
    same(
        search(&store, &notes(CAT).min_score(first)).await?,
        [cat],
        "the results with exactly the minimum score",
    )?;
    same(
        search(&store, &notes(CAT).min_score(1.1)).await?,
        [],
        "the results with a minimum score above 1",
    )
}

/// Of breadcrumbs with equal scores in a vector search, the newest comes first.
///
/// Break ties by [`Breadcrumb::order_key`](crate::Breadcrumb::order_key).
///
/// Not checked for a store without
/// [`Capabilities::vector_search`](crate::store::Capabilities::vector_search) or
/// [`Capabilities::scores`](crate::store::Capabilities::scores).
pub async fn equal_scores_are_newest_first(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.insert(0, store.create(note(CAT)).await?.id);
    }
    store.create(note(APPLES)).await?;

    let mut query = notes(CAT);
    query.query.limit = 3;

    expected.truncate(3);
    same(
        search(&store, &query).await?,
        expected,
        "the newest of equal scores",
    )
}

/// A vector search finds a breadcrumb by the text of its current version only, and not by the text of an older version.
///
/// Replace the vector with each update, also if a later step computes the vector.
///
/// Not checked for a store without
/// [`Capabilities::vector_search`](crate::store::Capabilities::vector_search) or
/// [`Capabilities::embeds_updates`](crate::store::Capabilities::embeds_updates).
///
/// Checked only in part without [`Capabilities::scores`](crate::store::Capabilities::scores).
pub async fn vector_search_uses_the_current_text(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let (store, [apples, market, _]) = three(subject).await?;
    let says_cat = Patch::new().title(CAT).context(json!({"text": CAT}));
    store.update(apples, 1, says_cat).await?;
    store
        .update(market, 1, Patch::new().tags(["kept", "new"]))
        .await?;

    let found = store.vector_search(&notes(CAT)).await?;
    same(found.len(), 3, "the number of results")?;
    same(
        ids(&found).first(),
        Some(&apples),
        "the breadcrumb whose current text matches, and is newer",
    )?;
    let mut one = notes(MARKET);
    one.query.limit = 1;
    let found = store.vector_search(&one).await?;
    let version = found
        .first()
        .map(|one| (one.breadcrumb.id, one.breadcrumb.version));
    same(version, Some((market, 2)), "the version of the result")?;
    let by_old_text = store.vector_search(&notes(APPLES)).await?;
    let scores = (
        score_of(&by_old_text, apples),
        score_of(&by_old_text, market),
    );
    expect(
        scores.0 < Some(0.99),
        "no result is found by the text of an older version",
    )
}

/// A vector search returns no deleted and no expired breadcrumb.
///
/// Remove the vector with the breadcrumb, or check the breadcrumb after the search of an index.
///
/// Not checked for a store without
/// [`Capabilities::vector_search`](crate::store::Capabilities::vector_search).
pub async fn vector_search_omits_deleted_and_expired_breadcrumbs(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let (store, [apples, market, cat]) = three(subject).await?;
    let now = store.get(apples).await?.created_at;
    let short = note(CAT).ttl(now + SHORT);
    let short = store.create(short).await?.id;
    store.delete(cat).await?;

    subject.advance_clock(AFTER_SHORT).await;

    let found = search(&store, &notes(CAT)).await?;
    expect(!found.contains(&cat), "a deleted breadcrumb is not found")?;
    expect(
        !found.contains(&short),
        "an expired breadcrumb is not found",
    )?;
    same(
        sorted(found),
        sorted([apples, market]),
        "the remaining results",
    )
}

/// Vector search ignores the fields that `llm_hints` exclude. The hints can be in the breadcrumb or in the definition of its
/// schema.
///
/// Hints can hide secrets from models, so an embedder must not receive the hidden fields.
///
/// Not checked for a store without
/// [`Capabilities::vector_search`](crate::store::Capabilities::vector_search) or
/// [`Capabilities::embeds_hinted`](crate::store::Capabilities::embeds_hinted).
///
/// Checked only in part without [`Capabilities::scores`](crate::store::Capabilities::scores).
pub async fn vector_search_ignores_text_that_hints_exclude(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let hints = json!({"exclude": ["hidden"]});
    let defined = NewBreadcrumb::new("schema.def.v1")
        .tag("defines:hinted.v1")
        .context(json!({"llm_hints": hints}));
    store.create(defined).await?;
    let new = |schema: &str, hidden: &str| {
        NewBreadcrumb::new(schema).context(json!({"shown": APPLES, "hidden": hidden}))
    };
    let own = store
        .create(new("own.v1", MARKET).llm_hints(hints.clone()))
        .await?
        .id;
    let of_schema = store.create(new("hinted.v1", MARKET)).await?.id;
    let plain = NewBreadcrumb::new("plain.v1").context(json!({"shown": APPLES}));
    let plain = store.create(plain).await?.id;
    let unusable = new("own.v1", MARKET).llm_hints(json!({"exclude": 1}));
    let unusable = store.create(unusable).await?.id;

    let query = Query::new(Selector::any()).limit(10);
    let found = store
        .vector_search(&VectorQuery::new(query, MARKET))
        .await?;

    let score = score_of(&found, plain);
    same(
        score_of(&found, own),
        score,
        "the score with the breadcrumb's hints",
    )?;
    same(
        score_of(&found, of_schema),
        score,
        "the score with the schema's hints",
    )?;
    expect(
        !ids(&found).contains(&unusable),
        "a breadcrumb with invalid hints is not found",
    )
}

/// A vector search returns no breadcrumb of another tenant, however similar it is.
///
/// A shared vector index must filter by tenant.
///
/// Not checked for a store without several tenants or
/// [`Capabilities::vector_search`](crate::store::Capabilities::vector_search).
///
/// Checked only in part without
/// [`Capabilities::named_tenants`](crate::store::Capabilities::named_tenants).
pub async fn vector_search_is_limited_to_the_tenant(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let (store, [_, _, cat]) = three(subject).await?;
    let other = other_tenant(&store).await?;
    let theirs = other.create(note(CAT)).await?.id;

    same(
        search(&other, &notes(CAT)).await?,
        [theirs],
        "the results of the other tenant",
    )?;
    let found = search(&store, &notes(CAT)).await?;
    same(
        (found.first(), found.len()),
        (Some(&cat), 3),
        "the results of this tenant",
    )
}

/// Creates a store with three breadcrumbs that have few words in common.
async fn three(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(AnyStore<'_>, [BreadcrumbId; 3]), StoreError> {
    let store = subject.fresh().await;
    let apples = store.create(note(APPLES)).await?.id;
    let market = store.create(note(MARKET)).await?.id;
    let cat = store.create(note(CAT)).await?.id;
    Ok((store, [apples, market, cat]))
}

fn notes(text: &str) -> VectorQuery {
    VectorQuery::new(Query::new(Selector::schema("note.v1")), text)
}

async fn search(
    store: &AnyStore<'_>,
    query: &VectorQuery,
) -> Result<Vec<BreadcrumbId>, StoreError> {
    Ok(ids(&store.vector_search(query).await?))
}

fn ids(found: &[Scored]) -> Vec<BreadcrumbId> {
    found.iter().map(|one| one.breadcrumb.id).collect()
}

fn sorted(ids: impl IntoIterator<Item = BreadcrumbId>) -> Vec<BreadcrumbId> {
    let mut ids: Vec<_> = ids.into_iter().collect();
    ids.sort_unstable();
    ids
}

fn score_of(found: &[Scored], id: BreadcrumbId) -> Option<f64> {
    found.iter().find(|one| one.breadcrumb.id == id)?.score
}
