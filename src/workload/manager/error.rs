use crate::error::{BoxError, Chain, Retry};
use crate::store::StoreError;
use crate::workflow;
use std::fmt;

/// A workload cannot be loaded: all that was looked at, and why it was not that.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct WorkloadLoadError {
    /// What was asked for.
    pub ident: String,
    /// Where it was looked for, in order.
    pub searched: Vec<Tried>,
    /// Names that there are and that are much like it.
    pub nearest: Vec<String>,
}

/// A manager cannot be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// Two workloads that are made in code have one name.
    #[error("two workloads made in code are called {name:?}; give one of them another name")]
    Twice {
        /// The name.
        name: String,
    },
}

impl ManagerError {
    /// Always [`Retry::Never`]: a name has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Twice { .. } => Retry::Never,
        }
    }
}

/// Something that was looked at for a workload.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Tried {
    /// A file, a folder, a breadcrumb as `store:<id>`, or `code`.
    pub path: String,
    /// Line and column, counted from 1, of what is wrong there, if that is known.
    pub position: Option<(usize, usize)>,
    /// Why it was not that.
    pub reason: String,
    /// The decision on another look at the place.
    pub retry: Retry,
}

impl WorkloadLoadError {
    /// Another attempt can succeed if a place could not be read. Otherwise the name or a file has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        let mut retries = self.searched.iter().map(|tried| tried.retry);
        let may = retries.find(|retry| *retry != Retry::Never);
        may.unwrap_or(Retry::Never)
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

    /// A store that cannot be read.
    pub(super) fn unread(path: impl Into<String>, error: &StoreError) -> Self {
        Self {
            retry: error.retry(),
            ..Self::new(path, Chain(error).to_string())
        }
    }

    /// What is wrong with a definition, with all that its causes say.
    pub(super) fn broken(path: impl Into<String>, error: &BoxError) -> Self {
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
        write!(f, "workload {:?} cannot be loaded", self.ident)?;
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
