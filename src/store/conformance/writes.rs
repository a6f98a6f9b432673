use super::AnyStore;
use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, fails, not_found, same, some};
use super::fixtures::{create, ids_of, note};
use crate::model::{BreadcrumbId, NewBreadcrumb, Patch, Selector, Sensitivity, Visibility};
use crate::store::{BreadcrumbStoreExt, Commit, Query, StoreError, Write};
use futures::future::join_all;
use serde_json::json;

/// A created breadcrumb has an ID, version 1, a time and its author. Reads and searches return the whole breadcrumb, including its
/// LLM hints.
///
/// A field that the store loses is missing in the input of each executor. The operations are
/// [`commit`](crate::store::BreadcrumbStore::commit), [`get`](crate::store::BreadcrumbStore::get)
/// and [`search`](crate::store::BreadcrumbStore::search).
///
/// Checked only in part without
/// [`Capabilities::chosen_author`](crate::store::Capabilities::chosen_author).
pub async fn a_created_breadcrumb_is_read_back_unchanged(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let new = full_breadcrumb();

    let created = store.create(new.clone()).await?;

    same(
        &*store.get(created.id).await?,
        &*created,
        "the breadcrumb that is read",
    )?;
    let found = store
        .search(&Query::new(Selector::schema("note.v1")))
        .await?;
    same(found, vec![created.clone()], "the search result")?;
    same(created.version, 1, "the version")?;
    same(
        created.created_at,
        created.updated_at,
        "the time of creation",
    )?;
    let mut expected_result = new.first_version(created.id, created.created_at);
    if !store.capabilities().chosen_author {
        expected_result.created_by.clone_from(&created.created_by);
    }
    expected_result.updated_by.clone_from(&created.updated_by);
    expected_result.owner_id.clone_from(&created.owner_id);
    same(&*created, &expected_result, "the created breadcrumb")
}

/// An update creates the next version of a breadcrumb, with its own time and author. The time and the author of the creation do
/// not change.
///
/// Each version can trigger executors, so a store must neither reuse nor skip a version number.
///
/// Checked only in part without
/// [`Capabilities::chosen_author`](crate::store::Capabilities::chosen_author).
pub async fn an_update_creates_the_next_version(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let before = store.create(note("a")).await?;

    let after = store
        .update(before.id, 1, Patch::new().title("b").updated_by("bob"))
        .await?;

    same(
        &*store.get(before.id).await?,
        &*after,
        "the breadcrumb that is read",
    )?;
    same(
        (after.id, after.version),
        (before.id, 2),
        "the id and version",
    )?;
    same(
        (after.created_at, &after.created_by),
        (before.created_at, &before.created_by),
        "the creation",
    )?;
    expect(
        after.updated_at > before.updated_at,
        "the later version has the later time",
    )?;
    if store.capabilities().chosen_author {
        same(after.author(), Some("bob"), "the author of version 2")?;
    }
    Ok(())
}

/// A patch replaces the breadcrumb fields that it names and retains all others.
///
/// [`Breadcrumb::patched`](crate::Breadcrumb::patched) computes the new version, so a store can
/// call it.
pub async fn a_patch_retains_the_fields_that_it_does_not_set(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let before = store.create(full_breadcrumb()).await?;

    let tagged = store
        .update(before.id, 1, Patch::new().tags(["new"]))
        .await?;
    let filled = store
        .update(before.id, 2, Patch::new().context(json!({"b": 2})))
        .await?;

    let mut expected_result = (*before).clone();
    expected_result.tags = vec!["new".to_owned()];
    (expected_result.version, expected_result.updated_at) = (2, tagged.updated_at);
    expected_result.updated_by.clone_from(&tagged.updated_by);
    same(&*tagged, &expected_result, "the breadcrumb with other tags")?;
    expected_result.context = json!({"b": 2}).into();
    (expected_result.version, expected_result.updated_at) = (3, filled.updated_at);
    expected_result.updated_by.clone_from(&filled.updated_by);
    same(
        &*filled,
        &expected_result,
        "the breadcrumb with another context",
    )
}

/// **Optimistic.** An update of a breadcrumb from another version than the current one is a conflict and changes nothing.
///
/// The error is [`StoreError::Conflict`](crate::store::StoreError::Conflict) with the expected and
/// the found version.
pub async fn optimistic(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let first = store.create(note("a")).await?;
    let second = store.update(first.id, 1, Patch::new().title("b")).await?;

    for version in [0, 1, 3] {
        let stale = store
            .update(first.id, version, Patch::new().title("c"))
            .await;
        fails(
            stale,
            "Conflict",
            |error| matches!(error, StoreError::Conflict { id, expected, found: 2 } if *id == first.id && *expected == version),
        )?;
    }
    let missing = BreadcrumbId::unique();
    not_found(store.update(missing, 1, Patch::new()).await)?;

    same(
        &*store.get(first.id).await?,
        &*second,
        "the breadcrumb that is read",
    )
}

/// Of many concurrent updates from one breadcrumb version, one succeeds and the others are conflicts. Without
/// [`Capabilities::exclusive_updates`](crate::store::Capabilities::exclusive_updates), at least one succeeds. In both cases there
/// is one new version.
///
/// Compare the version and write in one step, for example under a lock or with a condition in the
/// statement.
///
/// Checked only in part without
/// [`Capabilities::exclusive_updates`](crate::store::Capabilities::exclusive_updates).
pub async fn one_of_concurrent_updates_succeeds(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let before = store.create(note("a")).await?;
    let handles: Vec<AnyStore<'_>> = (0..20).map(|_| store.clone()).collect();

    let answers = join_all(
        handles
            .iter()
            .map(|store| store.update(before.id, 1, Patch::new().title("b"))),
    )
    .await;

    let succeeded = answers.iter().filter(|answer| answer.is_ok()).count();
    match store.capabilities().exclusive_updates {
        true => same(succeeded, 1, "the number of successful updates")?,
        false => expect(succeeded > 0, "at least one update succeeds")?,
    }
    for refused in answers.into_iter().filter(Result::is_err) {
        fails(refused, "Conflict", |error| {
            matches!(error, StoreError::Conflict { .. })
        })?;
    }
    same(store.get(before.id).await?.version, 2, "the version")
}

/// Each write of a commit sees the earlier writes of the same commit.
///
/// A commit can create, update and delete one breadcrumb. Its versions then follow one another.
pub async fn a_write_sees_the_earlier_writes_of_its_commit(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let id = store.create(note("a")).await?.id;
    let update = |version, title: &str| Write::Update {
        id,
        version,
        patch: Patch::new().title(title),
    };

    let committed = store
        .commit(vec![update(1, "b"), update(2, "c")].into())
        .await?;
    let stale = store
        .commit(vec![update(3, "d"), update(3, "e")].into())
        .await;

    let versions: Vec<(u64, &str)> = committed
        .written
        .iter()
        .map(|one| (one.version, &*one.title))
        .collect();
    same(versions, [(2, "b"), (3, "c")], "the written breadcrumbs")?;
    fails(stale, "Conflict", |error| {
        matches!(error, StoreError::Conflict { found: 4, .. })
    })?;
    same(&*store.get(id).await?.title, "c", "the title")?;
    let deleted = vec![Write::Delete { id, by: None }, update(3, "d")];
    not_found(store.commit(deleted.into()).await)?;
    same(store.get(id).await?.version, 3, "the version")
}

/// A commit returns the written versions, one for each write, in order. Later reads return the same versions.
///
/// The caller uses [`Committed::written`](crate::store::Committed::written) for further updates,
/// without a read.
pub async fn a_commit_returns_its_versions_in_order(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let id = store.create(note("a")).await?.id;
    let update = Write::Update {
        id,
        version: 1,
        patch: Patch::new().title("b"),
    };

    let committed = store
        .commit(vec![create("c"), update, create("d")].into())
        .await?;

    let titles: Vec<&str> = committed.written.iter().map(|one| &*one.title).collect();
    same(titles, ["c", "b", "d"], "the written breadcrumbs")?;
    for written in &committed.written {
        same(
            &*store.get(written.id).await?,
            &**written,
            "the breadcrumb that is read",
        )?;
    }
    same(committed.ids().get(1), Some(&id), "the second id")
}

/// A commit has at most 1,000 writes.
///
/// A larger commit is [`StoreError::TooManyWrites`](crate::store::StoreError::TooManyWrites), see
/// [`Commit::MAX_WRITES`](crate::store::Commit::MAX_WRITES).
pub async fn a_commit_accepts_a_thousand_writes(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let writes = |n: usize| Commit::from(vec![create("a"); n]);

    let most = store.commit(writes(Commit::MAX_WRITES)).await?;
    let more = store.commit(writes(Commit::MAX_WRITES + 1)).await;

    same(
        most.written.len(),
        Commit::MAX_WRITES,
        "the number of writes",
    )?;
    fails(more, "TooManyWrites", |error| {
        matches!(error, StoreError::TooManyWrites { .. })
    })
}

/// A deleted breadcrumb is not found by reads and searches. A store with tombstones returns its last version, with the next
/// version number.
///
/// The error is [`StoreError::NotFound`](crate::store::StoreError::NotFound), with the tombstone if
/// the store retains it.
///
/// Checked only in part without
/// [`Capabilities::tombstones`](crate::store::Capabilities::tombstones) or
/// [`Capabilities::chosen_author`](crate::store::Capabilities::chosen_author).
pub async fn a_deleted_breadcrumb_is_not_found(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let before = store.create(note("a")).await?;
    let stays = store.create(note("b")).await?;
    let delete = Write::Delete {
        id: before.id,
        by: Some("bob".to_owned()),
    };

    store.commit(vec![delete].into()).await?;

    same(
        ids_of(&store, "note.v1").await?,
        [stays.id],
        "the remaining breadcrumb",
    )?;
    let tombstone = match store.get(before.id).await {
        Err(StoreError::NotFound { id, tombstone }) if id == before.id => tombstone,
        other => {
            return expect(
                false,
                &format!("the read fails with NotFound and is not {other:?}"),
            );
        }
    };
    same(
        tombstone.is_some(),
        store.capabilities().tombstones,
        "the existence of a tombstone",
    )?;
    if let Some(tombstone) = tombstone {
        same(
            (tombstone.version, &tombstone.context),
            (2, &before.context),
            "the tombstone",
        )?;
        if store.capabilities().chosen_author {
            same(
                tombstone.author(),
                Some("bob"),
                "the author of the tombstone",
            )?;
        }
    }
    not_found(store.update(before.id, 1, Patch::new()).await)?;
    not_found(store.update(before.id, 2, Patch::new()).await)?;
    not_found(store.delete(before.id).await)
}

/// A breadcrumb that never existed is not found, and has no tombstone.
///
/// Reads and deletions fail with
/// [`StoreError::NotFound`](crate::store::StoreError::NotFound).
pub async fn an_unknown_breadcrumb_is_not_found(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let id = BreadcrumbId::unique();

    let answer = store.get(id).await;

    fails(
        answer,
        "NotFound without a tombstone",
        |error| matches!(error, StoreError::NotFound { id: returned, tombstone: None } if *returned == id),
    )?;
    not_found(store.delete(id).await)
}

/// **Shared.** A clone of a store handle is another handle on the same data.
///
/// A store in memory therefore clones a pointer, not its data.
pub async fn clones_share_their_data(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let clone = store.clone();

    let by_store = store.create(note("a")).await?;
    let by_clone = clone
        .update(by_store.id, 1, Patch::new().title("b"))
        .await?;

    same(store.tenant(), clone.tenant(), "the tenant")?;
    same(
        &*store.get(by_store.id).await?,
        &*by_clone,
        "the breadcrumb that the other handle wrote",
    )?;
    drop(store);
    same(
        &*some(
            clone.latest("note.v1").await?,
            "the breadcrumb of a dropped handle",
        )?,
        &*by_clone,
        "the breadcrumb of a dropped handle",
    )
}

/// Returns a breadcrumb with every field set.
fn full_breadcrumb() -> NewBreadcrumb {
    let mut new = note("a")
        .description("About a")
        .tags(["session:1", "ü\"'"])
        .context(json!({"a": [1, 2.5, -3, true, null, "ü\u{1F600}\"\\"], "n": {"": 9_007_199_254_740_993_u64}}))
        .llm_hints(json!({"mode": "replace"}))
        .visibility(Visibility::Private)
        .sensitivity(Sensitivity::Pii);
    new.semantic_version = Some("1.2.3".to_owned());
    new
}
