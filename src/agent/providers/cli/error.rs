use crate::error::Retry;
use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::str::Utf8Error;
use std::time::Duration;

/// Why an agent that is a program gave no answer. No text in it has the token, or a value of its environment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The program is not there, may not be executed, or cannot be started for now.
    #[error("the program {program:?} cannot be started")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It ended with another code than 0, or by a signal.
    #[error("the program ended with {status}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The last line of its standard error, cut after 256 bytes. It is not in the text of the error, which whoever
        /// asked the agent is shown.
        last_words: String,
    },
    /// It wrote more than its answer may have.
    #[error("the answer of the program is over the limit of {limit} bytes")]
    TooLarge {
        /// How many bytes it may have.
        limit: usize,
    },
    /// Its answer is no UTF-8.
    #[error("the answer of the program is not text")]
    NotText {
        /// All that it wrote.
        output: RawOutput,
        /// Where the first byte is that is none.
        source: Utf8Error,
    },
    /// The operating system refuses what a session needs.
    #[error("the session with the program cannot {task}")]
    Io {
        /// What failed.
        task: &'static str,
        /// Why.
        source: io::Error,
    },
    /// What an earlier attempt saved is of another version, or of another provider.
    #[error("the saved state of the session cannot be read")]
    UnreadableState(#[source] serde_json::Error),
    /// The session was asked for what it cannot do now, or not at all.
    #[error("the session with the program {problem}")]
    Misused {
        /// What is wrong.
        problem: &'static str,
    },
}

impl CliError {
    /// Whether starting the program again could succeed.
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

/// What programs end with that were given arguments they do not know.
const WRONG_USAGE: i32 = 2;

/// What a program wrote. It is not printed, as it may be long and anything.
#[derive(Clone, Eq, PartialEq)]
pub struct RawOutput(pub(super) Vec<u8>);

impl RawOutput {
    /// The bytes, as they were written.
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
    fn a_program_that_is_not_there_is_not_looked_for_again() {
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
    fn what_a_program_wrote_is_kept_and_not_printed() {
        let output = RawOutput(b"secret\xff".to_vec());

        assert_eq!(format!("{output:?}"), "RawOutput(7 bytes)");
        assert_eq!(output.as_bytes(), b"secret\xff");
    }
}
