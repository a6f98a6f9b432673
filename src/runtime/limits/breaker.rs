use crate::clock::later;
use std::time::Duration;
use tokio::time::Instant;

/// A circuit breaker for one executor: what fails again and again is left alone for a while, and then tried with one
/// run before all others.
///
/// The pattern is of Michael Nygard, "Release It!". *Closed*, everything may start. Ten transient failures in a row
/// *open* it: nothing may start for five seconds. Then it is *half-open*: one run may, as a probe. If that succeeds it
/// is closed again, if that fails it is open for twice as long, up to a minute.
///
/// Whatever starts gets a [`Ticket`] and ends with it. A run that started before the breaker changed says nothing
/// about the time after, and must not pass for the probe: its ticket has expired, and its end counts for nothing.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct Breaker {
    state: State,
    /// How often it opened or closed: the tickets of before have expired.
    era: u64,
}

/// What may start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::runtime) enum Allowed {
    /// Anything.
    All,
    /// One run, as a probe.
    One,
    /// Nothing.
    None {
        /// Until when; absent while a probe runs, whose end decides.
        until: Option<Instant>,
    },
}

/// What a run starts with and ends with.
#[derive(Clone, Copy, Debug)]
pub(in crate::runtime) struct Ticket {
    /// Absent if nothing was allowed to start: the end of such a run counts for nothing.
    era: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant, pause: Duration },
    HalfOpen { pause: Duration, probing: bool },
}

impl Breaker {
    /// How many transient failures in a row open it.
    const FAILURES: u32 = 10;
    /// How long it is open at first.
    const PAUSE: Duration = Duration::from_secs(5);
    /// How long it is open at the most.
    const LONGEST: Duration = Duration::from_secs(60);

    /// A closed one.
    pub(in crate::runtime) const fn new() -> Self {
        Self {
            state: State::Closed { failures: 0 },
            era: 0,
        }
    }

    /// What may start now.
    pub(in crate::runtime) fn allows(&self, now: Instant) -> Allowed {
        match self.state {
            State::Closed { .. } => Allowed::All,
            State::Open { until, .. } if now < until => Allowed::None { until: Some(until) },
            State::Open { .. } | State::HalfOpen { probing: false, .. } => Allowed::One,
            State::HalfOpen { probing: true, .. } => Allowed::None { until: None },
        }
    }

    /// Notes that a run starts; the first one after the pause is the probe.
    pub(in crate::runtime) fn started(&mut self, now: Instant) -> Ticket {
        let era = Some(self.era);
        match (self.allows(now), self.state) {
            (Allowed::All, _) => Ticket { era },
            (Allowed::One, State::Open { pause, .. } | State::HalfOpen { pause, .. }) => {
                self.state = State::HalfOpen {
                    pause,
                    probing: true,
                };
                Ticket { era }
            }
            (Allowed::None { .. }, _) | (Allowed::One, State::Closed { .. }) => {
                Ticket { era: None }
            }
        }
    }

    /// Notes that a run ended well: whatever it depends on works.
    pub(in crate::runtime) fn succeeded(&mut self, ticket: Ticket) {
        if !self.counts(ticket) {
            return;
        }
        match self.state {
            State::Closed { .. } => self.state = State::Closed { failures: 0 },
            State::HalfOpen { .. } => self.change(State::Closed { failures: 0 }),
            State::Open { .. } => {}
        }
    }

    /// Notes that a run failed with an error that may pass.
    pub(in crate::runtime) fn failed(&mut self, ticket: Ticket, now: Instant) {
        if !self.counts(ticket) {
            return;
        }
        match self.state {
            State::Closed { failures } if failures + 1 < Self::FAILURES => {
                self.state = State::Closed {
                    failures: failures + 1,
                };
            }
            State::Closed { .. } => self.open(now, Self::PAUSE),
            State::HalfOpen { pause, .. } => {
                self.open(now, pause.saturating_mul(2).min(Self::LONGEST));
            }
            State::Open { .. } => {}
        }
    }

    /// Notes that a run ended neither way: cancelled, given back, or its lease lost. If it was the probe, another may be.
    pub(in crate::runtime) fn abandoned(&mut self, ticket: Ticket) {
        if !self.counts(ticket) {
            return;
        }
        match self.state {
            State::HalfOpen { pause, .. } => {
                self.state = State::HalfOpen {
                    pause,
                    probing: false,
                };
            }
            State::Closed { .. } | State::Open { .. } => {}
        }
    }

    fn counts(&self, ticket: Ticket) -> bool {
        ticket.era == Some(self.era)
    }

    fn open(&mut self, now: Instant, pause: Duration) {
        let until = later(now, pause);
        self.change(State::Open { until, pause });
    }

    fn change(&mut self, state: State) {
        self.state = state;
        self.era = self.era.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PROBING: Allowed = Allowed::None { until: None };

    fn fail(breaker: &mut Breaker, now: Instant, times: u32) {
        for _ in 0..times {
            let ticket = breaker.started(now);
            breaker.failed(ticket, now);
        }
    }

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new();
        fail(&mut breaker, now, 10);
        breaker
    }

    fn until(moment: Instant) -> Allowed {
        Allowed::None {
            until: Some(moment),
        }
    }

    #[test]
    fn ten_failures_in_a_row_open_it_and_nine_do_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new();

        fail(&mut breaker, now, 9);
        let ticket = breaker.started(now);
        breaker.succeeded(ticket);
        fail(&mut breaker, now, 9);
        assert_eq!(breaker.allows(now), Allowed::All);

        fail(&mut breaker, now, 1);
        assert_eq!(breaker.allows(now), until(now + 5 * SECOND));
    }

    #[test]
    fn after_the_pause_one_probe_at_a_time_may_start_and_its_success_closes() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let now = now + 5 * SECOND;
        assert_eq!(breaker.allows(now), Allowed::One);

        let probe = breaker.started(now);
        assert_eq!(breaker.allows(now), PROBING);

        breaker.succeeded(probe);
        assert_eq!(breaker.allows(now), Allowed::All);
        fail(&mut breaker, now, 9);
        assert_eq!(breaker.allows(now), Allowed::All);
    }

    #[test]
    fn each_probe_that_fails_opens_it_for_twice_as_long_up_to_a_minute() {
        let mut now = Instant::now();
        let mut breaker = opened(now);

        let pauses: Vec<u64> = (0..6)
            .map(|_| {
                let Allowed::None { until: Some(until) } = breaker.allows(now) else {
                    panic!("{breaker:?}")
                };
                let pause = until - now;
                now = until;
                fail(&mut breaker, now, 1);
                pause.as_secs()
            })
            .collect();

        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
        now += 60 * SECOND;
        let probe = breaker.started(now);
        breaker.succeeded(probe);
        fail(&mut breaker, now, 10);
        assert_eq!(breaker.allows(now), until(now + 5 * SECOND));
    }

    #[test]
    fn a_probe_that_ends_neither_way_makes_room_for_another() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let now = now + 5 * SECOND;

        let probe = breaker.started(now);
        breaker.abandoned(probe);

        assert_eq!(breaker.allows(now), Allowed::One);
        let probe = breaker.started(now);
        assert_eq!(breaker.allows(now), PROBING);
        breaker.succeeded(probe);
        assert_eq!(breaker.allows(now), Allowed::All);
    }

    #[test]
    fn a_run_that_started_before_it_opened_does_not_pass_for_the_probe() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        let [one, two, three] = [(); 3].map(|()| breaker.started(now));
        fail(&mut breaker, now, 10);
        breaker.failed(one, now + SECOND);
        assert_eq!(breaker.allows(now), until(now + 5 * SECOND));

        let now = now + 5 * SECOND;
        let _probe = breaker.started(now);
        breaker.failed(one, now);
        breaker.succeeded(two);
        breaker.abandoned(three);

        assert_eq!(breaker.allows(now), PROBING);
    }

    #[test]
    fn a_run_that_was_not_allowed_to_start_counts_for_nothing() {
        let now = Instant::now();
        let mut breaker = opened(now);

        let ticket = breaker.started(now);
        breaker.succeeded(ticket);
        assert_eq!(breaker.allows(now), until(now + 5 * SECOND));

        let now = now + 5 * SECOND;
        let _probe = breaker.started(now);
        let second = breaker.started(now);
        breaker.succeeded(second);
        assert_eq!(breaker.allows(now), PROBING);
    }

    proptest! {
        #[test]
        fn there_is_never_more_than_one_probe_and_none_within_the_pause(
            steps in prop::collection::vec((0_u64..4_000, 0_u8..4, any::<prop::sample::Index>()), 1..400),
        ) {
            let mut now = Instant::now();
            let mut breaker = Breaker::new();
            let (mut running, mut probes) = (Vec::new(), 0);

            for (passed, what, which) in steps {
                now += Duration::from_millis(passed);
                if what == 0 || running.is_empty() {
                    let allowed = breaker.allows(now);
                    if matches!(allowed, Allowed::None { .. }) {
                        let pausing = matches!(breaker.state, State::Open { until, .. } if now < until);
                        prop_assert!(pausing || probes == 1);
                        continue;
                    }
                    let probe = allowed == Allowed::One;
                    probes += usize::from(probe);
                    prop_assert!(probes <= 1);
                    running.push((breaker.started(now), probe));
                    continue;
                }
                let (ticket, probe) = running.swap_remove(which.index(running.len()));
                probes -= usize::from(probe);
                match what {
                    1 => breaker.succeeded(ticket),
                    2 => breaker.failed(ticket, now),
                    _ => breaker.abandoned(ticket),
                }
            }
        }
    }
}
