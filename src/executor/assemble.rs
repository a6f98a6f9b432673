//! Assembly of an [`ExecutionContext`]: fetches the context subscriptions of an executor for one trigger.

use super::UniversalExecutor;
use super::context::ExecutionContext;
use super::error::ExecutorError;
use super::sources::{Bound, MissingReason, MissingSource, Source};
use super::store_timeout::timed_out;
use crate::clock::within;
use crate::error::Chain;
use crate::model::{Breadcrumb, EventKind, Fetch, Method, Order, Route, Subscription};
use crate::store::{BreadcrumbStore, Query, Scored, StoreError, VectorQuery, schema_hints};
use futures::future::join_all;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tracing::Instrument as _;

/// Breadcrumbs that a fetch of one context subscription returned.
///
/// An override of [`fetch_source`](crate::UniversalExecutor::fetch_source) returns it. Create one
/// from a list of breadcrumbs with `into`.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use universal_executor::NewBreadcrumb;
/// use universal_executor::executor::Fetched;
/// use universal_executor::model::Breadcrumb;
///
/// let price: Arc<Breadcrumb> = NewBreadcrumb::new("price.v1").into();
/// let fetched = Fetched::from(vec![price]);
/// assert_eq!(fetched.items.len(), 1);
/// assert_eq!(fetched.cut, None);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Fetched {
    /// The breadcrumbs that the fetch returned, in the order that the subscription requests.
    pub items: Vec<Arc<Breadcrumb>>,
    /// Similarity score of each breadcrumb that a vector search found, or `None` if the store reports no score. Empty for a fetch
    /// without vector search.
    pub scores: Vec<Option<f64>>,
    /// The limit that made the fetch of the context subscription incomplete, or `None` if the fetch is complete.
    pub cut: Option<Bound>,
}

impl From<Vec<Arc<Breadcrumb>>> for Fetched {
    fn from(items: Vec<Arc<Breadcrumb>>) -> Self {
        Self {
            items,
            ..Self::default()
        }
    }
}

/// Fetches all context subscriptions of an executor concurrently, and returns the breadcrumbs as the context of a run.
pub(super) async fn assemble<E: UniversalExecutor + ?Sized>(
    executor: &E,
    trigger: &Arc<Breadcrumb>,
) -> Result<ExecutionContext, ExecutorError> {
    let subscriptions = executor.subscriptions();
    let limit = executor.profile().source_timeout;
    let fetches = subscriptions.sources().map(|subscription| async move {
        let key = subscription.name().unwrap_or_default();
        let span = tracing::debug_span!("fetch", executor = executor.id(), trigger = %trigger.id, source = key);
        let fetch = executor.fetch_source(subscription, trigger);
        match within(limit, fetch).instrument(span).await {
            Some(fetched) => fetched,
            None => Err(timed_out(limit)),
        }
    });
    let fetched = join_all(fetches).await;
    let mut assembled = AssembledSources {
        sources: Vec::with_capacity(fetched.len()),
        missing: Vec::new(),
    };
    for (subscription, fetched) in subscriptions.sources().zip(fetched) {
        assembled.add(subscription, fetched, executor.id())?;
    }
    assembled.limit_size(trigger, executor.profile().context_bytes)?;
    Ok(ExecutionContext::new(
        Arc::clone(trigger),
        alias(executor, trigger),
        assembled.sources,
        assembled.missing,
    ))
}

/// Returns the alias of a trigger in the run's context: the key of the trigger subscription that the breadcrumb matches. The
/// result is `None` if no subscription matches, or the matching one has no key.
fn alias<E: UniversalExecutor + ?Sized>(executor: &E, trigger: &Breadcrumb) -> Option<String> {
    let subscriptions = executor.subscriptions();
    let kind = if trigger.version > 1 {
        EventKind::Updated
    } else {
        EventKind::Created
    };
    match subscriptions.route_breadcrumb(kind, trigger) {
        Route::Trigger { subscription } => subscriptions.as_slice().get(subscription)?.key.clone(),
        Route::Unmatched | Route::Context | Route::NeedsContext => None,
    }
}

/// Fetched and missing sources of a run's context while the context is assembled.
struct AssembledSources {
    sources: Vec<Source>,
    missing: Vec<MissingSource>,
}

impl AssembledSources {
    fn add(
        &mut self,
        subscription: &Subscription,
        fetched: Result<Fetched, StoreError>,
        executor: &str,
    ) -> Result<(), ExecutorError> {
        let key = subscription.name().unwrap_or_default().to_owned();
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                tracing::warn!(
                    executor,
                    source = key,
                    code = error.code(),
                    error = %Chain(&error),
                    "fetch of a context source failed; the run continues without the source unless it is required"
                );
                let error = Arc::new(error);
                if subscription.required {
                    return Err(ExecutorError::RequiredSource { key, source: error });
                }
                self.missing.push(MissingSource {
                    key,
                    reason: MissingReason::Failed(error),
                });
                return Ok(());
            }
        };
        let is_one = subscription.fetch.is_one();
        if subscription.required && is_one && fetched.items.is_empty() {
            return Err(ExecutorError::RequiredNotFound { key });
        }
        if let Some(bound) = fetched.cut {
            self.missing.push(MissingSource {
                key: key.clone(),
                reason: MissingReason::Cut(bound),
            });
        }
        let (mut items, mut scores) = (fetched.items, fetched.scores);
        items.truncate(subscription.fetch.items());
        scores.truncate(items.len());
        self.sources.push(Source {
            key,
            items,
            scores,
            is_one,
            required: subscription.required,
            priority: subscription.priority,
        });
        Ok(())
    }

    /// Omits items of optional context sources until the context fits its maximum size. Items of the lowest priority are omitted first, and
    /// the oldest items first within a priority.
    fn limit_size(&mut self, trigger: &Breadcrumb, limit: usize) -> Result<(), ExecutorError> {
        let size = |source: &Source| {
            source
                .items
                .iter()
                .map(|item| item.context.size())
                .fold(0, usize::saturating_add)
        };
        let total = |required: bool| {
            let sizes = self
                .sources
                .iter()
                .filter(|source| source.required == required)
                .map(size);
            sizes.fold(0, usize::saturating_add)
        };
        let fixed = total(true).saturating_add(trigger.context.size());
        if fixed > limit {
            return Err(ExecutorError::ContextTooLarge { size: fixed, limit });
        }
        if fixed.saturating_add(total(false)) > limit {
            self.omit(limit - fixed);
        }
        Ok(())
    }

    /// Fills `free_bytes` bytes of a context with items of the optional sources, and omits the items that do not fit. Items of a higher
    /// priority come first, so a flood of one source cannot displace a source of a higher priority. Within a priority, newer items
    /// come first. An item that does not fit takes no space from the items after it.
    fn omit(&mut self, mut free_bytes: usize) {
        let optional = self.sources.iter().enumerate();
        let optional = optional.filter(|(_, source)| !source.required);
        let mut ranked: Vec<_> = optional
            .flat_map(|(at, source)| {
                let items = source.items.iter().enumerate();
                items.map(move |(index, item)| {
                    let rank = (source.priority, item.order_key());
                    (rank, at, index, item.context.size())
                })
            })
            .collect();
        ranked.sort_by_key(|(rank, ..)| *rank);
        let mut dropped: BTreeMap<usize, OmittedItems> = BTreeMap::new();
        for (_, at, index, size) in ranked.into_iter().rev() {
            match free_bytes.checked_sub(size) {
                Some(remaining) => free_bytes = remaining,
                None => dropped.entry(at).or_default().add(index, size),
            }
        }
        for (at, dropped) in dropped {
            if let Some(source) = self.sources.get_mut(at) {
                self.missing.push(dropped.remove_from(source));
            }
        }
    }
}

/// The items of one context source that are omitted because the context is too large.
#[derive(Default)]
struct OmittedItems {
    indexes: HashSet<usize>,
    bytes: usize,
}

impl OmittedItems {
    fn add(&mut self, index: usize, size: usize) {
        self.indexes.insert(index);
        self.bytes = self.bytes.saturating_add(size);
    }

    fn remove_from(&self, source: &mut Source) -> MissingSource {
        self.retain_others(&mut source.items);
        self.retain_others(&mut source.scores);
        MissingSource {
            key: source.key.clone(),
            reason: MissingReason::TooLarge {
                items: self.indexes.len(),
                bytes: self.bytes,
            },
        }
    }

    fn retain_others<T>(&self, items: &mut Vec<T>) {
        let mut indexes = 0..;
        items.retain(|_| {
            indexes
                .next()
                .is_none_or(|index| !self.indexes.contains(&index))
        });
    }
}

/// Fetches the breadcrumbs of one context subscription. Each of them matches the whole selector, even if the store returns others.
pub(super) async fn fetch<E: UniversalExecutor + ?Sized>(
    executor: &E,
    subscription: &Subscription,
    trigger: &Breadcrumb,
) -> Result<Fetched, StoreError> {
    let mut query = Query::new(subscription.selector.clone()).limit(subscription.fetch.items());
    // If a source selects the trigger itself, the source is the history of the trigger: only older breadcrumbs.
    if subscription.selector.matches(trigger) {
        query = query.before(trigger.order_key()).exclude(trigger.id);
    }
    for prefix in &subscription.scope {
        let shared = trigger
            .tags
            .iter()
            .filter(|tag| tag.starts_with(prefix.as_str()));
        let before = query.scope_tags.len();
        query.scope_tags.extend(shared.cloned());
        if query.scope_tags.len() == before {
            let cut = Some(Bound::NothingShared {
                prefix: prefix.clone(),
            });
            return Ok(Fetched {
                cut,
                ..Fetched::default()
            });
        }
    }
    match subscription.fetch.method {
        // Boxed, because vector fetches are rare and would enlarge the future of every fetch.
        Method::Vector => Box::pin(similar_to(executor, query, trigger, &subscription.fetch)).await,
        Method::EventData | Method::Latest | Method::Recent => {
            newest(executor.store(), query, subscription.fetch.order).await
        }
    }
}

/// Returns the breadcrumbs that are most similar to the search text that the executor derives from a trigger.
async fn similar_to<E: UniversalExecutor + ?Sized>(
    executor: &E,
    query: Query,
    trigger: &Breadcrumb,
    fetch: &Fetch,
) -> Result<Fetched, StoreError> {
    let Some(shown) = shown(executor.store(), trigger).await? else {
        let cut = Some(Bound::TriggerWithheld);
        return Ok(Fetched {
            cut,
            ..Fetched::default()
        });
    };
    let text = executor.search_query(&shown);
    vector_fetch(executor.store(), query, text, fetch).await
}

/// Returns the trigger with its context shaped by its hints (`llm_hints`), as a model may see it. Returns `None` if the hints
/// cannot be applied. An embedding model receives a query text from this context, so data that the hints exclude must not be in
/// the context.
async fn shown(
    store: &dyn BreadcrumbStore,
    trigger: &Breadcrumb,
) -> Result<Option<Breadcrumb>, StoreError> {
    let shown = schema_hints::visible_contexts(store, &[trigger]).await?;
    let shown = shown.into_iter().next().flatten();
    Ok(shown.map(|context| Breadcrumb {
        context,
        ..trigger.clone()
    }))
}

async fn vector_fetch(
    store: &dyn BreadcrumbStore,
    query: Query,
    text: String,
    fetch: &Fetch,
) -> Result<Fetched, StoreError> {
    let (limit, min_score) = (query.limit, fetch.min_score);
    let query = VectorQuery {
        min_score,
        ..VectorQuery::new(query, text)
    };
    let scored = store.vector_search(&query).await?;
    let near = |found: &Scored| {
        min_score.is_none_or(|least| found.score.is_none_or(|score| score >= least))
    };
    let found = scored.len();
    let mut selected: Vec<Scored> = scored
        .into_iter()
        .filter(|found| query.query.selects(&found.breadcrumb) && near(found))
        .collect();
    let dropped = found - selected.len();
    let short = dropped > 0 && selected.len() < limit;
    selected.truncate(limit);
    if fetch.order == Order::OldestFirst {
        selected.reverse();
    }
    let selected = selected.into_iter();
    let (items, scores) = selected
        .map(|found| (found.breadcrumb, found.score))
        .unzip();
    Ok(Fetched {
        items,
        scores,
        // The dropped items took the places of others that would have matched, so the result is incomplete.
        cut: short.then_some(Bound::Unselected { dropped }),
    })
}

/// Returns the newest breadcrumbs that match the query of a context subscription. If the store also returns others, reads at most
/// `PAGES` pages.
async fn newest(
    store: &dyn BreadcrumbStore,
    mut query: Query,
    order: Order,
) -> Result<Fetched, StoreError> {
    const PAGES: usize = 8;
    let limit = query.limit;
    let mut items: Vec<Arc<Breadcrumb>> = Vec::new();
    let mut cut = Some(Bound::Pages { pages: PAGES });
    for _ in 0..PAGES {
        let page = store.search(&query).await?;
        let (found, last) = (page.len(), page.last().map(|item| item.order_key()));
        let all = items.is_empty() && page.iter().all(|item| query.selects(item));
        if all {
            items = page;
        } else {
            items.extend(page.into_iter().filter(|item| query.selects(item)));
        }
        let Some(last) = last.filter(|_| found >= limit && items.len() < limit) else {
            cut = None;
            break;
        };
        query.before = Some(last);
    }
    items.truncate(limit);
    if order == Order::OldestFirst {
        items.reverse();
    }
    Ok(Fetched {
        items,
        scores: Vec::new(),
        cut,
    })
}

/// Returns the text in a breadcrumb's context: the field `message`, else the field `content`, else the JSON of the whole context.
pub(super) fn message_text(breadcrumb: &Breadcrumb) -> String {
    let text = ["message", "content"]
        .into_iter()
        .find_map(|field| breadcrumb.context.get(field)?.as_str());
    text.map_or_else(|| breadcrumb.context.to_string(), str::to_owned)
}
