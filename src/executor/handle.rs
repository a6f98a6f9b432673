//! What a context knows of the run it belongs to, and how it saves that run's progress.

use super::ambient::Offer;
use super::bound::Terms;
use super::context::Resumed;
use super::context_error::ContextError;
use crate::model::{Breadcrumb, Json, Timestamp};
use crate::store::{Lease, RunLedger, RunRef, StoreError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

/// The run a context belongs to.
#[derive(Debug, Default)]
pub(super) struct RunHandle {
    /// None for a context that was made by hand.
    pub(super) terms: Option<Terms>,
    pub(super) tenant: String,
    pub(super) attempt: u32,
    /// Set when `execute` is called.
    pub(super) deadline: OnceLock<Timestamp>,
    pub(super) resumed: Option<Resumed>,
    pub(super) cancellation: Cancellation,
    pub(super) saves: Saves,
    /// Of the runtime that processes the run, if one does.
    pub(super) offer: Option<Arc<Offer>>,
    pub(super) key: OnceLock<String>,
}

impl RunHandle {
    /// The handle of a context that belongs to no run.
    pub(super) fn detached(resumed: Option<Resumed>) -> Self {
        Self {
            attempt: 1,
            resumed,
            ..Self::default()
        }
    }

    /// The idempotency key of the run; of a context made by hand one that its trigger gives.
    pub(super) fn key(&self, trigger: &Breadcrumb) -> &str {
        self.key.get_or_init(|| match &self.terms {
            Some(terms) => terms.lease.key(&self.tenant),
            None => RunRef::new("", trigger.id, trigger.version).key("", 0),
        })
    }

    pub(super) async fn save(&self, state: Json) -> Result<(), ContextError> {
        if !self.terms.as_ref().is_some_and(|terms| terms.in_ledger) {
            return Err(ContextError::Unsupported {
                operation: "save",
                reason: "the store has no run ledger, or the context was made by hand",
            });
        }
        let answer = self.saves.ask(state)?;
        match answer.await {
            Ok(saved) => saved.map_err(|error| ContextError::Store(Arc::new(error))),
            Err(_) => Err(RUN_IS_OVER),
        }
    }
}

/// Whether the run is over, for work that was spawned in it. Costs nothing until somebody asks.
#[derive(Debug, Default)]
pub(super) struct Cancellation {
    over: AtomicBool,
    token: OnceLock<CancellationToken>,
}

impl Cancellation {
    /// Resolves when the run is over.
    pub(super) fn wait(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let token = self.token.get_or_init(CancellationToken::new).clone();
        // `cancel` sets the flag first, so one of the two sees the other.
        if self.over.load(Ordering::SeqCst) {
            token.cancel();
        }
        token.cancelled_owned()
    }

    fn cancel(&self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }
}

/// Cancels what was spawned in a run when it is dropped, however the run ends, and refuses its saves from then on.
#[derive(Debug)]
pub(super) struct CancelGuard(pub(super) Arc<RunHandle>);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.cancellation.cancel();
        self.0.saves.close();
    }
}

type Answer = oneshot::Sender<Result<(), StoreError>>;

/// States to be saved by whoever holds the lease, which is not the context.
#[derive(Debug, Default)]
pub(super) struct Saves {
    asked: Mutex<Queue>,
    added: Notify,
}

#[derive(Debug)]
enum Queue {
    Open(Vec<(Json, Answer)>),
    /// The run is over, so nobody saves any more.
    Closed,
}

impl Default for Queue {
    fn default() -> Self {
        Self::Open(Vec::new())
    }
}

const RUN_IS_OVER: ContextError = ContextError::Unsupported {
    operation: "save",
    reason: "the run has ended",
};

impl Saves {
    /// How many tasks of one run may wait for a save at a time.
    const MOST: usize = 64;

    fn ask(&self, state: Json) -> Result<oneshot::Receiver<Result<(), StoreError>>, ContextError> {
        let (answer, answered) = oneshot::channel();
        let mut queue = self.queue();
        let asked = match &mut *queue {
            Queue::Open(asked) => asked,
            Queue::Closed => return Err(RUN_IS_OVER),
        };
        if asked.len() >= Self::MOST {
            return Err(ContextError::Unsupported {
                operation: "save",
                reason: "64 saves of this run are waiting already",
            });
        }
        asked.push((state, answer));
        drop(queue);
        self.added.notify_one();
        Ok(answered)
    }

    /// Saves what is asked for until dropped.
    pub(super) async fn serve(&self, ledger: &dyn RunLedger, lease: &Lease) {
        loop {
            self.added.notified().await;
            for (state, answer) in self.take() {
                let saved = ledger.save(lease, state).await;
                // Whoever asked may have been dropped since; the state is saved all the same.
                drop(answer.send(saved));
            }
        }
    }

    /// Refuses what is asked from now on, and tells those who wait.
    fn close(&self) {
        let waiting = std::mem::replace(&mut *self.queue(), Queue::Closed);
        drop(waiting);
    }

    fn take(&self) -> Vec<(Json, Answer)> {
        match &mut *self.queue() {
            Queue::Open(asked) => std::mem::take(asked),
            Queue::Closed => Vec::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
