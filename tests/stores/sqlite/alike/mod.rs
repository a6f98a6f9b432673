//! The memory store and the SQLite store execute the same random steps and must return the same results, orders and errors.

mod pinned;
mod query;
mod side;
mod step;

use crate::sqlite::{Folder, quick};
use proptest::collection::vec;
use proptest::prelude::*;
use side::Side;
use step::Step;
use universal_executor::MemoryStore;
use universal_executor::store::{MemoryLimits, SqliteLimits};

/// Returns limits that random steps reach. The SQLite store keeps limits below 16 exactly, and larger ones only in batches.
fn limits() -> (MemoryLimits, SqliteLimits) {
    let (mut memory, mut file) = (MemoryLimits::default(), SqliteLimits::default());
    (memory.breadcrumbs, file.breadcrumbs) = (8, 8);
    (memory.breadcrumb_bytes, file.breadcrumb_bytes) = (step::MAX_BYTES, step::MAX_BYTES);
    (memory.open_runs, file.open_runs) = (5, 5);
    (memory.finished_runs, file.finished_runs) = (4, 4);
    (memory.events, file.events) = (15, 15);
    (memory.tombstones, file.tombstones) = (3, 3);
    (memory, file)
}

/// Executes the steps on both stores. Fails at the first difference.
async fn walk(steps: &[Step]) -> Result<(), TestCaseError> {
    let (limits, of_file) = limits();
    let folder = Folder::new();
    let file = quick(&folder.file()).limits(of_file).open().await.unwrap();
    file.hold_clock();
    tokio::time::pause();
    let memory = MemoryStore::with_limits(limits);
    let (mut one, mut other) = (
        Side::new(memory.clone()).await,
        Side::new(file.clone()).await,
    );
    for (index, step) in steps.iter().enumerate() {
        if let Step::Pass(time) = step {
            tokio::time::advance(*time).await;
            file.advance_clock(*time);
        }
        let results = (one.run_step(step).await, other.run_step(step).await);
        prop_assert_eq!(results.1, results.0, "step {}: {:?}", index, step);
        let states = (one.readable_state().await, other.readable_state().await);
        prop_assert_eq!(
            states.1,
            states.0,
            "what is there after step {}: {:?}",
            index,
            step
        );
    }
    // Events come last, because waiting for events advances the paused clock.
    let results = one.events(Box::new(memory.events())).await;
    let of_file = other.events(Box::new(file.events())).await;
    prop_assert_eq!(of_file.len(), results.len(), "events");
    for (event, wanted) in of_file.iter().zip(&results) {
        prop_assert_eq!(other.envelope(event), one.envelope(wanted));
        // The SQLite store takes an event's context from the breadcrumb, as long as the breadcrumb has the event's version.
        let is_alike = other.context(event) == one.context(wanted);
        let is_past = event.context.is_none() && other.is_past(event).await;
        prop_assert!(is_alike || is_past, "{:?} and {:?}", event, wanted);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_stores_answer_any_sequence_of_calls_in_the_same_way(steps in vec(step::any_step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(walk(&steps))?;
    }
}
