use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, fails, not_found, same};
use super::fixtures::{AFTER_SHORT, SHORT, create_notes, ids, ids_of, note};
use crate::model::{Patch, Selector};
use crate::store::{BreadcrumbStoreExt, Query, StoreError, VectorQuery};
use serde_json::{Value, json};

/// **Whole selector.** A search result matches the schema, the `any_tags`, the `all_tags` and the conditions of the query's
/// selector.
///
/// [`Query::selects`](crate::store::Query::selects) evaluates all conditions of a query for one
/// breadcrumb.
pub async fn whole_selector(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let matching = store
        .create(note("a").tags(["x", "y"]).context(json!({"n": 5})))
        .await?
        .id;
    let other = note("a").tags(["x", "y"]).context(json!({"n": 3}));
    store.create(other).await?;
    store
        .create(note("a").tags(["x"]).context(json!({"n": 5})))
        .await?;
    store
        .create(note("a").tags(["y"]).context(json!({"n": 5})))
        .await?;
    let mut schema = note("a").tags(["x", "y"]).context(json!({"n": 5}));
    schema.schema_name = Some("other.v1".to_owned());
    let elsewhere = store.create(schema).await?.id;

    let selector = |schema: &str| {
        let tagged = Selector::schema(schema)
            .any_tags(["x", "z"])
            .all_tags(["y", "kept"]);
        Query::new(tagged.matching("n", "gte", 4))
    };

    same(
        ids(&store, &selector("note.v1")).await?,
        [matching],
        "the result",
    )?;
    same(
        ids(&store, &selector("*")).await?,
        [elsewhere, matching],
        "the result for any schema",
    )?;
    let none = Selector::schema("note.v1").any_tags(Vec::<String>::new());
    same(
        ids(&store, &Query::new(none)).await?,
        [],
        "the result for an empty list of alternative tags",
    )
}

/// The store evaluates every operator of a selector's conditions.
///
/// [`Selector::matches`](crate::Selector::matches) evaluates the conditions, for a backend that
/// cannot.
pub async fn conditions(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let hit = json!({"n": 5, "s": "paris", "list": ["a", "b"], "deep": [{"k": 1}, {"k": 2}]});
    let hit = store.create(note("hit").context(hit)).await?.id;
    let miss = json!({"n": 50, "s": "rome", "list": ["c"], "deep": [{"k": 3}], "more": 1});
    let miss = store.create(note("miss").context(miss)).await?.id;
    let cases: [(&str, &str, Value); 15] = [
        ("n", "eq", json!(5.0)),
        ("n", "ne", json!(50)),
        ("n", "lt", json!(50)),
        ("n", "lte", json!(5)),
        ("s", "in", json!(["paris", "london"])),
        ("s", "contains", json!("ari")),
        ("list", "contains", json!("a")),
        ("list", "contains_any", json!(["x", "b"])),
        ("list", "contains_all", json!(["a", "b"])),
        ("s", "starts_with", json!("pa")),
        ("s", "ends_with", json!("is")),
        ("s", "matches", json!("^p.r")),
        ("more", "exists", json!(false)),
        ("$.deep[*].k", "eq", json!(2)),
        ("$.deep[?@.k == 1].k", "exists", json!(true)),
    ];

    for (path, op, value) in cases {
        let selector = Selector::schema("note.v1").matching(path, op, value.clone());
        same(
            ids(&store, &Query::new(selector)).await?,
            [hit],
            &format!("{path} {op} {value}"),
        )?;
    }
    for (op, value) in [("gt", json!(5)), ("gte", json!(6))] {
        let selector = Selector::any().matching("n", op, value);
        same(ids(&store, &Query::new(selector)).await?, [miss], op)?;
    }
    Ok(())
}

/// A query fails if its selector has a condition that cannot be evaluated, and never returns an empty result instead.
///
/// The error is [`StoreError::InvalidQuery`](crate::store::StoreError::InvalidQuery). Call
/// [`Selector::check`](crate::Selector::check) before each search.
pub async fn a_condition_that_cannot_be_evaluated_is_an_error(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;

    for (path, op) in [("$[", "eq"), ("$.a", "equals")] {
        let answer = store
            .search(&Query::new(Selector::any().matching(path, op, 1)))
            .await;
        fails(answer, "InvalidQuery", |error| {
            matches!(error, StoreError::InvalidQuery(_))
        })?;
    }
    Ok(())
}

/// A breadcrumb with several of the tags that a selector requests is found once.
///
/// A backend that searches for each tag must remove duplicates.
pub async fn any_tags_return_each_breadcrumb_once(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let a = store.create(note("a").tags(["x", "y"])).await?.id;
    let b = store.create(note("b").tags(["y"])).await?.id;
    let c = store.create(note("c").tags(["x", "y", "z", "z"])).await?.id;
    store.create(note("d")).await?;
    for n in 0..10 {
        store.create(note(&n.to_string())).await?;
    }

    for selector in [Selector::any(), Selector::schema("note.v1")] {
        let tagged = selector.any_tags(["x", "y", "z", "y", "nowhere"]);
        same(
            ids(&store, &Query::new(tagged)).await?,
            [c, b, a],
            "the result",
        )?;
    }
    Ok(())
}

/// A query returns only breadcrumbs that have all scope tags of the query, and the tags that the query's selector requests.
///
/// [`Query::scope_tags`](crate::store::Query::scope_tags) apply in addition to the tags of the
/// selector.
pub async fn scope_tags(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let both = store
        .create(note("a").tags(["session:1", "user:1"]))
        .await?
        .id;
    let one = store.create(note("b").tags(["session:1"])).await?.id;
    store
        .create(note("c").tags(["session:2", "user:1"]))
        .await?;
    let query =
        || Query::new(Selector::schema("note.v1").all_tags(["kept"])).scope_tag("session:1");

    same(
        ids(&store, &query()).await?,
        [one, both],
        "the result for the session",
    )?;
    same(
        ids(&store, &query().scope_tag("user:1")).await?,
        [both],
        "the result for the session and the user",
    )?;
    same(
        ids(&store, &query().scope_tag("user:2")).await?,
        [],
        "the result for the session and another user",
    )
}

/// After an update, a breadcrumb is found only by its new content. After a deletion, it is not found.
///
/// A backend that retains old versions must exclude them from searches.
pub async fn only_the_current_version_is_found(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let moved = store
        .create(note("a").tag("before").context(json!({"n": 1})))
        .await?;
    let deleted = store.create(note("b").tag("before")).await?;

    let mut patch = Patch::new().tags(["after"]).context(json!({"n": 2}));
    patch.schema_name = Some("other.v1".to_owned());
    store.update(moved.id, 1, patch).await?;
    store.delete(deleted.id).await?;

    for selector in [
        Selector::schema("note.v1"),
        Selector::any().all_tags(["before"]),
        Selector::any().any_tags(["before", "kept"]),
        Selector::any().matching("n", "eq", 1),
    ] {
        same(
            ids(&store, &Query::new(selector)).await?,
            [],
            "the result for the content of the old versions",
        )?;
    }
    for now in [
        Selector::schema("other.v1"),
        Selector::any().all_tags(["after"]),
        Selector::any(),
    ] {
        same(
            ids(&store, &Query::new(now)).await?,
            [moved.id],
            "the result for the content of the new version",
        )?;
    }
    Ok(())
}

/// A breadcrumb exists until its time to live ends.
///
/// The store's clock decides about [`Breadcrumb::ttl`](crate::Breadcrumb::ttl). An expired
/// breadcrumb can still occupy space.
pub async fn an_expired_breadcrumb_is_not_found(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let stays = store.create(note("a")).await?;
    let expires = store
        .create(note("b").ttl(stays.created_at + SHORT))
        .await?;

    subject.advance_clock(AFTER_SHORT).await;

    not_found(store.get(expires.id).await)?;
    not_found(store.update(expires.id, 1, Patch::new()).await)?;
    same(
        ids_of(&store, "note.v1").await?,
        [stays.id],
        "the remaining breadcrumb",
    )
}

/// A store that declares vector search supports it. Any other store returns an error.
///
/// Without the capability, the error is
/// [`StoreError::Unsupported`](crate::store::StoreError::Unsupported), so that callers do not read
/// an empty result.
pub async fn vector_search_matches_its_capability(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    create_notes(&store, 3).await?;

    let answer = store
        .vector_search(&VectorQuery::new(
            Query::new(Selector::any()).limit(2),
            "note",
        ))
        .await;

    if store.capabilities().vector_search {
        return expect(answer?.len() <= 2, "no more than the limit is found");
    }
    fails(answer, "Unsupported", |error| {
        matches!(error, StoreError::Unsupported { .. })
    })
}
