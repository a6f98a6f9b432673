//! Errors of the kit for tests of executors and agents.

use crate::error::{BoxError, Retry};
use crate::runtime::RuntimeError;
use crate::source::SourceError;
use crate::store::{Moment, Operation, Run, StoreError, StoreId};
use std::time::Duration;

/// Error of the kit for tests of executors and agents. A retry never helps, because the test or the tested code has to change.
///
/// Return it from the test with `?`. The message has the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// The caller of the testing kit is not in a tokio runtime with one thread.
    ///
    /// `#[tokio::test]` has one thread by default.
    #[error(
        "the testing kit needs a tokio runtime with one thread, and {found}; use #[tokio::test] without a flavor"
    )]
    WrongRuntime {
        /// A description of the caller's tokio runtime.
        found: &'static str,
    },
    /// The test's clock cannot be advanced, because tokio's time is not paused.
    #[error(
        "cannot advance the clock by {by:?}: the time of tokio is not paused; create the store with TestStore::new"
    )]
    NotPaused {
        /// The duration by which the clock should be advanced.
        by: Duration,
    },
    /// A runtime under test uses another store than the test store whose method was called.
    ///
    /// Common causes are a second `TestStore`, and an executor that is bound to another store.
    #[error(
        "the test store cannot run this runtime: an executor or definition of the runtime uses store {found} instead of test store \
         {store}; call the method on the test store of the runtime"
    )]
    OtherStore {
        /// The identity of the test store whose method was called.
        store: StoreId,
        /// The identity of the other store that the runtime uses.
        found: StoreId,
    },
    /// A runtime under test did not become idle within the limits of the test store.
    ///
    /// Common causes are an executor that starts itself, and an `execute` that never returns.
    #[error(
        "the runtime is not idle after {clock:?} of its clock and {calls} store calls: {}; let the executor end, or raise the limit \
         with TestStore::time_limit or TestStore::real_time_limit",
        describe_busy(runs)
    )]
    NotIdle {
        /// The time that passed on tokio's clock since the start of the wait for an idle runtime.
        clock: Duration,
        /// The number of calls of the test store since the start of the wait for an idle runtime.
        calls: u64,
        /// The runs that are due or running, and the suspended runs that can resume because their answer is in the store. Empty if
        /// an event is not handled.
        runs: Vec<Run>,
    },
    /// The runtime under test became idle before the store call at which its worker should crash.
    ///
    /// Set the call before the run starts, or set another operation.
    #[error("expected a crash of the worker, but the runtime became idle first; {}", describe_planned(*at))]
    NoCrash {
        /// The store call at which the worker should crash, as set with [`Faults::crash_at`](super::Faults::crash_at), or `None`
        /// if no call was set.
        at: Option<(Operation, Moment)>,
    },
    /// The operating system refused the thread that limits the duration of a test.
    #[error("cannot start the thread that limits the duration of a test; see the cause")]
    Thread {
        /// The operating system's error for the thread.
        source: std::io::Error,
    },
    /// The runtime under test cannot run, or ended early.
    #[error("the runtime under test cannot run, or ended early; see the cause")]
    Runtime {
        /// The error of the runtime under test, a [`RuntimeError`].
        source: BoxError,
    },
    /// The testing kit cannot read the test store.
    #[error("the testing kit cannot read the test store; see the cause")]
    Store {
        /// The test store's error, a [`StoreError`] or a [`SourceError`].
        source: BoxError,
    },
}

impl TestError {
    /// Returns [`Retry::Never`], because a test that failed with this error fails again unless it is changed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::WrongRuntime { .. }
            | Self::NotPaused { .. }
            | Self::OtherStore { .. }
            | Self::NotIdle { .. }
            | Self::NoCrash { .. }
            | Self::Thread { .. }
            | Self::Runtime { .. }
            | Self::Store { .. } => Retry::Never,
        }
    }

    pub(super) fn of_runtime(error: RuntimeError) -> Self {
        let source = error.into();
        Self::Runtime { source }
    }

    pub(super) fn of_store(error: StoreError) -> Self {
        let source = error.into();
        Self::Store { source }
    }

    pub(super) fn of_source(error: SourceError) -> Self {
        let source = error.into();
        Self::Store { source }
    }
}

/// Describes a run on one line, for the message of an error of the testing kit.
pub(super) fn describe(run: &Run) -> String {
    let mut line = format!("{} is {}, {} attempts", run.run, run.state, run.attempts);
    for (name, detail) in [
        ("code", &run.code),
        ("reason", &run.reason),
        ("cause", &run.cause),
    ] {
        if let Some(detail) = detail {
            line.push_str(&format!(", {name}: {detail}"));
        }
    }
    line
}

fn describe_busy(runs: &[Run]) -> String {
    /// Maximum number of runs that an error message of the testing kit lists.
    const MAX_RUNS: usize = 10;
    if runs.is_empty() {
        return "no run is due or running, but an event is not handled".to_owned();
    }
    let mut lines: Vec<String> = runs.iter().take(MAX_RUNS).map(describe).collect();
    if let Some(others @ 1..) = runs.len().checked_sub(MAX_RUNS) {
        lines.push(format!("and {others} more runs"));
    }
    lines.join("; ")
}

fn describe_planned(at: Option<(Operation, Moment)>) -> String {
    match at {
        Some((operation, Moment::Before)) => {
            format!(
                "the worker did not call {operation}, so set Faults::crash_at to another operation"
            )
        }
        Some((operation, Moment::After)) => format!(
            "no call of {operation} succeeded, so set Faults::crash_at to another operation"
        ),
        None => "set the call with Faults::crash_at".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, Timestamp};
    use crate::store::{RunRef, RunState};

    #[test]
    fn the_error_names_the_runs_that_are_due_up_to_a_limit() {
        let run = |version| {
            let run = RunRef::new("clerk", BreadcrumbId::NIL, version);
            Run::new(run, RunState::Running, Timestamp::UNIX_EPOCH)
        };
        let not_idle = |runs| TestError::NotIdle {
            clock: Duration::from_secs(60),
            calls: 7,
            runs,
        };

        let few = not_idle(vec![run(1)]).to_string();
        let many = not_idle((1..=12).map(run).collect()).to_string();
        let none = not_idle(Vec::new()).to_string();

        assert!(few.contains("run of \"clerk\""), "{few}");
        assert!(few.contains("is running, 0 attempts; let"), "{few}");
        assert!(many.contains("; and 2 more runs; let"), "{many}");
        assert!(none.contains("an event is not handled"), "{none}");
    }
}
