//! Commits of other processes wake a store's subscribers.

use crate::child::run_alone;
use crate::sqlite::{Folder, quick, soon, wakes};
use futures::StreamExt as _;
use rusqlite::Connection;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use universal_executor::source::{Deliveries, StartAt};
use universal_executor::store::SqliteBuilder;
use universal_executor::{
    BreadcrumbId, BreadcrumbStoreExt, EventSource, NewBreadcrumb, SqliteStore,
};
use uuid::Uuid;

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

/// Returns the builder of an unshared store, like in another process, that never checks the file, so that only datagrams wake it.
fn by_datagram(path: &Path) -> SqliteBuilder {
    let never = Duration::from_secs(3_600);
    let store = quick(path).unshared().readers(1);
    store.poll_every(never)
}

/// Returns the builder of an unshared store that only checks of the file wake.
fn by_check(path: &Path) -> SqliteBuilder {
    let often = Duration::from_millis(1);
    let store = quick(path).unshared().readers(1);
    store.poll_every(often).without_datagrams()
}

async fn subscribe(store: &SqliteStore) -> Deliveries {
    store.events().subscribe(StartAt::Now).await.unwrap()
}

async fn next(events: &mut Deliveries) -> BreadcrumbId {
    let next = soon(events.next()).await.unwrap();
    next.unwrap().event.breadcrumb_id
}

/// Returns the IDs of the registered listeners.
fn listeners(path: &Path) -> Vec<Uuid> {
    let file = Connection::open(path).unwrap();
    let mut rows = file.prepare("SELECT id FROM ux_listeners").unwrap();
    let rows = rows.query_map((), |row| row.get(0).map(Uuid::from_bytes));
    rows.unwrap().map(Result::unwrap).collect()
}

/// Waits until this number of listeners is registered.
async fn registered(path: &Path, count: usize) {
    let wait = async {
        while listeners(path).len() != count {
            tokio::task::yield_now().await;
        }
    };
    soon(wait).await;
}

fn sockets(path: &Path) -> PathBuf {
    let mut folder = path.as_os_str().to_owned();
    folder.push("-listeners");
    folder.into()
}

fn socket(path: &Path, id: Uuid) -> PathBuf {
    sockets(path).join(id.simple().to_string())
}

/// Registers a socket of the test.
fn register(path: &Path) -> UnixDatagram {
    let id = Uuid::new_v4();
    fs::create_dir_all(sockets(path)).unwrap();
    fs::set_permissions(sockets(path), Permissions::from_mode(0o700)).unwrap();
    let bound = UnixDatagram::bind(socket(path, id)).unwrap();
    let file = Connection::open(path).unwrap();
    let insert = "INSERT INTO ux_listeners VALUES (?1)";
    file.execute(insert, [id.into_bytes()]).unwrap();
    bound
}

#[tokio::test]
async fn a_commit_wakes_another_database_through_its_datagram() {
    let folder = Folder::new();
    let writer = by_datagram(&folder.file()).open().await.unwrap();
    let other = by_datagram(&folder.file()).open().await.unwrap();
    let mut events = subscribe(&other).await;
    registered(&folder.file(), 1).await;

    wakes(&writer, &other, &mut events).await;
}

#[tokio::test]
async fn a_commit_wakes_a_database_without_datagrams_through_the_check_of_the_file() {
    let folder = Folder::new();
    let writer = quick(&folder.file()).open().await.unwrap();
    let other = by_check(&folder.file()).open().await.unwrap();
    let mut events = subscribe(&other).await;

    wakes(&writer, &other, &mut events).await;

    assert!(listeners(&folder.file()).is_empty());
}

#[tokio::test]
async fn a_read_only_store_is_woken_through_the_check_of_the_file() {
    let folder = Folder::new();
    let writer = quick(&folder.file()).open().await.unwrap();
    let often = by_check(&folder.file());
    let other = often.read_only().open().await.unwrap();
    let mut events = subscribe(&other).await;

    wakes(&writer, &other, &mut events).await;
}

#[tokio::test]
async fn a_commit_of_a_foreign_program_wakes_a_subscriber() {
    let folder = Folder::new();
    let store = by_check(&folder.file()).open().await.unwrap();
    let written = store.create(note()).await.unwrap().id;
    let mut events = subscribe(&store).await;
    let foreign = Connection::open(folder.file()).unwrap();

    for position in 2..5 {
        let mut next = std::pin::pin!(next(&mut events));
        for _ in 0..2 {
            assert!(futures::poll!(&mut next).is_pending());
            store.latest("nothing.v1").await.unwrap();
        }
        let copy = "INSERT INTO ux_events SELECT tenant, ?1, kind, breadcrumb_id, version, updated_at, schema_name, tags
                    FROM ux_events WHERE position = 1";
        let transaction = foreign.unchecked_transaction().unwrap();
        transaction.execute(copy, [position]).unwrap();
        let count = "UPDATE ux_tenants SET position = ?1";
        transaction.execute(count, [position]).unwrap();
        transaction.commit().unwrap();

        assert_eq!(next.await, written);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_path_that_is_too_long_for_a_socket_address_has_datagrams() {
    let folder = Folder::new();
    let long = folder.0.join("x".repeat(200));
    fs::create_dir(&long).unwrap();
    let file = long.join("store.db");
    let writer = by_datagram(&file).open().await.unwrap();
    let other = by_datagram(&file).open().await.unwrap();
    let mut events = subscribe(&other).await;
    registered(&file, 1).await;

    wakes(&writer, &other, &mut events).await;
}

#[tokio::test]
async fn only_the_owner_can_reach_the_sockets_and_the_last_one_removes_their_folder() {
    let folder = Folder::new();
    let (one, other) = (by_datagram(&folder.file()), by_datagram(&folder.file()));
    let (one, other) = (one.open().await.unwrap(), other.open().await.unwrap());
    assert!(
        !sockets(&folder.file()).exists(),
        "the folder must not exist before the first subscription"
    );
    let events = (subscribe(&one).await, subscribe(&other).await);
    registered(&folder.file(), 2).await;

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&sockets(&folder.file())), 0o700);
    for id in listeners(&folder.file()) {
        assert_eq!(mode(&socket(&folder.file(), id)), 0o600);
    }

    drop(events);
    soon(one.close()).await;
    assert_eq!(listeners(&folder.file()).len(), 1);
    soon(other.close()).await;
    assert!(listeners(&folder.file()).is_empty());
    assert!(!sockets(&folder.file()).exists());
}

#[tokio::test]
async fn a_commit_deletes_the_registration_of_a_dead_listener() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let (alive, dead) = (register(&folder.file()), register(&folder.file()));
    drop(dead);

    for _ in 0..2 {
        store.create(note()).await.unwrap();
    }

    let left = listeners(&folder.file());
    let path = alive.local_addr().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(path.as_pathname(), Some(&*socket(&folder.file(), left[0])));
    let files = fs::read_dir(sockets(&folder.file())).unwrap();
    assert_eq!(files.count(), 1);
}

#[tokio::test]
async fn a_new_subscription_removes_the_sockets_of_killed_processes() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    drop(register(&folder.file()));
    let without_row = socket(&folder.file(), Uuid::new_v4());
    drop(UnixDatagram::bind(&without_row).unwrap());
    let foreign = sockets(&folder.file()).join("foreign.txt");
    fs::write(&foreign, "a").unwrap();
    let before = listeners(&folder.file());

    let _events = subscribe(&store).await;

    let replaced = async {
        while listeners(&folder.file()) == before || listeners(&folder.file()).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    soon(replaced).await;
    let files = fs::read_dir(sockets(&folder.file())).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    let own = socket(&folder.file(), listeners(&folder.file())[0]);
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(
        files.contains(&own) && files.contains(&foreign),
        "{files:?}"
    );
}

#[tokio::test]
async fn a_listener_that_reads_nothing_does_not_block_commits() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let silent = register(&folder.file());

    let commits = async {
        for _ in 0..1_000 {
            store.create(note()).await.unwrap();
        }
    };
    soon(commits).await;

    silent.set_nonblocking(true).unwrap();
    assert_eq!(silent.recv(&mut [0]).unwrap(), 1);
    assert_eq!(
        listeners(&folder.file()).len(),
        1,
        "a live listener must stay registered"
    );
}

#[tokio::test]
async fn a_database_beyond_the_limit_of_listeners_is_woken_through_the_check_of_the_file() {
    let folder = Folder::new();
    let writer = quick(&folder.file()).open().await.unwrap();
    let registered: Vec<_> = (0..64).map(|_| register(&folder.file())).collect();
    let often = by_datagram(&folder.file()).poll_every(Duration::from_millis(1));
    let other = often.open().await.unwrap();
    let mut events = subscribe(&other).await;

    wakes(&writer, &other, &mut events).await;

    // The store's writer has tried to register before this commit.
    other.create(note()).await.unwrap();
    assert_eq!(listeners(&folder.file()).len(), registered.len());
}

#[tokio::test]
async fn a_folder_that_cannot_be_created_leaves_the_check_of_the_file() {
    let folder = Folder::new();
    let writer = quick(&folder.file()).open().await.unwrap();
    fs::write(sockets(&folder.file()), "a file in its place").unwrap();
    let often = by_datagram(&folder.file()).poll_every(Duration::from_millis(1));
    let other = often.open().await.unwrap();
    let mut events = subscribe(&other).await;

    wakes(&writer, &other, &mut events).await;

    assert!(listeners(&folder.file()).is_empty());
}

#[tokio::test]
async fn a_folder_that_others_can_read_or_that_is_a_link_leaves_the_check_of_the_file() {
    for is_link in [false, true] {
        let folder = Folder::new();
        let writer = quick(&folder.file()).open().await.unwrap();
        let (target, mode) = match is_link {
            true => (folder.0.join("target"), 0o700),
            false => (sockets(&folder.file()), 0o755),
        };
        fs::create_dir(&target).unwrap();
        fs::set_permissions(&target, Permissions::from_mode(mode)).unwrap();
        if is_link {
            std::os::unix::fs::symlink(&target, sockets(&folder.file())).unwrap();
        }
        let often = by_datagram(&folder.file()).poll_every(Duration::from_millis(1));
        let other = often.open().await.unwrap();
        let mut events = subscribe(&other).await;

        wakes(&writer, &other, &mut events).await;

        // The store's writer has tried to register before this commit.
        other.create(note()).await.unwrap();
        assert!(listeners(&folder.file()).is_empty());
    }
}

#[tokio::test]
async fn a_registration_with_an_invalid_id_does_not_make_commits_fail() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let file = Connection::open(folder.file()).unwrap();
    let insert = "INSERT INTO ux_listeners VALUES (x'00')";
    file.execute(insert, ()).unwrap();

    store.create(note()).await.unwrap();
}

const FILE: &str = "UNIVERSAL_EXECUTOR_TEST_FILE";
const COMMITS: &str = concat!(module_path!(), "::child_that_commits_for_each_line");
const SUBSCRIBES: &str = concat!(module_path!(), "::child_that_subscribes_until_it_is_killed");

fn child(test: &str, path: &Path) -> Child {
    let mut child = run_alone(test);
    child.env(FILE, path);
    child.stdin(Stdio::piped()).stdout(Stdio::piped());
    child.spawn().unwrap()
}

/// The committing child process of a test. It does nothing by itself.
#[tokio::test]
async fn child_that_commits_for_each_line() {
    let Some(path) = std::env::var_os(FILE) else {
        return;
    };
    let store = SqliteStore::open(path).await.unwrap();
    for line in std::io::stdin().lines() {
        line.unwrap();
        store.create(note()).await.unwrap();
    }
}

/// The subscribing child process of a test. It does nothing by itself.
#[tokio::test]
async fn child_that_subscribes_until_it_is_killed() {
    let Some(path) = std::env::var_os(FILE) else {
        return;
    };
    let store = SqliteStore::open(path).await.unwrap();
    let mut events = subscribe(&store).await;
    writeln!(std::io::stdout(), "subscribed").unwrap();
    while let Some(event) = events.next().await {
        let id = event.unwrap().event.breadcrumb_id;
        writeln!(std::io::stdout(), "heard {id}").unwrap();
    }
}

#[tokio::test]
async fn a_commit_of_another_process_wakes_a_subscriber_by_datagram_or_by_check() {
    for store in [by_datagram, by_check] {
        let folder = Folder::new();
        let store = store(&folder.file()).open().await.unwrap();
        let mut events = subscribe(&store).await;
        let mut child = child(COMMITS, &folder.file());
        let mut lines = child.stdin.take().unwrap();

        for count in 1..4 {
            writeln!(lines).unwrap();
            let heard = next(&mut events).await;
            let known = store.recent("note.v1", 10).await.unwrap();
            assert_eq!((known.len(), known[0].id), (count, heard));
        }

        drop(lines);
        assert!(child.wait().unwrap().success());
    }
}

#[tokio::test]
async fn the_registration_of_a_killed_process_disappears() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let mut child = child(SUBSCRIBES, &folder.file());
    let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(told.any(|line| line.unwrap().contains("subscribed")));
    registered(&folder.file(), 1).await;
    let written = store.create(note()).await.unwrap().id;
    let heard = format!("heard {written}");
    assert!(told.any(|line| line.unwrap().contains(&heard)));
    let left = listeners(&folder.file());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(socket(&folder.file(), left[0]).exists());

    for _ in 0..2 {
        store.create(note()).await.unwrap();
    }

    assert!(listeners(&folder.file()).is_empty());
    assert!(!socket(&folder.file(), left[0]).exists());
}
