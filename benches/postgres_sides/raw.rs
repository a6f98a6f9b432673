//! Baseline: hand-written SQL that writes the store's rows to the same tables with the same guarantees. The run is fenced by its
//! token, positions and times are in commit order, and each answer is atomic. Statements are prepared once, and each statement is
//! a round trip. The baseline checks nothing, notifies no other process, and can write only these rows.

use super::TEXT;
use futures::future::join_all;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, Row as _};
use std::time::{Duration, Instant};
use universal_executor::BreadcrumbId;
use uuid::Uuid;

/// The current time in microseconds, as an SQL expression.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Connections to the tables of a store, with one tenant.
pub(crate) struct Raw {
    pool: PgPool,
    sql: Sql,
}

/// The SQL statements.
struct Sql {
    create: String,
    event: String,
    answer: String,
    finish: String,
    enqueue: String,
    claim: String,
    create_many: String,
    answer_many: String,
    claim_many: String,
    read: String,
}

const BREADCRUMB: &str =
    "ux_breadcrumbs (tenant, id, version, schema_name, updated_at, created_at, deleted, visibility,
    sensitivity, writer, correlation, hops, created_by, title, tags, context)";

impl Sql {
    /// Returns the statements, with `:tenant` in place of the tenant ID. IDs are sent as text, because the driver's type `uuid` needs a
    /// feature that is disabled here.
    fn new() -> Self {
        let lease = format!(
            "state = 1, attempts = attempts + 1, token = token + 1, granted_at = {NOW}, due = {NOW} + 60000000"
        );
        let due = format!(
            "SELECT serial FROM ux_runs WHERE tenant = :tenant AND executor = 'answerer' AND due <= {NOW} AND head
             AND due IS NOT NULL ORDER BY due, sequence"
        );
        Self {
            create: format!(
                "{} INSERT INTO {BREADCRUMB} SELECT :tenant, $1::text::uuid, 1, 'question.v1', latest, latest, FALSE, 1, 0,
                     NULL, NULL, NULL, NULL, '', ARRAY['session:1'], $2 FROM t
                 RETURNING updated_at, (SELECT position FROM t), (SELECT sequence FROM t)",
                tenant("", "1")
            ),
            event: "INSERT INTO ux_events VALUES (:tenant, $1, $2::text::uuid, 1, $3, 0, 'answer.v1', '[\"session:1\"]')"
                .to_owned(),
            answer: format!(
                "{} INSERT INTO {BREADCRUMB} SELECT :tenant, $1::text::uuid, 1, 'answer.v1', latest, latest, FALSE, 1, 0,
                     'answerer', $3, 1, 'answerer', '', ARRAY['session:1'], $2 FROM t
                 RETURNING updated_at, (SELECT position FROM t), (SELECT sequence FROM t)",
                tenant(&over("1"), "1")
            ),
            finish: "UPDATE ux_runs SET state = 3, due = NULL, head = FALSE, written = ARRAY[$3::text::uuid], over = $4
                     WHERE serial = $1 AND state = 1 AND token = $2"
                .to_owned(),
            enqueue: format!(
                "WITH t AS (UPDATE ux_tenants SET sequence = sequence + 1, open_runs = open_runs + 1 WHERE id = :tenant
                     RETURNING sequence)
                 INSERT INTO ux_runs (tenant, executor, trigger_id, trigger_version, state, epoch, attempts, abandoned,
                     token, granted_at, enqueued_at, sequence, due, head, lease, event, correlation, hops, written)
                 SELECT :tenant, 'answerer', $1::text::uuid, 1, 0, 0, 0, 0, 0, {NOW}, {NOW}, sequence, {NOW}, TRUE, 60000000,
                     $2, $1, 0, '{{}}' FROM t ON CONFLICT DO NOTHING"
            ),
            claim: format!(
                "UPDATE ux_runs SET {lease} WHERE serial = ({due} LIMIT 1 FOR UPDATE SKIP LOCKED)
                 RETURNING serial, token, trigger_id::text"
            ),
            create_many: many(&tenant("", "$3"), "NULL, NULL, NULL, NULL", ""),
            answer_many: many(
                &tenant(&over("$3"), "$3"),
                "'answerer', '', 1, 'answerer'",
                ", r AS (UPDATE ux_runs AS r SET state = 3, due = NULL, head = FALSE, written = ARRAY[u.id::uuid],
                     over = t.sequence + u.place - $3
                     FROM t, unnest($1::text[], $4::bigint[], $5::bigint[]) WITH ORDINALITY AS u (id, serial, token, place)
                     WHERE r.serial = u.serial AND r.state = 1 AND r.token = u.token)",
            ),
            claim_many: format!(
                "UPDATE ux_runs SET {lease} WHERE serial IN ({due} LIMIT $1 FOR UPDATE SKIP LOCKED)
                 RETURNING serial, token, trigger_id::text"
            ),
            read: "SELECT * FROM ux_breadcrumbs WHERE tenant = :tenant AND id = $1::text::uuid".to_owned(),
        }
    }

    /// Returns the statements for a tenant, by its ID.
    fn of(tenant: i64) -> Self {
        let mut sql = Self::new();
        for one in [
            &mut sql.create,
            &mut sql.event,
            &mut sql.answer,
            &mut sql.enqueue,
            &mut sql.claim,
            &mut sql.create_many,
            &mut sql.answer_many,
            &mut sql.claim_many,
            &mut sql.read,
        ] {
            *one = one.replace(":tenant", &tenant.to_string());
        }
        sql
    }
}

/// Returns SQL that takes the next times and positions of the tenant, and locks its row until the commit.
fn tenant(and: &str, n: &str) -> String {
    format!(
        "WITH t AS (UPDATE ux_tenants SET latest = greatest(latest + {n}, {NOW}), position = position + {n},
             breadcrumbs = breadcrumbs + {n} {and} WHERE id = :tenant RETURNING latest, position, sequence)"
    )
}

/// Returns SQL that counts finished runs.
fn over(n: &str) -> String {
    format!(
        ", sequence = sequence + {n}, open_runs = open_runs - {n}, finished_runs = finished_runs + {n}"
    )
}

/// Returns SQL that writes many breadcrumbs and their events.
fn many(tenant: &str, writer: &str, rest: &str) -> String {
    format!(
        "{tenant}, b AS (INSERT INTO {BREADCRUMB} SELECT :tenant, u.id::uuid, 1, 'answer.v1', t.latest + u.place - $3,
             t.latest + u.place - $3, FALSE, 1, 0, {writer}, '', ARRAY['session:1'], u.context
             FROM t, unnest($1::text[], $2::text[]) WITH ORDINALITY AS u (id, context, place))
         {rest}
         INSERT INTO ux_events SELECT :tenant, t.position + u.place - $3, u.id::uuid, 1, t.latest + u.place - $3, 0,
             'answer.v1', '[\"session:1\"]' FROM t, unnest($1::text[]) WITH ORDINALITY AS u (id, place)"
    )
}

/// A claimed run.
struct Claimed {
    serial: i64,
    token: i64,
    trigger: String,
}

impl Claimed {
    fn of(row: &sqlx::postgres::PgRow) -> Self {
        Self {
            serial: row.get(0),
            token: row.get(1),
            trigger: row.get(2),
        }
    }
}

impl Raw {
    /// Number of connections in the measurements with several connections.
    pub(crate) const CONNECTIONS: usize = 32;

    pub(crate) async fn connect(url: &str, schema: &str) -> Self {
        let options: PgConnectOptions = url.parse().unwrap();
        let options = options.options([("search_path", schema)]);
        let pool = PgPoolOptions::new()
            .max_connections(Self::CONNECTIONS as u32)
            .test_before_acquire(false);
        let pool = pool.connect_with(options).await.unwrap();
        let tenant = sqlx::query_scalar("SELECT id FROM ux_tenants WHERE name = 'default'");
        let tenant = tenant.fetch_one(&pool).await.unwrap();
        Self {
            pool,
            sql: Sql::of(tenant),
        }
    }

    pub(crate) async fn close(self) {
        self.pool.close().await;
    }

    /// Creates breadcrumbs over a number of concurrent connections.
    pub(crate) async fn create(&self, n: usize, connections: usize) -> Duration {
        self.side_by_side(n, connections, async |connection| {
            let id = Uuid::now_v7().hyphenated().to_string();
            let context = format!(r#"{{"text":"{TEXT}"}}"#);
            let mut transaction = connection.begin().await.unwrap();
            let create = query(&self.sql.create).bind(&id).bind(context);
            let created = create.fetch_one(&mut *transaction).await.unwrap();
            self.event(&mut transaction, &id, &created).await;
            transaction.commit().await.unwrap();
        })
        .await
    }

    /// Claims runs and answers them over a number of concurrent connections.
    pub(crate) async fn finish(&self, n: usize, connections: usize) -> Duration {
        self.side_by_side(n, connections, async |connection| {
            let claimed = self.claim(connection).await;
            self.answer(connection, &claimed).await;
        })
        .await
    }

    /// Answers triggers: enqueues and claims a run for each trigger, reads the trigger and answers it.
    pub(crate) async fn respond(&self, triggers: &[BreadcrumbId], connections: usize) -> Duration {
        let next = std::sync::atomic::AtomicUsize::new(0);
        self.side_by_side(triggers.len(), connections, async |connection| {
            let place = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let id = triggers.get(place).unwrap().to_string();
            let event = format!(
                r#"{{"type":"breadcrumb.created","breadcrumb_id":"{id}","version":1,"schema_name":"question.v1","tags":["session:1"],"updated_at":"2026-03-01T12:00:00.123456Z"}}"#
            );
            let enqueue = query(&self.sql.enqueue).bind(&id).bind(event);
            enqueue.execute(&mut *connection).await.unwrap();
            let claimed = self.claim(connection).await;
            let read = query(&self.sql.read).bind(&claimed.trigger);
            read.fetch_one(&mut *connection).await.unwrap();
            self.answer(connection, &claimed).await;
        })
        .await
    }

    async fn claim(&self, connection: &mut PgConnection) -> Claimed {
        loop {
            let claim = query(&self.sql.claim).fetch_optional(&mut *connection);
            // `None` if another connection has changed the selected row.
            if let Some(claimed) = claim.await.unwrap() {
                return Claimed::of(&claimed);
            }
        }
    }

    async fn answer(&self, connection: &mut PgConnection, claimed: &Claimed) {
        let id = Uuid::now_v7().hyphenated().to_string();
        let mut transaction = connection.begin().await.unwrap();
        let answer = query(&self.sql.answer)
            .bind(&id)
            .bind(answer_to(&claimed.trigger))
            .bind(&claimed.trigger);
        let answered = answer.fetch_one(&mut *transaction).await.unwrap();
        let finish = query(&self.sql.finish)
            .bind(claimed.serial)
            .bind(claimed.token)
            .bind(&id)
            .bind(answered.get::<i64, _>(2));
        let finished = finish.execute(&mut *transaction).await.unwrap();
        assert_eq!(finished.rows_affected(), 1);
        self.event(&mut transaction, &id, &answered).await;
        transaction.commit().await.unwrap();
    }

    async fn event(
        &self,
        connection: &mut PgConnection,
        id: &str,
        written: &sqlx::postgres::PgRow,
    ) {
        let event = query(&self.sql.event)
            .bind(written.get::<i64, _>(1))
            .bind(id)
            .bind(written.get::<i64, _>(0));
        event.execute(connection).await.unwrap();
    }

    /// Creates breadcrumbs on one connection, `at_once` in one statement.
    pub(crate) async fn create_many(&self, n: usize, at_once: usize) -> Duration {
        self.side_by_side(n / at_once, 1, async |connection| {
            let contexts = vec![format!(r#"{{"text":"{TEXT}"}}"#); at_once];
            let create = query(&self.sql.create_many)
                .bind(new_ids(at_once))
                .bind(contexts)
                .bind(at_once as i64);
            create.execute(&mut *connection).await.unwrap();
        })
        .await
    }

    /// Claims runs and answers them on one connection, `at_once` in one statement each.
    pub(crate) async fn finish_many(&self, n: usize, at_once: usize) -> Duration {
        self.side_by_side(n / at_once, 1, async |connection| {
            let claim = query(&self.sql.claim_many).bind(at_once as i64);
            let claimed = claim.fetch_all(&mut *connection).await.unwrap();
            let claimed: Vec<Claimed> = claimed.iter().map(Claimed::of).collect();
            assert_eq!(claimed.len(), at_once);
            let contexts: Vec<String> = claimed.iter().map(|one| answer_to(&one.trigger)).collect();
            let answer = query(&self.sql.answer_many)
                .bind(new_ids(at_once))
                .bind(contexts)
                .bind(at_once as i64)
                .bind(claimed.iter().map(|one| one.serial).collect::<Vec<i64>>())
                .bind(claimed.iter().map(|one| one.token).collect::<Vec<i64>>());
            answer.execute(&mut *connection).await.unwrap();
        })
        .await
    }

    /// Repeats work `n` times over a number of concurrent connections. Returns the elapsed time.
    async fn side_by_side(
        &self,
        n: usize,
        connections: usize,
        work: impl AsyncFn(&mut PgConnection),
    ) -> Duration {
        let open = join_all((0..connections).map(|_| self.pool.acquire())).await;
        let begun = Instant::now();
        let each = n / connections;
        let working = open.into_iter().map(async |connection| {
            let mut connection: PoolConnection<Postgres> = connection.unwrap();
            for _ in 0..each {
                work(&mut connection).await;
            }
        });
        join_all(working).await;
        begun.elapsed()
    }
}

fn query(sql: &str) -> sqlx::query::Query<'_, Postgres, sqlx::postgres::PgArguments> {
    sqlx::query(sqlx::AssertSqlSafe(sql.to_owned()))
}

fn new_ids(n: usize) -> Vec<String> {
    let ids = (0..n).map(|_| Uuid::now_v7().hyphenated().to_string());
    ids.collect()
}

fn answer_to(trigger: &str) -> String {
    format!(
        r#"{{"creator":{{"correlation_id":"{trigger}","hops":1,"id":"answerer","trigger_id":"{trigger}","trigger_version":1,"type":"executor"}},"text":"{TEXT}"}}"#
    )
}
