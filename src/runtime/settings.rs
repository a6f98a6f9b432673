use crate::model::Timestamp;
use crate::source::StartAt;
use std::time::Duration;

/// Settings of a runtime, set through `RuntimeBuilder`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) max_inflight: usize,
    pub(super) max_deliveries: usize,
    pub(super) start_at: StartAt,
    /// The first breadcrumb that an executor without a saved position reads. If `None`, `start_at` and `look_back` decide.
    pub(super) first_start: Option<FirstStart>,
    pub(super) look_back: Duration,
    pub(super) sweep: Duration,
    pub(super) reconcile: Duration,
    pub(super) drain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 64,
            max_inflight: 16,
            max_deliveries: 8_192,
            start_at: StartAt::Now,
            first_start: None,
            look_back: Duration::from_secs(60 * 60),
            sweep: Duration::from_secs(5),
            reconcile: Duration::from_secs(60),
            drain: Duration::from_secs(25),
        }
    }
}

/// The first breadcrumb that an executor without a saved position reads.
///
/// The runtime saves a position for each executor of a store with a run ledger. From then on the setting has no effect: a
/// restart continues at the position, after any downtime. The setting is for executors in the code of the service: an executor made
/// of a definition starts when it is loaded for the first time.
///
/// Set by [`RuntimeBuilder::first_start`](super::RuntimeBuilder::first_start).
///
/// # Examples
/// ```
/// use universal_executor::runtime::FirstStart;
/// use universal_executor::{MemoryStore, Runtime};
///
/// assert_eq!(FirstStart::default(), FirstStart::LastHour);
/// let store = MemoryStore::default();
/// let builder = Runtime::on(&store).first_start(FirstStart::Now); // skips older breadcrumbs
/// # drop(builder);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum FirstStart {
    /// The executor starts with the breadcrumbs that were committed in the hour before the executor's start. If the store has older
    /// breadcrumbs that match a trigger, the start fails with [`RuntimeError::OlderTriggers`](super::RuntimeError::OlderTriggers), because
    /// the user has to decide about them. A store without a run ledger loses the position at the end of the process, so the start does not
    /// fail there.
    #[default]
    LastHour,
    /// The executor starts with the oldest breadcrumb of the store.
    ///
    /// Use this for an executor that must process the whole history, such as an import.
    Oldest,
    /// The executor starts with the first breadcrumb that is committed after the executor's start.
    Now,
    /// The executor starts with the first breadcrumb that was committed at this time or later, by the store's clock.
    ///
    /// Use this if older breadcrumbs were processed by another system up to this time.
    Since(Timestamp),
}
