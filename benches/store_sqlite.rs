//! What a store in a file does in a second: breadcrumbs written by 1 and by 64 at once, and runs from claim to commit.
//!
//! Unlike the other benches this one measures the disk as much as the code: compare the lines of one run, and one run
//! with another on the same disk only.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

#[expect(
    dead_code,
    reason = "what is measured here has no other side to be compared with"
)]
mod support;

use futures::future::join_all;
use serde_json::json;
use std::time::Instant;
use universal_executor::store::{
    Claim, Commit, Durability, ExecutorLimits, RunEnd, RunFilter, RunLedger, RunRef, Write,
};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, SqliteStore};

fn main() {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let folder =
        std::env::temp_dir().join(format!("universal-executor-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for durability in [Durability::Full, Durability::Normal] {
        let file = folder.join(format!("{durability:?}.db"));
        tokio.block_on(measure(durability, &file));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

async fn measure(durability: Durability, file: &std::path::Path) {
    let store = SqliteStore::builder(file)
        .durability(durability)
        .open()
        .await
        .unwrap();
    let rounds = if support::is_quick() { 1 } else { 20 };
    for at_once in [1, 64] {
        let begun = Instant::now();
        let writers = (0..at_once).map(async |_| {
            for _ in 0..rounds * 10 {
                store.create(note()).await.unwrap();
            }
        });
        join_all(writers).await;
        report(
            &format!("{durability:?}: created by {at_once}"),
            rounds * 10 * at_once,
            begun,
        );
    }
    for at_once in [1, 64] {
        let runs = runs(&store, rounds * at_once).await;
        let begun = Instant::now();
        for _ in 0..rounds {
            store
                .claim_next(at_once, &[ExecutorLimits::new("agent", at_once)])
                .await
                .unwrap();
            let parked = store.runs(&RunFilter::parked()).await.unwrap();
            join_all(parked.iter().map(|row| answer(&store, &row.run))).await;
        }
        report(
            &format!("{durability:?}: claimed and answered {at_once} at once"),
            runs,
            begun,
        );
    }
    let query = universal_executor::store::Query::new(
        universal_executor::Selector::schema("note.v1").all_tags(["session:1"]),
    )
    .limit(20);
    let begun = Instant::now();
    for _ in 0..rounds * 20 {
        store.search(&query).await.unwrap();
    }
    report(
        &format!("{durability:?}: searches for 20 of a session"),
        rounds * 20,
        begun,
    );
    store.close().await;
}

fn note() -> NewBreadcrumb {
    let text = "what somebody said, at some length ".repeat(20);
    NewBreadcrumb::new("note.v1")
        .tag("session:1")
        .context(json!({"text": text}))
}

/// Puts so many runs into the ledger.
async fn runs(store: &SqliteStore, n: usize) -> usize {
    let triggers = join_all((0..n).map(|_| store.create(note()))).await;
    let runs = triggers
        .into_iter()
        .map(|trigger| RunRef::new("agent", trigger.unwrap().id, 1).into());
    store.enqueue(runs.collect()).await.unwrap();
    n
}

async fn answer(store: &SqliteStore, run: &RunRef) {
    if let Claim::Granted { lease, .. } = store.claim(run, None).await.unwrap() {
        let commit = Commit {
            writes: vec![Write::Create(note())],
            end: Some((lease, RunEnd::Done)),
        };
        store.commit(commit).await.unwrap();
    }
}

fn report(what: &str, n: usize, begun: Instant) {
    let each = begun.elapsed().as_secs_f64() / n as f64;
    println!("  {what:<48} {:>10.0} /s", 1.0 / each);
}
