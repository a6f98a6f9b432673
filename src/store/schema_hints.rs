//! Cache of the `llm_hints` in schema definitions, which apply to all breadcrumbs of a schema. Read from the store and cached.

use super::{BreadcrumbStore, Query, StoreError, StoreId};
use crate::hints::{Hints, HintsError};
use crate::model::{Breadcrumb, Event, EventKind, Json, Selector};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Schema name of breadcrumbs that define a schema.
const DEFINITION: &str = "schema.def.v1";

/// Prefix of the tag in which a schema definition names its schema.
const DEFINES: &str = "defines:";

/// Time for which the `llm_hints` of a schema are cached. The event of a changed definition may go to another worker, so a cached
/// entry must expire.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(10);

/// Maximum number of schemas in the cache of `llm_hints`.
const MOST: usize = 1_024;

/// The result of a read of a schema definition's `llm_hints`: the hints, `None` if the definition has none, or the error if the
/// hints are unreadable.
pub(crate) type HintsOfSchema = Result<Option<Hints>, HintsError>;

/// The `llm_hints` of several breadcrumb schemas, or the errors of reading them, by schema name.
pub(crate) type HintsOfSchemas = HashMap<String, HintsOfSchema>;

/// Cache of the `llm_hints` of schemas, for all stores of a runtime.
#[derive(Debug, Default)]
pub(crate) struct SchemaHints {
    cache: Mutex<HintsCache>,
}

#[derive(Debug, Default)]
struct HintsCache {
    /// Number of times that the cache of `llm_hints` was cleared. A result that was read before is not added afterwards.
    generation: u64,
    by_schema: HashMap<SchemaKey, (Instant, HintsOfSchema)>,
}

/// Key of the cache of `llm_hints`: a schema of a store.
#[derive(Debug, Eq, Hash, PartialEq)]
struct SchemaKey {
    store: StoreId,
    schema: String,
}

impl SchemaKey {
    fn of(store: &dyn BreadcrumbStore, schema: &str) -> Self {
        Self {
            store: store.identity(),
            schema: schema.to_owned(),
        }
    }
}

impl SchemaHints {
    /// Returns the selector of the breadcrumbs that define schemas.
    pub(crate) fn definitions() -> Selector {
        Selector::schema(DEFINITION)
    }

    /// Returns `true` if an event may announce a change of a schema definition. An event without a schema name may announce any
    /// breadcrumb.
    pub(crate) fn may_change_by(event: &Event) -> bool {
        match event.schema_name.as_deref() {
            Some(schema) => schema == DEFINITION,
            None => event.kind != EventKind::Ping,
        }
    }

    /// Clears the cache of `llm_hints`. Reads in progress do not add their results afterwards. Definitions change rarely.
    pub(crate) fn clear(&self) {
        let mut cache = self.lock();
        cache.generation = cache.generation.wrapping_add(1);
        cache.by_schema.clear();
    }

    fn of(&self, key: &SchemaKey) -> Option<HintsOfSchema> {
        let cache = self.lock();
        let (since, hints) = cache.by_schema.get(key)?;
        (since.elapsed() < MAX_AGE).then(|| hints.clone())
    }

    fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// Adds `llm_hints` that were read from the store to the cache. `since` and `generation` are the time and the cache
    /// generation at the start of the read. Adds nothing if the cache was cleared after the start.
    fn insert(&self, generation: u64, since: Instant, read: Vec<(SchemaKey, HintsOfSchema)>) {
        let mut cache = self.lock();
        if cache.generation != generation {
            return;
        }
        if cache.by_schema.len() + read.len() > MOST {
            cache
                .by_schema
                .retain(|_, (since, _)| since.elapsed() < MAX_AGE);
        }
        for (key, hints) in read {
            if cache.by_schema.len() < MOST || cache.by_schema.contains_key(&key) {
                cache.by_schema.insert(key, (since, hints));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HintsCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the `llm_hints` of each schema, from the cache or from the store. Every schema has an entry.
///
/// # Errors
/// The error of the store. Without the hints, the visible part of a context is unknown.
pub(crate) async fn find(
    cache: Option<&SchemaHints>,
    store: &dyn BreadcrumbStore,
    schemas: Vec<String>,
) -> Result<HintsOfSchemas, StoreError> {
    let Some(cache) = cache else {
        let (schemas, others): (Vec<_>, Vec<_>) = schemas
            .into_iter()
            .partition(|schema| can_be_defined(schema));
        let mut found = read(store, &schemas).await?;
        found.extend(others.into_iter().map(|schema| (schema, Ok(None))));
        return Ok(found);
    };
    let (generation, since) = (cache.generation(), Instant::now());
    let mut found = HintsOfSchemas::new();
    let mut unknown = Vec::new();
    for schema in schemas {
        if !can_be_defined(&schema) {
            found.insert(schema, Ok(None));
            continue;
        }
        match cache.of(&SchemaKey::of(store, &schema)) {
            Some(hints) => drop(found.insert(schema, hints)),
            None => unknown.push(schema),
        }
    }
    if !unknown.is_empty() {
        let read = read(store, &unknown).await?;
        let entries = read.iter();
        let entries = entries.map(|(schema, hints)| (SchemaKey::of(store, schema), hints.clone()));
        cache.insert(generation, since, entries.collect());
        found.extend(read);
    }
    Ok(found)
}

/// Returns the part of each breadcrumb's context that a model may see. `None` for a breadcrumb whose hints are invalid.
///
/// # Errors
/// The error of the store. Without the hints of schemas, the visible part of a context is unknown.
pub(crate) async fn visible_contexts(
    store: &dyn BreadcrumbStore,
    of: &[&Breadcrumb],
) -> Result<Vec<Option<Json>>, StoreError> {
    let without = of.iter().filter(|one| own(one).is_none());
    let schemas: BTreeSet<&str> = without
        .filter_map(|one| one.schema_name.as_deref())
        .collect();
    let schemas = schemas.into_iter().map(str::to_owned).collect();
    let by_schema = find(None, store, schemas).await?;
    let mut visible = Vec::with_capacity(of.len());
    for breadcrumb in of {
        visible.push(match hints_for(breadcrumb, &by_schema) {
            Some(None) => Some(breadcrumb.context.clone()),
            Some(Some(hints)) => {
                // Any writer can choose hints, and applying them may take long.
                tokio::task::yield_now().await;
                hints.apply(&breadcrumb.context).ok()
            }
            None => None,
        });
    }
    Ok(visible)
}

/// Returns the `llm_hints` that apply to a breadcrumb: its own hints, or else the hints of its schema. `Some(None)` without
/// hints, and `None` if the hints are invalid.
fn hints_for(breadcrumb: &Breadcrumb, by_schema: &HintsOfSchemas) -> Option<Option<Hints>> {
    match (own(breadcrumb), &breadcrumb.schema_name) {
        (Some(own), _) => Hints::from_json(own).ok().map(Some),
        (None, Some(schema)) => by_schema.get(schema)?.clone().ok(),
        (None, None) => Some(None),
    }
}

/// Returns the breadcrumb's own `llm_hints`, which replace the hints of its schema, or `None` without own hints.
pub(crate) fn own(breadcrumb: &Breadcrumb) -> Option<&Json> {
    breadcrumb
        .llm_hints
        .as_ref()
        .filter(|hints| !hints.is_null())
}

/// Returns `true` if a schema name is short enough for the tag of a schema definition. Otherwise the schema cannot have a definition.
fn can_be_defined(schema: &str) -> bool {
    DEFINES.len() + schema.len() <= Breadcrumb::MAX_TAG_BYTES
}

async fn read(
    store: &dyn BreadcrumbStore,
    schemas: &[String],
) -> Result<HintsOfSchemas, StoreError> {
    /// Maximum number of schemas in one query for schema definitions.
    const AT_ONCE: usize = 100;
    let mut read = HintsOfSchemas::new();
    for schemas in schemas.chunks(AT_ONCE) {
        let mut definitions = definitions(store, schemas).await?;
        for schema in schemas {
            let definition = definitions.remove(schema.as_str());
            let hints = definition.map_or(Ok(None), |definition| hints_in(&definition));
            read.insert(schema.clone(), hints);
        }
    }
    Ok(read)
}

/// Returns the newest definition of each schema. Schemas without a definition are omitted.
async fn definitions<'s>(
    store: &dyn BreadcrumbStore,
    schemas: &'s [String],
) -> Result<HashMap<&'s str, Arc<Breadcrumb>>, StoreError> {
    let mut wanted: BTreeSet<&str> = schemas.iter().map(String::as_str).collect();
    let mut found = HashMap::new();
    let mut before = None;
    // Each page of a conforming store has at least one definition of a wanted schema.
    let pages = schemas.len() + 8;
    for _ in 0..pages {
        let tags = wanted.iter().map(|schema| format!("{DEFINES}{schema}"));
        let selector = Selector::schema(DEFINITION).any_tags(tags);
        // A schema can have several definitions.
        let mut query = Query::new(selector).limit(wanted.len() * 2 + 8);
        query.before = before;
        let page = store.search(&query).await?;
        before = page.last().map(|last| last.order_key());
        let is_last = page.len() < query.limit;
        for definition in page.iter().filter(|found| query.selects(found)) {
            let tags = definition.tags.iter();
            for schema in tags.filter_map(|tag| tag.strip_prefix(DEFINES)) {
                if let Some(schema) = wanted.take(schema) {
                    found.insert(schema, Arc::clone(definition));
                }
            }
        }
        if is_last || wanted.is_empty() {
            return Ok(found);
        }
    }
    Err(StoreError::Unavailable {
        store: "the store",
        retry_after: Duration::ZERO,
        source: format!("the search for schema definitions did not end after {pages} pages").into(),
    })
}

/// Returns the `llm_hints` in a schema definition: the hints at its top level, or else in its context.
fn hints_in(definition: &Breadcrumb) -> HintsOfSchema {
    let at_top = definition.llm_hints.as_deref();
    let within = || definition.context.get("llm_hints");
    let hints = at_top.filter(|hints| !hints.is_null()).or_else(within);
    let hints = hints.filter(|hints| !hints.is_null());
    hints.map(Hints::from_json).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn entries(store: &MemoryStore, from: usize, n: usize) -> Vec<(SchemaKey, HintsOfSchema)> {
        let schemas = (from..from + n).map(|n| format!("kind{n}.v1"));
        schemas
            .map(|schema| (SchemaKey::of(store, &schema), Ok(None)))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_has_a_maximum_number_of_schemas() {
        let (cache, store) = (SchemaHints::default(), MemoryStore::default());

        cache.insert(0, Instant::now(), entries(&store, 0, MOST - 1));
        cache.insert(0, Instant::now(), entries(&store, MOST, MOST));

        assert_eq!(cache.lock().by_schema.len(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_hints_free_capacity() {
        let (cache, store) = (SchemaHints::default(), MemoryStore::default());
        cache.insert(0, Instant::now(), entries(&store, 0, MOST));

        tokio::time::advance(MAX_AGE).await;
        cache.insert(0, Instant::now(), entries(&store, MOST, 1));

        assert_eq!(cache.lock().by_schema.len(), 1);
        let newest = SchemaKey::of(&store, &format!("kind{MOST}.v1"));
        assert!(cache.of(&newest).is_some());
    }
}
