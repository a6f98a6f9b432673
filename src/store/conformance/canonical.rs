use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, fails, granted, same};
use super::fixtures::{end, ids_of, ledger_of, new_run, note};
use crate::model::{Breadcrumb, Json, JsonError, MAX_DEPTH, NewBreadcrumb, Patch, Selector};
use crate::store::{BreadcrumbStoreExt, DeadLetter, FailureClass, RunEnd, StoreError, Wake, Write};
use serde_json::{Value, json};
use std::fmt::Debug;

/// **Canonical.** Stores replace U+0000 by U+FFFD, in JSON (also in keys) and in every other string.
///
/// PostgreSQL cannot store U+0000, so no store does. Then all stores return equal breadcrumbs.
pub async fn canonical_nul(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let mut new = NewBreadcrumb::new("no\0te.v1")
        .title("a\0")
        .description("\0")
        .tag("t\0")
        .created_by("an\0n")
        .context(json!({"k\0": ["\0v"]}))
        .llm_hints(json!({"h": "\0"}));
    new.semantic_version = Some("1\0".to_owned());

    let created = store.create(new).await?;
    let mut patch = Patch::new()
        .title("b\0")
        .tags(["\0"])
        .context(json!({"k": "\0"}))
        .updated_by("bo\0b");
    patch.semantic_version = Some("2\0".to_owned());
    let updated = store.update(created.id, 1, patch).await?;
    let by = Some("bo\0b".to_owned());
    let deleted = store
        .commit(vec![Write::Delete { id: created.id, by }].into())
        .await?;

    for written in [&created, &updated].into_iter().chain(&deleted.written) {
        expect(
            !format!("{written:?}").contains("\\0"),
            "no string has U+0000",
        )?;
        expect(
            !json!(written).to_string().contains("\\u0000"),
            "no JSON has U+0000",
        )?;
    }
    same(
        created.schema_name.as_deref(),
        Some("no\u{FFFD}te.v1"),
        "the schema",
    )?;
    same(&*created.tags, ["t\u{FFFD}"], "the tags")?;
    same(
        &*created.context,
        &json!({"k\u{FFFD}": ["\u{FFFD}v"]}),
        "the context",
    )?;
    same(
        &*updated.context,
        &json!({"k": "\u{FFFD}"}),
        "the patched context",
    )
}

/// **Canonical.** JSON with up to 64 levels is stored, and deeper JSON is rejected in every field.
///
/// The error is [`StoreError::Rejected`](crate::store::StoreError::Rejected). The limit protects
/// recursive readers of JSON.
pub async fn canonical_depth(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;

    let stored = store.create(note("a").context(nested(MAX_DEPTH))).await?;

    same(
        &*store.get(stored.id).await?.context,
        &nested(MAX_DEPTH),
        "the context that is read",
    )?;
    for depth in [MAX_DEPTH + 1, 20_000] {
        too_deep(store.create(note("b").context(nested(depth))).await)?;
        too_deep(store.create(note("b").llm_hints(nested(depth))).await)?;
        too_deep(
            store
                .update(stored.id, 1, Patch::new().context(nested(depth)))
                .await,
        )?;
    }
    same(
        ids_of(&store, "note.v1").await?,
        [stored.id],
        "the stored breadcrumbs",
    )
}

/// **Canonical.** A whole breadcrumb of up to 1 MiB is stored, and a larger one is rejected.
///
/// The size is that of [`Breadcrumb::size`](crate::Breadcrumb::size), and the error is
/// [`StoreError::Rejected`](crate::store::StoreError::Rejected).
pub async fn canonical_size(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let half = |size: usize| Json::from(json!({"text": "x".repeat(size)}));
    let least = store.create(note("a").context(half(0))).await?;
    let most = Json::MAX_BYTES - least.size();
    store.delete(least.id).await?;

    let stored = store.create(note("a").context(half(most))).await?;
    let small = store.create(note("b").context(half(600_000))).await?;

    too_large(store.create(note("c").context(half(most + 1))).await)?;
    too_large(
        store
            .create(note("c").context(half(600_000)).llm_hints(half(600_000)))
            .await,
    )?;
    too_large(
        store
            .update(small.id, 1, Patch::new().context(half(most + 1)))
            .await,
    )?;
    let mut hints = Patch::new();
    hints.llm_hints = Some(half(600_000));
    too_large(store.update(small.id, 1, hints).await)?;
    same(
        ids_of(&store, "note.v1").await?,
        [small.id, stored.id],
        "the stored breadcrumbs",
    )
}

/// **Canonical.** The store rejects a saved run state that is nested too deeply. U+0000 is replaced by U+FFFD in the saved state
/// and in the dead letter.
///
/// The error is [`StoreError::Rejected`](crate::store::StoreError::Rejected), and the run stays as
/// it is.
///
/// Not checked for a store without a ledger.
pub async fn canonical_runs(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;

    too_deep(ledger.save(&lease, nested(MAX_DEPTH + 1).into()).await)?;
    let wake = Wake::on(Selector::any());
    let state = nested(MAX_DEPTH + 1).into();
    too_deep(
        end(
            &store,
            &lease,
            RunEnd::Suspended { wake, state },
            Vec::new(),
        )
        .await,
    )?;
    ledger.save(&lease, json!({"k": "\0"}).into()).await?;
    ledger.release(lease).await?;
    let again = granted(ledger.claim(&run, None).await)?;
    let letter = DeadLetter::new(FailureClass::Permanent, "a\0", 1);
    let ended = end(&store, &again.lease, RunEnd::Failed(letter), Vec::new()).await?;

    same(
        again.state.map(|saved| saved.state),
        Some(Json::from(json!({"k": "\u{FFFD}"}))),
        "the saved state",
    )?;
    let codes: Vec<Option<&Value>> = ended
        .written
        .iter()
        .map(|letter| letter.context.get("code"))
        .collect();
    same(
        codes,
        [Some(&json!("a\u{FFFD}"))],
        "the code in the dead letter",
    )
}

/// **Canonical.** A breadcrumb with more than 256 tags, or with a tag of more than 256 bytes, is rejected.
///
/// The errors are [`StoreError::TooManyTags`](crate::store::StoreError::TooManyTags) and
/// [`StoreError::TagTooLong`](crate::store::StoreError::TagTooLong). A limit bounds the keys of an
/// index.
pub async fn canonical_tags(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let tag = |size: usize| move |number: usize| format!("{number:0>size$}");
    let many = |count: usize| (0..count).map(tag(Breadcrumb::MAX_TAG_BYTES));
    let long = [tag(Breadcrumb::MAX_TAG_BYTES + 1)(0)];

    let stored = store
        .create(note("a").tags(many(Breadcrumb::MAX_TAGS - 1)))
        .await?;

    same(
        stored.tags.len(),
        Breadcrumb::MAX_TAGS,
        "the number of tags",
    )?;
    let more = || many(Breadcrumb::MAX_TAGS + 1);
    let too_many = |error: &StoreError| matches!(error, StoreError::TooManyTags { write: 0, .. });
    let created = store.create(note("b").tags(more())).await;
    fails(created, "TooManyTags", too_many)?;
    let updated = store.update(stored.id, 1, Patch::new().tags(more())).await;
    fails(updated, "TooManyTags", too_many)?;
    let too_long = |error: &StoreError| matches!(error, StoreError::TagTooLong { write: 0, .. });
    let created = store.create(note("b").tags(long.clone())).await;
    fails(created, "TagTooLong", too_long)?;
    let updated = store.update(stored.id, 1, Patch::new().tags(long)).await;
    fails(updated, "TagTooLong", too_long)?;
    same(
        ids_of(&store, "note.v1").await?,
        [stored.id],
        "the stored breadcrumbs",
    )
}

/// **Canonical.** A schema name of more than 256 bytes is rejected, without an effect on other commits.
///
/// The error is [`StoreError::SchemaTooLong`](crate::store::StoreError::SchemaTooLong). A limit
/// bounds the keys of an index.
pub async fn canonical_schema_name(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let name = |size: usize| NewBreadcrumb::new("s".repeat(size));
    let (longest, longer) = (
        Breadcrumb::MAX_SCHEMA_BYTES,
        Breadcrumb::MAX_SCHEMA_BYTES + 1,
    );
    let too_long = |error: &StoreError| matches!(error, StoreError::SchemaTooLong { write: 0, .. });

    let (stored, created) = futures::join!(store.create(name(longest)), store.create(name(longer)));

    fails(created, "SchemaTooLong", too_long)?;
    let stored = stored?;
    let patch = Patch {
        schema_name: Some("s".repeat(longer)),
        ..Patch::new()
    };
    fails(
        store.update(stored.id, 1, patch).await,
        "SchemaTooLong",
        too_long,
    )?;
    let found = ids_of(&store, &"s".repeat(longest)).await?;
    same(found, [stored.id], "the stored breadcrumbs")
}

/// Returns an object with nested arrays, with `depth` levels in total.
fn nested(depth: usize) -> Value {
    let inside = (2..depth).fold(json!([]), |inside, _| Value::Array(vec![inside]));
    Value::Object([("in".to_owned(), inside)].into_iter().collect())
}

#[track_caller]
fn too_deep<T: Debug>(answer: Result<T, StoreError>) -> Result<(), Broken> {
    fails(answer, "Rejected, too deep", |error| {
        matches!(
            error,
            StoreError::Rejected {
                source: JsonError::TooDeep,
                ..
            }
        )
    })
}

#[track_caller]
fn too_large<T: Debug>(answer: Result<T, StoreError>) -> Result<(), Broken> {
    fails(answer, "Rejected, too large", |error| {
        matches!(
            error,
            StoreError::Rejected {
                source: JsonError::TooLarge { .. },
                ..
            }
        )
    })
}
