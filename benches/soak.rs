//! Memory of a process with one worker while a million documents of many sizes are created, updated and deleted.
//!
//! The program counts all heap allocations. It fails if the heap was larger than the sum of the limits, or if the heap was more than
//! a tenth larger in the second half than in the first. All row limits are so small that they are reached soon. The memory of the
//! SQLite library is not on the counted heap, but the resident memory of the process includes it.
//!
//! PostgreSQL is included if `POSTGRES_URL` names a server (`scripts/services` starts one). The words `memory`, `sqlite` and
//! `postgres` select stores, and `EVENTS` sets the number of events:
//! `EVENTS=100000 cargo bench --all-features --bench soak -- sqlite`.
#![expect(
    clippy::unwrap_used,
    reason = "a program that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

#[path = "support/delay_proxy.rs"]
mod delay_proxy;
#[path = "growth_sides/limited.rs"]
mod limited;
#[path = "support/quick.rs"]
mod quick;
#[path = "support/rounds.rs"]
#[expect(dead_code, reason = "there is one round")]
mod rounds;
#[path = "support/selected.rs"]
mod selected;
#[path = "large_sides/size.rs"]
mod size;
mod soak_sides;
#[expect(dead_code, reason = "the executor of the other bench is not used")]
mod worker_sides;

use limited::{Limited, Rows};
use peak_alloc::PeakAlloc;
use selected::{is_selected, postgres_url};
use size::Size;
use soak_sides::{DELIVERIES, RUNS, Soaked, soak};
use std::env;
use std::time::Instant;
use universal_executor::Event;
use worker_sides::memory::Memory;
use worker_sides::postgres::Postgres;
use worker_sides::sqlite::Sqlite;
use worker_sides::{SharedStore, block_on};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Limits of each store.
const ROWS: Rows = Rows {
    breadcrumbs: 1_000_000,
    finished_runs: 10_000,
    events: 10_000,
    tombstones: 1_000,
};

/// Limit of a memory store for the bytes of events, and the same for tombstones.
const BYTES: usize = 8 << 20;

fn main() {
    println!(
        "store     events   events/s  documents  heap, first half  second half  limits  resident  store (MB)"
    );
    if is_selected("memory") {
        measure("memory", &Memory, in_memory());
    }
    if is_selected("sqlite") {
        measure("sqlite", &Sqlite::new(), 0);
    }
    if let Some(url) = postgres_url() {
        // A PostgreSQL store keeps its own events in memory.
        measure("postgres", &Postgres::new(&url, "soak"), 1 << 20);
    }
}

/// Maximum bytes of a [`MemoryStore`](universal_executor::MemoryStore) without its breadcrumbs.
const fn in_memory() -> usize {
    /// Bytes of one event, run or tombstone, including index entries.
    const ROW: usize = 1 << 10;
    2 * BYTES + (ROWS.events + ROWS.finished_runs + ROWS.tombstones) * ROW
}

/// Maximum bytes of a worker.
const fn in_worker() -> usize {
    /// Default of `Profile::context_bytes`, once as stored and once as passed to the executor.
    const CONTEXT: usize = 2 << 20;
    /// Bytes of the versions that were announced, are in flight or end, including index entries.
    const VERSIONS: usize = 2 * 65_536 * 128;
    DELIVERIES * Event::MAX_CONTEXT_BYTES + RUNS * CONTEXT + VERSIONS
}

/// Measures one store and prints a line. `store_bytes` is the part of the store in the memory of the process, in bytes.
fn measure<'a, S>(name: &str, shared: &'a S, store_bytes: usize)
where
    S: Size<<Limited<'a, S> as SharedStore>::Location>,
    Limited<'a, S>: SharedStore,
{
    let asked = env::var("EVENTS").ok();
    let asked = asked.and_then(|events| events.parse().ok());
    let events = match quick::is_quick() {
        true => 4_000,
        false => asked.unwrap_or(1_000_000),
    };
    let limited = Limited {
        shared,
        rows: ROWS,
        bytes: BYTES,
    };
    let location = limited.create();
    let start = Instant::now();
    let Soaked { documents, heap } = block_on(soak(&limited, &location, events));
    let rate = events as f64 / start.elapsed().as_secs_f64();
    let on_disk = shared.bytes(&location);
    limited.remove(location);

    // Documents are in memory as JSON text and as values.
    let in_store = on_disk.map_or(3 * documents, |_| 0);
    let limits = store_bytes + in_store + in_worker();
    let [first, second] = heap.map(megabytes);
    let [documents, limit] = [documents, limits].map(megabytes);
    let shown =
        |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| format!("{}", bytes >> 20));
    println!(
        "{name:8} {events:>7}  {rate:>9.0}  {documents:>9.1}  {first:>16.1}  {second:>11.1}  {limit:>6.0}  {:>8}  {:>10}",
        shown(size::of_process()),
        shown(on_disk),
    );
    assert!(first.max(second) <= limit, "the heap is within the limits");
    assert!(
        quick::is_quick() || second <= 1.1 * first,
        "the heap does not grow"
    );
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
