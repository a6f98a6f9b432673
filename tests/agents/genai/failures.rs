//! Failures of an endpoint, and the error that each one causes.

use super::wire::{self, anthropic, begin, gemini, said};
use super::{PROVIDERS, answer, builder, hello};
use crate::child::is_alone;
use crate::server::{Reply, Server, head};
use crate::support::log::Log;
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;
use universal_executor::agent::{
    ChatMessage, ChatModel, ChatRequest, GenaiModel, ModelError, ProviderError, ResponseSchema,
    Secret, ToolChoice, ToolSpec,
};
use universal_executor::error::Retry;

async fn failure(provider: &str, reply: Reply) -> ModelError {
    answer(provider, reply).await.unwrap_err()
}

/// Returns an error body in a provider's format.
fn said_no(provider: &str, kind: &str, message: &str) -> Value {
    match provider {
        "anthropic" => json!({"type": "error", "error": {"type": kind, "message": message}}),
        "gemini" => json!({"error": {"code": 400, "message": message, "status": kind}}),
        _ => json!({"error": message}),
    }
}

#[tokio::test]
async fn a_rate_limit_is_retried_after_the_delay_of_the_provider() {
    for provider in PROVIDERS {
        let limited =
            |headers: &[(&str, &str)]| Reply::body(429, "application/json", headers, b"{}");

        let seconds = failure(provider, limited(&[("retry-after", "7")])).await;
        let unsaid = failure(provider, limited(&[])).await;

        assert_eq!(seconds.retry(), Retry::After(Duration::from_secs(7)));
        assert_eq!(unsaid.retry(), Retry::After(Duration::from_secs(10)));
        for error in [seconds, unsaid] {
            assert!(matches!(error, ModelError::RateLimited { .. }), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_provider_with_too_much_to_do_is_tried_again() {
    for provider in PROVIDERS {
        for status in [503, 529] {
            let body = said_no(provider, "overloaded_error", "Overloaded").to_string();
            let headers = [("retry-after", "3")];
            let reply = Reply::body(status, "application/json", &headers, body.as_bytes());

            let error = failure(provider, reply).await;

            assert!(matches!(error, ModelError::Overloaded { .. }), "{error:?}");
            assert_eq!(error.retry(), Retry::After(Duration::from_secs(3)));
        }
    }
}

#[tokio::test]
async fn a_provider_that_fails_is_tried_again() {
    for provider in PROVIDERS {
        for status in [500, 502] {
            let page = b"<html><body>Bad Gateway</body></html>";

            let error = failure(provider, Reply::body(status, "text/html", &[], page)).await;

            assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
            let source = error.source().unwrap().to_string();
            assert_eq!(
                source,
                format!("the provider answered with status {status}")
            );
        }
    }
}

#[tokio::test]
async fn a_wrong_key_is_not_tried_again() {
    for provider in PROVIDERS {
        for status in [401, 403] {
            let body = said_no(provider, "authentication_error", "invalid x-api-key");

            let error = failure(provider, Reply::json(status, &body)).await;

            assert!(
                matches!(error, ModelError::Unauthorized { .. }),
                "{error:?}"
            );
            assert_eq!(error.retry(), Retry::Never);
        }
    }
}

#[tokio::test]
async fn a_context_that_is_too_long_is_known_by_the_words_of_the_provider() {
    let words = [
        (
            "anthropic",
            "prompt is too long: 210000 tokens > 200000 maximum",
        ),
        (
            "anthropic",
            "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
        ),
        (
            "gemini",
            "The input token count (9) exceeds the maximum number of tokens allowed (8).",
        ),
    ];
    for (provider, message) in words {
        let body = said_no(provider, "invalid_request_error", message);

        let error = failure(provider, Reply::json(400, &body)).await;

        assert!(matches!(error, ModelError::ContextTooLong), "{error:?}");
    }
    let large = said_no(
        "anthropic",
        "request_too_large",
        "Request exceeds the maximum size",
    );
    let large = failure("anthropic", Reply::json(413, &large)).await;
    assert!(matches!(large, ModelError::ContextTooLong), "{large:?}");
}

#[tokio::test]
async fn a_request_that_the_provider_rejects_has_its_words_as_the_source() {
    let body = said_no("anthropic", "not_found_error", "model: tiny");

    let error = failure("anthropic", Reply::json(404, &body)).await;

    assert_eq!(
        error.to_string(),
        "the model provider rejects the request with status 404; check the model name and the base URL"
    );
    let source = error.source().unwrap().to_string();
    assert_eq!(
        source,
        "the provider answered with status 404: not_found_error: model: tiny"
    );
    assert_eq!(error.retry(), Retry::Never);
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_is_the_error_it_names() {
    let mut found = Vec::new();
    for kind in ["overloaded_error", "rate_limit_error", "api_error"] {
        let error = said_no("anthropic", kind, "no");
        let text = anthropic(&[begin(), said(0, &["Once"]), vec![error]]);
        found.push(failure("anthropic", wire::reply("anthropic", &[text.as_bytes()])).await);
    }
    let error = json!({"error": {"code": 503, "message": "no", "status": "UNAVAILABLE"}});
    let text = gemini(&[&json!([{"text": "Once"}])], None) + &format!("data: {error}\n\n");
    found.push(failure("gemini", wire::reply("gemini", &[text.as_bytes()])).await);

    assert!(
        matches!(
            &found[..],
            [
                ModelError::Overloaded { .. },
                ModelError::RateLimited { .. },
                ModelError::Unavailable(_),
                ModelError::Overloaded { .. },
            ]
        ),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_refusal_and_a_filter_are_refusals() {
    let refused = anthropic(&[begin(), wire::end("refusal")]);
    let filtered = gemini(&[&json!([])], Some("SAFETY"));
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}});
    for (provider, text) in [
        ("anthropic", refused),
        ("gemini", filtered),
        ("gemini", format!("data: {blocked}\n\n")),
    ] {
        let error = failure(provider, wire::reply(provider, &[text.as_bytes()])).await;

        assert!(matches!(error, ModelError::Refused { .. }), "{error:?}");
        assert_eq!(error.retry(), Retry::Never);
    }
}

#[tokio::test]
async fn an_invalid_answer_is_an_error_that_does_not_repeat_its_text() {
    let garbage = [
        "event: content_block_delta\ndata: {\"s3cret\": \n\n",
        "event: content_block_start\ndata: [\"s3cret\"]\n\n",
        "<html>s3cret</html>",
        "",
    ];
    for text in garbage {
        for provider in PROVIDERS {
            let error = failure(provider, wire::reply(provider, &[text.as_bytes()])).await;

            assert!(
                matches!(
                    error,
                    ModelError::BadAnswer { .. } | ModelError::Unavailable(_)
                ),
                "{provider} {text:?} {error:?}"
            );
            assert!(
                !format!("{error} {error:?}").contains("s3cret"),
                "{error:?}"
            );
        }
    }
    let bytes = failure("anthropic", wire::reply("anthropic", &[b"data: \xff\n\n"])).await;
    assert!(matches!(bytes, ModelError::BadAnswer { .. }), "{bytes:?}");
}

#[tokio::test]
async fn a_provider_that_never_answers_times_out() {
    for provider in PROVIDERS {
        let server = Server::start(Reply::Silence(Vec::new())).await;
        let model = builder(provider, &server).read_timeout(Duration::from_millis(100));

        let error = model.build().unwrap().chat(&hello()).await.unwrap_err();

        assert!(
            matches!(error, ModelError::TimedOut { to: "answer" }),
            "{error:?}"
        );
        assert_eq!(error.retry(), Retry::After(Duration::ZERO));
    }
}

#[tokio::test]
async fn a_line_without_end_comes_to_the_end_of_its_time() {
    let drip = head(200, "text/event-stream", &[], None);
    let server = Server::start(Reply::Drip(drip)).await;
    let model = builder("anthropic", &server).total_timeout(Duration::from_millis(200));

    let error = model.build().unwrap().chat(&hello()).await.unwrap_err();

    assert!(matches!(error, ModelError::TimedOut { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_event_and_an_endless_error_body_end_with_the_total_timeout() {
    for (status, kind) in [(200, "text/event-stream"), (500, "application/json")] {
        let server = Server::start(Reply::Endless(head(status, kind, &[], None))).await;
        let model = builder("anthropic", &server).total_timeout(Duration::from_millis(200));

        let error = model.build().unwrap().chat(&hello()).await.unwrap_err();

        // Without a complete body, only the status determines the error.
        assert!(
            matches!(
                error,
                ModelError::TimedOut { .. } | ModelError::Unavailable(_)
            ),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn an_oversized_event_and_an_oversized_error_are_logged_with_their_size() {
    // The reader logs on a separate thread, and only one subscriber can receive the lines of all threads.
    if !is_alone(concat!(
        module_path!(),
        "::an_oversized_event_and_an_oversized_error_are_logged_with_their_size"
    )) {
        return;
    }
    let log = Log::capture_process();
    let answered = async |size: usize| {
        let event = wire::text("anthropic", &"x".repeat(2 * size));
        drop(super::answer("anthropic", wire::reply("anthropic", &[event.as_bytes()])).await);
        let body = json!({"error": {"message": "x".repeat(size)}});
        failure("anthropic", Reply::json(500, &body)).await;
        log.take()
    };

    let within = answered(60 << 10).await;
    let oversized = answered(1 << 20).await;

    assert!(!within.contains("oversized"), "{within}");
    for kind in ["oversized event", "oversized error"] {
        let warning = oversized.lines().find(|line| line.contains(kind));
        let warning = warning.unwrap();
        assert!(
            warning.contains("WARN") && warning.contains("bytes=10"),
            "{warning}"
        );
        assert!(!oversized.contains("xxxx"), "{oversized}");
    }
}

#[tokio::test]
async fn an_unreachable_provider_is_unavailable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let model = GenaiModel::builder("anthropic", "tiny").base_url(format!("http://{address}"));

    let error = model.build().unwrap().chat(&hello()).await.unwrap_err();

    assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Server::start(Reply::json(200, &json!({}))).await;
    let location = target.base_url() + "/messages";
    let headers = [("location", &*location)];

    let error = failure("anthropic", Reply::body(307, "text/html", &headers, b"")).await;

    assert!(
        matches!(error, ModelError::Rejected { status: 307, .. }),
        "{error:?}"
    );
    assert!(
        target.requests().is_empty(),
        "the key must not be sent to another host"
    );
}

#[tokio::test]
async fn an_unsupported_request_option_is_an_error() {
    let tool = || ToolSpec::new("a", "", json!({"type": "object"}));
    let called = hello().tool(tool()).tool_choice(ToolChoice::Required);
    let shaped = hello().response_schema(ResponseSchema::new("x", json!({"type": "object"})));
    let told = ChatRequest::new(vec![ChatMessage::tool_result("1", "done")]).tool(tool());

    for (provider, request) in [
        ("ollama", called),
        ("ollama", shaped),
        ("cohere", hello().tool(tool())),
        ("cohere", told),
    ] {
        let server = Server::start(Reply::json(200, &json!({}))).await;

        let error = super::client(provider, &server)
            .chat(&request)
            .await
            .unwrap_err();

        assert!(
            matches!(error, ModelError::Unsupported { provider: named, .. } if named == provider),
            "{error:?}"
        );
        assert_eq!(error.retry(), Retry::Never);
        assert!(server.requests().is_empty());
    }
}

#[test]
fn an_invalid_model_configuration_is_a_typed_error() {
    let unknown = GenaiModel::builder("groq", "m").build().unwrap_err();
    let bad_url = GenaiModel::builder("anthropic", "m").base_url("x").build();
    let no_key = GenaiModel::builder("anthropic", "m").key_from_env("NO_SUCH_VARIABLE_4711");
    let bad_key = GenaiModel::builder("anthropic", "m").key(Secret::new("a\nb"));

    assert!(
        unknown.to_string().contains("OpenAiCompatible"),
        "{unknown}"
    );
    assert!(matches!(bad_url, Err(ProviderError::BadUrl { .. })));
    assert!(matches!(no_key.build(), Err(ProviderError::NoKey { .. })));
    assert!(matches!(bad_key.build(), Err(ProviderError::BadKey)));
}
