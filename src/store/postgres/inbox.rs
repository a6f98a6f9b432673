//! The table `ux_inbox`: new breadcrumbs that other programs insert in their transactions.

use super::NAME;
use super::column::{self, Id};
use super::database::{Job, Read};
use super::error::Fault;
use super::stage;
use super::writing::Writing;
use crate::store::StoreError;
use crate::store::durable::inbox::{Inserted, Refusal, log_refused};
use crate::store::durable::tenant::Time;
use sqlx::{PgConnection, Row as _};

/// Reads whether there are rows of a tenant that the store can take in.
pub(super) async fn is_filled(connection: &mut PgConnection, tenant: &str) -> sqlx::Result<bool> {
    let is_filled = sqlx::query_scalar(
        "SELECT NOT pg_is_in_recovery() AND EXISTS (SELECT 1 FROM ux_inbox AS i WHERE i.tenant = $1 AND i.refused IS NULL)",
    );
    let is_filled = is_filled.bind(column::name(tenant));
    is_filled.fetch_one(connection).await
}

/// Reads the oldest rows that the store can take in.
pub(super) struct First<'t> {
    pub(super) tenant: &'t str,
    pub(super) most: i64,
}

impl Read for First<'_> {
    type Answer = Vec<Inserted>;

    fn tenant(&self) -> Option<&str> {
        None
    }

    async fn run(&self, connection: &mut PgConnection, _: &Time) -> Result<Self::Answer, Fault> {
        let first = sqlx::query(
            "SELECT i.serial, i.id, i.breadcrumb::text FROM ux_inbox AS i WHERE i.tenant = $1 AND i.refused IS NULL
             ORDER BY i.serial LIMIT $2",
        );
        let first = first.bind(column::name(self.tenant)).bind(self.most);
        let mut rows = Vec::new();
        for row in first.fetch_all(connection).await? {
            let id: Option<Id> = row.try_get(1)?;
            rows.push(Inserted {
                serial: row.try_get(0)?,
                id: id.map(Into::into),
                text: row.try_get(2)?,
            });
        }
        Ok(rows)
    }
}

/// Creates the breadcrumbs of rows, and deletes these rows. A row that cannot be taken in gets its reason. Rows that another transaction
/// takes in are left to it.
pub(super) struct TakeIn(pub(super) Vec<Inserted>);

impl Job for TakeIn {
    type Answer = ();

    async fn run(&self, writing: &mut Writing<'_>) -> Result<(), Fault> {
        let serials: Vec<i64> = self.0.iter().map(|row| row.serial).collect();
        let lock = sqlx::query_scalar(
            "SELECT i.serial FROM ux_inbox AS i WHERE i.serial = ANY($1) AND i.refused IS NULL FOR UPDATE SKIP LOCKED",
        );
        let locked: Vec<i64> = lock.bind(serials).fetch_all(writing.tells()).await?;
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        for row in &self.0 {
            if !locked.contains(&row.serial) {
                continue;
            }
            match create(writing, row).await? {
                Ok(()) => taken.push(row.serial),
                Err(refusal) => refused.push((row.serial, refusal.text())),
            }
        }
        let delete = sqlx::query("DELETE FROM ux_inbox AS i WHERE i.serial = ANY($1)");
        delete.bind(taken).execute(writing.tells()).await?;
        if refused.is_empty() {
            return Ok(());
        }
        log_refused(NAME, writing.name, refused.len());
        let (serials, reasons): (Vec<i64>, Vec<String>) = refused.into_iter().unzip();
        let refuse = sqlx::query(
            "UPDATE ux_inbox AS i SET refused = u.reason FROM unnest($1::bigint[], $2::text[]) AS u (serial, reason)
             WHERE i.serial = u.serial",
        );
        let refuse = refuse.bind(serials).bind(reasons);
        refuse.execute(writing.tells()).await?;
        Ok(())
    }
}

/// Creates the breadcrumb of a row. The inner error is the reason why the row is refused.
async fn create(writing: &mut Writing<'_>, row: &Inserted) -> Result<Result<(), Refusal>, Fault> {
    let new = match row.read(writing.limits.breadcrumb_bytes) {
        Ok(new) => new,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Some(id) = row.id
        && writing.breadcrumb(id).await?.is_some()
    {
        return Ok(Err(Refusal::Exists(id)));
    }
    match stage::create(writing, row.id, new).await {
        Err(Fault::Refused(error @ StoreError::Rejected { .. })) => {
            Ok(Err(Refusal::Rejected(error)))
        }
        Ok(_) => Ok(Ok(())),
        Err(error) => Err(error),
    }
}
