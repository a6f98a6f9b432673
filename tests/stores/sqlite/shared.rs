//! Handles of one process on the same file, which share a database.

use crate::sqlite::{Folder, quick, soon, wakes};
use futures::StreamExt as _;
use futures::future::join_all;
use rusqlite::Connection;
use std::fs;
use std::path::Path;
use std::time::Duration;
use universal_executor::source::StartAt;
use universal_executor::store::{SqliteLimits, StoreError};
use universal_executor::{BreadcrumbStoreExt, EventSource, NewBreadcrumb, SqliteStore};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

/// Returns the number of this process's open connections to a file.
#[cfg(target_os = "linux")]
fn connections(path: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let targets = open.filter_map(|one| fs::read_link(one.ok()?.path()).ok());
    targets.filter(|target| target == path).count()
}

/// Opens a store that never checks the file for events of other processes.
async fn deaf(path: &Path) -> SqliteStore {
    let hour = Duration::from_secs(3_600);
    let store = quick(path).poll_every(hour).readers(1).without_datagrams();
    store.open().await.unwrap()
}

#[tokio::test]
async fn a_commit_of_one_handle_wakes_the_subscribers_of_another() {
    let folder = Folder::new();
    let (one, other) = (deaf(&folder.file()).await, deaf(&folder.file()).await);
    let mut events = other.events().subscribe(StartAt::Now).await.unwrap();

    wakes(&one, &other, &mut events).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn handles_on_one_file_have_one_set_of_connections() {
    let folder = Folder::new();
    let first = quick(&folder.file()).open().await.unwrap();
    let of_one = connections(&folder.file());

    let more = join_all((0..8).map(|_| quick(&folder.file()).open())).await;

    assert!(more.iter().all(Result::is_ok));
    assert_eq!(connections(&folder.file()), of_one);
    drop(first);
    for store in more {
        soon(store.unwrap().close()).await;
    }
    assert_eq!(
        connections(&folder.file()),
        0,
        "the last handle must close all connections"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn handles_that_open_a_new_file_at_once_have_one_set_of_connections() {
    let (folder, alone) = (Folder::new(), Folder::new());
    let single = quick(&alone.file()).open().await.unwrap();

    let opened = join_all((0..8).map(|_| quick(&folder.file()).open())).await;

    assert!(opened.iter().all(Result::is_ok));
    assert_eq!(connections(&folder.file()), connections(&alone.file()));
    drop(single);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_handle_with_other_settings_of_the_connections_has_its_own() {
    let folder = Folder::new();
    let first = quick(&folder.file()).open().await.unwrap();
    let of_one = connections(&folder.file());

    let patient = quick(&folder.file()).busy_timeout(Duration::from_secs(9));
    let second = patient.open().await.unwrap();

    assert_eq!(connections(&folder.file()), 2 * of_one);
    let written = first.create(note()).await.unwrap();
    assert_eq!(second.latest("note.v1").await.unwrap(), Some(written));
}

#[cfg(unix)]
#[tokio::test]
async fn a_handle_that_was_opened_through_a_link_shares_the_database_of_the_file() {
    let folder = Folder::new();
    let link = folder.0.join("link.db");
    let one = deaf(&folder.file()).await;
    std::os::unix::fs::symlink(folder.file(), &link).unwrap();

    let other = deaf(&link).await;

    let mut events = other.events().subscribe(StartAt::Now).await.unwrap();
    wakes(&one, &other, &mut events).await;
}

#[tokio::test]
async fn handles_on_different_files_share_nothing() {
    let (folder, other) = (Folder::new(), Folder::new());
    let one = quick(&folder.file()).open().await.unwrap();
    let other = quick(&other.file()).open().await.unwrap();

    one.create(note()).await.unwrap();

    assert_eq!(other.latest("note.v1").await.unwrap(), None);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_replaced_another_is_not_shared_with_its_handles() {
    let folder = Folder::new();
    let copy = folder.0.join("copy.db");
    let old = quick(&folder.file()).open().await.unwrap();
    let reader = quick(&folder.file()).read_only();
    let old_reader = reader.clone().open().await.unwrap();
    let backup = format!("VACUUM INTO '{}'", copy.display());
    let source = Connection::open(folder.file()).unwrap();
    source.execute_batch(&backup).unwrap();
    old.create(note()).await.unwrap();

    fs::rename(&copy, folder.file()).unwrap();
    for file in ["store.db-wal", "store.db-shm"] {
        fs::remove_file(folder.0.join(file)).unwrap();
    }
    let new = quick(&folder.file()).open().await.unwrap();

    assert_eq!(
        new.latest("note.v1").await.unwrap(),
        None,
        "the copy must not have the note"
    );
    let written = new.create(note()).await.unwrap();
    let reader = reader.open().await.unwrap();
    assert_eq!(reader.latest("note.v1").await.unwrap(), Some(written));
    drop(old_reader);
    let refused = old.create(note()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_database_that_refuses_writes_is_opened_again_for_a_new_handle() {
    let folder = Folder::new();
    let broken = quick(&folder.file()).open().await.unwrap();
    let file = Connection::open(folder.file()).unwrap();
    let version = "SELECT version FROM ux_schema_version";
    let version: i64 = file.query_row(version, (), |row| row.get(0)).unwrap();
    let set = |version| {
        let update = "UPDATE ux_schema_version SET version = ?1";
        file.execute(update, [version]).unwrap();
    };
    set(99);
    assert!(broken.create(note()).await.is_err());

    set(version);
    let repaired = quick(&folder.file()).open().await.unwrap();

    repaired.create(note()).await.unwrap();
    assert!(broken.create(note()).await.is_err());
}

#[tokio::test]
async fn each_handle_has_its_own_limits() {
    let folder = Folder::new();
    let mut limits = SqliteLimits::default();
    limits.breadcrumbs = 1;
    let small = quick(&folder.file()).limits(limits).open().await.unwrap();
    let large = quick(&folder.file()).open().await.unwrap();

    for _ in 0..2 {
        large.create(note()).await.unwrap();
    }

    let refused = small.create(note()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full { .. }), "{refused:?}");
}

#[tokio::test]
async fn closing_a_handle_waits_for_its_last_acknowledgements() {
    let folder = Folder::new();
    let one = quick(&folder.file()).open().await.unwrap();
    let other = quick(&folder.file()).open().await.unwrap();
    let consumer = one.events_of("consumer");
    let mut events = consumer.subscribe(StartAt::Now).await.unwrap();
    other.create(note()).await.unwrap();
    let delivery = soon(events.next()).await.unwrap().unwrap();
    let foreign = Connection::open(folder.file()).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();

    delivery.ack().await.unwrap();
    drop((delivery, events, consumer));
    let mut closing = Box::pin(one.close());
    for _ in 0..100 {
        assert!(futures::poll!(&mut closing).is_pending());
        tokio::task::yield_now().await;
    }

    foreign.execute_batch("COMMIT").unwrap();
    soon(closing).await;
    let position = "SELECT position FROM ux_consumers";
    let position = foreign.query_row(position, (), |row| row.get::<_, i64>(0));
    assert_eq!(position.unwrap(), 1);
    other.create(note()).await.unwrap();
}

#[tokio::test]
async fn closing_a_handle_does_not_wait_for_another_one() {
    let folder = Folder::new();
    let one = quick(&folder.file()).open().await.unwrap();
    let other = quick(&folder.file()).open().await.unwrap();

    soon(one.close()).await;

    other.create(note()).await.unwrap();
    let wal = folder.0.join("store.db-wal");
    assert!(wal.exists());
    soon(other.close()).await;
    assert!(!wal.exists(), "the last handle must close the file");
}
