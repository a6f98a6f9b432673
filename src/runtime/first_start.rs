//! Start position of executors without a saved position: the oldest breadcrumb that can trigger them.

use super::RuntimeError;
use super::checkpoint::earlier;
use super::position::Position;
use super::settings::FirstStart;
use super::shared::Shared;
use super::store_context::StoreContext;
use super::timeouts::{RETRY_PAUSE, with_search_timeout, with_timeout};
use crate::model::{Breadcrumb, BreadcrumbId, Event, EventKind, Role, Subscription, Timestamp};
use crate::source::{SourceError, StartAt};
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

impl FirstStart {
    /// Returns the exclusive lower bound of the commit times of a new executor's triggers. Returns `None` if all triggers from before the
    /// executor's start are ignored.
    pub(super) fn after(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::LastHour => Some(earlier(now, HOUR)),
            Self::Oldest => Some(Timestamp::UNIX_EPOCH),
            Self::Now => None,
            Self::Since(time) => Some(time.just_before()),
        }
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Maximum number of triggers too old for [`FirstStart::LastHour`] that are counted for one new executor.
const MAX_COUNT: usize = 10_000;

/// Returns the position in the event source at which a runtime's first subscription starts: the oldest position of its executors.
/// If no first start is set, or the event source does not report every loss of events, returns the start position in the
/// settings. A sweep of the store reads the triggers whose events the source no longer has.
///
/// # Errors
/// [`SourceError::Unavailable`] if the positions cannot be read.
pub(super) async fn subscription_start(shared: &Shared) -> Result<StartAt, SourceError> {
    if shared.settings.first_start.is_none() || !shared.source_is_complete {
        return Ok(shared.settings.start_at);
    }
    let mut oldest: Option<Timestamp> = None;
    for store_context in shared.registry.store_contexts() {
        let executors = shared.registry.of_store(&store_context);
        let first = store_context.checkpoint.first_start();
        let saved = with_timeout(store_context.ledger().positions(&executors)).await;
        let saved = saved.map_err(|error| SourceError::Unavailable {
            retry_after: RETRY_PAUSE,
            source: error.into(),
        })?;
        for saved in saved {
            let position = saved.as_deref().and_then(Position::from_bytes);
            let start = position.map(|position| position.unread_after()).or(first);
            oldest = match (oldest, start) {
                (Some(oldest), Some(start)) => Some(oldest.min(start)),
                (oldest, start) => oldest.or(start),
            };
        }
    }
    Ok(oldest.map_or(StartAt::Now, StartAt::Since))
}

/// Name of the operation that reads the start positions of executors, for the error message if the store fails.
const START_OPERATION: &str = "read the start positions of the executors";

/// Sets the start position of executors without a saved position. With [`FirstStart::LastHour`] and a durable ledger, fails if the store
/// has older triggers of such an executor.
///
/// # Errors
/// [`RuntimeError::OlderTriggers`], and [`RuntimeError::Store`] if a store cannot be read.
pub(super) async fn set_start_positions(shared: &Shared) -> Result<(), RuntimeError> {
    let Some(first) = shared.settings.first_start else {
        return Ok(());
    };
    for store_context in shared.registry.store_contexts() {
        let now = match first {
            FirstStart::LastHour => now(shared, &store_context).await,
            FirstStart::Oldest | FirstStart::Now | FirstStart::Since(_) => Ok(shared.now()),
        };
        let now = now.map_err(RuntimeError::of_store(START_OPERATION))?;
        let Some(after) = first.after(now) else {
            continue;
        };
        store_context.checkpoint.note_first_start(after);
        if first == FirstStart::LastHour && store_context.runs().is_durable() {
            check_store(shared, &store_context, after).await?;
        }
    }
    Ok(())
}

/// Returns the current time by the store's clock: the newest time in the worker records. This worker must have just stored its record.
async fn now(shared: &Shared, store_context: &StoreContext) -> Result<Timestamp, StoreError> {
    let workers = with_timeout(store_context.ledger().workers()).await?;
    let newest = workers.iter().map(|worker| worker.seen_at).max();
    Ok(newest.unwrap_or_else(|| shared.now()))
}

async fn check_store(
    shared: &Shared,
    store_context: &StoreContext,
    until: Timestamp,
) -> Result<(), RuntimeError> {
    let executors = shared.registry.of_store(store_context);
    let failed = RuntimeError::of_store(START_OPERATION);
    let saved = with_timeout(store_context.ledger().positions(&executors));
    let saved = saved.await.map_err(failed)?;
    for (executor, saved) in executors.into_iter().zip(saved) {
        let Some(member) = shared.registry.get(&executor).filter(|_| saved.is_none()) else {
            continue;
        };
        let subscriptions = member.executor.subscriptions().as_slice();
        let count = count_older(store_context.store(), subscriptions, until);
        let count = count.await.map_err(failed)?;
        if count > 0 {
            return Err(RuntimeError::OlderTriggers {
                executor: executor.to_string(),
                count,
                is_exact: count < MAX_COUNT,
            });
        }
    }
    Ok(())
}

/// Counts the breadcrumbs up to a time that match a trigger of an executor, at most [`MAX_COUNT`].
async fn count_older(
    store: &dyn BreadcrumbStore,
    subscriptions: &[Subscription],
    until: Timestamp,
) -> Result<usize, StoreError> {
    const PAGE: usize = 500;
    /// Maximum number of pages of breadcrumbs that are read to count the old matches of one trigger subscription. A page can contain
    /// breadcrumbs that are not counted, because the subscription does not select their event kind.
    const PAGES: usize = 200;
    let is_trigger = |one: &&Subscription| {
        one.role == Role::Trigger && one.on.iter().any(|kind| *kind != EventKind::Deleted)
    };
    let mut found: HashSet<BreadcrumbId> = HashSet::new();
    for trigger in subscriptions.iter().filter(is_trigger) {
        let mut query = Query::new(trigger.selector.clone()).limit(PAGE);
        query.before = Some((until.just_after(), 0, BreadcrumbId::NIL));
        for _ in 0..PAGES {
            let page = with_search_timeout(store.search(&query)).await?;
            let counts = |one: &&Arc<Breadcrumb>| {
                let kind = Event::updated(one).effective_kind();
                trigger.on.contains(&kind)
            };
            found.extend(page.iter().filter(counts).map(|one| one.id));
            if page.len() < PAGE || found.len() >= MAX_COUNT {
                break;
            }
            query.before = page.last().map(|last| last.order_key());
        }
    }
    Ok(found.len().min(MAX_COUNT))
}
