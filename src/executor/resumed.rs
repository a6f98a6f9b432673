use crate::model::{Breadcrumb, Json};
use std::sync::Arc;

/// Saved state of a run that resumes after an earlier attempt saved its progress or suspended the run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Resumed {
    /// The state that the run saved last.
    pub state: Json,
    /// The breadcrumb that woke the run, or `None` if the wait timed out, the run was not suspended, or the breadcrumb is gone.
    pub with: Option<Arc<Breadcrumb>>,
}
