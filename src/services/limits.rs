use serde::{Deserialize, Serialize};

/// Limits of one run of a workflow, set by `policies.limits` of the workflow's definition.
/// [`Services::limits`](crate::Services::limits) is the maximum that a definition can set.
///
/// A workflow with a limit above the maximum can be read, but does not start: its assembly with the services fails.
///
/// # Examples
/// ```
/// use universal_executor::Services;
/// use universal_executor::workflow::WorkflowLimits;
///
/// let mut limits = WorkflowLimits::default();
/// assert_eq!((limits.steps, limits.items), (10_000, 1_000));
/// assert_eq!((limits.value_bytes, limits.total_bytes), (256 * 1024, 4 * 1024 * 1024));
///
/// // The workflows of this service may raise the number of items to 5,000.
/// limits.items = 5_000;
/// let services = Services::new().limits(limits);
/// ```
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkflowLimits {
    /// Maximum number of steps that a workflow run starts (`steps`), including each branch and each iteration of
    /// `for_each`. Defaults to 10,000. A further step ends the run, and no `on_failure` handles this error.
    pub steps: u64,
    /// Maximum number of items of one `for_each` step of a workflow (`items`). Defaults to 1,000.
    pub items: u64,
    /// Maximum size of one value of a workflow run in bytes, as JSON (`value_bytes`). Defaults to 256 KiB. A step with
    /// a larger value fails.
    pub value_bytes: usize,
    /// Maximum total size of all values of a workflow run in bytes, as JSON (`total_bytes`). Defaults to 4 MiB.
    /// Variables and results count each time that the saved state contains them. The input of a running step counts if
    /// it was built for the step. The step that would exceed the limit fails.
    pub total_bytes: usize,
}

impl WorkflowLimits {
    /// Returns the name, the value and the maximum of the first workflow limit that exceeds its maximum.
    pub(crate) fn over(&self, max: &Self) -> Option<(&'static str, u64, u64)> {
        let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let limits = [
            ("steps", self.steps, max.steps),
            ("items", self.items, max.items),
            (
                "value_bytes",
                bytes(self.value_bytes),
                bytes(max.value_bytes),
            ),
            (
                "total_bytes",
                bytes(self.total_bytes),
                bytes(max.total_bytes),
            ),
        ];
        limits.into_iter().find(|(_, value, max)| value > max)
    }
}

impl Default for WorkflowLimits {
    fn default() -> Self {
        Self {
            steps: 10_000,
            items: 1_000,
            value_bytes: 256 << 10,
            total_bytes: 4 << 20,
        }
    }
}
