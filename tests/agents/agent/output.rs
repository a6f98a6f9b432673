//! Answers that must match the output schema of the definition.

use crate::agent::{
    Arc, MemoryStore, Outcome, ScriptedModel, agent, answer, answer_of, put, says, script, sees,
};
use serde_json::{Value, json};
use universal_executor::tool::ToolRegistry;

fn asking() -> Value {
    json!({"output_schema": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
    }})
}

#[tokio::test]
async fn an_output_schema_is_sent_to_the_model_and_the_output_is_read_from_prose() {
    let text = "Here it is:\n```json\n{\"city\": \"Bergen\"}\n```";
    let model = script([Ok(says(text))]);

    let answer = answer_of(&model, &ToolRegistry::default(), &asking()).await;

    assert_eq!(answer["output"], json!({"city": "Bergen"}));
    assert_eq!(answer["message"], text);
    let request = &model.requests()[0];
    let schema = request.response_schema.as_ref().unwrap();
    assert!(!schema.strict && schema.schema["required"][0] == "city");
    assert!(
        request.messages[1]
            .text()
            .contains(r#""required":["city"]"#)
    );
}

#[tokio::test]
async fn a_model_receives_the_problem_of_its_output_and_can_correct_it_once() {
    let model = script([Ok(says("It is Bergen.")), Ok(says(r#"{"city": "Bergen"}"#))]);

    let answer = answer_of(&model, &ToolRegistry::default(), &asking()).await;

    assert_eq!(answer["output"]["city"], "Bergen");
    let request = &model.requests()[1];
    let [.., wrong, told] = &request.messages[..] else {
        panic!("{request:?}")
    };
    assert_eq!(wrong.text(), "It is Bergen.");
    assert!(
        told.text().contains("no complete JSON value found"),
        "{told:?}"
    );
    assert_eq!(answer["usage"]["turns"], 2);
}

#[tokio::test]
async fn an_output_that_is_wrong_twice_is_an_error_with_a_truncated_raw_text() {
    for (more, turns) in [(json!({}), 2), (json!({"max_turns": 1}), 1)] {
        let store = MemoryStore::default();
        let wrong = "ü".repeat(10_000);
        let model = Arc::new(ScriptedModel::new([wrong.as_str(), wrong.as_str(), "{}"]));
        let mut definition = asking();
        definition
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let worker = agent(&store, &model, &ToolRegistry::default(), &definition).unwrap();
        let question = put(&store, "question.v1", json!({})).await;

        let outcome = sees(&worker, &question).await.unwrap();

        assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
        let answer = answer(&store).await;
        assert_eq!(answer["status"], "error");
        assert_eq!(
            answer["message"],
            "the model's answer does not meet the requirements: no complete JSON value found"
        );
        let raw = answer["raw"].as_str().unwrap();
        assert!(raw.starts_with('ü') && raw.len() <= 2050, "{}", raw.len());
        assert_eq!(model.requests().len(), turns);
    }
}

#[cfg(feature = "validate")]
#[tokio::test]
async fn an_output_has_to_fit_the_schema() {
    let model = script([
        Ok(says(r#"{"town": "Bergen"}"#)),
        Ok(says(r#"{"city": "Bergen"}"#)),
    ]);

    let answer = answer_of(&model, &ToolRegistry::default(), &asking()).await;

    assert_eq!(answer["output"], json!({"city": "Bergen"}));
    let request = &model.requests()[1];
    assert!(request.messages.last().unwrap().text().contains("city"));
}
