//! One HTTP request to a model endpoint and its response, read within size limits.

use super::{OpenAiCompatible, Secret};
use crate::agent::ModelError;
use crate::agent::providers::completions::failure::classify;
use crate::agent::providers::web::{self, MAX_ERROR_BYTES, connection_error};
use crate::clock;
use crate::http::{bearer, header, retry_after};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use tracing::debug;

/// The body of a model endpoint's successful response.
pub(super) struct Body {
    response: Response,
    remaining: usize,
    limit: usize,
}

impl Body {
    /// Sends an HTTP request to a model endpoint and waits for the head of the response.
    pub(super) async fn request(
        model: &OpenAiCompatible,
        request_json: String,
        key: Option<&Secret>,
    ) -> Result<Self, ModelError> {
        let mut request = model
            .client
            .post(model.endpoint.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(request_json);
        if let Some(key) = key {
            // A key that cannot be sent in a header is a wrong key. The error contains no details, which could reveal the key.
            request = request.header(
                AUTHORIZATION,
                bearer(key).ok_or_else(ModelError::unauthorized)?,
            );
        }
        let response = request
            .send()
            .await
            .map_err(|error| connection_error(error, "answer"))?;
        let status = response.status();
        debug!(status = status.as_u16(), "received a model response");
        let mut body = Self::new(response, model.max_bytes);
        if status == StatusCode::OK {
            body.check_content_type()?;
            return Ok(body);
        }
        let delay = header(body.response.headers(), &RETRY_AFTER)
            .and_then(|text| retry_after(text, clock::wall_micros()));
        let text = body.read_start().await;
        let server = model.endpoint.origin().ascii_serialization();
        let response_error = web::error_response(status.as_u16(), delay, &text)
            .with_server(server)
            .without_key(key);
        Err(classify(&response_error))
    }

    fn new(response: Response, limit: usize) -> Self {
        Self {
            response,
            remaining: limit,
            limit,
        }
    }

    /// Returns `true` if the response of the model endpoint is an event stream.
    pub(super) fn is_event_stream(&self) -> bool {
        self.content_type().starts_with("text/event-stream")
    }

    /// Reads the whole body of the model endpoint's response.
    pub(super) async fn read_all(mut self) -> Result<Vec<u8>, ModelError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            bytes.extend_from_slice(chunk.as_ref());
        }
        Ok(bytes)
    }

    /// Reads the next chunk of the response body, or returns `None` at the end of the body.
    pub(super) async fn chunk(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, ModelError> {
        let chunk = self
            .response
            .chunk()
            .await
            .map_err(|error| connection_error(error, "continue"))?;
        let size = chunk.as_ref().map_or(0, |chunk| chunk.len());
        match self.remaining.checked_sub(size) {
            Some(remaining) => self.remaining = remaining,
            None => {
                return Err(ModelError::TooLarge {
                    what: "the size of the answer in bytes",
                    limit: self.limit,
                });
            }
        }
        Ok(chunk)
    }

    /// Reads the start of the body of an error response. A read error ends it.
    async fn read_start(&mut self) -> Vec<u8> {
        let mut start = Vec::new();
        while start.len() < MAX_ERROR_BYTES {
            let Ok(Some(chunk)) = self.chunk().await else {
                break;
            };
            start.extend_from_slice(chunk.as_ref());
        }
        start
    }

    /// Returns an error unless the content type of the model endpoint's response is JSON, an event stream, plain text or missing.
    /// Proxies and wrong URLs answer with an HTML page and the status 200.
    fn check_content_type(&self) -> Result<(), ModelError> {
        let content_type = self.content_type();
        if content_type.is_empty()
            || content_type.contains("json")
            || self.is_event_stream()
            || content_type.starts_with("text/plain")
        {
            return Ok(());
        }
        // Other values of the header are untrusted and not repeated.
        let what = match content_type.starts_with("text/html") {
            true => "an HTML page",
            false => "another content type",
        };
        Err(ModelError::bad_answer(format!(
            "received {what} instead of JSON"
        )))
    }

    fn content_type(&self) -> &str {
        header(self.response.headers(), &CONTENT_TYPE).unwrap_or_default()
    }
}
