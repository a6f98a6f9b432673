//! Queries for breadcrumbs in SQLite. The smallest index that contains all candidates yields the candidates newest first, and
//! [`Query::selects`] checks each candidate.

use super::error::Fault;
use super::table;
use crate::model::{Breadcrumb, Order, Timestamp};
use crate::store::Query;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of a query's alternative tags that the SQL of a search can test. The SQL ignores a longer list of alternative
/// tags. Otherwise, it merges the index entries of these tags, or tests each candidate breadcrumb with one `IN` condition.
const MERGED: usize = 64;
/// Maximum number of a query's required tags that the SQL tests one by one for each candidate breadcrumb.
const TESTED: usize = 16;

/// Returns the breadcrumbs that a query selects, in the order that the query sets, and the number of expired breadcrumbs that
/// were read. Ends early with a partial result if the caller stops waiting.
pub(super) fn search(
    connection: &Connection,
    tenant: i64,
    query: &Query,
    now: Timestamp,
    has_caller: &dyn Fn() -> bool,
) -> Result<(Vec<Arc<Breadcrumb>>, usize), Fault> {
    let (mut selected, mut expired) = (Vec::new(), 0);
    if query.limit == 0 {
        return Ok((selected, expired));
    }
    each_candidate(connection, tenant, query, |_, serial| {
        // The index is only a prefilter. `Query::selects` decides.
        let Some(stored) = table::at(connection, serial)? else {
            return Ok(true);
        };
        if !stored.is_live(now) {
            expired += 1;
        } else if query.selects(&stored.breadcrumb) {
            selected.push(Arc::new(stored.breadcrumb));
        }
        Ok(selected.len() < query.limit && has_caller())
    })?;
    if query.order == Order::OldestFirst {
        selected.reverse();
    }
    Ok((selected, expired))
}

/// Passes the update time and the row ID of each candidate breadcrumb of a query to `take`, newest first. Ends early when `take`
/// returns `false`.
pub(super) fn each_candidate(
    connection: &Connection,
    tenant: i64,
    query: &Query,
    mut visit: impl FnMut(i64, i64) -> Result<bool, Fault>,
) -> Result<(), Fault> {
    let conditions = IndexConditions::of(query);
    let before = query.before.map(|(time, ..)| time);
    let Some(driver) = conditions.driver(connection, tenant, before)? else {
        return Ok(());
    };
    let (sql, values) = conditions.candidates(driver, tenant, before);
    let mut candidates = connection.prepare_cached(&sql)?;
    let mut candidates = candidates.query(params_from_iter(values))?;
    while let Some(candidate) = candidates.next()? {
        if !visit(candidate.get(0)?, candidate.get(1)?)? {
            break;
        }
    }
    Ok(())
}

/// Conditions of a query for breadcrumbs that a SQLite index can check.
struct IndexConditions<'q> {
    schema: Option<&'q str>,
    /// Tags of the query; a breadcrumb must have all of them.
    all: BTreeSet<&'q str>,
    /// Tags of the query; a breadcrumb must have at least one of them.
    any: Option<BTreeSet<&'q str>>,
    /// Lower bound of a breadcrumb's update time in the query, exclusive.
    after: Option<Timestamp>,
}

/// SQLite index whose entries a search reads, newest first, to find the candidate breadcrumbs of a query.
#[derive(Clone, Copy, Debug)]
enum Driver<'q> {
    Everything,
    Schema(&'q str),
    Tag(&'q str),
    AnyTag,
}

/// Count of the newest entries of a SQLite index of breadcrumbs, up to a counting limit. A smaller value is better: first an index
/// with few entries, then an index whose entries are further apart in time, because any period contains fewer of them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Newest {
    /// Number of all entries of the index, which is below the counting limit, so that every entry was counted.
    All(i64),
    /// Time of the oldest counted entry, if the index has at least as many entries as the counting limit.
    Since(i64),
}

impl Newest {
    /// Merges the estimates of how many breadcrumbs have either of two tags: two totals are added, and otherwise the later time is the
    /// result.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All(some), Self::All(more)) => Self::All(some + more),
            (some, more) => some.max(more),
        }
    }
}

impl<'q> IndexConditions<'q> {
    fn of(query: &'q Query) -> Self {
        let selector = &query.selector;
        let all = selector.all_of_tags().iter().chain(&query.scope_tags);
        let any = selector.any_of_tags();
        Self {
            schema: selector.schema_name(),
            all: all.map(String::as_str).collect(),
            any: any.map(|tags| tags.iter().map(String::as_str).collect()),
            after: query.after,
        }
    }

    /// Returns the SQLite index with the fewest entries to read for a query, or `None` if an index shows that no breadcrumb can match.
    fn driver(
        &self,
        connection: &Connection,
        tenant: i64,
        before: Option<Timestamp>,
    ) -> rusqlite::Result<Option<Driver<'q>>> {
        let mut drivers: Vec<Driver<'q>> = self.all.iter().map(|tag| Driver::Tag(tag)).collect();
        drivers.extend(self.schema.map(Driver::Schema));
        if let Some(any) = self.any.as_ref().filter(|any| any.len() <= MERGED) {
            if any.is_empty() {
                return Ok(None);
            }
            drivers.push(Driver::AnyTag);
        }
        if let [] | [_] = drivers[..] {
            return Ok(Some(drivers.pop().unwrap_or(Driver::Everything)));
        }
        let before = before.map_or(i64::MAX, Timestamp::as_micros);
        let newest = |driver| self.newest(connection, tenant, driver, before);
        let mut best: Option<(Newest, Driver<'q>)> = None;
        for driver in drivers {
            let newest = newest(driver)?;
            if best.is_none_or(|(fewest, _)| newest < fewest) {
                best = Some((newest, driver));
            }
        }
        Ok(best.and_then(|(fewest, driver)| (fewest != Newest::All(0)).then_some(driver)))
    }

    fn newest(
        &self,
        connection: &Connection,
        tenant: i64,
        driver: Driver<'_>,
        before: i64,
    ) -> rusqlite::Result<Newest> {
        match driver {
            Driver::Tag(tag) => newest(connection, OF_TAG, tenant, tag, before),
            Driver::Schema(schema) => newest(connection, OF_SCHEMA, tenant, schema, before),
            Driver::AnyTag => {
                let mut all = Newest::All(0);
                for tag in self.any.iter().flatten() {
                    all = all.and(newest(connection, OF_TAG, tenant, tag, before)?);
                }
                Ok(all)
            }
            Driver::Everything => Ok(Newest::Since(before)),
        }
    }

    /// Returns the SQL that selects the candidate breadcrumbs, newest first, and the SQL's parameters. A result row has the update
    /// time and the row ID of a breadcrumb.
    fn candidates(
        &self,
        driver: Driver<'_>,
        tenant: i64,
        before: Option<Timestamp>,
    ) -> (String, Vec<Value>) {
        let mut values = vec![Value::from(tenant)];
        let sql = match driver {
            Driver::Everything => {
                let from = "SELECT updated_at, serial FROM ux_breadcrumbs AS c INDEXED BY ux_breadcrumbs_by_time
                     WHERE tenant = ?1 AND deleted = 0";
                let sql = self.filtered(from.to_owned(), None, before, &mut values);
                self.with_any(sql, &mut values)
            }
            Driver::Schema(schema) => {
                values.push(schema.to_owned().into());
                let from = "SELECT updated_at, serial FROM ux_breadcrumbs AS c INDEXED BY ux_breadcrumbs_by_schema
                     WHERE tenant = ?1 AND deleted = 0 AND schema_name = ?";
                let sql = self.filtered(from.to_owned(), None, before, &mut values);
                self.with_any(sql, &mut values)
            }
            Driver::Tag(tag) => {
                let sql = self.of_tag(tag, Some(tag), before, &mut values);
                self.with_any(sql, &mut values)
            }
            Driver::AnyTag => {
                let any = self.any.iter().flatten();
                let parts: Vec<String> = any
                    .map(|tag| self.of_tag(tag, None, before, &mut values))
                    .collect();
                parts.join(" UNION ")
            }
        };
        (format!("{sql} ORDER BY 1 DESC"), values)
    }

    fn of_tag(
        &self,
        tag: &str,
        known_tag: Option<&str>,
        before: Option<Timestamp>,
        values: &mut Vec<Value>,
    ) -> String {
        values.push(tag.to_owned().into());
        let mut from =
            "SELECT updated_at, serial FROM ux_tags AS c WHERE tenant = ?1 AND tag = ?".to_owned();
        if let Some(schema) = self.schema {
            from.push_str(" AND schema_name = ?");
            values.push(schema.to_owned().into());
        }
        self.filtered(from, known_tag, before, values)
    }

    /// Adds the query's conditions on the update time and on its required tags to the SQL. The SQL does not test the tag `known_tag`,
    /// because all candidate breadcrumbs have this tag.
    fn filtered(
        &self,
        mut sql: String,
        known_tag: Option<&str>,
        before: Option<Timestamp>,
        values: &mut Vec<Value>,
    ) -> String {
        if let Some(before) = before {
            sql.push_str(" AND updated_at <= ?");
            values.push(before.as_micros().into());
        }
        if let Some(after) = self.after {
            sql.push_str(" AND updated_at > ?");
            values.push(after.as_micros().into());
        }
        for tag in self
            .all
            .iter()
            .filter(|tag| Some(**tag) != known_tag)
            .take(TESTED)
        {
            sql.push_str(
                " AND EXISTS (SELECT 1 FROM ux_tags AS t WHERE t.tenant = ?1 AND t.tag = ?
                      AND t.updated_at = c.updated_at)",
            );
            values.push((*tag).to_owned().into());
        }
        sql
    }

    /// Adds a condition to the SQL: a breadcrumb must have at least one of the query's alternative tags.
    fn with_any(&self, mut sql: String, values: &mut Vec<Value>) -> String {
        if let Some(any) = self.any.as_ref().filter(|any| any.len() <= MERGED) {
            let placeholders = vec!["?"; any.len()].join(", ");
            sql.push_str(&format!(
                " AND EXISTS (SELECT 1 FROM ux_tags AS t WHERE t.tenant = ?1 AND t.tag IN ({placeholders})
                      AND t.updated_at = c.updated_at)"
            ));
            values.extend(any.iter().map(|tag| Value::from((*tag).to_owned())));
        }
        sql
    }
}

const OF_TAG: &str = "
    SELECT COUNT(*), MIN(updated_at) FROM (SELECT updated_at FROM ux_tags
        WHERE tenant = ?1 AND tag = ?2 AND updated_at <= ?3 ORDER BY updated_at DESC LIMIT 64)";

const OF_SCHEMA: &str = "
    SELECT COUNT(*), MIN(updated_at) FROM (SELECT updated_at FROM ux_breadcrumbs
        INDEXED BY ux_breadcrumbs_by_schema
        WHERE tenant = ?1 AND schema_name = ?2 AND deleted = 0 AND updated_at <= ?3
        ORDER BY updated_at DESC LIMIT 64)";

/// Counts the newest breadcrumbs with a tag or a schema in the SQLite index that the SQL query `sql` reads, which is [`OF_TAG`]
/// or [`OF_SCHEMA`].
fn newest(
    connection: &Connection,
    sql: &str,
    tenant: i64,
    of: &str,
    before: i64,
) -> rusqlite::Result<Newest> {
    /// Maximum number of entries that the SQL statements count in one index, to select the smallest index for a query.
    const MOST: i64 = 64;
    let mut newest = connection.prepare_cached(sql)?;
    newest.query_row((tenant, of, before), |row| {
        Ok(match row.get(0)? {
            MOST => Newest::Since(row.get(1)?),
            fewer => Newest::All(fewer),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Selector;

    /// Returns SQLite's query plan for the candidates of a query.
    fn plan(connection: &Connection, query: &Query, driver: Driver<'_>) -> String {
        let before = query.before.map(|(time, ..)| time);
        let (sql, values) = IndexConditions::of(query).candidates(driver, 1, before);
        steps(connection, &sql, values)
    }

    fn steps(connection: &Connection, sql: &str, values: Vec<Value>) -> String {
        let mut steps = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let steps = steps.query_map(params_from_iter(values), |row| row.get::<_, String>(3));
        let steps: Vec<String> = steps.unwrap().map(|step| step.unwrap()).collect();
        steps.join("; ")
    }

    #[test]
    fn candidates_are_walked_in_the_order_of_an_index_and_never_sorted() {
        let connection = tables();
        let selector = Selector::schema("a.v1")
            .all_tags(["x", "y"])
            .any_tags(["z", "w", "v"]);
        let page = (
            Timestamp::from_micros(7),
            1,
            crate::model::BreadcrumbId::NIL,
        );
        for query in [
            Query::new(selector.clone()),
            Query::new(selector.clone()).before(page),
            Query::new(Selector::any().any_tags(["z", "w"])).scope_tag("x"),
        ] {
            for (driver, index) in [
                (Driver::Everything, "ux_breadcrumbs_by_time (tenant=?"),
                (Driver::Tag("x"), "PRIMARY KEY (tenant=? AND tag=?"),
                (Driver::AnyTag, "PRIMARY KEY (tenant=? AND tag=?"),
            ] {
                let plan = plan(&connection, &query, driver);
                assert!(plan.contains(index), "{driver:?}: {plan}");
                let is_walked = !plan.contains("TEMP B-TREE") && !plan.contains("SCAN");
                assert!(is_walked, "{driver:?}: {plan}");
            }
        }
        let plan = plan(&connection, &Query::new(selector), Driver::Schema("a.v1"));
        assert!(plan.contains("(tenant=? AND schema_name=?)"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        for sql in [OF_TAG, OF_SCHEMA] {
            let values = [Value::from(1), "x".to_owned().into(), 7.into()];
            let plan = steps(&connection, sql, values.into());
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
            assert!(plan.contains("updated_at<?"), "{plan}");
        }
    }

    #[test]
    fn of_several_indexes_that_is_walked_whose_entries_lie_furthest_apart() {
        let connection = tables();
        connection
            .execute_batch(
                "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000)
                 INSERT INTO ux_tags SELECT 1, tag, n, n, NULL FROM n JOIN
                     (SELECT 'all' AS tag, 1 AS every UNION SELECT 'some', 5 UNION SELECT 'few', 100) ON n % every = 0",
            )
            .unwrap();
        let before = |time| Some(Timestamp::from_micros(time));
        for (tags, before, walked) in [
            (["all", "some"], None, Some("some")),
            (["all", "few"], None, Some("few")),
            (["some", "few"], None, Some("few")),
            (["all", "some"], before(100), Some("some")),
            (["all", "few"], before(99), None),
            (["all", "none"], None, None),
        ] {
            let query = Query::new(Selector::any().all_tags(tags));

            let driver = IndexConditions::of(&query)
                .driver(&connection, 1, before)
                .unwrap();

            let tag = match driver {
                Some(Driver::Tag(tag)) => Some(tag),
                Some(Driver::AnyTag | Driver::Everything | Driver::Schema(_)) | None => None,
            };
            assert_eq!(tag, walked, "{tags:?}");
        }
    }

    fn tables() -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        crate::store::sqlite::connection::set_up(&connection).unwrap();
        crate::store::sqlite::schema::migrate(&mut connection).unwrap();
        connection
    }
}
