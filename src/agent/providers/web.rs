//! Shared parts of model providers over HTTP: the HTTP client, its limits, and the model errors for HTTP statuses and failed connections.

use super::ProviderError;
use super::completions::failure::ErrorResponse;
use crate::agent::ModelError;
use crate::hex::hex;
use crate::http;
use crate::model::parse_as;
use reqwest::{Client, Url};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// Maximum size in bytes of the body of an error response of a model provider. The rest is ignored.
pub(super) const MAX_ERROR_BYTES: usize = 64 << 10;

/// Maximum size in bytes of a line and of an event in a streamed model answer.
pub(super) const MAX_EVENT_BYTES: usize = 1 << 20;

/// Timeouts of a model request over HTTP.
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
    /// Creates an HTTP client with these timeouts.
    pub(super) fn client(self) -> Result<Client, ProviderError> {
        http::client()
            .connect_timeout(self.connect)
            .read_timeout(self.read)
            .timeout(self.total)
            .build()
            .map_err(|error| ProviderError::Http(error.into()))
    }
}

/// Parses and checks the base URL of a model endpoint.
pub(super) fn base_url(text: &str) -> Result<Url, ProviderError> {
    http::base_url(text).map_err(|problem| ProviderError::BadUrl { problem })
}

/// Returns the name of a model endpoint in saved conversations: the host and a digest of the URL. The URL itself is omitted, because its
/// path can contain a secret.
pub(super) fn endpoint_name(url: &Url) -> String {
    let digest = Sha256::digest(url.as_str().trim_end_matches('/'));
    let digest = hex(digest.get(..8).unwrap_or_default());
    format!("{}:{digest}", url.host_str().unwrap_or_default())
}

/// Reads the body of an error response of a model provider. A body that is not JSON is ignored.
pub(super) fn error_response(
    status: u16,
    retry_after: Option<Duration>,
    body: &[u8],
) -> ErrorResponse {
    let body: Value = parse_as(body).unwrap_or_default();
    let mut response = ErrorResponse::from_error(body.get("error").unwrap_or(&body));
    response.status = status;
    response.retry_after = retry_after;
    response
}

/// Returns the model error for a failed or timed out connection to a model provider. The error does not contain the URL. `to` is the
/// operation for the timeout error.
pub(super) fn connection_error(error: reqwest::Error, to: &'static str) -> ModelError {
    let origin = error
        .url()
        .map(|url| url.origin().ascii_serialization())
        .unwrap_or_default();
    let error = error.without_url();
    match error.is_timeout() {
        true if error.is_connect() => ModelError::TimedOut { to: "connect" },
        true => ModelError::TimedOut { to },
        false if error.is_connect() => {
            let source = error;
            ModelError::Unavailable(NotConnected { origin, source }.into())
        }
        false => ModelError::Unavailable(error.into()),
    }
}

/// Error of a failed attempt to connect to a model provider. Of the URL, it contains only the scheme, host and port.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot connect to the model endpoint {origin}; check the base URL and that the server is running"
)]
struct NotConnected {
    origin: String,
    source: reqwest::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_with_other_hosts_ports_or_paths_have_other_names_and_no_name_shows_a_path() {
        let name = |url: &str| endpoint_name(&base_url(url).unwrap());
        let names = [
            "https://example.com/v1",
            "https://example.com/canary/v1",
            "https://example.com:8443/v1",
            "https://example.org/v1",
        ]
        .map(name);

        assert_eq!(name("https://example.com/v1/"), names[0]);
        assert!(names[0].starts_with("example.com:"), "{names:?}");
        for (at, one) in names.iter().enumerate() {
            assert!(!names[..at].contains(one), "{names:?}");
            assert!(!one.contains("canary"), "{names:?}");
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
