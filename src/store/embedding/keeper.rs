//! Keeps vectors up with what is written: after each commit, and in passes that find what has none.

use super::{EmbeddingConfig, text};
use crate::backoff::full_jitter;
use crate::clock::within;
use crate::error::Chain;
use crate::error::Retry;
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::store::tenants::Tenants;
use crate::store::{BreadcrumbStore, StoreError, Write};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The longest pause between passes while the embedder fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A store that is used makes a pass at least so often, for what other processes leave.
const PASS_EVERY: Duration = Duration::from_secs(60);

/// A store of one tenant that keeps vectors.
#[async_trait]
pub(in crate::store) trait Vectors: BreadcrumbStore + Clone {
    /// Makes another handle as long as the store is there, which this does not keep open.
    fn reopen(&self) -> impl Fn() -> Option<Self> + Send + Sync + 'static;

    /// Up to so many breadcrumbs that were written after a time and have no vector of their version, oldest first.
    async fn without_vector(&self, after: Timestamp, most: usize) -> Result<Page, StoreError>;

    /// Keeps vectors of those breadcrumbs that still have the version. Doing it again changes nothing.
    async fn put_vectors(&self, made: Vec<Made>) -> Result<(), StoreError>;
}

/// Some breadcrumbs without a vector.
pub(in crate::store) struct Page {
    pub(in crate::store) found: Vec<Arc<Breadcrumb>>,
    /// Up to when there are no others.
    pub(in crate::store) until: Timestamp,
    /// Whether there may be more after that.
    pub(in crate::store) more: bool,
}

/// The vector of a version of a breadcrumb, of length one; none if it says nothing that could have one, or nothing that the
/// embedder can do.
#[derive(Clone, Debug)]
pub(in crate::store) struct Made {
    pub(in crate::store) id: BreadcrumbId,
    pub(in crate::store) version: u64,
    pub(in crate::store) vector: Option<Vec<f32>>,
}

/// The keepers of all tenants of a store.
#[derive(Debug)]
pub(in crate::store) struct Keepers {
    config: EmbeddingConfig,
    by_tenant: Tenants<Keeper>,
}

impl Keepers {
    pub(in crate::store) fn new(config: EmbeddingConfig) -> Self {
        Self {
            config,
            by_tenant: Tenants::new(),
        }
    }

    pub(in crate::store) fn of(&self, tenant: &str) -> Arc<Keeper> {
        // A new keeper replaces one without handles: it looks for missing vectors first.
        self.by_tenant
            .of(tenant, |_| true, || Keeper::new(self.config.clone()))
    }
}

/// What keeps the vectors of one tenant.
pub(in crate::store) struct Keeper {
    pub(in crate::store) config: EmbeddingConfig,
    /// Whether something may have no vector.
    behind: AtomicBool,
    /// Whether the embedder failed the last time, so that no commit waits for it.
    failing: AtomicBool,
    /// Whether a task makes up for what is missing.
    going_on: AtomicBool,
    /// Until when everything has a vector, or cannot have one; in microseconds.
    until: AtomicI64,
    /// One pass at a time.
    passes: Semaphore,
    /// When the last one began.
    passed: Mutex<Option<Instant>>,
}

impl Keeper {
    fn new(config: EmbeddingConfig) -> Self {
        Self {
            config,
            behind: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            going_on: AtomicBool::new(false),
            until: AtomicI64::new(i64::MIN),
            passes: Semaphore::new(1),
            passed: Mutex::default(),
        }
    }

    /// Begins something that writes. Until that says what it wrote, nobody knows whether it did.
    pub(in crate::store) fn begin(self: &Arc<Self>) -> Keeping {
        Keeping {
            keeper: Arc::clone(self),
            is_done: false,
        }
    }

    /// Has what is missing made up for in the background, unless that is going on. Outside of a runtime nothing happens.
    pub(in crate::store) fn catch_up<S: Vectors>(self: &Arc<Self>, store: &S) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        // Another process may have left something.
        if self
            .last_pass()
            .is_none_or(|passed| passed.elapsed() > PASS_EVERY)
        {
            self.behind.store(true, Ordering::SeqCst);
        }
        if self.behind.load(Ordering::SeqCst)
            && let Some(going_on) = GoingOn::begin(self)
        {
            let reopen = store.reopen();
            drop(runtime.spawn(going_on.run(reopen)));
        }
    }

    /// Makes vectors of breadcrumbs, unless that fails or takes too long.
    async fn embed_now<S: Vectors>(&self, store: &S, written: Vec<Arc<Breadcrumb>>) -> bool {
        let store = store.clone();
        let reopen = || Some(store.clone());
        match within(self.config.patience, self.make(&reopen, written)).await {
            Some(Ok(_)) => true,
            Some(Err(error)) => {
                self.failing.store(true, Ordering::Relaxed);
                tracing::warn!(error = %Chain(&error), "what was written is embedded later");
                false
            }
            None => {
                self.failing.store(true, Ordering::Relaxed);
                let patience = self.config.patience;
                tracing::warn!(
                    ?patience,
                    "what was written is embedded later, as it takes long"
                );
                false
            }
        }
    }

    /// Makes vectors of all that has none, and says of how many breadcrumbs the embedder cannot do the text.
    ///
    /// # Errors
    /// If the store or the embedder fails; what was made until then stays.
    pub(in crate::store) async fn embedded<S: Vectors>(
        self: &Arc<Self>,
        store: &S,
    ) -> Result<usize, StoreError> {
        let store = store.clone();
        let refused = self.pass(&|| Some(store.clone())).await?;
        Ok(refused.unwrap_or_default())
    }

    fn last_pass(&self) -> MutexGuard<'_, Option<Instant>> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One pass over what has no vector, from where the last one ended. None if the store is gone.
    async fn pass<S: Vectors>(
        self: &Arc<Self>,
        reopen: &(impl Fn() -> Option<S> + Send + Sync),
    ) -> Result<Option<usize>, StoreError> {
        // The semaphore is never closed.
        let place = self.passes.acquire().await.ok();
        *self.last_pass() = Some(Instant::now());
        // What is written from now on says so again.
        self.behind.store(false, Ordering::SeqCst);
        let mut keeping = self.begin();
        let mut after = Timestamp::from_micros(self.until.load(Ordering::Relaxed));
        let mut refused = 0;
        loop {
            let Some(store) = reopen() else {
                return Ok(None);
            };
            let page = store.without_vector(after, self.config.batch).await?;
            drop(store);
            let made = self.make(reopen, page.found).await;
            self.failing.store(made.is_err(), Ordering::Relaxed);
            refused += made?;
            after = page.until;
            if !page.more {
                break;
            }
        }
        self.until.store(after.as_micros(), Ordering::Relaxed);
        self.failing.store(false, Ordering::Relaxed);
        keeping.is_done = true;
        drop(place);
        Ok(Some(refused))
    }

    /// Makes vectors of breadcrumbs and puts them, and says how many the embedder cannot do. The store is not kept open while
    /// it is asked.
    async fn make<S: Vectors>(
        &self,
        reopen: &(impl Fn() -> Option<S> + Send + Sync),
        of: Vec<Arc<Breadcrumb>>,
    ) -> Result<usize, StoreError> {
        let mut refused = 0;
        for some in of.chunks(self.config.batch) {
            let Some(store) = reopen() else {
                return Ok(refused);
            };
            let texts = text::texts(&store, some).await?;
            drop(store);
            let mut made = Vec::with_capacity(some.len());
            let (mut asked, mut wanted) = (Vec::new(), Vec::new());
            for (breadcrumb, text) in some.iter().zip(texts) {
                match text {
                    Some(text) => {
                        asked.push(text);
                        wanted.push(breadcrumb);
                    }
                    None => made.push(of_version(breadcrumb, None)),
                }
            }
            let found = self.config.each(&asked).await;
            refused += found.refused;
            for (breadcrumb, direction) in wanted.into_iter().zip(found.directions) {
                made.push(of_version(breadcrumb, direction));
            }
            // Also before it fails, so that the next pass does not ask for the same again.
            if !made.is_empty()
                && let Some(store) = reopen()
            {
                store.put_vectors(made).await?;
            }
            if let Some(error) = found.failed {
                return Err(error.into());
            }
        }
        Ok(refused)
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

fn of_version(breadcrumb: &Breadcrumb, vector: Option<Vec<f32>>) -> Made {
    Made {
        id: breadcrumb.id,
        version: breadcrumb.version,
        vector,
    }
}

/// What a commit deletes.
pub(in crate::store) fn deleted(writes: &[Write]) -> BTreeSet<BreadcrumbId> {
    let deleted = writes.iter().filter_map(|write| match write {
        Write::Delete { id, .. } => Some(*id),
        Write::Create(_) | Write::Update { .. } => None,
    });
    deleted.collect()
}

/// Something that may leave breadcrumbs without a vector: it may fail, and its future may be dropped.
pub(in crate::store) struct Keeping {
    keeper: Arc<Keeper>,
    is_done: bool,
}

impl Keeping {
    /// Has vectors made of what a commit wrote and did not delete, now or in the background. Nothing that goes wrong with
    /// that concerns the commit.
    pub(in crate::store) async fn committed<S: Vectors>(
        mut self,
        store: &S,
        written: &[Arc<Breadcrumb>],
        deleted: BTreeSet<BreadcrumbId>,
    ) {
        let keeper = Arc::clone(&self.keeper);
        let mut seen = deleted;
        // The last version of each.
        let last = written.iter().rev().filter(|one| seen.insert(one.id));
        let last: Vec<_> = last.cloned().collect();
        if last.is_empty() {
            self.is_done = true;
        } else if !keeper.config.later && !keeper.failing.load(Ordering::Relaxed) {
            self.is_done = keeper.embed_now(store, last).await;
        }
        drop(self);
        keeper.catch_up(store);
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if !self.is_done {
            self.keeper.behind.store(true, Ordering::SeqCst);
        }
    }
}

/// A task that makes up for what is missing. It ends with its runtime at any moment, and says so.
struct GoingOn(Arc<Keeper>);

impl GoingOn {
    fn begin(keeper: &Arc<Keeper>) -> Option<Self> {
        let is_going_on = keeper.going_on.swap(true, Ordering::SeqCst);
        (!is_going_on).then(|| Self(Arc::clone(keeper)))
    }

    /// Makes passes until nothing is missing or the store is gone.
    async fn run<S: Vectors>(self, reopen: impl Fn() -> Option<S> + Send + Sync + 'static) {
        let keeper = Arc::clone(&self.0);
        let mut going_on = Some(self);
        let mut failed = 0;
        while going_on.is_some() {
            while keeper.behind.load(Ordering::SeqCst) {
                match keeper.pass(&reopen).await {
                    Ok(Some(_)) => failed = 0,
                    Ok(None) => return,
                    Err(error) => {
                        failed += 1;
                        tracing::warn!(error = %Chain(&error), failed, "what was written is embedded later");
                        tokio::time::sleep(pause(&error, failed)).await;
                    }
                }
            }
            drop(going_on.take());
            // Who found it going on meanwhile has started no other.
            if keeper.behind.load(Ordering::SeqCst) {
                going_on = Self::begin(&keeper);
            }
        }
    }
}

impl Drop for GoingOn {
    fn drop(&mut self) {
        self.0.going_on.store(false, Ordering::SeqCst);
    }
}

/// How long to wait after so many failures. What trying again does not help is tried again all the same, since the next
/// thing that is written may do better, but not soon.
fn pause(error: &StoreError, failed: u32) -> Duration {
    match error.retry() {
        Retry::After(least) => {
            full_jitter(failed, Duration::from_secs(1), LONGEST_PAUSE, 1.0).max(least)
        }
        Retry::Never => LONGEST_PAUSE,
    }
}
