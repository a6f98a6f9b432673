//! The run that an execution context belongs to.

use super::context_error::ContextError;
#[cfg(feature = "workflows")]
use super::inner::InnerRun;
use super::lease_requests::LeaseRequests;
use super::provenance::Stamp;
use super::resumed::Resumed;
use super::runtime_context::RunScope;
use super::state_storage::StateStorage;
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

/// Conditions for the writes of a run: the origin data that each write receives, such as the author, the allowed schemas, and the
/// lease.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) stamp: Arc<Stamp>,
    pub(super) responds_with: Option<Vec<String>>,
    pub(super) lease: Lease,
    /// If `true`, the lease is in the store's own run ledger, and the store refuses the run's writes after the lease is lost.
    pub(super) in_ledger: bool,
}

/// Handle of the run that an execution context belongs to.
#[derive(Debug, Default)]
pub(super) struct RunHandle {
    /// Conditions for the writes of the run (allowed schemas, lease, and origin data such as the author), or `None` for an
    /// execution context outside a run.
    pub(super) terms: Option<Terms>,
    pub(super) tenant: String,
    pub(super) attempt: u32,
    /// The time at which `execute` of the run times out. Set when `execute` is called.
    pub(super) deadline: OnceLock<Timestamp>,
    /// The time at which `execute` was called, by the store's clock and by the monotonic clock of this process. Set together with
    /// `deadline`.
    pub(super) began: OnceLock<(Timestamp, Instant)>,
    pub(super) resumed: Option<Resumed>,
    pub(super) cancellation: Cancellation,
    pub(super) lease_requests: LeaseRequests,
    /// State that the runtime shares with the run, such as the concurrency permit, or `None` outside a runtime.
    pub(super) scope: Option<Arc<RunScope>>,
    pub(super) key: OnceLock<String>,
    /// Buffer of events for the client of a chat turn, or `None` if the trigger is not a message of a chat session.
    pub(super) turn_events: Option<Arc<TurnEvents>>,
    /// The storage that saves the state of an inner run, or `None` if this run is not within another run.
    pub(super) state_storage: Option<Arc<dyn StateStorage>>,
    /// The run within which this run executes, or `None` if this run is not within another run.
    pub(super) outer: Option<Arc<Self>>,
    /// If `true`, the trigger of the inner run contains text that a user wrote.
    #[cfg(feature = "agents")]
    pub(super) for_user: bool,
    /// Cached answer of `is_from_user`, which is `true` if the trigger contains text that a user wrote.
    #[cfg(feature = "agents")]
    pub(super) from_user: OnceLock<bool>,
}

impl RunHandle {
    /// Creates the run handle for an execution context that belongs to no run.
    pub(super) fn detached(resumed: Option<Resumed>) -> Self {
        Self {
            attempt: 1,
            resumed,
            ..Self::default()
        }
    }

    /// Creates the run handle of a run within the outer run `outer`.
    #[cfg(feature = "workflows")]
    pub(super) fn within(outer: Arc<Self>, inner: InnerRun) -> Self {
        Self {
            terms: outer.terms.clone(),
            tenant: outer.tenant.clone(),
            attempt: outer.attempt,
            deadline: outer.deadline.clone(),
            began: outer.began.clone(),
            scope: outer.scope.clone(),
            key: OnceLock::from(inner.key),
            state_storage: Some(inner.state_storage),
            outer: Some(outer),
            for_user: inner.for_user,
            ..Self::detached(inner.resumed)
        }
    }

    /// Returns the idempotency key of the run. Outside a run, returns a key that is derived from the trigger.
    pub(super) fn key(&self, trigger: &Breadcrumb) -> &str {
        self.key.get_or_init(|| match &self.terms {
            Some(terms) => terms.lease.key(&self.tenant),
            None => RunRef::new("", trigger.id, trigger.version).key("", 0),
        })
    }

    /// Returns the current time by the store's clock or, outside a run, by the machine's clock.
    pub(super) fn now(&self) -> Timestamp {
        match self.began.get() {
            Some((time, moment)) => *time + moment.elapsed(),
            None => Timestamp::from_micros(clock::wall_micros()),
        }
    }

    /// Returns a future that resolves when the run is over. For a run within a run, this is the end of the outer run.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let outermost = self.outer.as_deref().unwrap_or(self);
        outermost.cancellation.wait()
    }

    pub(super) async fn save(&self, state: Json) -> Result<(), ContextError> {
        if let Some(state_storage) = &self.state_storage {
            return state_storage.save_state(state).await;
        }
        if !self.terms.as_ref().is_some_and(|terms| terms.in_ledger) {
            return Err(ContextError::Unsupported {
                operation: "save",
                reason: "the store has no run ledger, or the context belongs to no run",
            });
        }
        self.lease_requests.save(state).await
    }

    /// Returns the recorded writer of a breadcrumb's version, or `None` if the store does not record writers.
    pub(super) async fn written_by(
        &self,
        found: &Breadcrumb,
    ) -> Result<Option<WrittenBy>, ContextError> {
        let outermost = self.outer.as_deref().unwrap_or(self);
        outermost
            .lease_requests
            .written_by((found.id, found.version))
            .await
    }

    /// Returns the breadcrumbs that the run wrote so far, or `None` if the store does not record writers.
    pub(super) async fn written(&self) -> Result<Option<HashSet<BreadcrumbId>>, ContextError> {
        let outermost = self.outer.as_deref().unwrap_or(self);
        outermost.lease_requests.written().await
    }

    /// Returns the hints (`llm_hints`) of the given schemas, from the schema definitions in the run's store.
    ///
    /// # Errors
    /// [`ContextError::Unsupported`] outside a run, because such a context has no store, and [`ContextError::Store`].
    pub(super) async fn hints_of(
        &self,
        schemas: Vec<String>,
    ) -> Result<HintsOfSchemas, ContextError> {
        if self.terms.is_none() {
            return Err(ContextError::Unsupported {
                operation: "for_model",
                reason: "a context outside a run cannot read the hints of schemas; \
                         call for_model in execute, or create the context with for_trigger",
            });
        }
        if schemas.is_empty() {
            return Ok(HintsOfSchemas::new());
        }
        let outermost = self.outer.as_deref().unwrap_or(self);
        outermost.lease_requests.hints(schemas).await
    }
}

/// Signal to spawned tasks that the run is over. Allocates nothing until a task waits for the signal.
#[derive(Debug, Default)]
pub(super) struct Cancellation {
    ended: AtomicBool,
    token: OnceLock<CancellationToken>,
}

impl Cancellation {
    /// Returns a future that resolves when the run is over, for tasks that the run's executor spawned.
    pub(super) fn wait(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let token = self.token.get_or_init(CancellationToken::new).clone();
        // `cancel` sets the flag before it reads the token, so either this load sees the flag or `cancel` sees the token.
        if self.ended.load(Ordering::SeqCst) {
            token.cancel();
        }
        token.cancelled_owned()
    }

    fn cancel(&self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }
}

/// Guard that signals the end of a run when it is dropped. Spawned tasks receive the signal, and the execution context refuses further
/// requests.
#[derive(Debug)]
pub(super) struct CancelGuard(pub(super) Arc<RunHandle>);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.cancellation.cancel();
        self.0.lease_requests.close();
    }
}
