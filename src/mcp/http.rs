//! HTTP client for MCP servers that gets the bearer token before each request.

use super::settings::TokenSource;
use crate::error::BoxError;
use futures::stream::BoxStream;
use reqwest::StatusCode;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
    StreamableHttpResponseLimits,
};
use sse_stream::Sse;
use std::collections::HashMap;
use std::sync::Arc;

/// HTTP client for one MCP server.
#[derive(Clone)]
pub(super) struct TokenClient {
    client: reqwest::Client,
    token: Option<TokenSource>,
}

type HttpError = reqwest::Error;
type Failure = StreamableHttpError<HttpError>;
type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

impl TokenClient {
    pub(super) fn new(client: reqwest::Client, token: Option<TokenSource>) -> Self {
        Self { client, token }
    }

    /// Returns the token for the next request.
    async fn current(&self) -> Result<Option<String>, Failure> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let token = token().await.map_err(|error| failed(&error))?;
        let is_sendable = token.reveal().chars().all(|c| c.is_ascii_graphic());
        match is_sendable {
            true => Ok(Some(token.reveal().to_owned())),
            false => Err(failed(&"the token cannot be sent in an HTTP header".into())),
        }
    }
}

/// Error of a request that has no token, so it was not sent.
#[derive(Debug, thiserror::Error)]
#[error("cannot get the token: {0}")]
struct NoToken(String);

fn failed(error: &BoxError) -> Failure {
    let text = super::error::opaque(error.as_ref()).to_string();
    StreamableHttpError::Io(std::io::Error::other(NoToken(text)))
}

/// Returns the response to the request with this ID.
///
/// # Errors
/// If the response is an error of another ID or without one, which the protocol library would not match with the request. Servers send
/// such errors if they do not know the session, for example after a restart.
fn checked(
    response: StreamableHttpPostResponse,
    request: Option<String>,
) -> Result<StreamableHttpPostResponse, Failure> {
    let (StreamableHttpPostResponse::Json(JsonRpcMessage::Error(answer), _), Some(request)) =
        (&response, request)
    else {
        return Ok(response);
    };
    match &answer.id {
        Some(id) if id.to_string() == request => Ok(response),
        Some(_) | None => {
            let message = answer.error.message.clone();
            Err(StreamableHttpError::UnexpectedServerResponse(message))
        }
    }
}

/// Returns `true` if the server does not know the stream that a request resumes, for example after a restart.
fn is_unknown(error: &Failure) -> bool {
    let StreamableHttpError::Client(error) = error else {
        return false;
    };
    matches!(
        error.status(),
        Some(StatusCode::BAD_REQUEST | StatusCode::GONE | StatusCode::NOT_FOUND)
    )
}

/// The damage of a failed request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Damage {
    /// The request was refused before the server processed it. Other requests can succeed.
    Refused,
    /// The server did not process the request, and the connection cannot be used any more.
    Unprocessed,
    /// The answer to this request cannot be used. Other requests can succeed.
    OneAnswer,
    /// The connection cannot be used any more, and the server may have processed the request.
    Connection,
}

/// Returns the damage of a request that failed with this error.
pub(super) fn damage(error: &(dyn std::error::Error + 'static)) -> Damage {
    const TOO_MANY_REQUESTS: u16 = 429;
    match error.downcast_ref::<Failure>() {
        Some(StreamableHttpError::SessionExpired) => Damage::Unprocessed,
        Some(StreamableHttpError::Client(error)) if error.is_connect() => Damage::Unprocessed,
        Some(StreamableHttpError::Io(error))
            if error.get_ref().is_some_and(|error| error.is::<NoToken>()) =>
        {
            Damage::Refused
        }
        Some(StreamableHttpError::InsufficientScope(_)) => Damage::Refused,
        Some(StreamableHttpError::HttpStatus(error)) => match error.status {
            TOO_MANY_REQUESTS => Damage::Refused,
            _ => Damage::OneAnswer,
        },
        Some(
            StreamableHttpError::ResponseBodyTooLarge { .. }
            | StreamableHttpError::UnexpectedContentType(_),
        ) => Damage::OneAnswer,
        Some(_) => Damage::Connection,
        None => error.source().map_or(Damage::Connection, damage),
    }
}

impl StreamableHttpClient for TokenClient {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, None, headers, limits)
            .await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let token = self.current().await?;
        let id = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.to_string()),
            _ => None,
        };
        let response = self
            .client
            .post_message_with_response_limits(uri, message, session, token, headers, limits)
            .await?;
        checked(response, id)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        let token = self.current().await?;
        self.client
            .delete_session(uri, session, token, headers)
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failure> {
        let limit = StreamableHttpResponseLimits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(uri, session, last_event_id, None, headers, limit)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<Events, Failure> {
        let token = self.current().await?;
        let is_resumed = last_event_id.is_some();
        self.client
            .get_stream_with_max_sse_event_size(uri, session, last_event_id, token, headers, limit)
            .await
            .map_err(|error| match is_resumed && is_unknown(&error) {
                // The protocol library retries all other errors without end.
                true => StreamableHttpError::ServerDoesNotSupportSse,
                false => error,
            })
    }
}
