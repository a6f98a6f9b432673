use crate::error::Retry;
use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::str::Utf8Error;
use std::time::Duration;

/// Error of a [`CliProvider`](crate::agent::CliProvider) session. No message contains the token or a value of the program's environment.
///
/// It is the cause of a failed attempt of an agent with a
/// [`CliProvider`](crate::agent::CliProvider).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The agent's program does not exist, may not be executed, or cannot be started at the moment.
    ///
    /// Check the path and the permissions of the program, and its working directory.
    #[error("cannot start the agent's program {program:?}; see the cause")]
    Start {
        /// The path or name of the program that cannot be started.
        program: String,
        /// The reason why the program cannot be started.
        source: io::Error,
    },
    /// The agent's program exited with a code other than 0, or was ended by a signal of the operating system.
    ///
    /// Code 2 is permanent. After another code or a signal, the run is retried.
    #[error(
        "the agent's program ended with {status}; its standard error is logged at the DEBUG level"
    )]
    Ended {
        /// The exit status of the agent's program.
        status: ExitStatus,
        /// The last line that the agent's external program wrote to standard error, truncated to 256 bytes. The error message
        /// does not contain it, because the requester of the agent receives the message.
        last_words: String,
    },
    /// The answer of the agent's program is larger than the maximum.
    #[error(
        "the answer of the agent's program exceeds the maximum of {limit} bytes; raise max_output_bytes"
    )]
    TooLarge {
        /// The maximum size of the program's answer in bytes.
        limit: usize,
    },
    /// The answer of the agent's program is not UTF-8.
    ///
    /// The run is retried. Make the program write UTF-8.
    #[error("the answer of the agent's program is not UTF-8 text")]
    NotText {
        /// The whole answer of the program, which is not UTF-8.
        output: RawOutput,
        /// The UTF-8 error, with the position of the first invalid byte in the answer.
        source: Utf8Error,
    },
    /// An operation of the operating system failed during a session with the agent's program.
    #[error("cannot {task} during a session with the agent's program; see the cause")]
    Io {
        /// The operation that failed, such as `listen on 127.0.0.1`.
        task: &'static str,
        /// The reason why the operation failed.
        source: io::Error,
    },
    /// The saved session state of an earlier attempt of the run is from an incompatible version or from another provider.
    ///
    /// The error is permanent. Continue the run with the version that saved the state.
    #[error(
        "cannot read the saved state of the session with the agent's program; another version or provider may have saved it"
    )]
    UnreadableState(#[source] serde_json::Error),
    /// The run called a method of the session with its external program at the wrong time, or a method that such sessions do not
    /// support.
    #[error("cannot use the session with the agent's program: {problem}")]
    Misused {
        /// The reason why the run cannot use the session with the agent's program.
        problem: &'static str,
    },
}

impl CliError {
    /// Returns [`Retry::After`] if a new start of the agent's program can succeed, and [`Retry::Never`] otherwise.
    #[must_use]
    pub fn retry(&self) -> Retry {
        let is_permanent = match self {
            Self::Start { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::InvalidInput
            ),
            Self::Ended { status, .. } => status.code() == Some(WRONG_USAGE),
            Self::TooLarge { .. } | Self::UnreadableState(_) | Self::Misused { .. } => true,
            Self::NotText { .. } | Self::Io { .. } => false,
        };
        match is_permanent {
            true => Retry::Never,
            false => Retry::After(Duration::ZERO),
        }
    }
}

/// The exit code with which most programs report invalid command line arguments.
const WRONG_USAGE: i32 = 2;

/// The bytes that an agent's program wrote to its standard output. `Debug` prints only the size.
///
/// The output can contain secrets, so it is not part of a log or an error message.
#[derive(Clone, Eq, PartialEq)]
pub struct RawOutput(pub(super) Vec<u8>);

impl RawOutput {
    /// Returns the bytes that the agent's external program wrote to its standard output.
    ///
    /// Use it to find the encoding of the output, for example with [`String::from_utf8_lossy`].
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for RawOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawOutput({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::class_of;

    #[test]
    fn starting_a_missing_program_is_not_retried() {
        let failed = |kind: io::ErrorKind| CliError::Start {
            program: "agent".to_owned(),
            source: kind.into(),
        };

        let never = failed(io::ErrorKind::NotFound);
        let again = failed(io::ErrorKind::OutOfMemory);

        assert_eq!(class_of(&never).retry(), Retry::Never);
        assert_eq!(class_of(&again).retry(), Retry::After(Duration::ZERO));
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_was_started_the_wrong_way_is_not_tried_again() {
        use std::os::unix::process::ExitStatusExt as _;
        let ended = |raw| CliError::Ended {
            status: ExitStatus::from_raw(raw),
            last_words: String::new(),
        };
        let (signal_2, code_1, code_2) = (2, 1 << 8, 2 << 8);

        assert_eq!(ended(code_2).retry(), Retry::Never);
        assert_eq!(ended(code_1).retry(), Retry::After(Duration::ZERO));
        assert_eq!(ended(signal_2).retry(), Retry::After(Duration::ZERO));
    }

    #[test]
    fn raw_output_retains_its_bytes_and_omits_them_from_debug() {
        let output = RawOutput(b"secret\xff".to_vec());

        assert_eq!(format!("{output:?}"), "RawOutput(7 bytes)");
        assert_eq!(output.as_bytes(), b"secret\xff");
    }
}
