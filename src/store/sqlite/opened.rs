//! State of one opened SQLite store, which is shared by all handles from the same call of `open`. The state contains a database,
//! and settings that other handles on the file do not share.

use super::builder::{Settings, SqliteLimits};
use super::database::Database;
use super::error::{Fault, SqliteError};
use super::sweep::Sweep;
use super::tenant::TenantTransaction;
use super::vectors;
use crate::error::Retry;
use crate::store::StoreError;
use crate::store::durable::tenant::StoreClock;
use crate::store::embedding::VectorMaintainers;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::watch;

/// State of one opened SQLite store, shared by its clones, tenant handles and subscriptions.
#[derive(Debug)]
pub(super) struct OpenedStore {
    pub(super) database: Arc<Database>,
    pub(super) limits: SqliteLimits,
    pub(super) time: Arc<StoreClock>,
    /// Background computation of missing vectors for the breadcrumbs of all tenants, or `None` without an embedder.
    pub(super) maintainers: Option<VectorMaintainers>,
    /// Sender whose receivers close when the last store handle is dropped, to notify callers that wait for the end of the store.
    /// The field comes after `database`, and Rust drops fields in the order of declaration, so the handle has already released
    /// the database.
    handles: watch::Sender<()>,
}

impl OpenedStore {
    pub(super) async fn new(path: &Path, settings: Settings) -> Result<Self, SqliteError> {
        let database = Database::open(path, settings.database.clone()).await?;
        prepare_vectors(&database, &settings).await?;
        Ok(Self {
            database,
            limits: settings.limits,
            time: Arc::default(),
            maintainers: settings.embeddings.map(VectorMaintainers::new),
            handles: watch::Sender::new(()),
        })
    }

    /// Changes a tenant's data in the next transaction of the SQLite writer thread, and returns the result after the commit.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        tenant: &Arc<str>,
        work: impl FnOnce(&mut TenantTransaction<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (limits, time) = (self.limits, Arc::clone(&self.time));
        let tenant = Arc::clone(tenant);
        let work = move |connection: &Connection| {
            TenantTransaction::with(connection, &limits, &tenant, &time, |transaction| {
                let before = transaction.tenant.position;
                let result = work(transaction)?;
                Ok((result, transaction.tenant.position != before))
            })
        };
        self.database.write(work).await
    }

    /// Starts a background sweep that removes the tenant's expired breadcrumbs in small jobs, unless a sweep is running.
    pub(super) fn sweep(&self, tenant: &Arc<str>) {
        let running = &self.database.is_sweeping;
        if !running.swap(true, Ordering::SeqCst) {
            let sweep = Sweep {
                limits: self.limits,
                time: Arc::clone(&self.time),
                tenant: Arc::clone(tenant),
                writes: self.database.jobs(),
                is_running: Arc::clone(running),
            };
            sweep.run_next_step();
        }
    }

    /// Returns a future that ends when the handles of this opened store are dropped and the SQLite file is closed. If another handle uses
    /// the database, the future ends when the last acknowledgements are stored.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let mut handles = self.handles.subscribe();
        let (database, closed) = (Arc::downgrade(&self.database), self.database.closed());
        let stored = self.database.acknowledgements_stored();
        async move {
            // No value is ever sent. The receiver fails when the last handle is dropped.
            while handles.changed().await.is_ok() {}
            match database.strong_count() {
                0 => closed.await,
                _ => stored.await,
            }
        }
    }
}

/// Deletes all stored vectors of breadcrumbs if the store was built with the option `forget_vectors`. Records the embedder's
/// model if the SQLite file names none, and fails if the file names another model.
async fn prepare_vectors(database: &Database, settings: &Settings) -> Result<(), SqliteError> {
    if settings.embeddings.is_none() && !settings.forgets_vectors {
        return Ok(());
    }
    let (config, forgets) = (settings.embeddings.clone(), settings.forgets_vectors);
    let prepare = move |connection: &Connection| {
        Ok((
            vectors::prepare(connection, config.as_ref(), forgets)?,
            false,
        ))
    };
    let prepared = database.write(prepare).await;
    let prepared = prepared.map_err(|error| match error.retry() {
        Retry::After(retry_after) => SqliteError::Unavailable {
            retry_after,
            source: error.into(),
        },
        Retry::Never => SqliteError::cannot_open(&database.path, error),
    })?;
    Ok(prepared?)
}
