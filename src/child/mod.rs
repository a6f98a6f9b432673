//! Child processes: their environment, their process group, and their standard error in the log.

mod group;
mod secrets;
mod stderr;

pub(crate) use group::ProcessGroup;
pub(crate) use secrets::Secrets;
pub(crate) use stderr::Stderr;

/// The environment variables that a child process inherits from this process.
pub(crate) const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];
