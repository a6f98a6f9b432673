//! Queries: candidates newest first from the smallest index that has all of them, each looked at in full.

use super::error::Fault;
use super::table;
use crate::model::{Breadcrumb, Order, Timestamp};
use crate::store::Query;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most tags that are walked as one, or tested in one statement.
const MERGED: usize = 64;
/// The most tags that a candidate is tested for, each by itself.
const TESTED: usize = 16;

/// What a query selects, in its order. Ends early, with what it has, once nobody waits for it.
pub(super) fn search(
    connection: &Connection,
    tenant: i64,
    query: &Query,
    now: Timestamp,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Vec<Arc<Breadcrumb>>, Fault> {
    let mut found = Vec::new();
    if query.limit == 0 {
        return Ok(found);
    }
    let asked = Asked::of(query);
    let Some(driver) = asked.driver(connection, tenant)? else {
        return Ok(found);
    };
    let (sql, values) = asked.candidates(driver, tenant, query.before.map(|(time, ..)| time));
    let mut candidates = connection.prepare_cached(&sql)?;
    let mut candidates = candidates.query(params_from_iter(values))?;
    while let Some(candidate) = candidates.next()? {
        // The index is a filter and no more: the query itself says what it selects.
        let Some(one) = table::at(connection, candidate.get(1)?)? else {
            continue;
        };
        if one.lives(now) && query.selects(&one.breadcrumb) {
            found.push(Arc::new(one.breadcrumb));
        }
        if found.len() == query.limit || !is_wanted() {
            break;
        }
    }
    if query.order == Order::OldestFirst {
        found.reverse();
    }
    Ok(found)
}

/// What a query asks for, as far as an index knows it.
struct Asked<'q> {
    schema: Option<&'q str>,
    /// Tags that must all be there.
    all: BTreeSet<&'q str>,
    /// Tags of which one must be there.
    any: Option<BTreeSet<&'q str>>,
}

/// The index whose entries are walked.
#[derive(Clone, Copy, Debug)]
enum Driver<'q> {
    Everything,
    Schema,
    Tag(&'q str),
    AnyTag,
}

impl<'q> Asked<'q> {
    fn of(query: &'q Query) -> Self {
        let selector = &query.selector;
        let all = selector.all_of_tags().iter().chain(&query.scope_tags);
        let any = selector.any_of_tags();
        Self {
            schema: selector.schema_name(),
            all: all.map(String::as_str).collect(),
            any: any.map(|tags| tags.iter().map(String::as_str).collect()),
        }
    }

    /// The index with the fewest entries, counted up to a bound; none if one has none.
    fn driver(&self, connection: &Connection, tenant: i64) -> Result<Option<Driver<'q>>, Fault> {
        let mut best = (i64::MAX, Driver::Everything);
        let mut consider = |count: i64, driver| {
            if count < best.0 {
                best = (count, driver);
            }
        };
        for tag in &self.all {
            consider(tagged(connection, tenant, tag)?, Driver::Tag(tag));
        }
        if let Some(schema) = self.schema {
            let mut count = connection.prepare_cached(
                "SELECT COUNT(*) FROM (SELECT 1 FROM ux_breadcrumbs
                     WHERE tenant = ?1 AND schema_name = ?2 AND deleted = 0 LIMIT 256)",
            )?;
            let count = count.query_row((tenant, schema), |row| row.get(0))?;
            consider(count, Driver::Schema);
        }
        if let Some(any) = &self.any {
            let mut count: i64 = 0;
            for tag in any.iter().take(MERGED) {
                count += tagged(connection, tenant, tag)?;
            }
            if any.len() <= MERGED {
                consider(count, Driver::AnyTag);
            }
        }
        let (count, driver) = best;
        Ok((count > 0).then_some(driver))
    }

    /// The statement that yields the time and the row of each candidate, newest first, and what it asks for.
    fn candidates(
        &self,
        driver: Driver<'_>,
        tenant: i64,
        before: Option<Timestamp>,
    ) -> (String, Vec<Value>) {
        let mut values = vec![Value::from(tenant)];
        let sql = match driver {
            Driver::Everything | Driver::Schema => {
                let index = match (driver, self.schema) {
                    (Driver::Schema, Some(schema)) => {
                        values.push(schema.to_owned().into());
                        "ux_breadcrumbs_by_schema WHERE tenant = ?1 AND deleted = 0 AND schema_name = ?"
                    }
                    (Driver::Everything | Driver::Schema | Driver::Tag(_) | Driver::AnyTag, _) => {
                        "ux_breadcrumbs_by_time WHERE tenant = ?1 AND deleted = 0"
                    }
                };
                let from = format!(
                    "SELECT updated_at, serial FROM ux_breadcrumbs AS c INDEXED BY {index}"
                );
                let sql = self.filtered(from, None, before, &mut values);
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
        known: Option<&str>,
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
        self.filtered(from, known, before, values)
    }

    /// Adds what the other tags and the place say. One tag is known to be there.
    fn filtered(
        &self,
        mut sql: String,
        known: Option<&str>,
        before: Option<Timestamp>,
        values: &mut Vec<Value>,
    ) -> String {
        if let Some(before) = before {
            sql.push_str(" AND updated_at <= ?");
            values.push(before.as_micros().into());
        }
        for tag in self
            .all
            .iter()
            .filter(|tag| Some(**tag) != known)
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

    /// Adds that one of the tags is there.
    fn with_any(&self, mut sql: String, values: &mut Vec<Value>) -> String {
        if let Some(any) = self.any.as_ref().filter(|any| any.len() <= MERGED) {
            let places = vec!["?"; any.len()].join(", ");
            sql.push_str(&format!(
                " AND EXISTS (SELECT 1 FROM ux_tags AS t WHERE t.tenant = ?1 AND t.tag IN ({places})
                      AND t.updated_at = c.updated_at)"
            ));
            values.extend(any.iter().map(|tag| Value::from((*tag).to_owned())));
        }
        sql
    }
}

/// How many breadcrumbs have a tag, up to a bound.
fn tagged(connection: &Connection, tenant: i64, tag: &str) -> rusqlite::Result<i64> {
    let mut count = connection.prepare_cached(
        "SELECT COUNT(*) FROM (SELECT 1 FROM ux_tags WHERE tenant = ?1 AND tag = ?2 LIMIT 256)",
    )?;
    count.query_row((tenant, tag), |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Selector;

    /// How SQLite looks for the candidates of a query.
    fn plan(connection: &Connection, query: &Query, driver: Driver<'_>) -> String {
        let before = query.before.map(|(time, ..)| time);
        let (sql, values) = Asked::of(query).candidates(driver, 1, before);
        let mut steps = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let steps = steps.query_map(params_from_iter(values), |row| row.get::<_, String>(3));
        let steps: Vec<String> = steps.unwrap().map(|step| step.unwrap()).collect();
        steps.join("; ")
    }

    #[test]
    fn candidates_are_walked_in_the_order_of_an_index_and_never_sorted() {
        let mut connection = Connection::open_in_memory().unwrap();
        crate::store::sqlite::schema::migrate(&mut connection).unwrap();
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
        let plan = plan(&connection, &Query::new(selector), Driver::Schema);
        assert!(plan.contains("(tenant=? AND schema_name=?)"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}
