//! Stores with other limits than the defaults.

use crate::worker_sides::SharedStore;
use crate::worker_sides::memory::Memory;
use crate::worker_sides::postgres::Postgres;
use crate::worker_sides::sqlite::Sqlite;
use std::path::PathBuf;
use universal_executor::store::{Durability, MemoryLimits, PostgresLimits, SqliteLimits};
use universal_executor::{EventSource, MemoryStore, PostgresStore, SqliteStore};

/// Numbers of rows that a tenant retains.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) breadcrumbs: usize,
    pub(crate) finished_runs: usize,
    pub(crate) events: usize,
    pub(crate) tombstones: usize,
}

/// A store with these limits.
pub(crate) struct Limited<'a, S> {
    pub(crate) shared: &'a S,
    pub(crate) rows: Rows,
    /// Limit of [`MemoryLimits::event_bytes`] and [`MemoryLimits::tombstone_bytes`].
    pub(crate) bytes: usize,
}

impl<'a> SharedStore for Limited<'a, Memory> {
    type Handle = MemoryStore;
    type Location = MemoryStore;

    fn create(&self) -> MemoryStore {
        let mut limits = MemoryLimits::default();
        limits.breadcrumbs = self.rows.breadcrumbs;
        limits.finished_runs = self.rows.finished_runs;
        limits.events = self.rows.events;
        limits.tombstones = self.rows.tombstones;
        (limits.event_bytes, limits.tombstone_bytes) = (self.bytes, self.bytes);
        MemoryStore::with_limits(limits)
    }

    async fn open(&self, location: &MemoryStore) -> MemoryStore {
        self.shared.open(location).await
    }

    fn events(handle: &MemoryStore) -> impl EventSource + use<'a> {
        Memory::events(handle)
    }

    async fn close(handle: MemoryStore) {
        Memory::close(handle).await;
    }

    fn remove(&self, location: MemoryStore) {
        self.shared.remove(location);
    }
}

impl<'a> SharedStore for Limited<'a, Sqlite> {
    type Handle = SqliteStore;
    type Location = PathBuf;

    fn create(&self) -> PathBuf {
        self.shared.create()
    }

    async fn open(&self, location: &PathBuf) -> SqliteStore {
        let mut limits = SqliteLimits::default();
        limits.breadcrumbs = self.rows.breadcrumbs;
        limits.finished_runs = self.rows.finished_runs;
        limits.events = self.rows.events;
        limits.tombstones = self.rows.tombstones;
        let builder = SqliteStore::builder(location).durability(Durability::Full);
        builder.limits(limits).open().await.unwrap()
    }

    fn events(handle: &SqliteStore) -> impl EventSource + use<'a> {
        Sqlite::events(handle)
    }

    async fn close(handle: SqliteStore) {
        Sqlite::close(handle).await;
    }

    fn remove(&self, location: PathBuf) {
        self.shared.remove(location);
    }
}

impl<'a> SharedStore for Limited<'a, Postgres> {
    type Handle = PostgresStore;
    type Location = String;

    fn create(&self) -> String {
        self.shared.create()
    }

    async fn open(&self, location: &String) -> PostgresStore {
        let mut limits = PostgresLimits::default();
        limits.breadcrumbs = self.rows.breadcrumbs;
        limits.finished_runs = self.rows.finished_runs;
        limits.events = self.rows.events;
        limits.tombstones = self.rows.tombstones;
        let builder = self.shared.builder().limits(limits);
        builder.connect().await.unwrap().in_tenant(location)
    }

    fn events(handle: &PostgresStore) -> impl EventSource + use<'a> {
        Postgres::events(handle)
    }

    async fn close(handle: PostgresStore) {
        Postgres::close(handle).await;
    }

    fn remove(&self, location: String) {
        self.shared.remove(location);
    }
}
