//! A distant server, whose cost is the number of round trips.

use crate::postgres::proxy::Proxy;
use crate::postgres::server::{Namespaces, store_in};
use serde_json::Value;
use std::time::{Duration, Instant};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, ExecutionContext, NewBreadcrumb,
    PostgresStore, Response, Subscription, Subscriptions, UniversalExecutor, async_trait,
};

/// The latency of each direction.
const DELAY: Duration = Duration::from_millis(20);
const ROUNDS: usize = 6;

/// An executor with this number of sources, each with a different schema.
struct Reader {
    subscriptions: Subscriptions,
    store: PostgresStore,
}

impl Reader {
    fn new(store: &PostgresStore, sources: usize) -> Self {
        let trigger = Subscription::trigger("question.v1");
        let sources = (0..sources).map(|number| Subscription::context(format!("note{number}.v1")));
        let all = std::iter::once(trigger).chain(sources);
        Self {
            subscriptions: Subscriptions::new(all).unwrap(),
            store: store.clone(),
        }
    }
}

#[async_trait]
impl UniversalExecutor for Reader {
    fn id(&self) -> &str {
        "reader"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(Value::Null)
    }

    async fn respond(&self, _: &Breadcrumb, _: Value) -> Result<Response, BoxError> {
        Ok(Response::none())
    }
}

#[tokio::test]
async fn ten_sources_take_at_most_twice_as_long_as_one_from_a_server_that_is_far_away() {
    let (namespaces, proxy) = (Namespaces::default(), Proxy::far(DELAY).await);
    let name = namespaces.one();
    let near = store_in(&name).connect().await.unwrap();
    let far = PostgresStore::builder(proxy.url()).schema(&name);
    let far = far.connect().await.unwrap();
    for number in 0..10 {
        near.create(NewBreadcrumb::new(format!("note{number}.v1")))
            .await
            .unwrap();
    }
    let trigger = near.create(NewBreadcrumb::new("question.v1")).await;
    let trigger = trigger.unwrap();
    let readers = [Reader::new(&far, 1), Reader::new(&far, 10)];

    let mut shortest = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (reader, shortest) in readers.iter().zip(&mut shortest) {
            let begun = Instant::now();
            let context = reader.assemble_context(&trigger).await.unwrap();
            *shortest = begun.elapsed().min(*shortest);
            assert!(context.missing().is_empty());
            assert_eq!(
                context.sources().len(),
                reader.subscriptions.sources().count()
            );
        }
    }

    let [one, ten] = shortest;
    assert!(one >= 2 * DELAY, "the latency must dominate: {one:?}");
    assert!(ten <= 2 * one, "{ten:?} against {one:?}");
}
