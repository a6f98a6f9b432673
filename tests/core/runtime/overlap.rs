//! The minute before the saved position, which each check of the store reads again.

use crate::runtime::events::Warped;
use crate::runtime::{SECOND, until};
use crate::support::{Call, Do, Probe, Shim, put};
use futures::FutureExt as _;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use universal_executor::{BreadcrumbStore as _, MemoryStore, Runtime};

/// Creates a store that does not list the question with number 0 until a flag is set.
fn late(store: &MemoryStore, is_visible: &Arc<AtomicBool>) -> Shim {
    let (inner, is_visible) = (store.clone(), Arc::clone(is_visible));
    Shim::new(store, move |call| match call {
        Call::Search(query) if !is_visible.load(Ordering::SeqCst) => {
            let found = inner.search(query).now_or_never().unwrap();
            let mut found = found.unwrap();
            found.retain(|one| one.context.get("n") != Some(&json!(0)));
            Do::Answer(found)
        }
        _ => Do::Pass,
    })
}

#[tokio::test(start_paused = true)]
async fn a_trigger_that_becomes_visible_later_than_a_newer_one_is_found() {
    let (store, is_visible) = (MemoryStore::default(), Arc::default());
    let late = late(&store, &is_visible);
    let answers = Probe::on("question.v1", "answers", &late).shared();
    let runtime = Runtime::builder(Warped::silent(&store))
        .executor(Arc::clone(&answers))
        .reconcile_every(10 * SECOND)
        .build()
        .unwrap();
    let asked = async {
        for n in 0..3 {
            put(&store, "question.v1", json!({ "n": n })).await;
            tokio::time::sleep(SECOND).await;
        }
        until(&store, "answer.v1", 2).await;
        // A check also reads the answers, which are newer.
        tokio::time::sleep(20 * SECOND).await;
        is_visible.store(true, Ordering::SeqCst);
        until(&store, "answer.v1", 3).await;
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!((report.found_by_sweep, answers.executed()), (3, 3));
}
