//! API keys: they appear in a request header and nowhere else.

use super::{KEY, builder, client, completion, hello, streamed};
use crate::child::is_alone;
use crate::server::{Reply, Server, head};
use crate::support::log::Log;
use serde_json::json;
use std::error::Error;
use std::time::Duration;
use universal_executor::agent::{ChatModel, ModelError, OpenAiCompatible, Secret};

/// Returns the text of an error and all its sources, in both formats.
fn printed(error: &ModelError) -> String {
    let mut text = format!("{error:?}");
    let mut link: Option<&dyn Error> = Some(error);
    while let Some(current) = link {
        text += &format!("\n{current} {current:?} {current:#?}");
        link = current.source();
    }
    text
}

/// Returns failing replies of every kind. Each repeats the key wherever it can.
fn replies() -> Vec<Reply> {
    let echo = json!({"error": {"message": format!("bad key {KEY}"), "code": KEY, "type": KEY}});
    let text = echo.to_string();
    let statuses = [301, 400, 401, 403, 404, 413, 422, 429, 500, 502, 503, 529];
    let event = format!("data: {echo}\n\n");
    let refusal = json!({"choices": [{"message": {"refusal": format!("not with {KEY}")}, "finish_reason": "stop"}]});
    let mut replies: Vec<_> = statuses
        .iter()
        .map(|status| Reply::json(*status, &echo))
        .collect();
    replies.extend([
        Reply::json(200, &echo),
        Reply::json(200, &refusal),
        Reply::events(&[event.as_bytes()]),
        Reply::body(200, "application/json", &[], text.split_at(40).0.as_bytes()),
        Reply::body(200, KEY, &[], b""),
        Reply::body(400, "text/html", &[], KEY.as_bytes()),
        Reply::Bytes(vec![format!("{KEY}\r\n\r\n").into_bytes()]),
        Reply::Bytes(vec![
            head(200, "application/json", &[], Some(1000)).into_bytes(),
        ]),
        Reply::Silence(Vec::new()),
    ]);
    replies
}

#[tokio::test]
async fn an_error_never_contains_the_key_even_if_the_endpoint_repeats_it() {
    for reply in replies() {
        let server = Server::start(reply.clone()).await;
        let model = builder(&server)
            .read_timeout(Duration::from_millis(100))
            .build()
            .unwrap();

        let errors = [
            model.chat(&hello()).await.unwrap_err(),
            streamed(&model, &hello()).await.unwrap_err(),
        ];

        for error in errors {
            let text = printed(&error);
            assert!(
                !text.contains(KEY),
                "the error for {reply:?} has the key: {text}"
            );
        }
    }
}

#[tokio::test]
async fn nothing_that_holds_the_key_prints_it() {
    let server = Server::start(Reply::json(200, &completion("Hi"))).await;

    let texts = [
        format!("{:?}", Secret::new(KEY)),
        format!("{:?}", builder(&server)),
        format!("{:#?}", client(&server)),
        format!(
            "{:?}",
            builder(&server)
                .key(Secret::new(format!("{KEY}\n{KEY}")))
                .build()
        ),
    ];

    for text in texts {
        assert!(!text.contains(KEY), "{text}");
    }
}

#[tokio::test]
async fn no_layer_logs_the_key_or_the_conversation() {
    if !is_alone(concat!(
        module_path!(),
        "::no_layer_logs_the_key_or_the_conversation"
    )) {
        return;
    }
    let log = Log::capture_process();
    let mut replies = replies();
    replies.push(Reply::json(200, &completion("a private answer")));

    for reply in replies {
        let server = Server::start(reply).await;
        let model = builder(&server)
            .read_timeout(Duration::from_millis(100))
            .build()
            .unwrap();
        let _either = model.chat(&hello()).await;
    }

    let text = log.text();
    assert!(text.contains("received a model response"), "{text}");
    assert!(!text.contains(KEY), "{text}");
    assert!(!text.contains("private"), "{text}");
}

#[test]
fn a_key_for_another_machine_over_http_is_warned_of_once_and_not_printed() {
    Log::expect_warning_of_exposure(KEY, |url, has_key| {
        let builder = OpenAiCompatible::builder(url);
        let builder = match has_key {
            true => builder.key(Secret::new(KEY)),
            false => builder,
        };
        builder.build().unwrap();
    });
}
