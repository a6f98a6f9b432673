//! Rate limits that several processes share through a breadcrumb.

use crate::clock::within;
use crate::error::{BoxError, Chain};
use crate::model::{BreadcrumbId, NewBreadcrumb, Patch, Selector};
use crate::store::{BreadcrumbStore, BreadcrumbStoreExt as _, Query, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A store through which the workers of several processes share the rate limits of a [`FallbackModel`](super::FallbackModel).
///
/// The store has one breadcrumb for each group, with the total numbers of requests and tokens of each model. Each worker reads the
/// breadcrumb before a request and after an answer, at most twice per second, and subtracts the usage of the other workers from its own
/// allowance. It adds its own usage at most once per second, by one commit. The commit fails if another worker wrote in the meantime; the
/// usage is then added a second later. Circuit breakers and delays that a provider requested are not shared.
///
/// # Limitations
/// - The workers see the usage of each other about a second late, so together they can exceed a limit by the usage of that second.
/// - A worker that starts has its full allowance for the first minute.
/// - Usage that could not be written at the end of an answer is written with the next request of the worker. A worker that stops loses it.
/// - After a write that timed out or was cancelled, its usage can count twice.
/// - If the store fails or takes longer than 500 ms, requests continue with the limits of the single worker. The crate logs one line
///   at `WARN`, retries every 10 s, and logs the recovery.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use universal_executor::MemoryStore;
/// use universal_executor::agent::{FallbackModel, ModelPolicy, ScriptedModel, SharedLimits};
///
/// let store = MemoryStore::default(); // a store of all workers, such as PostgresStore
/// let model = FallbackModel::builder()
///     .model_with("large", ScriptedModel::new(["Hello!"]), ModelPolicy::new().tokens_per_minute(100_000))
///     .shared_limits(SharedLimits::new(Arc::new(store), "production"))
///     .build()?;
/// # drop(model);
/// # Ok::<(), universal_executor::agent::FallbackError>(())
/// ```
#[derive(Clone)]
pub struct SharedLimits {
    store: Arc<dyn BreadcrumbStore>,
    pub(super) group: String,
}

impl SharedLimits {
    /// Schema name of the breadcrumb with the usage of a group.
    pub const SCHEMA: &str = "model.limits.v1";

    /// Creates the shared limits of a group of workers. Workers with the same store, group and model name share the limits of the model.
    ///
    /// The group has 1 to 64 bytes and no control characters; [`build`](super::FallbackModelBuilder::build) checks it. No executor should
    /// subscribe to the schema [`SCHEMA`](Self::SCHEMA), because each write is an event.
    #[must_use]
    pub fn new(store: Arc<dyn BreadcrumbStore>, group: impl Into<String>) -> Self {
        Self {
            store,
            group: group.into(),
        }
    }
}

impl fmt::Debug for SharedLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimits")
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

/// The number of requests to a model, and of the tokens that it used.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) tokens: u64,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }

    /// Returns the part of the usage of a period that belongs to its last minute, if the usage was even.
    fn of_last_minute(self, period: Duration) -> Self {
        const MINUTE: u64 = 60;
        let seconds = period.as_secs();
        if seconds <= MINUTE {
            return self;
        }
        let part = |count: u64| {
            let scaled = u128::from(count) * u128::from(MINUTE) / u128::from(seconds);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Self {
            requests: part(self.requests),
            tokens: part(self.tokens),
        }
    }
}

/// The context of the breadcrumb of a group: the total usage of all its workers, by model name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Totals {
    #[serde(default)]
    models: BTreeMap<String, Counts>,
}

/// Maximum number of models of one group in the store. The usage of further models is not shared.
const MAX_SHARED_MODELS: usize = 64;

/// The usage of this worker that the other workers of the group must learn, and the usage of the others.
pub(super) struct SharedUsage {
    limits: SharedLimits,
    names: Vec<Arc<str>>,
    state: Mutex<SyncState>,
}

/// The progress of a worker in the exchange of usage. The lists have one element for each model of the list.
struct SyncState {
    /// The usage of this worker that is not yet in the store.
    unsent: Vec<Counts>,
    /// The totals after the last exchange and its time, or `None` before the first one.
    known: Option<(Vec<Counts>, Instant)>,
    breadcrumb: Option<BreadcrumbId>,
    /// The earliest time at which this worker reads the shared usage from the store again.
    next_at: Instant,
    /// The earliest time at which this worker adds its usage to the store again. An answer is written before `next_at`, so that the others learn its usage
    /// although this worker may send no further request.
    next_write_at: Instant,
    is_running: bool,
    is_failing: bool,
}

/// The result of an exchange with the store.
struct Exchanged {
    breadcrumb: Option<BreadcrumbId>,
    totals: Vec<Counts>,
    /// If `true`, the usage of this worker was added to the totals in the store.
    is_written: bool,
}

impl SharedUsage {
    /// The shortest time between two exchanges with the store.
    const INTERVAL: Duration = Duration::from_secs(1);
    /// The time between two exchanges while the store is unavailable.
    const RETRY_INTERVAL: Duration = Duration::from_secs(10);
    /// The time after which an exchange fails, so that a slow store delays no request for longer.
    const TIMEOUT: Duration = Duration::from_millis(500);

    pub(super) fn new(limits: SharedLimits, names: Vec<Arc<str>>, now: Instant) -> Self {
        let state = SyncState {
            unsent: vec![Counts::default(); names.len()],
            known: None,
            breadcrumb: None,
            next_at: now,
            next_write_at: now,
            is_running: false,
            is_failing: false,
        };
        Self {
            limits,
            names,
            state: Mutex::new(state),
        }
    }

    /// Counts usage of this worker for the next exchange.
    pub(super) fn add(&self, index: usize, requests: u64, tokens: u64) {
        if let Some(unsent) = self.state().unsent.get_mut(index) {
            *unsent = unsent.plus(Counts { requests, tokens });
        }
    }

    /// Exchanges the usage with the store if the exchange is due. Returns the new usage of the other workers for each model, or an empty
    /// list.
    pub(super) async fn sync(&self) -> Vec<Counts> {
        let Some((running, unsent, breadcrumb)) = self.begin() else {
            return Vec::new();
        };
        let timed_out = || Err("the exchange with the store timed out".into());
        let exchanged = within(Self::TIMEOUT, self.exchange(&unsent, breadcrumb)).await;
        let exchanged = exchanged.unwrap_or_else(timed_out);
        let of_others = self.finish(&unsent, exchanged);
        // The next exchange starts after this one is recorded, so that no usage is sent twice.
        drop(running);
        of_others
    }

    /// Returns the input of the exchange if it is due and none is running.
    fn begin(&self) -> Option<(Running<'_>, Vec<Counts>, Option<BreadcrumbId>)> {
        let now = Instant::now();
        let mut state = self.state();
        let must_write = has_usage(&state.unsent) && now >= state.next_write_at;
        let is_due = now >= state.next_at || (must_write && !state.is_failing);
        // A read that is due while a write is not must not write.
        let unsent = match now >= state.next_write_at {
            true => state.unsent.clone(),
            false => vec![Counts::default(); self.names.len()],
        };
        if state.is_running || !is_due {
            return None;
        }
        state.is_running = true;
        let breadcrumb = state.breadcrumb;
        drop(state);
        Some((Running(self), unsent, breadcrumb))
    }

    fn finish(&self, sent: &[Counts], exchanged: Result<Exchanged, BoxError>) -> Vec<Counts> {
        let now = Instant::now();
        let mut state = self.state();
        let was_failing = state.is_failing;
        let exchanged = match exchanged {
            Ok(exchanged) => exchanged,
            Err(error) => {
                (state.is_failing, state.next_at) = (true, now + Self::RETRY_INTERVAL);
                drop(state);
                if !was_failing {
                    self.log_failure(&*error);
                }
                return Vec::new();
            }
        };
        (state.is_failing, state.next_at) = (false, now + Self::INTERVAL);
        if has_usage(sent) || exchanged.breadcrumb.is_none() {
            state.next_write_at = now + Self::INTERVAL;
        }
        state.breadcrumb = exchanged.breadcrumb;
        let known = state.known.take();
        let of_others = known.map_or_else(Vec::new, |(known, at)| {
            let totals = exchanged.totals.iter().zip(known);
            let period = now.saturating_duration_since(at);
            totals
                .map(|(total, known)| total.minus(known).of_last_minute(period))
                .collect()
        });
        let mut totals = exchanged.totals;
        if exchanged.is_written {
            for ((total, unsent), sent) in totals.iter_mut().zip(&mut state.unsent).zip(sent) {
                *total = total.plus(*sent);
                *unsent = unsent.minus(*sent);
            }
        }
        state.known = Some((totals, now));
        drop(state);
        if was_failing {
            let group = &*self.limits.group;
            tracing::info!(group, "the shared rate limits of the models work again");
        }
        of_others
    }

    fn log_failure(&self, error: &(dyn std::error::Error + 'static)) {
        tracing::warn!(
            group = &*self.limits.group,
            error = %Chain(error),
            "the shared rate limits of the models are unavailable; each worker applies its own limits until a retry succeeds"
        );
    }

    /// Reads the totals of the group, and adds the usage of this worker.
    async fn exchange(
        &self,
        unsent: &[Counts],
        breadcrumb: Option<BreadcrumbId>,
    ) -> Result<Exchanged, BoxError> {
        let store = &*self.limits.store;
        let current = match breadcrumb {
            Some(id) => match store.get(id).await {
                Ok(current) => Some(current),
                Err(StoreError::NotFound { .. }) => None,
                Err(error) => return Err(error.into()),
            },
            None => self.find().await?,
        };
        let Some(current) = current else {
            let context = json!(Totals::default());
            let new = NewBreadcrumb::new(SharedLimits::SCHEMA).tag(self.tag());
            store.create(new.context(context)).await?;
            // The next exchange searches again, because another worker can have created a breadcrumb at the same time.
            return Ok(Exchanged {
                breadcrumb: None,
                totals: vec![Counts::default(); self.names.len()],
                is_written: false,
            });
        };
        let mut totals: Totals = current.context.parse()?;
        let of_model = |name: &Arc<str>| totals.models.get(&**name).copied().unwrap_or_default();
        let mut exchanged = Exchanged {
            breadcrumb: Some(current.id),
            totals: self.names.iter().map(of_model).collect(),
            is_written: false,
        };
        if !has_usage(unsent) {
            return Ok(exchanged);
        }
        for (name, unsent) in self.names.iter().zip(unsent) {
            if totals.models.len() < MAX_SHARED_MODELS || totals.models.contains_key(&**name) {
                let total = totals.models.entry(name.to_string()).or_default();
                *total = total.plus(*unsent);
            }
        }
        let patch = Patch::new().context(json!(totals));
        match store.update(current.id, current.version, patch).await {
            Ok(_) => exchanged.is_written = true,
            // Another worker wrote first. The next exchange adds the usage.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(exchanged)
    }

    /// Returns the breadcrumb of the group. If several workers created one at the same time, the oldest counts for all.
    async fn find(&self) -> Result<Option<Arc<crate::model::Breadcrumb>>, StoreError> {
        const CANDIDATES: usize = 16;
        let selector = Selector::schema(SharedLimits::SCHEMA).all_tags([self.tag()]);
        let query = Query::new(selector).limit(CANDIDATES);
        let found = self.limits.store.search(&query).await?;
        Ok(found
            .into_iter()
            .min_by_key(|found| (found.created_at, found.id)))
    }

    fn tag(&self) -> String {
        format!("group:{}", self.limits.group)
    }

    fn state(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_usage(counts: &[Counts]) -> bool {
    counts.iter().any(|count| *count != Counts::default())
}

/// A running exchange. Dropping it permits the next one. After a cancelled exchange, its usage is sent again, so it can count twice.
struct Running<'s>(&'s SharedUsage);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state().is_running = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Fault, Faulty, MemoryStore, Moment, Operation};

    fn worker<S: BreadcrumbStore + Clone + 'static>(store: &S) -> SharedUsage {
        let limits = SharedLimits::new(Arc::new(store.clone()), "test");
        SharedUsage::new(limits, vec!["large".into()], Instant::now())
    }

    /// Returns the usage of the other workers in a later exchange.
    async fn exchanged(worker: &SharedUsage) -> Vec<Counts> {
        tokio::time::advance(SharedUsage::INTERVAL).await;
        worker.sync().await
    }

    #[tokio::test(start_paused = true)]
    async fn workers_learn_the_usage_of_each_other_and_not_their_own() {
        let store = MemoryStore::default();
        let (one, two) = (worker(&store), worker(&store));
        exchanged(&one).await;
        exchanged(&one).await;
        exchanged(&two).await;

        one.add(0, 1, 100);
        let own = exchanged(&one).await;
        let of_one = exchanged(&two).await;
        let again = exchanged(&two).await;

        let (requests, tokens) = (1, 100);
        assert_eq!(own, [Counts::default()]);
        assert_eq!(of_one, [Counts { requests, tokens }]);
        assert_eq!(again, [Counts::default()]);
        assert_eq!(exchanged(&one).await, [Counts::default()]);
    }

    #[tokio::test(start_paused = true)]
    async fn usage_that_lost_a_conflict_is_written_by_the_next_exchange() {
        let inner = MemoryStore::default();
        let store = Faulty::new(inner.clone(), |operation, moment| {
            match (operation, moment) {
                (Operation::Commit, Moment::Before) => Fault::Delay(Duration::from_millis(10)),
                (_, _) => Fault::None,
            }
        });
        let (one, two) = (worker(&store), worker(&store));
        for worker in [&one, &one, &two] {
            exchanged(worker).await;
        }

        one.add(0, 1, 100);
        two.add(0, 1, 10);
        tokio::time::advance(SharedUsage::INTERVAL).await;
        futures::join!(one.sync(), two.sync());
        let conflicted = inner.latest(SharedLimits::SCHEMA).await.unwrap().unwrap();
        exchanged(&one).await;
        exchanged(&two).await;

        let written = inner.latest(SharedLimits::SCHEMA).await.unwrap().unwrap();
        let models = |context: &crate::model::Json| context["models"]["large"].clone();
        assert_eq!(models(&conflicted.context)["requests"], 1);
        assert_eq!(
            models(&written.context),
            json!({"requests": 2, "tokens": 110})
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_writes_at_most_once_per_second() {
        let store = MemoryStore::default();
        let worker = worker(&store);
        exchanged(&worker).await;
        exchanged(&worker).await;

        for _ in 0..10 {
            worker.add(0, 1, 10);
            worker.sync().await;
        }
        exchanged(&worker).await;

        let written = store.latest(SharedLimits::SCHEMA).await.unwrap().unwrap();
        assert_eq!(written.version, 3);
        assert_eq!(
            written.context["models"]["large"],
            json!({"requests": 10, "tokens": 100})
        );
    }

    #[test]
    fn usage_of_a_longer_period_counts_for_one_minute() {
        let counts = Counts {
            requests: 600,
            tokens: 60_000,
        };

        let short = counts.of_last_minute(Duration::from_secs(60));
        let long = counts.of_last_minute(Duration::from_secs(600));

        assert_eq!(short, counts);
        assert_eq!((long.requests, long.tokens), (60, 6_000));
    }
}
