//! A runtime on a file, stopped and started again.

use crate::sqlite::{Folder, quick};
use futures::StreamExt as _;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::source::StartAt;
use universal_executor::store::{RunFilter, RunLedger, RunState};
use universal_executor::tool::{ToolExecutor, json_tool};
use universal_executor::{
    BreadcrumbStoreExt, EventSource as _, NewBreadcrumb, Runtime, SqliteStore,
};

async fn request(store: &SqliteStore, number: usize) {
    let context =
        json!({"tool": "echo", "requestId": format!("r-{number}"), "input": {"n": number}});
    store
        .create(NewBreadcrumb::new("tool.request.v1").context(context))
        .await
        .unwrap();
}

/// Runs a tool until so many answers are there.
async fn work(store: &SqliteStore, answers: usize) {
    let echo = json_tool("echo", "Says it again.", json!({}), |input, _| async move {
        Ok(input)
    });
    let echo = ToolExecutor::new(echo, Arc::new(store.clone()))
        .unwrap()
        .idempotent();
    let runtime = Runtime::builder(store.events_of("tools"))
        .executor(echo)
        .build()
        .unwrap();
    let mut events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    let answered = async {
        let mut found = 0;
        while found < answers {
            let event = events.next().await.unwrap().unwrap().event;
            found += usize::from(event.schema_name.as_deref() == Some("tool.response.v1"));
        }
    };
    let answered = tokio::time::timeout(Duration::from_secs(30), answered);
    let report = runtime
        .run_until(async { answered.await.unwrap() })
        .await
        .unwrap();
    assert_eq!(report.errors, 0, "{report:?}");
}

#[tokio::test]
async fn what_is_asked_before_and_after_a_restart_is_answered_once() {
    let folder = Folder::new();
    for start in 0..3 {
        let store = quick(&folder.file()).open().await.unwrap();
        // From its first subscription on the consumer is told of everything.
        drop(
            store
                .events_of("tools")
                .subscribe(StartAt::Now)
                .await
                .unwrap(),
        );
        for number in 0..10 {
            request(&store, 10 * start + number).await;
        }
        let asking = async {
            for number in 0..10 {
                request(&store, 100 + 10 * start + number).await;
            }
        };
        futures::future::join(work(&store, 20 + 20 * start), asking).await;
        store.close().await;
    }

    let store = quick(&folder.file()).open().await.unwrap();
    let rows = store.runs(&RunFilter::all()).await.unwrap();

    assert_eq!(
        store.recent("tool.response.v1", 1_000).await.unwrap().len(),
        60
    );
    assert_eq!(rows.len(), 60);
    assert!(
        rows.iter().all(|row| row.state == RunState::Done),
        "{rows:?}"
    );
}
