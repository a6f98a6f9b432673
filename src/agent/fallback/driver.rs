//! The driver of a list of models: sends a request to the models that [`Board`] selects, and records the outcomes.

use super::board::{Board, Skipped};
use super::breaker::{BreakerChange, Ticket};
use super::policy::ModelPolicy;
use super::reaction::{Reaction, reaction};
use super::shared::SharedUsage;
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

/// The models of a list and their shared state. All clones of a `FallbackModel` have the same core.
pub(super) struct Core {
    pub(super) entries: Vec<Entry>,
    pub(super) board: Mutex<Board>,
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
        let mut misses = Misses::default();
        let mut from = 0;
        while let Some((entry, mut attempt)) = self.start(from, &mut misses) {
            let request = request_for(attempt.index, request);
            match send(entry, &request).await {
                Ok(answer) => {
                    let answered_by = AnsweredBy {
                        model: entry.name.to_string(),
                        failed: self.failed_models(&misses),
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
                    self.add_miss(&mut misses, attempt.index, error);
                }
            }
        }
        Err(self.all_unavailable(misses))
    }

    /// Writes the usage of this worker to the shared limits, and reads the usage of the other workers, if both are due.
    pub(super) async fn sync(&self) {
        let Some(shared) = &self.shared else { return };
        let usage_of_others = shared.sync().await;
        let now = Instant::now();
        let mut board = self.board();
        for (index, usage) in usage_of_others.into_iter().enumerate() {
            board.spend(index, usage.requests, usage.tokens, now);
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a request at the next ready model of the list, and adds the skipped models to the misses.
    fn start(self: &Arc<Self>, from: usize, misses: &mut Misses) -> Option<(&Entry, Attempt)> {
        let selection = self.board().select(from, Instant::now());
        let skipped = selection.skipped.into_iter();
        misses.models.extend(skipped.map(|skipped| {
            let Skipped { index, code, until } = skipped;
            let ready_at = Some(until);
            Miss {
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

    fn add_miss(&self, misses: &mut Misses, index: usize, error: ModelError) {
        let now = Instant::now();
        let ready_at = match error.retry() {
            Retry::After(_) => Some(self.board().ready_at(index, now)),
            Retry::Never => None,
        };
        misses.models.push(Miss {
            index,
            code: error.code(),
            ready_at,
        });
        misses.last_error = Some(error);
    }

    fn failed_models(&self, misses: &Misses) -> Vec<FailedModel> {
        let misses = misses.models.iter();
        let failed = misses.filter_map(|miss| {
            let entry = self.entries.get(miss.index)?;
            Some(FailedModel::new(&*entry.name, miss.code))
        });
        failed.collect()
    }

    fn all_unavailable(&self, misses: Misses) -> ModelError {
        let now = Instant::now();
        let ready_at = misses.models.iter().filter_map(|miss| miss.ready_at).min();
        ModelError::AllUnavailable {
            models: self.failed_models(&misses),
            retry: match ready_at {
                Some(ready_at) => Retry::after(ready_at.saturating_duration_since(now)),
                None => Retry::Never,
            },
            source: misses.last_error.map(Into::into),
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
struct Misses {
    models: Vec<Miss>,
    last_error: Option<ModelError>,
}

/// A model that did not answer a request.
struct Miss {
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
        let change = self.core.board().succeeded(self.index, ticket);
        self.log(change, "");
    }

    pub(super) fn failed(&mut self, error: &ModelError) -> Reaction {
        let reaction = reaction(error);
        if let Some(ticket) = self.ticket.take() {
            let code = error.code();
            let by = (self.index, ticket);
            let change = self.core.board().failed(by, reaction, code, Instant::now());
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
        let mut board = self.core.board();
        board.spend_tokens(self.index, self.usage, Instant::now());
        if let Some(ticket) = self.ticket.take() {
            board.abandoned(self.index, ticket);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
