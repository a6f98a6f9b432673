//! Images and files: conversations contain references, and only requests to a provider contain the bytes.

use crate::agent::registry;
use crate::server::{Reply, Server};
use crate::support::{all, event_of, put};
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::guardrail::{Decision, Guardrails, on_input};
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ApiProvider, BreadcrumbModel, ChatMessage, ChatModel,
    ChatRequest, Media, ModelError, Part, Provider, ScriptedModel, Speaker,
};
use universal_executor::{
    BreadcrumbId, BreadcrumbStoreExt as _, MemoryStore, NewBreadcrumb, UniversalExecutor as _,
};

/// Stores three bytes, and returns a reference to them.
async fn photo(store: &MemoryStore) -> Media {
    let stored = put(store, "photo.v1", json!({"data": {"base64": "QUJD"}})).await;
    Media::new(stored.id, "data.base64", "image/png", 3).name("bird.png")
}

/// Returns a request with an image and a PDF that have the same bytes.
async fn request(store: &MemoryStore) -> ChatRequest {
    let image = photo(store).await;
    let pdf = Media::new(image.breadcrumb, "data.base64", "application/pdf", 3).name("bird.pdf");
    let message = ChatMessage::user("Which bird?")
        .with(Part::Image(image))
        .with(Part::File(pdf));
    ChatRequest::new(vec![message])
}

#[cfg(feature = "openai")]
#[tokio::test]
async fn an_openai_compatible_endpoint_gets_images_and_files_as_data_urls() {
    use universal_executor::agent::OpenAiCompatible;

    let answer = json!({"choices": [{"message": {"content": "A crow."}, "finish_reason": "stop"}]});
    let server = Server::start(Reply::json(200, &answer)).await;
    let model = OpenAiCompatible::builder(server.base_url()).build();
    let store = MemoryStore::default();
    let mut request = request(&store).await;

    request.load_media(&store).await.unwrap();
    model.unwrap().chat(&request).await.unwrap();

    let content = json!([
        {"type": "text", "text": "Which bird?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "file", "file": {
            "filename": "bird.pdf", "file_data": "data:application/pdf;base64,QUJD",
        }},
    ]);
    let expected = json!({"messages": [{"role": "user", "content": content}]});
    assert_eq!(server.only().body, expected);
    let saved = serde_json::to_string(&request).unwrap();
    assert!(!saved.contains("QUJD"), "{saved}");
    assert!(!format!("{request:?}").contains("QUJD"));
}

#[cfg(feature = "genai")]
#[tokio::test]
async fn anthropic_gets_images_and_files_as_base64() {
    use crate::genai::wire;
    use universal_executor::agent::{GenaiModel, Secret};

    let body = wire::text("anthropic", "A crow.");
    let server = Server::start(wire::reply("anthropic", &[body.as_bytes()])).await;
    let model = GenaiModel::builder("anthropic", "tiny").base_url(server.base_url());
    let model = model.key(Secret::new("sk-planted-4711")).build().unwrap();
    let store = MemoryStore::default();
    let mut request = request(&store).await;

    request.load_media(&store).await.unwrap();
    model.chat(&request).await.unwrap();

    let body = server.only().body;
    let content = &body["messages"][0]["content"];
    assert_eq!(content[0]["text"], "Which bird?");
    let source = |kind: &str| json!({"type": "base64", "media_type": kind, "data": "QUJD"});
    assert_eq!(content[1]["source"], source("image/png"));
    assert_eq!(content[2]["source"], source("application/pdf"));
}

#[cfg(feature = "genai")]
#[tokio::test]
async fn a_protocol_without_images_or_files_refuses_the_request_unasked() {
    use universal_executor::agent::{GenaiModel, Secret};

    let server = Server::start(Reply::json(500, &json!({}))).await;
    let store = MemoryStore::default();
    let mut request = request(&store).await;
    request.load_media(&store).await.unwrap();
    for provider in ["cohere", "ollama"] {
        let model = GenaiModel::builder(provider, "tiny").base_url(server.base_url());
        let model = model.key(Secret::new("sk-planted-4711")).build().unwrap();

        let error = model.chat(&request).await.unwrap_err();

        assert!(matches!(error, ModelError::Unsupported { .. }), "{error:?}");
    }
    assert!(server.requests().is_empty());
}

/// Returns the error of a request with this image.
async fn refused(store: &MemoryStore, image: Media) -> String {
    let message = ChatMessage::user("Which bird?").with(Part::Image(image));
    let mut request = ChatRequest::new(vec![message]);
    let error = request.load_media(store).await.unwrap_err();
    assert!(matches!(error, ModelError::Media { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn an_unreadable_media_reference_is_an_error_with_the_reason() {
    let store = MemoryStore::default();
    let good = photo(&store).await;
    let gone = Media::new(BreadcrumbId::NIL, "data.base64", "image/png", 3);
    let elsewhere = Media::new(good.breadcrumb, "data.other", "image/png", 3);
    let larger = Media::new(good.breadcrumb, "data.base64", "image/png", 4);
    let text = put(&store, "photo.v1", json!({"data": "no base64!"})).await;
    let text = Media::new(text.id, "data", "image/png", 3);

    for (media, reason) in [
        (gone, "the breadcrumb does not exist"),
        (elsewhere, "the context shows no string at this path"),
        (
            larger,
            "the content has 3 bytes, but the reference states 4",
        ),
        (text, "the string is not standard base64 with padding"),
    ] {
        let error = refused(&store, media).await;
        assert!(error.ends_with(reason), "{error}");
    }
}

#[tokio::test]
async fn a_field_that_hints_exclude_cannot_be_sent_as_an_image() {
    let store = MemoryStore::default();
    for hints in [json!({"exclude": ["data"]}), json!({"exclude": 7})] {
        let hidden = NewBreadcrumb::new("photo.v1").context(json!({"data": "QUJD"}));
        let hidden = store.create(hidden.llm_hints(hints)).await.unwrap();

        let error = refused(&store, Media::new(hidden.id, "data", "image/png", 3)).await;

        assert!(!error.contains("QUJD"), "{error}");
    }
}

/// Returns a request of one message with these images.
fn with_images(images: impl IntoIterator<Item = Media>) -> ChatRequest {
    let images = images.into_iter().map(Part::Image);
    ChatRequest::new(vec![ChatMessage::new(Speaker::User, images)])
}

#[tokio::test]
async fn images_and_files_have_a_size_limit_each_and_together() {
    let store = MemoryStore::default();
    // A breadcrumb can hold slightly less than the limit.
    let size = Media::MAX_BYTES - 300;
    let base64 = "A".repeat(usize::try_from(size / 3 * 4).unwrap());
    let stored = put(&store, "photo.v1", json!({"data": base64})).await;
    let media = |size| Media::new(stored.id, "data", "image/png", size);
    let most = usize::try_from(ChatRequest::MAX_MEDIA_BYTES / size).unwrap();

    let fits = with_images(vec![media(size); most])
        .load_media(&store)
        .await;
    let too_many = with_images(vec![media(size); most + 1])
        .load_media(&store)
        .await;
    let too_large = with_images([media(Media::MAX_BYTES + 1)])
        .load_media(&store)
        .await;

    assert!(fits.is_ok(), "{fits:?}");
    for error in [too_many, too_large] {
        assert!(
            matches!(error, Err(ModelError::TooLarge { .. })),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn each_reference_to_the_same_bytes_must_have_their_size() {
    let store = MemoryStore::default();
    let good = photo(&store).await;
    let smaller = Media::new(good.breadcrumb, "data.base64", "image/png", 0);

    let error = with_images([good, smaller]).load_media(&store).await;

    let error = error.unwrap_err().to_string();
    assert!(
        error.ends_with("the content has 3 bytes, but the reference states 0"),
        "{error}"
    );
}

/// Creates an agent that adds an image of its own store to each request.
async fn watcher(store: &MemoryStore, provider: Arc<dyn Provider>) -> AgentExecutor {
    let image = photo(store).await;
    let definition = AgentDefinition::from_json(&json!({
        "agent_id": "watcher", "system_prompt": "Name birds.",
        "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    }));
    let shared = Arc::new(store.clone());
    let agent = AgentExecutor::with_provider(definition.unwrap(), provider, shared, &registry([]));
    let attaches = on_input("attaches", move |messages| {
        let mut messages = messages.to_vec();
        let last = messages.pop().unwrap();
        messages.push(last.with(Part::Image(image.clone())));
        Decision::Replace(messages)
    });
    let guardrails = Guardrails::default().with(attaches);
    agent.unwrap().with_guardrails(guardrails)
}

async fn answer(store: &MemoryStore, agent: &AgentExecutor) -> Value {
    let message = put(store, "user.message.v1", json!({"message": "Which bird?"})).await;
    agent.process_event(&event_of(&message)).await.unwrap();
    match all(store, AgentExecutor::RESPONSE).await.pop() {
        Some(answer) => answer.context["message"].clone(),
        None => Value::Null,
    }
}

#[cfg(feature = "openai")]
#[tokio::test]
async fn an_agent_reads_images_from_its_own_store() {
    use universal_executor::agent::OpenAiCompatible;

    let reply = json!({"choices": [{"message": {"content": "A crow."}, "finish_reason": "stop"}]});
    let server = Server::start(Reply::json(200, &reply)).await;
    let model = OpenAiCompatible::builder(server.base_url())
        .build()
        .unwrap();
    let store = MemoryStore::default();
    let agent = watcher(&store, Arc::new(ApiProvider::new(Arc::new(model)))).await;

    assert_eq!(answer(&store, &agent).await, "A crow.");

    let content = &server.only().body["messages"][1]["content"];
    assert_eq!(content[0]["text"], "Which bird?");
    assert_eq!(content[1]["image_url"]["url"], "data:image/png;base64,QUJD");
}

#[tokio::test]
async fn an_image_for_a_model_behind_breadcrumbs_fails_the_run_for_good() {
    let store = MemoryStore::default();
    let agent = watcher(&store, Arc::new(BreadcrumbModel::new("llm"))).await;

    let message = answer(&store, &agent).await;

    let message = message.as_str().unwrap();
    assert!(
        message.contains("does not support images and files"),
        "{message}"
    );
    assert!(all(&store, "tool.request.v1").await.is_empty());
}

#[cfg(all(feature = "cli", unix))]
#[tokio::test]
async fn a_program_is_given_a_description_of_an_image() {
    use universal_executor::agent::CliProvider;

    let store = MemoryStore::default();
    let agent = watcher(&store, Arc::new(CliProvider::new("cat"))).await;

    let document = answer(&store, &agent).await;

    let document: Value = serde_json::from_str(document.as_str().unwrap()).unwrap();
    let text = "Which bird?\n[attachment \"bird.png\" of type \"image/png\", 3 bytes, not shown]";
    let expected = json!({"speaker": "user", "text": text});
    assert_eq!(document["messages"][1], expected);
}

#[cfg(feature = "openai")]
#[tokio::test]
async fn an_image_that_was_not_read_is_an_error_and_nothing_is_sent() {
    use universal_executor::agent::OpenAiCompatible;

    let server = Server::start(Reply::json(500, &json!({}))).await;
    let model = OpenAiCompatible::builder(server.base_url())
        .build()
        .unwrap();
    let request = request(&MemoryStore::default()).await;

    let error = model.chat(&request).await.unwrap_err();

    assert!(matches!(error, ModelError::Media { .. }), "{error:?}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_scripted_model_sees_the_reference() {
    let model = ScriptedModel::new(["A crow."]);
    let request = request(&MemoryStore::default()).await;

    model.chat(&request).await.unwrap();

    assert!(model.requests()[0].messages[0].has_media());
}
