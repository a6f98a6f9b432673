use super::*;
use crate::agent::{ChatMessage, ScriptedModel, StopReason, ToolCall, ToolSpec, Usage};
use serde_json::json;

/// A temporary file with a unique name, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = format!("recorded-{}.jsonl", uuid::Uuid::now_v7());
        Self(std::env::temp_dir().join(name))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

fn asking(text: &str) -> ChatRequest {
    ChatRequest::new(vec![
        ChatMessage::system("Be kind."),
        ChatMessage::user(text),
    ])
}

fn text_response(text: &str) -> Result<ChatResponse, ModelError> {
    Ok(ChatResponse::new(text))
}

fn recording(
    file: &Scratch,
    answers: impl IntoIterator<Item = Result<ChatResponse, ModelError>>,
) -> RecordedModel {
    RecordedModel::record(Arc::new(ScriptedModel::script(answers)), &file.0).unwrap()
}

#[tokio::test]
async fn a_recorded_response_is_replayed_with_its_calls_and_usage() {
    let file = Scratch::new();
    let request = asking("What is the weather?").tool(ToolSpec::new(
        "weather",
        "",
        json!({"type": "object", "a.b": [1, {}]}),
    ));
    let mut response = ChatResponse::calling(vec![
        ToolCall::new("1", "weather", json!({"city": "Bergen"})),
        ToolCall::new("2", "weather", "{\"cut".to_owned()),
    ]);
    response = response
        .with_usage(Usage::new(7, 3))
        .with_stop(StopReason::MaxTokens);
    let recorded = recording(&file, [Ok(response.clone())])
        .chat(&request)
        .await
        .unwrap();

    let replay = RecordedModel::replay(&file.0).unwrap();

    assert_eq!(recorded, response);
    assert_eq!(replay.chat(&request).await.unwrap(), response);
}

#[tokio::test]
async fn a_stream_is_recorded_as_the_whole_answer_and_replayed_as_a_stream() {
    let file = Scratch::new();
    let recorder = recording(&file, [text_response("Hello!")]);
    let whole = ChatResponse::collect(recorder.stream(&asking("hi")).await.unwrap()).await;

    let replay = RecordedModel::replay(&file.0).unwrap();
    let again = ChatResponse::collect(replay.stream(&asking("hi")).await.unwrap()).await;

    assert_eq!(whole.unwrap().text(), "Hello!");
    assert_eq!(again.unwrap().text(), "Hello!");
}

#[tokio::test]
async fn a_request_that_was_recorded_twice_gets_its_answers_in_order_and_no_third() {
    let file = Scratch::new();
    let recorder = recording(&file, [text_response("one"), text_response("two")]);
    recorder.chat(&asking("again")).await.unwrap();
    recorder.chat(&asking("again")).await.unwrap();

    let replay = RecordedModel::replay(&file.0).unwrap();
    let texts = [
        replay.chat(&asking("again")).await.unwrap(),
        replay.chat(&asking("again")).await.unwrap(),
    ];
    let error = replay.chat(&asking("again")).await.unwrap_err();

    assert_eq!(texts, ["one", "two"].map(ChatResponse::new));
    assert!(error.to_string().contains("recorded 2 times"), "{error}");
}

#[tokio::test]
async fn an_unknown_request_reports_the_difference_from_the_nearest_recording() {
    let file = Scratch::new();
    let recorder = recording(&file, [text_response("one"), text_response("two")]);
    recorder
        .chat(&asking("I am Ann").temperature(0.5))
        .await
        .unwrap();
    recorder
        .chat(&ChatRequest::new(vec![ChatMessage::user("quite another")]))
        .await
        .unwrap();

    let replay = RecordedModel::replay(&file.0).unwrap();
    let error = replay
        .chat(&asking("I am Bob").temperature(0.5))
        .await
        .unwrap_err();

    let ModelError::NotRecorded { difference } = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        difference,
        r#"messages[1].text is "I am Bob", but "I am Ann" was recorded"#
    );
}

#[tokio::test]
async fn errors_are_not_recorded() {
    let file = Scratch::new();
    let recorder = recording(
        &file,
        [Err(ModelError::unauthorized()), text_response("Hello!")],
    );

    recorder.chat(&asking("hi")).await.unwrap_err();
    recorder.chat(&asking("hi")).await.unwrap();

    assert_eq!(file.text().lines().count(), 1);
}

#[tokio::test]
async fn the_key_of_a_request_stays_the_same_from_release_to_release() {
    let file = Scratch::new();
    recording(&file, [text_response("Hello!")])
        .chat(&asking("hi"))
        .await
        .unwrap();

    let line: Value = serde_json::from_str(&file.text()).unwrap();

    assert_eq!(
        line["key"],
        "cdb686d9fe862ca284cdb4f145158a369743cc89598d3cb645df0be2a0d5bd23"
    );
}

#[test]
fn an_invalid_recording_is_an_error_that_names_the_file() {
    let file = Scratch::new();
    fs::write(&file.0, "no recording\n").unwrap();

    let error = RecordedModel::replay(&file.0).unwrap_err();

    assert!(matches!(error, ModelError::Recording { .. }), "{error:?}");
    assert!(error.to_string().contains("recorded-"), "{error}");
}
