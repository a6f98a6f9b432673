//! Requests with a key to the executors of a runtime.

use crate::runtime_order::harness::{count, from_beginning, until_ended};
use crate::support::{Probe, runs};
use serde_json::json;
use universal_executor::store::{NewRequest, Requested, RunRef, RunState};
use universal_executor::{MemoryStore, NewBreadcrumb, Response, RunLedger};

#[tokio::test(start_paused = true)]
async fn a_request_that_a_client_repeats_is_answered_once() {
    let store = MemoryStore::default();
    let answer = Response::create(NewBreadcrumb::new("answer.v1"));
    let prober = Probe::on("question.v1", "prober", &store)
        .executing(|_| async { Ok(json!({})) })
        .writing(answer);
    let runtime = from_beginning(&store).executor(prober).build().unwrap();
    let request = || NewRequest::new("prober", "order-7", NewBreadcrumb::new("question.v1"));

    let stop = async {
        let first = store.request(request()).await.unwrap();
        assert!(matches!(first, Requested::Created { .. }), "{first:?}");
        let again = store.request(request()).await.unwrap();
        until_ended(&store, 1).await;
        let later = store.request(request()).await.unwrap();
        for existing in [again, later] {
            assert!(matches!(existing, Requested::Existing { .. }));
            assert_eq!(existing.trigger(), first.trigger());
        }
        until_ended(&store, 1).await;
        let (id, version) = first.trigger();
        let rows = runs(&store).await;
        let row = &rows[0];
        assert_eq!(row.run, RunRef::new("prober", id, version));
        assert_eq!(row.state, RunState::Done);
    };
    let report = runtime.run_until(stop).await.unwrap();

    assert_eq!(report.responded, 1);
    assert_eq!(count(&store, "answer.v1").await, 1);
}
