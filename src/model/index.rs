use super::event::{Event, EventKind};
use super::reserved::is_unrouted_schema;
use super::route::{Ballot, Route, Subscriptions, Tally};
use super::selector::{Passed, Selector};
use std::collections::HashMap;
use std::sync::Arc;

mod paths;
mod scan;
mod seen;
mod selectors;
mod slot;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use selectors::SelectorIndex;

/// Index of the subscriptions of many executors, which returns the executors with a matching subscription for an event.
///
/// The result is the same as a call of [`Subscriptions::route`] for each executor. The index finds candidates by schema name, tags and
/// equality conditions on the context, and tests only these candidates.
///
/// Use it in your own dispatcher with many executors. A [`Runtime`](crate::Runtime) finds the
/// matching executors itself.
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
    by_id: HashMap<Arc<str>, usize>,
    executors: Vec<Option<Executor>>,
    free: Vec<usize>,
    selectors: SelectorIndex<Place>,
}

#[derive(Clone, Debug)]
struct Executor {
    id: Arc<str>,
    subscriptions: Subscriptions,
}

/// Entry of the index for one subscription: the executor and the ballot. The ballot contains the priority and the event kinds, which decide
/// the route of an event.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    executor: usize,
    ballot: Ballot,
}

impl SubscriptionIndex {
    /// Creates an index without executors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an executor with its subscriptions to the index. If the index already contains the executor's ID, the new subscriptions replace
    /// the earlier ones.
    pub fn insert(&mut self, executor_id: &str, subscriptions: &Subscriptions) {
        self.remove(executor_id);
        let id: Arc<str> = executor_id.into();
        let added = Some(Executor {
            id: Arc::clone(&id),
            subscriptions: subscriptions.clone(),
        });
        let executor = self.free.pop().unwrap_or(self.executors.len());
        match self.executors.get_mut(executor) {
            Some(place) => *place = added,
            None => self.executors.push(added),
        }
        self.by_id.insert(id, executor);
        for (place, selector) in places(executor, subscriptions) {
            self.selectors.insert(place, selector);
        }
    }

    /// Removes an executor from the index. Returns `false` if the index has no executor with this ID.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Subscription, SubscriptionIndex, Subscriptions};
    ///
    /// let mut index = SubscriptionIndex::new();
    /// index.insert("greeter", &Subscriptions::new([Subscription::trigger("user.message.v1")])?);
    ///
    /// assert!(index.remove("greeter"));
    /// assert!(!index.remove("greeter"));
    /// # Ok::<(), universal_executor::model::DefinitionError>(())
    /// ```
    pub fn remove(&mut self, executor_id: &str) -> bool {
        let Some(executor) = self.by_id.remove(executor_id) else {
            return false;
        };
        let removed = self.executors.get_mut(executor).and_then(Option::take);
        if let Some(Executor { subscriptions, .. }) = &removed {
            for (place, selector) in places(executor, subscriptions) {
                self.selectors.remove(place, selector);
            }
        }
        self.free.push(executor);
        true
    }

    /// Returns the IDs of the executors with a matching subscription, in ascending order, each with its route. The routes are never
    /// [`Route::Unmatched`].
    ///
    /// An executor with [`Route::NeedsContext`] needs a read of the breadcrumb and
    /// [`Subscriptions::route_breadcrumb`].
    #[must_use]
    pub fn matching(&self, event: &Event) -> Vec<(Arc<str>, Route)> {
        if is_unrouted_schema(event.schema_name.as_deref()) {
            return Vec::new();
        }
        let mut found: Vec<(Place, Passed)> = Vec::new();
        self.selectors
            .search(event, |place, passed| found.push((place, passed)));
        found.sort_unstable_by_key(|(place, _)| *place);
        let of_one = |(one, _): &(Place, Passed), (other, _): &(Place, Passed)| {
            one.executor == other.executor
        };
        let mut matching: Vec<(Arc<str>, Route)> = found
            .chunk_by(of_one)
            .filter_map(|places| self.route(event.effective_kind(), places))
            .collect();
        matching.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        matching
    }

    /// Returns the route of an event for an executor. `places` are the executor's subscriptions with a possible match.
    fn route(&self, kind: EventKind, places: &[(Place, Passed)]) -> Option<(Arc<str>, Route)> {
        let mut tally = Tally::default();
        for (place, passed) in places {
            if place.ballot.is_for(kind) {
                tally.add(place.ballot, *passed);
            }
        }
        let route = tally.route();
        if route == Route::Unmatched {
            return None;
        }
        let (place, _) = places.first()?;
        let executor = self.executors.get(place.executor)?.as_ref()?;
        Some((Arc::clone(&executor.id), route))
    }
}

fn places(
    executor: usize,
    subscriptions: &Subscriptions,
) -> impl Iterator<Item = (Place, &Selector)> {
    let subscriptions = subscriptions.as_slice().iter().enumerate();
    subscriptions.map(move |(index, subscription)| {
        let ballot = Ballot::new(index, subscription);
        (Place { executor, ballot }, &subscription.selector)
    })
}
