//! Answers of a worker after a downtime. Time is paused, also on the server.

use super::world::{DAY, HOUR, SECOND, World};
use crate::log::Log;
use std::time::Duration;
use tokio::time::{advance, sleep, timeout};
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;

/// Asks 500 questions while no worker runs for some time, and expects that the next worker answers each question once.
async fn answers_after(downtime: Duration) {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    for _ in 0..500 {
        advance(downtime / 500).await;
        world.ask("echo");
    }

    world.run_until_answered(&world.worker("echo")).await;

    world.judge();
}

#[tokio::test(start_paused = true)]
async fn all_is_answered_once_after_a_minute_without_a_worker() {
    answers_after(60 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn all_is_answered_once_after_an_hour_without_a_worker() {
    answers_after(HOUR).await;
}

#[tokio::test(start_paused = true)]
async fn all_is_answered_once_after_a_week_without_a_worker() {
    answers_after(7 * DAY).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_killed_again_and_again_while_it_catches_up_misses_nothing() {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    world.server.lock().latency = SECOND / 5;
    for _ in 0..400 {
        advance(DAY / 100).await;
        world.ask("echo");
    }
    let mut answered = Vec::new();
    for _ in 0..6 {
        // The worker is killed in the middle of a page or between two pages, and then has another downtime.
        let worker = world.worker("echo");
        drop(timeout(5 * SECOND, worker.run_until(std::future::pending())).await);
        answered.push(world.answered());
        advance(HOUR).await;
        world.ask("echo");
    }
    assert!(
        answered.iter().all(|answered| *answered < 400),
        "{answered:?}"
    );

    world.run_until_answered(&world.worker("echo")).await;

    let answers = world.answers();
    assert_eq!(answers.len(), world.asked.len());
}

#[tokio::test(start_paused = true)]
async fn workers_with_different_executors_on_one_ledger_miss_nothing_of_each_other() {
    let mut world = World::new().await;
    world.ask("one");
    world.run_until_answered(&world.worker("one")).await;
    world.ask("two");
    world.run_until_answered(&world.worker("two")).await;
    for _ in 0..20 {
        advance(DAY / 20).await;
        world.ask("one");
    }
    // The other worker reads all questions meanwhile.
    let other = world.worker("two");
    let read = other.run_until(sleep(300 * SECOND));
    read.await.unwrap();

    world.run_until_answered(&world.worker("one")).await;

    world.judge();
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_catch_up_is_logged_with_the_number_of_breadcrumbs_and_the_time() {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    for _ in 0..150 {
        advance(HOUR).await;
        world.ask("echo");
    }
    // One sweep reads only a part of the breadcrumbs.
    world.server.lock().latency = 4 * SECOND;
    let (log, _guard) = Log::capture(Level::INFO, FmtSpan::NONE);
    let worker = world.worker("echo");
    let later_sweeps = async {
        until_caught_up(&log).await;
        sleep(300 * SECOND).await;
    };

    let run = timeout(HOUR, worker.run_until(later_sweeps)).await;

    run.unwrap().unwrap();
    let text = log.text();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("caught up"))
        .collect();
    let [line] = *lines else {
        panic!("{text}");
    };
    let began = text.lines().find(|line| line.contains("catching up with"));
    let began = began.unwrap_or_else(|| panic!("{text}"));
    assert!(began.contains("since the saved position"), "{began}");
    assert!(
        began.contains(" since=2") && began.contains("Z until=2"),
        "{began}"
    );
    assert!(!began.contains("look_back_ms"), "{began}");
    let (breadcrumbs, elapsed) = (field(line, "breadcrumbs"), field(line, "elapsed_ms"));
    assert!(line.contains("INFO"), "{line}");
    assert!((150..160).contains(&breadcrumbs), "{line}");
    assert!((60_000..600_000).contains(&elapsed), "{line}");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_catch_up_is_not_logged_before_a_failing_breadcrumb_can_be_read() {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    for _ in 0..10 {
        advance(HOUR).await;
        let id = world.ask("echo");
        world.server.lock().broken.insert(id);
    }
    world.ask("echo");
    let (log, _guard) = Log::capture(Level::INFO, FmtSpan::NONE);
    let worker = world.worker("echo");
    let repaired = async {
        sleep(300 * SECOND).await;
        assert_eq!(
            (log.text().contains("caught up with"), world.answered()),
            (false, 2)
        );
        world.server.lock().broken.clear();
        until_caught_up(&log).await;
    };

    let run = timeout(HOUR, worker.run_until(repaired)).await;

    run.unwrap().unwrap();
    world.run_until_answered(&worker).await;
    world.judge();
}

/// Waits for the log line at the end of a catch-up.
async fn until_caught_up(log: &Log) {
    while !log.text().contains("caught up with") {
        sleep(SECOND).await;
    }
}

/// Returns the value of a numeric field in a log line.
fn field(line: &str, name: &str) -> u64 {
    let (_, value) = line.split_once(&format!("{name}=")).unwrap();
    value.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_position_checks_an_hour() {
    let mut world = World::new().await;
    let old = world.ask("echo");
    advance(2 * HOUR).await;
    world.asked.clear();
    world.ask("echo");
    advance(HOUR / 2).await;
    world.ask("echo");

    world.run_until_answered(&world.worker("echo")).await;

    world.judge();
    assert!(!world.answers().contains_key(&old));
}

#[tokio::test(start_paused = true)]
async fn a_new_executor_beside_an_older_one_does_not_answer_earlier_questions() {
    let mut world = World::new().await;
    world.ask("one");
    world.run_until_answered(&world.worker("one")).await;
    let old = world.ask("two");
    world.asked.pop();
    world.ask("one");
    advance(DAY).await;
    world.ask("two");
    let both = world.worker_of(&["one", "two"]);

    world.run_until_answered(&both).await;

    world.judge();
    assert!(!world.answers().contains_key(&old));
}
