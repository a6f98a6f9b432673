//! An agent's program as a child process: its start, input, output and end.

use super::token::Token;
use super::{CliError, RawOutput, Settings};
use crate::child::{INHERITED, ProcessGroup, Secrets, Stderr};
use crate::machine::RunId;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::{select, time};

/// Maximum time to read the output of an agent's program after the end of the program. Child processes of the program can keep the pipes
/// open.
const PIPE_TIMEOUT: Duration = Duration::from_secs(1);

/// The running program of an agent. Dropping this kills the process group of the program.
pub(super) struct Program {
    child: Child,
    _group: ProcessGroup,
    pipes: Pipes,
    max_output_bytes: usize,
    stderr: Stderr,
}

struct Pipes {
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

impl Program {
    pub(super) fn start(
        settings: &Settings,
        run: &RunId,
        url: &str,
        token: &Token,
    ) -> Result<Self, CliError> {
        let started = ProcessGroup::start(&mut command(settings, run, url, token));
        let (mut child, group) = started.map_err(|source| CliError::Start {
            program: settings.program.to_string_lossy().into_owned(),
            source,
        })?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(CliError::Misused {
                problem: "the program has no pipes for its input and output",
            });
        };
        let env_values = settings
            .env
            .iter()
            .map(|(_, value)| value.to_string_lossy());
        let secrets = Secrets::new(env_values.chain([token.reveal().into()]));
        Ok(Self {
            child,
            _group: group,
            pipes: Pipes {
                stdin,
                stdout,
                stderr,
            },
            max_output_bytes: settings.max_output_bytes,
            stderr: Stderr::new(
                settings.program.to_string_lossy().into_owned(),
                Arc::new(secrets),
            ),
        })
    }

    /// Waits for the answer of the agent's external program, or kills the program when the channel `stop` receives a message. The
    /// program has ended when this function returns.
    pub(super) async fn answer(
        mut self,
        task: Vec<u8>,
        stop: oneshot::Receiver<()>,
    ) -> Result<String, CliError> {
        let talk = exchange(
            &mut self.child,
            self.pipes,
            &task,
            &mut self.stderr,
            self.max_output_bytes,
        );
        let ended = select! {
            ended = talk => ended,
            _ = stop => Err(CliError::Misused { problem: "the session was cancelled" }),
        };
        let (status, output) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // The first error is returned, also if the kill fails.
                self.child.kill().await.ok();
                return Err(error);
            }
        };
        if !status.success() {
            let last_words = self.stderr.last_words();
            return Err(CliError::Ended { status, last_words });
        }
        text(output)
    }
}

fn command(settings: &Settings, run: &RunId, url: &str, token: &Token) -> Command {
    let inherited = INHERITED
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut command = Command::new(&settings.program);
    command
        .args(&settings.args)
        .env_clear()
        .envs(inherited)
        .envs(settings.env.iter().map(|(name, value)| (name, value)))
        .env("UX_CALLBACK_URL", url)
        .env("UX_TOKEN", token.reveal())
        .env("UX_RUN", run.as_str())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(folder) = &settings.current_dir {
        command.current_dir(folder);
    }
    command
}

/// Writes the input of the agent's external program and reads its output until the program has ended and its pipes are empty.
async fn exchange(
    child: &mut Child,
    pipes: Pipes,
    task: &[u8],
    stderr: &mut Stderr,
    max_output_bytes: usize,
) -> Result<(ExitStatus, Vec<u8>), CliError> {
    let mut output = Vec::new();
    let status = {
        let piped = async {
            let read = read(pipes.stdout, &mut output, max_output_bytes);
            let fed = async {
                write_task(pipes.stdin, task).await;
                Ok(())
            };
            let followed = async {
                stderr.follow(pipes.stderr).await;
                Ok(())
            };
            futures::try_join!(read, fed, followed).map(|((), (), ())| ())
        };
        tokio::pin!(piped);
        let mut pipes_ended = false;
        let status = loop {
            select! {
                ended = &mut piped, if !pipes_ended => {
                    ended?;
                    pipes_ended = true;
                }
                status = child.wait() => break status,
            }
        };
        if !pipes_ended && let Ok(ended) = time::timeout(PIPE_TIMEOUT, &mut piped).await {
            ended?;
        }
        status
    };
    match status {
        Ok(status) => Ok((status, output)),
        Err(source) => Err(CliError::Io {
            task: "wait for the program's end",
            source,
        }),
    }
}

/// Writes the task's JSON document to the standard input of the agent's external program. Errors are ignored, because a program
/// may exit or close its input without reading the task.
async fn write_task(mut stdin: ChildStdin, task: &[u8]) {
    if stdin.write_all(task).await.is_ok() {
        stdin.shutdown().await.ok();
    }
}

async fn read(
    mut stdout: impl AsyncRead + Unpin,
    output: &mut Vec<u8>,
    limit: usize,
) -> Result<(), CliError> {
    let mut chunk = vec![0; 8 << 10];
    loop {
        let size = stdout.read(&mut chunk).await;
        match size.map_err(|source: io::Error| CliError::Io {
            task: "read the program's answer",
            source,
        })? {
            0 => return Ok(()),
            size if size > limit - output.len() => return Err(CliError::TooLarge { limit }),
            size => output.extend_from_slice(chunk.get(..size).unwrap_or_default()),
        }
    }
}

/// Returns the output of the agent's external program as text, without trailing line breaks.
fn text(output: Vec<u8>) -> Result<String, CliError> {
    match String::from_utf8(output) {
        Ok(mut text) => {
            text.truncate(text.trim_end_matches(['\r', '\n']).len());
            Ok(text)
        }
        Err(error) => {
            let source = error.utf8_error();
            let output = RawOutput(error.into_bytes());
            Err(CliError::NotText { output, source })
        }
    }
}
