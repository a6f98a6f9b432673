//! In-memory ledgers for stores without a ledger, retained for the life of the process.
//!
//! [`WithLedger`](super::WithLedger) pairs a store with a durable ledger. This module pairs a store with a ledger that ends with
//! the process, so that every other part of the crate finds a ledger.

use super::with_ledger::StorePair;
use super::{
    BreadcrumbStore, Claim, Claimed, Commit, Committed, Lease, MemoryLimits, MemoryStore,
    RunLedger, RunRef, RunState, StoreError, StoreId,
};
use crate::clock::wall_micros;
use crate::model::Timestamp;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Maximum number of in-memory ledgers that the process retains while they are not in use.
const MAX_RETAINED: usize = 64;

static LEDGERS: LazyLock<Ledgers> = LazyLock::new(Ledgers::default);

/// The in-memory ledger of one store without its own ledger, for all handles of the store in this process.
#[derive(Debug)]
struct ProcessLedger {
    runs: MemoryStore,
    /// The time when the ledger was created, by the clock of this machine. An earlier process may have processed older events.
    created_at: Timestamp,
}

impl ProcessLedger {
    fn new() -> Self {
        // The store holds no breadcrumbs except dead letters, which are deleted at once.
        let limits = MemoryLimits {
            breadcrumbs: 1_000,
            events: 1,
            tombstones: 0,
            ..MemoryLimits::default()
        };
        Self {
            runs: MemoryStore::with_limits(limits),
            created_at: Timestamp::from_micros(wall_micros()),
        }
    }
}

/// In-memory ledgers of this process by the identity of their store. Retains the [`MAX_RETAINED`] most recently used ledgers, and
/// all ledgers in use.
#[derive(Debug, Default)]
struct Ledgers(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    store: StoreId,
    ledger: Weak<ProcessLedger>,
    retained: Option<Arc<ProcessLedger>>,
}

impl Ledgers {
    /// Returns the in-memory ledger of a store, and marks it as the most recently used.
    fn of(&self, store: &StoreId) -> Arc<ProcessLedger> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = entries.iter().position(|entry| entry.store == *store);
        let existing = index.map(|index| entries.remove(index));
        let ledger = existing.and_then(|entry| entry.ledger.upgrade());
        let ledger = ledger.unwrap_or_else(|| Arc::new(ProcessLedger::new()));
        let entry = Entry {
            store: store.clone(),
            ledger: Arc::downgrade(&ledger),
            retained: Some(Arc::clone(&ledger)),
        };
        entries.insert(0, entry);
        let older = entries.iter_mut().skip(MAX_RETAINED);
        let released: Vec<_> = older.filter_map(|entry| entry.retained.take()).collect();
        drop(released);
        entries.retain(|entry| entry.ledger.strong_count() > 0);
        ledger
    }
}

/// The in-memory ledger that the crate adds to a store without its own ledger. The first use looks up or creates the ledger.
#[derive(Debug, Default)]
pub(crate) struct AddedLedger(OnceLock<Arc<ProcessLedger>>);

impl AddedLedger {
    /// Returns the store with its own ledger, or with this process's in-memory ledger for the store.
    pub(crate) fn with<'s>(&'s self, store: &'s dyn BreadcrumbStore) -> RunStore<'s> {
        if let Some(ledger) = store.ledger() {
            let added = None;
            return RunStore {
                store,
                ledger,
                added,
            };
        }
        let added = self.0.get_or_init(|| LEDGERS.of(&store.identity()));
        RunStore {
            store,
            ledger: &added.runs,
            added: Some(added),
        }
    }
}

/// State of a run in the in-memory ledger of the process, for an event delivery that waits until the run has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ProcessRunState {
    /// The run ended, or the ledger no longer has it.
    Over,
    /// The run is due after this delay.
    Later(Duration),
    /// The run can be claimed now, or is suspended and will be resumed.
    Due,
    /// A worker has the lease of the run.
    Running,
}

/// A store with its own run ledger, or with an in-memory ledger that ends with the process.
#[derive(Clone, Copy)]
pub(crate) struct RunStore<'s> {
    store: &'s dyn BreadcrumbStore,
    ledger: &'s dyn RunLedger,
    added: Option<&'s ProcessLedger>,
}

impl<'s> RunStore<'s> {
    /// Returns the run ledger of the store, for all calls but [`claim`](Self::claim) and [`begin`](Self::begin).
    pub(crate) fn ledger(self) -> &'s dyn RunLedger {
        self.ledger
    }

    /// Returns the run ledger of the store if the ledger outlives the process.
    pub(crate) fn durable_ledger(self) -> Option<&'s dyn RunLedger> {
        self.is_durable().then_some(self.ledger)
    }

    /// Returns `true` if the run ledger of the store outlives the process.
    pub(crate) fn is_durable(self) -> bool {
        self.added.is_none()
    }

    /// Returns `true` if the run ledger of the store records which run wrote each version of a breadcrumb.
    pub(crate) fn records_writers(self) -> bool {
        self.is_durable() && self.store.capabilities().lineage
    }

    /// Returns `true` if an event's update time `time` is not after the creation of the in-memory ledger. An earlier process may have
    /// responded to such an event, and the ledger has no record of that response.
    pub(crate) fn may_predate_ledger(self, time: Timestamp) -> bool {
        self.added.is_some_and(|added| time <= added.created_at)
    }

    /// Returns the state of a run for an event delivery that waits until the run has ended. With a ledger that outlives the
    /// process, a delivery need not wait.
    pub(crate) fn run_state(self, run: &RunRef) -> ProcessRunState {
        match self.added.and_then(|added| added.runs.state_of(run)) {
            Some((RunState::Ready, wait)) if wait > Duration::ZERO => ProcessRunState::Later(wait),
            Some((RunState::Ready | RunState::Suspended, _)) => ProcessRunState::Due,
            Some((RunState::Running, _)) => ProcessRunState::Running,
            Some((
                RunState::Done | RunState::Failed | RunState::Skipped | RunState::Superseded,
                _,
            ))
            | None => ProcessRunState::Over,
        }
    }

    /// Claims a run in its ledger, and finishes the run if an earlier attempt saved its response in the in-memory ledger.
    ///
    /// # Errors
    /// The errors of [`RunLedger::claim`].
    pub(crate) async fn claim(
        self,
        run: &RunRef,
        instead_of: Option<Lease>,
    ) -> Result<Claim, StoreError> {
        match self.pair() {
            Some(pair) => Box::pin(pair.claim(run, instead_of)).await,
            None => self.ledger.claim(run, instead_of).await,
        }
    }

    /// Starts the attempt of a claimed run, or finishes the run if an earlier attempt saved its response in the in-memory ledger.
    ///
    /// # Errors
    /// The errors of [`RunLedger::begin`].
    pub(crate) async fn begin(self, claimed: Claimed) -> Result<Claim, StoreError> {
        match self.pair() {
            Some(pair) => Box::pin(pair.finish_saved_response(claimed)).await,
            None => self.ledger.begin(claimed).await,
        }
    }

    /// Commits writes to the store, and ends the run of the commit in the store's own ledger or in the in-memory ledger.
    ///
    /// # Errors
    /// The errors of [`BreadcrumbStore::commit`].
    pub(crate) async fn commit(self, commit: Commit) -> Result<Committed, StoreError> {
        match self.pair() {
            Some(pair) => Box::pin(pair.commit(commit)).await,
            None => self.store.commit(commit).await,
        }
    }

    fn pair(self) -> Option<StorePair<'s>> {
        let added = self.added?;
        Some(StorePair {
            store: self.store,
            ledger_store: &added.runs,
            ledger: &added.runs,
            deletes_dead_letters: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "mock")]
    use crate::{
        model::{Breadcrumb, BreadcrumbId, Selector},
        store::{DeadLetter, FailureClass, Query, RunEnd},
    };

    #[test]
    fn an_unused_ledger_is_retained_up_to_the_limit() {
        let ledgers = Ledgers::default();
        let store = StoreId::unique("default");

        let first = Arc::downgrade(&ledgers.of(&store));
        for _ in 1..MAX_RETAINED {
            drop(ledgers.of(&StoreId::unique("default")));
        }

        assert!(Weak::ptr_eq(&first, &Arc::downgrade(&ledgers.of(&store))));
    }

    #[test]
    fn handles_in_different_tenants_have_different_ledgers() {
        let ledgers = Ledgers::default();
        let store = StoreId::unique("one");

        let (one, other) = (ledgers.of(&store), ledgers.of(&store.in_tenant("other")));

        assert!(!Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn ledgers_of_stores_that_come_and_go_do_not_pile_up() {
        let ledgers = Ledgers::default();
        let used = StoreId::unique("default");
        let in_use = ledgers.of(&used);
        let first = Arc::downgrade(&ledgers.of(&StoreId::unique("default")));

        for _ in 0..1_000 {
            drop(ledgers.of(&StoreId::unique("default")));
        }

        let len = || ledgers.0.lock().unwrap().len();
        assert_eq!(len(), MAX_RETAINED + 1);
        assert!(first.upgrade().is_none());
        assert!(Arc::ptr_eq(&in_use, &ledgers.of(&used)));
        drop(in_use);
        for _ in 0..MAX_RETAINED {
            drop(ledgers.of(&StoreId::unique("default")));
        }
        assert_eq!(len(), MAX_RETAINED);
    }

    #[cfg(feature = "mock")]
    #[tokio::test]
    async fn dead_letters_are_in_the_store_and_do_not_pile_up_in_the_ledger() {
        let store = crate::store::mock::store_with(Vec::<Breadcrumb>::new());
        let added = AddedLedger::default();
        let runs = added.with(&store);
        let letters = Query::new(Selector::schema(DeadLetter::SCHEMA));

        for version in 1..=3 {
            let run = RunRef::new("fails", BreadcrumbId::NIL, version);
            let Claim::Granted(Claimed { lease, .. }) = runs.claim(&run, None).await.unwrap()
            else {
                panic!("{run} is claimed")
            };
            let letter = DeadLetter::new(FailureClass::Permanent, "no", 1);
            let end = Some((lease, RunEnd::Failed(letter)));
            let writes = Vec::new();
            runs.commit(Commit { writes, end }).await.unwrap();
            assert_eq!(runs.run_state(&run), ProcessRunState::Over);
        }

        let ledger = added.0.get().unwrap();
        assert_eq!(store.search(&letters).await.unwrap().len(), 3);
        assert!(ledger.runs.search(&letters).await.unwrap().is_empty());
    }
}
