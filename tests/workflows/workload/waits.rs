//! Flows that wait without a run in a ledger: the store's clock counts, and not the machine's clock.

use super::*;
use futures::StreamExt as _;
use std::time::Duration;
use universal_executor::BreadcrumbStoreExt as _;

/// Returns the last event of a run with this context.
async fn end_of(
    definition: &FlowDefinition,
    setup: &Setup,
    context: ExecutionContext,
) -> WorkloadEventKind {
    let mut workload = definition
        .instantiate(&setup.services, &setup.store)
        .unwrap();
    let events = workload.run(
        RunCx::new("run-1", context),
        Some(WorkloadMessage::from("go")),
    );
    let events: Vec<WorkloadEvent> = events.collect().await;
    workload.close().await.unwrap();
    events.last().unwrap().kind.clone()
}

#[tokio::test(start_paused = true)]
async fn a_wait_outside_a_run_uses_the_clock_of_the_store() {
    let long_ago = Timestamp::from_micros(0);
    let far_off = Timestamp::from_micros(i64::MAX / 2);
    for message_at in [long_ago, far_off] {
        let store = MemoryStore::default();
        let setup = setup(&says([]), &store);
        let definition = flow(json!({"flows": {"main": {"steps": [
            {"emit": {"schema_name": "ping.v1"}},
            {"wait_for": {"schema_name": "pong.v1"}, "timeout_seconds": 600},
        ]}}}));
        let pong = |number: u32| NewBreadcrumb::new("pong.v1").context(json!({"n": number}));
        // The store's clock is ahead by more than the timeout of the wait.
        tokio::time::advance(Duration::from_secs(3_600)).await;
        store.create(pong(1)).await.unwrap();
        let message = NewBreadcrumb::new("user.message.v1");
        let message = message.first_version(BreadcrumbId::NIL, message_at);
        let context = || ExecutionContext::for_trigger(message.clone());

        let waits = end_of(&definition, &setup, context()).await;
        let WorkloadEventKind::Suspended { state, wake } = waits else {
            panic!("{waits:?}");
        };
        let since = wake.since.unwrap();
        let answer = store.create(pong(2)).await.unwrap();
        assert!(since < answer.updated_at);
        let end = end_of(&definition, &setup, context().with_resumed(state, None)).await;

        let output = json!({"n": 2}).into();
        assert_eq!(end, WorkloadEventKind::Final { output });
    }
}
