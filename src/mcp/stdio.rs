//! Transport over the standard input and output of a program.

use super::McpError;
use super::settings::StdioCommand;
use crate::child::{INHERITED, ProcessGroup, Secrets, Stderr};
use crate::clock::within;
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Time for a program to exit after the end of its standard input.
const GRACE: Duration = Duration::from_secs(2);

/// The running program of an MCP server. Dropping it kills the process group of the program.
pub(super) struct Program {
    pipes: AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>,
    child: Child,
    _group: ProcessGroup,
}

impl Program {
    /// Starts the program of an MCP server. Messages of the server of more than `max_message_bytes` are discarded.
    pub(super) fn start(
        server: &str,
        command: &StdioCommand,
        max_message_bytes: usize,
    ) -> Result<Self, McpError> {
        let program = command.program.to_string_lossy().into_owned();
        let failed = |source| McpError::Start {
            server: server.to_owned(),
            program: program.clone(),
            source,
        };
        let (mut child, group) = ProcessGroup::start(&mut process(command)).map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed(io::Error::other("the program has no pipes")));
        };
        let mut log = Stderr::new(program, Arc::new(secrets(command)));
        // Ends with the process group, because its pipe is closed then.
        tokio::spawn(async move { log.follow(stderr).await });
        let pipes = AsyncRwTransport::new_client(stdout, stdin);
        Ok(Self {
            pipes: pipes.with_max_line_length(max_message_bytes),
            child,
            _group: group,
        })
    }
}

fn process(command: &StdioCommand) -> Command {
    let inherited = INHERITED
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut process = Command::new(&command.program);
    process
        .args(&command.args)
        .env_clear()
        .envs(inherited)
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(folder) = &command.current_dir {
        process.current_dir(folder);
    }
    process
}

/// Returns the values that the output of the program must not show.
pub(super) fn secrets(command: &StdioCommand) -> Secrets {
    Secrets::new(command.env.iter().map(|(_, value)| value.to_string_lossy()))
}

impl Transport<RoleClient> for Program {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.pipes.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.pipes.receive().await
    }

    /// Closes the standard input of the program, and gives the program a moment to exit. The input cannot be closed while a message is
    /// being written, so a program that no longer reads is killed without it.
    async fn close(&mut self) -> Result<(), io::Error> {
        let exited = async {
            self.pipes.close().await?;
            self.child.wait().await
        };
        within(GRACE, exited).await;
        Ok(())
    }
}
