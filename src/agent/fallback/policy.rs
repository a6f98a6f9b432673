use std::time::Duration;

/// The timeouts, the rate limits and the circuit breaker of one model in a [`FallbackModel`](super::FallbackModel).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::agent::ModelPolicy;
///
/// let policy = ModelPolicy::new()
///     .first_event_timeout(Duration::from_secs(10))
///     .total_timeout(Duration::from_secs(45))
///     .requests_per_minute(60)
///     .tokens_per_minute(100_000)
///     .failure_threshold(3)
///     .pause(Duration::from_secs(10), Duration::from_secs(120));
/// assert_ne!(policy, ModelPolicy::default());
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ModelPolicy {
    pub(super) first_event_timeout: Duration,
    pub(super) total_timeout: Duration,
    pub(super) requests_per_minute: Option<u32>,
    pub(super) tokens_per_minute: Option<u32>,
    pub(super) failure_threshold: u32,
    pub(super) pause: Duration,
    pub(super) max_pause: Duration,
}

impl Default for ModelPolicy {
    fn default() -> Self {
        Self {
            first_event_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(60),
            requests_per_minute: None,
            tokens_per_minute: None,
            failure_threshold: 5,
            pause: Duration::from_secs(5),
            max_pause: Duration::from_secs(300),
        }
    }
}

impl ModelPolicy {
    /// Creates a policy with the default timeouts and circuit breaker, and without rate limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum time until the first content of a streamed answer. Defaults to 30 s, and must be more than zero.
    ///
    /// Content is text, reasoning, provider state, a part of a tool call, or the end of the answer. An event with the token usage
    /// does not count. The timeout has no effect on [`ChatModel::chat`](crate::agent::ChatModel::chat), which returns only whole answers.
    #[must_use]
    pub fn first_event_timeout(mut self, limit: Duration) -> Self {
        self.first_event_timeout = limit;
        self
    }

    /// Sets the maximum time of a whole answer of the model, streamed or not. Defaults to 60 s, and must be more than zero.
    ///
    /// The [timeout of the run](crate::Profile::timeout), by default 120 s, limits the attempts of all models together. The sum of
    /// the total timeouts should be smaller, otherwise the last models of the list receive no request.
    #[must_use]
    pub fn total_timeout(mut self, limit: Duration) -> Self {
        self.total_timeout = limit;
        self
    }

    /// Sets the maximum number of requests per minute to the model, at least 1. Defaults to no limit.
    ///
    /// The requests of a minute may start at once. After that, the allowance refills evenly.
    #[must_use]
    pub fn requests_per_minute(mut self, limit: u32) -> Self {
        self.requests_per_minute = Some(limit);
        self
    }

    /// Sets the maximum number of input and output tokens per minute, at least 1. Defaults to no limit.
    ///
    /// The tokens of an answer are counted after the answer, from its [usage](crate::agent::Usage). A model accepts requests while any
    /// tokens are left, so concurrent requests can exceed the limit. The excess is subtracted from the following minutes, at most from
    /// one hour. A model that reports no usage never reaches the limit.
    #[must_use]
    pub fn tokens_per_minute(mut self, limit: u32) -> Self {
        self.tokens_per_minute = Some(limit);
        self
    }

    /// Sets the number of consecutive failures that open the circuit breaker, at least 1. Defaults to 5.
    ///
    /// The table of [`FallbackModel`](super::FallbackModel#errors) lists the errors that count as a failure.
    #[must_use]
    pub fn failure_threshold(mut self, failures: u32) -> Self {
        self.failure_threshold = failures;
        self
    }

    /// Sets the pause of an open circuit breaker before a trial request, and the maximum pause. Defaults to 5 s and 300 s.
    ///
    /// Each failed trial doubles the pause, up to the maximum. The pause must be more than zero and at most the maximum.
    #[must_use]
    pub fn pause(mut self, pause: Duration, max_pause: Duration) -> Self {
        (self.pause, self.max_pause) = (pause, max_pause);
        self
    }

    /// Returns the problem of an invalid policy, or `None` if the policy is valid.
    pub(super) fn problem(&self) -> Option<&'static str> {
        let zero = |limit: Option<u32>| limit == Some(0);
        if self.first_event_timeout.is_zero() || self.total_timeout.is_zero() {
            return Some("a timeout of zero; set a longer one");
        }
        if zero(self.requests_per_minute) || zero(self.tokens_per_minute) {
            return Some("a rate limit of zero; set at least 1 per minute");
        }
        if self.failure_threshold == 0 {
            return Some("a failure threshold of zero; set at least 1");
        }
        if self.pause.is_zero() || self.pause > self.max_pause {
            return Some(
                "a pause of zero, or longer than its maximum; set a pause between the two",
            );
        }
        None
    }
}
