//! Agents that name a model of the services.

use super::*;
use crate::agent::BreadcrumbModel;
use crate::executor::UniversalExecutor as _;
use crate::model::{Event, NewBreadcrumb};
use crate::services::{NotRegistered, Services};
use crate::store::BreadcrumbStoreExt as _;

/// An agent whose model is the entry `name` of the services.
fn named(name: &str) -> Agent {
    Agent::new("helper", name).on(Subscription::trigger("user.message.v1"))
}

#[tokio::test]
async fn an_agent_that_names_its_model_asks_the_model_of_the_services() {
    let store = MemoryStore::default();
    let model = Arc::new(ScriptedModel::new(["Hi, Ann!"]));
    let services = Services::new().model("large", model.clone());
    let services = services.model("small", ScriptedModel::new(["No"]));
    let agent = named("large").bind_with(&store, &services).unwrap();

    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "Hi"}));
    let message = store.create(message).await.unwrap();
    let event = Event::created(&message);
    agent.process_event(&event).await.unwrap();

    let response = store.latest("agent.response.v1").await.unwrap().unwrap();
    assert_eq!(response.context.text("message"), Some("Hi, Ann!"));
    assert_eq!(model.requests().len(), 1);
    assert_eq!(model.requests()[0].model, None);
}

#[test]
fn the_name_of_a_model_in_the_services_is_not_written_into_the_definition() {
    let by_name = || named("large").instructions("Help.").tool(tool("refund"));
    let with_model = plain().instructions("Help.").tool(tool("refund"));

    let definition = by_name().definition().unwrap();
    assert_eq!(definition, with_model.definition().unwrap());
    assert_eq!(definition.get("model"), None);

    let definition = by_name().model("gpt-5").definition().unwrap();
    assert_eq!(definition["model"], "gpt-5");
}

#[test]
fn an_agent_with_a_named_model_equals_one_with_a_given_model() {
    let store = MemoryStore::default();
    let services = Services::new().model("any", ScriptedModel::new(["Hi"]));

    let by_name = named("any").max_turns(7).bind_with(&store, &services);
    let with_model = plain().max_turns(7).bind(&store);

    for (one, other) in parts(&by_name.unwrap())
        .iter()
        .zip(parts(&with_model.unwrap()))
    {
        assert_eq!(*one, other);
    }
}

#[test]
fn a_named_model_without_services_is_an_error_that_names_the_remedy() {
    let error = named("large").bind(&MemoryStore::default()).unwrap_err();

    let is_expected = matches!(&error, AgentError::NamedModel { agent, model } if agent == "helper" && model == "large");
    assert!(is_expected, "{error:?}");
    let message = error.to_string();
    assert!(
        message.contains("RuntimeBuilder::services") && message.contains("Agent::bind_with"),
        "{message}"
    );
}

#[test]
fn a_named_model_that_the_services_do_not_have_is_an_error_with_the_names_that_they_have() {
    let services = Services::new().model("large", ScriptedModel::new(["Hi"]));

    let error = named("larg")
        .bind_with(&MemoryStore::default(), &services)
        .unwrap_err();

    assert!(error.to_string().contains("\"helper\""), "{error}");
    let source = error.source().unwrap().downcast_ref::<NotRegistered>();
    let Some(NotRegistered::Name {
        name,
        nearest,
        known,
        ..
    }) = source
    else {
        panic!("{error:?}");
    };
    assert_eq!((&**name, nearest.as_deref()), ("larg", Some("large")));
    assert_eq!(known, "large");
}

#[test]
fn an_agent_can_name_a_provider_of_the_services() {
    let store = MemoryStore::default();
    let services = Services::new().provider("remote", BreadcrumbModel::new("openrouter"));

    let agent = named("remote").bind_with(&store, &services).unwrap();

    let written = agent.profile().responds_with.clone().unwrap();
    assert!(
        written.iter().any(|schema| schema == "tool.request.v1"),
        "{written:?}"
    );
}

#[test]
fn a_bad_argument_is_reported_before_an_unknown_model() {
    let agent = named("larg").temperature(f64::NAN);

    let error = agent
        .bind_with(&MemoryStore::default(), &Services::new())
        .unwrap_err();

    assert!(error.to_string().contains("\"temperature\""), "{error}");
}
