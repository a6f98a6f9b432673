use super::breadcrumb::Breadcrumb;
use super::condition::{Condition, ConditionContext, ConditionError, search};
use super::event::Event;
use super::json::Json;
use super::path::{MAX_SEARCH_STEPS, Path};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Selection of breadcrumbs by schema name, tags and conditions on their field `context`, the payload. A clone copies a pointer.
///
/// Subscriptions, queries, wakes and waits take selectors. A breadcrumb matches only if its schema
/// name, its tags and all conditions match. Two selectors are equal if all of their parts are
/// equal.
///
/// ```
/// use universal_executor::Selector;
///
/// let requests = Selector::schema("tool.request.v1")
///     .any_tags(["workspace:tools", "workspace:lab"])
///     .matching("$.tool", "eq", "adder");
///
/// assert!(requests.check().is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selector(Arc<SelectorFields>);

#[derive(Clone, Debug, Default)]
pub(super) struct SelectorFields {
    pub(super) schema: Option<String>,
    pub(super) any_tags: Option<Vec<String>>,
    pub(super) all_tags: Vec<String>,
    pub(super) conditions: Vec<Condition>,
    /// The number of conditions in the whole definition whose JSONPath needs a search, because it has more than names and
    /// indexes. The number stays 0 if all of these conditions belong to this selector.
    definition_search_count: usize,
}

impl PartialEq for SelectorFields {
    /// Compares all fields except `definition_search_count`, because that field depends on the other selectors of the definition.
    fn eq(&self, other: &Self) -> bool {
        let Self {
            schema,
            any_tags,
            all_tags,
            conditions,
            definition_search_count: _,
        } = self;
        (schema, any_tags) == (&other.schema, &other.any_tags)
            && (all_tags, conditions) == (&other.all_tags, &other.conditions)
    }
}

/// Wildcard for the schema name of a selector, which stands for all schemas.
const ANY_SCHEMA: &str = "*";

impl Selector {
    /// Creates a selector of all breadcrumbs.
    ///
    /// On a store with many breadcrumbs, prefer a schema name or a tag.
    #[must_use]
    pub fn any() -> Self {
        Self::schema(ANY_SCHEMA)
    }

    /// Creates a selector of the breadcrumbs with a schema name. `"*"` selects all schemas.
    ///
    /// The comparison is exact: a prefix such as `order` does not select `order.v1`.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{NewBreadcrumb, Selector};
    /// # use universal_executor::model::{BreadcrumbId, Timestamp};
    ///
    /// let order = NewBreadcrumb::new("order.v1").tag("customer:7");
    /// # let order = order.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    /// assert!(Selector::schema("order.v1").matches(&order));
    /// assert!(Selector::any().matches(&order));
    /// assert!(!Selector::schema("order.v2").matches(&order));
    /// ```
    #[must_use]
    pub fn schema(name: impl Into<String>) -> Self {
        Self::from(SelectorFields {
            schema: Some(name.into()),
            ..SelectorFields::default()
        })
    }

    /// Requires a breadcrumb to have at least one of these tags. Repeated calls extend the list. An empty list matches no breadcrumb.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{NewBreadcrumb, Selector};
    /// # use universal_executor::model::{BreadcrumbId, Timestamp};
    ///
    /// let urgent = Selector::schema("order.v1").any_tags(["urgent", "vip"]).all_tags(["shop:1"]);
    /// let order = NewBreadcrumb::new("order.v1").tags(["vip", "shop:1"]);
    /// # let order = order.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    /// assert!(urgent.matches(&order));
    /// ```
    #[must_use]
    pub fn any_tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        let any = Arc::make_mut(&mut self.0).any_tags.get_or_insert_default();
        any.extend(tags.into_iter().map(Into::into));
        self
    }

    /// Requires a breadcrumb to have all of these tags. Repeated calls extend the list.
    ///
    /// An empty list requires no tag.
    #[must_use]
    pub fn all_tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        Arc::make_mut(&mut self.0)
            .all_tags
            .extend(tags.into_iter().map(Into::into));
        self
    }

    /// Requires that a condition on the breadcrumb's `context` (its payload) holds: a JSONPath (the prefix `$.` is optional), an
    /// [`Op`](super::Op) or its name, and a value.
    ///
    /// [`check`](Self::check) returns the error of a condition that does not compile. Subscriptions and queries reject such a selector.
    ///
    /// Repeated calls add conditions, and all of them must hold. For `exists` without a value, use
    /// [`condition`](Self::condition).
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{NewBreadcrumb, Selector};
    /// # use universal_executor::model::{BreadcrumbId, Timestamp};
    ///
    /// let large = Selector::schema("order.v1").matching("$.count", "gt", 3);
    /// let order = NewBreadcrumb::new("order.v1").context(json!({"count": 4}));
    /// # let order = order.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    /// assert!(large.matches(&order));
    /// assert!(large.matching("$.paid", "eq", true).check().is_ok());
    /// ```
    #[must_use]
    pub fn matching(
        self,
        path: impl Into<String>,
        op: impl AsRef<str>,
        value: impl Into<Value>,
    ) -> Self {
        self.condition(Condition::new(path, op, Some(value.into())))
    }

    /// Requires that a condition on the breadcrumb's `context` (its payload) holds.
    ///
    /// Build the condition with [`Condition::new`].
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        Arc::make_mut(&mut self.0).conditions.push(condition);
        self
    }

    /// Checks that all conditions of the selector compile.
    ///
    /// Call it for a selector from untrusted input, to report the mistake to its author.
    ///
    /// # Errors
    /// Returns the [`ConditionError`] of the first condition that does not compile.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Selector;
    ///
    /// let wrong = Selector::schema("order.v1").matching("$.count", "greater", 3);
    /// let error = wrong.check().unwrap_err();
    /// assert_eq!(error.field(), "op");
    /// ```
    pub fn check(&self) -> Result<(), ConditionError> {
        match self.0.conditions.iter().find_map(Condition::error) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Returns `true` if the selector matches a breadcrumb.
    ///
    /// No condition holds on a context that cannot be read as JSON. The method reads no store.
    #[must_use]
    pub fn matches(&self, breadcrumb: &Breadcrumb) -> bool {
        matches!(
            self.evaluate(&SelectorInput::of_breadcrumb(breadcrumb)),
            SelectorMatch::Holds
        )
    }

    /// Returns the schema name that the selector requires, or `None` if it selects all schemas.
    #[must_use]
    pub fn schema_name(&self) -> Option<&str> {
        self.0.schema.as_deref().filter(|name| *name != ANY_SCHEMA)
    }

    /// Returns the tags of which a breadcrumb must have at least one, or `None` if the selector has no such list of tags.
    #[must_use]
    pub fn any_of_tags(&self) -> Option<&[String]> {
        self.0.any_tags.as_deref()
    }

    /// Returns the tags that the selector requires: a breadcrumb must have all of them.
    #[must_use]
    pub fn all_of_tags(&self) -> &[String] {
        &self.0.all_tags
    }

    /// Returns the selector's conditions on the breadcrumb's context.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.0.conditions
    }

    /// Returns the number of this selector's conditions whose JSONPath needs a search, because it has more than names and
    /// indexes.
    pub(super) fn search_count(&self) -> usize {
        let conditions = self.0.conditions.iter();
        conditions.filter_map(Condition::search_path).count()
    }

    /// Sets the number of conditions with a JSONPath search in all subscriptions of the definition. Each of these conditions gets
    /// an equal share of the maximum number of search steps.
    pub(super) fn set_search_count(&mut self, search_count: usize) {
        if search_count > self.search_count() {
            Arc::make_mut(&mut self.0).definition_search_count = search_count;
        }
    }

    /// Returns the maximum number of steps that one condition of the selector may take to search a context. A fixed share makes
    /// the result independent of the order in which conditions are evaluated.
    pub(super) fn search_limit(&self) -> usize {
        MAX_SEARCH_STEPS
            / self
                .search_count()
                .max(self.0.definition_search_count)
                .max(1)
    }

    /// Returns `true` if the selector has no schema name, no tags and no conditions. A selector with the schema name `"*"` is not empty.
    pub(super) fn is_empty(&self) -> bool {
        *self.0 == SelectorFields::default()
    }

    pub(super) fn evaluate<'s>(&'s self, input: &SelectorInput<'_>) -> SelectorMatch<'s> {
        let fields = &*self.0;
        if let Some(expected) = self.schema_name()
            && input.schema_name != Some(expected)
        {
            return SelectorMatch::Fails(Mismatch::Schema { expected });
        }
        let has = |tag: &String| input.tags.contains(tag);
        if let Some(expected) = &fields.any_tags
            && !expected.iter().any(has)
        {
            return SelectorMatch::Fails(Mismatch::AnyTags { expected });
        }
        if let Some(missing) = fields.all_tags.iter().find(|tag| !has(tag)) {
            return SelectorMatch::Fails(Mismatch::AllTags { missing });
        }
        if fields.conditions.is_empty() {
            return SelectorMatch::Holds;
        }
        let Some(context) = input.context.filter(|context| context.is_available()) else {
            return SelectorMatch::Undecided;
        };
        let limit = self.search_limit();
        match fields
            .conditions
            .iter()
            .position(|condition| !condition.holds_in(context, limit))
        {
            Some(index) => SelectorMatch::Fails(Mismatch::Condition { index }),
            None => SelectorMatch::Holds,
        }
    }
}

impl From<SelectorFields> for Selector {
    fn from(fields: SelectorFields) -> Self {
        Self(Arc::new(fields))
    }
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.write_fields(&mut map)?;
        map.end()
    }
}

impl fmt::Display for Selector {
    /// Formats the selector for people, for example as `schema_name "tool.request.v1" and $.tool eq "adder"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &*self.0;
        let mut asks = Vec::new();
        if let Some(schema) = self.schema_name() {
            asks.push(format!("schema_name {schema:?}"));
        }
        if let Some(tags) = &fields.any_tags {
            asks.push(format!("any_tags {tags:?}"));
        }
        if !fields.all_tags.is_empty() {
            asks.push(format!("all_tags {:?}", fields.all_tags));
        }
        asks.extend(fields.conditions.iter().map(Condition::to_string));
        if asks.is_empty() {
            asks.push("anything".to_owned());
        }
        f.write_str(&asks.join(" and "))
    }
}

impl Selector {
    pub(super) fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let fields = &*self.0;
        if let Some(schema) = &fields.schema {
            map.serialize_entry("schema_name", schema)?;
        }
        if let Some(tags) = &fields.any_tags {
            map.serialize_entry("any_tags", tags)?;
        }
        if !fields.all_tags.is_empty() {
            map.serialize_entry("all_tags", &fields.all_tags)?;
        }
        if !fields.conditions.is_empty() {
            map.serialize_entry("context_match", &fields.conditions)?;
        }
        Ok(())
    }
}

/// The parts of an event or a breadcrumb that selectors read: schema name, tags and context.
pub(super) struct SelectorInput<'a> {
    pub(super) schema_name: Option<&'a str>,
    pub(super) tags: &'a [String],
    pub(super) context: Option<&'a dyn ConditionContext>,
}

impl<'a> SelectorInput<'a> {
    /// Returns the parts of a breadcrumb that selectors test: schema name, tags and context. No condition holds on an unreadable context,
    /// because the store has no better copy.
    pub(super) fn of_breadcrumb(breadcrumb: &'a Breadcrumb) -> Self {
        let context: &dyn ConditionContext = match breadcrumb.context.is_available() {
            true => &breadcrumb.context,
            false => &UnreadableContext,
        };
        Self {
            schema_name: breadcrumb.schema_name.as_deref(),
            tags: &breadcrumb.tags,
            context: Some(context),
        }
    }

    pub(super) fn of_event(event: &'a Event) -> Self {
        Self {
            schema_name: event.schema_name.as_deref(),
            tags: &event.tags,
            context: event
                .context
                .as_ref()
                .map(|context| context as &dyn ConditionContext),
        }
    }
}

/// The context of an event or a breadcrumb, on which the conditions of selectors are evaluated.
/// [`is_available`](ConditionContext::is_available) returns `false` if the JSON parser rejects the text of the context.
impl ConditionContext for Json {
    fn is_available(&self) -> bool {
        self.read().is_some()
    }

    fn any(&self, path: &Path, limit: usize, check: &dyn Fn(&Value) -> bool) -> Option<bool> {
        search(path, self.read()?, limit, check)
    }
}

/// A breadcrumb's context that is stored, but cannot be read. No condition holds on it.
struct UnreadableContext;

impl ConditionContext for UnreadableContext {
    fn is_available(&self) -> bool {
        true
    }

    fn any(&self, _: &Path, _: usize, _: &dyn Fn(&Value) -> bool) -> Option<bool> {
        None
    }
}

/// Result of a selector's test of an event or a breadcrumb.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SelectorMatch<'s> {
    Holds,
    /// The selector's schema and tags match, but its conditions are undecided, because the event has no readable context of its
    /// breadcrumb.
    Undecided,
    Fails(Mismatch<'s>),
}

/// Certainty with which a selector matches an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MatchCertainty {
    Certain,
    /// The selector's schema and tags match, but its conditions are undecided, because the event has no readable context of its
    /// breadcrumb.
    Possible,
}

impl SelectorMatch<'_> {
    pub(super) const fn certainty(self) -> Option<MatchCertainty> {
        match self {
            Self::Holds => Some(MatchCertainty::Certain),
            Self::Undecided => Some(MatchCertainty::Possible),
            Self::Fails(_) => None,
        }
    }
}

/// The first requirement of a subscription that an event or a breadcrumb does not meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mismatch<'s> {
    /// The subscription does not select events of this kind.
    Kind,
    Schema {
        expected: &'s str,
    },
    AnyTags {
        expected: &'s [String],
    },
    AllTags {
        missing: &'s str,
    },
    Condition {
        index: usize,
    },
}
