use super::condition::Condition;
use super::event::EventKind;
use super::selector::Selector;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// A selector with a role: what sets an executor off, or what it is given to work with.
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
    /// Which breadcrumbs.
    pub selector: Selector,
    /// What for.
    pub role: Role,
    /// The name in the assembled context; of a context subscription by default its schema.
    pub key: Option<String>,
    /// Which of the matching breadcrumbs, and how many. Ignored on a trigger.
    pub fetch: Fetch,
    /// Of a context: without it nothing is executed. A failed fetch, or nothing found where one item is wanted,
    /// makes the run try again later.
    pub required: bool,
    /// Of a context: only breadcrumbs that share the trigger's tags with one of these prefixes (`session:`).
    pub scope: Vec<String>,
    /// Of a trigger: the highest that matches is the one that counts. Of a context: the lowest is cut first when
    /// a budget is short. 0 by default.
    pub priority: i64,
    /// The kinds of event it matches; created and updated by default.
    pub on: Vec<EventKind>,
    /// For people.
    pub comment: Option<String>,
    /// Fields of the definition that this crate does not know.
    pub extra: Map<String, Value>,
}

/// What a subscription is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sets the executor off.
    Trigger,
    /// Is fetched when it is set off.
    Context,
}

impl Role {
    /// Both roles.
    pub const ALL: [Self; 2] = [Self::Trigger, Self::Context];

    /// Returns the other role.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Trigger => Self::Context,
            Self::Context => Self::Trigger,
        }
    }

    /// The name in definitions: `trigger`, `context`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Context => "context",
        }
    }
}

/// Which of the matching breadcrumbs a source holds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fetch {
    /// How they are chosen.
    pub method: Method,
    /// How many at the most; `nn` of a vector fetch.
    pub limit: usize,
    /// How they are handed over: the same items either way.
    pub order: Order,
    /// Of a vector fetch: what is less similar is left out.
    pub min_score: Option<f64>,
}

/// How the breadcrumbs of a source are chosen.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Method {
    /// The trigger itself; the default of a trigger.
    EventData,
    /// The newest; the default of a context.
    Latest,
    /// The newest few; 10 by default.
    Recent,
    /// The nearest in meaning to the trigger; 5 by default.
    Vector,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 4] = [Self::EventData, Self::Latest, Self::Recent, Self::Vector];

    /// The name in definitions: `event_data`, `latest`, `recent`, `vector`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EventData => "event_data",
            Self::Latest => "latest",
            Self::Recent => "recent",
            Self::Vector => "vector",
        }
    }

    /// The limit where a definition names none.
    #[must_use]
    pub const fn default_limit(self) -> usize {
        match self {
            Self::EventData | Self::Latest => 1,
            Self::Recent => 10,
            Self::Vector => 5,
        }
    }
}

/// The order in which a list is handed over.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Order {
    /// By update time, then version, then id, newest first.
    #[default]
    NewestFirst,
    /// The reverse.
    OldestFirst,
}

impl Order {
    /// Both orders.
    pub const ALL: [Self; 2] = [Self::NewestFirst, Self::OldestFirst];

    /// The name in definitions: `newest_first`, `oldest_first`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NewestFirst => "newest_first",
            Self::OldestFirst => "oldest_first",
        }
    }
}

impl Fetch {
    /// A method with its default limit, newest first.
    #[must_use]
    pub const fn new(method: Method) -> Self {
        Self {
            method,
            limit: method.default_limit(),
            order: Order::NewestFirst,
            min_score: None,
        }
    }

    /// Whether the context holds one item under the key, not a list: `latest`, or a limit of 1.
    #[must_use]
    pub const fn is_one(&self) -> bool {
        self.limit == 1 || matches!(self.method, Method::Latest)
    }

    /// How many items are fetched: `limit`, and 1 for `latest` whatever its limit says.
    #[must_use]
    pub const fn items(&self) -> usize {
        match self.method {
            Method::Latest => 1,
            Method::EventData | Method::Recent | Method::Vector => self.limit,
        }
    }
}

impl Subscription {
    /// What sets an executor off, by schema; `"*"` is any.
    #[must_use]
    pub fn trigger(schema_name: impl Into<String>) -> Self {
        Self::new(Selector::schema(schema_name), Role::Trigger)
    }

    /// What is fetched, by schema; the latest unless said otherwise.
    #[must_use]
    pub fn context(schema_name: impl Into<String>) -> Self {
        Self::new(Selector::schema(schema_name), Role::Context)
    }

    /// A selector in a role, with the defaults of that role.
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

    /// Only those with at least one of these tags.
    #[must_use]
    pub fn any_tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.selector = self.selector.any_tags(tags);
        self
    }

    /// Only those with all of these tags.
    #[must_use]
    pub fn all_tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.selector = self.selector.all_tags(tags);
        self
    }

    /// Only those whose context passes a condition; see [`Selector::matching`].
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

    /// Only those whose context passes a condition.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.selector = self.selector.condition(condition);
        self
    }

    /// The name in the assembled context; of a trigger an alias for its context.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The newest.
    #[must_use]
    pub fn latest(mut self) -> Self {
        self.fetch = Fetch {
            order: self.fetch.order,
            ..Fetch::new(Method::Latest)
        };
        self
    }

    /// The newest few.
    #[must_use]
    pub fn recent(mut self, limit: usize) -> Self {
        self.fetch = Fetch {
            limit,
            order: self.fetch.order,
            ..Fetch::new(Method::Recent)
        };
        self
    }

    /// The nearest in meaning to the trigger.
    #[must_use]
    pub fn vector(mut self, nn: usize) -> Self {
        self.fetch = Fetch {
            limit: nn,
            order: self.fetch.order,
            ..Fetch::new(Method::Vector)
        };
        self
    }

    /// Of a vector fetch: leaves out what is less similar.
    #[must_use]
    pub fn min_score(mut self, score: f64) -> Self {
        self.fetch.min_score = Some(score);
        self
    }

    /// Hands the same items over in reverse: oldest first, and of a vector fetch nearest last.
    #[must_use]
    pub fn oldest_first(mut self) -> Self {
        self.fetch.order = Order::OldestFirst;
        self
    }

    /// Nothing is executed without it.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Only breadcrumbs that share the trigger's tags with these prefixes.
    #[must_use]
    pub fn scope<T: Into<String>>(mut self, prefixes: impl IntoIterator<Item = T>) -> Self {
        self.scope.extend(prefixes.into_iter().map(Into::into));
        self
    }

    /// Of several triggers that match the highest counts.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    /// The kinds of event it matches.
    #[must_use]
    pub fn on(mut self, kinds: impl IntoIterator<Item = EventKind>) -> Self {
        self.on = kinds.into_iter().collect();
        self
    }

    /// Its name in the assembled context: the key, else, of a context, the schema.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self.role {
            Role::Trigger => self.key.as_deref(),
            Role::Context => self.key.as_deref().or_else(|| self.selector.schema_name()),
        }
    }
}

impl Serialize for Subscription {
    /// The definition, with what is left at its default left out.
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
