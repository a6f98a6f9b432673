//! Broken connections, and slow servers and transactions.

use crate::nats::harness::eventually;
use crate::postgres::proxy::{Harm, Proxy};
use crate::postgres::server::{Namespaces, store_in, url};
use futures::StreamExt as _;
use sqlx::Connection as _;
use std::time::Duration;
use universal_executor::error::Retry;
use universal_executor::model::Timestamp;
use universal_executor::source::StartAt;
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, ExecutorLimits, NewRequest, NewRun, Requested, RunEnd,
    RunFilter, RunLedger, RunRef, RunState, StoreError, Write,
};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, EventSource, NewBreadcrumb, Patch, PostgresStore,
};

/// A timeout that tests wait for. It is long enough for a slow machine to connect.
const SHORT: Duration = Duration::from_secs(2);

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

async fn through(proxy: &Proxy, namespace: &str) -> PostgresStore {
    let builder = PostgresStore::builder(proxy.url()).schema(namespace);
    builder.connect().await.unwrap()
}

#[tokio::test]
async fn a_commit_is_applied_once_despite_a_connection_loss() {
    for harm in [Harm::LosesAnswer, Harm::CutsBefore] {
        let (namespaces, proxy) = (Namespaces::default(), Proxy::start().await);
        let store = through(&proxy, &namespaces.one()).await;
        let trigger = store.create(note()).await.unwrap();
        let run = RunRef::new("agent", trigger.id, 1);
        let Claim::Granted(Claimed { lease, .. }) = store.claim(&run, None).await.unwrap() else {
            panic!("granted")
        };

        proxy.harm_next(harm);
        let commit = Commit {
            writes: vec![Write::Create(NewBreadcrumb::new("answer.v1")); 2],
            end: Some((lease, RunEnd::Done)),
        };
        let committed = store.commit(commit).await.unwrap();

        assert!(proxy.is_done());
        let found = store.recent("answer.v1", 10).await.unwrap();
        let mut written = committed.written;
        written.reverse();
        assert_eq!(found, written);
        let rows = store.runs(&RunFilter::all()).await.unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].state, RunState::Done);
    }
}

#[tokio::test]
async fn a_request_creates_one_breadcrumb_despite_a_connection_loss() {
    for harm in [Harm::LosesAnswer, Harm::CutsBefore] {
        let (namespaces, proxy) = (Namespaces::default(), Proxy::start().await);
        let store = through(&proxy, &namespaces.one()).await;
        store.create(note()).await.unwrap();
        let request = || NewRequest::new("agent", "key", NewBreadcrumb::new("question.v1"));

        proxy.harm_next(harm);
        let first = store.request(request()).await.unwrap();

        assert!(proxy.is_done());
        let Requested::Created { breadcrumb } = &first else {
            panic!("created")
        };
        let found = store.recent("question.v1", 10).await.unwrap();
        assert_eq!(found, std::slice::from_ref(breadcrumb));
        let again = store.request(request()).await.unwrap();
        assert!(matches!(again, Requested::Existing { .. }), "{again:?}");
        assert_eq!(again.trigger(), first.trigger());
    }
}

#[tokio::test]
async fn runs_are_leased_once_despite_a_connection_loss() {
    for harm in [Harm::LosesAnswer, Harm::CutsBefore, Harm::SwallowsAnswer] {
        let (namespaces, proxy) = (Namespaces::default(), Proxy::start().await);
        let builder = PostgresStore::builder(proxy.url()).schema(namespaces.one());
        let builder = builder.wait_timeout(SHORT);
        let store = builder.connect().await.unwrap();
        let mut runs = Vec::new();
        for _ in 0..3 {
            let trigger = store.create(note()).await.unwrap();
            runs.push(NewRun::from(RunRef::new("agent", trigger.id, 1)));
        }
        store.enqueue(runs).await.unwrap();

        proxy.harm_next(harm);
        let agent = [ExecutorLimits::new("agent", 2)];
        let id = ClaimId::unique();
        let claimed = store.claim_next(2, &agent, id).await.unwrap();

        assert!(proxy.is_done());
        assert_eq!(claimed.len(), 2);
        let listed = store.runs(&RunFilter::of_claim(id)).await.unwrap();
        assert_eq!(listed.len(), 2);
        let leased = store.runs(&RunFilter::all().state(RunState::Running)).await;
        let leased = leased.unwrap();
        assert_eq!(leased.len(), 2);
        assert!(leased.iter().all(|run| run.attempts == 1));
        let rest = store.claim_next(9, &agent, ClaimId::unique()).await;
        assert_eq!(rest.unwrap().len(), 1, "one run must be left");
    }
}

/// Creates a store on the proxy with four due runs.
async fn with_due(proxy: &Proxy, namespace: &str) -> PostgresStore {
    let store = through(proxy, namespace).await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        let trigger = store.create(note()).await.unwrap();
        runs.push(NewRun::from(RunRef::new("agent", trigger.id, 1)));
    }
    store.enqueue(runs).await.unwrap();
    store
}

#[tokio::test]
async fn a_claim_that_has_not_got_to_the_server_yet_leases_nothing_when_it_does() {
    let (namespaces, proxy) = (Namespaces::default(), Proxy::start().await);
    let store = with_due(&proxy, &namespaces.one()).await;

    proxy.harm_next(Harm::ComesLate);
    let agent = [ExecutorLimits::new("agent", 2)];
    let claimed = store
        .claim_next(2, &agent, ClaimId::unique())
        .await
        .unwrap();
    proxy.let_through().await;

    assert_eq!(claimed.len(), 2);
    let leased = store.runs(&RunFilter::all().state(RunState::Running)).await;
    assert_eq!(leased.unwrap().len(), 2, "the lost claim must lease no run");
}

#[tokio::test]
async fn a_claim_whose_connection_is_cut_leases_no_extra_runs() {
    let (namespaces, proxy) = (Namespaces::default(), Proxy::start().await);
    let namespace = namespaces.one();
    let store = with_due(&proxy, &namespace).await;
    let mut other = sqlx::PgConnection::connect(&url()).await.unwrap();
    let slow = format!(
        "CREATE FUNCTION {namespace}.slow() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE UPDATE ON {namespace}.ux_runs FOR EACH ROW EXECUTE FUNCTION {namespace}.slow()"
    );
    let slow = sqlx::raw_sql(sqlx::AssertSqlSafe(slow));
    slow.execute(&mut other).await.unwrap();

    proxy.harm_next(Harm::CutsAfter);
    let agent = [ExecutorLimits::new("agent", 2)];
    let claimed = store
        .claim_next(2, &agent, ClaimId::unique())
        .await
        .unwrap();

    assert!(proxy.is_done());
    assert_eq!(claimed.len(), 2);
    let leased = store.runs(&RunFilter::all().state(RunState::Running)).await;
    assert_eq!(leased.unwrap().len(), 2, "the lost claim must lease no run");
}

#[tokio::test]
async fn a_failed_preparation_does_not_affect_later_commits() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let builder = store_in(&namespace).wait_timeout(SHORT);
    let store = builder.connect().await.unwrap();
    let mut other = sqlx::PgConnection::connect(&url()).await.unwrap();
    let lock = format!("BEGIN; LOCK TABLE {namespace}.ux_runs IN SHARE MODE");
    let lock = sqlx::raw_sql(sqlx::AssertSqlSafe(lock));
    lock.execute(&mut other).await.unwrap();

    let told = store.create(note()).await.unwrap_err();

    assert!(matches!(told, StoreError::Unavailable { .. }), "{told:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    store.create(note()).await.unwrap();
}

#[tokio::test]
async fn a_commit_status_from_before_a_server_crash_is_not_trusted() {
    let (namespaces, proxy) = (Namespaces::default(), Proxy::start().await);
    let namespace = namespaces.one();
    let store = through(&proxy, &namespace).await;
    store.create(note()).await.unwrap();
    // After a crash, the transaction ID may belong to another transaction.
    let crash = format!(
        "CREATE FUNCTION {namespace}.crash() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN UPDATE {namespace}.ux_alive SET since = 'later'; RETURN NULL; END $$;
         CREATE TRIGGER crash AFTER INSERT ON {namespace}.ux_breadcrumbs EXECUTE FUNCTION {namespace}.crash()"
    );
    let mut other = sqlx::PgConnection::connect(&url()).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(crash))
        .execute(&mut other)
        .await
        .unwrap();

    proxy.harm_next(Harm::LosesAnswer);
    let told = store.create(note()).await.unwrap_err();

    assert!(matches!(told, StoreError::Unavailable { .. }), "{told:?}");
    assert!(proxy.is_done());
    store.create(note()).await.unwrap();
}

#[tokio::test]
async fn a_store_recovers_when_the_server_terminates_all_sessions() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
    futures::future::join_all((0..8).map(|_| store.create(note()))).await;
    let mut other = sqlx::PgConnection::connect(&url()).await.unwrap();

    let application = format!("universal-executor/{namespace}");
    // One session writes, and another one listens for events and connects in the background.
    eventually(async || {
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
        let sessions = sqlx::query_scalar(sessions).bind(&application);
        let found: i64 = sessions.fetch_one(&mut other).await.unwrap();
        found >= 2
    })
    .await;

    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
    )
    .bind(&application)
    .execute(&mut other)
    .await
    .unwrap();

    let after = store.create(note()).await.unwrap();
    assert_eq!(store.get(after.id).await.unwrap(), after);
    for _ in 0..9 {
        events.next().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_connection_over_which_nothing_comes_any_more_is_given_up_with_all_others() {
    let (namespaces, proxy) = (Namespaces::default(), Proxy::start().await);
    let builder = PostgresStore::builder(proxy.url()).schema(namespaces.one());
    let builder = builder.wait_timeout(SHORT);
    let store = builder.connect().await.unwrap();
    let kept = store.create(note()).await.unwrap();
    // Several connections that stay open.
    futures::future::join_all((0..4).map(|_| store.get(kept.id))).await;

    proxy.fall_silent();
    let (read, written) = tokio::join!(store.get(kept.id), store.create(note()));

    for told in [read.unwrap_err(), written.unwrap_err()] {
        assert!(matches!(told, StoreError::Unavailable { .. }), "{told:?}");
        assert!(matches!(told.retry(), Retry::After(_)));
    }
    // These calls must use new connections, because the old ones never answer.
    assert_eq!(store.get(kept.id).await.unwrap(), kept);
    store.create(note()).await.unwrap();
    assert_eq!(store.recent("note.v1", 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_commit_over_a_connection_that_falls_silent_is_asked_after() {
    let (namespaces, proxy) = (Namespaces::default(), Proxy::start().await);
    let builder = PostgresStore::builder(proxy.url()).schema(namespaces.one());
    let builder = builder.wait_timeout(SHORT);
    let store = builder.connect().await.unwrap();

    proxy.harm_next(Harm::SwallowsAnswer);
    let created = store.create(note()).await.unwrap();

    assert!(proxy.is_done());
    assert_eq!(store.recent("note.v1", 10).await.unwrap(), [created]);
}

#[tokio::test]
async fn a_commit_that_waits_too_long_for_a_tenant_lock_fails_with_a_retry() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace)
        .wait_timeout(SHORT)
        .connect()
        .await
        .unwrap();
    store.create(note()).await.unwrap();
    let mut other = sqlx::PgConnection::connect(&url()).await.unwrap();
    let mut transaction = other.begin().await.unwrap();
    let lock = format!("SELECT id FROM {namespace}.ux_tenants FOR UPDATE");
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock))
        .execute(&mut *transaction)
        .await
        .unwrap();

    let late = store.create(note()).await.unwrap_err();
    let read = store.recent("note.v1", 10).await.unwrap();
    transaction.rollback().await.unwrap();

    assert!(matches!(late, StoreError::Unavailable { .. }), "{late:?}");
    assert!(matches!(late.retry(), Retry::After(_)));
    assert_eq!(read.len(), 1, "a read must not wait for the tenant");
    store.create(note()).await.unwrap();
}

#[tokio::test]
async fn an_abandoned_commit_of_one_tenant_does_not_block_reads_of_another() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    let elsewhere = store.in_tenant("elsewhere");
    store.create(note()).await.unwrap();
    elsewhere.create(note()).await.unwrap();
    let mut other = sqlx::PgConnection::connect(&url()).await.unwrap();
    let mut transaction = other.begin().await.unwrap();
    let lock = format!(
        "SELECT id FROM {namespace}.ux_tenants WHERE name = '{}' FOR UPDATE",
        store.tenant()
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock))
        .execute(&mut *transaction)
        .await
        .unwrap();

    let given_up = tokio::time::timeout(Duration::from_millis(50), store.create(note()));
    assert!(
        given_up.await.is_err(),
        "the commit must wait for the tenant"
    );
    let read = tokio::time::timeout(Duration::from_secs(30), elsewhere.recent("note.v1", 10));

    let read = read
        .await
        .expect("a read of the other tenant must not wait");
    assert_eq!(read.unwrap().len(), 1);
    transaction.rollback().await.unwrap();
    assert_eq!(store.recent("note.v1", 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_commit_reads_no_unexpired_breadcrumbs() {
    const LIVING: usize = 1_000;
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    let end = Timestamp::from_micros(i64::MAX / 4);
    for _ in 0..LIVING / 100 {
        let living = vec![Write::Create(note().ttl(end)); 100];
        store.commit(living.into()).await.unwrap();
    }
    for _ in 0..20 {
        store.create(note()).await.unwrap();
    }
    // The server updates a session's statistics when the session ends.
    store.close().await;

    let mut other = sqlx::PgConnection::connect(&url()).await.unwrap();
    let read: i64 = sqlx::query_scalar(
        "SELECT (sum(i.idx_tup_read) + min(t.seq_tup_read))::bigint FROM pg_stat_user_indexes AS i
         JOIN pg_stat_user_tables AS t USING (relid) WHERE i.schemaname = $1 AND i.relname = 'ux_breadcrumbs'",
    )
    .bind(&namespace)
    .fetch_one(&mut other)
    .await
    .unwrap();

    assert!(read < LIVING as i64, "{read}");
}

#[tokio::test]
async fn a_run_is_found_by_its_whole_name_also_with_plans_of_empty_tables() {
    const RUNS: usize = 640;
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    let limits = [ExecutorLimits::new("agent", 64)];
    for _ in 0..RUNS / 64 {
        let triggers = vec![Write::Create(note()); 64];
        let triggers = store.commit(triggers.into()).await.unwrap().ids();
        let runs = triggers.iter().map(|id| RunRef::new("agent", *id, 1));
        let runs: Vec<NewRun> = runs.map(NewRun::from).collect();
        store.enqueue(runs.clone()).await.unwrap();
        let enqueued = store.enqueue_and_claim(runs, 64, &limits, ClaimId::unique());
        for claimed in enqueued.await.unwrap().claimed.unwrap() {
            let end = Some((claimed.lease, RunEnd::Done));
            let commit = Commit {
                writes: Vec::new(),
                end,
            };
            store.commit(commit).await.unwrap();
        }
    }
    // The server updates a session's statistics when the session ends.
    store.close().await;

    let mut other = sqlx::PgConnection::connect(&url()).await.unwrap();
    let (found, read): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'ux_runs' AND n_tup_ins = $2),
             sum(idx_tup_read)::bigint FROM pg_stat_user_indexes
         WHERE schemaname = $1 AND indexrelname IN ('ux_runs_by_name', 'ux_runs_by_state')",
    )
    .bind(&namespace)
    .bind(RUNS as i64)
    .fetch_one(&mut other)
    .await
    .unwrap();

    assert_eq!(found, 1, "the statistics must be complete");
    // Each run is searched four times, and a row has up to three versions.
    assert!(read < 12 * RUNS as i64, "{read}");
}

#[tokio::test]
async fn a_refused_commit_of_a_group_is_rolled_back_alone() {
    let namespaces = Namespaces::default();
    let store = namespaces.builder().connect().await.unwrap();
    let kept = store.create(note()).await.unwrap();
    let commits = (0..30).map(|number| {
        let mut writes = vec![Write::Create(note())];
        if number % 3 == 0 {
            // This update is refused after the transaction has written other rows.
            writes.push(Write::Update {
                id: kept.id,
                version: 1,
                patch: Patch::new().title("changed"),
            });
            writes.push(Write::Update {
                id: kept.id,
                version: 7,
                patch: Patch::new(),
            });
        }
        store.commit(writes.into())
    });

    let told = futures::future::join_all(commits).await;

    for (number, told) in told.iter().enumerate() {
        let is_refused = matches!(
            told,
            Err(StoreError::Conflict {
                expected: 7,
                found: 2,
                ..
            })
        );
        assert_eq!(is_refused, number % 3 == 0, "{number}: {told:?}");
        assert_eq!(told.is_ok(), number % 3 != 0, "{number}: {told:?}");
    }
    assert_eq!(store.get(kept.id).await.unwrap(), kept);
    assert_eq!(store.recent("note.v1", 100).await.unwrap().len(), 21);
    let stats = store.stats().await.unwrap();
    assert_eq!(
        (stats.breadcrumbs, stats.events, stats.position),
        (21, 21, 21)
    );
}
