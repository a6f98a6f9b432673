//! The memory store and the PostgreSQL store execute the same random steps and must return the same results, orders and errors.

#[path = "../../stores/sqlite/alike/query.rs"]
mod query;
#[path = "../../stores/sqlite/alike/side.rs"]
mod side;
#[path = "../../stores/sqlite/alike/step.rs"]
mod step;

use crate::postgres::server::Namespaces;
use proptest::collection::vec;
use proptest::prelude::*;
use side::Side;
use step::Step;
use tokio::runtime::{Builder, Runtime};
use universal_executor::MemoryStore;
use universal_executor::store::{MemoryLimits, PostgresLimits};

/// Returns limits that random steps reach. The PostgreSQL store keeps limits below 16 exactly, and larger ones only in batches.
fn limits() -> (MemoryLimits, PostgresLimits) {
    let (mut memory, mut server) = (MemoryLimits::default(), PostgresLimits::default());
    (memory.breadcrumbs, server.breadcrumbs) = (8, 8);
    (memory.breadcrumb_bytes, server.breadcrumb_bytes) = (step::MAX_BYTES, step::MAX_BYTES);
    (memory.open_runs, server.open_runs) = (5, 5);
    (memory.finished_runs, server.finished_runs) = (4, 4);
    (memory.events, server.events) = (15, 15);
    (memory.tombstones, server.tombstones) = (3, 3);
    (memory, server)
}

/// Returns a tokio runtime whose clock advances only on request, and one that can wait for a server.
fn runtimes() -> (Runtime, Runtime) {
    let paused = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let waits = Builder::new_current_thread().enable_all().build();
    (paused.unwrap(), waits.unwrap())
}

/// Executes the steps on both stores. Fails at the first difference.
fn walk(steps: &[Step]) -> Result<(), TestCaseError> {
    let (limits, of_server) = limits();
    let namespaces = Namespaces::default();
    let (here, there) = runtimes();
    let memory = here.block_on(async { MemoryStore::with_limits(limits) });
    let server = there
        .block_on(namespaces.builder().limits(of_server).connect())
        .unwrap();
    server.hold_clock();
    let mut one = here.block_on(Side::new(memory.clone()));
    let mut other = there.block_on(Side::new(server.clone()));
    for (index, step) in steps.iter().enumerate() {
        if let Step::Pass(time) = step {
            here.block_on(tokio::time::advance(*time));
            server.advance_clock(*time);
        }
        let results = (
            here.block_on(one.run_step(step)),
            there.block_on(other.run_step(step)),
        );
        prop_assert_eq!(results.1, results.0, "step {}: {:?}", index, step);
        let states = (
            here.block_on(one.readable_state()),
            there.block_on(other.readable_state()),
        );
        prop_assert_eq!(
            states.1,
            states.0,
            "what is there after step {}: {:?}",
            index,
            step
        );
    }
    // Events come last, because waiting for events advances the paused clock.
    let results = here.block_on(one.events(Box::new(memory.events())));
    let of_server = there.block_on(other.events(Box::new(server.events())));
    prop_assert_eq!(of_server.len(), results.len(), "events");
    for (event, wanted) in of_server.iter().zip(&results) {
        prop_assert_eq!(other.envelope(event), one.envelope(wanted));
        // The PostgreSQL store takes an event's context from the breadcrumb, as long as the breadcrumb has the event's version.
        let is_alike = other.context(event) == one.context(wanted);
        let is_past = event.context.is_none() && there.block_on(other.is_past(event));
        prop_assert!(is_alike || is_past, "{:?} and {:?}", event, wanted);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn both_stores_answer_any_sequence_of_calls_in_the_same_way(steps in vec(step::any_step(), 1..60)) {
        walk(&steps)?;
    }
}
