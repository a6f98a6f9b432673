//! HTTP error responses for requests of an agent's program that are not authorized or cannot be read.

use super::wire;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use std::time::Duration;

/// Maximum number of unanswered tool calls of one agent program.
pub(super) const MAX_CALLS: usize = 64;

/// Maximum time to read the head of an HTTP request from an agent's program. The same limit applies to the request's body.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why an HTTP request of an agent's program gets an error response instead of the result of a tool call.
pub(super) enum Refusal {
    BadCall(String),
    BrokenBody,
    OtherMethod(&'static str),
    TooLarge(usize),
    TooManyCalls,
    TooSlow,
    Unauthorized,
    UnknownPath,
}

impl Refusal {
    /// Returns `true` if the HTTP request of the agent's program was possibly refused before its whole body was read. The server
    /// then reads the rest, because the client sends the whole body before it reads the response.
    pub(super) fn has_unread_body(&self) -> bool {
        match self {
            Self::BadCall(_)
            | Self::OtherMethod(_)
            | Self::TooLarge(_)
            | Self::TooManyCalls
            | Self::Unauthorized
            | Self::UnknownPath => true,
            Self::BrokenBody | Self::TooSlow => false,
        }
    }

    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let (status, code, message) = match self {
            Self::BadCall(problem) => (StatusCode::BAD_REQUEST, "bad_request", problem.clone()),
            Self::BrokenBody => (
                StatusCode::BAD_REQUEST,
                "bad_request",
                "cannot read the whole body".to_owned(),
            ),
            Self::OtherMethod(allowed) => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                format!("this path accepts only {allowed}"),
            ),
            Self::TooLarge(limit) => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                format!("the body exceeds the maximum of {limit} bytes"),
            ),
            Self::TooManyCalls => (
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_calls",
                format!("{MAX_CALLS} calls are in flight, the maximum; wait for a result"),
            ),
            Self::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                "too_slow",
                format!(
                    "the body took longer than {} seconds",
                    READ_TIMEOUT.as_secs()
                ),
            ),
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "send the token in UX_TOKEN as \"Authorization: Bearer ..\"".to_owned(),
            ),
            Self::UnknownPath => (
                StatusCode::NOT_FOUND,
                "not_found",
                "unknown path; use POST /v1/tool-calls or GET /v1/tools".to_owned(),
            ),
        };
        let mut response = response(status, wire::error(code, &message).to_string());
        let headers = response.headers_mut();
        match self {
            Self::Unauthorized => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::OtherMethod(allowed) => {
                headers.insert(ALLOW, HeaderValue::from_static(allowed));
            }
            Self::BadCall(_)
            | Self::BrokenBody
            | Self::TooLarge(_)
            | Self::TooManyCalls
            | Self::TooSlow
            | Self::UnknownPath => {}
        }
        response
    }
}

/// Creates an HTTP response with a JSON body.
pub(super) fn response(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
