//! Single-line display of errors with their sources, for log lines, run records and dead letters.

use super::excerpt;
use crate::scrub::without_credentials;
use std::error::Error;
use std::fmt;

/// Displays an error and its sources on one line, for log messages. The format is `error: source: source`.
///
/// The line has at most 1,000 bytes. Control characters and line separators become spaces. [`without_credentials`] removes
/// credentials.
pub(crate) struct Chain<'e>(pub(crate) &'e (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_LINE_BYTES: usize = 1_000;
        /// Maximum number of an error's sources that are displayed. A longer chain may be a cycle.
        const DEEPEST: usize = 16;
        let mut line = self.0.to_string();
        let mut next = self.0.source();
        for _ in 0..DEEPEST {
            let Some(cause) = next.filter(|_| line.len() <= MAX_LINE_BYTES) else {
                break;
            };
            let message = cause.to_string();
            if !line.ends_with(&message) {
                line.push_str(": ");
                line.push_str(&message);
            }
            next = cause.source();
        }
        // Credentials are removed before the line is cut, because a part of a token is still a secret.
        let line = line.replace(
            |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'),
            " ",
        );
        let line = without_credentials(&line);
        f.write_str(&excerpt(&line, MAX_LINE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BoxError;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Level(String, #[source] Option<BoxError>);

    fn level(message: &str, source: Option<Level>) -> Level {
        Level(message.to_owned(), source.map(Into::into))
    }

    #[test]
    fn a_chain_has_every_source_once_on_one_line() {
        let root = level("database disk image\nis malformed", None);
        let error = level(
            "sqlite is unavailable",
            Some(level("cannot\u{2028}read", Some(root))),
        );
        let repeated = level("a: b", Some(level("b", None)));

        assert_eq!(
            Chain(&error).to_string(),
            "sqlite is unavailable: cannot read: database disk image is malformed"
        );
        assert_eq!(Chain(&repeated).to_string(), "a: b");
    }

    #[test]
    fn a_chain_has_no_credentials() {
        let url = level("cannot connect to postgres://ann:hunter2@db/app?a=b", None);
        let error = level("the server refused the login", Some(url));

        assert_eq!(
            Chain(&error).to_string(),
            "the server refused the login: cannot connect to postgres://[hidden]@db/app?a=b"
        );
    }

    #[test]
    fn a_chain_has_a_bounded_length() {
        let long = level(&"ü".repeat(4_000), Some(level("cause", None)));
        let deep = (0..5_000).fold(level("x", None), |source, n| {
            level(&n.to_string(), Some(source))
        });

        assert!(Chain(&long).to_string().len() <= 1_002);
        assert!(Chain(&deep).to_string().len() <= 1_002);
        // Dropping each level separately avoids a deep recursion.
        let mut next = Some(BoxError::from(deep));
        while let Some(level) = next.take() {
            next = level
                .downcast::<Level>()
                .ok()
                .and_then(|mut level| level.1.take());
        }
    }
}
