//! Rows that PostgreSQL reads for one operation in a tenant with many breadcrumbs and runs.

use super::server::{Namespaces, store_in, url};
use futures::future::join_all;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use std::collections::BTreeMap;
use universal_executor::store::{
    ClaimId, Commit, ExecutorLimits, NewRun, Query, RunEnd, RunLedger, RunQuery, RunRef, RunState,
    Wake, Write,
};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, NewBreadcrumb, Patch, PostgresStore, Selector,
};

/// Number of requests and finished runs.
const MANY: usize = 4_000;

/// Number of times that each operation is executed.
const TIMES: usize = 20;

/// Maximum number of rows and index entries that one operation may read. Each operation returns at most ten rows.
const MOST: i64 = 800;

fn request(number: usize) -> Write {
    let request = NewBreadcrumb::new("request.v1").tag(format!("user:{}", number % 100));
    Write::Create(request.context(json!({"n": number})))
}

async fn create(store: &PostgresStore, requests: usize) -> Vec<RunRef> {
    let mut runs = Vec::new();
    for first in (0..requests).step_by(500) {
        let writes: Vec<Write> = (first..requests.min(first + 500)).map(request).collect();
        let committed = store.commit(Commit::from(writes)).await.unwrap();
        let run = |written: &Breadcrumb| RunRef::new("answers", written.id, written.version);
        runs.extend(committed.written.iter().map(|written| run(written)));
    }
    runs
}

/// Enqueues runs and ends all due ones.
async fn work(store: &PostgresStore, runs: Vec<RunRef>) {
    let mut left = runs.len();
    for some in runs.chunks(500) {
        let new = some.iter().cloned().map(NewRun::from).collect();
        store.enqueue(new).await.unwrap();
    }
    while left > 0 {
        let limits = [ExecutorLimits::new("answers", 64)];
        let claimed = store.claim_next(64, &limits, ClaimId::unique());
        let claimed = claimed.await.unwrap();
        assert!(!claimed.is_empty(), "{left} runs must still be due");
        left -= claimed.len();
        let end = |run: universal_executor::store::Claimed| {
            store.commit(Commit {
                writes: Vec::new(),
                end: Some((run.lease, RunEnd::Done)),
            })
        };
        for ended in join_all(claimed.into_iter().map(end)).await {
            ended.unwrap();
        }
    }
}

/// Counts the reads of all closed connections, by table.
struct Reads {
    connection: PgConnection,
    namespace: String,
}

impl Reads {
    async fn of(namespace: &str) -> Self {
        Self {
            connection: PgConnection::connect(&url()).await.unwrap(),
            namespace: namespace.to_owned(),
        }
    }

    /// Waits until the store has no open connection, because the server counts the reads of a connection when it ends.
    async fn counted(&mut self) {
        /// Maximum number of queries. The server delays each query by 10 ms.
        const QUESTIONS: usize = 3_000;
        for _ in 0..QUESTIONS {
            let others = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity, pg_sleep(0.01) WHERE application_name LIKE '%' || $1",
            );
            let others: i64 = others
                .bind(&self.namespace)
                .fetch_one(&mut self.connection)
                .await
                .unwrap();
            if others == 0 {
                return;
            }
        }
        panic!("a connection of the store is still open");
    }

    async fn by_table(&mut self) -> BTreeMap<String, i64> {
        self.counted().await;
        let rows = sqlx::query(
            "SELECT t.relname::text, (coalesce(t.seq_tup_read, 0) + coalesce(sum(i.idx_tup_read), 0))::bigint
             FROM pg_stat_user_tables AS t LEFT JOIN pg_stat_user_indexes AS i ON i.relid = t.relid
             WHERE t.schemaname = $1 GROUP BY t.relid, t.relname, t.seq_tup_read",
        );
        let rows = rows.bind(&self.namespace);
        let rows = rows.fetch_all(&mut self.connection).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Removes dead rows and updates the sizes of the tables, like the server does in the background.
    async fn vacuum(&mut self) {
        self.counted().await;
        for table in self.by_table().await.into_keys() {
            let vacuum = format!("VACUUM (ANALYZE) {}.{table}", self.namespace);
            let vacuum = sqlx::raw_sql(AssertSqlSafe(vacuum));
            vacuum.execute(&mut self.connection).await.unwrap();
        }
    }
}

/// An operation that is executed several times.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Create,
    UpdateAndDelete,
    SearchByTag,
    SearchBySchema,
    Run,
    ListRuns,
    ListSuspended,
    SavePositions,
}

impl Operation {
    const ALL: [Self; 8] = [
        Self::Create,
        Self::UpdateAndDelete,
        Self::SearchByTag,
        Self::SearchBySchema,
        Self::Run,
        Self::ListRuns,
        Self::ListSuspended,
        Self::SavePositions,
    ];

    async fn execute(self, store: &PostgresStore, number: usize) {
        match self {
            Self::Create => {
                create(store, 1).await;
            }
            Self::UpdateAndDelete => update_and_delete(store).await,
            Self::SearchByTag => {
                let tag = Selector::schema("request.v1").all_tags([format!("user:{number}")]);
                let found = store.search(&Query::new(tag).limit(5)).await.unwrap();
                assert_eq!(found.len(), 5);
            }
            Self::SearchBySchema => {
                let schema = Selector::schema("request.v1");
                let found = store.search(&Query::new(schema).limit(5)).await.unwrap();
                assert_eq!(found.len(), 5);
            }
            Self::Run => {
                let runs = create(store, 1).await;
                work(store, runs).await;
            }
            Self::ListRuns => {
                let done = RunQuery::all().state(RunState::Done);
                list(store, done.executor("answers")).await;
            }
            Self::ListSuspended => list(store, RunQuery::all().state(RunState::Suspended)).await,
            Self::SavePositions => {
                let positions = [("answers".into(), vec![1])];
                store.save_positions(&positions).await.unwrap();
            }
        }
    }
}

async fn update_and_delete(store: &PostgresStore) {
    let selector = Selector::schema("request.v1");
    let found = store.search(&Query::new(selector).limit(1)).await.unwrap();
    let (id, version) = (found[0].id, found[0].version);
    let patch = Patch::new().context(json!({"n": "new"}));
    let update = Write::Update { id, version, patch };
    store.commit(Commit::from(vec![update])).await.unwrap();
    let delete = Write::Delete { id, by: None };
    store.commit(Commit::from(vec![delete])).await.unwrap();
}

async fn list(store: &PostgresStore, query: RunQuery) {
    let page = store.runs_page(&query.limit(10)).await.unwrap();
    assert_eq!(page.runs.len(), 10);
}

/// Suspends a tenth of the runs.
async fn suspend(store: &PostgresStore, runs: &[RunRef]) {
    let new = runs.iter().cloned().map(NewRun::from).collect();
    store.enqueue(new).await.unwrap();
    let limits = [ExecutorLimits::new("asks", runs.len())];
    let claimed = store.claim_next(runs.len(), &limits, ClaimId::unique());
    let suspend = |(number, run): (usize, universal_executor::store::Claimed)| {
        let reply = Selector::schema("reply.v1").all_tags([format!("reply:{number}")]);
        let (wake, state) = (Wake::on(reply), json!({}).into());
        store.commit(Commit {
            writes: Vec::new(),
            end: Some((run.lease, RunEnd::Suspended { wake, state })),
        })
    };
    let claimed = claimed.await.unwrap().into_iter().enumerate();
    for suspended in join_all(claimed.map(suspend)).await {
        suspended.unwrap();
    }
}

#[tokio::test]
async fn operations_read_few_rows_of_a_tenant_with_thousands() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    let runs = create(&store, MANY).await;
    let asks = runs.iter().step_by(10).take(400);
    let asks: Vec<RunRef> = asks
        .map(|run| RunRef::new("asks", run.trigger_id, run.trigger_version))
        .collect();
    work(&store, runs).await;
    suspend(&store, &asks).await;
    store.close().await;
    let mut reads = Reads::of(&namespace).await;
    reads.vacuum().await;

    for operation in Operation::ALL {
        let before = reads.by_table().await;
        let store = store_in(&namespace).connect().await.unwrap();
        for number in 0..TIMES {
            operation.execute(&store, number).await;
        }
        store.close().await;
        let mut read = reads.by_table().await;
        for (table, rows) in &mut read {
            *rows -= before[table];
        }
        let times = i64::try_from(TIMES).unwrap();
        assert!(
            read.values().sum::<i64>() <= MOST * times,
            "rows read by {operation:?}, {TIMES} times: {read:?}"
        );
    }
}
