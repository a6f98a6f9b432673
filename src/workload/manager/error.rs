use crate::error::{BoxError, Chain, Retry};
use crate::store::StoreError;
use crate::workflow;
use std::fmt;

/// Error returned when a workload cannot be loaded, with all searched locations.
///
/// Its message has the identifier, the nearest name, and each location with its reason, in one
/// line.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct WorkloadLoadError {
    /// The identifier of the requested workload.
    pub ident: String,
    /// The searched locations in the order of the search, each with the reason why it does not provide the requested workload.
    pub searched: Vec<Tried>,
    /// Names of existing workloads similar to the requested one, the most similar first. At most 3.
    pub nearest: Vec<String>,
}

/// Error returned when a [`WorkloadManager`](super::WorkloadManager) cannot be built.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// Two workloads registered in code have the same name.
    #[error("duplicate workload {name:?} registered in code; rename one of the two")]
    Twice {
        /// The duplicate workload name.
        name: String,
    },
}

impl ManagerError {
    /// Returns [`Retry::Never`]: the name of a workload has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Twice { .. } => Retry::Never,
        }
    }
}

/// A location that was searched for a workload.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Tried {
    /// The searched location. This is the path of a file or folder, `store:<id>` for a breadcrumb, `store`, `code`, or
    /// `this name` for an invalid identifier.
    pub path: String,
    /// Line and column of the problem in the workload definition, counted from 1, if known.
    pub position: Option<(usize, usize)>,
    /// The reason why the location does not have the requested workload.
    pub reason: String,
    /// The decision whether and when another read of the location can succeed.
    pub retry: Retry,
}

impl WorkloadLoadError {
    /// Returns the delay before a retry of the load, or [`Retry::Never`] if a retry cannot succeed. A retry can succeed
    /// only if a location could not be read. Otherwise the name or a file has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        let mut retries = self.searched.iter().map(|tried| tried.retry);
        let retry = retries.find(|retry| *retry != Retry::Never);
        retry.unwrap_or(Retry::Never)
    }
}

impl Tried {
    pub(super) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            position: None,
            reason: reason.into(),
            retry: Retry::Never,
        }
    }

    /// Returns the searched location for a store that could not be read.
    pub(super) fn unreadable(path: impl Into<String>, error: &StoreError) -> Self {
        Self {
            retry: error.retry(),
            ..Self::new(path, Chain(error).to_string())
        }
    }

    /// Returns the searched location for an invalid workload definition. The reason contains the messages of the error
    /// and its causes.
    pub(super) fn invalid(path: impl Into<String>, error: &BoxError) -> Self {
        if let Some(error) = error.downcast_ref::<workflow::WorkflowLoadError>() {
            let reason = format!("{}: {}", error.path(), error.problem());
            let position = error.position();
            return Self {
                position: position.map(|position| (position.line, position.column)),
                ..Self::new(path, reason)
            };
        }
        let mut reason = error.to_string();
        let mut link = error.source();
        for _ in 0..8 {
            let Some(cause) = link else { break };
            reason = format!("{reason}: {cause}");
            link = cause.source();
        }
        Self::new(path, reason)
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl fmt::Display for WorkloadLoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot load workload {:?}", self.ident)?;
        if let [nearest, ..] = self.nearest.as_slice() {
            write!(f, "; did you mean {nearest:?}?")?;
        }
        for tried in &self.searched {
            write!(f, "; {tried}")?;
        }
        Ok(())
    }
}

impl std::error::Error for WorkloadLoadError {}
