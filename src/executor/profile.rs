use super::ordering::OrderingKey;
use super::rate::Rate;
use crate::hex::hex;
use crate::store::RunRef;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

/// What kind of executor this is and how its runs are treated.
///
/// ```
/// use std::time::Duration;
/// use universal_executor::Profile;
///
/// let profile = Profile::new("tool").responds_with(["tool.response.v1"]).timeout(Duration::from_secs(5)).attempts(1);
/// assert_eq!(profile.retry.attempts, 1);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// `executor`, `agent`, `tool`, `workflow`, or a kind of your own; written into everything it creates.
    pub kind: Cow<'static, str>,
    /// The schemas it may write; any if absent. Dead letters apart.
    pub responds_with: Option<Vec<String>>,
    /// SHA-256 in hex of the definition it was made from, so that a response says which one it followed.
    pub definition: Option<String>,
    /// How many runs may follow from one another before the chain is stopped; 16 by default.
    pub hop_limit: u32,
    /// How long a claim holds without a heartbeat; 30 s by default. A heartbeat comes every third of it.
    pub lease: Duration,
    /// How long `execute` and `respond` may take together; 120 s by default.
    pub timeout: Duration,
    /// How long one source may take to fetch; 5 s by default.
    pub source_timeout: Duration,
    /// The most bytes of trigger and sources together; 1 MiB by default.
    pub context_bytes: usize,
    /// What happens after an error.
    pub retry: RetryPolicy,
    /// Whether an interrupted run is tried again.
    pub execution: Execution,
    /// Which of its runs go one at a time, in the order in which they came; none by default.
    pub ordering: OrderingKey,
    /// Maximum number of runs that one runtime processes at a time. `None` takes the runtime's own limit. A run whose response is
    /// being committed does not count, unless the limit is 1.
    pub max_inflight: Option<usize>,
    /// How many of its runs one runtime may start in a time; any number if absent. What is too much waits in the ledger.
    pub rate: Option<Rate>,
    /// `true` if the text of the executor's own errors and panics stays out of log lines, runs and dead letters. Defaults to
    /// `false`.
    pub hides_errors: bool,
}

/// What happens after an error that may be tried again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// How often a run may start; 5 by default. The last error of these ends it with a dead letter.
    pub attempts: u32,
    /// Number of workers in a row whose deaths during one run end it with a dead letter of the class
    /// [`CrashLoop`](crate::store::FailureClass::CrashLoop). Defaults to 3; 0 counts as 1.
    ///
    /// Each death also uses an attempt, so the smaller of this number and [`attempts`](Self::attempts) applies. On each store, a
    /// runtime executes runs that lost two workers in a row, or one fewer than this number, one at a time. So an input that kills its
    /// worker does not use up the limit of the other runs. With 1 there is no such protection: every run that a dying worker executes
    /// fails.
    pub crashes: u32,
    /// The longest delay after the first error; it doubles with each further one. 1 s by default.
    pub base: Duration,
    /// The longest delay at all; 60 s by default.
    pub cap: Duration,
    /// The maximum age of an attempt in which an unreadable trigger or required source does not use the attempt.
    /// Age counts from the first claim of the attempt, not while the run waits for its turn. Defaults to 60 s.
    pub read_retry_timeout: Duration,
    /// The maximum age of an attempt that is only ever rate limited, from its first claim. Defaults to 24 h.
    pub max_age: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            crashes: 3,
            base: Duration::from_secs(1),
            cap: Duration::from_secs(60),
            read_retry_timeout: Duration::from_secs(60),
            max_age: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// How often `execute` may run for one trigger.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Execution {
    /// Again after a crash, a lost lease or a retryable error; the default. The idempotency key stays the same.
    #[default]
    AtLeastOnce,
    /// Never again once it may have started: a run whose worker is gone ends as `outcome_unknown`. Needs a store with a
    /// run ledger.
    AtMostOnce,
}

impl Profile {
    /// The profile of a kind, all else at its default.
    #[must_use]
    pub fn new(kind: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: kind.into(),
            responds_with: None,
            definition: None,
            hop_limit: 16,
            lease: RunRef::DEFAULT_LEASE,
            timeout: Duration::from_secs(120),
            source_timeout: Duration::from_secs(5),
            context_bytes: 1 << 20,
            retry: RetryPolicy::default(),
            execution: Execution::AtLeastOnce,
            ordering: OrderingKey::None,
            max_inflight: None,
            rate: None,
            hides_errors: false,
        }
    }

    /// This profile for what an executor does, and another's for what it is: kind, definition and schemas.
    pub(crate) fn in_place_of(self, before: Self) -> Self {
        Self {
            kind: before.kind,
            responds_with: before.responds_with,
            definition: before.definition,
            ..self
        }
    }

    /// The profile of an executor that says nothing about itself.
    pub(super) fn standard() -> &'static Self {
        static STANDARD: LazyLock<Profile> = LazyLock::new(Profile::default);
        &STANDARD
    }

    /// Sets the schemas it may write.
    #[must_use]
    pub fn responds_with<T: Into<String>>(mut self, schemas: impl IntoIterator<Item = T>) -> Self {
        self.responds_with = Some(schemas.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the hash of the definition it was made from, given the definition's text.
    #[must_use]
    pub fn definition(mut self, text: &str) -> Self {
        self.definition = Some(hex(&Sha256::digest(text.as_bytes())));
        self
    }

    /// Sets how many runs may follow from one another.
    #[must_use]
    pub const fn hop_limit(mut self, hops: u32) -> Self {
        self.hop_limit = hops;
        self
    }

    /// Sets how long a claim holds without a heartbeat.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long `execute` and `respond` may take together.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long one source may take to fetch.
    #[must_use]
    pub const fn source_timeout(mut self, timeout: Duration) -> Self {
        self.source_timeout = timeout;
        self
    }

    /// Sets the most bytes of trigger and sources together.
    #[must_use]
    pub const fn context_bytes(mut self, bytes: usize) -> Self {
        self.context_bytes = bytes;
        self
    }

    /// Sets how often a run may start.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.retry.attempts = attempts;
        self
    }

    /// Sets the [number of workers in a row](RetryPolicy::crashes) whose deaths during one run end it as failed. Defaults to 3; 0
    /// counts as 1. The smaller of this number and the number of attempts applies.
    #[must_use]
    pub const fn crashes(mut self, crashes: u32) -> Self {
        self.retry.crashes = crashes;
        self
    }

    /// Sets what happens after an error.
    #[must_use]
    pub const fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Sets which of its runs go one at a time.
    #[must_use]
    pub fn ordering(mut self, key: OrderingKey) -> Self {
        self.ordering = key;
        self
    }

    /// Sets the maximum number of runs that one runtime processes at a time. With 1, a run starts after the response of the run
    /// before is committed. With more, the limit is for runs that execute: as many others may wait for their commits.
    #[must_use]
    pub const fn max_inflight(mut self, runs: usize) -> Self {
        self.max_inflight = Some(runs);
        self
    }

    /// Omits the text of the executor's own errors and panics from log lines, [`Run::cause`](crate::store::Run::cause) and dead
    /// letters. Use this if an error can contain personal data or a secret that the crate cannot recognize as one.
    ///
    /// The code of the error, the operation that failed and the errors of the store stay visible.
    #[must_use]
    pub const fn hide_errors(mut self) -> Self {
        self.hides_errors = true;
        self
    }

    /// Sets how many of its runs one runtime may start in a time.
    #[must_use]
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Never executes a run again once it has started.
    #[must_use]
    pub const fn at_most_once(mut self) -> Self {
        self.execution = Execution::AtMostOnce;
        self
    }
}

impl Default for Profile {
    /// The kind `executor`.
    fn default() -> Self {
        Self::new("executor")
    }
}

impl RetryPolicy {
    /// A policy that never tries again.
    #[must_use]
    pub fn never() -> Self {
        Self {
            attempts: 1,
            ..Self::default()
        }
    }

    /// Returns the number of lost workers in a row that ends a run: at least 1.
    pub(super) fn crash_limit(&self) -> u32 {
        self.crashes.max(1)
    }
}
