//! The driver of a list of models: sends a request to the models that [`ModelStates`] selects, and records the outcomes.

use super::breaker::{BreakerChange, Ticket};
use super::policy::ModelPolicy;
use super::reaction::{Reaction, reaction};
use super::shared::SharedUsage;
use super::states::{ModelStates, Skipped};
use crate::agent::{AnsweredBy, ChatModel, ChatRequest, FailedModel, ModelError, Usage};
use crate::error::{Chain, Retry};
use futures::future::BoxFuture;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A model of a list, with its name and its policy.
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    pub(super) model: Arc<dyn ChatModel>,
    pub(super) policy: ModelPolicy,
}

/// The models of a `FallbackModel`, with their rate limits and circuit breakers. All clones of it have the same core.
pub(super) struct Core {
    pub(super) entries: Vec<Entry>,
    pub(super) states: Mutex<ModelStates>,
    pub(super) shared: Option<SharedUsage>,
}

/// Sends a request to one model of the list.
pub(super) type SendFn<T> =
    for<'a> fn(&'a Entry, &'a ChatRequest) -> BoxFuture<'a, Result<T, ModelError>>;

/// The answer of a model of the list, with the attempt to which the outcome of a streamed answer is reported.
pub(super) struct Answered<T> {
    pub(super) answer: T,
    pub(super) attempt: Attempt,
    pub(super) answered_by: AnsweredBy,
}

impl Core {
    /// Sends a request to the first model of the list that can answer it.
    ///
    /// # Errors
    /// The error of the request, or [`ModelError::AllUnavailable`].
    pub(super) async fn send<T>(
        self: &Arc<Self>,
        request: &ChatRequest,
        send: SendFn<T>,
    ) -> Result<Answered<T>, ModelError> {
        self.sync().await;
        let mut failures = Failures::default();
        let mut from = 0;
        while let Some((entry, mut attempt)) = self.start(from, &mut failures) {
            let request = request_for(attempt.index, request);
            match send(entry, &request).await {
                Ok(answer) => {
                    let answered_by = AnsweredBy {
                        model: entry.name.to_string(),
                        failed: self.failed_models(&failures),
                    };
                    return Ok(Answered {
                        answer,
                        attempt,
                        answered_by,
                    });
                }
                Err(error) => {
                    let reaction = attempt.failed(&error);
                    if !reaction.moves_on {
                        return Err(error);
                    }
                    tracing::warn!(
                        model = &*entry.name,
                        code = error.code(),
                        error = %Chain(&error),
                        "a model failed; the request moves on to the next model of the list, if there is one"
                    );
                    from = attempt.index + 1;
                    self.add_failure(&mut failures, attempt.index, error);
                }
            }
        }
        Err(self.all_unavailable(failures))
    }

    /// Writes the usage of this worker to the shared limits, and reads the usage of the other workers, if both are due.
    pub(super) async fn sync(&self) {
        let Some(shared) = &self.shared else { return };
        let usage_of_others = shared.sync().await;
        let now = Instant::now();
        let mut states = self.states();
        for (index, usage) in usage_of_others.into_iter().enumerate() {
            states.spend(index, usage.requests, usage.tokens, now);
        }
    }

    fn states(&self) -> MutexGuard<'_, ModelStates> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a request at the next ready model of the list, and adds the skipped models to the failures.
    fn start(self: &Arc<Self>, from: usize, failures: &mut Failures) -> Option<(&Entry, Attempt)> {
        let selection = self.states().select(from, Instant::now());
        let skipped = selection.skipped.into_iter();
        failures.models.extend(skipped.map(|skipped| {
            let Skipped { index, code, until } = skipped;
            let ready_at = Some(until);
            Failure {
                index,
                code,
                ready_at,
            }
        }));
        let (index, ticket) = selection.start?;
        let entry = self.entries.get(index)?;
        if let Some(shared) = &self.shared {
            shared.add(index, 1, 0);
        }
        let attempt = Attempt {
            core: Arc::clone(self),
            index,
            ticket: Some(ticket),
            usage: Usage::default(),
        };
        Some((entry, attempt))
    }

    fn add_failure(&self, failures: &mut Failures, index: usize, error: ModelError) {
        let now = Instant::now();
        let ready_at = match error.retry() {
            Retry::After(_) => Some(self.states().ready_at(index, now)),
            Retry::Never => None,
        };
        failures.models.push(Failure {
            index,
            code: error.code(),
            ready_at,
        });
        failures.last_error = Some(error);
    }

    fn failed_models(&self, failures: &Failures) -> Vec<FailedModel> {
        let failures = failures.models.iter();
        let failed = failures.filter_map(|failure| {
            let entry = self.entries.get(failure.index)?;
            Some(FailedModel::new(&*entry.name, failure.code))
        });
        failed.collect()
    }

    fn all_unavailable(&self, failures: Failures) -> ModelError {
        let now = Instant::now();
        let ready_at = failures
            .models
            .iter()
            .filter_map(|failure| failure.ready_at)
            .min();
        ModelError::AllUnavailable {
            models: self.failed_models(&failures),
            retry: match ready_at {
                Some(ready_at) => Retry::after(ready_at.saturating_duration_since(now)),
                None => Retry::Never,
            },
            source: failures.last_error.map(Into::into),
        }
    }
}

/// Returns the request for the model with this index in the list. Only the first model receives the model name in the request,
/// because the others can belong to other providers. The request is copied only if it has a model name.
fn request_for(index: usize, request: &ChatRequest) -> Cow<'_, ChatRequest> {
    if index == 0 || request.model.is_none() {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    request.model = None;
    Cow::Owned(request)
}

/// The models that did not answer a request, in the order of the list.
#[derive(Default)]
struct Failures {
    models: Vec<Failure>,
    last_error: Option<ModelError>,
}

/// A model that did not answer a request.
struct Failure {
    index: usize,
    code: &'static str,
    /// The earliest time at which the model could answer the request, or `None` if it never can.
    ready_at: Option<Instant>,
}

/// A request in flight at one model. If the attempt is dropped without an outcome, the request was cancelled.
pub(super) struct Attempt {
    core: Arc<Core>,
    index: usize,
    /// The permission of the circuit breaker, or `None` after the outcome is recorded.
    ticket: Option<Ticket>,
    /// The token usage that the model has reported so far.
    pub(super) usage: Usage,
}

impl Attempt {
    pub(super) fn succeeded(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let change = self.core.states().succeeded(self.index, ticket);
        self.log(change, "");
    }

    pub(super) fn failed(&mut self, error: &ModelError) -> Reaction {
        let reaction = reaction(error);
        if let Some(ticket) = self.ticket.take() {
            let code = error.code();
            let by = (self.index, ticket);
            let change = self
                .core
                .states()
                .failed(by, reaction, code, Instant::now());
            self.log(change, code);
        }
        reaction
    }

    pub(super) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.core)
    }

    pub(super) fn policy(&self) -> ModelPolicy {
        let entry = self.core.entries.get(self.index);
        entry.map_or_else(ModelPolicy::default, |entry| entry.policy)
    }

    fn log(&self, change: Option<BreakerChange>, code: &'static str) {
        let name = self.core.entries.get(self.index).map(|entry| &*entry.name);
        let model = name.unwrap_or_default();
        match change {
            None => {}
            Some(BreakerChange::Opened { failures, pause }) => tracing::warn!(
                model,
                failures,
                code,
                next_trial_in_ms = millis(pause),
                "the circuit breaker of a model opened; requests skip the model until a trial request succeeds"
            ),
            Some(BreakerChange::TrialFailed { pause }) => tracing::warn!(
                model,
                code,
                next_trial_in_ms = millis(pause),
                "the circuit breaker of a model stays open: the trial request failed"
            ),
            Some(BreakerChange::Closed) => tracing::info!(
                model,
                "the circuit breaker of a model closed: the trial request succeeded"
            ),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let tokens = self
            .usage
            .input_tokens
            .saturating_add(self.usage.output_tokens);
        if let Some(shared) = &self.core.shared {
            shared.add(self.index, 0, tokens);
        }
        let mut states = self.core.states();
        states.spend_tokens(self.index, self.usage, Instant::now());
        if let Some(ticket) = self.ticket.take() {
            states.abandoned(self.index, ticket);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
