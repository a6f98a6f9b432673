//! SQL that writes and reads a tenant's events in the table `ux_events`.

use super::column::Id;
use super::statement::Statement;
use super::tenant::provisional_number;
use crate::model::Event;
use crate::store::durable::events::kind;

/// SQL condition that is true if the tenant named `$1` has unrejected rows in the table `ux_inbox`, and the session's user and
/// server allow changes to the table.
macro_rules! has_inbox {
    () => {
        "NOT pg_is_in_recovery() AND EXISTS (SELECT 1 FROM ux_inbox AS i WHERE i.tenant = $1 AND i.refused IS NULL)
            AND has_table_privilege('ux_inbox', 'DELETE') AND has_table_privilege('ux_inbox', 'UPDATE')"
    };
}

pub(super) use has_inbox;

/// Adds the insertion of events, at the tenant's next positions, to an SQL statement.
pub(super) fn push(statement: &mut Statement, events: &[Event]) {
    if events.is_empty() {
        return;
    }
    fn all<T>(events: &[Event], of: impl Fn(&Event) -> T) -> Vec<T> {
        events.iter().map(of).collect()
    }
    statement.push(
        ", noted AS (INSERT INTO ux_events (breadcrumb_id, version, updated_at, kind, schema_name, tags, position,
             tenant) SELECT u.id, u.version, t.base + u.updated_at, u.kind, u.schema_name, u.tags, t.position + u.place,
             t.id FROM t CROSS JOIN ",
    );
    let columns = vec![
        all(events, |event| Id::from(event.breadcrumb_id)).into(),
        all(events, |event| event.version.cast_signed()).into(),
        all(events, |event| provisional_number(event.updated_at)).into(),
        all(events, |event| kind(event.kind)).into(),
        all(events, |event| event.schema_name.clone()).into(),
        all(events, tags).into(),
    ];
    statement.push_rows(events.len(), columns, true);
    statement.push(" AS u (id, version, updated_at, kind, schema_name, tags, place))");
}

/// Formats the tags of an event as a JSON array.
fn tags(event: &Event) -> String {
    serde_json::Value::from(event.tags.to_vec()).to_string()
}

/// SQL that each connection prepares to read a tenant's first and last event position, and its events from a position on.
///
/// One snapshot contains all of this, so no event is removed in between. A transaction locks the tenant's row before it assigns a
/// position, and until its commit. So an event that is not visible yet has a higher position than all visible ones.
///
/// `is_durable` is true if all visible commits are certainly durable. A standby has only durable commits. With synchronous standbys the
/// column is false, because the server does not report which commits they have.
pub(super) const NEXT: &str = concat!(
    "PREPARE ux_next (text, bigint, bigint, bigint, bigint) AS
    SELECT t.first_event, t.position, e.*, s.breadcrumb_id AS seen_id, s.version AS seen_version,
        CASE WHEN pg_is_in_recovery() THEN TRUE ELSE current_setting('synchronous_standby_names') = ''
            AND pg_current_wal_insert_lsn() <= pg_current_wal_flush_lsn() END AS is_durable,
        (",
    has_inbox!(),
    ") AS has_inbox
    FROM ux_tenants AS t LEFT JOIN LATERAL (
        SELECT e.position AS place, e.kind, e.breadcrumb_id, e.version, e.updated_at, e.schema_name, e.tags, b.context
        FROM ux_events AS e LEFT JOIN LATERAL (SELECT b.context FROM ux_breadcrumbs AS b WHERE b.tenant = e.tenant
            AND b.id = e.breadcrumb_id AND b.version = e.version AND octet_length(b.context) <= $4 LIMIT 1) AS b ON TRUE
        WHERE e.tenant = t.id AND e.position >= $2 ORDER BY e.position LIMIT $3
    ) AS e ON TRUE LEFT JOIN ux_events AS s ON s.tenant = t.id AND s.position = $5
    WHERE t.name = $1 ORDER BY e.place"
);
