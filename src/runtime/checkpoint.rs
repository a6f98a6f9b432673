//! Position of the executors of one store: loaded from its ledger at the start, and saved as the runtime reads.

use super::builder::Settings;
use super::position::{Position, Range};
use super::shared::{Shared, in_time};
use super::store_context::StoreContext;
use super::sweep;
use crate::model::Timestamp;
use crate::source::StartAt;
use crate::store::StoreError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Part of the store that each sweep reads again: a commit can become visible later than newer ones.
pub(super) const OVERLAP: Duration = Duration::from_secs(60);

/// The position of the executors of one store handle.
#[derive(Debug, Default)]
pub(super) struct Checkpoint(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// `None` until the ledger answers.
    position: Option<Position>,
    /// The position of each executor when it was loaded.
    starts: HashMap<Arc<str>, Position>,
    /// Time of the newest breadcrumb before the first subscription.
    newest: Option<Timestamp>,
    /// Triggers up to this time do not count for an executor without a saved position.
    first_start: Option<Timestamp>,
    /// The source delivers every event committed after this time.
    delivered_after: Option<Timestamp>,
    /// End of the next sweep, because a complete source delivers every later event.
    sweep_to: Option<Timestamp>,
    /// Events were missed before the position was loaded.
    is_reopened: bool,
    /// Events committed after this time were missed, and are not read yet.
    missed_after: Option<Timestamp>,
    /// Changes when earlier reads no longer count: for another set of executors, and for events that were missed.
    generation: u64,
    /// The executors and the position of the last save.
    saved: Option<(Vec<Arc<str>>, Vec<u8>)>,
    /// A sweep has been requested.
    is_wanted: bool,
    /// A sweep is running.
    is_sweeping: bool,
}

impl Checkpoint {
    /// Notes the time of the newest breadcrumb before the first subscription.
    pub(super) fn note_newest(&self, newest: Timestamp) {
        self.state().newest.get_or_insert(newest);
    }

    /// The time of the newest breadcrumb before the first subscription. `None` if the store was not read.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.state().newest
    }

    /// Notes the time after which triggers count for an executor without a saved position.
    pub(super) fn note_first_start(&self, after: Timestamp) {
        self.state().first_start.get_or_insert(after);
    }

    /// The time after which triggers count for an executor without a saved position. `None` if only those after the start count.
    pub(super) fn first_start(&self) -> Option<Timestamp> {
        self.state().first_start
    }

    /// Notes the time after which the source delivers every event.
    pub(super) fn note_delivered_after(&self, time: Option<Timestamp>) {
        let mut state = self.state();
        state.delivered_after = state.delivered_after.or(time);
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.state().position.is_some()
    }

    /// Returns `true` if a breadcrumb of this time was committed before an executor starts. `None` for an executor whose start is
    /// not known yet.
    pub(super) fn is_before(&self, executor: &str, time: Timestamp) -> Option<bool> {
        let state = self.state();
        let start = state.starts.get(executor);
        start.map(|start| time <= start.since())
    }

    /// Returns `true` if an executor had read the triggers of this time when its position was loaded, or starts after them. `None`
    /// for an executor whose position is not loaded yet.
    pub(super) fn had_read(&self, executor: &str, time: Timestamp) -> Option<bool> {
        let state = self.state();
        let start = state.starts.get(executor);
        start.map(|start| start.has_read(time))
    }

    /// Forgets the start of an executor that left. If it returns, it continues at its saved position.
    pub(super) fn forget(&self, executor: &str) {
        self.state().starts.remove(executor);
    }

    /// Requests a sweep of everything that is unread.
    pub(super) fn want(&self) {
        self.state().is_wanted = true;
    }

    /// Starts a sweep if one has been requested and the position is known. Returns `true` if so.
    pub(super) fn begin_sweep(&self) -> bool {
        let mut state = self.state();
        let begins = state.position.is_some() && std::mem::take(&mut state.is_wanted);
        state.is_sweeping |= begins;
        begins
    }

    /// Notes the end of a sweep. Requests another one unless it has read everything.
    pub(super) fn end_sweep(&self, has_read_all: bool) {
        let mut state = self.state();
        if std::mem::take(&mut state.is_sweeping) {
            state.is_wanted |= !has_read_all;
        }
    }

    /// Notes that events were missed, and requests a sweep. Counts everything committed after a time as unread; without a time,
    /// everything after the position.
    pub(super) fn reopen_after(&self, after: Option<Timestamp>) {
        let mut state = self.state();
        state.is_wanted = true;
        state.sweep_to = None;
        state.generation += 1;
        state.is_reopened |= state.position.is_none();
        if let Some(after) = after {
            let missed_after = state.missed_after.map_or(after, |time| time.min(after));
            state.missed_after = Some(missed_after);
            if let Some(position) = &mut state.position {
                position.reopen_after(after);
            }
        }
    }

    /// Counts some intervals as unread, and requests a sweep.
    pub(super) fn reopen(&self, ranges: Vec<Range>) {
        let mut state = self.state();
        if let Some(position) = state.position.as_mut().filter(|_| !ranges.is_empty()) {
            position.reopen(ranges);
            state.is_wanted = true;
            state.sweep_to = None;
            state.generation += 1;
        }
    }

    /// The intervals to read when the newest breadcrumb has this time, oldest first.
    pub(super) fn to_read(&self, newest: Timestamp, overlap: Duration) -> Vec<Range> {
        let state = self.state();
        let to = state.sweep_to.map_or(newest, |to| to.min(newest));
        let position = state.position.as_ref();
        position.map_or_else(Vec::new, |position| position.to_read(to, overlap))
    }

    /// The generation of a sweep that starts now.
    pub(super) fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Notes that the triggers of an interval were taken in. Returns `false` if that does not count, because an executor was added or
    /// events were missed since the sweep started.
    pub(super) fn read(&self, range: Range, generation: u64) -> bool {
        let mut state = self.state();
        let counts = state.generation == generation;
        if let Some(position) = state.position.as_mut().filter(|_| counts) {
            position.read(range);
        }
        counts
    }

    /// Notes that a sweep has read everything up to its end.
    pub(super) fn swept(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation {
            state.sweep_to = None;
            state.missed_after = None;
        }
    }

    /// Notes that a complete source has delivered everything before a time, unless something is still unread before that.
    pub(super) fn delivered_before(&self, time: Timestamp) {
        let mut state = self.state();
        if state.is_wanted || state.is_sweeping || state.sweep_to.is_some() {
            return;
        }
        if let Some(position) = state.position.as_mut().filter(|one| one.is_contiguous()) {
            let range = (position.up_to(), time.just_before());
            position.read(range);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Loads the positions of the executors of a store, and requests a sweep of everything that is unread. Breadcrumbs that
/// were committed after `since` count.
///
/// # Errors
/// The ledger's errors, and the store's if an executor has no position.
pub(super) async fn load(
    shared: &Shared,
    store_context: &StoreContext,
    since: Instant,
) -> Result<(), StoreError> {
    let executors = shared.registry.of_store(store_context);
    let saved = in_time(store_context.ledger().positions(&executors)).await?;
    let (newest, delivered_after, first_start) = {
        let state = store_context.checkpoint.state();
        (state.newest, state.delivered_after, state.first_start)
    };
    let newest = match newest {
        Some(newest) => newest,
        None if !sweep::needs_newest(shared, &saved) => earlier(shared.now(), since.elapsed()),
        // Breadcrumbs that were committed after the start count.
        None => earlier(sweep::newest(store_context.store()).await?, since.elapsed()),
    };
    let is_complete = shared.source_is_complete;
    let is_on_store = shared.settings.first_start.is_some();
    let first = First {
        settings: &shared.settings,
        is_complete,
        newest,
        delivered_after,
        start: is_on_store.then(|| first_start.unwrap_or(newest)),
    };
    let mut positions = Vec::with_capacity(executors.len());
    for (executor, saved) in executors.into_iter().zip(saved) {
        let position = first.position(&executor, saved.as_deref());
        positions.push((executor, position));
    }
    let mut state = store_context.checkpoint.state();
    let all = positions.iter().map(|(_, position)| position.clone());
    let mut position = all
        .reduce(|one, other| one.of_all(&other))
        .unwrap_or_else(|| Position::starting(newest, newest));
    state.starts = positions.into_iter().collect();
    let delivered_after = delivered_after.unwrap_or(newest);
    let unread = position.unread_to(delivered_after);
    if is_complete && !unread.is_empty() {
        state.sweep_to = Some(delivered_after);
        state.is_wanted = true;
    }
    if let Some(&(after, _)) = unread.first() {
        announced_anew(shared);
        tracing::info!(
            store = store_context.number,
            since_ms = after.as_micros() / 1_000,
            until_ms = newest.as_micros() / 1_000,
            "catching up with the breadcrumbs committed since the saved position"
        );
    }
    if std::mem::take(&mut state.is_reopened) {
        if let Some(after) = state.missed_after {
            position.reopen_after(after);
        }
        state.sweep_to = None;
        state.is_wanted = true;
    }
    state.newest = Some(newest);
    state.position = Some(position);
    Ok(())
}

/// Loads the positions of executors that were added since the last sweep. Everything that they have not read counts as unread, also
/// if the other executors have read it.
///
/// # Errors
/// The ledger's errors.
pub(super) async fn adopt(shared: &Shared, store_context: &StoreContext) -> Result<(), StoreError> {
    let executors = shared.registry.of_store(store_context);
    let (added, newest) = {
        let state = store_context.checkpoint.state();
        let Some(position) = &state.position else {
            return Ok(());
        };
        let is_added = |executor: &Arc<str>| !state.starts.contains_key(executor);
        let added: Vec<Arc<str>> = executors.into_iter().filter(is_added).collect();
        let newest =
            earlier(position.up_to(), OVERLAP).max(state.newest.unwrap_or(Timestamp::UNIX_EPOCH));
        (added, newest)
    };
    if added.is_empty() {
        return Ok(());
    }
    let saved = in_time(store_context.ledger().positions(&added)).await?;
    let first = First {
        settings: &shared.settings,
        is_complete: shared.source_is_complete,
        newest,
        delivered_after: None,
        start: shared.settings.first_start.map(|_| newest),
    };
    {
        let mut state = store_context.checkpoint.state();
        for (executor, saved) in added.into_iter().zip(saved) {
            let own = first.position(&executor, saved.as_deref());
            state.position = state.position.as_ref().map(|all| all.of_all(&own));
            state.starts.insert(executor, own);
        }
        state.sweep_to = None;
        state.generation += 1;
    }
    announced_anew(shared);
    Ok(())
}

/// Lets a sweep find breadcrumbs again that were announced before executors were added. The ledger knows the runs of the others.
fn announced_anew(shared: &Shared) {
    shared.progress.dedup().clear();
}

/// The position of an executor when the runtime starts.
struct First<'s> {
    settings: &'s Settings,
    is_complete: bool,
    /// Time of the newest breadcrumb when the runtime started.
    newest: Timestamp,
    /// The source delivers every event committed after this time.
    delivered_after: Option<Timestamp>,
    /// The time after which triggers count for an executor without a saved position. `None` lets the settings of the runtime decide.
    start: Option<Timestamp>,
}

impl First<'_> {
    fn position(&self, executor: &str, saved: Option<&[u8]>) -> Position {
        let Some(saved) = saved else {
            return self.without_saved(executor);
        };
        Position::from_bytes(saved).unwrap_or_else(|| {
            tracing::warn!(
                executor,
                look_back_ms = millis(self.look_back()),
                "cannot read the saved position of an executor, which a newer version of this crate may have saved; the last part of the store is checked instead"
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
                    skipped_until_ms = after.as_micros() / 1_000,
                    "the executor has no saved position: breadcrumbs committed before its look-back are skipped"
                );
                Position::starting(after, after)
            }
        }
    }
}

/// Saves the position, without triggers whose runs are not in the ledger yet. Without a change since the last save, it sends no
/// statement. Saves nothing for executors that were not adopted yet, and requests a sweep for them.
///
/// # Errors
/// The ledger's errors.
pub(super) async fn save(shared: &Shared, store_context: &StoreContext) -> Result<(), StoreError> {
    let ledger = store_context.ledger();
    let executors = shared.registry.of_store(store_context);
    let open = shared.progress.open();
    let (executors, own, missed_after) = {
        let mut state = store_context.checkpoint.state();
        let Some(own) = state.position.clone() else {
            return Ok(());
        };
        let all = executors.len();
        let is_adopted = |executor: &Arc<str>| state.starts.contains_key(executor);
        let executors: Vec<Arc<str>> = executors.into_iter().filter(is_adopted).collect();
        state.is_wanted |= executors.len() < all;
        (executors, own, state.missed_after)
    };
    let now = {
        let mut now = own.clone();
        now.reopen(open.iter().copied());
        (executors, now.to_bytes())
    };
    if store_context.checkpoint.state().saved.as_ref() == Some(&now) {
        return Ok(());
    }
    let (executors, _) = &now;
    let saved = in_time(ledger.positions(executors)).await?;
    let mut changed = Vec::new();
    for (executor, saved) in executors.iter().zip(saved) {
        let since = store_context
            .checkpoint
            .state()
            .starts
            .get(executor)
            .map(Position::since);
        let own = own.with_since(since.unwrap_or_else(|| own.since()));
        let merged = match saved.as_deref().map(Position::from_bytes) {
            None => own,
            Some(Some(saved)) => own.merge(&saved, missed_after),
            // A newer version of this crate saved it.
            Some(None) => continue,
        };
        let bytes = merged.also_unread(open.iter().copied()).to_bytes();
        if saved.as_deref() != Some(&*bytes) {
            changed.push((Arc::clone(executor), bytes));
        }
    }
    if !changed.is_empty() {
        in_time(ledger.save_positions(&changed)).await?;
    }
    store_context.checkpoint.state().saved = Some(now);
    Ok(())
}

pub(super) fn earlier(moment: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(moment.as_micros().saturating_sub(by))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
