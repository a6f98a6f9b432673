//! API keys: they appear in a request header and nowhere else.

use super::wire::{self, anthropic, begin};
use super::{KEY, PROVIDERS, builder, client, hello};
use crate::child::is_alone;
use crate::server::{Reply, Server};
use crate::support::log::Log;
use serde_json::json;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use universal_executor::agent::{ChatModel, GenaiModel, ModelError, Secret};

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
fn replies(provider: &str) -> Vec<Reply> {
    let echo = json!({"type": "error", "error": {"message": format!("bad key {KEY}"), "code": KEY, "type": KEY}});
    let statuses = [301, 400, 401, 403, 404, 413, 422, 429, 500, 502, 503, 529];
    let mut replies: Vec<_> = statuses
        .iter()
        .map(|status| Reply::json(*status, &echo))
        .collect();
    let bodies = [
        format!("event: error\ndata: {echo}\n\n"),
        format!("{echo}\n"),
        format!("event: {KEY}\ndata: {KEY}\n\n"),
        format!(
            "event: content_block_start\ndata: {{\"content_block\": {{\"type\": \"{KEY}\"}}}}\n\n"
        ),
        anthropic(&[begin(), wire::called(0, KEY, KEY, &[KEY])]),
    ];
    replies.extend(
        bodies
            .iter()
            .map(|body| wire::reply(provider, &[body.as_bytes()])),
    );
    replies.extend([
        Reply::json(200, &echo),
        Reply::body(200, KEY, &[], b""),
        Reply::body(400, "text/html", &[], KEY.as_bytes()),
        Reply::Bytes(vec![format!("{KEY}\r\n\r\n").into_bytes()]),
        Reply::Silence(Vec::new()),
    ]);
    replies
}

async fn failed(provider: &str, reply: Reply) -> ModelError {
    let server = Server::start(reply).await;
    let model = builder(provider, &server).read_timeout(Duration::from_millis(100));
    model.build().unwrap().chat(&hello()).await.unwrap_err()
}

#[tokio::test]
async fn an_error_never_contains_the_key_even_if_the_endpoint_repeats_it() {
    for provider in PROVIDERS {
        for reply in replies(provider) {
            let text = printed(&failed(provider, reply.clone()).await);

            assert!(
                !text.contains(KEY),
                "the error for {provider} {reply:?} has the key: {text}"
            );
        }
    }
}

#[tokio::test]
async fn nothing_that_holds_the_key_prints_it() {
    let server = Server::start(Reply::json(200, &json!({}))).await;

    let texts = [
        format!("{:?}", builder("anthropic", &server)),
        format!("{:#?}", client("anthropic", &server)),
        format!(
            "{:?}",
            GenaiModel::builder("anthropic", "m")
                .key(Secret::new(format!("{KEY}\n{KEY}")))
                .build()
        ),
    ];

    for text in texts {
        assert!(!text.contains(KEY), "{text}");
    }
}

#[tokio::test]
async fn a_key_function_is_called_before_each_request() {
    let text = wire::text("anthropic", "Hi");
    let server = Server::start(wire::reply("anthropic", &[text.as_bytes()])).await;
    let asked = Arc::new(Mutex::new(0));
    let model = GenaiModel::builder("anthropic", "tiny")
        .base_url(server.base_url())
        .key_from(move || {
            *asked.lock().unwrap() += 1;
            let key = Secret::new(format!("key-{}", asked.lock().unwrap()));
            async { Ok(key) }
        })
        .build()
        .unwrap();

    model.chat(&hello()).await.unwrap();
    model.chat(&hello()).await.unwrap();

    let seen = server.requests();
    let keys: Vec<_> = seen.iter().map(|seen| seen.header("x-api-key")).collect();
    assert_eq!(keys, [Some("key-1"), Some("key-2")]);
}

#[tokio::test]
async fn no_layer_logs_the_key_or_the_conversation() {
    // Only one subscriber can receive the lines of all threads, and other tests also log.
    if !is_alone(concat!(
        module_path!(),
        "::no_layer_logs_the_key_or_the_conversation"
    )) {
        return;
    }
    let log = Log::capture_process();

    for provider in PROVIDERS {
        for reply in replies(provider) {
            failed(provider, reply).await;
        }
        let text = wire::text(provider, "a private answer");
        let server = Server::start(wire::reply(provider, &[text.as_bytes()])).await;
        client(provider, &server).chat(&hello()).await.unwrap();
    }
    tracing::info!("the log is read");

    let text = log.text();
    assert!(text.contains("the log is read"), "{text}");
    assert!(!text.contains(KEY), "{text}");
    assert!(!text.contains("private"), "{text}");
}

#[test]
fn a_key_for_another_machine_over_http_is_warned_of_once_and_not_printed() {
    Log::expect_warning_of_exposure(KEY, |url, has_key| {
        let builder = GenaiModel::builder("anthropic", "tiny").base_url(url);
        let builder = match has_key {
            true => builder.key(Secret::new(KEY)),
            false => builder,
        };
        builder.build().unwrap();
    });
}
