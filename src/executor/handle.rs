//! What a context knows of the run it belongs to.

use super::context_error::ContextError;
#[cfg(feature = "workflows")]
use super::inner::Inner;
use super::keep_state::KeepState;
use super::lease_requests::Asks;
use super::provenance::Stamp;
use super::resumed::Resumed;
use super::runtime_context::RunScope;
use super::turn_events::TurnEvents;
use crate::clock;
use crate::model::{Breadcrumb, BreadcrumbId, Json, Timestamp};
use crate::store::schema_hints::HintsOfSchemas;
use crate::store::{Lease, RunRef, WrittenBy};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Conditions of a write of a run, and the stamp of the write.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) stamp: Arc<Stamp>,
    pub(super) responds_with: Option<Vec<String>>,
    pub(super) lease: Lease,
    /// If `true`, the store has the ledger of the lease, which fences the writes.
    pub(super) in_ledger: bool,
}

/// The run a context belongs to.
#[derive(Debug, Default)]
pub(super) struct RunHandle {
    /// None for a context that was made by hand.
    pub(super) terms: Option<Terms>,
    pub(super) tenant: String,
    pub(super) attempt: u32,
    /// Set when `execute` is called.
    pub(super) deadline: OnceLock<Timestamp>,
    /// The store's time at a moment, set with it.
    pub(super) began: OnceLock<(Timestamp, Instant)>,
    pub(super) resumed: Option<Resumed>,
    pub(super) cancellation: Cancellation,
    pub(super) asks: Asks,
    /// Of the runtime that processes the run, if one does.
    pub(super) scope: Option<Arc<RunScope>>,
    pub(super) key: OnceLock<String>,
    /// Events for the client, if the trigger is a message of a chat session.
    pub(super) turn_events: Option<Arc<TurnEvents>>,
    /// Of a run within a run: who keeps its state, and the run it is in.
    pub(super) keeper: Option<Arc<dyn KeepState>>,
    pub(super) outer: Option<Arc<Self>>,
    /// If `true`, the trigger of a run within a run is the words of a user.
    #[cfg(feature = "agents")]
    pub(super) for_user: bool,
    /// Result of the first check of whether the trigger is the words of a user.
    #[cfg(feature = "agents")]
    pub(super) from_user: OnceLock<bool>,
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

    /// The handle of a run within a run.
    #[cfg(feature = "workflows")]
    pub(super) fn within(outer: Arc<Self>, inner: Inner) -> Self {
        Self {
            terms: outer.terms.clone(),
            tenant: outer.tenant.clone(),
            attempt: outer.attempt,
            deadline: outer.deadline.clone(),
            began: outer.began.clone(),
            scope: outer.scope.clone(),
            key: OnceLock::from(inner.key),
            keeper: Some(inner.keeper),
            outer: Some(outer),
            for_user: inner.for_user,
            ..Self::detached(inner.resumed)
        }
    }

    /// The idempotency key of the run; of a context made by hand one that its trigger gives.
    pub(super) fn key(&self, trigger: &Breadcrumb) -> &str {
        self.key.get_or_init(|| match &self.terms {
            Some(terms) => terms.lease.key(&self.tenant),
            None => RunRef::new("", trigger.id, trigger.version).key("", 0),
        })
    }

    /// The time by the store's clock; outside a run that of the machine.
    pub(super) fn now(&self) -> Timestamp {
        match self.began.get() {
            Some((time, moment)) => *time + moment.elapsed(),
            None => Timestamp::from_micros(clock::wall_micros()),
        }
    }

    /// Resolves when the run is over: that of the whole, of a run within a run.
    pub(super) fn over(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let whole = self.outer.as_deref().unwrap_or(self);
        whole.cancellation.wait()
    }

    pub(super) async fn save(&self, state: Json) -> Result<(), ContextError> {
        if let Some(keeper) = &self.keeper {
            return keeper.keep(state).await;
        }
        if !self.terms.as_ref().is_some_and(|terms| terms.in_ledger) {
            return Err(ContextError::Unsupported {
                operation: "save",
                reason: "the store has no run ledger, or the context was made by hand",
            });
        }
        self.asks.save(state).await
    }

    /// Returns who wrote the version of a breadcrumb, or `None` if the store does not record that.
    pub(super) async fn written_by(
        &self,
        found: &Breadcrumb,
    ) -> Result<Option<WrittenBy>, ContextError> {
        let whole = self.outer.as_deref().unwrap_or(self);
        whole.asks.written_by((found.id, found.version)).await
    }

    /// Returns the breadcrumbs that the run wrote so far, or `None` if the store does not record that.
    pub(super) async fn written(&self) -> Result<Option<HashSet<BreadcrumbId>>, ContextError> {
        let whole = self.outer.as_deref().unwrap_or(self);
        whole.asks.written().await
    }

    /// What definitions say of schemas; of a context that belongs to no run nobody can tell.
    pub(super) async fn hints_of(
        &self,
        schemas: Vec<String>,
    ) -> Result<HintsOfSchemas, ContextError> {
        if self.terms.is_none() {
            return Err(ContextError::Unsupported {
                operation: "for_model",
                reason: "outside a run nobody reads what the hints of schemas are; \
                         call it in execute, or make the context with for_trigger",
            });
        }
        if schemas.is_empty() {
            return Ok(HintsOfSchemas::new());
        }
        let whole = self.outer.as_deref().unwrap_or(self);
        whole.asks.hints(schemas).await
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

/// Cancels what was spawned in a run when it is dropped, however the run ends, and refuses what it asks for from then on.
#[derive(Debug)]
pub(super) struct CancelGuard(pub(super) Arc<RunHandle>);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.cancellation.cancel();
        self.0.asks.close();
    }
}
