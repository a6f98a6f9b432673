//! Answers per second of one tenant with one, two, four and eight workers, on each store.
//!
//! A worker is a thread with its own current-thread tokio runtime, its own store handle and its own `Runtime`. Its one
//! executor responds to each trigger with one breadcrumb. All triggers are committed before the clock starts. All workers
//! start at the same moment, and the clock stops when the last worker has stopped.
//!
//! In each round every number of workers runs once, on fresh data. The order rotates from round to round, because machines
//! drift. The ratio to one worker is the median of the ratios within each round, with the lowest and the highest round in
//! brackets. Only ratios are comparable between runs and machines.
//!
//! PostgreSQL is measured if `POSTGRES_URL` names a server (`scripts/services` starts one), on loopback and behind a proxy
//! that simulates a network. The words `memory`, `sqlite`, `loopback` and `proxy` select stores, for example
//! `cargo bench --all-features --bench workers -- loopback`.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

#[path = "support/delay_proxy.rs"]
mod delay_proxy;
#[path = "support/figures.rs"]
mod figures;
#[path = "support/quick.rs"]
mod quick;
#[path = "support/rounds.rs"]
mod rounds;
mod worker_sides;

use rounds::Spread;
use std::collections::BTreeMap;
use std::time::Duration;
use worker_sides::memory::Memory;
use worker_sides::postgres::Postgres;
use worker_sides::sqlite::Sqlite;
use worker_sides::{SharedStore, answer};

const ROUNDS: usize = 7;
/// The delay of the proxy in each direction.
const DELAY: Duration = Duration::from_millis(2);

fn main() {
    if is_selected("memory") {
        measure("memory", "memory", &Memory, &[1, 2, 4], 20_000);
    }
    if is_selected("sqlite") {
        let sqlite = Sqlite::new();
        let name = "SQLite with Durability::Full";
        measure("sqlite", name, &sqlite, &[1, 2, 4, 8], 2_000);
    }
    let Ok(url) = std::env::var("POSTGRES_URL") else {
        println!("PostgreSQL is skipped: POSTGRES_URL is not set, see scripts/services");
        return;
    };
    if is_selected("loopback") {
        let near = Postgres::new(&url, "near");
        measure_postgres("loopback", "on loopback", &near, 10_000);
    }
    if is_selected("proxy") {
        let far = Postgres::behind_proxy(&url, "far", DELAY);
        measure_postgres("proxy", "behind a proxy, 2 ms each way", &far, 4_000);
    }
}

/// Returns `true` for all stores if the arguments select none.
fn is_selected(store: &str) -> bool {
    const STORES: [&str; 4] = ["memory", "sqlite", "loopback", "proxy"];
    let words: Vec<String> = std::env::args().collect();
    let selects = |store: &str| words.iter().any(|word| word == store);
    selects(store) || !STORES.into_iter().any(selects)
}

fn measure_postgres(key: &str, place: &str, postgres: &Postgres, triggers: usize) {
    let round_trip = postgres.round_trip();
    let name = format!("PostgreSQL {place} (round trip {round_trip:.2} ms)");
    measure(key, &name, postgres, &[1, 2, 4, 8], triggers);
}

/// Measures one store with each number of workers and prints a table.
///
/// `key` names the store in the figures for programs.
fn measure<S: SharedStore>(key: &str, name: &str, shared: &S, workers: &[usize], triggers: usize) {
    let is_quick = quick::is_quick();
    let (warm_up, rounds, triggers) = if is_quick {
        (0, 1, 20)
    } else {
        (1, quick::rounds(ROUNDS), triggers)
    };
    let counts = workers.iter().copied().filter(|n| !is_quick || *n <= 2);
    let counts: Vec<usize> = counts.collect();

    let mut rates = BTreeMap::<usize, Vec<f64>>::new();
    for round in 0..warm_up + rounds {
        let rotated = counts.iter().cycle().skip(round).take(counts.len());
        for workers in rotated.copied() {
            let time = answer(shared, triggers, workers);
            if round >= warm_up {
                let rate = triggers as f64 / time.as_secs_f64();
                rates.entry(workers).or_default().push(rate);
            }
        }
    }
    println!("{name}: {triggers} triggers, rounds: {rounds}");
    print(key, &rates);
}

/// Prints the median rate of each number of workers, and its ratio to the rate of one worker.
fn print(key: &str, rates: &BTreeMap<usize, Vec<f64>>) {
    println!("  workers  answers/s  ratio to 1 worker [lowest to highest round]");
    let one = rates.get(&1).unwrap();
    for (workers, rates) in rates {
        let rate = Spread::of(rates.clone()).unwrap().median;
        let ratio = Spread::of_ratios(rates, one).unwrap();
        println!("  {workers:>7}  {rate:>9.0}  {ratio}");
        figures::figure(&format!("workers/{key}/{workers}"), rate, "per_s");
    }
}
