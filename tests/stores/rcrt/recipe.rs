//! Tests of statements in `docs/cookbook/on-an-rcrt-server.md` about a worker that follows the documented recipe.

use super::world::{HOUR, PATIENCE, SECOND, World};
use std::future::pending;
use tokio::time::{Instant, advance, sleep, timeout};
use universal_executor::error::Retry;
use universal_executor::runtime::RuntimeError;

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_open_the_stream_at_start_reports_a_retry_delay() {
    let mut world = World::new().await;
    world.ask("echo");
    world.server.ways(|ways| ways.status = 503);
    let worker = world.worker("echo");

    let error = worker.run_until(pending()).await.unwrap_err();

    assert!(matches!(error, RuntimeError::Source(_)), "{error:?}");
    let Retry::After(delay) = error.retry() else {
        panic!("{error:?} must allow a retry");
    };
    assert!(delay <= 60 * SECOND, "{delay:?}");
    assert_eq!(world.answered(), 0);
    world.server.ways(|ways| ways.status = 200);
    advance(delay).await;
    world.run_until_answered(&worker).await;
    world.judge();
}

#[tokio::test(start_paused = true)]
async fn a_worker_reconnects_by_itself_after_the_stream_was_closed() {
    let mut world = World::new().await;
    let worker = world.worker("echo");
    world.ask("echo");
    let answered = async {
        while world.answered() < 1 {
            sleep(SECOND).await;
        }
        world.server.ways(|ways| ways.status = 503);
        world.server.cut();
        sleep(HOUR).await;
        world.server.ways(|ways| ways.status = 200);
        sleep(5 * 60 * SECOND).await;
    };

    timeout(PATIENCE, worker.run_until(answered))
        .await
        .unwrap()
        .unwrap();

    assert!(world.server.seen("GET", "/events/stream").len() > 2);
    world.ask("echo");
    world.run_until_answered(&worker).await;
    world.judge();
}

#[tokio::test(start_paused = true)]
async fn a_trigger_whose_event_was_lost_is_answered_within_a_minute() {
    let mut world = World::new().await;
    let worker = world.worker("echo");
    world.ask("echo");
    let mut lost = String::new();
    let mut took = HOUR;
    let run = async {
        while world.answered() < 1 {
            sleep(SECOND).await;
        }
        sleep(10 * SECOND).await;
        world.server.ways(|ways| ways.is_deaf = true);
        let new = serde_json::json!({"schema_name": "question.v1", "context": {"for": "echo"}});
        lost = world.server.put(super::OWNER, &new);
        let began = Instant::now();
        while !world.is_answered(&lost) {
            sleep(SECOND / 10).await;
        }
        took = began.elapsed();
    };

    timeout(PATIENCE, worker.run_until(run))
        .await
        .unwrap()
        .unwrap();

    assert!(took <= 61 * SECOND, "{took:?}");
    world.asked.push(lost);
    world.judge();
}
