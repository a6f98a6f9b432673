//! One connection to an event stream, opened with the bearer token and the last event ID, and read chunk by chunk.

use super::settings::Settings;
use super::token::TokenError;
use crate::error::{BoxError, Retry};
use crate::http;
use futures::stream::{self, BoxStream, StreamExt as _};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode};

/// Error that ended the event stream, or prevented its opening.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("cannot get a bearer token for the event stream; see the cause")]
    Token(#[from] TokenError),
    #[error(
        "the server refused to open the event stream with status {status}: {body}{}",
        remedy(*status)
    )]
    Status { status: u16, body: String },
    #[error("the server's response is not an event stream (text/event-stream); check the URL")]
    NotAnEventStream,
    #[error("the connection of the event stream failed; see the cause")]
    Broken(#[source] BoxError),
    #[error("the server closed the event stream; the source reconnects")]
    Closed,
    #[error(
        "the event stream timed out, because no complete frame arrived within the watchdog time"
    )]
    TimedOut,
    #[error(transparent)]
    TooLong(#[from] crate::source::frames::TooLong),
    #[error(
        "cannot read the latest changes from the server before opening the event stream; see the cause"
    )]
    NoStartTime(#[source] BoxError),
}

/// Returns advice for the error message about an event stream that the server refused with this HTTP status, or an
/// empty string.
const fn remedy(status: u16) -> &'static str {
    match status {
        401 => "; check the token of the service",
        403 => "; give the agent of the token the role that the stream needs",
        _ => "",
    }
}

impl StreamError {
    /// Returns `true` if an operator has to correct the credentials before the event stream can be opened.
    pub(super) fn is_unauthorized(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 401 | 403),
            Self::Token(error) => error.retry() == Retry::Never,
            Self::NotAnEventStream
            | Self::Broken(_)
            | Self::Closed
            | Self::TimedOut
            | Self::TooLong(_)
            | Self::NoStartTime(_) => false,
        }
    }
}

impl From<reqwest::Error> for StreamError {
    fn from(error: reqwest::Error) -> Self {
        Self::Broken(error.without_url().into())
    }
}

/// Opens the event stream. Renews the bearer token once if the server refuses it.
pub(super) async fn open(
    settings: &Settings,
    last_id: Option<&str>,
) -> Result<Response, StreamError> {
    let mut renewed = false;
    loop {
        let token = settings.token.header().await?;
        let mut response = request(settings, token.as_ref(), last_id).send().await?;
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED && !renewed && settings.token.refused(token.as_ref())
        {
            renewed = true;
            continue;
        }
        if status != StatusCode::OK {
            return Err(StreamError::Status {
                status: status.as_u16(),
                body: http::error_body(&mut response, token.as_ref(), 200).await,
            });
        }
        let kind = http::header(response.headers(), &CONTENT_TYPE).unwrap_or_default();
        return match kind.starts_with("text/event-stream") {
            true => Ok(response),
            false => Err(StreamError::NotAnEventStream),
        };
    }
}

/// Returns the body of an open event stream, chunk by chunk.
pub(super) fn chunks(response: Response) -> BoxStream<'static, Result<Vec<u8>, StreamError>> {
    let next = |mut response: Response| async {
        let chunk = response
            .chunk()
            .await
            .map_err(StreamError::from)
            .transpose()?;
        Some((chunk.map(Vec::from), response))
    };
    stream::unfold(response, next).boxed()
}

fn request(
    settings: &Settings,
    token: Option<&HeaderValue>,
    last_id: Option<&str>,
) -> reqwest::RequestBuilder {
    const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
    let mut request = settings
        .client
        .get(settings.url.clone())
        .header(ACCEPT, "text/event-stream");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token);
    }
    // An ID that a header cannot contain is not sent. The server then chooses the start.
    if let Some(id) = last_id.and_then(|id| HeaderValue::from_str(id).ok()) {
        request = request.header(LAST_EVENT_ID, id);
    }
    request
}
