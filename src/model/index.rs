use super::event::{Event, EventKind};
use super::reserved::is_unrouted_schema;
use super::route::{Route, RouteBuilder, RouteCandidate, Subscriptions};
use super::selector::{MatchCertainty, Selector};
use std::collections::HashMap;
use std::sync::Arc;

mod event_values;
mod path_value;
mod paths;
mod scan;
mod selectors;
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
    selectors: SelectorIndex<SubscriptionEntry>,
}

#[derive(Clone, Debug)]
struct Executor {
    id: Arc<str>,
    subscriptions: Subscriptions,
}

/// Entry of the subscription index: an executor, and the properties of one of its subscriptions that decide an event's effect on
/// the executor.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct SubscriptionEntry {
    executor: usize,
    candidate: RouteCandidate,
}

impl SubscriptionIndex {
    /// Creates a subscription index without executors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an executor with its subscriptions to this subscription index. If the index already contains the executor's ID, the
    /// new subscriptions replace the earlier ones.
    pub fn insert(&mut self, executor_id: &str, subscriptions: &Subscriptions) {
        self.remove(executor_id);
        let id: Arc<str> = executor_id.into();
        let added = Some(Executor {
            id: Arc::clone(&id),
            subscriptions: subscriptions.clone(),
        });
        let executor = self.free.pop().unwrap_or(self.executors.len());
        match self.executors.get_mut(executor) {
            Some(entry) => *entry = added,
            None => self.executors.push(added),
        }
        self.by_id.insert(id, executor);
        for (entry, selector) in entries(executor, subscriptions) {
            self.selectors.insert(entry, selector);
        }
    }

    /// Removes an executor with its subscriptions from this subscription index. Returns `false` if the index has no executor with
    /// this ID.
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
            for (entry, selector) in entries(executor, subscriptions) {
                self.selectors.remove(entry, selector);
            }
        }
        self.free.push(executor);
        true
    }

    /// Returns the IDs of the executors with a subscription that matches an event, in ascending order, each with the event's
    /// effect. The effects are never [`Route::Unmatched`].
    ///
    /// An executor with [`Route::NeedsContext`] needs a read of the breadcrumb and
    /// [`Subscriptions::route_breadcrumb`].
    #[must_use]
    pub fn matching(&self, event: &Event) -> Vec<(Arc<str>, Route)> {
        if is_unrouted_schema(event.schema_name.as_deref()) {
            return Vec::new();
        }
        let mut matches: Vec<(SubscriptionEntry, MatchCertainty)> = Vec::new();
        self.selectors
            .search(event, |entry, certainty| matches.push((entry, certainty)));
        matches.sort_unstable_by_key(|(entry, _)| *entry);
        let is_same_executor =
            |(one, _): &(SubscriptionEntry, MatchCertainty),
             (other, _): &(SubscriptionEntry, MatchCertainty)| {
                one.executor == other.executor
            };
        let mut matching: Vec<(Arc<str>, Route)> = matches
            .chunk_by(is_same_executor)
            .filter_map(|entries| self.route(event.effective_kind(), entries))
            .collect();
        matching.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        matching
    }

    /// Returns the ID of an executor and the effect of an event on the executor, or `None` if the event has no effect on it.
    /// `entries` are the executor's subscriptions with a possible match.
    fn route(
        &self,
        kind: EventKind,
        entries: &[(SubscriptionEntry, MatchCertainty)],
    ) -> Option<(Arc<str>, Route)> {
        let mut builder = RouteBuilder::default();
        for (entry, certainty) in entries {
            if entry.candidate.selects(kind) {
                builder.add(entry.candidate, *certainty);
            }
        }
        let route = builder.route();
        if route == Route::Unmatched {
            return None;
        }
        let (entry, _) = entries.first()?;
        let executor = self.executors.get(entry.executor)?.as_ref()?;
        Some((Arc::clone(&executor.id), route))
    }
}

fn entries(
    executor: usize,
    subscriptions: &Subscriptions,
) -> impl Iterator<Item = (SubscriptionEntry, &Selector)> {
    let subscriptions = subscriptions.as_slice().iter().enumerate();
    subscriptions.map(move |(index, subscription)| {
        let candidate = RouteCandidate::new(index, subscription);
        (
            SubscriptionEntry {
                executor,
                candidate,
            },
            &subscription.selector,
        )
    })
}
