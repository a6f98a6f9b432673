//! Answers per second in a large store, against a small one, on each store.
//!
//! The large store has a million breadcrumbs with as many finished runs, and its limits retain all of them. The small store has a
//! thousand and is new in each round. In each round both stores answer the same requests, one store after the other. The executor
//! fetches the five newest breadcrumbs with a tag that one of a hundred breadcrumbs has. The program prints the ratio of the rates,
//! and the bytes of one finished run in the store, without its trigger and its event.
//!
//! PostgreSQL is included if `POSTGRES_URL` names a server (`scripts/services` starts one). The words `memory`, `sqlite` and
//! `postgres` select stores, `RUNS` sets the number of runs in the large store, and `BENCH_ROUNDS` the number of rounds:
//! `RUNS=100000 cargo bench --all-features --bench growth -- sqlite`.
#![expect(
    clippy::unwrap_used,
    reason = "a program that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

#[path = "support/delay_proxy.rs"]
mod delay_proxy;
mod growth_sides;
#[path = "support/quick.rs"]
mod quick;
#[path = "support/rounds.rs"]
mod rounds;
#[path = "support/selected.rs"]
mod selected;
#[path = "large_sides/size.rs"]
#[expect(dead_code, reason = "other benches measure the process")]
mod size;
#[expect(dead_code, reason = "the executor of the other bench is not used")]
mod worker_sides;

use growth_sides::limited::{Limited, Rows};
use growth_sides::{answer, fill, post};
use peak_alloc::PeakAlloc;
use rounds::Spread;
use selected::{is_selected, postgres_url};
use size::Size;
use std::env;
use worker_sides::memory::Memory;
use worker_sides::postgres::Postgres;
use worker_sides::sqlite::Sqlite;
use worker_sides::{SharedStore, block_on};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Number of runs in the small store.
const SMALL: usize = 1_000;

fn main() {
    println!(
        "store     runs     large/s  small/s  large/small              bytes per finished run"
    );
    let asked = env::var("RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs = match quick::is_quick() {
        true => 3_000,
        false => asked.unwrap_or(1_000_000),
    };
    if is_selected("memory") {
        measure("memory", &Memory, runs, 20_000);
    }
    if is_selected("sqlite") {
        measure("sqlite", &Sqlite::new(), runs, 5_000);
    }
    if let Some(url) = postgres_url() {
        measure("postgres", &Postgres::new(&url, "growth"), runs, 3_000);
    }
}

/// Measures one store and prints a line.
fn measure<'a, S: Size<<Limited<'a, S> as SharedStore>::Location>>(
    name: &str,
    shared: &'a S,
    runs: usize,
    answers: usize,
) where
    Limited<'a, S>: SharedStore,
{
    let room = 2 * runs + 1_000_000;
    let limited = Limited {
        shared,
        rows: Rows {
            breadcrumbs: room,
            finished_runs: room,
            events: room,
            tombstones: 10_000,
        },
        bytes: 64 << 20,
    };
    let answers = if quick::is_quick() { 100 } else { answers };
    let (large, bytes) = filled(&limited, runs);
    let (mut small_rates, mut large_rates) = (Vec::new(), Vec::new());
    for round in 0..quick::rounds(if quick::is_quick() { 1 } else { 7 }) {
        let small = limited.create();
        block_on(fill(&limited, &small, SMALL));
        let rate = |location| {
            let time = block_on(answer(&limited, location, answers));
            answers as f64 / time.as_secs_f64()
        };
        // The order of the two stores alternates between rounds.
        if round % 2 == 0 {
            small_rates.push(rate(&small));
            large_rates.push(rate(&large));
        } else {
            large_rates.push(rate(&large));
            small_rates.push(rate(&small));
        }
        limited.remove(small);
    }
    limited.remove(large);
    let ratio = Spread::of_ratios(&large_rates, &small_rates).unwrap();
    let median = |rates: Vec<f64>| Spread::of(rates).unwrap().median;
    let (small, large) = (median(small_rates), median(large_rates));
    println!("{name:8}  {runs:>7}  {large:>7.0}  {small:>7.0}  {ratio:<23}  {bytes:.0}");
}

/// Returns a location with `runs` finished runs, and the bytes of one run without its trigger and event.
fn filled<'a, S>(
    limited: &Limited<'a, S>,
    runs: usize,
) -> (<Limited<'a, S> as SharedStore>::Location, f64)
where
    S: Size<<Limited<'a, S> as SharedStore>::Location>,
    Limited<'a, S>: SharedStore,
{
    let bytes = |location: &_| match limited.shared.bytes(location) {
        Some(bytes) => bytes as f64,
        None => ALLOCATOR.current_usage() as f64,
    };
    let requests = (runs / 10).max(SMALL);
    let unanswered = limited.create();
    let before = bytes(&unanswered);
    block_on(post(limited, &unanswered, requests));
    let per_request = (bytes(&unanswered) - before) / requests as f64;
    limited.remove(unanswered);

    let large = limited.create();
    let before = bytes(&large);
    block_on(fill(limited, &large, runs));
    let per_run = (bytes(&large) - before) / runs as f64;
    (large, per_run - per_request)
}
