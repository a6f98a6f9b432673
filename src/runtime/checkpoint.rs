//! Read position of one store's executors: the triggers whose runs are already in the run ledger. Sweeps of the store find the
//! triggers without runs in the ledger.

use super::position::{Position, Range};
use crate::model::Timestamp;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Length of the interval before the saved position that a sweep of the store reads again, because a commit can become visible
/// after a newer commit.
pub(super) const OVERLAP: Duration = Duration::from_secs(60);

/// State of one store's executors: the triggers whose runs are already in the ledger, and the requested sweep of the store for
/// other triggers.
#[derive(Debug, Default)]
pub(super) struct Checkpoint(Mutex<CheckpointState>);

#[derive(Debug, Default)]
struct CheckpointState {
    /// The combined read position of all executors of the store: a trigger counts as read only if each executor has read it.
    /// `None` until the ledger answers.
    position: Option<Position>,
    /// The start position of each executor of the store, as loaded from the ledger.
    starts: HashMap<Arc<str>, Position>,
    /// Time of the newest breadcrumb in the store before the first subscription to the event source.
    newest: Option<Timestamp>,
    /// Triggers committed up to this time start no run of an executor without a saved position.
    first_start: Option<Timestamp>,
    /// The event source guarantees the delivery of every event committed after this time.
    delivered_after: Option<Timestamp>,
    /// The next sweep of the store reads only the triggers committed up to this time. The event source delivers all later events.
    /// `None` lets the sweep read up to the newest breadcrumb.
    sweep_to: Option<Timestamp>,
    /// If `true`, events were lost before the read position of the store's executors was loaded, so the loaded position must
    /// count their triggers as unread.
    has_missed_events: bool,
    /// Events committed after this time were missed, and no sweep has read their breadcrumbs yet.
    missed_after: Option<Timestamp>,
    /// Counter of the changes that invalidate the reads of a running sweep of the store: added executors and missed events.
    generation: u64,
    /// The executors and the read position that were last saved in the run ledger.
    last_save: Option<PositionSave>,
    sweeps: SweepState,
}

/// State of the sweeps of one store for triggers whose events did not arrive.
#[derive(Debug, Default)]
struct SweepState {
    /// If `true`, a sweep of the store for triggers has been requested.
    is_requested: bool,
    /// If `true`, a sweep of the store for triggers is running.
    is_running: bool,
    /// If `true`, the store could not read some breadcrumbs of the last complete sweep for triggers.
    has_unread: bool,
}

/// Outcome of a sweep of the store for triggers whose events did not arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SweepOutcome {
    /// The sweep has read all breadcrumbs of the store up to the newest one.
    All,
    /// The sweep has read the store, except for breadcrumbs that the store cannot read now. An immediate retry would fail.
    Unread,
    /// The sweep ended early between two pages of breadcrumbs, because its time limit was reached or the receiver of the pages
    /// stopped it. Unread intervals are left.
    Incomplete,
}

/// The IDs of executors, and the event position of these executors in the form that the ledger saves.
pub(super) type PositionSave = (Vec<Arc<str>>, Vec<u8>);

/// Read positions with which one store's executors start: the saved positions, or computed ones for executors without a saved
/// position.
pub(super) struct LoadedPositions {
    /// The read position of each executor of the store: the triggers for which the executor needs no further run.
    pub(super) starts: Vec<(Arc<str>, Position)>,
    /// The combined read position of all executors of the store: a trigger counts as read only if each executor has read it.
    pub(super) position: Position,
    /// Time of the newest breadcrumb in the store before the first subscription to the event source.
    pub(super) newest: Timestamp,
    /// Commit time up to which the requested sweep of the store reads triggers. The event source delivers all later events.
    /// `None` requests no sweep.
    pub(super) sweep_to: Option<Timestamp>,
}

/// A read position of one store's executors, to be saved in the ledger.
pub(super) struct PositionToSave {
    pub(super) executors: Vec<Arc<str>>,
    pub(super) position: Position,
    /// Events committed after this time were missed, and no sweep has read their breadcrumbs yet.
    pub(super) missed_after: Option<Timestamp>,
}

impl Checkpoint {
    /// Sets the update time of the newest breadcrumb that the store had before the runtime first subscribed to its event source.
    pub(super) fn note_newest(&self, newest: Timestamp) {
        self.state().newest.get_or_insert(newest);
    }

    /// Returns the update time of the newest breadcrumb that the store had before the runtime first subscribed to its event source, or
    /// `None` if the store was not read then.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.state().newest
    }

    /// Sets the commit time up to which triggers start no run of an executor without a saved position.
    pub(super) fn note_first_start(&self, after: Timestamp) {
        self.state().first_start.get_or_insert(after);
    }

    /// Returns the commit time up to which triggers start no run of an executor without a saved position. Returns `None` if all triggers
    /// from before the executor's start are ignored.
    pub(super) fn first_start(&self) -> Option<Timestamp> {
        self.state().first_start
    }

    /// Stores the commit time after which the event source guarantees the delivery of every event.
    pub(super) fn note_delivered_after(&self, time: Option<Timestamp>) {
        let mut state = self.state();
        state.delivered_after = state.delivered_after.or(time);
    }

    /// Returns the commit time after which the event source guarantees the delivery of every event. `None` if the source did not report it.
    pub(super) fn delivered_after(&self) -> Option<Timestamp> {
        self.state().delivered_after
    }

    /// Sets the read positions with which the store's executors start, after the ledger has returned the saved positions.
    /// Triggers whose events were missed in the meantime count as unread.
    pub(super) fn note_loaded(&self, loaded: LoadedPositions) {
        let mut position = loaded.position;
        let mut state = self.state();
        state.starts = loaded.starts.into_iter().collect();
        if loaded.sweep_to.is_some() {
            state.sweep_to = loaded.sweep_to;
            state.sweeps.is_requested = true;
        }
        if std::mem::take(&mut state.has_missed_events) {
            if let Some(after) = state.missed_after {
                position.mark_unread_after(after);
            }
            state.sweep_to = None;
            state.sweeps.is_requested = true;
        }
        state.newest = Some(loaded.newest);
        state.position = Some(position);
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.state().position.is_some()
    }

    /// Returns the executors whose read position was not loaded from the ledger yet, and the commit time after which they read
    /// triggers by default. `None` until the position of the store is loaded.
    pub(super) fn added_executors(
        &self,
        executors: Vec<Arc<str>>,
    ) -> Option<(Vec<Arc<str>>, Timestamp)> {
        let state = self.state();
        let position = state.position.as_ref()?;
        let is_added = |executor: &Arc<str>| !state.starts.contains_key(executor);
        let added = executors.into_iter().filter(is_added).collect();
        let newest =
            earlier(position.up_to(), OVERLAP).max(state.newest.unwrap_or(Timestamp::UNIX_EPOCH));
        Some((added, newest))
    }

    /// Merges the read positions of executors that were added after the start of the runtime into the store's combined read
    /// position. All triggers that they have not read count as unread.
    pub(super) fn add_positions(&self, added: Vec<(Arc<str>, Position)>) {
        let mut state = self.state();
        for (executor, own) in added {
            state.position = state.position.as_ref().map(|all| all.combine(&own));
            state.starts.insert(executor, own);
        }
        state.sweep_to = None;
        state.generation += 1;
    }

    /// Returns the combined read position to save in the run ledger, and the given executors for which it is saved. Omits
    /// executors whose own position was not loaded from the ledger yet, and requests a sweep for them. Returns `None` until the
    /// position of the store is loaded.
    pub(super) fn to_save(&self, executors: Vec<Arc<str>>) -> Option<PositionToSave> {
        let mut state = self.state();
        let position = state.position.clone()?;
        let all = executors.len();
        let is_known = |executor: &Arc<str>| state.starts.contains_key(executor);
        let executors: Vec<Arc<str>> = executors.into_iter().filter(is_known).collect();
        state.sweeps.is_requested |= executors.len() < all;
        Some(PositionToSave {
            executors,
            position,
            missed_after: state.missed_after,
        })
    }

    /// Returns `true` if these executors and this read position are the ones that were last saved in the run ledger.
    pub(super) fn is_saved(&self, save: &PositionSave) -> bool {
        self.state().last_save.as_ref() == Some(save)
    }

    /// Stores in memory the executors and the read position that were just saved in the run ledger, so that an equal save is
    /// skipped.
    pub(super) fn note_saved(&self, save: PositionSave) {
        self.state().last_save = Some(save);
    }

    /// Returns the commit time up to which an executor ignores triggers. `None` if its position is not loaded.
    pub(super) fn since(&self, executor: &str) -> Option<Timestamp> {
        self.state().starts.get(executor).map(Position::since)
    }

    /// Returns `true` if the commit time of a breadcrumb is before the first trigger that an executor reads. Returns `None` if the
    /// executor's start position is not loaded yet.
    pub(super) fn is_before(&self, executor: &str, time: Timestamp) -> Option<bool> {
        let state = self.state();
        let start = state.starts.get(executor);
        start.map(|start| time <= start.since())
    }

    /// Returns `true` if an executor needed no run for triggers with this commit time when its read position was loaded from the
    /// ledger. Such triggers have runs in the ledger, or were committed before the executor's start. Returns `None` if the
    /// position is not loaded yet.
    pub(super) fn was_read_at_load(&self, executor: &str, time: Timestamp) -> Option<bool> {
        let state = self.state();
        let start = state.starts.get(executor);
        start.map(|start| start.has_read(time))
    }

    /// Removes the start position of an executor that was removed. If the executor is added again, it continues at its saved position.
    #[cfg(feature = "agents")]
    pub(super) fn remove_executor(&self, executor: &str) {
        self.state().starts.remove(executor);
    }

    /// Requests a sweep of the store for all triggers that are unread.
    pub(super) fn request_sweep(&self) {
        self.state().sweeps.is_requested = true;
    }

    /// Starts the requested sweep of the store for triggers and returns `true`, or returns `false` if no sweep is requested. Also returns
    /// `false` if the position of the store's executors is not loaded.
    pub(super) fn begin_sweep(&self) -> bool {
        let mut state = self.state();
        let begins = state.position.is_some() && std::mem::take(&mut state.sweeps.is_requested);
        state.sweeps.is_running |= begins;
        begins
    }

    /// Updates the sweep state after a sweep for triggers, and requests another sweep if an immediate retry can read more.
    /// `swept` is `None` for a failed sweep.
    pub(super) fn end_sweep(&self, swept: Option<SweepOutcome>) {
        let mut state = self.state();
        if std::mem::take(&mut state.sweeps.is_running) {
            match swept {
                Some(SweepOutcome::All) => state.sweeps.has_unread = false,
                Some(SweepOutcome::Unread) => state.sweeps.has_unread = true,
                Some(SweepOutcome::Incomplete) | None => state.sweeps.is_requested = true,
            }
        }
    }

    /// Returns `true` if the store could not read some breadcrumbs of the last sweep for triggers.
    pub(super) fn has_unread(&self) -> bool {
        self.state().sweeps.has_unread
    }

    /// Requests a sweep of the store for the triggers whose events were missed. Counts all triggers committed after a time as
    /// unread; without a time, all triggers after the position.
    pub(super) fn note_missed_events(&self, after: Option<Timestamp>) {
        let mut state = self.state();
        state.sweeps.is_requested = true;
        state.sweep_to = None;
        state.generation += 1;
        state.has_missed_events |= state.position.is_none();
        if let Some(after) = after {
            let missed_after = state.missed_after.map_or(after, |time| time.min(after));
            state.missed_after = Some(missed_after);
            if let Some(position) = &mut state.position {
                position.mark_unread_after(after);
            }
        }
    }

    /// Marks the triggers committed in some time intervals as unread, and requests a sweep of the store for these triggers. Does
    /// nothing if there are no intervals, or if the position is not loaded.
    pub(super) fn mark_unread(&self, ranges: Vec<Range>) {
        let mut state = self.state();
        if let Some(position) = state.position.as_mut().filter(|_| !ranges.is_empty()) {
            position.mark_unread(ranges);
            state.sweeps.is_requested = true;
            state.sweep_to = None;
            state.generation += 1;
        }
    }

    /// Returns the intervals of commit time that a sweep of the store has to read, oldest first. `newest` is the commit time of
    /// the store's newest breadcrumb.
    pub(super) fn to_read(&self, newest: Timestamp, overlap: Duration) -> Vec<Range> {
        let state = self.state();
        let to = state.sweep_to.map_or(newest, |to| to.min(newest));
        let position = state.position.as_ref();
        position.map_or_else(Vec::new, |position| position.to_read(to, overlap))
    }

    /// Returns the counter of the changes, such as added executors and missed events, that invalidate the reads of a running
    /// sweep. A sweep stores the number at its start, and the reads of the sweep are invalid if the number changes later.
    pub(super) fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Records that the runtime has received all triggers of a time interval from a sweep of the store. Returns `false` without an effect
    /// if an executor was added or events were missed since the sweep started.
    pub(super) fn mark_read(&self, range: Range, generation: u64) -> bool {
        let mut state = self.state();
        let counts = state.generation == generation;
        if let Some(position) = state.position.as_mut().filter(|_| counts) {
            position.mark_read(range);
        }
        counts
    }

    /// Records that a sweep of the store has read all triggers up to the sweep's end time.
    pub(super) fn note_sweep_complete(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation {
            state.sweep_to = None;
            state.missed_after = None;
        }
    }

    /// Records that an event source has delivered all events committed before a time. The source is one that reports lost events. Has no
    /// effect while a sweep still has to read older triggers.
    ///
    /// A position with gaps was saved by a worker that was killed before it enqueued all triggers of its events. The source has
    /// delivered these events again if they were committed after the time that it reported. Gaps stay if they can be triggers that the
    /// last sweep could not read.
    pub(super) fn note_delivered_before(&self, time: Timestamp) {
        let mut state = self.state();
        if state.sweeps.is_requested || state.sweeps.is_running || state.sweep_to.is_some() {
            return;
        }
        let delivered_after = state.delivered_after.filter(|_| !state.sweeps.has_unread);
        let Some(position) = state.position.as_mut() else {
            return;
        };
        let after = match position.is_contiguous() {
            true => Some(position.up_to()),
            false => delivered_after,
        };
        if let Some(after) = after {
            position.mark_read((after, time.just_before()));
        }
    }

    fn state(&self) -> MutexGuard<'_, CheckpointState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Subtracts the duration `by` from a timestamp. Saturates at the minimum time.
pub(super) fn earlier(moment: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(moment.as_micros().saturating_sub(by))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    /// A position with these gaps that has read everything else up to 100, of a source that delivers after 10.
    fn with_gaps(gaps: Vec<Range>) -> Checkpoint {
        let mut position = Position::starting(time(0), time(100));
        position.mark_unread(gaps);
        let checkpoint = Checkpoint::default();
        checkpoint.note_delivered_after(Some(time(10)));
        checkpoint.note_loaded(LoadedPositions {
            starts: Vec::new(),
            position,
            newest: time(100),
            sweep_to: None,
        });
        checkpoint
    }

    fn unread(checkpoint: &Checkpoint) -> Vec<Range> {
        let saved = checkpoint.to_save(Vec::new()).unwrap();
        saved.position.unread_to(time(1_000))
    }

    #[test]
    fn a_complete_source_closes_the_gaps_that_it_has_delivered_again() {
        let checkpoint = with_gaps(vec![(time(20), time(30)), (time(50), time(51))]);

        checkpoint.note_delivered_before(time(41));
        assert_eq!(
            unread(&checkpoint),
            [(time(50), time(51)), (time(100), time(1_000))]
        );
        checkpoint.note_delivered_before(time(201));

        assert_eq!(unread(&checkpoint), [(time(200), time(1_000))]);
    }

    #[test]
    fn a_gap_stays_that_the_source_does_not_deliver_or_that_a_sweep_could_not_read() {
        let (before, after) = ((time(5), time(12)), (time(20), time(30)));
        let end = (time(100), time(1_000));
        let checkpoint = with_gaps(vec![before, after]);

        for (swept, has_unread) in [(SweepOutcome::Unread, true), (SweepOutcome::All, false)] {
            checkpoint.request_sweep();
            checkpoint.note_delivered_before(time(50));
            assert_eq!(unread(&checkpoint), [before, after, end]);
            assert!(checkpoint.begin_sweep());
            checkpoint.note_delivered_before(time(50));
            assert_eq!(unread(&checkpoint), [before, after, end]);
            checkpoint.end_sweep(Some(swept));
            assert_eq!(checkpoint.has_unread(), has_unread);
            if has_unread {
                checkpoint.note_delivered_before(time(50));
                assert_eq!(unread(&checkpoint), [before, after, end]);
            }
        }

        checkpoint.note_delivered_before(time(50));
        assert_eq!(unread(&checkpoint), [(time(5), time(10)), end]);
    }

    #[cfg(feature = "testing")]
    #[tokio::test]
    async fn a_worker_after_a_killed_one_saves_a_position_without_the_gaps_of_that_one() {
        use super::super::Runtime;
        use crate::executor::{Response, executor};
        use crate::model::{NewBreadcrumb, Subscription};
        use crate::store::{BreadcrumbStoreExt as _, MemoryStore, RunLedger as _};
        use crate::testing::TestStore;

        let store = MemoryStore::default();
        let watched = TestStore::on(store.clone()).unwrap();
        let mut times = Vec::new();
        for _ in 0..10 {
            let order = store.create(NewBreadcrumb::new("order.v1")).await.unwrap();
            times.push(order.updated_at);
        }
        let work = async || {
            let clerk = executor("clerk")
                .on(Subscription::trigger("order.v1"))
                .execute(|_| async { Ok(Response::none()) });
            let runtime = Runtime::on(&watched).executor(clerk).build().unwrap();
            watched.run_until_idle(&runtime).await.unwrap()
        };
        let clerk: [Arc<str>; 1] = ["clerk".into()];
        assert_eq!(work().await.responded, 10);
        let saved = store.positions(&clerk).await.unwrap().remove(0).unwrap();
        let mut killed = Position::from_bytes(&saved).unwrap();
        killed.mark_unread([(times[2].just_before(), times[2])]);
        let killed = (Arc::clone(&clerk[0]), killed.to_bytes());
        store.save_positions(&[killed]).await.unwrap();

        let (second, third) = (work().await, work().await);

        assert_eq!(second.events, 8, "the events since the gap");
        assert!(third.events <= 1, "{third:?}");
    }
}
