//! Pure decisions about a run: whether it may start, and whether it is retried or failed after an error.

use super::error::ExecutorError;
use super::profile::{Execution, Profile, RetryPolicy};
use crate::backoff::full_jitter;
use crate::bugs::planted;
use crate::error::Verdict;
use crate::store::FailureClass;
use std::time::Duration;

/// Number of consecutive worker deaths after which a run is suspected as the cause, even if its crash limit is higher. See
/// [`is_suspect`]. Otherwise a run with a high limit could kill a worker that executes runs with the default limit, and use up
/// the limit of these other runs.
const SUSPECT_AFTER: u32 = 2;

/// Next state of a run after the error of an attempt: retried or failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NextState {
    Retry { delay: Duration, counts: bool },
    Fail(FailureClass),
}

/// Facts about a failed attempt of a run that decide whether the run is retried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// The number of the failed attempt of the run, from 1.
    pub(super) number: u32,
    /// If `true`, the failed attempt had called `execute`.
    pub(super) started: bool,
    /// The time between the first claim of the failed attempt and its failure.
    pub(super) age: Duration,
    /// Fraction of the maximum retry delay that the run waits before its retry, in `0.0..1.0`.
    pub(super) chance: f64,
}

/// Facts about a claimed run that decide whether the run may start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StartState {
    /// The number of the run's attempt that is about to start, from 1.
    pub(super) attempt: u32,
    /// The number of consecutive workers that died while they held the lease of the run.
    pub(super) abandoned: u32,
    /// If `true`, a worker that held the run's lease earlier may have executed the run.
    pub(super) may_have_executed: bool,
    /// The number of runs before this run in its chain, in which each run wrote the trigger of the next run.
    pub(super) hops: u32,
    /// If `true`, the trigger of the run is a dead letter.
    pub(super) is_dead_letter: bool,
}

/// Decision that a claimed run may not start: the run is skipped or fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    Skip(&'static str),
    Fail(FailureClass),
}

/// Returns `true` if a run may have caused the deaths of the last `abandoned` workers, which died one after the other while they
/// held the lease of the run. A worker executes at most one such run at a time. A run that lost no worker is never suspect.
pub(crate) fn is_suspect(profile: &Profile, abandoned: u32) -> bool {
    let limit = profile.retry.crash_limit();
    let is_last_chance = abandoned.saturating_add(1) >= limit;
    abandoned > 0 && abandoned < limit && (is_last_chance || abandoned >= SUSPECT_AFTER)
}

/// Returns the decision to skip or fail a claimed run before it starts, or `None` if the run may start.
pub(super) fn before_start(profile: &Profile, start: StartState) -> Option<Refusal> {
    if start.hops >= profile.hop_limit {
        // A dead letter about a dead letter would trigger the executors that watch dead letters in an endless loop.
        return Some(if start.is_dead_letter {
            Refusal::Skip("hop_limit")
        } else {
            Refusal::Fail(FailureClass::HopLimit)
        });
    }
    let once = profile.execution == Execution::AtMostOnce;
    if once && start.may_have_executed && !planted("more-than-once") {
        return Some(Refusal::Fail(FailureClass::OutcomeUnknown));
    }
    if start.abandoned >= profile.retry.crash_limit() {
        return Some(Refusal::Fail(FailureClass::CrashLoop));
    }
    let used_up = start.attempt > profile.retry.attempts;
    used_up.then_some(Refusal::Fail(FailureClass::AttemptsUsedUp))
}

/// Returns the decision on a run after the error of an attempt: a retry with a delay, or a failure with a class.
pub(super) fn after_error(error: &ExecutorError, profile: &Profile, attempt: Attempt) -> NextState {
    let class = match error {
        ExecutorError::Timeout { .. } => FailureClass::Timeout,
        ExecutorError::Panicked { .. } => FailureClass::Panic,
        ExecutorError::Store { .. }
        | ExecutorError::StaleRead { .. }
        | ExecutorError::RequiredSource { .. }
        | ExecutorError::RequiredNotFound { .. }
        | ExecutorError::ContextTooLarge { .. }
        | ExecutorError::Execute(_)
        | ExecutorError::Respond(_)
        | ExecutorError::BadResponse { .. }
        | ExecutorError::LeaseLost { .. }
        | ExecutorError::Postponed { .. } => FailureClass::AttemptsUsedUp,
    };
    let policy = &profile.retry;
    let once = profile.execution == Execution::AtMostOnce && attempt.started;
    match error.verdict() {
        Verdict::Permanent => NextState::Fail(FailureClass::Permanent),
        Verdict::Transient(_) | Verdict::RateLimited(_) if once => {
            NextState::Fail(FailureClass::OutcomeUnknown)
        }
        Verdict::RateLimited(delay) if attempt.age.saturating_add(delay) > policy.max_age => {
            NextState::Fail(FailureClass::AttemptsUsedUp)
        }
        Verdict::RateLimited(delay) => NextState::Retry {
            delay,
            counts: false,
        },
        // A failure before `execute` uses no attempt, until the attempt is older than `read_retry_timeout`.
        Verdict::Transient(min_delay)
            if !attempt.started && attempt.age < policy.read_retry_timeout =>
        {
            NextState::Retry {
                delay: max_read_retry_delay(attempt.age, policy)
                    .mul_f64(attempt.chance)
                    .max(min_delay),
                counts: false,
            }
        }
        Verdict::Transient(_) if attempt.number >= policy.attempts => NextState::Fail(class),
        Verdict::Transient(min_delay) => {
            let jittered = full_jitter(attempt.number, policy.base, policy.cap, attempt.chance);
            NextState::Retry {
                delay: jittered.max(min_delay),
                counts: true,
            }
        }
    }
}

/// Returns the maximum delay of the next retry after an error before `execute`. The maximum is the attempt's age, between the policy's
/// `base` and `cap`. The maximum therefore about doubles with each retry.
fn max_read_retry_delay(age: Duration, policy: &RetryPolicy) -> Duration {
    age.clamp(policy.base.min(policy.cap), policy.cap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{permanent, retry_after};

    fn attempt(number: u32) -> Attempt {
        Attempt {
            number,
            started: true,
            age: Duration::ZERO,
            chance: 0.5,
        }
    }

    fn start(attempt: u32, abandoned: u32) -> StartState {
        StartState {
            attempt,
            abandoned,
            may_have_executed: abandoned > 0,
            ..StartState::default()
        }
    }

    fn transient() -> ExecutorError {
        ExecutorError::Execute("connection reset".into())
    }

    #[test]
    fn a_transient_error_is_retried_with_a_growing_delay_until_the_attempts_are_used_up() {
        let profile = Profile::default();

        let next: Vec<NextState> = (1..=5)
            .map(|number| after_error(&transient(), &profile, attempt(number)))
            .collect();

        let retry = |millis| NextState::Retry {
            delay: Duration::from_millis(millis),
            counts: true,
        };
        let last = NextState::Fail(FailureClass::AttemptsUsedUp);
        assert_eq!(
            next,
            [retry(500), retry(1_000), retry(2_000), retry(4_000), last]
        );
    }

    #[test]
    fn a_permanent_error_fails_at_once() {
        let error = ExecutorError::Execute(permanent("unknown city"));

        let next = after_error(&error, &Profile::default(), attempt(1));

        assert_eq!(next, NextState::Fail(FailureClass::Permanent));
    }

    #[test]
    fn a_rate_limit_uses_no_attempt_and_ends_with_the_age_of_the_run() {
        let profile = Profile::default();
        let delay = Duration::from_secs(20);
        let error = || ExecutorError::Execute(retry_after(delay, "429"));
        let old = Attempt {
            age: profile.retry.max_age,
            ..attempt(1)
        };

        assert_eq!(
            after_error(&error(), &profile, attempt(99)),
            NextState::Retry {
                delay,
                counts: false
            }
        );
        assert_eq!(
            after_error(&error(), &profile, old),
            NextState::Fail(FailureClass::AttemptsUsedUp)
        );
    }

    #[test]
    fn the_last_timeout_and_the_last_panic_name_themselves() {
        let timeout = ExecutorError::Timeout {
            after: Duration::ZERO,
        };
        let panic = ExecutorError::Panicked {
            message: String::new(),
        };

        assert_eq!(
            after_error(&timeout, &Profile::default(), attempt(5)),
            NextState::Fail(FailureClass::Timeout)
        );
        assert_eq!(
            after_error(&panic, &Profile::default(), attempt(5)),
            NextState::Fail(FailureClass::Panic)
        );
    }

    #[test]
    fn an_at_most_once_run_is_retried_only_before_it_starts() {
        let profile = Profile::default().at_most_once();
        let before = Attempt {
            started: false,
            ..attempt(1)
        };

        assert!(matches!(
            after_error(&transient(), &profile, before),
            NextState::Retry { .. }
        ));
        assert_eq!(
            after_error(&transient(), &profile, attempt(1)),
            NextState::Fail(FailureClass::OutcomeUnknown)
        );
        assert_eq!(
            before_start(&profile, start(2, 1)),
            Some(Refusal::Fail(FailureClass::OutcomeUnknown))
        );
    }

    #[test]
    fn three_workers_that_died_holding_a_run_are_a_crash_loop() {
        let profile = Profile::default();

        for (attempt, abandoned, class) in [
            (3, 2, None),
            (4, 3, Some(FailureClass::CrashLoop)),
            (6, 0, Some(FailureClass::AttemptsUsedUp)),
        ] {
            let refusal = before_start(&profile, start(attempt, abandoned));
            assert_eq!(refusal, class.map(Refusal::Fail), "{attempt} {abandoned}");
        }
    }

    #[test]
    fn the_smaller_of_crashes_and_attempts_ends_a_run_that_loses_its_workers() {
        let crash_loop = FailureClass::CrashLoop;
        for (crashes, attempts, lost, class) in [
            (0, 5, 0, None),
            (0, 5, 1, Some(crash_loop)),
            (1, 5, 0, None),
            (1, 5, 1, Some(crash_loop)),
            (3, 5, 3, Some(crash_loop)),
            (3, 2, 2, Some(FailureClass::AttemptsUsedUp)),
            (10, 5, 4, None),
            (10, 5, 5, Some(FailureClass::AttemptsUsedUp)),
            (10, 20, 9, None),
            (10, 20, 10, Some(crash_loop)),
        ] {
            let profile = Profile::default().crashes(crashes).attempts(attempts);

            let refusal = before_start(&profile, start(lost + 1, lost));

            let expected = class.map(Refusal::Fail);
            assert_eq!(refusal, expected, "{crashes} {attempts} {lost}");
        }
    }

    #[test]
    fn a_run_is_suspect_from_its_second_lost_worker_or_on_its_last_chance() {
        for (crashes, suspect) in [
            (1, vec![]),
            (2, vec![1]),
            (3, vec![2]),
            (4, vec![2, 3]),
            (5, vec![2, 3, 4]),
        ] {
            let profile = Profile::default().crashes(crashes);

            let found = (0..8).filter(|lost| is_suspect(&profile, *lost));

            assert_eq!(found.collect::<Vec<u32>>(), suspect, "{crashes}");
        }
    }

    #[test]
    fn a_chain_that_is_too_long_fails_and_a_dead_letter_at_its_end_is_skipped() {
        let profile = Profile::default();
        let at = |hops, is_dead_letter| StartState {
            hops,
            is_dead_letter,
            ..start(1, 0)
        };

        assert_eq!(before_start(&profile, at(15, false)), None);
        assert_eq!(
            before_start(&profile, at(16, false)),
            Some(Refusal::Fail(FailureClass::HopLimit))
        );
        assert_eq!(
            before_start(&profile, at(16, true)),
            Some(Refusal::Skip("hop_limit"))
        );
    }

    #[test]
    fn an_error_before_execute_uses_no_attempt_and_is_waited_for_as_long_as_the_patience_lasts() {
        let profile = Profile::default().attempts(1);
        let after = |seconds| Attempt {
            started: false,
            age: Duration::from_secs(seconds),
            chance: 1.0,
            ..attempt(1)
        };
        let delays: Vec<NextState> = [0, 1, 8, 59]
            .into_iter()
            .map(|age| after_error(&transient(), &profile, after(age)))
            .collect();

        let retry = |seconds| NextState::Retry {
            delay: Duration::from_secs(seconds),
            counts: false,
        };
        assert_eq!(delays, [retry(1), retry(1), retry(8), retry(59)]);
        assert_eq!(
            after_error(&transient(), &profile, after(60)),
            NextState::Fail(FailureClass::AttemptsUsedUp)
        );
    }
}
