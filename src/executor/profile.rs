use super::ordering::OrderingKey;
use super::rate::Rate;
use crate::hex::hex;
use crate::store::RunRef;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

/// Kind of an executor, and settings of its runs: lease, timeouts, retries and limits.
///
/// The builder of an [`executor`](fn@crate::executor) sets the most used settings. Use
/// [`ExecutorBuilder::profile`](super::ExecutorBuilder::profile) for the others. Your own executor
/// type returns a profile from [`profile`](crate::UniversalExecutor::profile).
///
/// | setting | default |
/// |---|---|
/// | `lease` | 30 s |
/// | `timeout` | 120 s |
/// | `source_timeout` | 5 s |
/// | `context_bytes` | 1 MiB |
/// | `retry.attempts`, `retry.crashes` | 5, 3 |
/// | `hop_limit` | 16 |
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
    /// The kind of the executor: `executor`, `agent`, `tool`, `workflow`, or a custom kind. Written to the `creator` of every
    /// context that the executor writes. Defaults to `executor`.
    pub kind: Cow<'static, str>,
    /// The schemas that the executor may write, apart from dead letters. `None` (the default) permits any schema.
    ///
    /// A response with another schema fails the run without a retry, and is not committed.
    pub responds_with: Option<Vec<String>>,
    /// SHA-256 hash, in hexadecimal, of the definition that the executor was built from. Written to the `creator` of its responses.
    pub definition: Option<String>,
    /// Maximum length of a chain of runs that trigger one another. A run beyond the limit fails. Defaults to 16.
    ///
    /// The limit ends loops of executors that trigger one another. The failed run has the class
    /// [`HopLimit`](crate::store::FailureClass::HopLimit).
    pub hop_limit: u32,
    /// Duration for which a run's lease is valid after the claim and after each heartbeat. A heartbeat is sent every third of this
    /// duration. Defaults to 30 s.
    ///
    /// A shorter lease lets another worker take over a crashed run earlier, and costs more writes
    /// to the store.
    pub lease: Duration,
    /// Timeout of `execute` and `respond` together. Defaults to 120 s.
    ///
    /// After the timeout, the future is dropped, and the attempt fails with
    /// [`ExecutorError::Timeout`](super::ExecutorError::Timeout).
    pub timeout: Duration,
    /// Timeout of the fetch of one context source. Defaults to 5 s.
    ///
    /// A source that takes longer is missing. If it is required, the attempt fails.
    pub source_timeout: Duration,
    /// Maximum size of a run's context, that is, of the trigger and the sources together, in bytes. Defaults to 1 MiB.
    ///
    /// Items of optional sources are omitted to stay within the limit: the lowest priority first,
    /// then the oldest.
    pub context_bytes: usize,
    /// The limits and delays of a run's retries after an error.
    pub retry: RetryPolicy,
    /// The guarantee for interrupted runs of the executor: at least once (the default) or at most once.
    pub execution: Execution,
    /// The ordering of the executor's runs: runs with an equal key execute one at a time. Defaults to no order.
    pub ordering: OrderingKey,
    /// Maximum number of the executor's runs that one runtime processes at a time, or `None` (the default) for the runtime's own
    /// limit. A run whose response is being committed does not count, unless the limit is 1.
    pub max_inflight: Option<usize>,
    /// Maximum number of the executor's runs that one runtime starts per duration, or `None` (the default) for no limit. Further
    /// runs wait in the ledger.
    pub rate: Option<Rate>,
    /// If `true`, the text of the executor's own errors and panics is omitted from log lines, runs and dead letters. Defaults to
    /// `false`.
    pub hides_errors: bool,
}

/// Limits and delays of a run's retries after an error that is not permanent.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::Profile;
/// use universal_executor::executor::RetryPolicy;
///
/// let mut retry = RetryPolicy::default();
/// retry.attempts = 3;
/// retry.cap = Duration::from_secs(10);
///
/// assert_eq!(Profile::new("tool").retry(retry).retry.attempts, 3);
/// assert_eq!(RetryPolicy::never().attempts, 1);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Maximum number of attempts of a run. The error of the last attempt ends the run with a dead letter. Defaults to 5.
    pub attempts: u32,
    /// Number of consecutive worker deaths during one run at which the run fails. At this number, the run ends with a dead letter
    /// of the class [`CrashLoop`](crate::store::FailureClass::CrashLoop). Defaults to 3; 0 counts as 1.
    ///
    /// Each death also uses an attempt, so the smaller of this number and [`attempts`](Self::attempts) applies.
    ///
    /// On each store, a runtime executes runs that lost two workers in a row, or one worker fewer than this number, one at a time.
    /// An input that kills its worker therefore does not use up the limit of the other runs. With a limit of 1 there is no such
    /// protection: every run that a dying worker executes fails.
    pub crashes: u32,
    /// Maximum delay of the retry after a run's first error; each further error of the run doubles the maximum. The doubling
    /// stops at `cap`. Defaults to 1 s.
    pub base: Duration,
    /// Upper limit of the retry delays, which grow with each error of the run. A longer delay that the error itself requests
    /// takes precedence. Defaults to 60 s.
    pub cap: Duration,
    /// Period, counted from the first claim of an attempt, during which an error before `execute` does not use up the attempt. Such an
    /// error is, for example, an unreadable trigger or required source. Defaults to 60 s.
    pub read_retry_timeout: Duration,
    /// Maximum time, counted from an attempt's first claim, during which a rate-limited attempt is repeated before the run fails.
    /// Defaults to 24 h.
    ///
    /// A run fails before a retry that would exceed this time.
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

/// Guarantee on the number of executions for one trigger version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Execution {
    /// `execute` runs again after a crash, a lost lease or a retryable error, with the same idempotency key. This is the default.
    ///
    /// Pass [`idempotency_key`](super::ExecutionContext::idempotency_key) to external services, so
    /// that a repetition has no second effect.
    #[default]
    AtLeastOnce,
    /// `execute` is not repeated after a crash, a lost lease or an error. A run that may have executed without a recorded result fails
    /// as [`OutcomeUnknown`](crate::store::FailureClass::OutcomeUnknown). A suspended run still resumes. Needs a store with a run ledger.
    AtMostOnce,
}

impl Profile {
    /// Creates a profile for executors of this kind, with the defaults of all other settings.
    ///
    /// Use a kind that tells operators and readers of `creator` the type of the executor.
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

    /// Returns this profile, except that the kind, the response schemas and the definition hash come from `before`, the profile
    /// that it replaces.
    pub(crate) fn in_place_of(self, before: Self) -> Self {
        Self {
            kind: before.kind,
            responds_with: before.responds_with,
            definition: before.definition,
            ..self
        }
    }

    /// Returns the profile of an executor that does not override `profile`.
    pub(super) fn standard() -> &'static Self {
        static STANDARD: LazyLock<Profile> = LazyLock::new(Profile::default);
        &STANDARD
    }

    /// Sets the schemas that the executor may write. Defaults to any schema.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Profile;
    ///
    /// let profile = Profile::default().responds_with(["receipt.v1", "refund.v1"]);
    /// assert_eq!(profile.responds_with.as_deref().map(<[_]>::len), Some(2));
    /// assert_eq!(profile.kind, "executor");
    /// ```
    #[must_use]
    pub fn responds_with<T: Into<String>>(mut self, schemas: impl IntoIterator<Item = T>) -> Self {
        self.responds_with = Some(schemas.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the hash of the definition that the executor was built from. `text` is the text of the definition.
    ///
    /// Use it to find the responses that a version of a definition wrote.
    #[must_use]
    pub fn definition(mut self, text: &str) -> Self {
        self.definition = Some(hex(&Sha256::digest(text.as_bytes())));
        self
    }

    /// Sets the maximum length of a chain of runs that trigger one another. Defaults to 16.
    #[must_use]
    pub const fn hop_limit(mut self, hops: u32) -> Self {
        self.hop_limit = hops;
        self
    }

    /// Sets the duration for which a run's lease is valid after the claim and after each heartbeat. Defaults to 30 s.
    ///
    /// Choose a lease that is longer than the pauses of the process and of the store.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the timeout of `execute` and `respond` together. Defaults to 120 s.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the timeout of the fetch of one context source. Defaults to 5 s.
    #[must_use]
    pub const fn source_timeout(mut self, timeout: Duration) -> Self {
        self.source_timeout = timeout;
        self
    }

    /// Sets the maximum size of a run's context, that is, of the trigger and the sources together, in bytes. Defaults to 1 MiB.
    #[must_use]
    pub const fn context_bytes(mut self, bytes: usize) -> Self {
        self.context_bytes = bytes;
        self
    }

    /// Sets the maximum number of attempts of a run. Defaults to 5.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.retry.attempts = attempts;
        self
    }

    /// Sets the [number of consecutive worker deaths](RetryPolicy::crashes) during one run at which the run fails.
    /// Defaults to 3; 0 counts as 1. The smaller of this number and the number of attempts applies.
    #[must_use]
    pub const fn crashes(mut self, crashes: u32) -> Self {
        self.retry.crashes = crashes;
        self
    }

    /// Sets the limits and delays of a run's retries after an error.
    ///
    /// Replaces earlier calls of [`attempts`](Self::attempts) and [`crashes`](Self::crashes).
    #[must_use]
    pub const fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Sets the ordering key of the executor's runs: runs with an equal key execute one at a time. Defaults to no order.
    ///
    /// A chat message of a session is ordered by its session without this setting.
    #[must_use]
    pub fn ordering(mut self, key: OrderingKey) -> Self {
        self.ordering = key;
        self
    }

    /// Sets the maximum number of the executor's runs that one runtime processes at a time. Defaults to the runtime's own limit.
    ///
    /// With a limit of 1, a run starts only after the previous run's response is committed. With a higher limit, only executing runs
    /// count, and as many other runs may wait for their commits.
    ///
    /// `runs` must be at least 1, or the executor is refused as
    /// [`InvalidExecutor::NoneInFlight`](super::InvalidExecutor::NoneInFlight).
    #[must_use]
    pub const fn max_inflight(mut self, runs: usize) -> Self {
        self.max_inflight = Some(runs);
        self
    }

    /// Omits the text of the executor's own errors and panics from log lines, [`Run::cause`](crate::store::Run::cause) and dead
    /// letters. Use this method if an error can contain personal data, or a secret that the crate cannot recognize.
    ///
    /// The code of the error, the operation that failed and the errors of the store stay visible.
    #[must_use]
    pub const fn hide_errors(mut self) -> Self {
        self.hides_errors = true;
        self
    }

    /// Sets the maximum number of the executor's runs that one runtime starts per duration. Defaults to no limit.
    ///
    /// The limit applies to each runtime separately, so several workers together start more runs.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::Profile;
    /// use universal_executor::executor::Rate;
    ///
    /// let profile = Profile::default().rate(Rate::per(100, Duration::from_secs(60)));
    /// assert_eq!(profile.rate.map(|rate| rate.runs), Some(100));
    /// ```
    #[must_use]
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Selects [`Execution::AtMostOnce`]: a run is not executed again after a crash, a lost lease or an error.
    ///
    /// The store needs a run ledger. Otherwise the executor is refused as
    /// [`InvalidExecutor::NoLedger`](super::InvalidExecutor::NoLedger).
    #[must_use]
    pub const fn at_most_once(mut self) -> Self {
        self.execution = Execution::AtMostOnce;
        self
    }
}

impl Default for Profile {
    /// Returns the default profile, which has the kind `executor`.
    fn default() -> Self {
        Self::new("executor")
    }
}

impl RetryPolicy {
    /// Returns a retry policy with a single attempt.
    ///
    /// Rate limits, and errors before `execute`, use no attempt, so the run is still retried after them.
    #[must_use]
    pub fn never() -> Self {
        Self {
            attempts: 1,
            ..Self::default()
        }
    }

    /// Returns the number of consecutive worker deaths at which a run fails, at least 1.
    pub(super) fn crash_limit(&self) -> u32 {
        self.crashes.max(1)
    }
}
