//! Updates of the vectors of a store's breadcrumbs: after each commit, and in passes over the breadcrumbs without a vector.

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

/// Maximum delay between two passes over the breadcrumbs without a vector while the embedder fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Maximum time between two passes over the breadcrumbs without a vector, while the store is in use. The passes embed breadcrumbs
/// that other processes left without a vector.
const PASS_INTERVAL: Duration = Duration::from_secs(60);

/// Store handle of one tenant, with methods that read and save the vectors of breadcrumbs.
#[async_trait]
pub(in crate::store) trait VectorStore: BreadcrumbStore + Clone {
    /// Returns a function that creates another handle on the store, for work in the background. The function returns `None` after
    /// the store was closed, and does not keep the store open.
    fn reopen(&self) -> impl Fn() -> Option<Self> + Send + Sync + 'static;

    /// Returns the oldest breadcrumbs whose current version has no vector, at most `most`. All of them were written after `after`.
    async fn without_vector(
        &self,
        after: Timestamp,
        most: usize,
    ) -> Result<UnembeddedPage, StoreError>;

    /// Saves the vectors of those breadcrumbs whose embedded version is still the current one. Idempotent.
    async fn put_vectors(&self, vectors: Vec<BreadcrumbVector>) -> Result<(), StoreError>;
}

/// A page of breadcrumbs without a vector of their current version.
pub(in crate::store) struct UnembeddedPage {
    pub(in crate::store) found: Vec<Arc<Breadcrumb>>,
    /// Update time up to which every breadcrumb outside of this page has a vector, or cannot have one.
    pub(in crate::store) until: Timestamp,
    /// If `true`, breadcrumbs after the page can lack a vector too.
    pub(in crate::store) more: bool,
}

/// Unit vector of the text of one breadcrumb version. `None` if the breadcrumb has no text to embed, or the embedder rejects the
/// text.
#[derive(Clone, Debug)]
pub(in crate::store) struct BreadcrumbVector {
    pub(in crate::store) id: BreadcrumbId,
    pub(in crate::store) version: u64,
    pub(in crate::store) vector: Option<Vec<f32>>,
}

/// Computes and stores the missing vectors of a store's breadcrumbs in the background, with one [`VectorMaintainer`] for each tenant.
#[derive(Debug)]
pub(in crate::store) struct VectorMaintainers {
    config: EmbeddingConfig,
    by_tenant: Tenants<VectorMaintainer>,
}

impl VectorMaintainers {
    pub(in crate::store) fn new(config: EmbeddingConfig) -> Self {
        Self {
            config,
            by_tenant: Tenants::new(),
        }
    }

    pub(in crate::store) fn of(&self, tenant: &str) -> Arc<VectorMaintainer> {
        // A new maintainer can replace a maintainer without handles, because it starts with a pass over all missing vectors.
        self.by_tenant.of(
            tenant,
            |_| true,
            || VectorMaintainer::new(self.config.clone()),
        )
    }
}

/// State of the embedding of one tenant's breadcrumbs, for commits and background passes.
pub(in crate::store) struct VectorMaintainer {
    pub(in crate::store) config: EmbeddingConfig,
    /// If `true`, a breadcrumb of the tenant may lack a vector.
    behind: AtomicBool,
    /// If `true`, the last call of the embedder failed, and commits do not wait for the vectors of their breadcrumbs.
    failing: AtomicBool,
    /// If `true`, a background task embeds the tenant's breadcrumbs without a vector.
    has_background_task: AtomicBool,
    /// Update time in microseconds up to which every breadcrumb of the tenant was embedded, or cannot be embedded.
    until: AtomicI64,
    /// Semaphore that allows one pass over the breadcrumbs without a vector at a time.
    passes: Semaphore,
    /// The start of the last pass over the breadcrumbs without a vector.
    last_pass_at: Mutex<Option<Instant>>,
}

impl VectorMaintainer {
    fn new(config: EmbeddingConfig) -> Self {
        Self {
            config,
            behind: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            has_background_task: AtomicBool::new(false),
            until: AtomicI64::new(i64::MIN),
            passes: Semaphore::new(1),
            last_pass_at: Mutex::default(),
        }
    }

    /// Creates a guard that embeds the breadcrumbs of a commit. Create the guard before the commit starts. If the guard is
    /// dropped before the vectors are stored, it sets `behind`, and the next [`catch_up`](Self::catch_up) starts a pass.
    pub(in crate::store) fn begin(self: &Arc<Self>) -> CommitGuard {
        CommitGuard {
            maintainer: Arc::clone(self),
            is_done: false,
        }
    }

    /// Starts a background task that embeds the breadcrumbs without a vector, unless one is running or no vector is missing. Does
    /// nothing outside of a tokio runtime.
    pub(in crate::store) fn catch_up<S: VectorStore>(self: &Arc<Self>, store: &S) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        // Another process may have left breadcrumbs without a vector.
        if self
            .last_pass()
            .is_none_or(|last_pass_at| last_pass_at.elapsed() > PASS_INTERVAL)
        {
            self.behind.store(true, Ordering::SeqCst);
        }
        if self.behind.load(Ordering::SeqCst)
            && let Some(background_task) = BackgroundTask::begin(self)
        {
            let reopen = store.reopen();
            drop(runtime.spawn(background_task.run(reopen)));
        }
    }

    /// Embeds the breadcrumbs that a commit wrote. Returns `false` if the embedder or the store fails, or if embedding exceeds the
    /// `commit_timeout` of the config.
    async fn embed_now<S: VectorStore>(&self, store: &S, written: Vec<Arc<Breadcrumb>>) -> bool {
        let store = store.clone();
        let reopen = || Some(store.clone());
        match within(self.config.commit_timeout, self.embed(&reopen, written)).await {
            Some(Ok(_)) => true,
            Some(Err(error)) => {
                self.failing.store(true, Ordering::Relaxed);
                tracing::warn!(error = %Chain(&error), "embedding the breadcrumbs of a commit failed; the store will retry in the background");
                false
            }
            None => {
                self.failing.store(true, Ordering::Relaxed);
                let commit_timeout = self.config.commit_timeout;
                tracing::warn!(
                    timeout = ?commit_timeout,
                    "embedding the breadcrumbs of a commit timed out; the store will retry in the background"
                );
                false
            }
        }
    }

    /// Embeds all breadcrumbs without a vector. Returns the number of breadcrumbs that the embedder rejects.
    ///
    /// # Errors
    /// Fails if the store or the embedder fails. The vectors that were stored before stay.
    pub(in crate::store) async fn embedded<S: VectorStore>(
        self: &Arc<Self>,
        store: &S,
    ) -> Result<usize, StoreError> {
        let store = store.clone();
        let refused = self.pass(&|| Some(store.clone())).await?;
        Ok(refused.unwrap_or_default())
    }

    fn last_pass(&self) -> MutexGuard<'_, Option<Instant>> {
        self.last_pass_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one pass, which embeds the breadcrumbs without a vector. The pass skips breadcrumbs that were written up to the
    /// time `until`. Returns the number of breadcrumbs that the embedder rejects, or `None` if the store was closed.
    async fn pass<S: VectorStore>(
        self: &Arc<Self>,
        reopen: &(impl Fn() -> Option<S> + Send + Sync),
    ) -> Result<Option<usize>, StoreError> {
        // The semaphore is never closed.
        let permit = self.passes.acquire().await.ok();
        *self.last_pass() = Some(Instant::now());
        // Later writes set the flag again.
        self.behind.store(false, Ordering::SeqCst);
        let mut guard = self.begin();
        let mut after = Timestamp::from_micros(self.until.load(Ordering::Relaxed));
        let mut refused = 0;
        loop {
            let Some(store) = reopen() else {
                return Ok(None);
            };
            let page = store.without_vector(after, self.config.batch).await?;
            drop(store);
            let embedded = self.embed(reopen, page.found).await;
            self.failing.store(embedded.is_err(), Ordering::Relaxed);
            refused += embedded?;
            after = page.until;
            if !page.more {
                break;
            }
        }
        self.until.store(after.as_micros(), Ordering::Relaxed);
        self.failing.store(false, Ordering::Relaxed);
        guard.is_done = true;
        drop(permit);
        Ok(Some(refused))
    }

    /// Embeds breadcrumbs and stores their vectors in the store. Returns the number of breadcrumbs that the embedder rejects.
    /// Holds no handle of the store during a call of the embedder.
    async fn embed<S: VectorStore>(
        &self,
        reopen: &(impl Fn() -> Option<S> + Send + Sync),
        of: Vec<Arc<Breadcrumb>>,
    ) -> Result<usize, StoreError> {
        let mut refused = 0;
        for chunk in of.chunks(self.config.batch) {
            let Some(store) = reopen() else {
                return Ok(refused);
            };
            let texts = text::texts(&store, chunk).await?;
            drop(store);
            let mut vectors = Vec::with_capacity(chunk.len());
            let (mut texts_to_embed, mut embeddable) = (Vec::new(), Vec::new());
            for (breadcrumb, text) in chunk.iter().zip(texts) {
                match text {
                    Some(text) => {
                        texts_to_embed.push(text);
                        embeddable.push(breadcrumb);
                    }
                    None => vectors.push(of_version(breadcrumb, None)),
                }
            }
            let found = self.config.embed_batch(&texts_to_embed).await;
            refused += found.refused;
            for (breadcrumb, direction) in embeddable.into_iter().zip(found.directions) {
                vectors.push(of_version(breadcrumb, direction));
            }
            // Stored also before a failure is returned, so that the next pass does not embed the same breadcrumbs again.
            if !vectors.is_empty()
                && let Some(store) = reopen()
            {
                store.put_vectors(vectors).await?;
            }
            if let Some(error) = found.failed {
                return Err(error.into());
            }
        }
        Ok(refused)
    }
}

impl fmt::Debug for VectorMaintainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VectorMaintainer")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

fn of_version(breadcrumb: &Breadcrumb, vector: Option<Vec<f32>>) -> BreadcrumbVector {
    BreadcrumbVector {
        id: breadcrumb.id,
        version: breadcrumb.version,
        vector,
    }
}

/// Returns the IDs of the breadcrumbs that a commit deletes, and that therefore need no vectors.
pub(in crate::store) fn deleted(writes: &[Write]) -> BTreeSet<BreadcrumbId> {
    let deleted = writes.iter().filter_map(|write| match write {
        Write::Delete { id, .. } => Some(*id),
        Write::Create(_) | Write::Update { .. } => None,
    });
    deleted.collect()
}

/// Guard that embeds the breadcrumbs of a commit or, if it is dropped before that, records that breadcrumbs may lack a vector.
/// The commit can fail, or its future can be dropped.
pub(in crate::store) struct CommitGuard {
    maintainer: Arc<VectorMaintainer>,
    is_done: bool,
}

impl CommitGuard {
    /// Embeds the breadcrumbs that a commit wrote and did not delete, at once or in the background. The commit succeeds even if
    /// embedding fails.
    pub(in crate::store) async fn committed<S: VectorStore>(
        mut self,
        store: &S,
        written: &[Arc<Breadcrumb>],
        deleted: BTreeSet<BreadcrumbId>,
    ) {
        let maintainer = Arc::clone(&self.maintainer);
        let mut ids = deleted;
        // Only the last version of each breadcrumb counts.
        let last = written.iter().rev().filter(|one| ids.insert(one.id));
        let last: Vec<_> = last.cloned().collect();
        if last.is_empty() {
            self.is_done = true;
        } else if !maintainer.config.later && !maintainer.failing.load(Ordering::Relaxed) {
            self.is_done = maintainer.embed_now(store, last).await;
        }
        drop(self);
        maintainer.catch_up(store);
    }
}

impl Drop for CommitGuard {
    fn drop(&mut self) {
        if !self.is_done {
            self.maintainer.behind.store(true, Ordering::SeqCst);
        }
    }
}

/// A background task that embeds the breadcrumbs without a vector. Its drop resets `has_background_task`, even if the tokio runtime
/// drops the task.
struct BackgroundTask(Arc<VectorMaintainer>);

impl BackgroundTask {
    fn begin(maintainer: &Arc<VectorMaintainer>) -> Option<Self> {
        let was_running = maintainer.has_background_task.swap(true, Ordering::SeqCst);
        (!was_running).then(|| Self(Arc::clone(maintainer)))
    }

    /// Runs passes over the breadcrumbs without a vector until no vector is missing or the store is closed.
    async fn run<S: VectorStore>(self, reopen: impl Fn() -> Option<S> + Send + Sync + 'static) {
        let maintainer = Arc::clone(&self.0);
        let mut background_task = Some(self);
        let mut failed = 0;
        while background_task.is_some() {
            while maintainer.behind.load(Ordering::SeqCst) {
                match maintainer.pass(&reopen).await {
                    Ok(Some(_)) => failed = 0,
                    Ok(None) => return,
                    Err(error) => {
                        failed += 1;
                        tracing::warn!(error = %Chain(&error), failed, "embedding the breadcrumbs without a vector failed; the store will retry");
                        tokio::time::sleep(pause(&error, failed)).await;
                    }
                }
            }
            drop(background_task.take());
            // A caller of `catch_up` that saw `has_background_task` set has started no task.
            if maintainer.behind.load(Ordering::SeqCst) {
                background_task = Self::begin(&maintainer);
            }
        }
    }
}

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        self.0.has_background_task.store(false, Ordering::SeqCst);
    }
}

/// Returns the delay before the next pass after `failed` consecutive failed passes: exponential from 1 s to [`LONGEST_PAUSE`]. An
/// error that no retry can fix is retried after [`LONGEST_PAUSE`], because breadcrumbs written in the meantime may be embedded
/// without an error.
fn pause(error: &StoreError, failed: u32) -> Duration {
    match error.retry() {
        Retry::After(least) => {
            full_jitter(failed, Duration::from_secs(1), LONGEST_PAUSE, 1.0).max(least)
        }
        Retry::Never => LONGEST_PAUSE,
    }
}
