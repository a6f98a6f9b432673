//! Loading and saving of the executors' read positions in the ledger of a store. A position records which triggers already have
//! runs in the ledger.

use super::checkpoint::{LoadedPositions, OVERLAP, earlier};
use super::position::{Position, Range};
use super::settings::Settings;
use super::shared::Shared;
use super::store_context::StoreContext;
use super::timeouts::{with_newest_timeout, with_timeout};
use crate::model::{Selector, Timestamp};
use crate::source::StartAt;
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Loads the read positions of the executors of a store, and requests a sweep of all intervals with unread triggers. Breadcrumbs
/// that were committed after `since` count.
///
/// # Errors
/// The ledger's errors, and the store's if an executor has no position.
pub(super) async fn load(
    shared: &Shared,
    store_context: &StoreContext,
    since: Instant,
) -> Result<(), StoreError> {
    let executors = shared.registry.of_store(store_context);
    let saved = with_timeout(store_context.ledger().positions(&executors)).await?;
    let checkpoint = &store_context.checkpoint;
    let delivered_after = checkpoint.delivered_after();
    let newest = match checkpoint.newest() {
        Some(newest) => newest,
        None if !needs_newest(shared, &saved) => earlier(shared.now(), since.elapsed()),
        // Breadcrumbs that were committed after the start count.
        None => earlier(newest(store_context.store()).await?, since.elapsed()),
    };
    let is_complete = shared.source_is_complete;
    let is_on_store = shared.settings.first_start.is_some();
    let first = StartInputs {
        settings: &shared.settings,
        is_complete,
        newest,
        delivered_after,
        start: is_on_store.then(|| checkpoint.first_start().unwrap_or(newest)),
    };
    let has_saved = saved.iter().any(Option::is_some);
    let mut positions = Vec::with_capacity(executors.len());
    for (executor, saved) in executors.into_iter().zip(saved) {
        let position = first.position(&executor, saved.as_deref());
        positions.push((executor, position));
    }
    let all = positions.iter().map(|(_, position)| position.clone());
    let position = all
        .reduce(|one, other| one.combine(&other))
        .unwrap_or_else(|| Position::starting(newest, newest));
    let delivered_after = delivered_after.unwrap_or(newest);
    let unread = position.unread_to(delivered_after);
    if let Some(&(after, _)) = unread.first() {
        clear_announced(shared);
        log_catch_up(shared, store_context, has_saved, (after, newest));
    }
    let needs_sweep = is_complete && !unread.is_empty();
    checkpoint.note_loaded(LoadedPositions {
        starts: positions,
        position,
        newest,
        sweep_to: needs_sweep.then_some(delivered_after),
    });
    Ok(())
}

/// Logs the interval of time whose triggers the executors of a store have not read.
fn log_catch_up(
    shared: &Shared,
    store_context: &StoreContext,
    has_saved: bool,
    (after, newest): Range,
) {
    let store = store_context.number;
    if has_saved {
        tracing::info!(
            store,
            since = %after,
            until = %newest,
            "catching up with the breadcrumbs committed since the saved position"
        );
    } else {
        // Without a limit, the first start reads from the beginning.
        let is_limited = after > Timestamp::UNIX_EPOCH;
        tracing::info!(
            store,
            since = %after,
            until = %newest,
            look_back_ms = is_limited.then(|| millis(shared.now().since(after))),
            "first start without a saved position: catching up with the breadcrumbs committed before the start"
        );
    }
}

/// Loads the read positions of executors that were added since the last sweep of the store. Their unread intervals count as
/// unread, even if the other executors have read them.
///
/// # Errors
/// The ledger's errors.
pub(super) async fn load_added(
    shared: &Shared,
    store_context: &StoreContext,
) -> Result<(), StoreError> {
    let executors = shared.registry.of_store(store_context);
    let Some((added, newest)) = store_context.checkpoint.added_executors(executors) else {
        return Ok(());
    };
    if added.is_empty() {
        return Ok(());
    }
    let saved = with_timeout(store_context.ledger().positions(&added)).await?;
    let first = StartInputs {
        settings: &shared.settings,
        is_complete: shared.source_is_complete,
        newest,
        delivered_after: None,
        start: shared.settings.first_start.map(|_| newest),
    };
    let mut positions = Vec::with_capacity(added.len());
    for (executor, saved) in added.into_iter().zip(saved) {
        let position = first.position(&executor, saved.as_deref());
        positions.push((executor, position));
    }
    store_context.checkpoint.add_positions(positions);
    clear_announced(shared);
    Ok(())
}

/// Removes all breadcrumb versions from the duplicate detection after executors were added, so that the next sweep finds the
/// breadcrumbs again. The ledger deduplicates the runs of the other executors.
fn clear_announced(shared: &Shared) {
    shared.progress.dedup().clear();
}

/// Values from which the read position of a starting executor is computed, with or without a saved position.
struct StartInputs<'s> {
    settings: &'s Settings,
    is_complete: bool,
    /// Time of the newest breadcrumb in the store when the runtime started.
    newest: Timestamp,
    /// The event source delivers every event committed after this time.
    delivered_after: Option<Timestamp>,
    /// Exclusive lower bound of the commit times of the triggers of an executor without a saved position. `None` if the runtime's settings
    /// decide.
    start: Option<Timestamp>,
}

impl StartInputs<'_> {
    fn position(&self, executor: &str, saved: Option<&[u8]>) -> Position {
        let Some(saved) = saved else {
            return self.without_saved(executor);
        };
        Position::from_bytes(saved).unwrap_or_else(|| {
            tracing::warn!(
                executor,
                look_back_ms = millis(self.look_back()),
                "cannot read the saved position of an executor (a newer version of this crate may have saved it); only the look-back \
                 period is checked, and older triggers may be missed"
            );
            let after = earlier(self.newest, self.look_back());
            Position::starting(after, after)
        })
    }

    fn look_back(&self) -> Duration {
        self.settings.look_back.max(OVERLAP)
    }

    fn without_saved(&self, executor: &str) -> Position {
        if let Some(after) = self.start {
            return Position::starting(after, after);
        }
        let delivered_after = self.delivered_after.unwrap_or(self.newest);
        match (self.settings.start_at, self.is_complete) {
            (StartAt::Now, false) => Position::starting(self.newest, self.newest),
            (StartAt::Now, true) => Position::starting(delivered_after, delivered_after),
            // The source delivers everything that it has.
            (StartAt::Beginning | StartAt::After(_) | StartAt::Since(_), true) => {
                Position::starting(Timestamp::UNIX_EPOCH, delivered_after)
            }
            (StartAt::Beginning | StartAt::After(_) | StartAt::Since(_), false) => {
                let after = earlier(self.newest, self.look_back());
                tracing::info!(
                    executor,
                    look_back_ms = millis(self.look_back()),
                    skipped_until = %after,
                    "the executor has no saved position: breadcrumbs committed before the look-back period are skipped"
                );
                Position::starting(after, after)
            }
        }
    }
}

/// Saves the executors' read position in the ledger. In the saved position, a trigger counts as unread if its run is not in the
/// ledger yet. Does nothing if the position has not changed since the last save. Saves nothing for executors whose position is
/// not loaded, and requests a sweep for them.
///
/// # Errors
/// The ledger's errors.
pub(super) async fn save(shared: &Shared, store_context: &StoreContext) -> Result<(), StoreError> {
    let (ledger, checkpoint) = (store_context.ledger(), &store_context.checkpoint);
    let executors = shared.registry.of_store(store_context);
    let Some(to_save) = checkpoint.to_save(executors) else {
        return Ok(());
    };
    // After the position: an event that arrives in between is open, or not in the position.
    let open = shared.progress.open_ranges();
    let own = to_save.position;
    let save = {
        let mut save = own.clone();
        save.mark_unread(open.iter().copied());
        (to_save.executors, save.to_bytes())
    };
    if checkpoint.is_saved(&save) {
        return Ok(());
    }
    let (executors, _) = &save;
    let saved = with_timeout(ledger.positions(executors)).await?;
    let mut changed = Vec::new();
    for (executor, saved) in executors.iter().zip(saved) {
        let since = checkpoint.since(executor);
        let own = own.with_since(since.unwrap_or_else(|| own.since()));
        let merged = match saved.as_deref().map(Position::from_bytes) {
            None => own,
            Some(Some(saved)) => own.merge(&saved, to_save.missed_after),
            // A newer version of this crate may have saved this position, so it is not overwritten.
            Some(None) => continue,
        };
        let bytes = merged.with_unread(open.iter().copied()).to_bytes();
        if saved.as_deref() != Some(&*bytes) {
            changed.push((Arc::clone(executor), bytes));
        }
    }
    if !changed.is_empty() {
        with_timeout(ledger.save_positions(&changed)).await?;
    }
    checkpoint.note_saved(save);
    Ok(())
}

/// Returns the time of the newest breadcrumb in a store, or the Unix epoch for an empty store.
///
/// # Errors
/// The store's errors.
pub(super) async fn newest(store: &dyn BreadcrumbStore) -> Result<Timestamp, StoreError> {
    let query = Query::new(Selector::any()).limit(1);
    let newest = with_newest_timeout(store.search(&query)).await?;
    Ok(newest
        .first()
        .map_or(Timestamp::UNIX_EPOCH, |newest| newest.updated_at))
}

/// Returns `true` if the start position of an executor depends on the time of the newest breadcrumb. A saved position does not depend on
/// that time, unless an event source that reports lost events delivers all later events. A definition can add an executor without a saved
/// position later.
fn needs_newest(shared: &Shared, saved: &[Option<Vec<u8>>]) -> bool {
    let is_saved = |one: &Option<Vec<u8>>| one.as_deref().is_some_and(is_readable);
    shared.source_is_complete
        || shared.definition_loader.is_some()
        || saved.is_empty()
        || !saved.iter().all(is_saved)
}

/// Returns `true` if an executor of a store starts without a saved position, or the ledger does not answer.
pub(super) async fn starts_at_newest(shared: &Shared, store_context: &StoreContext) -> bool {
    let executors = shared.registry.of_store(store_context);
    match with_timeout(store_context.ledger().positions(&executors)).await {
        Ok(saved) => needs_newest(shared, &saved),
        Err(_) => true,
    }
}

fn is_readable(saved: &[u8]) -> bool {
    Position::from_bytes(saved).is_some()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
