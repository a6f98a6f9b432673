//! What models behind HTTP have in common: the client, its limits, and what a status comes to.

use super::ProviderError;
use super::completions::failure::Failed;
use crate::agent::ModelError;
use reqwest::{Client, Url, redirect, retry};
use serde_json::Value;
use std::time::Duration;

/// How much is read of the body of an error.
pub(super) const MAX_ERROR_BYTES: usize = 64 << 10;

/// How long is waited for what.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) read: Duration,
    pub(super) total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            read: Duration::from_secs(120),
            total: Duration::from_secs(600),
        }
    }
}

impl Timeouts {
    /// A client that keeps to them.
    pub(super) fn client(self) -> Result<Client, ProviderError> {
        Client::builder()
            .connect_timeout(self.connect)
            .read_timeout(self.read)
            .timeout(self.total)
            // A redirect would take the key elsewhere, and whether to try again is the run's to say.
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            // What is read is bounded as it comes, so it must not grow afterwards.
            .no_gzip()
            .user_agent(concat!("universal-executor/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ProviderError::Http(error.into()))
    }
}

/// Reads a URL to which paths can be added.
pub(super) fn base_url(text: &str) -> Result<Url, ProviderError> {
    let bad = |problem| ProviderError::BadUrl { problem };
    let url = Url::parse(text.trim()).map_err(|_| bad("cannot be read"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(bad("is not one of http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("has credentials in it, which belong into the key"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(bad("has a query or a fragment"));
    }
    if url.cannot_be_a_base() {
        return Err(bad("has no path"));
    }
    Ok(url)
}

/// Reads the body that came with a status; a page of HTML, or nothing, is as good as no body.
pub(super) fn failed(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Failed {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut failed = Failed::of(body.get("error").unwrap_or(&body));
    failed.status = status;
    failed.retry_after = retry_after;
    failed
}

/// The time of a `Retry-After`: seconds, or an HTTP date. `now` is in microseconds since 1970.
pub(super) fn retry_after(header: &str, now: i64) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(header)
        .ok()?;
    let micros = at.as_microsecond().saturating_sub(now);
    Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// A connection that was not made, broke or was waited for too long. The URL is taken out of the error.
pub(super) fn broken(error: reqwest::Error, to: &'static str) -> ModelError {
    let error = error.without_url();
    match error.is_timeout() {
        true if error.is_connect() => ModelError::TimedOut { to: "connect" },
        true => ModelError::TimedOut { to },
        false => ModelError::Unavailable(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06T08:49:37Z
    const THEN: i64 = 784_111_777_000_000;

    #[test]
    fn a_retry_after_is_read_as_seconds_or_as_a_date() {
        let seconds = |text| retry_after(text, THEN).map(|delay| delay.as_secs());

        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        for text in ["", "-1", "1.5", "soon", "99999999999999999999"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_and_not_repeated() {
        let bases = [
            "",
            "localhost",
            "ftp://host/v1",
            "https://ann:s3cret@host/v1",
            "https://host/v1?key=s3cret",
        ];

        for base in bases {
            let error = base_url(base).unwrap_err();

            assert!(matches!(error, ProviderError::BadUrl { .. }), "{base}");
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }
}
