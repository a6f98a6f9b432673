//! Errors of models and providers.

use std::time::Duration;
use universal_executor::agent::{Agent, ModelError, ScriptedModel};
use universal_executor::runtime::RuntimeError;
use universal_executor::{MemoryStore, Runtime, Services, Subscription};

#[test]
fn a_rate_limit_has_the_time_of_the_next_attempt() {
    let error = ModelError::RateLimited {
        retry_after: Duration::from_secs(20),
        source: None,
    };

    let expected = "the model is rate limited; retry after 20s";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_overloaded_model_asks_for_a_later_attempt() {
    let error = ModelError::Overloaded {
        retry_after: Duration::ZERO,
        source: None,
    };

    let expected = "the model is overloaded and rejects requests for now; retry later";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_timeout_names_the_missing_step_of_the_model() {
    let error = ModelError::TimedOut { to: "answer" };

    let expected = "timed out while waiting for the model to answer; retry, or raise the timeouts of the model client";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_request_that_is_too_long_names_what_to_reduce() {
    let error = ModelError::ContextTooLong;

    let expected = "the model request is larger than the model's context window; reduce the context or the conversation";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_rejected_request_has_the_status_and_the_remedy_for_it() {
    for (status, remedy) in [
        (404, "check the model name and the base URL"),
        (402, "check the credit of the account"),
        (400, "see the cause"),
    ] {
        let error = ModelError::Rejected {
            status,
            source: "no such model".into(),
        };

        let expected =
            format!("the model provider rejects the request with status {status}; {remedy}");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn an_unknown_model_name_is_named_with_the_nearest_and_the_known_ones() {
    let services = Services::new().model("large", ScriptedModel::new(["Hi"]));
    let helper = Agent::new("helper", "larg").on(Subscription::trigger("question.v1"));
    let builder = Runtime::on(&MemoryStore::default()).services(&services);

    let error = builder.agent(helper).build().unwrap_err();

    let RuntimeError::Agent(error) = &error else {
        panic!("{error:?}");
    };
    let expected = "cannot find the model of agent \"helper\" in the services; see the cause for the known names";
    assert_eq!(error.to_string(), expected);
    let cause = "model \"larg\" is not registered; did you mean \"large\"? add it with Services::model; registered: large";
    assert_eq!(super::cause_of(error), cause);
}

#[cfg(feature = "openai")]
mod openai {
    use universal_executor::agent::OpenAiCompatible;

    #[test]
    fn a_missing_key_names_the_environment_variable() {
        let builder = OpenAiCompatible::builder("http://127.0.0.1:1/v1");
        let builder = builder.key_from_env("UX_TEST_KEY_THAT_IS_NEVER_SET");

        let error = builder.build().map(drop).unwrap_err();

        let expected = "the environment variable \"UX_TEST_KEY_THAT_IS_NEVER_SET\" is missing or empty; set it to the API key";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn an_invalid_base_url_is_described_with_an_example() {
        let error = OpenAiCompatible::builder("ftp://models")
            .build()
            .map(drop)
            .unwrap_err();

        let expected = "the base URL of the model endpoint is not an http or https URL; use one like https://api.openai.com/v1";
        assert_eq!(error.to_string(), expected);
    }
}
