//! Catch-up on a slow server, and on a server that fails for some breadcrumbs. Time is paused, also on the server.

use super::server::{Server, token_of};
use super::world::{DAY, HOUR, SECOND, World};
use super::{OWNER, builder};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, advance, sleep, timeout};
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::store::Query;
use universal_executor::tool::json_tool;
use universal_executor::{BreadcrumbStore, RcrtStore, Runtime, Secret, Selector, Services};

/// Lets a worker catch up with 10,000 questions while new ones arrive. One question in `every` is for the worker.
async fn catches_up_on_a_slow_server(latency: Duration, every: usize) {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    advance(HOUR).await;
    for n in 0..10_000 {
        match n % every {
            0 => drop(world.ask("echo")),
            _ => world.ask_nobody(),
        }
    }
    world.server.lock().latency = latency;
    let worker = world.worker("echo");
    let mut slowest = Duration::ZERO;
    let mut asked = Vec::new();
    let run = async {
        // By now, the stream is open and the sweep runs.
        sleep(20 * SECOND).await;
        for _ in 0..20 {
            let new = json!({"schema_name": "question.v1", "context": {"for": "echo"}});
            let id = world.server.put(OWNER, &new);
            let began = Instant::now();
            while !world.is_answered(&id) {
                sleep(SECOND / 10).await;
                assert!(began.elapsed() < HOUR, "a new question is not answered");
            }
            slowest = slowest.max(began.elapsed());
            asked.push(id);
            sleep(3 * SECOND).await;
        }
        while world.answered() < world.asked.len() + asked.len() {
            sleep(SECOND).await;
        }
    };
    let began = Instant::now();
    let run = timeout(HOUR, worker.run_until(run)).await;
    run.unwrap().unwrap();
    let took = began.elapsed();

    world.asked.extend(asked);
    world.judge();
    assert!(slowest <= 10 * SECOND, "a new question took {slowest:?}");
    assert!(took < HOUR, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn all_is_answered_once_on_a_server_that_takes_200_ms_for_a_request() {
    catches_up_on_a_slow_server(SECOND / 5, 20).await;
}

#[tokio::test(start_paused = true)]
async fn all_is_answered_once_on_a_server_that_takes_a_second_for_a_request() {
    catches_up_on_a_slow_server(SECOND, 20).await;
}

#[tokio::test(start_paused = true)]
async fn rare_triggers_are_answered_on_a_server_that_takes_a_second_for_a_request() {
    catches_up_on_a_slow_server(SECOND, 500).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_needs_eight_seconds_for_a_request_is_read_to_the_end() {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    advance(DAY).await;
    for n in 0..2_000 {
        match n % 400 {
            7 => drop(world.ask("echo")),
            _ => world.ask_nobody(),
        }
    }
    world.server.lock().latency = 8 * SECOND;

    world.run_until_answered(&world.worker("echo")).await;

    world.judge();
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_that_can_never_be_read_hides_no_older_trigger() {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    for _ in 0..60 {
        advance(HOUR).await;
        world.ask("echo");
    }
    let broken = world.asked.remove(30);
    world.server.lock().broken.insert(broken.clone());
    let worker = world.worker("echo");
    let repaired = async {
        while world.answered() < 60 {
            sleep(SECOND).await;
        }
        assert!(!world.is_answered(&broken));
        world.server.lock().broken.clear();
        let began = Instant::now();
        while !world.is_answered(&broken) {
            sleep(SECOND).await;
        }
        assert!(began.elapsed() < 150 * SECOND, "{:?}", began.elapsed());
    };

    let run = timeout(HOUR, worker.run_until(repaired)).await;

    run.unwrap().unwrap();
    world.asked.push(broken);
    world.judge();
}

#[tokio::test(start_paused = true)]
async fn requests_without_an_answer_delay_the_catch_up_and_do_not_stop_it() {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    advance(DAY).await;
    for n in 0..3_000 {
        match n % 100 {
            7 => drop(world.ask("echo")),
            _ => world.ask_nobody(),
        }
    }
    world.server.lock().hang_every = 9;

    world.run_until_answered(&world.worker("echo")).await;

    world.judge();
}

#[tokio::test(start_paused = true)]
async fn definitions_are_loaded_from_a_server_that_takes_a_second_for_a_request() {
    let server = Server::start().await;
    server.ways(|ways| ways.ping_every = 5 * SECOND);
    let store = RcrtStore::builder(server.base_url(), OWNER)
        .token(Secret::new(token_of(OWNER)))
        .build()
        .unwrap();
    let names: Vec<String> = (0..60).map(|n| format!("tool{n}")).collect();
    let mut services = Services::new();
    for name in &names {
        let tool = json_tool(
            name,
            "Returns its input.",
            json!({}),
            |input, _| async move { Ok(input) },
        );
        services = services.tool(tool).unwrap();
        let triggers = json!([{"schema_name": "question.v1", "role": "trigger"}]);
        let context = json!({"name": name, "subscriptions": triggers});
        server.put(
            OWNER,
            &json!({"schema_name": "tool.v1", "context": context}),
        );
    }
    server.lock().latency = SECOND;
    let worker = Runtime::builder(store.events())
        .definitions(StoredDefinitions::new(&store, &services).tools(names))
        .build()
        .unwrap();
    let loaded = async {
        while worker.executors().len() < 60 {
            sleep(SECOND).await;
        }
    };

    let run = timeout(HOUR, worker.run_until(loaded)).await;

    run.unwrap().unwrap();
}

/// Searches before several rows, each time with a new store, so that no offset is known.
#[tokio::test]
async fn a_search_before_any_row_ends_and_finds_the_older_rows_that_match() {
    let server = Server::start().await;
    let mut rows = Vec::new();
    for n in 0..420_usize {
        // The distances between two matches are 1, 2, 3 and so on.
        let matches = (1..30).any(|k| k * (k + 1) / 2 == n);
        let new = json!({"schema_name": "note.v1", "context": {"matches": matches}});
        rows.push((server.put(OWNER, &new), matches));
    }
    rows.reverse();
    let wanted = Selector::schema("note.v1").matching("matches", "eq", true);
    let known = builder(&server, OWNER).build().unwrap();
    for at in (0..rows.len()).step_by(13) {
        for limit in [1, 50, 200] {
            let id = rows[at].0.parse().unwrap();
            let before = known.get(id).await.unwrap().order_key();
            let query = Query::new(wanted.clone()).limit(limit).before(before);
            let store = builder(&server, OWNER).build().unwrap();

            let found = timeout(20 * SECOND, store.search(&query)).await;

            let found = found.unwrap_or_else(|_| panic!("{at} {limit}: the search did not end"));
            let found = found.unwrap().into_iter().map(|one| one.id.to_string());
            let older = rows[at + 1..].iter().filter(|(_, matches)| *matches);
            let older = older.map(|(id, _)| id.clone()).take(limit);
            assert!(found.eq(older), "{at} {limit}");
        }
    }
}
