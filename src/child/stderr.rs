//! Reader of a child process's standard error, which is logged line by line. The last line is retained for an error.

use super::secrets::Secrets;
use crate::error::excerpt;
use std::mem;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tracing::debug;

/// Maximum size in bytes of each logged line from the standard error of a child process.
const LINE_BYTES: usize = 1 << 10;

/// Maximum number of bytes that are logged from the standard error of a child process. Later output is read and
/// discarded, so that the process does not block.
const LOGGED_BYTES: usize = 64 << 10;

/// Maximum size in bytes of the standard error line that the error of a failed agent program quotes. It is the last line.
const LAST_LINE_BYTES: usize = 256;

pub(crate) struct Stderr {
    /// The name of the program, for the log.
    program: String,
    secrets: Arc<Secrets>,
    /// The unfinished line of standard error: its end is not read yet.
    line: Vec<u8>,
    last_words: String,
    logged: usize,
}

impl Stderr {
    pub(crate) fn new(program: String, secrets: Arc<Secrets>) -> Self {
        Self {
            program,
            secrets,
            line: Vec::new(),
            last_words: String::new(),
            logged: 0,
        }
    }

    /// Reads the pipe of the process's standard error to its end. A read error counts as the end.
    pub(crate) async fn follow(&mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 8 << 10];
        while let Ok(size @ 1..) = pipe.read(&mut chunk).await {
            self.read(chunk.get(..size).unwrap_or_default());
        }
    }

    /// Returns the last non-blank line that the child process wrote to standard error.
    #[cfg(any(feature = "cli", test))]
    pub(crate) fn last_words(mut self) -> String {
        self.end_line();
        self.last_words
    }

    fn read(&mut self, chunk: &[u8]) {
        // A secret can start within the logged part of a line, so the buffer also has space for the longest secret.
        let limit = LINE_BYTES + self.secrets.longest();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let remaining = limit.saturating_sub(self.line.len());
            self.line.extend(piece.iter().take(remaining));
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = mem::take(&mut self.line);
        let text = self.secrets.redact(String::from_utf8_lossy(&line).trim());
        let text = excerpt(&text, LINE_BYTES);
        if text.is_empty() {
            return;
        }
        if self.logged < LOGGED_BYTES {
            self.logged += text.len();
            debug!(
                program = self.program,
                line = &*text,
                "a child process wrote to standard error"
            );
        }
        self.last_words = excerpt(&text, LAST_LINE_BYTES).into_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn stderr() -> Stderr {
        let secrets = Secrets::new([SECRET.into()]);
        Stderr::new("test".to_owned(), Arc::new(secrets))
    }

    #[test]
    fn the_last_words_are_the_last_non_blank_line() {
        let mut stderr = stderr();

        stderr.read(b"one\ntw");
        stderr.read(b"o\n\n  \n");

        assert_eq!(stderr.last_words(), "two");
    }

    #[test]
    fn a_secret_is_redacted_at_every_position_of_a_truncated_line() {
        for before in 0..2 * LINE_BYTES {
            let line = format!("{}{SECRET}", "x".repeat(before));
            let mut stderr = stderr();
            stderr.read(line.as_bytes());

            let length = stderr.line.len();
            stderr.end_line();

            assert!(length <= LINE_BYTES + SECRET.len());
            let words = stderr.last_words();
            assert!(!words.contains("0123"), "{before}: {words}");
        }
    }

    #[test]
    fn a_line_without_end_takes_no_more_room() {
        let mut stderr = stderr();

        for _ in 0..1_000 {
            stderr.read(&[b'x'; 1_000]);
        }

        assert_eq!(stderr.line.len(), LINE_BYTES + SECRET.len());
        assert_eq!(stderr.last_words().len(), LAST_LINE_BYTES + "..".len());
    }
}
