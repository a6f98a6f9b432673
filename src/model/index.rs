use super::event::{Event, EventKind};
use super::route::{Route, Subscriptions};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Which executors an event concerns, found by its schema.
///
/// Gives for every event exactly what asking each executor's [`Subscriptions::route`] would.
///
/// ```
/// use universal_executor::{Event, NewBreadcrumb, Route, Subscription, SubscriptionIndex, Subscriptions};
/// # use universal_executor::model::{BreadcrumbId, Timestamp};
///
/// let mut index = SubscriptionIndex::new();
/// index.insert("greeter", &Subscriptions::new([Subscription::trigger("user.message.v1")])?);
/// index.insert("auditor", &Subscriptions::new([Subscription::trigger("*")])?);
/// # let message = NewBreadcrumb::new("user.message.v1").first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
///
/// let matching = index.matching(&Event::created(&message));
///
/// assert_eq!(matching.len(), 2);
/// # Ok::<(), universal_executor::model::DefinitionError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SubscriptionIndex {
    executors: BTreeMap<Arc<str>, Subscriptions>,
    by_schema: HashMap<String, BTreeSet<Arc<str>>>,
    /// Executors with a subscription that names no schema.
    any_schema: BTreeSet<Arc<str>>,
}

impl SubscriptionIndex {
    /// An empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an executor, or replaces its subscriptions.
    pub fn insert(&mut self, executor_id: &str, subscriptions: &Subscriptions) {
        self.remove(executor_id);
        let id: Arc<str> = executor_id.into();
        for subscription in subscriptions.as_slice() {
            let place = match subscription.selector.schema_name() {
                Some(schema) => self.by_schema.entry(schema.to_owned()).or_default(),
                None => &mut self.any_schema,
            };
            place.insert(Arc::clone(&id));
        }
        self.executors.insert(id, subscriptions.clone());
    }

    /// Removes an executor; false if it was not there.
    pub fn remove(&mut self, executor_id: &str) -> bool {
        let Some(subscriptions) = self.executors.remove(executor_id) else {
            return false;
        };
        self.any_schema.remove(executor_id);
        for subscription in subscriptions.as_slice() {
            if let Some(schema) = subscription.selector.schema_name()
                && let Some(ids) = self.by_schema.get_mut(schema)
            {
                ids.remove(executor_id);
                if ids.is_empty() {
                    self.by_schema.remove(schema);
                }
            }
        }
        true
    }

    /// The executors an event concerns, by id, with what it is to them; never [`Route::Unmatched`].
    #[must_use]
    pub fn matching(&self, event: &Event) -> Vec<(Arc<str>, Route)> {
        if event.kind == EventKind::Ping {
            return Vec::new();
        }
        let by_schema = event
            .schema_name
            .as_ref()
            .and_then(|schema| self.by_schema.get(schema));
        let named = by_schema.into_iter().flatten();
        let also = self
            .any_schema
            .iter()
            .filter(|id| by_schema.is_none_or(|ids| !ids.contains(*id)));
        let mut matching: Vec<(Arc<str>, Route)> = named
            .chain(also)
            .filter_map(|id| {
                let route = self.executors.get(id)?.route(event);
                (route != Route::Unmatched).then(|| (Arc::clone(id), route))
            })
            .collect();
        matching.sort_by(|(one, _), (other, _)| one.cmp(other));
        matching
    }
}
