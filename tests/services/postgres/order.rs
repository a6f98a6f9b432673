//! The order of commits in which events are delivered, and the durability of delivered events.

use crate::postgres::execute;
use crate::postgres::server::{Namespaces, store_in, url};
use futures::StreamExt as _;
use futures::future::{join, join_all};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::time::Duration;
use tokio::time::timeout;
use universal_executor::source::StartAt;
use universal_executor::store::Write;
use universal_executor::{
    BreadcrumbStore as _, BreadcrumbStoreExt as _, EventSource as _, NewBreadcrumb, PostgresStore,
};

const WRITERS: u64 = 8;
const READERS: usize = 3;
/// Number of commits of each writer. Each commit has one to three events.
const COMMITS: u64 = 15;
/// Number of transactions of each slow session, which alternately commits and rolls back.
const SLOW: u64 = 12;

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

/// Returns the statements of a transaction that takes the next position for an event.
fn one_event(namespace: &str) -> String {
    format!(
        "BEGIN; SET LOCAL search_path = {namespace}; SELECT FROM ux_tenants WHERE name = 'default' FOR UPDATE;
         UPDATE ux_tenants SET position = position + 1,
             latest = greatest(latest + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) WHERE name = 'default';
         INSERT INTO ux_events SELECT id, position, gen_random_uuid(), 1, latest, 0, 'note.v1', '[]' FROM ux_tenants
             WHERE name = 'default'"
    )
}

/// Commits every second transaction late, and rolls the others back.
async fn slow_transactions(namespace: &str) {
    let mut session = PgConnection::connect(&url()).await.unwrap();
    for number in 0..SLOW {
        let end = if number % 2 == 0 {
            "COMMIT"
        } else {
            "ROLLBACK"
        };
        let sql = format!("{}; SELECT pg_sleep(0.005); {end}", one_event(namespace));
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        sql.execute(&mut session).await.unwrap();
    }
}

async fn write(store: PostgresStore) {
    for size in 0..COMMITS {
        let notes = vec![Write::Create(note()); 1 + usize::try_from(size % 3).unwrap()];
        store.commit(notes.into()).await.unwrap();
    }
}

#[tokio::test]
async fn among_slow_and_aborted_transactions_no_reader_misses_or_repeats_an_event() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let connect = || {
        let builder = store_in(&name).connections(2);
        builder.poll_every(Duration::from_millis(1)).connect()
    };
    let first = connect().await.unwrap();
    first.create(note()).await.unwrap();
    let events = 1 + WRITERS * 2 * COMMITS + 2 * (SLOW / 2);
    let reader = async || {
        let store = connect().await.unwrap();
        let source = store.events();
        let mut deliveries = source.subscribe(StartAt::Beginning).await.unwrap();
        let mut read = Vec::new();
        while read.len() < usize::try_from(events).unwrap() {
            let delivery = deliveries.next().await.unwrap().unwrap();
            read.push((delivery.position.unwrap(), delivery.event));
        }
        read
    };

    let writers = async {
        let stores = join_all((0..WRITERS).map(|_| connect())).await;
        let writers = stores.into_iter().map(|store| write(store.unwrap()));
        let slow = [slow_transactions(&name), slow_transactions(&name)];
        join(join_all(writers), join_all(slow)).await
    };
    let (read, _) = join(join_all((0..READERS).map(|_| reader())), writers).await;

    for read in &read {
        let positions: Vec<u64> = read.iter().map(|(position, _)| *position).collect();
        assert_eq!(positions, (1..=events).collect::<Vec<u64>>());
        let times = read.iter().map(|(_, event)| event.updated_at);
        assert!(
            times.is_sorted(),
            "the times must be in the order of the commits"
        );
    }
    let ids = |reader: usize| {
        let events = read[reader].iter();
        events
            .map(|(_, event)| event.breadcrumb_id)
            .collect::<Vec<_>>()
    };
    assert_eq!((ids(1), ids(2)), (ids(0), ids(0)));
}

#[tokio::test]
async fn an_event_is_delivered_when_its_commit_is_durable() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let builder = store_in(&name).poll_every(Duration::from_secs(3_600));
    let store = builder.connect().await.unwrap();
    store.create(note()).await.unwrap();
    let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
    let mut session = PgConnection::connect(&url()).await.unwrap();
    let off = "SET synchronous_commit = off";
    sqlx::raw_sql(off).execute(&mut session).await.unwrap();
    let commit = format!("{}; COMMIT", one_event(&name));
    let commit = sqlx::raw_sql(AssertSqlSafe(commit));
    commit.execute(&mut session).await.unwrap();
    let written: String = sqlx::query_scalar("SELECT pg_current_wal_insert_lsn()::text")
        .fetch_one(&mut session)
        .await
        .unwrap();

    let announce = format!("SET synchronous_commit = off; NOTIFY ux_events, '{name}'");
    let (delivery, ()) = join(events.next(), execute(announce)).await;

    assert_eq!(delivery.unwrap().unwrap().position, Some(2));
    let is_durable: bool =
        sqlx::query_scalar("SELECT pg_current_wal_flush_lsn() >= $1::text::pg_lsn")
            .bind(&written)
            .fetch_one(&mut session)
            .await
            .unwrap();
    assert!(is_durable, "the log is on disk up to {written}");
}

#[tokio::test]
async fn events_of_this_and_of_another_process_are_delivered_without_a_poll() {
    const ROUNDS: u64 = 40;
    const PATIENCE: Duration = Duration::from_secs(60);
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let builder = || store_in(&name).poll_every(Duration::from_secs(3_600));
    let own = builder().connect().await.unwrap();
    let another = builder().connect().await.unwrap();
    let mut events = own.events().subscribe(StartAt::Beginning).await.unwrap();
    // The first event of another process is found when the subscriber starts to listen.
    another.create(note()).await.unwrap();
    let first = timeout(PATIENCE, events.next()).await.expect("no event");
    assert_eq!(first.unwrap().unwrap().position, Some(1));

    let handle = own.in_tenant("default");
    for round in 0..ROUNDS {
        let written = join_all([
            own.create(note()),
            another.create(note()),
            handle.create(note()),
        ]);
        assert!(written.await.iter().all(Result::is_ok));
        for number in 2..5 {
            let next = timeout(PATIENCE, events.next()).await.expect("no event");
            let position = next.unwrap().unwrap().position;
            assert_eq!(position, Some(3 * round + number));
        }
    }
}

#[tokio::test]
async fn a_commit_waits_for_no_transaction_that_has_only_read_its_facts() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let store = store_in(&name).connect().await.unwrap();
    let held = store.create(note()).await.unwrap();
    // This transaction stopped between its two messages, with a lock on the row that it changes.
    let mut stopped = PgConnection::connect(&url()).await.unwrap();
    let begin = format!(
        "BEGIN; SELECT FROM {name}.ux_breadcrumbs WHERE id = '{}' FOR UPDATE",
        held.id
    );
    let begin = sqlx::raw_sql(AssertSqlSafe(begin));
    begin.execute(&mut stopped).await.unwrap();

    let other = store_in(&name).connect().await.unwrap();
    let created = other.create(note()).await.unwrap();

    assert!(created.updated_at > held.updated_at);
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut stopped)
        .await
        .unwrap();
}
