//! Searches for breadcrumbs on the RCRT server, including a check of the selector conditions that the server itself cannot check.
//! The RCRT server filters only by one tag and one schema, so this module checks the other conditions.

use super::NAME;
use super::error::store_error;
use super::filter::{Filter, filters};
use super::pages::Pages;
use super::read::Reader;
use super::wire::ListRow;
use crate::clock::later;
use crate::error::{Chain, excerpt};
use crate::model::{Breadcrumb, BreadcrumbId, Order, Timestamp};
use crate::store::{PartialSearch, Query, Scored, StoreError, VectorQuery};
use futures::StreamExt as _;
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A position in the store's order of breadcrumbs: update time, version and ID.
type OrderPosition = (Timestamp, u64, BreadcrumbId);

/// Maximum size of the text of a vector search in bytes. The text must fit into a URL.
const MAX_TEXT: usize = 1_500;

/// Maximum number of neighbours in one request of a vector search.
const MOST_NEIGHBOURS: usize = 1_000;

/// Returns the newest breadcrumbs that a query selects, in the order that the query sets.
pub(super) async fn search(
    reader: &Reader,
    query: &Query,
) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
    query.selector.check().map_err(StoreError::InvalidQuery)?;
    if query.limit == 0 {
        return Ok(Vec::new());
    }
    let filters = filters(query);
    let budget = Budget::of(reader, query, filters.len());
    let mut found = SearchResults::default();
    let mut unfinished: Option<UnfinishedList> = None;
    for filter in filters {
        // The newest breadcrumbs of all lists are among the newest of each list.
        let mut list_results = SearchResults::default();
        let unfinished_list = list_results.fill(reader, query, &filter, budget).await?;
        unfinished = unfinished
            .into_iter()
            .chain(unfinished_list)
            .max_by_key(|unfinished| unfinished.down_to);
        found.by_id.extend(list_results.by_id);
        found.unread.extend(list_results.unread);
    }
    if budget.is_some() {
        return of_interval(query, found, unfinished.as_ref());
    }
    let mut newest = found.newest_first();
    newest.truncate(query.limit);
    if newest.is_empty() {
        let checked = reader.check_token().await;
        checked.map_err(store_error)?;
    }
    if let Some(UnfinishedList { rows_read, down_to }) = unfinished {
        // Breadcrumbs that are newer than `down_to` are certainly the newest, because all lists were read down to this time.
        let certain = newest.iter().filter(|one| one.updated_at > down_to).count();
        if certain < query.limit {
            return Err(too_far_error(rows_read));
        }
    }
    Ok(in_order(query, newest))
}

/// Returns the result of a query for breadcrumbs updated within a time interval, or [`StoreError::Partial`] if some of them could
/// not be read. Pure.
fn of_interval(
    query: &Query,
    mut found: SearchResults,
    unfinished: Option<&UnfinishedList>,
) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
    let mut unread = std::mem::take(&mut found.unread);
    let mut newest = found.newest_first();
    let mut next = None;
    if let Some(&UnfinishedList { down_to, .. }) = unfinished {
        newest.retain(|one| one.updated_at > down_to);
        unread.retain(|time| *time > down_to);
        next = Some(just_after(down_to));
    }
    let is_full = newest.len() >= query.limit;
    newest.truncate(query.limit);
    if is_full && let Some(last) = newest.last() {
        unread.retain(|time| *time >= last.updated_at);
        next = Some(last.order_key());
    }
    let is_complete = unread.is_empty() && (is_full || next.is_none());
    let found = in_order(query, newest);
    if is_complete {
        return Ok(found);
    }
    Err(StoreError::Partial(Box::new(PartialSearch {
        store: NAME,
        found,
        next,
        unread,
    })))
}

fn in_order(query: &Query, newest: Vec<Breadcrumb>) -> Vec<Arc<Breadcrumb>> {
    let mut all: Vec<_> = newest.into_iter().map(Arc::new).collect();
    if query.order == Order::OldestFirst {
        all.reverse();
    }
    all
}

/// A breadcrumb list that was not read to its end, because it has too many rows or the time limit was reached.
struct UnfinishedList {
    rows_read: usize,
    /// Update time down to which the search has read the list: all newer breadcrumbs were read.
    down_to: Timestamp,
}

/// Limits of one search for breadcrumbs in an interval of time. The caller continues where the search stopped, so each search
/// makes progress in a bounded time, even on a slow server.
#[derive(Clone, Copy)]
struct Budget {
    before: OrderPosition,
    rows: usize,
    end: Instant,
}

impl Budget {
    /// Returns the row and time limits for the search of one breadcrumb list, if the query searches `lists` lists in total.
    /// Returns `None` if the query is not for an interval of time, because the caller then cannot continue a search.
    fn of(reader: &Reader, query: &Query, lists: usize) -> Option<Self> {
        const ROWS: usize = 1_000;
        const TIME: Duration = Duration::from_secs(30);
        let (before, _) = query.before.zip(query.after)?;
        let share = TIME / u32::try_from(lists.max(1)).unwrap_or(u32::MAX);
        Some(Self {
            before,
            rows: reader.settings.max_scanned.min(ROWS),
            end: later(Instant::now(), share),
        })
    }

    /// Returns `true` if the search of a time interval has reached its limit of rows or time after it read all rows that are
    /// newer than `down_to`. Returns `false` at the limit if the next search would not start at an older position than this
    /// search.
    fn is_used_up(&self, rows_read: usize, down_to: Timestamp) -> bool {
        let is_over = rows_read >= self.rows || Instant::now() >= self.end;
        is_over && just_after(down_to) < self.before
    }
}

/// Breadcrumbs that a search has found so far, by their IDs.
#[derive(Default)]
struct SearchResults {
    by_id: HashMap<BreadcrumbId, Breadcrumb>,
    /// Update time of each breadcrumb that was in the list, but that the server failed to return by its ID.
    unread: Vec<Timestamp>,
}

impl SearchResults {
    /// Reads rows of a breadcrumb list until the newest breadcrumbs that the query selects have certainly been read. Ends early if a
    /// limit is reached.
    async fn fill(
        &mut self,
        reader: &Reader,
        query: &Query,
        filter: &Filter,
        budget: Option<Budget>,
    ) -> Result<Option<UnfinishedList>, StoreError> {
        let mut pages = reader.pages(filter);
        if let Some((before, ..)) = query.before {
            pages.seek(before, query.limit);
        }
        let mut oldest = None;
        while let Some(rows) = pages.next().await.map_err(store_error)? {
            let rows_read = pages.rows_read();
            if let Some(down_to) = self.read_matching(reader, query, &rows, budget).await? {
                return Ok(Some(UnfinishedList { rows_read, down_to }));
            }
            // All rows of a page can be duplicates that new rows pushed down, or rows that were written meanwhile.
            let last = rows.last().map(|row| row.breadcrumb.updated_at);
            oldest = last.into_iter().chain(oldest).min();
            let Some(down_to) = oldest else {
                check_row_limit(&pages)?;
                continue;
            };
            if query.after.is_some_and(|after| down_to <= after) {
                return Ok(None);
            }
            // Rows with the same time have no order, so all rows of that time must be read.
            let has_enough = self.by_id.len() >= query.limit
                && self
                    .time_of_last(query.limit)
                    .is_none_or(|oldest_useful| down_to < oldest_useful);
            if has_enough {
                break;
            }
            let is_used_up = budget.is_some_and(|budget| budget.is_used_up(rows_read, down_to));
            if is_used_up || pages.rows_at_limit().is_some() {
                return Ok(Some(UnfinishedList { rows_read, down_to }));
            }
        }
        // A query with `before` does not select rows that change during the search.
        if query.before.is_none() && pages.start_second_pass() {
            // Rows that changed during the search have moved to the top, and the pages below may have missed them.
            while let Some(rows) = pages.next().await.map_err(store_error)? {
                self.read_matching(reader, query, &rows, budget).await?;
                check_row_limit(&pages)?;
            }
        }
        Ok(None)
    }

    /// Reads the current versions of the breadcrumbs whose list rows match the query. Returns the update time of the first unread row
    /// if the time limit was reached before all rows were read.
    async fn read_matching(
        &mut self,
        reader: &Reader,
        query: &Query,
        rows: &[ListRow],
        budget: Option<Budget>,
    ) -> Result<Option<Timestamp>, StoreError> {
        // A larger group than the reader reads in parallel, so that one request without a response does not delay the others.
        let group = (reader.client.concurrency * 2).clamp(8, 32);
        let mut candidates: VecDeque<(BreadcrumbId, Timestamp)> = VecDeque::new();
        for ListRow { breadcrumb } in rows {
            if query.selects(breadcrumb) {
                candidates.push_back((breadcrumb.id, breadcrumb.updated_at));
            }
        }
        while let Some(&(_, first)) = candidates.front() {
            if budget.is_some_and(|budget| budget.is_used_up(0, first)) {
                return Ok(Some(first));
            }
            let oldest_useful = self.time_of_last(query.limit);
            let remaining = query.limit.saturating_sub(self.by_id.len());
            let mut some = Vec::new();
            for one in candidates.drain(..remaining.clamp(1, group).min(candidates.len())) {
                if oldest_useful.is_none_or(|oldest_useful| one.1 >= oldest_useful) {
                    some.push(one);
                }
            }
            self.read(reader, query, &some, budget).await?;
        }
        Ok(None)
    }

    /// Reads several breadcrumbs by the IDs that a search found in a list, and adds the breadcrumbs that the query selects to the results.
    /// In an interval of time, a breadcrumb that the server fails to return is recorded as unread and does not end the search.
    async fn read(
        &mut self,
        reader: &Reader,
        query: &Query,
        some: &[(BreadcrumbId, Timestamp)],
        budget: Option<Budget>,
    ) -> Result<(), StoreError> {
        /// Maximum number of breadcrumbs that the server can fail to return before a search fails. The cause of a further
        /// failure is then probably the server and not a single breadcrumb.
        const MOST_UNREAD: usize = 16;
        let ids = some.iter().map(|(id, _)| *id).collect();
        let mut answers = pin!(reader.read_each(ids));
        while let Some((id, answer)) = answers.next().await {
            match answer {
                Ok(full) => {
                    if let Some(full) = full.filter(|full| query.selects(full)) {
                        self.by_id.insert(full.id, full);
                    }
                }
                Err(failure)
                    if budget.is_some()
                        && failure.affects_one_request()
                        && self.unread.len() < MOST_UNREAD =>
                {
                    tracing::warn!(%id, error = %Chain(&failure), "cannot read a breadcrumb; the next check of the store will retry");
                    let time = some.iter().find(|(one, _)| *one == id);
                    self.unread.extend(time.map(|(_, time)| *time));
                }
                Err(failure) => return Err(store_error(failure)),
            }
        }
        Ok(())
    }

    /// Returns the update time of the breadcrumb at rank `limit` among the found breadcrumbs, newest first. Returns `None` if
    /// fewer breadcrumbs were found.
    fn time_of_last(&self, limit: usize) -> Option<Timestamp> {
        let mut times: Vec<_> = self.by_id.values().map(|one| one.updated_at).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.get(limit - 1).copied()
    }

    fn newest_first(self) -> Vec<Breadcrumb> {
        let mut found: Vec<Breadcrumb> = self.by_id.into_values().collect();
        found.sort_unstable_by_key(|one| std::cmp::Reverse(one.order_key()));
        found
    }
}

fn check_row_limit(pages: &Pages<'_>) -> Result<(), StoreError> {
    match pages.rows_at_limit() {
        Some(rows_read) => Err(too_far_error(rows_read)),
        None => Ok(()),
    }
}

fn too_far_error(rows_read: usize) -> StoreError {
    StoreError::TooFar {
        store: NAME,
        looked_at: rows_read,
    }
}

/// Returns the first position after all breadcrumbs with the update time `time`, in the store's order of breadcrumbs. Positions
/// are sorted by update time, version and ID.
fn just_after(time: Timestamp) -> OrderPosition {
    let next = Timestamp::from_micros(time.as_micros().saturating_add(1));
    (next, 0, BreadcrumbId::NIL)
}

/// Returns the result of a vector search, without scores. The breadcrumb that is most similar to the search text comes first.
pub(super) async fn nearest(
    reader: &Reader,
    vector_query: &VectorQuery,
) -> Result<Vec<Scored>, StoreError> {
    let query = &vector_query.query;
    query.selector.check().map_err(StoreError::InvalidQuery)?;
    if vector_query.min_score.is_some() {
        return Err(StoreError::Unsupported {
            store: NAME,
            operation: "a minimum score, because the server returns no scores",
        });
    }
    let one = |filters: Vec<Filter>| match <[Filter; 1]>::try_from(filters) {
        Ok([one]) => Some(one),
        // Several lists have separate orders, and there are no scores by which they could be merged.
        Err(several) if !several.is_empty() => Some(Filter::default()),
        Err(_) => None,
    };
    let (Some(filter), false) = (one(filters(query)), query.limit == 0) else {
        return Ok(Vec::new());
    };
    let text = excerpt(&vector_query.text, MAX_TEXT);
    let mut nn = query.limit.saturating_mul(2).clamp(10, MOST_NEIGHBOURS);
    loop {
        let (rows, count) = reader
            .nearest(&filter, &text, nn)
            .await
            .map_err(store_error)?;
        let candidates = rows.iter().filter(|row| query.selects(&row.breadcrumb));
        let ids = candidates.map(|row| row.breadcrumb.id);
        let mut found = reader.read_all(ids).await.map_err(store_error)?;
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
            return Err(too_far_error(count));
        }
        nn = nn.saturating_mul(4).min(MOST_NEIGHBOURS);
    }
}
