//! The whole selector on a server that knows one tag and one schema.

use super::NAME;
use super::error::store_error;
use super::filter::{Filter, filters};
use super::pages::Pages;
use super::read::Reader;
use super::wire::Row;
use crate::error::excerpt;
use crate::model::{Breadcrumb, BreadcrumbId, Order, Timestamp};
use crate::store::{Query, Scored, StoreError, VectorQuery};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How much of a text is searched for, in bytes: it has to fit into a URL.
const MAX_TEXT: usize = 1_500;

/// How many neighbours the server is asked for at the most.
const MOST_NEIGHBOURS: usize = 1_000;

/// The newest breadcrumbs that a query selects, in its order.
pub(super) async fn search(
    reader: &Reader,
    query: &Query,
) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
    query.selector.check().map_err(StoreError::InvalidQuery)?;
    if query.limit == 0 {
        return Ok(Vec::new());
    }
    let mut found = Found::default();
    let mut short: Option<Short> = None;
    for filter in filters(query) {
        // Each list has its newest; the newest of all are among them.
        let mut of_list = Found::default();
        let is_short = of_list.fill(reader, query, &filter).await?;
        short = short
            .into_iter()
            .chain(is_short)
            .max_by_key(|short| short.down_to);
        found.0.extend(of_list.0);
    }
    let mut newest = found.newest_first();
    newest.truncate(query.limit);
    if newest.is_empty() {
        let checked = reader.token_check.check(reader).await;
        checked.map_err(store_error)?;
    }
    if let Some(Short { looked_at, down_to }) = short {
        // Newer breadcrumbs than these are surely the newest.
        let sure = newest.iter().filter(|one| one.updated_at > down_to).count();
        if sure < query.limit {
            return Err(StoreError::TooFar {
                store: NAME,
                looked_at,
                down_to: Some(down_to),
            });
        }
    }
    if query.order == Order::OldestFirst {
        newest.reverse();
    }
    Ok(newest.into_iter().map(Arc::new).collect())
}

/// A list that was not read to its end, because it has too many rows.
struct Short {
    looked_at: usize,
    /// Time of the oldest row that was read.
    down_to: Timestamp,
}

/// What was found so far, each once.
#[derive(Default)]
struct Found(HashMap<BreadcrumbId, Breadcrumb>);

impl Found {
    /// Reads a list until it surely has the newest that the query selects, or until it has read too many rows.
    async fn fill(
        &mut self,
        reader: &Reader,
        query: &Query,
        filter: &Filter,
    ) -> Result<Option<Short>, StoreError> {
        let mut pages = reader.pages(filter);
        if let Some((before, ..)) = query.before {
            pages.seek(before, query.limit);
        }
        while let Some(rows) = pages.next().await.map_err(store_error)? {
            self.take(reader, query, &rows).await?;
            let oldest = rows.last().map(|row| row.breadcrumb.updated_at);
            if let (Some(oldest), Some(after)) = (oldest, query.after)
                && oldest <= after
            {
                return Ok(None);
            }
            // Rows of one time are in any order, so all of that time have to be seen.
            let is_enough = self.0.len() >= query.limit
                && oldest.is_some_and(|oldest| {
                    self.worst(query.limit).is_none_or(|worst| oldest < worst)
                });
            if is_enough {
                break;
            }
            if let (Some(looked_at), Some(down_to)) = (pages.too_far(), oldest) {
                return Ok(Some(Short { looked_at, down_to }));
            }
            within_reach(&pages)?;
        }
        // A query for older breadcrumbs does not select the rows that are changed meanwhile.
        if query.before.is_none() && pages.once_more() {
            // What was changed meanwhile is at the top by now, and may not have been seen below.
            while let Some(rows) = pages.next().await.map_err(store_error)? {
                self.take(reader, query, &rows).await?;
                within_reach(&pages)?;
            }
        }
        Ok(None)
    }

    /// Keeps those of some rows that the query selects, as they are now.
    async fn take(
        &mut self,
        reader: &Reader,
        query: &Query,
        rows: &[Row],
    ) -> Result<(), StoreError> {
        const AT_ONCE: usize = 16;
        let mut candidates: VecDeque<(BreadcrumbId, Timestamp)> = VecDeque::new();
        for Row { breadcrumb } in rows {
            if query.selects(breadcrumb) {
                candidates.push_back((breadcrumb.id, breadcrumb.updated_at));
            }
        }
        while !candidates.is_empty() {
            let worst = self.worst(query.limit);
            let room = query.limit.saturating_sub(self.0.len()).clamp(1, AT_ONCE);
            let mut some = Vec::new();
            for (id, at) in candidates.drain(..room.min(candidates.len())) {
                if worst.is_none_or(|worst| at >= worst) {
                    some.push(id);
                }
            }
            for full in reader.fulls(some).await.map_err(store_error)? {
                if query.selects(&full) {
                    self.0.insert(full.id, full);
                }
            }
        }
        Ok(())
    }

    /// The time of the oldest of so many newest, if there are so many.
    fn worst(&self, limit: usize) -> Option<Timestamp> {
        let mut times: Vec<_> = self.0.values().map(|one| one.updated_at).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.get(limit - 1).copied()
    }

    fn newest_first(self) -> Vec<Breadcrumb> {
        let mut found: Vec<Breadcrumb> = self.0.into_values().collect();
        found.sort_unstable_by_key(|one| std::cmp::Reverse(one.order_key()));
        found
    }
}

fn within_reach(pages: &Pages<'_>) -> Result<(), StoreError> {
    match pages.too_far() {
        Some(looked_at) => Err(StoreError::TooFar {
            store: NAME,
            looked_at,
            down_to: None,
        }),
        None => Ok(()),
    }
}

/// The breadcrumbs that a query selects, nearest to its text first, without scores.
pub(super) async fn nearest(
    reader: &Reader,
    wanted: &VectorQuery,
) -> Result<Vec<Scored>, StoreError> {
    let query = &wanted.query;
    query.selector.check().map_err(StoreError::InvalidQuery)?;
    if wanted.min_score.is_some() {
        return Err(StoreError::Unsupported {
            store: NAME,
            operation: "a least score, as the server tells none",
        });
    }
    let one = |filters: Vec<Filter>| match <[Filter; 1]>::try_from(filters) {
        Ok([one]) => Some(one),
        // Several lists have several orders, and no scores to merge them by.
        Err(several) if !several.is_empty() => Some(Filter::default()),
        Err(_) => None,
    };
    let (Some(filter), false) = (one(filters(query)), query.limit == 0) else {
        return Ok(Vec::new());
    };
    let text = excerpt(&wanted.text, MAX_TEXT);
    let mut nn = query.limit.saturating_mul(2).clamp(10, MOST_NEIGHBOURS);
    loop {
        let (rows, count) = reader
            .nearest(&filter, &text, nn)
            .await
            .map_err(store_error)?;
        let candidates = rows.iter().filter(|row| query.selects(&row.breadcrumb));
        let ids = candidates.map(|row| row.breadcrumb.id);
        let mut found = reader.fulls(ids).await.map_err(store_error)?;
        found.retain(|full| query.selects(full));
        found.truncate(query.limit);
        if found.len() == query.limit || count < nn {
            let scored = found.into_iter().map(|breadcrumb| Scored {
                breadcrumb: Arc::new(breadcrumb),
                score: None,
            });
            return Ok(scored.collect());
        }
        if nn == MOST_NEIGHBOURS {
            return Err(StoreError::TooFar {
                store: NAME,
                looked_at: count,
                down_to: None,
            });
        }
        nn = nn.saturating_mul(4).min(MOST_NEIGHBOURS);
    }
}
