use super::*;
use crate::agent::{AnsweredBy, FailedModel, ScriptedModel, StopReason, Usage};
use crate::error::Retry;
use crate::store::MemoryStore;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::time::Duration;
use tokio::time::{Instant, advance, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// A model that waits before its answer and before the end of its stream.
struct Slow {
    before: Duration,
    between: Duration,
}

#[async_trait]
impl ChatModel for Slow {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        ChatResponse::collect(self.stream(request).await?).await
    }

    async fn stream(
        &self,
        _: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        let (before, between) = (self.before, self.between);
        let events = [
            (Duration::ZERO, ChatEvent::Usage(Usage::new(1, 0))),
            (before, ChatEvent::Text("slow".into())),
            (between, ChatEvent::End(StopReason::Finished)),
        ];
        let events = stream::iter(events).then(|(delay, event)| async move {
            sleep(delay).await;
            Ok(event)
        });
        Ok(events.boxed())
    }
}

fn failing(error: fn() -> ModelError) -> Arc<ScriptedModel> {
    let model = ScriptedModel::streaming(move |_, _| vec![Err(error())]);
    Arc::new(model)
}

fn overloaded() -> ModelError {
    ModelError::overloaded(Duration::ZERO)
}

fn saying(text: &'static str) -> Arc<ScriptedModel> {
    let answer = move |_, _: &ChatRequest| {
        let answer = ChatResponse::new(text).with_usage(Usage::new(60, 40));
        answer.into_events().into_iter().map(Ok).collect()
    };
    Arc::new(ScriptedModel::streaming(answer))
}

fn list(first: &Arc<ScriptedModel>, second: &Arc<ScriptedModel>) -> FallbackModel {
    let builder = FallbackModel::builder().model("large", Arc::clone(first));
    builder.model("small", Arc::clone(second)).build().unwrap()
}

fn single(model: impl ChatModel + 'static, policy: ModelPolicy) -> FallbackModel {
    let builder = FallbackModel::builder().model_with("only", model, policy);
    builder.build().unwrap()
}

async fn chat(model: &FallbackModel) -> Result<ChatResponse, ModelError> {
    model.chat(&ChatRequest::default()).await
}

async fn streamed(model: &FallbackModel) -> Result<Vec<ChatEvent>, ModelError> {
    let stream = model.stream(&ChatRequest::default()).await?;
    stream.try_collect().await
}

#[tokio::test(start_paused = true)]
async fn chat_and_stream_give_the_same_answer_with_the_models_that_failed() {
    let model = list(&failing(overloaded), &saying("Hello!"));

    let whole = chat(&model).await.unwrap();
    let collected = ChatResponse::collect(model.stream(&ChatRequest::default()).await.unwrap());
    let collected = collected.await.unwrap();

    assert_eq!(whole, collected);
    let answered_by = AnsweredBy::new("small").failed("large", "overloaded");
    assert_eq!(whole.answered_by, Some(answered_by));
    assert_eq!(whole.text(), "Hello!");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_request_reaches_the_caller_without_a_second_model() {
    let refusal = || ModelError::Refused {
        reason: "no".into(),
    };
    let second = saying("Hello!");
    let model = list(&failing(refusal), &second);

    let whole = chat(&model).await.unwrap_err();
    let stream = streamed(&model).await.unwrap_err();

    assert_eq!((whole.code(), stream.code()), ("refused", "refused"));
    assert_eq!(second.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn an_error_after_the_first_text_is_the_last_item_of_the_stream() {
    let first = Arc::new(ScriptedModel::streaming(|_, _| {
        vec![
            Ok(ChatEvent::Text("It ra".into())),
            Err(ModelError::TimedOut { to: "continue" }),
        ]
    }));
    let second = saying("Hello!");
    let model = list(&first, &second);

    let stream = model.stream(&ChatRequest::default()).await.unwrap();
    let items: Vec<_> = stream.collect().await;

    let answered_by = ChatEvent::AnsweredBy(AnsweredBy::new("large"));
    assert_eq!(items.len(), 3);
    assert_eq!(*items[0].as_ref().unwrap(), answered_by);
    assert_eq!(items[2].as_ref().unwrap_err().code(), "timeout");
    assert_eq!(second.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn the_first_text_and_the_whole_answer_have_timeouts() {
    let hour = 3_600 * SECOND;
    let (before, between) = (hour, Duration::ZERO);
    let late = single(Slow { before, between }, ModelPolicy::new());
    let (before, between) = (Duration::ZERO, hour);
    let stuck = single(Slow { before, between }, ModelPolicy::new());

    let started = Instant::now();
    let no_text = streamed(&late).await.unwrap_err();
    let first = started.elapsed();
    let no_end = streamed(&stuck).await.unwrap_err();
    let total = started.elapsed() - first;
    let no_answer = chat(&stuck).await.unwrap_err();

    assert_eq!(no_text.code(), "all_unavailable");
    assert!(
        matches!(no_end, ModelError::TimedOut { to: "continue" }),
        "{no_end:?}"
    );
    assert_eq!(
        no_answer.to_string(),
        "no model of the list can answer the request: only (timeout); see the reason of each model"
    );
    assert_eq!((first, total), (30 * SECOND, 60 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn five_failures_open_the_breaker_and_a_later_trial_closes_it() {
    let first = Arc::new(ScriptedModel::streaming(|number, _| match number {
        1..=5 => vec![Err(overloaded())],
        _ => ChatResponse::new("back")
            .into_events()
            .into_iter()
            .map(Ok)
            .collect(),
    }));
    let model = list(&first, &saying("Hello!"));

    for _ in 0..8 {
        chat(&model).await.unwrap();
    }
    let requests = first.requests().len();
    let open = chat(&model).await.unwrap().answered_by.unwrap();
    advance(5 * SECOND).await;
    let trial = chat(&model).await.unwrap();

    assert_eq!(requests, 5);
    assert_eq!(open.failed, [FailedModel::new("large", "circuit_open")]);
    assert_eq!(trial.text(), "back");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_trial_does_not_block_the_model() {
    let slow = Slow {
        before: 10 * SECOND,
        between: Duration::ZERO,
    };
    let policy = ModelPolicy::new()
        .failure_threshold(1)
        .first_event_timeout(SECOND)
        .total_timeout(20 * SECOND);
    let model = single(slow, policy);
    streamed(&model).await.unwrap_err();
    advance(5 * SECOND).await;

    let cancelled = tokio::time::timeout(SECOND, chat(&model)).await;

    assert!(cancelled.is_err());
    assert_eq!(chat(&model).await.unwrap().text(), "slow");
}

#[tokio::test(start_paused = true)]
async fn limits_are_shared_by_clones_and_the_error_has_the_earliest_time() {
    let first = ModelPolicy::new().requests_per_minute(1);
    let second = ModelPolicy::new().tokens_per_minute(50);
    let model = FallbackModel::builder()
        .model_with("large", saying("one"), first)
        .model_with("small", saying("two"), second)
        .build()
        .unwrap();
    let clone = model.clone();

    let texts = [
        chat(&model).await.unwrap().text().into_owned(),
        chat(&clone).await.unwrap().text().into_owned(),
    ];
    let error = chat(&model).await.unwrap_err();

    assert_eq!(texts, ["one", "two"]);
    // The second model has a debt of 50 of its 50 tokens per minute, so it needs more than a minute.
    assert_eq!(error.retry(), Retry::After(60 * SECOND));
    assert!(error.is_rate_limit());
    let ModelError::AllUnavailable { models, .. } = error else {
        panic!("{error:?}")
    };
    let expected = [("large", "request_limit"), ("small", "token_limit")];
    assert_eq!(
        models,
        expected.map(|(name, code)| FailedModel::new(name, code))
    );
}

#[tokio::test(start_paused = true)]
async fn a_streamed_answer_counts_for_the_limit_of_tokens() {
    let policy = ModelPolicy::new().tokens_per_minute(100);
    let model = single(saying("one"), policy);

    streamed(&model).await.unwrap();
    let error = streamed(&model).await.unwrap_err();

    assert_eq!(error.code(), "all_unavailable");
    assert!(error.is_rate_limit());
}

#[tokio::test(start_paused = true)]
async fn permanent_errors_of_all_models_are_not_retried() {
    let model = list(
        &failing(ModelError::unauthorized),
        &failing(|| ModelError::ContextTooLong),
    );

    let error = chat(&model).await.unwrap_err();

    assert_eq!(error.retry(), Retry::Never);
    assert!(!error.is_rate_limit());
}

#[tokio::test(start_paused = true)]
async fn only_the_first_model_receives_the_model_name_of_the_request() {
    let (first, second) = (failing(overloaded), saying("Hello!"));
    let model = list(&first, &second);

    let request = ChatRequest::default().model("gpt-5");
    model.chat(&request).await.unwrap();

    assert_eq!(first.requests()[0].model.as_deref(), Some("gpt-5"));
    assert_eq!(second.requests()[0].model, None);
}

#[tokio::test(start_paused = true)]
async fn workers_with_shared_limits_use_one_allowance() {
    let store = Arc::new(MemoryStore::default());
    let worker = || {
        let limits = SharedLimits::new(Arc::clone(&store) as _, "test");
        let policy = ModelPolicy::new().tokens_per_minute(100);
        let builder = FallbackModel::builder().model_with("only", saying("Hello!"), policy);
        builder.shared_limits(limits).build().unwrap()
    };
    let (one, two) = (worker(), worker());
    for _ in 0..3 {
        one.core.sync().await;
        two.core.sync().await;
        advance(SECOND).await;
    }

    chat(&one).await.unwrap();
    advance(SECOND).await;
    let error = chat(&two).await.unwrap_err();

    assert!(error.is_rate_limit(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_without_models_or_with_a_bad_policy_is_refused() {
    let with = |name: &str, policy| {
        let builder = FallbackModel::builder();
        builder
            .model_with(name, saying("Hello!"), policy)
            .build()
            .unwrap_err()
    };
    let many = (0..17).fold(FallbackModel::builder(), |builder, number| {
        builder.model(number.to_string(), saying("Hello!"))
    });

    let limit = FallbackModel::MAX_MODELS;
    assert_eq!(
        FallbackModel::builder().build().unwrap_err(),
        FallbackError::NoModels
    );
    assert_eq!(
        many.build().unwrap_err(),
        FallbackError::TooManyModels { limit }
    );
    for name in ["", "a\nb", &"x".repeat(65)] {
        let error = with(name, ModelPolicy::new());
        assert!(matches!(error, FallbackError::BadName { .. }), "{error:?}");
    }
    for policy in [
        ModelPolicy::new().total_timeout(Duration::ZERO),
        ModelPolicy::new().tokens_per_minute(0),
        ModelPolicy::new().failure_threshold(0),
        ModelPolicy::new().pause(2 * SECOND, SECOND),
    ] {
        let error = with("a", policy);
        assert!(
            matches!(error, FallbackError::BadPolicy { .. }),
            "{error:?}"
        );
    }
}
