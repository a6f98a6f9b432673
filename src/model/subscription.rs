use super::condition::Condition;
use super::event::EventKind;
use super::selector::Selector;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// A selector with a role: the selected breadcrumbs trigger an executor, or are input of the executor's runs.
///
/// Create a subscription with [`trigger`](Self::trigger) or [`context`](Self::context), and change
/// it with the other methods. Pass it to an executor builder, an agent, or
/// [`Subscriptions::new`](super::Subscriptions::new), which checks it. The defaults are: no
/// required breadcrumbs, priority 0, and events of created and updated breadcrumbs.
///
/// ```
/// use universal_executor::Subscription;
///
/// let subscriptions = [
///     Subscription::trigger("user.message.v1"),
///     Subscription::context("user.message.v1").key("history").recent(20).oldest_first().scope(["session:"]),
///     Subscription::context("tool.catalog.v1").key("tools").latest(),
/// ];
/// # assert_eq!(subscriptions.len(), 3);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Subscription {
    /// The selector of the subscription's breadcrumbs.
    pub selector: Selector,
    /// The use of the selected breadcrumbs: trigger or context.
    pub role: Role,
    /// The name of the selected breadcrumbs in a run's assembled context. Defaults to the schema name for a context subscription. On a
    /// trigger, an alias of the trigger.
    ///
    /// The names of one executor must differ, except that several triggers may share an alias.
    /// `trigger` is reserved.
    pub key: Option<String>,
    /// The fetch settings of a context subscription, such as the method and the maximum number and order of the breadcrumbs.
    /// Ignored on a trigger.
    pub fetch: Fetch,
    /// If `true`, an attempt of a run fails if the breadcrumbs cannot be fetched, or if the subscription fetches at most one and
    /// finds none. Defaults to `false`. Ignored on a trigger.
    pub required: bool,
    /// Tag prefixes such as `session:`: each fetched breadcrumb must have every tag of the trigger that starts with one of these
    /// prefixes. A context subscription fetches nothing unless the trigger has a tag with each prefix. Ignored on a trigger.
    pub scope: Vec<String>,
    /// The priority of the subscription: of several matching triggers, the one with the highest number is used. If a context
    /// exceeds its maximum size, items with the lowest priority are omitted first. Defaults to 0.
    ///
    /// Between triggers of the same priority, the first one is used.
    pub priority: i64,
    /// The kinds of events that match the subscription. Defaults to created and updated.
    pub on: Vec<EventKind>,
    /// A comment on the subscription for people, without an effect.
    pub comment: Option<String>,
    /// Unknown fields of the subscription's definition, without an effect.
    pub extra: Map<String, Value>,
}

/// Role of a [`Subscription`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The selected breadcrumbs trigger the executor.
    ///
    /// Each matching version of a breadcrumb starts one run.
    Trigger,
    /// The selected breadcrumbs are fetched as input when a run starts.
    ///
    /// A matching event starts no run by itself.
    Context,
}

impl Role {
    /// Both roles of subscriptions.
    pub const ALL: [Self; 2] = [Self::Trigger, Self::Context];

    /// Returns the opposite role: `Context` for `Trigger`, and `Trigger` for `Context`.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Trigger => Self::Context,
            Self::Context => Self::Trigger,
        }
    }

    /// Returns the role's name in definitions: `trigger` or `context`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Context => "context",
        }
    }
}

/// Method, number and order of the breadcrumbs that a context subscription fetches.
///
/// [`Subscription::latest`], [`Subscription::recent`] and [`Subscription::vector`] set it. In a
/// definition it is the name of a method, or an object such as `{"method": "recent", "limit": 20}`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fetch {
    /// The method that chooses the fetched breadcrumbs.
    pub method: Method,
    /// The maximum number of fetched breadcrumbs, from 1 to [`DefinitionOptions::max_limit`](super::DefinitionOptions). The field `nn` of a
    /// definition sets the number for a vector fetch.
    pub limit: usize,
    /// The order of the fetched breadcrumbs. Does not change which breadcrumbs are fetched.
    pub order: Order,
    /// The minimum similarity score of a vector fetch, or `None` for no minimum. A store without scores rejects a minimum.
    ///
    /// The scale of the scores depends on the store and its embedder.
    pub min_score: Option<f64>,
}

/// Method by which a fetch chooses among the matching breadcrumbs.
///
/// # Examples
/// ```
/// use universal_executor::Fetch;
/// use universal_executor::model::Method;
///
/// assert_eq!(Fetch::new(Method::Recent).limit, 10);
/// assert_eq!(Fetch::new(Method::Vector).items(), 5);
/// assert!(Fetch::new(Method::Latest).is_one());
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Method {
    /// The trigger breadcrumb itself. The default and the only method of a trigger.
    EventData,
    /// The newest matching breadcrumb. The default of a context subscription.
    Latest,
    /// The newest matching breadcrumbs, 10 by default.
    Recent,
    /// The matching breadcrumbs most similar to the trigger by vector search, 5 by default.
    ///
    /// Needs a store with vector search. The query text is the result of
    /// [`search_query`](crate::UniversalExecutor::search_query).
    Vector,
}

impl Method {
    /// All fetch methods.
    pub const ALL: [Self; 4] = [Self::EventData, Self::Latest, Self::Recent, Self::Vector];

    /// Returns the fetch method's name in definitions: `event_data`, `latest`, `recent` or `vector`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EventData => "event_data",
            Self::Latest => "latest",
            Self::Recent => "recent",
            Self::Vector => "vector",
        }
    }

    /// Returns the default maximum number of breadcrumbs for the fetch method: 1 for `event_data` and `latest`, 10 for `recent`,
    /// 5 for `vector`.
    #[must_use]
    pub const fn default_limit(self) -> usize {
        match self {
            Self::EventData | Self::Latest => 1,
            Self::Recent => 10,
            Self::Vector => 5,
        }
    }
}

/// Order of the breadcrumbs in a fetched list.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Order {
    /// Descending by update time, then version, then ID. A vector fetch starts with the most similar breadcrumb.
    #[default]
    NewestFirst,
    /// Ascending by update time, then version, then ID. A vector fetch ends with the most similar breadcrumb.
    OldestFirst,
}

impl Order {
    /// Both orders of fetched breadcrumbs.
    pub const ALL: [Self; 2] = [Self::NewestFirst, Self::OldestFirst];

    /// Returns the name of this order of breadcrumbs in definitions: `newest_first` or `oldest_first`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NewestFirst => "newest_first",
            Self::OldestFirst => "oldest_first",
        }
    }
}

impl Fetch {
    /// Creates a fetch with the default limit of a method, newest first.
    #[must_use]
    pub const fn new(method: Method) -> Self {
        Self {
            method,
            limit: method.default_limit(),
            order: Order::NewestFirst,
            min_score: None,
        }
    }

    /// Returns `true` if the run's context has one item under the subscription's key instead of a list: for the fetch method
    /// `latest`, or a limit of 1.
    #[must_use]
    pub const fn is_one(&self) -> bool {
        self.limit == 1 || matches!(self.method, Method::Latest)
    }

    /// Returns the maximum number of fetched breadcrumbs: 1 for the fetch method `latest`, otherwise the field `limit`.
    #[must_use]
    pub const fn items(&self) -> usize {
        match self.method {
            Method::Latest => 1,
            Method::EventData | Method::Recent | Method::Vector => self.limit,
        }
    }
}

impl Subscription {
    /// Creates a trigger subscription for a schema name. `"*"` selects all schemas.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Role, Subscription, Subscriptions};
    ///
    /// let orders = Subscription::trigger("order.v1")
    ///     .all_tags(["shop:1"])
    ///     .matching("$.count", "gt", 0);
    /// assert_eq!(orders.role, Role::Trigger);
    /// assert!(Subscriptions::new([orders]).is_ok());
    /// ```
    #[must_use]
    pub fn trigger(schema_name: impl Into<String>) -> Self {
        Self::new(Selector::schema(schema_name), Role::Trigger)
    }

    /// Creates a context subscription for a schema name, which fetches the latest breadcrumb. `"*"` selects all schemas.
    ///
    /// The breadcrumb is read when a run starts, so a run sees the state of that moment.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Role, Subscription};
    ///
    /// let prices = Subscription::context("price.v1").key("price").required();
    /// assert_eq!((prices.role, prices.name()), (Role::Context, Some("price")));
    /// assert!(prices.fetch.is_one());
    /// ```
    #[must_use]
    pub fn context(schema_name: impl Into<String>) -> Self {
        Self::new(Selector::schema(schema_name), Role::Context)
    }

    /// Creates a subscription with the defaults of its role.
    ///
    /// Use it for a [`Selector`] that is built elsewhere. A trigger fetches the event's breadcrumb,
    /// and a context subscription the latest match.
    #[must_use]
    pub fn new(selector: Selector, role: Role) -> Self {
        let method = match role {
            Role::Trigger => Method::EventData,
            Role::Context => Method::Latest,
        };
        Self {
            selector,
            role,
            key: None,
            fetch: Fetch::new(method),
            required: false,
            scope: Vec::new(),
            priority: 0,
            on: vec![EventKind::Created, EventKind::Updated],
            comment: None,
            extra: Map::new(),
        }
    }

    /// Requires a breadcrumb to have at least one of these tags.
    ///
    /// Repeated calls extend the list. An empty list matches no breadcrumb.
    #[must_use]
    pub fn any_tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.selector = self.selector.any_tags(tags);
        self
    }

    /// Requires a breadcrumb to have all of these tags.
    ///
    /// Repeated calls extend the list.
    #[must_use]
    pub fn all_tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.selector = self.selector.all_tags(tags);
        self
    }

    /// Requires that a condition on the breadcrumb's `context` (its payload) holds. See [`Selector::matching`].
    ///
    /// A condition that does not compile is reported by
    /// [`Subscriptions::new`](super::Subscriptions::new).
    #[must_use]
    pub fn matching(
        mut self,
        path: impl Into<String>,
        op: impl AsRef<str>,
        value: impl Into<Value>,
    ) -> Self {
        self.selector = self.selector.matching(path, op, value);
        self
    }

    /// Requires that a condition on the breadcrumb's `context` (its payload) holds.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.selector = self.selector.condition(condition);
        self
    }

    /// Sets the name of the selected breadcrumbs in a run's assembled context. On a trigger, an alias of the trigger.
    ///
    /// [`ExecutionContext::get`](crate::ExecutionContext::get) and
    /// [`ExecutionContext::many`](crate::ExecutionContext::many) take this name.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Makes the subscription fetch the newest matching breadcrumb.
    ///
    /// This is the default of a context subscription. The context has one item under the key.
    #[must_use]
    pub fn latest(mut self) -> Self {
        self.fetch = Fetch {
            order: self.fetch.order,
            ..Fetch::new(Method::Latest)
        };
        self
    }

    /// Makes the subscription fetch the newest matching breadcrumbs, at most `limit`.
    ///
    /// `limit` is between 1 and 1,000 by default. With a limit of 1, the context has one item
    /// instead of a list.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    ///
    /// let history = Subscription::context("user.message.v1").key("history");
    /// let history = history.recent(20).oldest_first();
    /// assert_eq!((history.fetch.limit, history.fetch.is_one()), (20, false));
    /// ```
    #[must_use]
    pub fn recent(mut self, limit: usize) -> Self {
        self.fetch = Fetch {
            limit,
            order: self.fetch.order,
            ..Fetch::new(Method::Recent)
        };
        self
    }

    /// Makes the subscription fetch the breadcrumbs most similar to the trigger by vector search, at most `nn`.
    ///
    /// `nn` is between 1 and 1,000 by default. The store needs an embedder. If the store has none,
    /// the source is missing from the context, and a required one prevents the start of the
    /// executor.
    #[must_use]
    pub fn vector(mut self, nn: usize) -> Self {
        self.fetch = Fetch {
            limit: nn,
            order: self.fetch.order,
            ..Fetch::new(Method::Vector)
        };
        self
    }

    /// Sets the minimum similarity score of a vector fetch. Less similar breadcrumbs are omitted.
    ///
    /// Call it after [`vector`](Self::vector), which resets the score. A store without scores
    /// rejects the search.
    #[must_use]
    pub fn min_score(mut self, score: f64) -> Self {
        self.fetch.min_score = Some(score);
        self
    }

    /// Reverses the order of the fetched breadcrumbs: oldest first, or for a vector fetch the most similar last.
    ///
    /// The fetch still chooses the newest breadcrumbs, and then reverses them. This order suits a
    /// conversation.
    #[must_use]
    pub fn oldest_first(mut self) -> Self {
        self.fetch.order = Order::OldestFirst;
        self
    }

    /// Makes an attempt of a run fail if the breadcrumbs cannot be fetched, or if the subscription fetches at most one and finds
    /// none. See the field `required`.
    ///
    /// Without this setting, a failed fetch only adds the source to
    /// [`ExecutionContext::missing`](crate::ExecutionContext::missing), and the run continues.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Adds tag prefixes such as `session:`: each fetched breadcrumb must have every tag of the trigger that starts with one of
    /// these prefixes. See the field `scope`.
    ///
    /// Use it so that a run reads only breadcrumbs of the same session or order. Without a shared
    /// tag, the source is empty and listed as missing.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    ///
    /// let history = Subscription::context("user.message.v1").recent(20).scope(["session:"]);
    /// assert_eq!(history.scope, ["session:"]);
    /// ```
    #[must_use]
    pub fn scope<T: Into<String>>(mut self, prefixes: impl IntoIterator<Item = T>) -> Self {
        self.scope.extend(prefixes.into_iter().map(Into::into));
        self
    }

    /// Sets the priority of the subscription, by default 0. See the field `priority`.
    ///
    /// Higher numbers win. Negative numbers are allowed.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the kinds of events that match the subscription.
    ///
    /// Replaces the default of created and updated. An empty list matches no event. Deletions need
    /// a store that retains tombstones.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{EventKind, Subscription};
    ///
    /// let removed = Subscription::trigger("file.v1").on([EventKind::Deleted]);
    /// assert_eq!(removed.on, [EventKind::Deleted]);
    /// ```
    #[must_use]
    pub fn on(mut self, kinds: impl IntoIterator<Item = EventKind>) -> Self {
        self.on = kinds.into_iter().collect();
        self
    }

    /// Returns the subscription's name in a run's assembled context: the key, or for a context subscription without a key, the
    /// schema name. Returns `None` for a trigger without a key.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self.role {
            Role::Trigger => self.key.as_deref(),
            Role::Context => self.key.as_deref().or_else(|| self.selector.schema_name()),
        }
    }
}

impl Serialize for Subscription {
    /// Serializes the subscription as its definition, without the fields that have their default values.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plain = Self::new(self.selector.clone(), self.role);
        let mut map = serializer.serialize_map(None)?;
        self.selector.write_fields(&mut map)?;
        map.serialize_entry("role", self.role.as_str())?;
        if let Some(key) = &self.key {
            map.serialize_entry("key", key)?;
        }
        if self.fetch != plain.fetch {
            map.serialize_entry("fetch", &self.fetch)?;
        }
        if self.required {
            map.serialize_entry("required", &true)?;
        }
        if !self.scope.is_empty() {
            map.serialize_entry("scope", &self.scope)?;
        }
        if self.priority != 0 {
            map.serialize_entry("priority", &self.priority)?;
        }
        if self.on != plain.on {
            let kinds: Vec<&str> = self.on.iter().map(|kind| kind.as_str()).collect();
            map.serialize_entry("on", &kinds)?;
        }
        if let Some(comment) = &self.comment {
            map.serialize_entry("comment", comment)?;
        }
        for (field, value) in &self.extra {
            map.serialize_entry(field, value)?;
        }
        map.end()
    }
}

impl Serialize for Fetch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("method", self.method.as_str())?;
        let limit = if self.method == Method::Vector {
            "nn"
        } else {
            "limit"
        };
        map.serialize_entry(limit, &self.limit)?;
        if self.order == Order::OldestFirst {
            map.serialize_entry("order", self.order.as_str())?;
        }
        if let Some(score) = self.min_score {
            map.serialize_entry("min_score", &score)?;
        }
        map.end()
    }
}
