//! Baseline: the SQLite driver alone, on one thread. It writes the store's rows with statements that are prepared once, and reads
//! nothing. It makes no checks, sends no notifications, and does not query the ledger.

use super::TEXT;
use rusqlite::{Connection, Statement, params};
use std::path::Path;
use universal_executor::store::Durability;
use uuid::Uuid;

/// The only tenant of the file, created by the store.
const TENANT: i64 = 1;

/// Opens a file of the store with the store's settings.
pub(crate) fn open(file: &Path, durability: Durability) -> Connection {
    let connection = Connection::open(file).unwrap();
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    for (pragma, value) in [("synchronous", synchronous), ("temp_store", "MEMORY")] {
        connection.pragma_update(None, pragma, value).unwrap();
    }
    connection
}

/// Returns the IDs of the breadcrumbs in a file, oldest first.
pub(crate) fn ids(connection: &Connection) -> Vec<[u8; 16]> {
    let mut ids = connection
        .prepare("SELECT id FROM ux_breadcrumbs ORDER BY serial")
        .unwrap();
    let ids = ids.query_map((), |row| row.get(0)).unwrap();
    ids.map(|id| id.unwrap()).collect()
}

/// Adds finished runs of an earlier time to a file.
pub(crate) fn add_finished(connection: &Connection, runs: usize) {
    let sql = format!(
        "BEGIN;
         INSERT INTO ux_runs (tenant, executor, trigger_id, trigger_version, state, epoch, attempts, abandoned, token,
             granted_at, enqueued_at, sequence, head, lease, written, over)
         SELECT {TENANT}, 'long-gone', id, version, 3, 0, 1, 0, 1, updated_at, updated_at, serial, 0, 60000000, id, serial
         FROM ux_breadcrumbs ORDER BY serial LIMIT {runs};
         UPDATE ux_tenants SET finished_runs = {runs}, sequence = (SELECT MAX(serial) FROM ux_breadcrumbs);
         COMMIT;"
    );
    connection.execute_batch(&sql).unwrap();
}

/// The prepared statements of a store.
pub(crate) struct Writer<'c> {
    connection: &'c Connection,
    insert_run: Statement<'c>,
    lease: Statement<'c>,
    insert_breadcrumb: Statement<'c>,
    insert_tag: Statement<'c>,
    insert_event: Statement<'c>,
    finish: Statement<'c>,
    update_tenant: Statement<'c>,
    now: i64,
    position: i64,
}

impl<'c> Writer<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        let prepare = |sql: &str| connection.prepare(sql).unwrap();
        let row = "SELECT latest, position FROM ux_tenants";
        let row = connection.query_row(row, (), |row| Ok((row.get(0)?, row.get(1)?)));
        let (now, position) = row.unwrap();
        Self {
            connection,
            insert_run: prepare(
                "INSERT INTO ux_runs (tenant, executor, trigger_id, trigger_version, state, epoch, attempts, abandoned,
                     token, granted_at, enqueued_at, sequence, due, head, lease, line, event, correlation, hops, written)
                 VALUES (?1, 'answerer', ?2, 1, 0, 0, 0, 0, 0, ?3, ?3, ?4, ?3, 1, 60000000, NULL, ?5, ?6, 0, x'')",
            ),
            lease: prepare(
                "UPDATE ux_runs SET state = 1, attempts = 1, token = 1, granted_at = ?2, due = ?2 + 60000000
                 WHERE serial = ?1",
            ),
            insert_breadcrumb: prepare(
                "INSERT INTO ux_breadcrumbs (tenant, id, version, schema_name, updated_at, created_at, ttl, deleted,
                     visibility, sensitivity, writer, correlation, hops, created_by, updated_by, title, description,
                     semantic_version, tags, llm_hints, context)
                 VALUES (?1, ?2, 1, 'answer.v1', ?3, ?3, NULL, 0, 1, 0, 'answerer', ?4, 1, 'answerer', NULL, '', NULL,
                     NULL, '[\"session:1\"]', NULL, ?5)",
            ),
            insert_tag: prepare("INSERT INTO ux_tags VALUES (?1, 'session:1', ?2, ?3, 'answer.v1')"),
            insert_event: prepare(
                "INSERT INTO ux_events VALUES (?1, ?2, 0, ?3, 1, ?4, 'answer.v1', '[\"session:1\"]')",
            ),
            finish: prepare(
                "UPDATE ux_runs SET state = 3, due = NULL, head = 0, written = ?2, over = ?3 WHERE serial = ?1",
            ),
            update_tenant: prepare(
                "UPDATE ux_tenants SET latest = ?2, position = ?3, sequence = ?2, breadcrumbs = ?3, finished_runs = ?3
                 WHERE id = ?1",
            ),
            now,
            position,
        }
    }

    /// Answers triggers, `at_once` in one transaction. Writes the same rows as the store, from the enqueued run to its end.
    pub(crate) fn answer(&mut self, triggers: &[[u8; 16]], at_once: usize) {
        for some in triggers.chunks(at_once) {
            self.transaction(|writer| {
                for trigger in some {
                    let run = writer.enqueue(trigger);
                    writer.claim_and_answer(run, trigger);
                }
            });
        }
    }

    /// Enqueues the runs of all triggers in one transaction. Returns the serial numbers of the runs.
    pub(crate) fn enqueue_all(&mut self, triggers: &[[u8; 16]]) -> Vec<i64> {
        let mut runs = Vec::new();
        self.transaction(|writer| {
            runs = triggers.iter().map(|one| writer.enqueue(one)).collect();
        });
        runs
    }

    /// Claims runs and answers them, `at_once` in one transaction.
    pub(crate) fn finish_all(&mut self, runs: &[(i64, [u8; 16])], at_once: usize) {
        for some in runs.chunks(at_once) {
            self.transaction(|writer| {
                for (run, trigger) in some {
                    writer.claim_and_answer(*run, trigger);
                }
            });
        }
    }

    /// Creates `n` breadcrumbs, `at_once` in one transaction.
    pub(crate) fn create(&mut self, n: usize, at_once: usize) {
        let context = format!(r#"{{"text":"{TEXT}"}}"#);
        for _ in 0..n / at_once {
            self.transaction(|writer| {
                for _ in 0..at_once {
                    writer.create_one("", &context);
                }
            });
        }
    }

    fn transaction(&mut self, work: impl FnOnce(&mut Self)) {
        let mut begin = self.connection.prepare_cached("BEGIN IMMEDIATE").unwrap();
        begin.execute(()).unwrap();
        work(self);
        let row = params![TENANT, self.now, self.position];
        self.update_tenant.execute(row).unwrap();
        let mut commit = self.connection.prepare_cached("COMMIT").unwrap();
        commit.execute(()).unwrap();
    }

    fn enqueue(&mut self, trigger: &[u8; 16]) -> i64 {
        self.now += 1;
        let id = Uuid::from_bytes(*trigger);
        let event = format!(
            r#"{{"type":"breadcrumb.created","breadcrumb_id":"{id}","version":1,"schema_name":"question.v1","tags":["session:1"],"updated_at":"2026-03-01T12:00:00.123456Z"}}"#
        );
        let row = params![
            TENANT,
            trigger,
            self.now,
            self.now,
            event,
            id.hyphenated().to_string()
        ];
        self.insert_run.insert(row).unwrap()
    }

    fn claim_and_answer(&mut self, run: i64, trigger: &[u8; 16]) {
        self.lease.execute((run, self.now)).unwrap();
        let trigger = Uuid::from_bytes(*trigger).hyphenated().to_string();
        let context = format!(
            r#"{{"creator":{{"correlation_id":"{trigger}","hops":1,"id":"answerer","trigger_id":"{trigger}","trigger_version":1,"type":"executor"}},"text":"{TEXT}"}}"#
        );
        let written = self.create_one(&trigger, &context);
        self.finish.execute((run, written, self.now)).unwrap();
    }

    fn create_one(&mut self, correlation: &str, context: &str) -> [u8; 16] {
        self.now += 1;
        self.position += 1;
        let id = *Uuid::now_v7().as_bytes();
        let row = params![TENANT, id, self.now, correlation, context];
        let serial = self.insert_breadcrumb.insert(row).unwrap();
        let tag = (TENANT, self.now, serial);
        self.insert_tag.execute(tag).unwrap();
        let event = (TENANT, self.position, id, self.now);
        self.insert_event.execute(event).unwrap();
        id
    }
}
