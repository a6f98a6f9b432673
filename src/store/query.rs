use crate::model::{Breadcrumb, BreadcrumbId, Order, Selector, Timestamp};
use std::sync::Arc;

/// Query of a store: a selector of breadcrumbs, with the maximum number and the order of the results.
///
/// ```
/// use universal_executor::Selector;
/// use universal_executor::store::Query;
///
/// let history = Query::new(Selector::schema("user.message.v1")).limit(20).scope_tag("session:1");
/// assert_eq!(history.limit, 20);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Query {
    /// The selector of the query. Each breadcrumb in the result matches all conditions of the selector.
    pub selector: Selector,
    /// Maximum number of breadcrumbs in the result: the newest ones that match. Defaults to 10.
    pub limit: usize,
    /// The order of the breadcrumbs in the result. Defaults to newest first.
    pub order: Order,
    /// Tags that each breadcrumb in the result must have, in addition to the tags of the selector.
    pub scope_tags: Vec<String>,
    /// Exclusive upper bound of the selected breadcrumbs in the store's order: update time, then version, then ID. Only older
    /// breadcrumbs are selected.
    pub before: Option<(Timestamp, u64, BreadcrumbId)>,
    /// Exclusive lower bound of the update time. Only breadcrumbs that were updated later are selected. A store may answer a
    /// query with `before` and `after` in part ([`StoreError::Partial`](super::StoreError::Partial)).
    pub after: Option<Timestamp>,
    /// A breadcrumb that the query excludes from the result. This breadcrumb does not count towards the maximum number of results.
    pub exclude: Option<BreadcrumbId>,
}

impl Query {
    /// Creates a query for the ten newest breadcrumbs that match a selector.
    #[must_use]
    pub fn new(selector: Selector) -> Self {
        Self {
            selector,
            limit: 10,
            order: Order::NewestFirst,
            scope_tags: Vec::new(),
            before: None,
            after: None,
            exclude: None,
        }
    }

    /// Sets the maximum number of breadcrumbs in the result.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the order of the breadcrumbs in the result.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Adds a tag that each breadcrumb in the result must have.
    #[must_use]
    pub fn scope_tag(mut self, tag: impl Into<String>) -> Self {
        self.scope_tags.push(tag.into());
        self
    }

    /// Selects only breadcrumbs that are older than a position in the store's order. The position is the update time, version
    /// and ID of another breadcrumb.
    #[must_use]
    pub fn before(mut self, key: (Timestamp, u64, BreadcrumbId)) -> Self {
        self.before = Some(key);
        self
    }

    /// Selects only breadcrumbs that were updated after a time.
    #[must_use]
    pub fn after(mut self, time: Timestamp) -> Self {
        self.after = Some(time);
        self
    }

    /// Excludes one breadcrumb from the result. This breadcrumb does not count towards the maximum number of results.
    #[must_use]
    pub fn exclude(mut self, id: BreadcrumbId) -> Self {
        self.exclude = Some(id);
        self
    }

    /// Returns `true` if a breadcrumb satisfies all conditions of the query, regardless of the maximum number of results.
    #[must_use]
    pub fn selects(&self, breadcrumb: &Breadcrumb) -> bool {
        self.exclude != Some(breadcrumb.id)
            && self.before.is_none_or(|key| breadcrumb.order_key() < key)
            && self.after.is_none_or(|time| breadcrumb.updated_at > time)
            && self
                .scope_tags
                .iter()
                .all(|tag| breadcrumb.tags.contains(tag))
            && self.selector.matches(breadcrumb)
    }
}

/// Query for breadcrumbs whose meaning is similar to a text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VectorQuery {
    /// The breadcrumbs to search, and the maximum number of results. Its order has no effect: the result is in the order of the
    /// scores.
    pub query: Query,
    /// The text to which the breadcrumbs must be similar.
    pub text: String,
    /// Minimum cosine similarity, from -1 to 1. Less similar breadcrumbs are omitted.
    pub min_score: Option<f64>,
}

impl VectorQuery {
    /// Creates a query for the breadcrumbs that are most similar to a text, without a minimum score.
    #[must_use]
    pub fn new(query: Query, text: impl Into<String>) -> Self {
        Self {
            query,
            text: text.into(),
            min_score: None,
        }
    }

    /// Sets the minimum cosine similarity, from -1 to 1.
    #[must_use]
    pub fn min_score(mut self, score: f64) -> Self {
        self.min_score = Some(score);
        self
    }
}

/// One result of a vector search: a breadcrumb and its similarity to the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The breadcrumb that the vector search found.
    pub breadcrumb: Arc<Breadcrumb>,
    /// Cosine similarity of the breadcrumb to the text of the vector search, from -1 to 1. `None` if the backend returns only the
    /// order.
    pub score: Option<f64>,
}
