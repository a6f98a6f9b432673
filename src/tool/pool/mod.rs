mod calls;

use crate::error::{BoxError, retry_after};
use calls::{Calls, EndedCall, StuckCheck};
use std::fmt;
use std::future::pending;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until};

/// Pool for blocking functions: a bounded number of functions run at a time, each on its own thread. A clone is a handle to the same
/// pool.
///
/// A thread cannot be stopped from outside. After a timeout or a cancellation, a call retains its slot until its function returns, and
/// the result is discarded.
///
/// If the function takes longer than [`stuck_after`](Self::stuck_after) to return, the call is *stuck*. The pool then logs a warning
/// with the tool name, and adds a replacement slot until the function returns. A pool has at most as many replacements as slots, and so
/// at most twice as many threads as slots. Once [all of them are stuck](Self::all_stuck), no function can start until one returns, and
/// the process should be restarted.
///
/// A stuck thread delays neither the exit of the process nor the shutdown of an async runtime. Calls wait for a slot in the order of
/// their arrival. The pool does not limit the number of waiting calls. The callers limit it, for example a runtime by its runs.
///
/// Use a separate pool for tools that can hang or take long, so that they do not use up the slots
/// of other tools. Otherwise the [shared](Self::shared) pool suffices.
///
/// ```
/// use std::num::NonZeroUsize;
/// use universal_executor::tool::{BlockingPool, json_tool_blocking};
///
/// let disk = BlockingPool::new(NonZeroUsize::new(4).ok_or("no slots")?);
/// let read = json_tool_blocking("read", "Reads a file.", serde_json::json!({"type": "string"}), |path, _| {
///     Ok(std::fs::read_to_string(path.as_str().unwrap_or_default())?.into())
/// });
/// let read = read.on(&disk);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone)]
pub struct BlockingPool(Arc<Inner>);

struct Inner {
    slots: usize,
    /// The free permits of the pool. Each slot and each replacement slot has one permit. A running call holds a permit.
    free: Arc<Semaphore>,
    calls: Mutex<Calls>,
    /// Notification that a caller stopped waiting for a blocking call. The check for stuck calls then computes its next time again,
    /// because this call may become stuck next.
    call_abandoned: Notify,
}

/// Delay of the retry of a blocking call for which no thread could be started.
const THREAD_RETRY_DELAY: Duration = Duration::from_secs(1);

impl BlockingPool {
    /// Creates a pool that runs at most `slots` blocking functions at a time, apart from replacements for stuck calls.
    ///
    /// # Examples
    /// ```
    /// use std::num::NonZeroUsize;
    /// use std::time::Duration;
    /// use universal_executor::tool::BlockingPool;
    ///
    /// let slots = NonZeroUsize::new(4).ok_or("no slots")?;
    /// let pool = BlockingPool::new(slots).stuck_after(Duration::from_secs(30));
    /// assert_eq!((pool.slots(), pool.busy(), pool.stuck()), (4, 0, 0));
    /// assert!(!pool.all_stuck());
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn new(slots: NonZeroUsize) -> Self {
        let slots = slots.get().min(Semaphore::MAX_PERMITS / 2);
        Self(Arc::new(Inner {
            slots,
            free: Arc::new(Semaphore::new(slots)),
            calls: Mutex::new(Calls::new(slots)),
            call_abandoned: Notify::new(),
        }))
    }

    /// Returns the shared pool of the process, which has 16 slots. It is the default pool of blocking tools.
    ///
    /// ```
    /// use universal_executor::tool::BlockingPool;
    ///
    /// assert_eq!(BlockingPool::shared().slots(), 16);
    /// ```
    #[must_use]
    pub fn shared() -> Self {
        static SHARED: LazyLock<BlockingPool> =
            LazyLock::new(|| BlockingPool::new(NonZeroUsize::MIN.saturating_add(15)));
        SHARED.clone()
    }

    /// Sets the duration after which a blocking call without a waiting caller counts as stuck. Defaults to 10 s. The setting
    /// applies to all clones of the pool.
    ///
    /// The time counts from the timeout or the cancellation of the call, not from its start.
    #[must_use]
    pub fn stuck_after(self, after: Duration) -> Self {
        self.0.calls().stuck_after = after;
        self.0.call_abandoned.notify_waiters();
        self
    }

    /// Returns the number of slots of the pool, which is the maximum number of concurrent calls. Replacements for the slots of stuck calls
    /// do not count.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.0.slots
    }

    /// Returns the number of blocking calls that run on the pool, including stuck calls.
    ///
    /// Report it as a gauge. A value near [`slots`](Self::slots) means that further calls wait.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.0.check_stuck(Instant::now());
        self.0.calls().running()
    }

    /// Returns the number of stuck calls: their functions still run, but no caller waits for them.
    ///
    /// An alert on a value above 0 finds tools whose functions have no timeout.
    #[must_use]
    pub fn stuck(&self) -> usize {
        self.0.check_stuck(Instant::now());
        self.0.calls().stuck()
    }

    /// Returns `true` if stuck calls hold all slots and replacements, so no function can start. A readiness probe should then fail.
    #[must_use]
    pub fn all_stuck(&self) -> bool {
        self.stuck() >= self.0.slots.saturating_mul(2)
    }

    /// Waits for a slot of the pool, then runs a blocking function on its own thread. The function can access the async runtime of
    /// the caller with `Handle::current()`.
    ///
    /// # Panics
    /// Resumes the panic of the function.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        tool: &str,
        function: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, BoxError> {
        let permit = self.permit().await?;
        let (slot, _caller) = self.0.start_call(tool, permit);
        let (sender, receiver) = oneshot::channel();
        let (span, runtime) = (tracing::Span::current(), Handle::try_current().ok());
        let work = move || {
            let entered = || {
                let _entered = runtime.as_ref().map(Handle::enter);
                span.in_scope(function)
            };
            let outcome = catch_unwind(AssertUnwindSafe(entered));
            // The slot is free before the caller receives the result.
            drop(slot);
            drop(sender.send(outcome));
        };
        // A name with a zero byte would make `spawn` panic.
        let thread = thread::Builder::new().name(tool.replace('\0', ""));
        if let Err(error) = thread.spawn(work) {
            let message = format!("cannot start a thread for the tool: {error}");
            return Err(retry_after(THREAD_RETRY_DELAY, message));
        }
        match receiver.await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err("the thread of the tool ended without a result".into()),
        }
    }

    /// Waits for a slot of the pool, in the order of arrival. Also wakes when a call becomes stuck, and replaces its slot.
    async fn permit(&self) -> Result<OwnedSemaphorePermit, BoxError> {
        let mut free = pin!(Arc::clone(&self.0.free).acquire_owned());
        loop {
            let mut call_abandoned = pin!(self.0.call_abandoned.notified());
            // Enabled before the check, so that no notification after the check is missed.
            call_abandoned.as_mut().enable();
            let next = self.0.check_stuck(Instant::now());
            tokio::select! {
                biased;
                permit = &mut free => return Ok(permit?),
                () = call_abandoned => {}
                () = sleep_until_some(next) => {}
            }
        }
    }
}

async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

impl Inner {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the start of a blocking call. Returns a guard for the call's slot, and a guard for the caller that
    /// waits. The guard [`SlotGuard`] releases the permit on drop, after the function has returned. The guard
    /// [`CallerGuard`] records on drop that no caller waits for the call.
    fn start_call(
        self: &Arc<Self>,
        tool: &str,
        permit: OwnedSemaphorePermit,
    ) -> (SlotGuard, CallerGuard) {
        let call = self.calls().start(tool);
        let slot = SlotGuard {
            pool: Arc::clone(self),
            call,
            permit: Some(permit),
        };
        let caller = CallerGuard {
            pool: Arc::clone(self),
            call,
        };
        (slot, caller)
    }

    /// Checks for blocking calls that have become stuck, logs them and replaces their slots. Returns the time at which the next
    /// call can become stuck.
    fn check_stuck(&self, now: Instant) -> Option<Instant> {
        let StuckCheck {
            stuck,
            replaced,
            next,
        } = self.calls().check_stuck(now);
        self.free.add_permits(replaced);
        for (at, tool) in stuck.iter().enumerate() {
            let replaced = at < replaced;
            tracing::warn!(
                tool = &**tool,
                replaced,
                "a blocking tool call is stuck: its function still runs, but no caller waits for it; restart the process once \
                 BlockingPool::all_stuck returns true"
            );
        }
        next
    }
}

/// Guard of a slot of a blocking pool, which a thread holds until its function returns.
struct SlotGuard {
    pool: Arc<Inner>,
    call: u64,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let EndedCall { surplus, was_stuck } = self.pool.calls().end(self.call);
        match self.permit.take() {
            Some(permit) if surplus => permit.forget(),
            permit => drop(permit),
        }
        if let Some(tool) = was_stuck {
            tracing::info!(
                tool = &*tool,
                "a stuck blocking tool call has returned; its result is discarded"
            );
        }
    }
}

/// Guard that records on drop that no caller waits for a blocking call. The drop has no effect after the function has returned.
struct CallerGuard {
    pool: Arc<Inner>,
    call: u64,
}

impl Drop for CallerGuard {
    fn drop(&mut self) {
        if self.pool.calls().abandon(self.call, Instant::now()) {
            self.pool.call_abandoned.notify_waiters();
        }
    }
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool")
            .field("slots", &self.slots())
            .field("busy", &self.busy())
            .finish_non_exhaustive()
    }
}
