//! The states of the models in a list, and the decision which model receives a request. The module does no I/O and reads no clock.

use super::breaker::{Breaker, BreakerChange, Ticket};
use super::bucket::Bucket;
use super::policy::ModelPolicy;
use super::reaction::Reaction;
use crate::agent::{FailedModel, Usage};
use crate::clock::later;
use tokio::time::Instant;

/// The states of the models in a list, in the order of the list.
#[derive(Debug)]
pub(super) struct ModelStates {
    models: Vec<ModelState>,
}

#[derive(Clone, Debug)]
struct ModelState {
    policy: ModelPolicy,
    breaker: Breaker,
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    /// The end of the time for which the provider accepts no requests, and the code of the error that stated the time.
    hold: Option<(Instant, &'static str)>,
}

/// A model that cannot receive a request now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Skipped {
    pub(super) index: usize,
    pub(super) code: &'static str,
    /// The earliest time at which the model may receive a request.
    pub(super) until: Instant,
}

/// The decision about the next model of a request.
#[derive(Debug)]
pub(super) struct Selection {
    /// The models that cannot receive the request now, in the order of the list.
    pub(super) skipped: Vec<Skipped>,
    /// The index of the model that receives the request, or `None` if no further model can.
    pub(super) start: Option<(usize, Ticket)>,
}

impl ModelStates {
    pub(super) fn new(policies: impl Iterator<Item = ModelPolicy>, now: Instant) -> Self {
        let models = policies.map(|policy| ModelState {
            breaker: Breaker::new(),
            requests: policy
                .requests_per_minute
                .map(|limit| Bucket::new(limit, now)),
            tokens: policy
                .tokens_per_minute
                .map(|limit| Bucket::new(limit, now)),
            hold: None,
            policy,
        });
        Self {
            models: models.collect(),
        }
    }

    /// Selects the first model from index `from` on that may receive a request now, and counts the request for its limits.
    pub(super) fn select(&mut self, from: usize, now: Instant) -> Selection {
        let mut skipped = Vec::new();
        for (index, model) in self.models.iter_mut().enumerate().skip(from) {
            match model.unready(now) {
                Some((code, until)) => skipped.push(Skipped { index, code, until }),
                None => {
                    let start = Some((index, model.admit(now)));
                    return Selection { skipped, start };
                }
            }
        }
        Selection {
            skipped,
            start: None,
        }
    }

    /// Returns the earliest time at which a model may receive a request, or `now` if it may receive one now.
    pub(super) fn ready_at(&mut self, index: usize, now: Instant) -> Instant {
        let unready = self.models.get_mut(index).and_then(|it| it.unready(now));
        unready.map_or(now, |(_, until)| until)
    }

    pub(super) fn succeeded(&mut self, index: usize, ticket: Ticket) -> Option<BreakerChange> {
        let model = self.models.get_mut(index)?;
        model.breaker.succeeded(ticket)
    }

    /// Records an error of a model, by the reaction to its error.
    pub(super) fn failed(
        &mut self,
        (index, ticket): (usize, Ticket),
        reaction: Reaction,
        code: &'static str,
        now: Instant,
    ) -> Option<BreakerChange> {
        let model = self.models.get_mut(index)?;
        if !reaction.hold.is_zero() {
            let until = later(now, reaction.hold);
            let longer = model.hold.filter(|(earlier, _)| *earlier > until);
            model.hold = longer.or(Some((until, code)));
        }
        match reaction.is_failure {
            true => model.breaker.failed(ticket, &model.policy, now),
            false => {
                model.breaker.abandoned(ticket);
                None
            }
        }
    }

    /// Records that a request was cancelled, so that it shows nothing about the model.
    pub(super) fn abandoned(&mut self, index: usize, ticket: Ticket) {
        if let Some(model) = self.models.get_mut(index) {
            model.breaker.abandoned(ticket);
        }
    }

    /// Counts the tokens of an answer for the limit of the model.
    pub(super) fn spend_tokens(&mut self, index: usize, usage: Usage, now: Instant) {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        self.spend(index, 0, tokens, now);
    }

    /// Counts requests and tokens for the limits of the model, for example those of other workers.
    pub(super) fn spend(&mut self, index: usize, requests: u64, tokens: u64, now: Instant) {
        let Some(model) = self.models.get_mut(index) else {
            return;
        };
        if let Some(bucket) = &mut model.requests {
            bucket.spend(requests, now);
        }
        if let Some(bucket) = &mut model.tokens {
            bucket.spend(tokens, now);
        }
    }
}

impl ModelState {
    /// Returns the reason why the model cannot receive a request, with the earliest time at which it can. With several reasons, the
    /// result is the one that ends last.
    fn unready(&mut self, now: Instant) -> Option<(&'static str, Instant)> {
        let hold = self.hold.filter(|(until, _)| *until > now);
        let hold = hold.map(|(until, code)| (code, until));
        let breaker = self.breaker.next(now);
        let breaker = breaker.map(|until| (FailedModel::CIRCUIT_OPEN, until));
        let requests = self.requests.as_mut().and_then(|bucket| bucket.next(now));
        let requests = requests.map(|until| (FailedModel::REQUEST_LIMIT, until));
        let tokens = self.tokens.as_mut().and_then(|bucket| bucket.next(now));
        let tokens = tokens.map(|until| (FailedModel::TOKEN_LIMIT, until));
        let reasons = [hold, breaker, requests, tokens].into_iter().flatten();
        reasons.max_by_key(|(_, until)| *until)
    }

    fn admit(&mut self, now: Instant) -> Ticket {
        if let Some(bucket) = &mut self.requests {
            bucket.spend(1, now);
        }
        self.breaker.admit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ModelError;
    use crate::agent::fallback::reaction::reaction;
    use proptest::prelude::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn states(policies: &[ModelPolicy], now: Instant) -> ModelStates {
        ModelStates::new(policies.iter().copied(), now)
    }

    fn fail(states: &mut ModelStates, error: &ModelError, now: Instant) -> usize {
        let (index, ticket) = states.select(0, now).start.unwrap();
        states.failed((index, ticket), reaction(error), error.code(), now);
        index
    }

    #[test]
    fn a_held_model_is_skipped_until_the_time_of_its_provider() {
        let now = Instant::now();
        let mut states = states(&[ModelPolicy::new(); 2], now);

        fail(&mut states, &ModelError::rate_limited(20 * SECOND), now);
        let selection = states.select(0, now);

        let (index, code, until) = (0, "rate_limited", now + 20 * SECOND);
        assert_eq!(selection.skipped, [Skipped { index, code, until }]);
        assert_eq!(selection.start.map(|(index, _)| index), Some(1));
        let later = states.select(0, until).start;
        assert_eq!(later.map(|(index, _)| index), Some(0));
    }

    #[test]
    fn a_request_that_started_before_a_rate_limit_does_not_end_the_delay() {
        let now = Instant::now();
        let mut states = states(&[ModelPolicy::new()], now);

        let (index, earlier) = states.select(0, now).start.unwrap();
        fail(&mut states, &ModelError::rate_limited(20 * SECOND), now);
        states.succeeded(index, earlier);

        assert!(states.select(0, now).start.is_none());
    }

    #[test]
    fn a_model_without_requests_or_tokens_left_is_skipped() {
        let now = Instant::now();
        let limited = ModelPolicy::new().requests_per_minute(1);
        let metered = ModelPolicy::new().tokens_per_minute(10);
        let mut states = states(&[limited, metered], now);

        states.select(0, now);
        let (index, _) = states.select(0, now).start.unwrap();
        states.spend_tokens(index, Usage::new(5, 10), now);
        let selection = states.select(0, now);

        assert_eq!(index, 1);
        let codes: Vec<_> = selection.skipped.iter().map(|skip| skip.code).collect();
        assert_eq!(codes, ["request_limit", "token_limit"]);
        assert!(selection.start.is_none());
        assert_eq!(states.ready_at(0, now), now + 60 * SECOND);
    }

    #[test]
    fn an_open_breaker_is_skipped_and_a_cancelled_trial_admits_another() {
        let now = Instant::now();
        let policy = ModelPolicy::new().failure_threshold(1);
        let mut states = states(&[policy], now);
        fail(&mut states, &ModelError::Unavailable("503".into()), now);

        let skipped = states.select(0, now).skipped;
        let now = now + 5 * SECOND;
        let (index, trial) = states.select(0, now).start.unwrap();
        let during_trial = states.select(0, now).start;
        states.abandoned(index, trial);

        assert_eq!(skipped[0].code, "circuit_open");
        assert!(during_trial.is_none());
        assert!(states.select(0, now).start.is_some());
    }

    fn errors() -> impl Strategy<Value = ModelError> {
        (0..5_u8, 0..40_u64).prop_map(|(kind, seconds)| match kind {
            0 => ModelError::rate_limited(Duration::from_secs(seconds)),
            1 => ModelError::overloaded(Duration::from_secs(seconds)),
            2 => ModelError::ContextTooLong,
            3 => ModelError::TimedOut { to: "answer" },
            _ => ModelError::unauthorized(),
        })
    }

    proptest! {
        #[test]
        fn a_selection_covers_each_model_once_and_a_skipped_model_is_ready_at_the_reported_time(
            steps in prop::collection::vec((prop::option::of(errors()), 0_u64..10_000, 0_u64..300), 1..80),
            threshold in 1_u32..4,
            per_minute in 1_u32..20,
        ) {
            let policy = ModelPolicy::new().failure_threshold(threshold);
            let policies = [
                policy.requests_per_minute(per_minute),
                policy.tokens_per_minute(per_minute * 100),
                policy,
            ];
            let mut now = Instant::now();
            let mut states = states(&policies, now);

            for (error, millis, tokens) in steps {
                now += Duration::from_millis(millis);
                let selection = states.select(0, now);
                let skipped = selection.skipped.iter().map(|skip| skip.index);
                let seen: Vec<_> = skipped.chain(selection.start.map(|(index, _)| index)).collect();
                prop_assert!(seen.iter().copied().eq(0..seen.len()), "{:?}", seen);
                prop_assert!(selection.start.is_some() || seen.len() == policies.len());
                for skip in &selection.skipped {
                    prop_assert!(skip.until > now);
                    let mut model = states.models[skip.index].clone();
                    prop_assert_eq!(model.unready(skip.until), None, "{:?}", skip);
                }
                let Some((index, ticket)) = selection.start else { continue };
                match error {
                    Some(error) => {
                        states.failed((index, ticket), reaction(&error), error.code(), now);
                    }
                    None => {
                        states.succeeded(index, ticket);
                        states.spend_tokens(index, Usage::new(tokens, 0), now);
                    }
                }
            }
        }
    }
}
