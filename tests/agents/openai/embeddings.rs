//! Embedding vectors from an endpoint, and the endpoint's failures.

use super::{KEY, builder};
use crate::server::{ReceivedRequest, Reply, Server};
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;
use universal_executor::agent::{OpenAiCompatible, OpenAiEmbedder, ProviderError};
use universal_executor::error::Retry;
use universal_executor::store::embedding::{EmbedError, Embedder, EmbeddingConfig};
use universal_executor::store::{MemoryLimits, Query, VectorQuery};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Selector,
};

fn embedder(server: &Server) -> OpenAiEmbedder {
    builder(server).embedder(2).unwrap()
}

fn vectors(of: &[(usize, [f32; 2])]) -> Reply {
    let data = of
        .iter()
        .map(|(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector}));
    let data: Vec<Value> = data.collect();
    Reply::json(
        200,
        &json!({"object": "list", "data": data, "usage": {"total_tokens": 3}}),
    )
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

async fn failure(reply: Reply) -> EmbedError {
    let server = Server::start(reply).await;
    let error = embedder(&server).embed(&texts(&["a"])).await.unwrap_err();
    assert_eq!(server.requests().len(), 1, "the client must not retry");
    let mut link: Option<&dyn Error> = Some(&error);
    while let Some(current) = link {
        let said = format!("{current} {current:?}");
        assert!(!said.contains(KEY), "the key is in {said}");
        link = current.source();
    }
    error
}

#[tokio::test]
async fn texts_are_sent_at_once_and_vectors_come_back_in_their_order() {
    let server = Server::start(vectors(&[(1, [0.0, 1.0]), (0, [1.0, 0.0])])).await;

    let found = embedder(&server).embed(&texts(&["a", "b"])).await.unwrap();

    assert_eq!(found, [[1.0, 0.0], [0.0, 1.0]]);
    let ReceivedRequest { line, body, .. } = server.only();
    assert_eq!(line, "POST /v1/embeddings HTTP/1.1");
    assert_eq!(
        body,
        json!({"model": "tiny", "input": ["a", "b"], "encoding_format": "float"})
    );
    assert_eq!(
        server.only().header("authorization"),
        Some(&*format!("Bearer {KEY}"))
    );
}

#[tokio::test]
async fn a_shortened_embedder_requests_the_number_of_dimensions() {
    let server = Server::start(vectors(&[(0, [1.0, 0.0])])).await;

    embedder(&server)
        .shortened()
        .embed(&texts(&["a"]))
        .await
        .unwrap();

    assert_eq!(server.only().body["dimensions"], 2);
}

#[tokio::test]
async fn an_http_status_determines_the_error_kind_and_the_retry() {
    let echo = json!({"error": {"message": format!("no {KEY}"), "code": "no"}});
    let limited = Reply::body(429, "application/json", &[("retry-after", "7")], b"{}");

    let error = failure(limited).await;
    assert_eq!(error.retry(), Retry::After(Duration::from_secs(7)));
    assert!(matches!(error, EmbedError::Unavailable { .. }), "{error:?}");
    let error = failure(Reply::json(503, &echo)).await;
    assert!(matches!(error, EmbedError::Unavailable { .. }), "{error:?}");
    let error = failure(Reply::json(500, &echo)).await;
    assert!(matches!(error, EmbedError::Failed { .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::After(Duration::ZERO));
    for status in [400, 413, 422] {
        let error = failure(Reply::json(status, &echo)).await;
        assert!(matches!(error, EmbedError::Refused { .. }), "{error:?}");
    }
    for status in [301, 401, 403, 404] {
        let error = failure(Reply::json(status, &echo)).await;
        assert!(matches!(error, EmbedError::Unusable { .. }), "{error:?}");
        assert_eq!(error.retry(), Retry::Never);
    }
}

#[tokio::test]
async fn an_invalid_answer_is_retried() {
    for body in [
        &b"nonsense"[..],
        br#"{"data": [{"embedding": "AAAA"}]}"#,
        br#"{"data": [{"embedding": [1"#,
        br#"{"error": {"message": "busy"}}"#,
    ] {
        let error = failure(Reply::body(200, "application/json", &[], body)).await;

        assert!(matches!(error, EmbedError::Failed { .. }), "{error:?}");
        assert_eq!(error.retry(), Retry::After(Duration::ZERO));
    }
}

#[tokio::test]
async fn an_answer_larger_than_the_limit_is_not_read() {
    let server = Server::start(Reply::Endless(crate::server::head(
        200,
        "application/json",
        &[],
        None,
    )))
    .await;
    let embedder = builder(&server).max_bytes(1_000).embedder(2).unwrap();

    let error = embedder.embed(&texts(&["a"])).await.unwrap_err();

    assert!(matches!(error, EmbedError::Unusable { .. }), "{error:?}");
}

#[test]
fn an_embedder_has_a_model() {
    let error = OpenAiCompatible::builder("http://localhost:1/v1")
        .embedder(2)
        .unwrap_err();

    assert!(matches!(error, ProviderError::NoModel), "{error}");
}

#[tokio::test]
async fn a_store_sends_nothing_that_hints_exclude_and_finds_by_the_answer() {
    let server = Server::start(vectors(&[(0, [0.6, 0.8])])).await;
    let store = MemoryStore::with_embeddings(
        MemoryLimits::default(),
        EmbeddingConfig::new(embedder(&server)),
    );
    let note = NewBreadcrumb::new("note.v1")
        .title("Title")
        .context(json!({"text": "shown", "token": "sk-hidden"}))
        .llm_hints(json!({"exclude": ["token"]}));

    let note = store.create(note).await.unwrap();
    let query = VectorQuery::new(Query::new(Selector::any()), "shown");
    let found = store.vector_search(&query).await.unwrap();

    assert_eq!(found[0].breadcrumb, note);
    assert!(found[0].score > Some(0.999), "{found:?}");
    let sent: Vec<Value> = server
        .requests()
        .into_iter()
        .map(|seen| seen.body["input"].clone())
        .collect();
    assert_eq!(sent, [json!(["Title\nshown"]), json!(["shown"])]);
}
