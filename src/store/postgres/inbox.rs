//! Table `ux_inbox`: new breadcrumbs that other programs insert in their own transactions.

use super::column::{self, Id};
use super::error::Fault;
use super::events::has_inbox;
use super::job::Job;
use super::stage;
use super::transaction::TenantTransaction;
use crate::model::BreadcrumbId;
use crate::store::StoreError;
use crate::store::durable::inbox::{ENOUGH_BYTES, InboxImport, InboxRow, Refusal};
use sqlx::{PgConnection, Row as _};

/// Returns `true` if a tenant has unrejected rows in the table `ux_inbox`, and the connection's user and server allow changes to
/// the table.
pub(super) async fn has_rows(connection: &mut PgConnection, tenant: &str) -> sqlx::Result<bool> {
    let has_rows = sqlx::query_scalar(concat!("SELECT ", has_inbox!()));
    let has_rows = has_rows.bind(column::name(tenant));
    has_rows.fetch_one(connection).await
}

/// Store operation that creates breadcrumbs from the oldest rows of the table `ux_inbox`, at most `most` rows, and deletes these
/// rows. A rejected row stays and gets the reason. Does nothing while another transaction imports rows of the tenant, so the rows
/// retain their order.
pub(super) struct ImportInbox {
    pub(super) most: usize,
}

impl Job for ImportInbox {
    type Answer = InboxImport;

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<InboxImport, Fault> {
        let rows = self.lock_oldest_rows(transaction).await?;
        let used_ids = used_ids(transaction, &rows).await?;
        let (mut imported, mut refused) = (Vec::new(), Vec::new());
        for row in &rows {
            match create(transaction, row, &used_ids).await? {
                Ok(()) => imported.push(row.serial),
                Err(refusal) => refused.push((row.serial, refusal.text())),
            }
        }
        if !imported.is_empty() {
            let delete = sqlx::query("DELETE FROM ux_inbox AS i WHERE i.serial = ANY($1)");
            delete
                .bind(imported)
                .execute(transaction.connection_for_changes())
                .await?;
        }
        let answer = InboxImport {
            rows: rows.len(),
            refused: refused.len(),
        };
        if !refused.is_empty() {
            let (serials, reasons): (Vec<i64>, Vec<String>) = refused.into_iter().unzip();
            let refuse = sqlx::query(
                "UPDATE ux_inbox AS i SET refused = u.reason FROM unnest($1::bigint[], $2::text[]) AS u (serial, reason)
                 WHERE i.serial = u.serial",
            );
            let refuse = refuse.bind(serials).bind(reasons);
            refuse.execute(transaction.connection_for_changes()).await?;
        }
        Ok(answer)
    }
}

impl ImportInbox {
    /// Locks and reads the tenant's oldest rows of the table `ux_inbox` that are not rejected, up to a total size in bytes. Skips
    /// rows that another transaction has locked.
    async fn lock_oldest_rows(
        &self,
        transaction: &mut TenantTransaction<'_>,
    ) -> sqlx::Result<Vec<InboxRow>> {
        /// First key of the advisory lock on a tenant's inbox (`ux_i` in ASCII).
        const LOCK: i32 = 0x7578_5F69;
        let tenant = column::name(transaction.name);
        let lock = "SELECT pg_try_advisory_xact_lock($1, hashtext(current_schema() || ' ' || $2))";
        let lock = sqlx::query_scalar::<_, bool>(lock).bind(LOCK);
        // These statements change nothing, so a later failure of the job needs no rollback of them.
        let connection = &mut *transaction.connection;
        if !lock.bind(&*tenant).fetch_one(&mut *connection).await? {
            return Ok(Vec::new());
        }
        let rows = sqlx::query(
            "SELECT i.serial, octet_length(i.breadcrumb::text) FROM ux_inbox AS i WHERE i.tenant = $1 AND i.refused IS NULL
             ORDER BY i.serial LIMIT $2 FOR UPDATE SKIP LOCKED",
        );
        let most = i64::try_from(self.most).unwrap_or(i64::MAX);
        let rows = rows.bind(&*tenant).bind(most);
        let (mut serials, mut bytes) = (Vec::<i64>::new(), 0);
        for row in rows.fetch_all(&mut *connection).await? {
            if bytes < ENOUGH_BYTES {
                serials.push(row.try_get(0)?);
                bytes += usize::try_from(row.try_get::<i32, _>(1)?).unwrap_or(ENOUGH_BYTES);
            }
        }
        let texts = sqlx::query(
            "SELECT i.serial, i.id, i.breadcrumb::text FROM ux_inbox AS i WHERE i.serial = ANY($1) ORDER BY i.serial",
        );
        let mut rows = Vec::with_capacity(serials.len());
        for row in texts.bind(serials).fetch_all(connection).await? {
            let id: Option<Id> = row.try_get(1)?;
            rows.push(InboxRow {
                serial: row.try_get(0)?,
                id: id.map(Into::into),
                text: row.try_get::<String, _>(2)?.into_bytes(),
            });
        }
        Ok(rows)
    }
}

/// Returns the IDs that rows of the table `ux_inbox` specify for new breadcrumbs, but that are already in use. An ID is in use if
/// a breadcrumb or a tombstone of the tenant has it.
async fn used_ids(
    transaction: &mut TenantTransaction<'_>,
    rows: &[InboxRow],
) -> sqlx::Result<Vec<BreadcrumbId>> {
    let chosen: Vec<Id> = rows.iter().filter_map(|row| row.id).map(Id::from).collect();
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let used_ids =
        sqlx::query("SELECT b.id FROM ux_breadcrumbs AS b WHERE b.tenant = $1 AND b.id = ANY($2)");
    let used_ids = used_ids.bind(transaction.tenant.id).bind(chosen);
    let used_ids = used_ids.fetch_all(&mut *transaction.connection).await?;
    used_ids.iter().map(|row| column::id(row, 0)).collect()
}

/// Creates a breadcrumb from a row of the table `ux_inbox`. The inner error is the reason for rejecting the row.
async fn create(
    transaction: &mut TenantTransaction<'_>,
    row: &InboxRow,
    used_ids: &[BreadcrumbId],
) -> Result<Result<(), Refusal>, Fault> {
    let new = match row.read(transaction.limits.breadcrumb_bytes) {
        Ok(new) => new,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Some(id) = row.id
        && used_ids.contains(&id)
    {
        return Ok(Err(Refusal::Exists(id)));
    }
    match stage::create(transaction, row.id, new).await {
        Err(Fault::Refused(error @ StoreError::Rejected { .. })) => {
            Ok(Err(Refusal::Rejected(error)))
        }
        Ok(_) => Ok(Ok(())),
        Err(error) => Err(error),
    }
}
