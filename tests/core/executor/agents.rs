//! Requests to an agent's model: the included and the excluded data.

use crate::support::{Call, Do, Probe, Shim, all, event_of, put, unavailable};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use universal_executor::executor::{ExecutorError, FenceKey};
use universal_executor::store::FailureClass;
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Outcome,
    UniversalExecutor,
};

/// Creates an agent on questions, with notes, a page and more fields of its definition.
fn agent(
    handle: &(impl BreadcrumbStore + Clone),
    model: &Arc<ScriptedModel>,
    more: &Value,
) -> AgentExecutor {
    let mut definition = json!({
        "agent_id": "reader", "system_prompt": "Read.",
        "subscriptions": [
            {"schema_name": "question.v1", "role": "trigger"},
            {"schema_name": "note.v1", "role": "context", "key": "notes", "fetch": "recent"},
            {"schema_name": "page.v1", "role": "context", "key": "page", "fetch": "latest"},
        ],
    });
    let fields = definition.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let definition = AgentDefinition::from_json(&definition).unwrap();
    AgentExecutor::new(definition, Arc::clone(model) as _, Arc::new(handle.clone())).unwrap()
}

fn model() -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::new(["Done.", "Done."]))
}

/// Lets an agent answer a question, and returns the text that its model received.
async fn told(store: &MemoryStore, more: &Value) -> String {
    let (question, model) = (put(store, "question.v1", json!({"q": 1})).await, model());
    let outcome = sees(&agent(store, &model, more), &question).await.unwrap();
    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    let mut request = model.requests().remove(0);
    request.messages.remove(1).text().into_owned()
}

async fn sees(agent: &AgentExecutor, breadcrumb: &Breadcrumb) -> Result<Outcome, ExecutorError> {
    agent.process_event(&event_of(breadcrumb)).await
}

/// Fails unless a question was answered with an error and the model received no request. Returns the error message.
async fn assert_refused(store: &MemoryStore, model: &ScriptedModel, outcome: &Outcome) -> String {
    assert!(
        matches!(
            outcome,
            Outcome::Failed {
                class: FailureClass::Permanent,
                ..
            }
        ),
        "{outcome:?}"
    );
    assert_eq!(model.requests(), []);
    assert_eq!(all(store, "executor.failed.v1").await.len(), 1);
    let answers = all(store, AgentExecutor::RESPONSE).await;
    let answer = &answers.first().unwrap().context;
    assert_eq!(answer.get("status"), Some(&json!("error")));
    answer.text("message").unwrap().to_owned()
}

#[tokio::test]
async fn nothing_that_hints_exclude_is_in_a_request_to_a_model_not_even_when_they_fail() {
    let store = MemoryStore::default();
    let definition = NewBreadcrumb::new("schema.def.v1").tag("defines:note.v1");
    let definition = definition.llm_hints(json!({"exclude": ["token", "meta.key"]}));
    store.create(definition).await.unwrap();
    let by_schema = json!({"text": "shown-1", "token": "secret-1", "meta": {"key": "secret-2"}});
    put(&store, "note.v1", by_schema).await;
    // The first hints cannot be applied, and the other ones cannot be parsed.
    let failing = json!({
        "exclude": ["token"], "mode": "merge", "transform": {"n": {"type": "literal", "literal": 1}},
    });
    let failing = NewBreadcrumb::new("note.v1")
        .context(json!(["secret-3"]))
        .llm_hints(failing);
    store.create(failing).await.unwrap();
    let broken = NewBreadcrumb::new("page.v1")
        .title("secret-4")
        .tag("secret-5");
    let broken = broken
        .context(json!({"token": "secret-6"}))
        .llm_hints(json!({"exlude": ["token"]}));
    store.create(broken).await.unwrap();
    let question = NewBreadcrumb::new("question.v1")
        .title("secret-7")
        .tag("secret-8");
    let question = question
        .context(json!({"q": "shown-2", "token": "secret-9"}))
        .llm_hints(json!({"include": ["q"]}));
    let question = store.create(question).await.unwrap();
    let model = model();

    sees(&agent(&store, &model, &json!({})), &question)
        .await
        .unwrap();

    let request = format!("{:?}", model.requests());
    assert!(!request.contains("secret-"), "{request}");
    for shown in [
        "shown-1",
        "shown-2",
        "- notes: 1 items were withheld",
        "- page: 1 items",
    ] {
        assert!(request.contains(shown), "{shown}: {request}");
    }
}

#[tokio::test]
async fn a_trigger_with_invalid_hints_is_answered_with_an_error_and_withheld() {
    let store = MemoryStore::default();
    let question = NewBreadcrumb::new("question.v1").context(json!({"token": "secret"}));
    let question = question.llm_hints(json!({"exlude": ["token"]}));
    let (question, model) = (store.create(question).await.unwrap(), model());

    let outcome = sees(&agent(&store, &model, &json!({})), &question).await;

    let message = assert_refused(&store, &model, &outcome.unwrap()).await;
    assert!(
        message.contains("\"trigger\" is withheld from the model"),
        "{message}"
    );
    assert!(!message.contains("secret"), "{message}");
}

#[tokio::test]
async fn a_trigger_over_the_budget_is_answered_with_an_error_and_a_fix() {
    for (budget, unit) in [
        (json!({"tokens": 1_000}), "tokens"),
        (json!({"bytes": 3_000}), "bytes"),
    ] {
        let store = MemoryStore::default();
        let question = put(&store, "question.v1", json!({"q": "word ".repeat(2_000)})).await;
        let model = model();
        let agent = agent(&store, &model, &json!({"context_budget": budget}));

        let outcome = sees(&agent, &question).await.unwrap();

        let message = assert_refused(&store, &model, &outcome).await;
        assert!(
            message.contains("the trigger and the required sources"),
            "{message}"
        );
        assert!(
            message.contains(unit) && message.contains("raise the budget"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_model_is_called_only_after_the_store_returns_the_hints() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({"q": 1})).await;
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    let shim = Shim::new(&store, move |call| match call {
        Call::Search(query)
            if query.selector.schema_name() == Some("schema.def.v1")
                && is_down.load(Ordering::SeqCst) =>
        {
            Do::Fail(unavailable())
        }
        _ => Do::Pass,
    });
    let model = model();
    let agent = agent(&shim, &model, &json!({}));

    let first = sees(&agent, &question).await.unwrap_err();
    assert!(
        matches!(first, ExecutorError::Postponed { .. }),
        "{first:?}"
    );
    assert_eq!(model.requests(), []);

    down.store(false, Ordering::SeqCst);
    let second = sees(&agent, &question).await.unwrap();
    assert!(matches!(second, Outcome::Responded { .. }), "{second:?}");
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_budget_omits_whole_items_and_reports_their_number() {
    let store = MemoryStore::default();
    for n in 0..5 {
        put(
            &store,
            "note.v1",
            json!({"n": n, "text": "word ".repeat(100)}),
        )
        .await;
    }

    let whole = told(&store, &json!({})).await;
    let few = told(&store, &json!({"context_budget": {"items_per_source": 2}})).await;
    let short = told(&store, &json!({"context_budget": {"bytes": 2_000}})).await;

    assert!(
        whole.contains("{\"n\":0,") && !whole.contains("## missing"),
        "{whole}"
    );
    assert!(
        few.contains("{\"n\":3,") && !few.contains("{\"n\":2,"),
        "{few}"
    );
    assert!(few.contains("- notes: 3 items"), "{few}");
    assert!(
        short.len() <= 2_000 && short.contains("{\"n\":4,"),
        "{short}"
    );
    assert!(!short.contains("{\"n\":0,"), "{short}");
}

#[tokio::test]
async fn the_definition_selects_the_context_format() {
    let store = MemoryStore::default();
    put(&store, "page.v1", json!({"text": "</data>"})).await;

    let markdown = told(&store, &json!({"context_format": "markdown"})).await;
    let xml = told(&store, &json!({"context_format": "xml"})).await;

    assert!(markdown.contains("\n## page\n"), "{markdown}");
    assert!(xml.contains("<source key=\"page\""), "{xml}");
    assert!(
        xml.contains("\\u003c/data\\u003e") && !xml.contains("</data>"),
        "{xml}"
    );
}

#[tokio::test]
async fn a_budget_given_in_code_counts_in_the_place_of_that_of_the_definition() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({"q": 1})).await;
    let model = model();
    let agent = agent(&store, &model, &json!({"context_budget": {"tokens": 5}}));
    let budget = agent.definition().context_budget.clone().tokens(50_000);

    let outcome = sees(&agent.with_context_budget(budget), &question).await;

    assert!(
        matches!(outcome, Ok(Outcome::Responded { .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn agents_with_the_same_fence_key_send_identical_text_to_their_models() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({"q": 1})).await;
    let mut texts = Vec::new();
    for (id, secret) in [("one", "a"), ("two", "a"), ("three", "b")] {
        let model = model();
        let agent = agent(&store, &model, &json!({"agent_id": id}));
        let agent = agent.with_fence_key(FenceKey::from_secret(secret));
        sees(&agent, &question).await.unwrap();
        texts.push(
            model
                .requests()
                .remove(0)
                .messages
                .remove(1)
                .text()
                .into_owned(),
        );
    }

    assert_eq!(texts.first(), texts.get(1));
    assert_ne!(texts.first(), texts.get(2));
}

#[tokio::test]
async fn other_executors_still_get_everything_unshaped() {
    let store = MemoryStore::default();
    let question = NewBreadcrumb::new("question.v1").context(json!({"token": "secret"}));
    let question = question.llm_hints(json!({"exclude": ["token"]}));
    let question = store.create(question).await.unwrap();
    let probe = Probe::on("question.v1", "probe", &store);

    probe.sees(&question).await.unwrap();

    assert_eq!(
        probe.context(0).trigger().context,
        json!({"token": "secret"})
    );
}
