use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, same, some};
use super::fixtures::{create_notes, ids};
use crate::model::{BreadcrumbId, Order, Patch, Selector};
use crate::store::{BreadcrumbStoreExt, Query};

/// **Newest first.** The results of a query are ordered by update time, then version, then ID. An update moves a breadcrumb to the
/// front.
///
/// Sort by [`Breadcrumb::order_key`](crate::Breadcrumb::order_key): update time, then version, then
/// ID.
pub async fn newest_first(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let mut created = create_notes(&store, 6).await?;
    let moved = some(created.first().cloned(), "a breadcrumb")?;

    created.push(
        store
            .update(moved.id, 1, Patch::new().title("later"))
            .await?,
    );

    let found = store.search(&Query::new(Selector::any())).await?;
    let keys: Vec<_> = found
        .iter()
        .map(|breadcrumb| breadcrumb.order_key())
        .collect();
    expect(
        keys.is_sorted_by(|newer, older| newer > older),
        "the order is newest first",
    )?;
    same(keys.len(), 6, "the number of breadcrumbs")?;
    same(
        found.first().map(|first| (first.id, first.version)),
        Some((moved.id, 2)),
        "the newest",
    )
}

/// The limit of a query selects the newest breadcrumbs. The order "oldest first" reverses the same breadcrumbs.
///
/// Apply the limit before the order: an oldest-first query returns the newest ones in reverse.
pub async fn the_limit_selects_the_newest(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let created = create_notes(&store, 5).await?;
    let newest: Vec<BreadcrumbId> = created.iter().rev().take(3).map(|note| note.id).collect();
    let query = |limit| Query::new(Selector::schema("note.v1")).limit(limit);

    same(ids(&store, &query(3)).await?, &*newest, "the newest")?;
    let mut turned = ids(&store, &query(3).order(Order::OldestFirst)).await?;
    turned.reverse();
    same(turned, &*newest, "the newest, reversed twice")?;
    same(
        ids(&store, &query(0)).await?,
        [],
        "the result with a limit of 0",
    )?;
    same(
        ids(&store, &query(9)).await?.len(),
        5,
        "the number of all breadcrumbs",
    )
}

/// A breadcrumb that a query excludes does not count towards the limit of the query.
///
/// A query that excludes one breadcrumb still returns as many others as the limit permits.
pub async fn excluded_breadcrumbs_do_not_count_towards_the_limit(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let created: Vec<BreadcrumbId> = create_notes(&store, 3)
        .await?
        .iter()
        .map(|note| note.id)
        .collect();
    let [oldest, middle, newest] = *created else {
        return expect(false, "the store has three notes");
    };
    let query = |id| Query::new(Selector::any()).limit(2).exclude(id);

    same(
        ids(&store, &query(newest)).await?,
        [middle, oldest],
        "the result without the newest breadcrumb",
    )?;
    same(
        ids(&store, &query(middle)).await?,
        [newest, oldest],
        "the result without the middle breadcrumb",
    )
}

/// The pages of a query return each breadcrumb once, although breadcrumbs of earlier pages are updated meanwhile. For each
/// further page, `before` is the order key of the last breadcrumb on the previous page.
///
/// Each page starts at [`Query::before`](crate::store::Query::before), the position of the last
/// breadcrumb of the previous page.
pub async fn paging_returns_each_breadcrumb_once(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let created = create_notes(&store, 10).await?;
    let mut query = Query::new(Selector::schema("note.v1")).limit(3);
    let mut returned: Vec<BreadcrumbId> = Vec::new();

    for _ in 0..10 {
        let page = store.search(&query).await?;
        let Some(last) = page.last() else { break };
        let last = last.order_key();
        expect(
            page.iter()
                .all(|found| query.before.is_none_or(|key| found.order_key() < key)),
            "the page has only older breadcrumbs",
        )?;
        returned.extend(page.iter().map(|found| found.id));
        query = query.before(last);
        let newest = some(returned.first(), "a breadcrumb")?;
        let version = store.get(*newest).await?.version;
        store
            .update(*newest, version, Patch::new().title("again"))
            .await?;
    }

    let expected_result: Vec<BreadcrumbId> = created.iter().rev().map(|note| note.id).collect();
    same(returned, expected_result, "the breadcrumbs of all pages")
}

/// A query with `after` selects only breadcrumbs that were updated after a time. The query can also have a limit, and `before`,
/// which selects only breadcrumbs older than an order key.
///
/// [`Query::after`](crate::store::Query::after) is exclusive. A runtime uses it to catch up after a
/// downtime.
pub async fn a_query_after_a_time_omits_older_breadcrumbs(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let created = create_notes(&store, 5).await?;
    let [_, second, third, fourth, fifth] = &*created else {
        return expect(false, "the store has five notes");
    };
    let tagged = Selector::schema("note.v1");
    for selector in [Selector::any(), tagged] {
        let query = |after| Query::new(selector.clone()).after(after);

        same(
            ids(&store, &query(second.updated_at)).await?,
            [fifth.id, fourth.id, third.id],
            "the breadcrumbs after the second",
        )?;
        same(
            ids(&store, &query(second.updated_at).before(fifth.order_key())).await?,
            [fourth.id, third.id],
            "the breadcrumbs between the second and the fifth",
        )?;
        same(
            ids(&store, &query(second.updated_at).limit(1)).await?,
            [fifth.id],
            "the newest",
        )?;
        same(
            ids(&store, &query(fifth.updated_at)).await?,
            [],
            "the breadcrumbs after the newest",
        )?;
    }
    Ok(())
}
