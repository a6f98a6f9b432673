//! The key is nowhere but in the header it is sent in.

use super::server::{Reply, Server};
use super::wire::{self, anthropic, begin};
use super::{KEY, PROVIDERS, builder, client, hello};
use serde_json::json;
use std::error::Error;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use universal_executor::agent::{ChatModel, GenaiModel, ModelError, Secret};

/// Everything an error can print, through all of its sources.
fn printed(error: &ModelError) -> String {
    let mut text = format!("{error:?}");
    let mut link: Option<&dyn Error> = Some(error);
    while let Some(current) = link {
        text += &format!("\n{current} {current:?} {current:#?}");
        link = current.source();
    }
    text
}

/// An endpoint of every kind that repeats the key wherever it can.
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
async fn no_error_has_the_key_in_it_whatever_the_endpoint_repeats() {
    for provider in PROVIDERS {
        for reply in replies(provider) {
            let text = printed(&failed(provider, reply.clone()).await);

            assert!(!text.contains(KEY), "{provider} {reply:?} comes to {text}");
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
async fn a_key_that_is_asked_for_is_asked_for_before_each_request() {
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

    let seen = server.seen();
    let keys: Vec<_> = seen.iter().map(|seen| seen.header("x-api-key")).collect();
    assert_eq!(keys, [Some("key-1"), Some("key-2")]);
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_layer_logs_the_key_or_what_is_said() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // For all threads: of a subscriber for this one alone the tests beside it may not let an event come to be.
    tracing::subscriber::set_global_default(subscriber).unwrap();

    for provider in PROVIDERS {
        for reply in replies(provider) {
            failed(provider, reply).await;
        }
        let text = wire::text(provider, "a private answer");
        let server = Server::start(wire::reply(provider, &[text.as_bytes()])).await;
        client(provider, &server).chat(&hello()).await.unwrap();
    }
    tracing::info!("the log is read");

    let text = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(text.contains("the log is read"), "{text}");
    assert!(!text.contains(KEY), "{text}");
    assert!(!text.contains("private"), "{text}");
}
