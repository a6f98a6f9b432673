//! Large numbers of suspended runs on each store: all of them are answered, in random order, while new triggers arrive.
//!
//! One worker suspends all runs. A second worker starts after that, and receives their answers. Half of the runs wait for a tag, and
//! the other half for a value in the context. The program prints the rates, the memory of the second worker per suspended run, and
//! the size of a suspended run in the store.
//!
//! PostgreSQL is included if `POSTGRES_URL` names a server (`scripts/services` starts one). The words `memory`, `sqlite` and
//! `postgres` select stores, and `RUNS` sets the number of runs:
//! `RUNS=100000 cargo bench --all-features --bench large -- sqlite`.
#![expect(
    clippy::unwrap_used,
    reason = "a program that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

#[path = "support/delay_proxy.rs"]
mod delay_proxy;
mod large_sides;
#[path = "support/quick.rs"]
mod quick;
#[path = "support/rounds.rs"]
#[expect(dead_code, reason = "there is one round")]
mod rounds;
#[path = "support/selected.rs"]
mod selected;
#[expect(dead_code, reason = "the executor of the other bench is not used")]
mod worker_sides;

use large_sides::size::Size;
use large_sides::{Measured, measure};
use selected::{is_selected, postgres_url};
use std::env;
use worker_sides::SharedStore;
use worker_sides::memory::Memory;
use worker_sides::postgres::Postgres;
use worker_sides::sqlite::Sqlite;

fn main() {
    println!(
        "store     runs     suspended/s  answered/s  bytes per run in the worker  in the store"
    );
    if is_selected("memory") {
        print("memory", &Memory, 300_000);
    }
    if is_selected("sqlite") {
        print("sqlite", &Sqlite::new(), 1_000_000);
    }
    if let Some(url) = postgres_url() {
        print("postgres", &Postgres::new(&url, "large"), 1_000_000);
    }
}

/// Measures one store and prints a line.
fn print<S: SharedStore + Size<S::Location>>(name: &str, shared: &S, runs: usize) {
    let asked = env::var("RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs = if quick::is_quick() {
        1_500
    } else {
        asked.unwrap_or(runs)
    };
    let Measured {
        suspended,
        answered,
        worker_bytes,
        store_bytes,
    } = measure(shared, runs);
    let rate = |time: std::time::Duration| runs as f64 / time.as_secs_f64();
    let per_run = |bytes: Option<u64>| match bytes {
        Some(bytes) => format!("{:.0}", bytes as f64 / runs as f64),
        None => "-".to_owned(),
    };
    println!(
        "{name:8}  {runs:>7}  {:>11.0}  {:>10.0}  {:>27}  {:>12}",
        rate(suspended),
        rate(answered),
        per_run(worker_bytes),
        per_run(store_bytes),
    );
}
