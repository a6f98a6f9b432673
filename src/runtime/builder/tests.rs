use super::*;
use crate::agent::{AgentError, ScriptedModel};
use crate::executor::{Response, executor};
use crate::model::Subscription;
use crate::services::NotRegistered;
use crate::store::MemoryStore;
use std::error::Error as _;

/// Returns an agent whose model is the entry `model` of the services.
fn agent(id: &str, model: &str) -> Agent {
    Agent::new(id, model).on(Subscription::trigger("user.message.v1"))
}

fn services() -> Services {
    Services::new().model("large", ScriptedModel::new(["Hi"]))
}

fn ids(runtime: &Runtime) -> Vec<String> {
    let ids = runtime.executors();
    ids.iter().map(|id| (**id).to_owned()).collect()
}

#[test]
fn an_agent_finds_its_model_in_services_that_are_set_before_or_after_it() {
    let store = MemoryStore::default();
    let helper = || agent("helper", "large");

    let before = Runtime::on(&store).services(&services()).agent(helper());
    let after = Runtime::on(&store).agent(helper()).services(&services());

    assert_eq!(ids(&before.build().unwrap()), ["helper"]);
    assert_eq!(ids(&after.build().unwrap()), ["helper"]);
}

#[test]
fn the_last_services_count() {
    let store = MemoryStore::default();
    let builder = Runtime::on(&store).agent(agent("helper", "large"));

    let error = builder
        .services(&services())
        .services(&Services::new())
        .build()
        .unwrap_err();

    let RuntimeError::Agent(error @ AgentError::Model { .. }) = &error else {
        panic!("{error:?}");
    };
    let source = error.source().unwrap().downcast_ref::<NotRegistered>();
    assert!(matches!(source, Some(NotRegistered::Name { name, .. }) if name == "large"));
}

#[test]
fn an_agent_that_names_its_model_is_refused_without_services() {
    let store = MemoryStore::default();
    let builder = Runtime::on(&store).agent(agent("helper", "large"));

    let error = builder.build().unwrap_err();

    let is_expected = matches!(&error, RuntimeError::Agent(AgentError::NamedModel { agent, .. }) if agent == "helper");
    assert!(is_expected, "{error:?}");
}

#[test]
fn an_agent_is_refused_in_a_runtime_without_a_store() {
    let store = MemoryStore::default();
    let builder = Runtime::builder(store.events()).services(&services());

    let error = builder.agent(agent("helper", "large")).build().unwrap_err();

    let is_expected = matches!(&error, RuntimeError::NoStore { id } if id == "helper");
    assert!(is_expected, "{error:?}");
}

#[test]
fn the_problem_of_the_executor_that_was_added_first_is_reported() {
    let store = MemoryStore::default();
    let broken = || executor("broken").execute(|_| async { Ok(Response::none()) });
    let build = |builder: RuntimeBuilder| builder.build().unwrap_err();

    let agent_first = Runtime::on(&store).agent(agent("helper", "large"));
    let error = build(agent_first.executor(broken()).concurrency(0));
    assert!(matches!(error, RuntimeError::Agent(_)), "{error:?}");

    let executor_first = Runtime::on(&store).executor(broken());
    let error = build(executor_first.agent(agent("helper", "large")));
    assert!(matches!(error, RuntimeError::Invalid(_)), "{error:?}");
}
