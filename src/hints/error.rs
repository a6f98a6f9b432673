/// Hints that cannot be used, and what to mend.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("hints: {field}: {problem}")]
#[non_exhaustive]
pub struct HintsError {
    /// The field, as a path from the hints: `transform.summary.template`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A rule that failed on a context.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("rule {rule:?} failed: {reason}")]
#[non_exhaustive]
pub struct HintsFailure {
    /// The rule, as a path from the hints: `transform.summary`.
    pub rule: String,
    /// Why, without anything that was in the context.
    pub reason: &'static str,
}
