//! HTTP client for MCP servers that gets the bearer token before each request.

use super::settings::TokenSource;
use crate::error::BoxError;
use futures::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
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

fn failed(error: &BoxError) -> Failure {
    let text = super::error::opaque(error.as_ref()).to_string();
    StreamableHttpError::Io(std::io::Error::other(format!(
        "cannot get the token: {text}"
    )))
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
        let token = self.current().await?;
        let client = &self.client;
        client
            .post_message(uri, message, session, token, headers)
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
        self.client
            .post_message_with_response_limits(uri, message, session, token, headers, limits)
            .await
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
        let token = self.current().await?;
        self.client
            .get_stream(uri, session, last_event_id, token, headers)
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
        self.client
            .get_stream_with_max_sse_event_size(uri, session, last_event_id, token, headers, limit)
            .await
    }
}
