//! What a context knows of the run it belongs to, and how it saves that run's progress.

use super::bound::Terms;
use super::context::{ContextError, Resumed};
use crate::model::{Json, Timestamp};
use crate::store::{Lease, RunLedger, RunRef, StoreError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

/// The run a context belongs to.
#[derive(Clone, Debug)]
pub(super) struct RunHandle {
    pub(super) run: RunRef,
    pub(super) tenant: String,
    pub(super) epoch: u32,
    pub(super) key: OnceLock<String>,
    pub(super) attempt: u32,
    pub(super) deadline: Option<Timestamp>,
    pub(super) cancellation: CancellationToken,
    pub(super) resumed: Option<Resumed>,
    /// None for a context that was made by hand.
    pub(super) terms: Option<Arc<Terms>>,
    /// None where nothing can be saved.
    pub(super) saves: Option<Arc<Saves>>,
}

impl RunHandle {
    /// The handle of a context that belongs to no run.
    pub(super) fn detached(run: RunRef) -> Self {
        Self {
            run,
            tenant: String::new(),
            epoch: 0,
            key: OnceLock::new(),
            attempt: 1,
            deadline: None,
            cancellation: CancellationToken::new(),
            resumed: None,
            terms: None,
            saves: None,
        }
    }

    pub(super) fn key(&self) -> &str {
        self.key
            .get_or_init(|| self.run.key(&self.tenant, self.epoch))
    }

    pub(super) async fn save(&self, state: Json) -> Result<(), ContextError> {
        let Some(saves) = &self.saves else {
            return Err(ContextError::Unsupported {
                operation: "save",
                reason: "the store has no run ledger, or the context was made by hand",
            });
        };
        let answer = saves.ask(state)?;
        match answer.await {
            Ok(saved) => saved.map_err(|error| ContextError::Store(Arc::new(error))),
            Err(_) => Err(ContextError::Unsupported {
                operation: "save",
                reason: "the run has ended",
            }),
        }
    }
}

type Answer = oneshot::Sender<Result<(), StoreError>>;

/// States to be saved by whoever holds the lease, which is not the context.
#[derive(Debug, Default)]
pub(super) struct Saves {
    asked: Mutex<Vec<(Json, Answer)>>,
    added: Notify,
}

impl Saves {
    /// How many tasks of one run may wait for a save at a time.
    const MOST: usize = 64;

    fn ask(&self, state: Json) -> Result<oneshot::Receiver<Result<(), StoreError>>, ContextError> {
        let (answer, answered) = oneshot::channel();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() >= Self::MOST {
            return Err(ContextError::Unsupported {
                operation: "save",
                reason: "64 saves of this run are waiting already",
            });
        }
        asked.push((state, answer));
        drop(asked);
        self.added.notify_one();
        Ok(answered)
    }

    /// Saves what is asked for until dropped.
    pub(super) async fn serve(&self, ledger: &dyn RunLedger, lease: &Lease) {
        loop {
            self.added.notified().await;
            let asked =
                std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner));
            for (state, answer) in asked {
                let saved = ledger.save(lease, state).await;
                // Whoever asked may have been dropped since; the state is saved all the same.
                drop(answer.send(saved));
            }
        }
    }
}
