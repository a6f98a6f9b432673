//! A vector context source in an agent's definition, from the event to the request of its model.

use crate::embedding::in_memory;
use crate::embedding::told::{Does, Told};
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use universal_executor::store::embedding::EmbeddingConfig;
use universal_executor::{
    BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Outcome, Runtime, UniversalExecutor,
};

const NOTES: [&str; 4] = [
    "the invoice was paid on monday",
    "apples and pears grow in the garden",
    "the garden gate needs paint",
    "nobody knows",
];

fn agent(store: &MemoryStore, model: &Arc<ScriptedModel>) -> AgentExecutor {
    let definition = json!({
        "agent_id": "gardener", "system_prompt": "Answer.",
        "subscriptions": [
            {"schema_name": "question.v1", "role": "trigger"},
            {"schema_name": "note.v1", "role": "context", "key": "notes",
             "fetch": {"method": "vector", "nn": 2, "min_score": 0.2}},
        ],
    });
    let definition = AgentDefinition::from_json(&definition).unwrap();
    AgentExecutor::new(definition, Arc::clone(model) as _, Arc::new(store.clone())).unwrap()
}

async fn with_notes(embedder: &Told) -> MemoryStore {
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    for text in NOTES {
        let note = NewBreadcrumb::new("note.v1").context(json!({"text": text}));
        store.create(note).await.unwrap();
    }
    store
}

fn question(context: Value) -> NewBreadcrumb {
    NewBreadcrumb::new("question.v1").context(context)
}

/// Returns all text that a model received.
fn shown(model: &ScriptedModel) -> String {
    let requests = model.requests();
    let messages = requests.iter().flat_map(|request| &request.messages);
    messages.map(|message| format!("{message:?}\n")).collect()
}

#[tokio::test]
async fn an_agent_is_shown_the_notes_nearest_to_its_question() {
    let store = with_notes(&Told::new()).await;
    let model = Arc::new(ScriptedModel::new(["apples"]));
    let runtime = Runtime::builder(store.events())
        .executor(agent(&store, &model))
        .build()
        .unwrap();

    let scenario = async {
        let asked = question(json!({"message": "what will grow in the garden"}));
        store.create(asked).await.unwrap();
        while store
            .latest(AgentExecutor::RESPONSE)
            .await
            .unwrap()
            .is_none()
        {
            tokio::task::yield_now().await;
        }
    };
    runtime.run_until(scenario).await.unwrap();

    let shown = shown(&model);
    assert!(
        shown.contains(NOTES[1]) && shown.contains(NOTES[2]),
        "{shown}"
    );
    assert!(
        !shown.contains(NOTES[0]) && !shown.contains(NOTES[3]),
        "{shown}"
    );
}

#[tokio::test]
async fn the_embedder_is_not_shown_more_of_a_question_than_the_model() {
    let embedder = Told::new();
    let store = with_notes(&embedder).await;
    let model = Arc::new(ScriptedModel::new(["apples", "apples"]));
    let agent = agent(&store, &model);
    let context = json!({"garden": "apples", "token": "sk-hidden"});

    for hints in [json!({"exclude": ["token"]}), json!({"exclude": 1})] {
        let asked = question(context.clone()).llm_hints(hints);
        let asked = store.create(asked).await.unwrap();
        // If the hints of the question are invalid, the agent decides about the outcome.
        drop(agent.process_event(&Event::created(&asked)).await);
    }

    let asked = embedder.asked().concat();
    assert!(
        asked.contains(&r#"{"garden":"apples"}"#.to_owned()),
        "{asked:?}"
    );
    assert!(
        !asked.iter().any(|text| text.contains("sk-hidden")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_question_is_answered_without_a_source_whose_search_fails() {
    let embedder = Told::new();
    let store = with_notes(&embedder).await;
    let model = Arc::new(ScriptedModel::new(["no idea"]));
    let asked = store
        .create(question(json!({"message": "apples"})))
        .await
        .unwrap();
    embedder.shall(Does::Fail);

    let outcome = agent(&store, &model)
        .process_event(&Event::created(&asked))
        .await;

    assert!(
        matches!(outcome, Ok(Outcome::Responded { .. })),
        "{outcome:?}"
    );
    let shown = shown(&model);
    assert!(
        shown.contains("missing") && !shown.contains(NOTES[1]),
        "{shown}"
    );
}
