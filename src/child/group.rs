//! A child process with its own process group, which ends as a whole.

use std::io;
use tokio::process::{Child, Command};

/// The process group of a child process. Dropping it kills all processes of the group.
///
/// A process that has left the group, for example a daemon, is not killed.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

impl ProcessGroup {
    /// Starts a child process as the leader of a new process group.
    pub(crate) fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        #[cfg(unix)]
        command.process_group(0);
        let child = command.kill_on_drop(true).spawn()?;
        #[cfg(unix)]
        let group = {
            let id = child.id().and_then(|id| i32::try_from(id).ok());
            let leader = id.and_then(rustix::process::Pid::from_raw);
            Self { leader }
        };
        #[cfg(not(unix))]
        let group = Self {};
        Ok((child, group))
    }
}

#[cfg(unix)]
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            // The group may have ended already.
            rustix::process::kill_process_group(leader, rustix::process::Signal::KILL).ok();
        }
    }
}
