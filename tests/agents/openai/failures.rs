//! Failures of an endpoint, and the error that each one causes.

use super::{builder, client, completion, hello, streamed};
use crate::server::{Reply, Server, head};
use serde_json::json;
use std::error::Error;
use std::time::Duration;
use universal_executor::agent::{ChatModel, ModelError, OpenAiCompatible};
use universal_executor::error::Retry;

async fn failure(reply: Reply) -> ModelError {
    let server = Server::start(reply).await;
    let error = client(&server).chat(&hello()).await.unwrap_err();
    assert_eq!(server.requests().len(), 1, "the client must not retry");
    error
}

fn said(message: &str, code: &str) -> Vec<u8> {
    json!({"error": {"message": message, "code": code}})
        .to_string()
        .into_bytes()
}

#[tokio::test]
async fn a_rate_limit_is_retried_after_the_delay_of_the_endpoint() {
    let limited = |headers: &[(&str, &str)]| Reply::body(429, "application/json", headers, b"{}");

    let seconds = failure(limited(&[("retry-after", "7")])).await;
    let date = failure(limited(&[("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT")])).await;
    let unsaid = failure(limited(&[])).await;

    assert_eq!(seconds.retry(), Retry::After(Duration::from_secs(7)));
    assert_eq!(date.retry(), Retry::After(Duration::from_secs(1)));
    assert_eq!(unsaid.retry(), Retry::After(Duration::from_secs(10)));
    for error in [seconds, date, unsaid] {
        assert!(matches!(error, ModelError::RateLimited { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn credit_that_is_used_up_is_not_waited_for() {
    let body = said("You exceeded your current quota", "insufficient_quota");

    let error = failure(Reply::body(429, "application/json", &[], &body)).await;

    assert!(
        matches!(error, ModelError::Rejected { status: 429, .. }),
        "{error:?}"
    );
    assert_eq!(error.retry(), Retry::Never);
}

#[tokio::test]
async fn an_endpoint_with_too_much_to_do_is_tried_again() {
    for status in [503, 529] {
        let headers = [("retry-after", "3")];
        let error = failure(Reply::body(status, "text/plain", &headers, b"busy")).await;

        assert!(matches!(error, ModelError::Overloaded { .. }), "{error:?}");
        assert_eq!(error.retry(), Retry::After(Duration::from_secs(3)));
    }
}

#[tokio::test]
async fn an_endpoint_that_fails_is_tried_again() {
    for status in [408, 500, 502, 504] {
        let page = b"<html><body>Bad Gateway</body></html>";
        let error = failure(Reply::body(status, "text/html", &[], page)).await;

        assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
        let source = error.source().unwrap().to_string();
        assert!(source.starts_with("http://127.0.0.1:"), "{source}");
        let words = format!(" answered with status {status}");
        assert!(source.ends_with(&words), "{source}");
    }
}

#[tokio::test]
async fn a_context_that_is_too_long_is_known_by_its_code_or_by_its_words() {
    let words = "This model's maximum context length is 8192 tokens, however you requested 9000";
    for body in [
        said("too long", "context_length_exceeded"),
        said(words, ""),
        json!({"message": words, "type": "BadRequestError", "code": 400})
            .to_string()
            .into_bytes(),
    ] {
        let error = failure(Reply::body(400, "application/json", &[], &body)).await;

        assert!(matches!(error, ModelError::ContextTooLong), "{error:?}");
    }
    let large = failure(Reply::body(413, "text/html", &[], b"")).await;
    assert!(matches!(large, ModelError::ContextTooLong), "{large:?}");
}

#[tokio::test]
async fn a_wrong_key_is_not_tried_again() {
    for status in [401, 403] {
        let error = failure(Reply::body(
            status,
            "application/json",
            &[],
            &said("no", ""),
        ))
        .await;

        assert!(
            matches!(error, ModelError::Unauthorized { .. }),
            "{error:?}"
        );
        assert_eq!(error.retry(), Retry::Never);
    }
}

#[tokio::test]
async fn a_request_that_the_provider_rejects_has_its_words_as_the_source() {
    let body = said("The model `tiny` does not exist", "model_not_found");

    let error = failure(Reply::body(404, "application/json", &[], &body)).await;

    assert_eq!(
        error.to_string(),
        "the model provider rejects the request with status 404; check the model name and the base URL"
    );
    let source = error.source().unwrap().to_string();
    let words = " answered with status 404: model_not_found: The model `tiny` does not exist";
    assert!(source.ends_with(words), "{source}");
    assert_eq!(error.retry(), Retry::Never);
}

#[tokio::test]
async fn a_filter_of_the_request_or_of_the_answer_is_a_refusal() {
    let moderated =
        json!({"error": {"code": 403, "message": "no", "metadata": {"reasons": ["violence"]}}});
    let replies = [
        Reply::body(400, "application/json", &[], &said("no", "content_filter")),
        Reply::json(403, &moderated),
        Reply::json(
            200,
            &json!({"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}),
        ),
        Reply::json(
            200,
            &json!({"choices": [{"message": {"refusal": "I will not."}, "finish_reason": "stop"}]}),
        ),
    ];

    for reply in replies {
        let error = failure(reply).await;

        assert!(matches!(error, ModelError::Refused { .. }), "{error:?}");
        assert_eq!(error.retry(), Retry::Never);
    }
}

#[tokio::test]
async fn an_error_under_the_status_of_success_is_an_error() {
    let error = failure(Reply::json(
        200,
        &json!({"error": {"message": "upstream", "code": 502}}),
    ))
    .await;

    assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn a_page_of_html_instead_of_an_answer_is_a_bad_answer() {
    let error = failure(Reply::body(
        200,
        "text/html; charset=utf-8",
        &[],
        b"<html>s3cret</html>",
    ))
    .await;

    assert_eq!(
        error.to_string(),
        "cannot read the model's answer: received an HTML page instead of JSON"
    );
}

#[tokio::test]
async fn json_that_breaks_off_is_a_bad_answer() {
    let text = completion("Hello").to_string();
    let cut = &text.as_bytes()[..text.len() / 2];

    let error = failure(Reply::body(200, "application/json", &[], cut)).await;

    assert!(
        matches!(&error, ModelError::BadAnswer { problem } if problem.contains("truncated")),
        "{error:?}"
    );
    assert_ne!(error.retry(), Retry::Never);
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_of_an_answer_is_tried_again() {
    let head = head(200, "application/json", &[], Some(1000));

    let error = failure(Reply::Bytes(vec![
        head.into_bytes(),
        b"{\"choices\"".to_vec(),
    ]))
    .await;

    assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn an_answer_of_many_megabytes_is_given_up_at_the_limit() {
    let server = Server::start(Reply::Endless(head(
        200,
        "application/json",
        &[],
        Some(50 << 20),
    )))
    .await;
    // The body needs several network reads, so the limit must apply to their sum.
    let model = builder(&server).max_bytes(2_000_000).build().unwrap();

    let error = model.chat(&hello()).await.unwrap_err();

    assert!(
        matches!(
            error,
            ModelError::TooLarge {
                limit: 2_000_000,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(error.retry(), Retry::Never);
}

#[tokio::test]
async fn an_error_with_an_endless_body_is_classified_by_its_status() {
    let error = failure(Reply::Endless(head(500, "text/html", &[], None))).await;

    assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn an_endpoint_that_never_answers_times_out() {
    let server = Server::start(Reply::Silence(Vec::new())).await;
    let model = builder(&server)
        .read_timeout(Duration::from_millis(100))
        .build()
        .unwrap();

    let error = model.chat(&hello()).await.unwrap_err();

    assert!(matches!(error, ModelError::TimedOut { .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::After(Duration::ZERO));
}

#[tokio::test]
async fn a_body_that_stops_in_the_middle_times_out() {
    let text = head(200, "application/json", &[], Some(1000)) + "{\"choices\"";
    let server = Server::start(Reply::Silence(text.into_bytes())).await;
    let model = builder(&server)
        .read_timeout(Duration::from_secs(1))
        .build()
        .unwrap();

    let error = model.chat(&hello()).await.unwrap_err();

    assert!(
        matches!(error, ModelError::TimedOut { to: "continue" }),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_endpoint_that_drips_comes_to_the_end_of_its_time() {
    let drip = head(200, "application/json", &[], Some(1 << 30));
    let server = Server::start(Reply::Drip(drip)).await;
    let model = builder(&server)
        .max_bytes(usize::MAX)
        .total_timeout(Duration::from_millis(200))
        .build()
        .unwrap();

    let error = model.chat(&hello()).await.unwrap_err();

    assert!(matches!(error, ModelError::TimedOut { .. }), "{error:?}");
}

#[tokio::test]
async fn an_unreachable_provider_is_unavailable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let model = OpenAiCompatible::builder(format!("http://{address}"))
        .build()
        .unwrap();

    let error = model.chat(&hello()).await.unwrap_err();
    let streaming = streamed(&model, &hello()).await.unwrap_err();

    assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
    assert!(
        matches!(streaming, ModelError::Unavailable(_)),
        "{streaming:?}"
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Server::start(Reply::json(200, &completion("Hi"))).await;
    let location = target.base_url() + "/chat/completions";
    let headers = [("location", &*location)];

    let error = failure(Reply::body(307, "text/html", &headers, b"")).await;

    assert!(
        matches!(error, ModelError::Rejected { status: 307, .. }),
        "{error:?}"
    );
    assert!(
        target.requests().is_empty(),
        "the key must not be sent to another host"
    );
}
