//! Limits of concurrent tool calls, and of the parts of a request that errors repeat.

use crate::support::{all, event_of, put};
use crate::tools::{SECOND, call, count, counting, error_of, only, registry, requested};
use futures::poll;
use serde_json::json;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use tokio::task::yield_now;
use tokio::time::{advance, sleep};
use universal_executor::error::Retry;
use universal_executor::machine::Answer;
use universal_executor::tool::{
    BlockingPool, JsonTool, ToolDispatcher, ToolExecutor, ToolRegistry, json_tool_blocking,
};
use universal_executor::{MemoryStore, UniversalExecutor};

/// Returns a tool that executes one call at a time and takes six of its ten seconds per call.
fn slow(careful: bool) -> (JsonTool, Arc<AtomicUsize>) {
    let (tool, calls) = counting("slow", |_| async {
        sleep(6 * SECOND).await;
        Ok(json!("done"))
    });
    let tool = tool.max_concurrent(NonZeroUsize::MIN).timeout(10 * SECOND);
    match careful {
        true => (tool.at_most_once(), calls),
        false => (tool, calls),
    }
}

/// Returns both kinds of executors that serve requests for a tool.
fn servers(store: &MemoryStore, tool: fn() -> JsonTool) -> [Box<dyn UniversalExecutor>; 2] {
    let one = ToolExecutor::new(tool(), Arc::new(store.clone())).unwrap();
    let tools = registry([tool()]);
    let many = ToolDispatcher::new("tools", tools, Arc::new(store.clone())).unwrap();
    [Box::new(one), Box::new(many)]
}

#[tokio::test(start_paused = true)]
async fn a_request_that_finds_the_tool_busy_is_released_and_retried() {
    for server in 0..2 {
        let store = MemoryStore::default();
        let server = &servers(&store, || slow(false).0)[server];
        let first = event_of(&*requested(&store, "slow").await);
        let second = event_of(&*requested(&store, "slow").await);

        let (served, given_back) =
            tokio::join!(server.process_event(&first), server.process_event(&second));
        advance(5 * SECOND).await;
        server.process_event(&second).await.unwrap();

        served.unwrap();
        let given_back = given_back.unwrap_err();
        assert_eq!(given_back.retry(), Retry::After(5 * SECOND));
        let answers = all(&store, "tool.response.v1").await;
        assert_eq!(answers.len(), 2);
        for answer in answers {
            assert_eq!(answer.context["status"], "success", "{answer:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_may_be_executed_only_once_is_answered_when_it_does_not_get_its_turn() {
    for server in 0..2 {
        let store = MemoryStore::default();
        let server = &servers(&store, || slow(true).0)[server];
        let first = event_of(&*requested(&store, "slow").await);
        let second = event_of(&*requested(&store, "slow").await);

        let (one, other) =
            tokio::join!(server.process_event(&first), server.process_event(&second));

        one.unwrap();
        other.unwrap();
        let answers = all(&store, "tool.response.v1").await;
        let mut codes: Vec<_> = answers
            .iter()
            .map(|answer| answer.context.text("code"))
            .collect();
        codes.sort();
        assert_eq!(codes, [None, Some("busy")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocking_call_occupies_its_slot_until_it_returns_even_after_its_timeout() {
    let (release, released) = mpsc::channel();
    let (released, calls) = (Mutex::new(released), Arc::new(AtomicUsize::new(0)));
    let (counted, threads) = (
        Arc::clone(&calls),
        BlockingPool::new(NonZeroUsize::new(4).unwrap()),
    );
    let tool = json_tool_blocking("probe", "", json!({}), move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        released.lock().unwrap().recv()?;
        Ok(json!("done"))
    });
    let tool = tool.on(&threads).max_concurrent(NonZeroUsize::MIN);
    let tools = ToolRegistry::default()
        .with(tool.timeout(2 * SECOND))
        .unwrap();

    let late = call(&tools, "probe", json!({})).await;
    let meanwhile = call(&tools, "probe", json!({})).await;

    assert_eq!(error_of(late).0, "timeout");
    assert_eq!(error_of(meanwhile).0, "busy");

    release.send(()).unwrap();
    while threads.busy() > 0 {
        yield_now().await;
    }
    release.send(()).unwrap();
    let mut after = pin!(call(&tools, "probe", json!({})));
    // An idle tokio runtime would advance the clock while the thread works.
    let after = loop {
        match poll!(after.as_mut()) {
            Poll::Ready(after) => break after,
            Poll::Pending => yield_now().await,
        }
    };

    assert_eq!(after, Answer::success(json!("done")).into());
    assert_eq!(count(&calls), 2);
}

#[tokio::test]
async fn a_request_name_or_id_that_is_too_long_is_not_echoed() {
    for (bytes, is_said) in [(512, true), (513, false), (400 << 10, false)] {
        let store = MemoryStore::default();
        let [server, _] = servers(&store, || crate::tools::echo("probe").idempotent());
        let request = json!({
            "tool": "probe", "input": 1, "requestId": "i".repeat(bytes), "requestedBy": "n".repeat(bytes),
        });
        let request = put(&store, "tool.request.v1", request).await;

        server.process_event(&event_of(&request)).await.unwrap();

        let answer = only(&store, "tool.response.v1").await;
        let id = answer.context.text("request_id").unwrap();
        match is_said {
            true => assert_eq!(id, "i".repeat(bytes)),
            false => assert_eq!(id, request.id.to_string()),
        }
        assert_eq!(answer.context.get("requestedBy").is_some(), is_said);
        assert_eq!(
            answer.tags.contains(&format!("request:{}", request.id)),
            !is_said
        );
    }
}
