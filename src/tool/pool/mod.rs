mod calls;

use crate::error::{BoxError, retry_after};
use calls::{Calls, Ended, Found};
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

/// Where functions run that block: a bounded number at a time, each on a thread of its own. A clone is the same pool.
///
/// A thread cannot be stopped from outside. When nobody waits for a call any more, after a timeout or a cancellation,
/// it keeps its slot until the function returns, and its result is discarded. If that takes longer than
/// [`stuck_after`](Self::stuck_after) the call is *stuck*: that is logged once, with the tool's name, and its slot is
/// replaced by a new one until the function returns after all. There are at most as many replacements as slots, so a
/// pool never has more threads than twice its slots. Once [all of them are stuck](Self::all_stuck) nothing can run any
/// more, and only a restart of the process helps.
///
/// The threads belong to the process alone: a stuck one holds up neither its exit nor the shutdown of an async
/// runtime. Calls that wait for a slot wait in the order in which they came; how many may is bounded by who calls, as
/// the runtime bounds its runs.
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
    /// A permit for every slot and every replacement that no call holds.
    free: Arc<Semaphore>,
    calls: Mutex<Calls>,
    /// Told when a call is left alone, since the moment at which it will be stuck may be the next one.
    left_alone: Notify,
}

/// How long a call that could have no thread waits until it is tried again.
const NO_THREAD: Duration = Duration::from_secs(1);

impl BlockingPool {
    /// A pool of so many slots.
    #[must_use]
    pub fn new(slots: NonZeroUsize) -> Self {
        let slots = slots.get().min(Semaphore::MAX_PERMITS / 2);
        Self(Arc::new(Inner {
            slots,
            free: Arc::new(Semaphore::new(slots)),
            calls: Mutex::new(Calls::new(slots)),
            left_alone: Notify::new(),
        }))
    }

    /// The pool of the process, with 16 slots: that of every tool that is given no other.
    #[must_use]
    pub fn shared() -> Self {
        static SHARED: LazyLock<BlockingPool> =
            LazyLock::new(|| BlockingPool::new(NonZeroUsize::MIN.saturating_add(15)));
        SHARED.clone()
    }

    /// Sets how long a call may go on that nobody waits for until it counts as stuck; 10 s by default. For every clone.
    #[must_use]
    pub fn stuck_after(self, after: Duration) -> Self {
        self.0.calls().stuck_after = after;
        self.0.left_alone.notify_waiters();
        self
    }

    /// How many calls may run at a time, stuck ones and their replacements apart.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.0.slots
    }

    /// How many calls run, the stuck ones among them.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.0.look(Instant::now());
        self.0.calls().running()
    }

    /// How many calls are stuck.
    #[must_use]
    pub fn stuck(&self) -> usize {
        self.0.look(Instant::now());
        self.0.calls().stuck()
    }

    /// Whether every slot and every replacement is held by a stuck call, so that nothing can run: what a readiness
    /// probe should fail on.
    #[must_use]
    pub fn all_stuck(&self) -> bool {
        self.stuck() >= self.0.slots.saturating_mul(2)
    }

    /// Runs a function that blocks on a thread of its own, once there is a slot. Inside, the async runtime of the
    /// caller can be reached through `Handle::current()`.
    ///
    /// Goes on with the panic of the function if it panics.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        tool: &str,
        function: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, BoxError> {
        let permit = self.permit().await?;
        let (slot, _waiting) = self.0.begin(tool, permit);
        let (sender, receiver) = oneshot::channel();
        let (span, runtime) = (tracing::Span::current(), Handle::try_current().ok());
        let work = move || {
            let entered = || {
                let _entered = runtime.as_ref().map(Handle::enter);
                span.in_scope(function)
            };
            let outcome = catch_unwind(AssertUnwindSafe(entered));
            // First, so that whoever gets the result finds the slot free.
            drop(slot);
            drop(sender.send(outcome));
        };
        // A name with a zero byte would make `spawn` panic.
        let thread = thread::Builder::new().name(tool.replace('\0', ""));
        if let Err(error) = thread.spawn(work) {
            let message = format!("no thread could be started for the tool: {error}");
            return Err(retry_after(NO_THREAD, message));
        }
        match receiver.await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err("the thread of the tool ended without a result".into()),
        }
    }

    /// Waits for a slot, in turn. Wakes at the next moment at which a call could become stuck, and replaces its slot.
    async fn permit(&self) -> Result<OwnedSemaphorePermit, BoxError> {
        let mut free = pin!(Arc::clone(&self.0.free).acquire_owned());
        loop {
            let mut left_alone = pin!(self.0.left_alone.notified());
            // Before looking, so that nothing that happens after it is missed.
            left_alone.as_mut().enable();
            let next = self.0.look(Instant::now());
            tokio::select! {
                biased;
                permit = &mut free => return Ok(permit?),
                () = left_alone => {}
                () = at(next) => {}
            }
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

impl Inner {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a call starts.
    fn begin(self: &Arc<Self>, tool: &str, permit: OwnedSemaphorePermit) -> (Slot, Waiting) {
        let call = self.calls().start(tool);
        let slot = Slot {
            pool: Arc::clone(self),
            call,
            permit: Some(permit),
        };
        let waiting = Waiting {
            pool: Arc::clone(self),
            call,
        };
        (slot, waiting)
    }

    /// Looks for calls that have become stuck, says so and replaces their slots; returns when the next one could.
    fn look(&self, now: Instant) -> Option<Instant> {
        let Found {
            stuck,
            replaced,
            next,
        } = self.calls().look(now);
        self.free.add_permits(replaced);
        for (at, tool) in stuck.iter().enumerate() {
            let replaced = at < replaced;
            tracing::warn!(tool = &**tool, replaced, "a blocking call is stuck");
        }
        next
    }
}

/// What a thread holds until its function has returned.
struct Slot {
    pool: Arc<Inner>,
    call: u64,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Ended { surplus, was_stuck } = self.pool.calls().end(self.call);
        match self.permit.take() {
            Some(permit) if surplus => permit.forget(),
            permit => drop(permit),
        }
        if let Some(tool) = was_stuck {
            tracing::info!(tool = &*tool, "a stuck call has returned");
        }
    }
}

/// Whoever waits for a call. Dropped before the function has returned, it leaves the call alone.
struct Waiting {
    pool: Arc<Inner>,
    call: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.pool.calls().leave_alone(self.call, Instant::now()) {
            self.pool.left_alone.notify_waiters();
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
