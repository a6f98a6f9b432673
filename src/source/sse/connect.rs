//! One connection: opened with the token and the last id, and read chunk by chunk.

use super::settings::Settings;
use super::token::TokenError;
use crate::error::BoxError;
use crate::http;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode};

/// Why there is no stream (any more).
#[derive(Debug, thiserror::Error)]
pub(super) enum Broke {
    #[error("no token for the stream: {0}")]
    Token(#[from] TokenError),
    #[error("the stream cannot be opened: status {status}: {said}")]
    Status { status: u16, said: String },
    #[error("what was opened is no stream of events")]
    NoStream,
    #[error("the connection broke: {0}")]
    Broken(BoxError),
    #[error("the server ended the stream")]
    Ended,
    #[error("the stream was silent for too long")]
    Silent,
    #[error(transparent)]
    TooLong(#[from] crate::source::frames::TooLong),
    #[error("the server does not say what happened before: {0}")]
    Unseeded(BoxError),
}

impl From<reqwest::Error> for Broke {
    fn from(error: reqwest::Error) -> Self {
        Self::Broken(error.without_url().into())
    }
}

/// Opens the stream; a token that is refused is renewed once.
pub(super) async fn open(settings: &Settings, last_id: Option<&str>) -> Result<Response, Broke> {
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
            return Err(Broke::Status {
                status: status.as_u16(),
                said: http::said(&mut response, token.as_ref(), 200).await,
            });
        }
        let kind = http::header(response.headers(), &CONTENT_TYPE).unwrap_or_default();
        return match kind.starts_with("text/event-stream") {
            true => Ok(response),
            false => Err(Broke::NoStream),
        };
    }
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
    // An id that no header can hold is not sent: then the server begins where it likes.
    if let Some(id) = last_id.and_then(|id| HeaderValue::from_str(id).ok()) {
        request = request.header(LAST_EVENT_ID, id);
    }
    request
}
