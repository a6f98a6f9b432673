use crate::clock::later;
use crate::model::BreadcrumbId;
use crate::store::RunRef;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// A circuit breaker for one executor. It holds back retries while every input of the executor fails.
///
/// The pattern is from Michael Nygard, "Release It!". A *closed* breaker admits every run. Transient failures of ten
/// different triggers without a success between them *open* the breaker for five seconds. After this pause one retry
/// may start as a probe. A failed probe doubles the pause, up to one minute. Any run that starts after the breaker
/// opened and succeeds closes the breaker. Probes prefer triggers that were not probed since the breaker opened.
///
/// An open breaker admits first attempts. Only an input without a failed attempt can show that the inputs failed and
/// not the service that the executor depends on. Holding it back would let bad inputs block good ones. The load on a
/// failing service is at most one attempt per trigger and one probe per pause.
///
/// Each admitted run holds a [`Ticket`]. The breaker ignores the outcome of a run that started before the breaker
/// last opened or closed.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct Breaker {
    state: BreakerState,
    /// The triggers whose runs failed since the executor's last success, at most [`MAX_TRIGGERS`](Self::MAX_TRIGGERS).
    failing: BTreeSet<Trigger>,
    /// The triggers whose runs were retried as probes since the breaker opened, at most [`MAX_TRIGGERS`](Self::MAX_TRIGGERS).
    probed: BTreeSet<Trigger>,
    /// Total number of failed runs: the runs that opened the circuit breaker, and the runs that failed while the breaker was open.
    failures: u32,
    /// The number of times that the executor's circuit breaker opened or closed.
    generation: u64,
}

/// The ID and version of the breadcrumb that triggered a run.
pub(in crate::runtime) type Trigger = (BreadcrumbId, u64);

/// Returns the ID and version of the breadcrumb that triggered a run.
pub(in crate::runtime) fn trigger_of(run: &RunRef) -> Trigger {
    (run.trigger_id, run.trigger_version)
}

/// Permission of a circuit breaker to start a run. The breaker takes the ticket back when the run ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::runtime) struct Ticket {
    generation: u64,
    probe: bool,
}

/// A change in the state of an executor's circuit breaker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::runtime) enum BreakerChange {
    /// The circuit breaker opened because of consecutive failures.
    Opened(OpenCircuit),
    /// A probe of the executor failed, and the circuit breaker stays open.
    ProbeFailed(OpenCircuit),
    /// A run succeeded, and the circuit breaker closed.
    Closed {
        /// Total number of failed runs: the runs that opened the circuit breaker, and the runs that failed while the breaker was open.
        failures: u32,
    },
}

/// The state of an open circuit breaker of an executor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::runtime) struct OpenCircuit {
    /// The number of different triggers whose runs failed since the executor's last success, counted up to 1,000.
    pub(in crate::runtime) failing: usize,
    /// The earliest time at which one failed run may be retried as a probe, to test if the executor works again.
    pub(in crate::runtime) next_probe: Instant,
}

#[derive(Clone, Copy, Debug)]
enum BreakerState {
    Closed,
    Open {
        until: Instant,
        pause: Duration,
        probing: bool,
    },
}

impl Breaker {
    /// The number of different triggers with failed runs at which an executor's circuit breaker opens.
    const FAILURE_THRESHOLD: usize = 10;
    /// The pause between the opening of a circuit breaker and its first probe.
    const PAUSE: Duration = Duration::from_secs(5);
    /// The longest pause of an open circuit breaker before a probe.
    const MAX_PAUSE: Duration = Duration::from_secs(60);
    /// Time after each pause of an open circuit breaker during which a trigger that was already probed is not probed again.
    const PREFERENCE: Duration = Duration::from_secs(5);
    /// The maximum number of triggers that a circuit breaker remembers.
    const MAX_TRIGGERS: usize = 1_000;

    /// Creates a closed circuit breaker for an executor.
    pub(in crate::runtime) const fn new() -> Self {
        Self {
            state: BreakerState::Closed,
            failing: BTreeSet::new(),
            probed: BTreeSet::new(),
            failures: 0,
            generation: 0,
        }
    }

    /// Returns the state of the circuit breaker if it is open.
    pub(in crate::runtime) fn open(&self) -> Option<OpenCircuit> {
        match self.state {
            BreakerState::Closed => None,
            BreakerState::Open { until, .. } => Some(OpenCircuit {
                failing: self.failing.len(),
                next_probe: until,
            }),
        }
    }

    /// Returns a ticket for the start of a run if the circuit breaker admits the run. `is_retry` is `true` if the run failed before.
    ///
    /// # Errors
    /// Returns the earliest time of another request if the run is a retry that must wait.
    pub(in crate::runtime) fn start(
        &mut self,
        is_retry: bool,
        trigger: Trigger,
        now: Instant,
    ) -> Result<Ticket, Instant> {
        let generation = self.generation;
        let was_probed = self.probed.contains(&trigger);
        match &mut self.state {
            BreakerState::Open { until, .. } if is_retry && now < *until => Err(*until),
            BreakerState::Open { probing: true, .. } if is_retry => Err(later(now, Self::PAUSE)),
            BreakerState::Open { until, .. }
                if is_retry && was_probed && now < later(*until, Self::PREFERENCE) =>
            {
                Err(later(*until, Self::PREFERENCE))
            }
            BreakerState::Open { probing, .. } if is_retry => {
                *probing = true;
                if self.probed.len() < Self::MAX_TRIGGERS {
                    self.probed.insert(trigger);
                }
                Ok(Ticket {
                    generation,
                    probe: true,
                })
            }
            BreakerState::Open { .. } | BreakerState::Closed => Ok(Ticket {
                generation,
                probe: false,
            }),
        }
    }

    /// Records in the circuit breaker that a run succeeded.
    pub(in crate::runtime) fn succeeded(&mut self, ticket: Ticket) -> Option<BreakerChange> {
        if ticket.generation != self.generation {
            return None;
        }
        self.failing.clear();
        match self.state {
            BreakerState::Closed => None,
            BreakerState::Open { .. } => {
                self.probed.clear();
                let failures = std::mem::take(&mut self.failures);
                self.change(BreakerState::Closed);
                Some(BreakerChange::Closed { failures })
            }
        }
    }

    /// Records in the circuit breaker that a run failed with a transient error.
    pub(in crate::runtime) fn failed(
        &mut self,
        ticket: Ticket,
        trigger: Trigger,
        now: Instant,
    ) -> Option<BreakerChange> {
        let is_open = matches!(self.state, BreakerState::Open { .. });
        if !is_open && ticket.generation != self.generation {
            return None;
        }
        if self.failing.len() < Self::MAX_TRIGGERS {
            self.failing.insert(trigger);
        }
        self.failures = self.failures.saturating_add(u32::from(is_open));
        if ticket.generation != self.generation {
            return None;
        }
        let pause = match self.state {
            BreakerState::Closed if self.failing.len() < Self::FAILURE_THRESHOLD => return None,
            BreakerState::Closed => Self::PAUSE,
            BreakerState::Open { .. } if !ticket.probe => return None,
            BreakerState::Open { pause, .. } => pause.saturating_mul(2).min(Self::MAX_PAUSE),
        };
        let state = BreakerState::Open {
            until: later(now, pause),
            pause,
            probing: false,
        };
        // First attempts that started between two probes can still close the breaker.
        match ticket.probe {
            true => self.state = state,
            false => {
                self.failures = u32::try_from(self.failing.len()).unwrap_or(u32::MAX);
                self.change(state);
            }
        }
        let open = self.open()?;
        Some(match ticket.probe {
            true => BreakerChange::ProbeFailed(open),
            false => BreakerChange::Opened(open),
        })
    }

    /// Records in the circuit breaker that a run ended without showing that the executor works or fails. If the run was the probe, another
    /// run may become the probe.
    pub(in crate::runtime) fn abandoned(&mut self, ticket: Ticket) {
        if ticket.generation != self.generation || !ticket.probe {
            return;
        }
        match &mut self.state {
            BreakerState::Open { probing, .. } => *probing = false,
            BreakerState::Closed => {}
        }
    }

    fn change(&mut self, state: BreakerState) {
        self.state = state;
        self.generation = self.generation.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SECOND: Duration = Duration::from_secs(1);

    fn trigger(number: u64) -> Trigger {
        (BreadcrumbId::NIL, number)
    }

    /// Lets the first attempts of `triggers` fail.
    fn fail(breaker: &mut Breaker, now: Instant, triggers: std::ops::Range<u64>) {
        for number in triggers {
            let ticket = breaker.start(false, trigger(0), now).unwrap();
            breaker.failed(ticket, trigger(number), now);
        }
    }

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new();
        fail(&mut breaker, now, 0..10);
        assert!(breaker.open().is_some());
        breaker
    }

    #[test]
    fn ten_different_failing_triggers_open_the_breaker_and_nine_do_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new();

        fail(&mut breaker, now, 0..9);
        let ticket = breaker.start(false, trigger(0), now).unwrap();
        breaker.succeeded(ticket);
        fail(&mut breaker, now, 0..9);
        assert_eq!(breaker.open(), None);

        let ticket = breaker.start(false, trigger(0), now).unwrap();
        let change = breaker.failed(ticket, trigger(9), now);
        let open = OpenCircuit {
            failing: 10,
            next_probe: now + 5 * SECOND,
        };
        assert_eq!(change, Some(BreakerChange::Opened(open)));
        assert_eq!(breaker.open(), Some(open));
    }

    #[test]
    fn a_trigger_that_fails_many_times_counts_once() {
        let now = Instant::now();
        let mut breaker = Breaker::new();

        for _ in 0..100 {
            let ticket = breaker.start(true, trigger(1), now).unwrap();
            breaker.failed(ticket, trigger(1), now);
        }

        assert_eq!(breaker.open(), None);
    }

    #[test]
    fn an_open_breaker_admits_first_attempts_and_holds_back_retries() {
        let now = Instant::now();
        let mut breaker = opened(now);

        for _ in 0..100 {
            assert_eq!(
                breaker.start(true, trigger(1), now).unwrap_err(),
                now + 5 * SECOND
            );
            breaker.start(false, trigger(0), now).unwrap();
        }
    }

    #[test]
    fn a_first_attempt_that_succeeds_closes_an_open_breaker() {
        let now = Instant::now();
        let mut breaker = opened(now);

        let ticket = breaker.start(false, trigger(0), now).unwrap();

        assert_eq!(
            breaker.succeeded(ticket),
            Some(BreakerChange::Closed { failures: 10 })
        );
        breaker.start(true, trigger(1), now).unwrap();
    }

    #[test]
    fn after_the_pause_one_retry_at_a_time_is_the_probe_and_its_success_closes() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let now = now + 5 * SECOND;

        let probe = breaker.start(true, trigger(1), now).unwrap();
        assert_eq!(
            breaker.start(true, trigger(1), now).unwrap_err(),
            now + 5 * SECOND
        );

        assert_eq!(
            breaker.succeeded(probe),
            Some(BreakerChange::Closed { failures: 10 })
        );
        breaker.start(true, trigger(1), now).unwrap();
        fail(&mut breaker, now, 0..9);
        assert_eq!(breaker.open(), None);
    }

    #[test]
    fn each_failed_probe_doubles_the_pause_up_to_a_minute() {
        let mut now = Instant::now();
        let mut breaker = opened(now);

        let pauses: Vec<u64> = (0..6)
            .map(|number| {
                let next = breaker.open().unwrap().next_probe;
                let pause = next - now;
                now = next;
                let probe = breaker.start(true, trigger(number), now).unwrap();
                let change = breaker.failed(probe, trigger(number), now);
                assert!(
                    matches!(change, Some(BreakerChange::ProbeFailed(_))),
                    "{change:?}"
                );
                pause.as_secs()
            })
            .collect();

        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
    }

    #[test]
    fn a_probe_without_a_result_lets_another_run_be_the_probe() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let now = now + 5 * SECOND;

        let probe = breaker.start(true, trigger(1), now).unwrap();
        breaker.abandoned(probe);

        breaker.start(true, trigger(2), now).unwrap();
        breaker.start(true, trigger(3), now).unwrap_err();
    }

    #[test]
    fn the_outcome_of_a_run_that_started_before_the_breaker_opened_is_ignored() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        let [one, two, three] = [(); 3].map(|()| breaker.start(false, trigger(0), now).unwrap());
        fail(&mut breaker, now, 0..10);
        let before = breaker.open();

        assert_eq!(breaker.failed(one, trigger(7), now), None);
        assert_eq!(breaker.succeeded(two), None);
        breaker.abandoned(three);

        assert_eq!(breaker.open(), before);
    }

    #[test]
    fn a_trigger_that_was_probed_leaves_the_next_probe_to_another_for_five_seconds() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let now = now + 5 * SECOND;
        let probe = breaker.start(true, trigger(1), now).unwrap();
        breaker.failed(probe, trigger(1), now);
        let now = now + 10 * SECOND;

        let held = breaker.start(true, trigger(1), now).unwrap_err();
        let mut alone = breaker.clone();

        assert_eq!(held, now + 5 * SECOND);
        breaker.start(true, trigger(2), now).unwrap();
        alone.start(true, trigger(1), held).unwrap();
    }

    #[test]
    fn a_breaker_remembers_a_bounded_number_of_triggers() {
        let now = Instant::now();
        let mut breaker = Breaker::new();

        fail(&mut breaker, now, 0..5_000);

        assert_eq!(breaker.open().unwrap().failing, 1_000);
    }

    proptest! {
        #[test]
        fn at_most_one_probe_runs_and_none_starts_before_the_pause_ends(
            steps in prop::collection::vec(
                (0_u64..4_000, 0_u8..4, any::<bool>(), 0_u64..40, any::<prop::sample::Index>()), 1..400,
            ),
        ) {
            let mut now = Instant::now();
            let mut breaker = Breaker::new();
            let mut running: BTreeMap<usize, (Ticket, Trigger)> = BTreeMap::new();

            for (step, (passed, outcome, is_retry, number, which)) in steps.into_iter().enumerate() {
                now += Duration::from_millis(passed);
                if outcome == 0 || running.is_empty() {
                    let open = breaker.open();
                    match breaker.start(is_retry, trigger(number), now) {
                        Ok(ticket) => {
                            let probe = is_retry && open.is_some();
                            prop_assert_eq!(ticket.probe, probe);
                            prop_assert!(!probe || open.is_none_or(|open| open.next_probe <= now));
                            running.insert(step, (ticket, trigger(number)));
                            let generation = breaker.generation;
                            let probes = running.values().filter(|(one, _)| one.probe && one.generation == generation);
                            prop_assert!(probes.count() <= 1);
                        }
                        Err(moment) => prop_assert!(is_retry && open.is_some() && moment > now),
                    }
                    continue;
                }
                let key = *running.keys().nth(which.index(running.len())).unwrap();
                let (ticket, trigger) = running.remove(&key).unwrap();
                match outcome {
                    1 => drop(breaker.succeeded(ticket)),
                    2 => drop(breaker.failed(ticket, trigger, now)),
                    _ => breaker.abandoned(ticket),
                }
            }
        }
    }
}
