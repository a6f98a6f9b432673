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
///
/// Read a long list in pages with [`before`](Self::before()), the position of the last breadcrumb:
///
/// ```
/// use serde_json::json;
/// use universal_executor::store::Query;
/// use universal_executor::{
///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Selector,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// for n in 0..5 {
///     store.create(NewBreadcrumb::new("order.v1").context(json!({"n": n}))).await?;
/// }
/// let mut query = Query::new(Selector::schema("order.v1")).limit(2);
/// let mut seen = Vec::new();
/// loop {
///     let page = store.search(&query).await?;
///     seen.extend(page.iter().map(|order| order.context["n"].as_u64()));
///     match page.last() {
///         Some(oldest) if page.len() == query.limit => query = query.before(oldest.order_key()),
///         _ => break,
///     }
/// }
/// assert_eq!(seen, [4, 3, 2, 1, 0].map(Some));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Query {
    /// The selector of the query. Each breadcrumb in the result matches all conditions of the selector.
    pub selector: Selector,
    /// Maximum number of breadcrumbs in the result: the newest ones that match. Defaults to 10.
    pub limit: usize,
    /// The order of the breadcrumbs in the query's result. Defaults to newest first.
    pub order: Order,
    /// Tags that each breadcrumb in the result must have, in addition to the tags of the selector.
    pub scope_tags: Vec<String>,
    /// Exclusive upper bound of the selected breadcrumbs in the store's order: update time, then version, then ID. Only older
    /// breadcrumbs are selected.
    pub before: Option<(Timestamp, u64, BreadcrumbId)>,
    /// Exclusive lower bound of the selected breadcrumbs' update times. A store may answer a query with `before` and `after` in part
    /// ([`StoreError::Partial`](super::StoreError::Partial)).
    pub after: Option<Timestamp>,
    /// A breadcrumb that the query excludes from the result. This breadcrumb does not count towards the maximum number of results.
    pub exclude: Option<BreadcrumbId>,
}

impl Query {
    /// Creates a query for the ten newest breadcrumbs that match a selector.
    ///
    /// The query has no further conditions and returns the newest breadcrumb first.
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
    ///
    /// The memory, SQLite and PostgreSQL stores accept any number. An `RcrtStore` also limits the
    /// number of breadcrumbs that it reads for one search.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the order of the breadcrumbs in the query's result.
    ///
    /// The limit selects the newest breadcrumbs in each order. With [`Order::OldestFirst`], the
    /// result has the same breadcrumbs in reverse.
    ///
    /// ```
    /// use universal_executor::model::Order;
    /// use universal_executor::store::Query;
    /// use universal_executor::{
    ///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Selector,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// for title in ["first", "second", "third"] {
    ///     store.create(NewBreadcrumb::new("note.v1").title(title)).await?;
    /// }
    /// let query = Query::new(Selector::schema("note.v1")).limit(2).order(Order::OldestFirst);
    /// let found = store.search(&query).await?;
    /// let titles: Vec<_> = found.iter().map(|note| &*note.title).collect();
    /// assert_eq!(titles, ["second", "third"], "the newest two, in reverse");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Adds a tag that each breadcrumb in the result must have.
    ///
    /// Several calls add several tags, and a breadcrumb must have all of them. Use it to restrict
    /// the selector of a subscription to one session or customer.
    ///
    /// ```
    /// use universal_executor::store::Query;
    /// use universal_executor::{Breadcrumb, NewBreadcrumb, Selector};
    ///
    /// let query = Query::new(Selector::any()).scope_tag("customer:7").scope_tag("open");
    /// let open: Breadcrumb = NewBreadcrumb::new("order.v1").tags(["customer:7", "open"]).into();
    /// let closed: Breadcrumb = NewBreadcrumb::new("order.v1").tag("customer:7").into();
    /// assert!(query.selects(&open) && !query.selects(&closed));
    /// ```
    #[must_use]
    pub fn scope_tag(mut self, tag: impl Into<String>) -> Self {
        self.scope_tags.push(tag.into());
        self
    }

    /// Selects only breadcrumbs whose position in the store's order is lower than the given one. The position is the update time, version
    /// and ID of a breadcrumb.
    ///
    /// Pass [`Breadcrumb::order_key`] of the last breadcrumb of a page to read the next page.
    ///
    /// ```
    /// use universal_executor::store::Query;
    /// use universal_executor::{
    ///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Selector,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let first = store.create(NewBreadcrumb::new("note.v1")).await?;
    /// let second = store.create(NewBreadcrumb::new("note.v1")).await?;
    ///
    /// let older = Query::new(Selector::schema("note.v1")).before(second.order_key());
    /// assert_eq!(store.search(&older).await?, [first]);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn before(mut self, key: (Timestamp, u64, BreadcrumbId)) -> Self {
        self.before = Some(key);
        self
    }

    /// Selects only breadcrumbs that were updated after a time.
    ///
    /// The time itself is excluded. All times are from the store's clock.
    ///
    /// ```
    /// use universal_executor::store::Query;
    /// use universal_executor::{
    ///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Selector,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let first = store.create(NewBreadcrumb::new("note.v1")).await?;
    /// let second = store.create(NewBreadcrumb::new("note.v1")).await?;
    ///
    /// let later = Query::new(Selector::schema("note.v1")).after(first.updated_at);
    /// assert_eq!(store.search(&later).await?, [second]);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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
    ///
    /// A store without indexes can implement [`search`](super::BreadcrumbStore::search) with it:
    ///
    /// ```
    /// use universal_executor::store::Query;
    /// use universal_executor::{Breadcrumb, NewBreadcrumb, Selector};
    ///
    /// let note: Breadcrumb = NewBreadcrumb::new("note.v1").tag("session:1").into();
    /// let query = Query::new(Selector::schema("note.v1")).scope_tag("session:1");
    ///
    /// assert!(query.selects(&note));
    /// assert!(!query.exclude(note.id).selects(&note));
    /// ```
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
///
/// It is the argument of [`vector_search`](super::BreadcrumbStore::vector_search). A subscription
/// with a `vector` fetch creates such a query from its trigger.
///
/// ```
/// use universal_executor::Selector;
/// use universal_executor::store::{Query, VectorQuery};
///
/// let notes = Query::new(Selector::schema("note.v1")).limit(3);
/// let query = VectorQuery::new(notes, "delivery times").min_score(0.5);
/// assert_eq!((query.query.limit, query.min_score), (3, Some(0.5)));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VectorQuery {
    /// The query that selects the breadcrumbs to search and limits the number of results. Its order has no effect: the result is
    /// in the order of the scores.
    pub query: Query,
    /// The text to which the breadcrumbs must be similar.
    pub text: String,
    /// Minimum cosine similarity of a result to the text, from -1 to 1. Less similar breadcrumbs are omitted.
    pub min_score: Option<f64>,
}

impl VectorQuery {
    /// Creates a query for the breadcrumbs that are most similar to a text, without a minimum score.
    ///
    /// A blank text has no results. At most [`MAX_TEXT_BYTES`](super::embedding::MAX_TEXT_BYTES)
    /// bytes of the text are embedded.
    #[must_use]
    pub fn new(query: Query, text: impl Into<String>) -> Self {
        Self {
            query,
            text: text.into(),
            min_score: None,
        }
    }

    /// Sets the minimum cosine similarity of a result to the text, from -1 to 1.
    ///
    /// The useful value depends on the embedding model. A store without
    /// [`Capabilities::scores`](super::Capabilities::scores) rejects such a query with
    /// [`StoreError::Unsupported`](super::StoreError::Unsupported).
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
