//! Blocking tools: concurrency limits, functions that never return, and tools with typed input and output.
//!
//! Time is paused and threads are real. While a test waits for a thread, it does not let the tokio runtime idle with a timer set, because
//! that would advance the clock: the test blocks or yields in a loop. Where a test does let the runtime idle, the thread waits at a
//! gate.
use crate::child::is_alone;
use crate::support::log::Log;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use futures::poll;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, advance};
use universal_executor::model::Timestamp;
use universal_executor::store::FailureClass;
use universal_executor::tool::{
    BlockingPool, BlockingTool, Tool, ToolContext, ToolExecutor, json_tool_blocking, tool_fn,
    tool_fn_blocking,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStoreExt, Event, ExecutionContext, MemoryStore,
    NewBreadcrumb, Outcome, UniversalExecutor,
};

const STUCK_AFTER: Duration = Duration::from_secs(10);

/// A gate for calls of a tool. Each call waits under its input as its name until the test lets this name pass.
struct Gate {
    passed: Mutex<BTreeSet<String>>,
    changed: Condvar,
}

impl Gate {
    /// Returns a gate, a tool of a pool that waits at the gate, and the names of the calls in the order of their arrival.
    fn before(pool: &BlockingPool) -> (Arc<Self>, BlockingTool, mpsc::Receiver<String>) {
        Self::before_tool("probe", pool)
    }

    fn before_tool(
        name: &str,
        pool: &BlockingPool,
    ) -> (Arc<Self>, BlockingTool, mpsc::Receiver<String>) {
        let gate = Arc::new(Self {
            passed: Mutex::default(),
            changed: Condvar::new(),
        });
        let (sender, arrived) = mpsc::channel();
        let waits = Arc::clone(&gate);
        let tool = json_tool_blocking(name, "For tests.", json!({}), move |input, _| {
            let name = input.as_str().unwrap_or_default().to_owned();
            sender.send(name.clone())?;
            let passed = waits.passed.lock().unwrap();
            let closed = |passed: &mut BTreeSet<String>| !passed.contains(&name);
            drop(waits.changed.wait_while(passed, closed).unwrap());
            Ok(input)
        });
        (gate, tool.on(pool), arrived)
    }

    fn let_through(&self, name: &str) {
        self.passed.lock().unwrap().insert(name.to_owned());
        self.changed.notify_all();
    }
}

fn pool(slots: usize) -> BlockingPool {
    BlockingPool::new(NonZeroUsize::new(slots).unwrap())
}

fn context() -> ToolContext {
    let trigger = NewBreadcrumb::new("tool.request.v1");
    let trigger = trigger.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    ToolContext::for_test(
        ExecutionContext::for_trigger(trigger),
        Arc::new(MemoryStore::default()),
    )
}

fn call<'t>(tool: &'t (impl Tool + ?Sized), input: &str) -> BoxFuture<'t, Result<Value, BoxError>> {
    tool.call(json!(input), context()).boxed()
}

/// Starts a call and waits until it has reached the gate.
async fn begun<'t>(
    tool: &'t BlockingTool,
    name: &str,
    arrived: &mpsc::Receiver<String>,
) -> BoxFuture<'t, Result<Value, BoxError>> {
    let mut call = call(tool, name);
    assert!(poll!(call.as_mut()).is_pending());
    assert_eq!(arrived.recv().unwrap(), name);
    call
}

/// Waits until this number of calls run, without advancing the clock.
async fn runs(pool: &BlockingPool, busy: usize) {
    while pool.busy() != busy {
        yield_now().await;
    }
}

async fn request(store: &MemoryStore, input: Value) -> Arc<Breadcrumb> {
    let context = json!({"tool": "probe", "input": input, "requestId": "r-1"});
    let request = NewBreadcrumb::new("tool.request.v1").context(context);
    store.create(request).await.unwrap()
}

async fn answer(store: &MemoryStore) -> Value {
    let answer = store.latest("tool.response.v1").await.unwrap().unwrap();
    answer.context.clone().into_value()
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_once_than_there_are_slots_and_the_others_wait_in_turn() {
    let pool = pool(2);
    let (gate, tool, arrived) = Gate::before(&pool);
    let one = begun(&tool, "1", &arrived).await;
    let two = begun(&tool, "2", &arrived).await;
    let mut waiting: Vec<_> = ["3", "4", "5"].map(|name| call(&tool, name)).into();
    for call in &mut waiting {
        assert!(poll!(call.as_mut()).is_pending());
    }
    assert_eq!((pool.busy(), pool.slots(), pool.stuck()), (2, 2, 0));

    gate.let_through("1");
    assert_eq!(one.await.unwrap(), "1");
    for call in waiting.iter_mut().rev() {
        assert!(poll!(call.as_mut()).is_pending());
    }

    assert_eq!(arrived.recv().unwrap(), "3");
    assert_eq!(pool.busy(), 2);
    for name in ["2", "3", "4", "5"] {
        gate.let_through(name);
    }
    assert_eq!(two.await.unwrap(), "2");
    let outputs: Vec<Value> = join_all(waiting).await.into_iter().flatten().collect();
    assert_eq!(outputs, ["3", "4", "5"]);
    assert_eq!(pool.busy(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_occupies_its_slot_until_the_function_returns() {
    let pool = pool(1);
    let (gate, tool, arrived) = Gate::before(&pool);
    drop(begun(&tool, "1", &arrived).await);
    let mut two = call(&tool, "2");
    advance(STUCK_AFTER - Duration::from_millis(1)).await;

    assert!(poll!(two.as_mut()).is_pending());
    assert_eq!((pool.busy(), pool.stuck()), (1, 0));

    gate.let_through("1");
    gate.let_through("2");
    runs(&pool, 0).await;
    assert_eq!(two.await.unwrap(), "2");
    assert_eq!((pool.busy(), pool.stuck()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stuck_call_is_replaced_and_wakes_the_waiting_call() {
    let pool = pool(1);
    let (gate, tool, arrived) = Gate::before(&pool);
    let one = begun(&tool, "1", &arrived).await;
    let mut two = call(&tool, "2");
    assert!(poll!(two.as_mut()).is_pending());
    advance(Duration::from_secs(60)).await;
    let left = Instant::now();
    drop(one);
    gate.let_through("2");

    assert_eq!(two.await.unwrap(), "2");

    assert_eq!(left.elapsed(), STUCK_AFTER);
    assert_eq!((pool.stuck(), pool.all_stuck()), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_waited_for_is_never_stuck() {
    let pool = pool(1);
    let (gate, tool, arrived) = Gate::before(&pool);
    let one = begun(&tool, "1", &arrived).await;

    advance(1_000 * STUCK_AFTER).await;

    assert_eq!(pool.stuck(), 0);
    gate.let_through("1");
    assert_eq!(one.await.unwrap(), "1");
}

#[tokio::test(start_paused = true)]
async fn when_it_counts_as_stuck_can_be_set_even_while_others_wait() {
    let pool = pool(1);
    let (gate, tool, arrived) = Gate::before(&pool);
    drop(begun(&tool, "1", &arrived).await);
    let left = Instant::now();
    let mut two = call(&tool, "2");
    assert!(poll!(two.as_mut()).is_pending());

    let same = pool.clone().stuck_after(Duration::from_secs(2));
    gate.let_through("2");

    assert_eq!(two.await.unwrap(), "2");
    assert_eq!(left.elapsed(), Duration::from_secs(2));
    assert_eq!((pool.stuck(), same.stuck()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_replacement_goes_away_when_the_stuck_call_returns() {
    let pool = pool(1);
    let (gate, tool, arrived) = Gate::before(&pool);
    drop(begun(&tool, "1", &arrived).await);
    advance(STUCK_AFTER).await;
    let two = begun(&tool, "2", &arrived).await;
    assert_eq!((pool.busy(), pool.stuck()), (2, 1));

    gate.let_through("1");
    runs(&pool, 1).await;

    assert_eq!(pool.stuck(), 0);
    let mut three = call(&tool, "3");
    assert!(poll!(three.as_mut()).is_pending());
    assert_eq!(pool.busy(), 1);
    gate.let_through("2");
    gate.let_through("3");
    assert_eq!(two.await.unwrap(), "2");
    assert_eq!(three.await.unwrap(), "3");
}

#[tokio::test(start_paused = true)]
async fn once_every_slot_and_replacement_is_stuck_nothing_starts_until_one_returns() {
    let pool = pool(2);
    let (gate, tool, arrived) = Gate::before(&pool);
    for names in [["1", "2"], ["3", "4"]] {
        for name in names {
            drop(begun(&tool, name, &arrived).await);
        }
        assert!(!pool.all_stuck());
        advance(STUCK_AFTER).await;
    }
    assert!(pool.all_stuck());
    assert_eq!((pool.busy(), pool.stuck()), (4, 4));
    let mut five = call(&tool, "5");
    assert!(poll!(five.as_mut()).is_pending());
    advance(1_000 * STUCK_AFTER).await;
    assert!(poll!(five.as_mut()).is_pending());
    assert_eq!(pool.busy(), 4);

    gate.let_through("3");
    gate.let_through("5");

    assert_eq!(five.await.unwrap(), "5");
    assert!(!pool.all_stuck());
    for (name, left) in [("1", 2), ("2", 1), ("4", 0)] {
        gate.let_through(name);
        runs(&pool, left).await;
    }
    let [one, two, three] = ["a", "b", "c"].map(|name| {
        gate.let_through(name);
        call(&tool, name)
    });
    let (one, two) = futures::join!(one, two);
    assert!(one.is_ok() && two.is_ok() && three.await.is_ok());
    assert_eq!((pool.busy(), pool.stuck()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stuck_call_is_reported_once_with_the_name_of_its_tool() {
    if !is_alone(concat!(
        module_path!(),
        "::a_stuck_call_is_reported_once_with_the_name_of_its_tool"
    )) {
        return;
    }
    let log = Log::capture_process();
    let pool = pool(1);
    let (gate, tool, arrived) = Gate::before_tool("sleeper", &pool);
    drop(begun(&tool, "1", &arrived).await);

    for _ in 0..5 {
        advance(STUCK_AFTER).await;
        assert_eq!(pool.stuck(), 1);
    }

    let log = log.text();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("tool=\"sleeper\""))
        .collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("WARN"), "{log}");
    gate.let_through("1");
    runs(&pool, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_passed_on_and_frees_the_slot() {
    let pool = pool(1);
    let panics = json_tool_blocking("probe", "For tests.", json!({}), |input, _| {
        assert!(input != "panic", "it was told to");
        Ok(input)
    });
    let panics = panics.on(&pool);

    for _ in 0..3 {
        let caught = AssertUnwindSafe(call(&panics, "panic")).catch_unwind();
        let panic = caught.await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"it was told to"));
    }

    assert_eq!(pool.busy(), 0);
    assert_eq!(call(&panics, "fine").await.unwrap(), "fine");
}

#[tokio::test]
async fn the_runtime_of_the_caller_can_be_reached_from_inside() {
    let store = MemoryStore::default();
    let writes = json_tool_blocking("probe", "For tests.", json!({}), |input, context| {
        let note = NewBreadcrumb::new("note.v1").context(input);
        let note = Handle::current().block_on(context.store().create(note))?;
        Ok(json!(note.id))
    });
    let tool = ToolExecutor::new(writes, Arc::new(store.clone())).unwrap();
    let tool = tool.also_writes(["note.v1"]);
    let request = request(&store, json!({"a": 1})).await;

    tool.process_event(&Event::created(&request)).await.unwrap();

    let note = store.latest("note.v1").await.unwrap().unwrap();
    assert_eq!(answer(&store).await["output"], json!(note.id));
}

#[tokio::test]
async fn a_tool_name_with_a_nul_byte_does_not_panic() {
    let tool = json_tool_blocking("pro\0be", "For tests.", json!({}), |input, _| Ok(input));

    assert_eq!(call(&tool, "fine").await.unwrap(), "fine");
}

#[tokio::test]
async fn a_blocking_tool_answers_and_its_panic_fails_the_run() {
    let store = MemoryStore::default();
    let tool = json_tool_blocking("probe", "For tests.", json!({}), |input, _| {
        assert!(input["panic"].is_null(), "planned panic");
        Ok(json!({"sum": input["a"].as_i64().unwrap_or(0) + 1}))
    });
    let tool = ToolExecutor::new(tool.on(&pool(1)), Arc::new(store.clone())).unwrap();
    let fine = request(&store, json!({"a": 1})).await;
    let panics = request(&store, json!({"panic": true})).await;

    let outcome = tool.process_event(&Event::created(&fine)).await.unwrap();
    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    assert_eq!(answer(&store).await["output"]["sum"], 2);

    let outcome = tool.process_event(&Event::created(&panics)).await.unwrap();
    let Outcome::Failed { class, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(class, FailureClass::Panic);
    assert_eq!(answer(&store).await["status"], "error");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_answered_and_leaves_the_pool_usable() {
    let store = MemoryStore::default();
    let pool = pool(1);
    let (gate, tool, arrived) = Gate::before(&pool);
    let tool = ToolExecutor::new(tool, Arc::new(store.clone())).unwrap();
    let hangs = request(&store, json!("1")).await;

    let outcome = tool.process_event(&Event::created(&hangs)).await.unwrap();

    let Outcome::Failed { class, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(class, FailureClass::Timeout);
    let told = answer(&store).await;
    assert_eq!(
        (&told["status"], &told["request_id"]),
        (&json!("error"), &json!("r-1"))
    );
    assert_eq!((arrived.recv().unwrap(), pool.busy()), ("1".to_owned(), 1));
    let mut next = call(tool.tool(), "2");
    assert!(poll!(next.as_mut()).is_pending());
    drop(next);
    gate.let_through("1");
    runs(&pool, 0).await;
    gate.let_through("3");
    assert_eq!(call(tool.tool(), "3").await.unwrap(), "3");
}

#[tokio::test(start_paused = true)]
async fn a_deeply_nested_result_of_an_abandoned_call_does_not_overflow_the_stack() {
    let pool = pool(1);
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let deep = json_tool_blocking("deep", "Nests.", json!({}), move |_, _| {
        wait.lock().unwrap().recv()?;
        Ok((0..200_000).fold(json!(1), |inner, _| Value::Array(vec![inner])))
    })
    .on(&pool);
    let mut late = call(&deep, "1");
    assert!(poll!(late.as_mut()).is_pending());
    drop(late);

    go.send(()).unwrap();
    runs(&pool, 0).await;

    go.send(()).unwrap();
    assert!(call(&deep, "2").await.is_ok_and(|made| {
        // Leak the value, because dropping it would overflow the stack.
        std::mem::forget(made);
        true
    }));
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Forecast {
    /// Where.
    place: Place,
    days: Option<u8>,
    unit: Unit,
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    city: String,
    #[expect(dead_code, reason = "it is there to be read")]
    near: Option<Vec<City>>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is there to be read")]
struct City {
    name: String,
}

#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Celsius,
    Fahrenheit,
}

#[derive(Serialize)]
struct Weather {
    text: String,
    unit: Unit,
}

fn forecast(input: Forecast) -> Result<Weather, BoxError> {
    let (city, days) = (input.place.city, input.days.unwrap_or(1));
    Ok(Weather {
        text: format!("{city} in {days}"),
        unit: input.unit,
    })
}

/// Returns the same tool as an async and as a blocking tool.
fn weather() -> [Box<dyn Tool>; 2] {
    let about = "Tells the weather.";
    [
        Box::new(tool_fn("probe", about, |input, _| async {
            forecast(input)
        })),
        Box::new(tool_fn_blocking("probe", about, |input, _| forecast(input))),
    ]
}

#[tokio::test]
async fn a_typed_tool_is_given_its_type_and_answers_with_one() {
    for tool in weather() {
        let input = json!({"place": {"city": "Oslo"}, "unit": "celsius"});

        let output = tool.call(input, context()).await.unwrap();

        assert_eq!(output, json!({"text": "Oslo in 1", "unit": "celsius"}));
        assert_eq!(
            (tool.name(), tool.description()),
            ("probe", "Tells the weather.")
        );
    }
}

#[tokio::test]
async fn the_schema_of_a_type_is_in_one_piece_and_carries_its_comments() {
    let [one, other] = weather();
    let schema = one.input_schema();

    assert_eq!(schema, other.input_schema());
    let text = schema.to_string();
    assert!(
        !text.contains("$ref") && !text.contains("$defs") && !text.contains("$schema"),
        "{text}"
    );
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["required"], json!(["place", "unit"]));
    let place = &schema["properties"]["place"];
    assert_eq!(place["description"], "Where.");
    assert_eq!(place["properties"]["city"]["type"], "string");
    assert_eq!(
        schema["properties"]["unit"]["enum"],
        json!(["celsius", "fahrenheit"])
    );
    assert!(text.contains(r#""name":{"type":"string"}"#), "{text}");
}

#[tokio::test]
async fn an_invalid_input_is_an_error_with_the_path_and_the_reason() {
    let place = json!({"city": "Oslo"});
    for (input, expected) in [
        (json!({}), "the input does not fit: missing field `place`"),
        (
            json!({"place": {}, "unit": "celsius"}),
            "the input does not fit at place: missing field `city`",
        ),
        (
            json!({"place": {"city": 7}, "unit": "celsius"}),
            "the input does not fit at place.city: invalid type: integer `7`, expected a string",
        ),
        (
            json!({"place": {"city": "Oslo", "near": [{"name": "a"}, {"name": null}]}, "unit": "celsius"}),
            "the input does not fit at place.near[1].name: invalid type: null, expected a string",
        ),
        (
            json!({"place": place, "unit": "kelvin"}),
            "the input does not fit at unit: unknown variant `kelvin`, expected `celsius` or `fahrenheit`",
        ),
        (
            json!({"place": place, "unit": "celsius", "days": 256}),
            "the input does not fit at days: invalid value: integer `256`, expected u8",
        ),
        (
            json!({"place": place, "unit": "celsius", "day": 1}),
            "the input does not fit at day: unknown field `day`, expected one of `place`, `days`, `unit`",
        ),
        (
            json!([]),
            "the input does not fit: invalid length 0, expected struct Forecast with 3 elements",
        ),
    ] {
        for tool in weather() {
            let error = tool.call(input.clone(), context()).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[tokio::test]
async fn wrong_input_is_an_answer_of_bounded_size() {
    let store = MemoryStore::default();
    let [_, tool] = weather();
    let tool = ToolExecutor::new(Boxed(tool), Arc::new(store.clone())).unwrap();
    let flood = "x".repeat(100_000);
    let input = json!({"place": {"city": "Oslo"}, "unit": flood});
    let request = request(&store, input).await;

    let outcome = tool.process_event(&Event::created(&request)).await.unwrap();

    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    let told = answer(&store).await;
    assert_eq!(told["status"], "error");
    let error = told["error"].as_str().unwrap();
    assert!(error.starts_with("the input does not fit"), "{error}");
    assert!(error.contains("unit: "), "{error}");
    assert!(error.len() < 1_000, "{}", error.len());
}

/// A tool behind a pointer.
struct Boxed(Box<dyn Tool>);

#[universal_executor::async_trait]
impl Tool for Boxed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn description(&self) -> &str {
        self.0.description()
    }

    fn input_schema(&self) -> &Value {
        self.0.input_schema()
    }

    async fn call(&self, input: Value, context: ToolContext) -> Result<Value, BoxError> {
        self.0.call(input, context).await
    }
}

#[test]
fn pools_and_tools_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}

    shared::<(BlockingPool, BlockingTool)>();
}
