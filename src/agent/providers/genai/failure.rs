//! Conversion of `genai` errors to [`ModelError`]s. The messages of `genai` are dropped, because they quote requests and answers.

use super::meter::Meter;
use crate::agent::ModelError;
use crate::agent::providers::Secret;
use crate::agent::providers::completions::failure::{ErrorResponse, classify};
use crate::agent::providers::completions::unreadable;
use crate::agent::providers::web::{self, MAX_ERROR_BYTES, connection_error};
use crate::clock;
use crate::error::BoxError;
use ::genai::Error;
use ::genai::webc;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

/// Converts the `genai` error of a model request that was not sent.
pub(super) fn of_request(error: &Error, provider: &'static str) -> ModelError {
    match error {
        Error::RequiresApiKey { .. }
        | Error::NoAuthResolver { .. }
        | Error::NoAuthData { .. }
        | Error::Resolver { .. } => ModelError::unauthorized(),
        _ => ModelError::Unsupported {
            provider,
            what: "a part of this request",
        },
    }
}

/// Converts a `genai` error before or during a model answer.
pub(super) fn of_answer(error: Error, meter: &Meter, secret: Option<&Secret>) -> ModelError {
    match error {
        Error::WebStream { error, .. } => of_connection(error, meter, secret),
        Error::HttpError {
            status,
            body,
            headers,
            ..
        }
        | Error::WebModelCall {
            webc_error:
                webc::Error::ResponseFailedStatus {
                    status,
                    body,
                    headers,
                },
            ..
        } => of_status(status.as_u16(), &headers, &body, secret),
        Error::ChatResponse { body, .. } => of_event(&body, meter, secret),
        Error::StreamParse { serde_error, .. } | Error::SerdeJson(serde_error) => {
            unreadable(&serde_error)
        }
        _ => ModelError::bad_answer("JSON with unexpected fields"),
    }
}

fn of_connection(error: BoxError, meter: &Meter, secret: Option<&Secret>) -> ModelError {
    let error = match error.downcast::<Error>() {
        Ok(error) => return of_answer(*error, meter, secret),
        Err(error) => error,
    };
    match error.downcast::<reqwest::Error>() {
        Ok(error) => connection_error(*error, meter.timeout_phase()),
        Err(_) => ModelError::bad_answer("the response is not valid text"),
    }
}

fn of_status(status: u16, headers: &HeaderMap, body: &str, secret: Option<&Secret>) -> ModelError {
    let delay = headers.get(RETRY_AFTER).and_then(|text| text.to_str().ok());
    let delay = delay.and_then(|text| crate::http::retry_after(text, clock::wall_micros()));
    let body = body.as_bytes();
    if body.len() > MAX_ERROR_BYTES {
        tracing::warn!(
            bytes = body.len(),
            limit = MAX_ERROR_BYTES,
            status,
            "genai read an oversized error of a provider into memory; use only providers that you trust"
        );
    }
    let body = body.get(..MAX_ERROR_BYTES).unwrap_or(body);
    classify(&web::error_response(status, delay, body).without_key(secret))
}

/// Converts a provider's error in a stream event to a model error. The stream contains the error instead of an answer.
fn of_event(body: &Value, meter: &Meter, secret: Option<&Secret>) -> ModelError {
    match body.get("error") {
        Some(error) => classify(&ErrorResponse::from_answer(error).without_key(secret)),
        // `genai` reports an event without an answer in this form.
        None if body.get("finishReason").is_some() && meter.is_blocked() => ModelError::Refused {
            reason: "the provider filtered the request".to_owned(),
        },
        None if body.get("finishReason").is_some() => {
            ModelError::bad_answer("an event contains no answer")
        }
        None => classify(&ErrorResponse::from_answer(body).without_key(secret)),
    }
}
