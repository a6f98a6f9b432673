//! Helper functions for HTTP clients: client settings, base URLs, bearer tokens in headers, and retry delays.

#[cfg(any(feature = "genai", feature = "openai", feature = "rcrt"))]
use crate::error::Retry;
#[cfg(any(feature = "openai", feature = "rcrt"))]
use crate::secret::Secret;
#[cfg(any(feature = "openai", feature = "rcrt"))]
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Url, redirect, retry};
use std::net::IpAddr;
#[cfg(any(feature = "genai", feature = "openai", feature = "rcrt"))]
use std::time::Duration;

/// Returns the builder of an HTTP client that sends each request once, without redirects and automatic retries.
pub(crate) fn client() -> ClientBuilder {
    Client::builder()
        // A redirect could send the key to another server, and the caller decides about retries.
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        // Without decompression, the limits on the received bytes also limit the decoded body.
        .no_gzip()
        .user_agent(concat!("universal-executor/", env!("CARGO_PKG_VERSION")))
}

/// Parses a server's base URL. Requests add their paths to the base URL. The error describes the problem without the URL, which can contain
/// credentials.
pub(crate) fn base_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text.trim()).map_err(|_| "is not a valid URL")?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("is not an http or https URL");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains credentials, which must be set as the key or token instead");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a query or a fragment, which must be removed");
    }
    if url.cannot_be_a_base() {
        return Err("has no path");
    }
    Ok(url)
}

/// Logs a warning if requests to a URL would send a key or token to another machine without encryption.
pub(crate) fn warn_if_exposed(url: &Url) {
    if let Some(host) = exposed_host(url) {
        tracing::warn!(
            host,
            "requests send an API key or token unencrypted to another machine; use an https URL for this host"
        );
    }
}

/// Returns the host of a plain `http` URL, or `None` for an `https` URL and for a loopback host.
fn exposed_host(url: &Url) -> Option<&str> {
    let host = url.host_str()?;
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let is_loopback = match address {
        Some(address) => address.to_canonical().is_loopback(),
        None => {
            let name = host.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
    };
    (url.scheme() == "http" && !is_loopback).then_some(host)
}

/// Returns the URL of a path below a server's base URL, whether or not the base URL ends with a slash.
#[cfg(feature = "rcrt")]
pub(crate) fn below(base: &Url, path: &[&str]) -> Url {
    let mut url = base.clone();
    // An http URL always has a path.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url
}

/// Returns a URL without its query, for log lines and error messages.
#[cfg(feature = "rcrt")]
pub(crate) fn without_query(url: &Url) -> Url {
    let mut shown = url.clone();
    shown.set_query(None);
    shown
}

/// Returns the HTTP header `Authorization: Bearer` for an API key or token, marked as sensitive so that lower layers do not print
/// it. Returns `None` if a header cannot contain the key or token.
#[cfg(any(feature = "openai", feature = "rcrt"))]
pub(crate) fn bearer(secret: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", secret.reveal())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the value of an HTTP header, or `None` if the header is missing or not text.
#[cfg(any(feature = "openai", feature = "rcrt"))]
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Reads at most `limit` bytes of the body of an HTTP error response. Removes the token of the request from the text.
#[cfg(feature = "rcrt")]
pub(crate) async fn error_body(
    response: &mut reqwest::Response,
    token: Option<&HeaderValue>,
    limit: usize,
) -> String {
    const MAX_BYTES: usize = 16 << 10;
    let mut text = Vec::new();
    while text.len() < MAX_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => text.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    let mut body = String::from_utf8_lossy(&text).into_owned();
    let token = token.and_then(|token| token.to_str().ok()?.strip_prefix("Bearer "));
    if let Some(token) = token.filter(|token| !token.is_empty()) {
        body = body.replace(token, "..");
    }
    crate::error::excerpt(body.trim(), limit).into_owned()
}

/// Parses the `Retry-After` header (RFC 9110, section 10.2.3) into a delay of at most [`Retry::MAX_DELAY`]. The header contains either
/// a number of seconds or an HTTP date. `now` is in microseconds since 1970.
#[cfg(any(feature = "genai", feature = "openai", feature = "rcrt"))]
pub(crate) fn retry_after(header: &str, now: i64) -> Option<Duration> {
    let header = header.trim();
    let delay = match header.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let micros = date(header)?.saturating_sub(now);
            Duration::from_micros(u64::try_from(micros).unwrap_or(0))
        }
    };
    Some(delay.min(Retry::MAX_DELAY))
}

/// Parses an HTTP date, and returns it in microseconds since 1970.
#[cfg(any(feature = "genai", feature = "openai", feature = "rcrt"))]
pub(crate) fn date(header: &str) -> Option<i64> {
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(header.trim());
    Some(at.ok()?.as_microsecond())
}

#[cfg(all(test, any(feature = "openai", feature = "rcrt")))]
mod tests {
    use super::*;

    /// The fixed time 1994-11-06T08:49:37Z of the HTTP date tests, in microseconds since 1970-01-01T00:00:00Z.
    const THEN: i64 = 784_111_777_000_000;

    #[test]
    fn a_retry_after_is_read_as_seconds_or_as_a_date() {
        let seconds = |text| retry_after(text, THEN).map(|delay| delay.as_secs());

        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(seconds("18446744073709551615"), Some(60 * 60));
        assert_eq!(seconds("Sat, 06 Nov 2094 08:49:37 GMT"), Some(60 * 60));
        for text in ["", "-1", "1.5", "soon", "99999999999999999999"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_path_is_appended_with_or_without_a_trailing_slash() {
        for base in ["http://localhost:1/v1", "http://localhost:1/v1/"] {
            let url = below(&base_url(base).unwrap(), &["a", "b c"]);

            assert_eq!(url.as_str(), "http://localhost:1/v1/a/b%20c");
        }
    }

    #[test]
    fn an_http_url_of_another_machine_exposes_a_key() {
        let exposed = |text| exposed_host(&base_url(text).unwrap()).map(str::to_owned);

        for (url, host) in [
            ("http://example.com/v1", "example.com"),
            ("http://10.0.0.1:8080", "10.0.0.1"),
            ("http://[2001:db8::1]", "[2001:db8::1]"),
            ("http://localhost.example.com", "localhost.example.com"),
            ("http://notlocalhost", "notlocalhost"),
        ] {
            assert_eq!(exposed(url).as_deref(), Some(host));
        }
        for url in [
            "https://example.com/v1",
            "http://localhost:8080/v1",
            "http://LOCALHOST.",
            "http://api.localhost",
            "http://127.0.0.1",
            "http://127.8.8.8",
            "http://[::1]:1",
            "http://[::ffff:127.0.0.1]",
        ] {
            assert_eq!(exposed(url), None, "{url}");
        }
    }

    #[test]
    fn a_secret_in_a_header_is_not_printed() {
        let header = bearer(&Secret::new("s3cret")).unwrap();

        assert!(!format!("{header:?}").contains("s3cret"));
        assert!(bearer(&Secret::new("a\nb")).is_none());
    }
}
