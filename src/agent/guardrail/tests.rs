use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A guardrail whose checks all fail in the given way.
struct Broken(Fault);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Error,
    Panic,
    Hang,
}

const FAULTS: [Fault; 3] = [Fault::Error, Fault::Panic, Fault::Hang];

const SECRET: &str = "sk-planted-secret";

impl Broken {
    async fn fail<T>(&self) -> Result<Decision<T>, BoxError> {
        match self.0 {
            Fault::Error => Err(format!("401 for {SECRET}").into()),
            Fault::Panic => panic!("{SECRET}"),
            Fault::Hang => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Guardrail for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    async fn input(&self, _: &[ChatMessage]) -> Result<Decision<Vec<ChatMessage>>, BoxError> {
        self.fail().await
    }

    async fn output(&self, _: &str) -> Result<Decision<String>, BoxError> {
        self.fail().await
    }

    async fn tool_call(&self, _: &str, _: &Json) -> Result<Decision<Json>, BoxError> {
        self.fail().await
    }

    async fn tool_result(&self, _: &str, _: &Answer) -> Result<Decision<Answer>, BoxError> {
        self.fail().await
    }
}

fn denies_output(reason: &str) -> impl Guardrail + use<> {
    let reason = reason.to_owned();
    on_output("denies", move |_| Decision::deny(&*reason))
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| Value::Array(vec![inner]))
}

fn code_and_message(answer: &Answer) -> (&str, &str) {
    match answer {
        Answer::Error { code, message } => (code, message),
        Answer::Success(output) => panic!("the call passed: {output}"),
    }
}

#[tokio::test]
async fn without_guardrails_everything_passes() {
    let none = Guardrails::default();
    let messages = vec![ChatMessage::user("hi")];

    assert_eq!(none.input(messages.clone()).await.unwrap(), messages);
    assert_eq!(none.output("bye".to_owned()).await.unwrap(), "bye");
    assert_eq!(
        none.tool_call("t", json!(1).into()).await.unwrap(),
        json!(1)
    );
    let answer = Answer::success(json!(2));
    assert_eq!(none.tool_result("t", answer.clone()).await, answer);
}

#[tokio::test]
async fn a_guardrail_sees_the_replacements_of_earlier_guardrails() {
    let append = |name, more: &'static str| {
        on_output(name, move |text| Decision::Replace(format!("{text}{more}")))
    };
    let guardrails = Guardrails::default()
        .with(append("one", "b"))
        .with(append("two", "c"));

    let passed = guardrails.output("a".to_owned()).await.unwrap();

    assert_eq!(passed, "abc");
}

#[tokio::test]
async fn the_first_that_denies_ends_the_chain() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let counts = on_output("counts", move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Decision::Allow
    });
    let guardrails = Guardrails::default().with(denies_output("no")).with(counts);

    let denied = guardrails.output("a".to_owned()).await.unwrap_err();

    assert_eq!(
        denied.to_string(),
        "guardrail \"denies\" denied the output: no"
    );
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_guardrail_is_asked_only_at_its_place() {
    let guardrails = Guardrails::default().with(denies_output("no"));

    assert!(guardrails.input(Vec::new()).await.is_ok());
    assert!(guardrails.tool_call("t", Json::default()).await.is_ok());
    let answer = Answer::success(json!(1));
    assert_eq!(guardrails.tool_result("t", answer.clone()).await, answer);
}

#[tokio::test]
async fn a_guardrail_can_request_a_retry_for_output_but_not_for_input() {
    let guardrails = Guardrails::default()
        .with(on_input("in", |_| Decision::retry("mend it")))
        .with(on_output("out", |_| Decision::retry("mend it")));

    let input = guardrails.input(Vec::new()).await.unwrap_err();
    let output = guardrails.output(String::new()).await.unwrap_err();

    assert!(!input.try_again);
    assert!(output.try_again);
    assert_eq!(output.reason, "mend it");
}

#[tokio::test]
async fn a_denial_says_if_the_tool_was_called_and_names_the_guardrail() {
    let deny = Guardrails::default()
        .with(on_tool_call("before", |_, _| Decision::deny("not prod")))
        .with(on_tool_result("after", |_, _| {
            Decision::deny("too private")
        }));
    let retry = Guardrails::default()
        .with(on_tool_call("before", |_, _| {
            Decision::retry("name a city")
        }))
        .with(on_tool_result("after", |_, _| {
            Decision::retry("ask for less")
        }));
    let found = || Answer::success(json!(SECRET));

    let calls = [
        deny.tool_call("t", Json::default()).await.unwrap_err(),
        retry.tool_call("t", Json::default()).await.unwrap_err(),
    ];
    let results = [
        deny.tool_result("t", found()).await,
        retry.tool_result("t", found()).await,
    ];

    assert_eq!(
        calls.each_ref().map(code_and_message),
        [
            (
                "denied",
                "the call was not made, because of guardrail \"before\": not prod"
            ),
            (
                "try_again",
                "the call was not made, because of guardrail \"before\": name a city"
            ),
        ]
    );
    assert_eq!(
        results.each_ref().map(code_and_message),
        [
            (
                "denied",
                "the tool was called, and its result is withheld, because of guardrail \"after\": too private"
            ),
            (
                "try_again",
                "the tool was called, and its result is withheld, because of guardrail \"after\": ask for less"
            ),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_guardrail_that_fails_panics_or_hangs_denies_and_its_words_stay_inside() {
    for fault in FAULTS {
        let guardrails = Guardrails::default().with(Broken(fault));

        let input = guardrails.input(Vec::new()).await.unwrap_err();
        let output = guardrails.output(String::new()).await.unwrap_err();
        let call = guardrails.tool_call("t", Json::default()).await;
        let result = guardrails.tool_result("t", Answer::success(json!(1))).await;

        for denied in [&input, &output] {
            assert!(!denied.try_again && denied.source().is_some(), "{denied:?}");
            assert!(!denied.to_string().contains(SECRET), "{denied}");
        }
        for answer in [&call.unwrap_err(), &result] {
            let (code, message) = code_and_message(answer);
            assert_eq!(code, "denied", "{fault:?}");
            let hides_error = message.contains("\"broken\": the check failed");
            assert!(hides_error && !message.contains(SECRET), "{message}");
        }
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_names_a_failed_guardrail_and_omits_its_error_text() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // With a single dispatcher, `tracing` may cache on the thread of another test that no subscriber is interested.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let guard = tracing::subscriber::set_default(subscriber);
    let guardrails = Guardrails::default().with(Broken(Fault::Error));

    let call = guardrails.tool_call("t", json!(SECRET).into()).await;

    drop(guard);
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(call.is_err());
    assert!(
        logged.contains("a guardrail failed") && logged.contains("\"broken\""),
        "{logged}"
    );
    assert!(!logged.contains(SECRET), "{logged}");
}

#[tokio::test(start_paused = true)]
async fn a_shared_guardrail_is_asked_at_each_place_as_it_is() {
    let shared: Arc<dyn Guardrail> = Arc::new(Broken(Fault::Error));
    let guardrails = Guardrails::default().with(shared);

    let result = guardrails.tool_result("t", Answer::success(json!(1))).await;

    assert!(guardrails.input(Vec::new()).await.is_err());
    assert!(guardrails.output(String::new()).await.is_err());
    assert!(guardrails.tool_call("t", Json::default()).await.is_err());
    assert_eq!(code_and_message(&result).0, "denied");
}

#[tokio::test(start_paused = true)]
async fn a_check_has_the_time_it_was_given() {
    struct Slow;
    #[async_trait]
    impl Guardrail for Slow {
        fn name(&self) -> &str {
            "slow"
        }

        async fn output(&self, _: &str) -> Result<Decision<String>, BoxError> {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(Decision::Allow)
        }
    }
    let ten_seconds = Guardrails::default().with(Slow);
    let one_second = ten_seconds.clone().time_limit(Duration::from_secs(1));

    assert!(ten_seconds.output(String::new()).await.is_ok());
    assert!(one_second.output(String::new()).await.is_err());
}

#[tokio::test]
async fn a_replacement_that_is_too_large_or_too_deep_is_denied() {
    let with_call = |value: Value| {
        let value = Json::from(value);
        let put = move |_: &str, _: &Json| Decision::Replace(value.clone());
        Guardrails::default().with(on_tool_call("puts", put))
    };
    let with_text = |bytes| {
        let put = move |_: &str| Decision::Replace("x".repeat(bytes));
        Guardrails::default().with(on_output("puts", put))
    };
    let with_messages = |count| {
        let put = move |_: &[ChatMessage]| {
            Decision::Replace(vec![ChatMessage::user("x".repeat(1 << 20)); count])
        };
        Guardrails::default().with(on_input("puts", put))
    };
    let call = |value| async move { with_call(value).tool_call("t", Json::default()).await };

    assert!(call(nested(48)).await.is_ok());
    assert!(call(nested(49)).await.is_err());
    assert!(call(nested(20_000)).await.is_err());
    assert!(call(json!("x".repeat(2 << 20))).await.is_err());
    assert!(with_text(1 << 20).output(String::new()).await.is_ok());
    assert!(
        with_text((1 << 20) + 1)
            .output(String::new())
            .await
            .is_err()
    );
    assert!(with_messages(4).input(Vec::new()).await.is_ok());
    assert!(with_messages(5).input(Vec::new()).await.is_err());
}

#[tokio::test]
async fn a_reason_is_cut_short() {
    let guardrails = Guardrails::default().with(denies_output(&"x".repeat(1 << 20)));

    let denied = guardrails.output(String::new()).await.unwrap_err();

    assert!(denied.reason.len() < 1100, "{}", denied.reason.len());
}

#[tokio::test]
async fn a_denial_is_never_tried_again_by_the_run() {
    let guardrails = Guardrails::default().with(denies_output("no"));
    let denied = guardrails.output(String::new()).await.unwrap_err();

    assert_eq!(crate::class_of(&denied).retry(), crate::error::Retry::Never);
}

/// The behaviour of a guardrail in the property test below.
#[derive(Clone, Debug)]
enum Act {
    Allow,
    Append(char),
    Deny,
    Retry,
    Panic,
}

proptest! {
    #[test]
    fn a_chain_applies_its_guardrails_in_order_until_one_refuses(
        acts in prop::collection::vec(
            prop_oneof![
                4 => Just(Act::Allow),
                4 => any::<char>().prop_map(Act::Append),
                1 => Just(Act::Deny),
                1 => Just(Act::Retry),
                1 => Just(Act::Panic),
            ],
            0..8,
        ),
    ) {
        let guardrails = acts.iter().cloned().enumerate().fold(Guardrails::default(), |chain, (index, act)| {
            chain.with(on_output(index.to_string(), move |text| match act {
                Act::Allow => Decision::Allow,
                Act::Append(more) => Decision::Replace(format!("{text}{more}")),
                Act::Deny => Decision::deny("no"),
                Act::Retry => Decision::retry("no"),
                Act::Panic => panic!("no"),
            }))
        });
        let end = acts.iter().position(|act| matches!(act, Act::Deny | Act::Retry | Act::Panic));

        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();

        let checked = runtime.block_on(guardrails.output(String::new()));

        match (checked, end) {
            (Ok(text), None) => {
                let appended: String = acts.iter().filter_map(|act| match act {
                    Act::Append(more) => Some(*more),
                    Act::Allow | Act::Deny | Act::Retry | Act::Panic => None,
                }).collect();
                prop_assert_eq!(text, appended);
            }
            (Err(denied), Some(index)) => {
                prop_assert_eq!(denied.guardrail, index.to_string());
                prop_assert_eq!(denied.try_again, matches!(acts[index], Act::Retry));
            }
            (checked, end) => prop_assert!(false, "{:?} {:?}", checked, end),
        }
    }
}
