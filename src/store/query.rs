use crate::model::{Breadcrumb, BreadcrumbId, Order, Selector, Timestamp};
use std::sync::Arc;

/// Which breadcrumbs to return, how many and in which order.
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
    /// What they must match, in full.
    pub selector: Selector,
    /// How many at the most: the newest of those that match.
    pub limit: usize,
    /// The order in which these are returned.
    pub order: Order,
    /// Tags they must all have, beside what the selector says.
    pub scope_tags: Vec<String>,
    /// Only what is older than this in the store's order: update time, then version, then id.
    pub before: Option<(Timestamp, u64, BreadcrumbId)>,
    /// Only breadcrumbs updated after this time. A store may answer a query with `before` and `after` in part
    /// ([`StoreError::Partial`](super::StoreError::Partial)).
    pub after: Option<Timestamp>,
    /// One breadcrumb that is left out, before the limit counts.
    pub exclude: Option<BreadcrumbId>,
}

impl Query {
    /// The newest ten that match.
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

    /// Sets how many.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the order of the result.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Adds a tag they must have.
    #[must_use]
    pub fn scope_tag(mut self, tag: impl Into<String>) -> Self {
        self.scope_tags.push(tag.into());
        self
    }

    /// Leaves out everything but what is older than a breadcrumb.
    #[must_use]
    pub fn before(mut self, key: (Timestamp, u64, BreadcrumbId)) -> Self {
        self.before = Some(key);
        self
    }

    /// Selects only breadcrumbs updated after a time.
    #[must_use]
    pub fn after(mut self, time: Timestamp) -> Self {
        self.after = Some(time);
        self
    }

    /// Leaves one breadcrumb out.
    #[must_use]
    pub fn exclude(mut self, id: BreadcrumbId) -> Self {
        self.exclude = Some(id);
        self
    }

    /// Whether a breadcrumb is selected: everything but the limit.
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

/// Which breadcrumbs to return by meaning.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VectorQuery {
    /// What they must match and how many; the order is by score.
    pub query: Query,
    /// What they shall be near to.
    pub text: String,
    /// What is less similar is left out.
    pub min_score: Option<f64>,
}

impl VectorQuery {
    /// Those a query selects, nearest to a text first.
    #[must_use]
    pub fn new(query: Query, text: impl Into<String>) -> Self {
        Self {
            query,
            text: text.into(),
            min_score: None,
        }
    }

    /// Leaves out what is less similar.
    #[must_use]
    pub fn min_score(mut self, score: f64) -> Self {
        self.min_score = Some(score);
        self
    }
}

/// A breadcrumb and how near it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The breadcrumb.
    pub breadcrumb: Arc<Breadcrumb>,
    /// Cosine similarity to the text, -1 to 1; absent where the backend tells only the order.
    pub score: Option<f64>,
}
