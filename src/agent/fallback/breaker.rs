use super::policy::ModelPolicy;
use crate::clock::later;
use std::time::Duration;
use tokio::time::Instant;

/// A circuit breaker for one model of a list. It skips a model while all requests to the model fail.
///
/// The breaker opens after a number of consecutive failures. After a pause, it admits one trial request. A failed trial doubles
/// the pause up to a maximum, and a successful one closes the breaker. Each admitted request holds a [`Ticket`]. The breaker ignores the
/// outcome of a request that started before the breaker last opened or closed.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    state: State,
    /// The number of times that the breaker opened or closed.
    generation: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed {
        /// The number of failures since the last success.
        failures: u32,
    },
    Open {
        until: Instant,
        pause: Duration,
        in_trial: bool,
    },
}

/// Permission of a circuit breaker to send a request. The breaker takes the ticket back with the outcome of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    generation: u64,
    is_trial: bool,
}

/// A change in the state of a model's circuit breaker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BreakerChange {
    /// The breaker opened after consecutive failures, for this pause.
    Opened { failures: u32, pause: Duration },
    /// The trial request failed, so the breaker stays open for this pause.
    TrialFailed { pause: Duration },
    /// The trial request succeeded, so the breaker closed.
    Closed,
}

impl Breaker {
    /// The delay after which another request checks whether a trial in flight has ended.
    const TRIAL_RECHECK: Duration = Duration::from_secs(1);

    pub(super) const fn new() -> Self {
        Self {
            state: State::Closed { failures: 0 },
            generation: 0,
        }
    }

    /// Returns the earliest time at which the breaker may admit a request, or `None` if it admits one now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        match self.state {
            State::Open { until, .. } if now < until => Some(until),
            State::Open { in_trial: true, .. } => Some(later(now, Self::TRIAL_RECHECK)),
            State::Open { .. } | State::Closed { .. } => None,
        }
    }

    /// Admits a request. The caller must have checked [`next`](Self::next).
    pub(super) fn admit(&mut self) -> Ticket {
        let is_trial = match &mut self.state {
            State::Open { in_trial, .. } => {
                *in_trial = true;
                true
            }
            State::Closed { .. } => false,
        };
        Ticket {
            generation: self.generation,
            is_trial,
        }
    }

    pub(super) fn succeeded(&mut self, ticket: Ticket) -> Option<BreakerChange> {
        if ticket.generation != self.generation {
            return None;
        }
        let was_open = matches!(self.state, State::Open { .. });
        self.state = State::Closed { failures: 0 };
        was_open.then(|| {
            self.generation = self.generation.wrapping_add(1);
            BreakerChange::Closed
        })
    }

    pub(super) fn failed(
        &mut self,
        ticket: Ticket,
        policy: &ModelPolicy,
        now: Instant,
    ) -> Option<BreakerChange> {
        if ticket.generation != self.generation {
            return None;
        }
        let (pause, change) = match self.state {
            State::Closed { failures } => {
                let failures = failures.saturating_add(1);
                if failures < policy.failure_threshold {
                    self.state = State::Closed { failures };
                    return None;
                }
                let pause = policy.pause;
                self.generation = self.generation.wrapping_add(1);
                (pause, BreakerChange::Opened { failures, pause })
            }
            State::Open { pause, .. } => {
                let pause = pause.saturating_mul(2).min(policy.max_pause);
                (pause, BreakerChange::TrialFailed { pause })
            }
        };
        self.state = State::Open {
            until: later(now, pause),
            pause,
            in_trial: false,
        };
        Some(change)
    }

    /// Records a request that ended without showing whether the model works. If it was the trial, another request may be the trial.
    pub(super) fn abandoned(&mut self, ticket: Ticket) {
        if ticket.generation != self.generation || !ticket.is_trial {
            return;
        }
        match &mut self.state {
            State::Open { in_trial, .. } => *in_trial = false,
            State::Closed { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy() -> ModelPolicy {
        ModelPolicy::new()
            .failure_threshold(2)
            .pause(5 * SECOND, 20 * SECOND)
    }

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new();
        for _ in 0..2 {
            let ticket = breaker.admit();
            breaker.failed(ticket, &policy(), now);
        }
        breaker
    }

    #[test]
    fn consecutive_failures_open_the_breaker_and_a_success_between_them_does_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new();

        let [one, two, three] = [(); 3].map(|()| breaker.admit());
        assert_eq!(breaker.failed(one, &policy(), now), None);
        assert_eq!(breaker.succeeded(two), None);
        assert_eq!(breaker.failed(three, &policy(), now), None);
        let four = breaker.admit();
        let change = breaker.failed(four, &policy(), now);

        let pause = 5 * SECOND;
        let failures = 2;
        assert_eq!(change, Some(BreakerChange::Opened { failures, pause }));
        assert_eq!(breaker.next(now), Some(now + pause));
    }

    #[test]
    fn each_failed_trial_doubles_the_pause_up_to_the_maximum() {
        let mut now = Instant::now();
        let mut breaker = opened(now);

        let pauses = [(); 4].map(|()| {
            let next = breaker.next(now).unwrap();
            let pause = next - now;
            now = next;
            assert_eq!(breaker.next(now), None);
            let trial = breaker.admit();
            assert!(
                breaker.next(now).is_some(),
                "a second trial must not be admitted"
            );
            breaker.failed(trial, &policy(), now);
            pause.as_secs()
        });

        assert_eq!(pauses, [5, 10, 20, 20]);
    }

    #[test]
    fn a_successful_trial_closes_the_breaker() {
        let now = Instant::now();
        let mut breaker = opened(now);

        let trial = breaker.admit();

        assert_eq!(breaker.succeeded(trial), Some(BreakerChange::Closed));
        assert_eq!(breaker.next(now), None);
    }

    #[test]
    fn an_abandoned_trial_admits_another_trial() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let now = now + 5 * SECOND;

        let trial = breaker.admit();
        breaker.abandoned(trial);

        assert_eq!(breaker.next(now), None);
    }

    #[test]
    fn the_outcome_of_a_request_from_before_the_opening_is_ignored() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        let [early, other] = [(); 2].map(|()| breaker.admit());
        for _ in 0..2 {
            let ticket = breaker.admit();
            breaker.failed(ticket, &policy(), now);
        }

        assert_eq!(breaker.succeeded(early), None);
        assert_eq!(breaker.failed(other, &policy(), now), None);
        assert_eq!(breaker.next(now), Some(now + 5 * SECOND));
    }
}
