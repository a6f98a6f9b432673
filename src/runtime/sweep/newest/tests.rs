use super::*;
use crate::model::NewBreadcrumb;
use crate::store::{
    BreadcrumbStoreExt as _, Capabilities, Commit, Committed, MemoryStore, RunLedger, Scored,
    StoreId, VectorQuery,
};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::sync::Mutex;

const MINUTE: Duration = Duration::from_secs(60);

/// A store that reads at most ten breadcrumbs for a query, and cannot read some of them.
#[derive(Debug)]
struct LimitedStore {
    store: MemoryStore,
    broken: Mutex<BTreeSet<BreadcrumbId>>,
}

#[async_trait]
impl BreadcrumbStore for LimitedStore {
    fn tenant(&self) -> &str {
        self.store.tenant()
    }

    fn identity(&self) -> StoreId {
        self.store.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities().oldest_first(false)
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.store.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        let read = self.store.search(&query.clone().limit(10)).await?;
        let broken = self.broken.lock().unwrap();
        let is_broken = |one: &Arc<Breadcrumb>| broken.contains(&one.id);
        let unread = read.iter().filter(|one| is_broken(one));
        Err(StoreError::Partial(Box::new(PartialSearch {
            store: "short",
            next: read.get(9).map(|last| last.order_key()),
            unread: unread.map(|one| one.updated_at).collect(),
            found: read.into_iter().filter(|one| !is_broken(one)).collect(),
        })))
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.store.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.store.commit(commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        None
    }
}

/// A receiver that takes a fixed time for each page.
struct SlowReceiver {
    time: Duration,
    found: Vec<BreadcrumbId>,
    read: Vec<Range>,
}

impl SlowReceiver {
    fn new(time: Duration) -> Self {
        Self {
            time,
            found: Vec::new(),
            read: Vec::new(),
        }
    }
}

impl PageReceiver for SlowReceiver {
    async fn receive(
        &mut self,
        page: Vec<Arc<Breadcrumb>>,
        read: &[Range],
    ) -> Result<SweepDecision, StoreError> {
        tokio::time::sleep(self.time).await;
        self.found.extend(page.iter().map(|one| one.id));
        self.read.extend(read);
        Ok(SweepDecision::Continue)
    }
}

async fn notes(count: usize) -> (LimitedStore, Vec<Arc<Breadcrumb>>) {
    let store = MemoryStore::default();
    let mut created = Vec::new();
    for _ in 0..count {
        tokio::time::advance(MINUTE).await;
        created.push(store.create(NewBreadcrumb::new("note.v1")).await.unwrap());
    }
    let broken = Mutex::default();
    (LimitedStore { store, broken }, created)
}

async fn swept(
    store: &LimitedStore,
    ranges: Vec<Range>,
    receiver: &mut SlowReceiver,
) -> SweepOutcome {
    let now = Timestamp::from_micros(i64::MAX);
    let selectors = [Selector::schema("note.v1")];
    let limit = (MINUTE, now);
    let mut page_size = PageSize::default();
    let swept = sweep(store, &selectors, ranges, limit, &mut page_size, receiver);
    swept.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_in_part_is_read_to_the_end_of_the_interval() {
    let (store, created) = notes(95).await;
    let range = (created[4].updated_at, created[94].updated_at);
    let mut receiver = SlowReceiver::new(Duration::ZERO);

    let swept = swept(&store, vec![range], &mut receiver).await;

    assert_eq!((swept, receiver.found.len()), (SweepOutcome::All, 90));
    assert_eq!(receiver.read.last(), Some(&range));
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_that_cannot_be_read_stays_unread_and_the_others_are_read() {
    let (store, created) = notes(95).await;
    let broken = &created[50];
    store.broken.lock().unwrap().insert(broken.id);
    let range = (Timestamp::UNIX_EPOCH, created[94].updated_at);
    let mut receiver = SlowReceiver::new(Duration::ZERO);

    let swept = swept(&store, vec![range], &mut receiver).await;

    assert_eq!((swept, receiver.found.len()), (SweepOutcome::Unread, 94));
    let at = broken.updated_at;
    let read = [(range.0, at.just_before()), (at, range.1)];
    assert!(receiver.read.ends_with(&read), "{:?}", receiver.read);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_without_time_reads_a_page_of_the_longest_older_interval() {
    let (store, created) = notes(100).await;
    let time = |n: usize| created[n].updated_at;
    let ranges = vec![
        (time(0), time(2)),
        (time(10), time(40)),
        (time(50), time(52)),
        (time(60), time(99)),
    ];
    let mut receiver = SlowReceiver::new(MINUTE * 2);

    let swept = swept(&store, ranges, &mut receiver).await;

    assert_eq!(swept, SweepOutcome::Incomplete);
    let numbers = (90..100).chain(31..41);
    let wanted: Vec<BreadcrumbId> = numbers.map(|n| created[n].id).collect();
    assert_eq!(receiver.found, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_list_position_that_does_not_move_skips_one_moment() {
    let time = Timestamp::from_micros;
    let (nil, id) = (
        BreadcrumbId::NIL,
        Breadcrumb::from(NewBreadcrumb::new("a.v1")).id,
    );

    assert_eq!(
        next_position((time(9), 0, nil), (time(5), 3, id)),
        (time(5), 3, id)
    );
    assert_eq!(
        next_position((time(9), 0, nil), (time(9), 0, nil)),
        (time(8), 0, nil)
    );
    assert_eq!(
        next_position((time(9), 2, id), (time(10), 0, nil)),
        (time(9), 0, nil)
    );
}
