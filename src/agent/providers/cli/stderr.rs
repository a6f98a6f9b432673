//! What a program says to standard error: logged line by line, and the last line kept for an error.

use super::secrets::Secrets;
use crate::error::excerpt;
use std::mem;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tracing::debug;

/// How much of a line is logged, in bytes.
const LINE_BYTES: usize = 1 << 10;

/// How much is logged of one program, in bytes. What comes after it is read all the same, so that the program can go on.
const LOGGED_BYTES: usize = 64 << 10;

/// How much of the last line is kept, in bytes.
const LAST_WORDS_BYTES: usize = 256;

pub(super) struct Stderr {
    secrets: Arc<Secrets>,
    /// What was read of a line that has not ended.
    line: Vec<u8>,
    last_words: String,
    logged: usize,
}

impl Stderr {
    pub(super) fn new(secrets: Arc<Secrets>) -> Self {
        Self {
            secrets,
            line: Vec::new(),
            last_words: String::new(),
            logged: 0,
        }
    }

    /// Reads to the end. A pipe that breaks is one that has ended.
    pub(super) async fn follow(&mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 8 << 10];
        while let Ok(size @ 1..) = pipe.read(&mut chunk).await {
            self.read(chunk.get(..size).unwrap_or_default());
        }
    }

    /// The last line that says something.
    pub(super) fn last_words(mut self) -> String {
        self.end_line();
        self.last_words
    }

    fn read(&mut self, chunk: &[u8]) {
        // A secret that begins within what is logged of a line is read to its end, so that it is found.
        let most = LINE_BYTES + self.secrets.longest();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let room = most.saturating_sub(self.line.len());
            self.line.extend(piece.iter().take(room));
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = mem::take(&mut self.line);
        let text = self.secrets.hide(String::from_utf8_lossy(&line).trim());
        let text = excerpt(&text, LINE_BYTES);
        if text.is_empty() {
            return;
        }
        if self.logged < LOGGED_BYTES {
            self.logged += text.len();
            debug!(line = &*text, "the program of an agent says");
        }
        self.last_words = excerpt(&text, LAST_WORDS_BYTES).into_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn stderr() -> Stderr {
        let secrets = Secrets::new([SECRET.into()]);
        Stderr::new(Arc::new(secrets))
    }

    #[test]
    fn the_last_words_are_the_last_line_that_says_something() {
        let mut stderr = stderr();

        stderr.read(b"one\ntw");
        stderr.read(b"o\n\n  \n");

        assert_eq!(stderr.last_words(), "two");
    }

    #[test]
    fn a_secret_is_taken_out_wherever_a_line_is_cut() {
        for before in 0..2 * LINE_BYTES {
            let line = format!("{}{SECRET}", "x".repeat(before));
            let mut stderr = stderr();
            stderr.read(line.as_bytes());

            let kept = stderr.line.len();
            stderr.end_line();

            assert!(kept <= LINE_BYTES + SECRET.len());
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
        assert_eq!(stderr.last_words().len(), LAST_WORDS_BYTES + "..".len());
    }
}
