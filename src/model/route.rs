use super::breadcrumb::Breadcrumb;
use super::definition::{self, DefinitionError, DefinitionOptions, SubscriptionWarning};
use super::event::{Event, EventKind};
use super::json_sorted::sorted_text;
use super::reserved::is_unrouted_schema;
use super::selector::{MatchCertainty, Mismatch, SelectorInput, SelectorMatch};
use super::subscription::{Role, Subscription};
use crate::bugs::planted;
use crate::hex::hex;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::cmp::Reverse;
use std::sync::Arc;

/// The subscriptions of one executor, validated and compiled. A clone copies a pointer.
///
/// An implementation of [`UniversalExecutor`](crate::UniversalExecutor) creates the value once and
/// returns it from `subscriptions`. Builders create it from their calls of `on` and `reads`.
///
/// # Examples
/// ```
/// use universal_executor::{Event, NewBreadcrumb, Route, Subscription, Subscriptions};
/// # use universal_executor::model::{BreadcrumbId, Timestamp};
///
/// let subscriptions = Subscriptions::new([
///     Subscription::trigger("order.v1").matching("$.count", "gt", 0),
///     Subscription::context("price.v1").key("price"),
/// ])?;
/// let price = NewBreadcrumb::new("price.v1");
/// # let price = price.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
///
/// assert_eq!(subscriptions.route(&Event::created(&price)), Route::Context);
/// assert_eq!(subscriptions.sources().count(), 1);
/// # Ok::<(), universal_executor::model::DefinitionError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Subscriptions(Arc<ValidatedSubscriptions>);

#[derive(Debug, Default)]
struct ValidatedSubscriptions {
    subscriptions: Vec<Subscription>,
    warnings: Vec<SubscriptionWarning>,
    /// Indexes of the triggers in the list `subscriptions`, highest priority first, and in list order for the same priority.
    triggers: Vec<usize>,
    sources: Vec<usize>,
}

/// Effect of an event or a breadcrumb on an executor.
///
/// [`UniversalExecutor::process_event`](crate::UniversalExecutor::process_event) routes its events
/// itself. Use [`Subscriptions::explain`] to find out why an event does not trigger an executor.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// No subscription of the executor matches the event.
    Unmatched,
    /// A context subscription matches the event, and no trigger subscription does. Nothing runs: the executor fetches its context when it
    /// is triggered.
    Context,
    /// A trigger subscription matches the event, and the executor runs.
    Trigger {
        /// Index of the matching trigger subscription with the highest priority. Of several with this priority, the first.
        subscription: usize,
    },
    /// The event has no readable context of its breadcrumb, and a trigger subscription has conditions on this context. Read the
    /// breadcrumb and call [`Subscriptions::route_breadcrumb`].
    NeedsContext,
}

impl Subscriptions {
    /// Validates the subscriptions of an executor, with the default [`DefinitionOptions`].
    ///
    /// Create the value once and clone it, because a clone copies a pointer.
    ///
    /// # Errors
    /// Returns [`DefinitionError`] if a condition does not compile, if a context subscription has no name, the name of another
    /// subscription or the method `event_data`, if a key is `trigger`, if a limit is not between 1 and 1,000, if a trigger has an empty
    /// selector, or if there are more than 256 subscriptions, 1,000 conditions or 100 regular expressions.
    pub fn new(
        subscriptions: impl IntoIterator<Item = Subscription>,
    ) -> Result<Self, DefinitionError> {
        let subscriptions = Vec::from_iter(subscriptions);
        let warnings = definition::validate(&subscriptions, &DefinitionOptions::default())?;
        Ok(Self::from_validated(subscriptions, warnings))
    }

    /// Reads the subscriptions of a definition. Accepts a list of subscriptions, `{"selectors": [..]}`, `{"subscriptions": ..}` or a whole
    /// definition breadcrumb (`{"context": {"subscriptions": ..}}`).
    ///
    /// A subscription is `{"schema_name"?, "any_tags"?, "all_tags"?, "context_match"?: [{"path", "op", "value"?}],
    /// "role", "key"?, "fetch"?, "required"?, "scope"?, "priority"?, "on"?, "comment"?}`, where `fetch` is the name
    /// of a method (`event_data`, `latest`, `recent`, `vector`) or `{"method", "limit"?, "nn"?, "order"?, "min_score"?}`,
    /// and `op` is one of `eq`, `ne`, `gt`, `gte`, `lt`, `lte`, `in`, `contains`, `contains_any`, `contains_all`,
    /// `starts_with`, `ends_with`, `matches` and `exists`; see [`Op`](super::Op).
    ///
    /// An unknown field has no effect: [`warnings`](Self::warnings) names it, and [`Runtime`](crate::Runtime) logs the warning. It is
    /// an error in [strict](DefinitionOptions::strict) mode. The fields `comment`, `metadata` and `$schema`, and fields that end with
    /// `_comment` or start with `x-`, are comments.
    ///
    /// # Errors
    /// Returns [`DefinitionError`] with the subscription, the field, the value and the nearest valid name if the definition is invalid
    /// or exceeds a limit, such as 256 subscriptions. [`from_json_with`](Self::from_json_with) takes other limits.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Subscriptions;
    ///
    /// let subscriptions = Subscriptions::from_json(&json!({"selectors": [
    ///     {"schema_name": "order.v1", "role": "trigger", "any_tags": ["shop:1"]},
    ///     {"schema_name": "price.v1", "role": "context", "fetch": "recent"},
    /// ]}))?;
    /// assert_eq!(subscriptions.as_slice().len(), 2);
    /// assert_eq!(subscriptions.as_slice()[1].fetch.limit, 10);
    ///
    /// let mistake = json!([{"schema_name": "order.v1", "role": "triger"}]);
    /// let error = Subscriptions::from_json(&mistake).unwrap_err();
    /// assert_eq!((error.subscription(), error.field()), (Some(0), "role"));
    /// # Ok::<(), universal_executor::model::DefinitionError>(())
    /// ```
    pub fn from_json(definition: &Value) -> Result<Self, DefinitionError> {
        Self::from_json_with(definition, &DefinitionOptions::default())
    }

    /// Reads a definition of subscriptions with the limits and defaults in `options`.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json).
    pub fn from_json_with(
        definition: &Value,
        options: &DefinitionOptions,
    ) -> Result<Self, DefinitionError> {
        let (subscriptions, warnings) = definition::from_json(definition, options)?;
        Ok(Self::from_validated(subscriptions, warnings))
    }

    /// Reads the subscriptions of a definition from JSON text, and rejects objects with duplicate keys. Prefer it to
    /// [`from_json`](Self::from_json) for text, because a parsed [`Value`] no longer has the duplicate keys.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json). Also returns an error if the text is not JSON, has a duplicate key in an object, or is larger
    /// than 1 MiB.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscriptions;
    ///
    /// let text = r#"[{"schema_name": "order.v1", "role": "trigger"}]"#;
    /// assert_eq!(Subscriptions::parse(text)?.as_slice().len(), 1);
    /// assert!(Subscriptions::parse(r#"[{"role": "trigger", "role": "context"}]"#).is_err());
    /// # Ok::<(), universal_executor::model::DefinitionError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, DefinitionError> {
        Self::from_json(&definition::parse_text(text)?)
    }

    /// Returns the warnings about subscriptions that are valid but probably wrong.
    ///
    /// A definition has at most 100 warnings and a note on the omitted ones. Log them, or show them
    /// to the author of the definition.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Subscriptions;
    ///
    /// let odd = json!([{"schema_name": "order.v1", "role": "trigger", "colour": "red"}]);
    /// let subscriptions = Subscriptions::from_json(&odd)?;
    /// assert!(subscriptions.warnings()[0].is_unknown_field());
    /// # Ok::<(), universal_executor::model::DefinitionError>(())
    /// ```
    #[must_use]
    pub fn warnings(&self) -> &[SubscriptionWarning] {
        &self.0.warnings
    }

    /// Returns the executor's subscriptions, in the order of the definition.
    #[must_use]
    pub fn as_slice(&self) -> &[Subscription] {
        &self.0.subscriptions
    }

    /// Returns the SHA-256 of the subscriptions as JSON, in hexadecimal: equal lists of subscriptions have equal hashes.
    ///
    /// Use it to detect a change of a definition.
    #[must_use]
    pub fn hash(&self) -> Arc<str> {
        // Subscriptions are JSON by construction.
        let definitions = serde_json::to_value(self).unwrap_or_default();
        hex(&Sha256::digest(sorted_text(&definitions))).into()
    }

    /// Returns the executor's context subscriptions, in the order of the definition.
    pub fn sources(&self) -> impl Iterator<Item = &Subscription> {
        self.as_slice()
            .iter()
            .filter(|subscription| subscription.role == Role::Context)
    }

    /// Returns the effect of an event on the executor with these subscriptions. The order of the subscriptions decides only
    /// between triggers with the same priority.
    ///
    /// The method reads no store. Test the result [`Route::NeedsContext`] with
    /// [`route_breadcrumb`](Self::route_breadcrumb).
    #[must_use]
    pub fn route(&self, event: &Event) -> Route {
        self.route_input(event.effective_kind(), &SelectorInput::of_event(event))
    }

    /// Returns the effect of an event on the executor, decided by the event's breadcrumb as it was read from the store. Never
    /// returns [`Route::NeedsContext`].
    ///
    /// `kind` is the [`Event::effective_kind`] of the event.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{Event, NewBreadcrumb, Route, Subscription, Subscriptions};
    /// # use universal_executor::model::{BreadcrumbId, Timestamp};
    ///
    /// let trigger = Subscription::trigger("order.v1").matching("$.count", "gt", 3);
    /// let subscriptions = Subscriptions::new([trigger])?;
    /// let order = NewBreadcrumb::new("order.v1").context(json!({"count": 4}));
    /// # let order = order.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    ///
    /// let event = Event::created(&order).envelope();
    /// assert_eq!(subscriptions.route(&event), Route::NeedsContext);
    /// let route = subscriptions.route_breadcrumb(event.effective_kind(), &order);
    /// assert_eq!(route, Route::Trigger { subscription: 0 });
    /// # Ok::<(), universal_executor::model::DefinitionError>(())
    /// ```
    #[must_use]
    pub fn route_breadcrumb(&self, kind: EventKind, breadcrumb: &Breadcrumb) -> Route {
        self.route_input(kind, &SelectorInput::of_breadcrumb(breadcrumb))
    }

    fn route_input(&self, kind: EventKind, input: &SelectorInput<'_>) -> Route {
        if kind == EventKind::Ping || is_unrouted_schema(input.schema_name) {
            return Route::Unmatched;
        }
        let mut builder = RouteBuilder::default();
        let test_subscription = |builder: &mut RouteBuilder, index: usize| {
            if let Some(subscription) = self.as_slice().get(index)
                && let Some(certainty) = self.selector_match(index, kind, input).certainty()
            {
                builder.add(RouteCandidate::new(index, subscription), certainty);
            }
        };
        if planted("context-first") {
            for index in &self.0.sources {
                test_subscription(&mut builder, *index);
            }
            if builder.route() == Route::Context {
                return Route::Context;
            }
        }
        for index in &self.0.triggers {
            test_subscription(&mut builder, *index);
            if builder.best_trigger.is_some() {
                break;
            }
        }
        for index in &self.0.sources {
            // A trigger takes precedence over context subscriptions, and one matching context subscription is enough.
            if builder.route() != Route::Unmatched {
                break;
            }
            test_subscription(&mut builder, *index);
        }
        builder.route()
    }

    pub(super) fn selector_match(
        &self,
        index: usize,
        kind: EventKind,
        input: &SelectorInput<'_>,
    ) -> SelectorMatch<'_> {
        let Some(subscription) = self.0.subscriptions.get(index) else {
            return SelectorMatch::Fails(Mismatch::Kind);
        };
        if !subscription.on.contains(&kind) {
            return SelectorMatch::Fails(Mismatch::Kind);
        }
        subscription.selector.evaluate(input)
    }

    fn from_validated(
        mut subscriptions: Vec<Subscription>,
        warnings: Vec<SubscriptionWarning>,
    ) -> Self {
        let search_counts = subscriptions
            .iter()
            .map(|subscription| subscription.selector.search_count());
        let search_count = search_counts.sum();
        for subscription in &mut subscriptions {
            subscription.selector.set_search_count(search_count);
        }
        let mut triggers: Vec<(usize, i64)> = subscriptions
            .iter()
            .enumerate()
            .filter(|(_, subscription)| subscription.role == Role::Trigger)
            .map(|(index, subscription)| (index, subscription.priority))
            .collect();
        triggers.sort_by_key(|(_, priority)| Reverse(*priority));
        let triggers = triggers.into_iter().map(|(index, _)| index).collect();
        let sources = (0..).zip(&subscriptions);
        let sources = sources
            .filter(|(_, subscription)| subscription.role == Role::Context)
            .map(|(index, _)| index)
            .collect();
        Self(Arc::new(ValidatedSubscriptions {
            subscriptions,
            warnings,
            triggers,
            sources,
        }))
    }
}

/// The properties of a subscription that decide an event's effect on the executor, once the selector matches.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct RouteCandidate {
    subscription: usize,
    /// The priority of a trigger subscription, or `None` for a context subscription.
    trigger: Option<i64>,
    /// Bit set of the event kinds that the subscription selects.
    kinds: u8,
}

impl RouteCandidate {
    pub(super) fn new(index: usize, subscription: &Subscription) -> Self {
        let kinds = subscription.on.iter().map(|kind| bit(*kind));
        Self {
            subscription: index,
            trigger: match subscription.role {
                Role::Trigger => Some(subscription.priority),
                Role::Context => None,
            },
            kinds: kinds.fold(0, |kinds, bit| kinds | bit),
        }
    }

    pub(super) const fn selects(self, kind: EventKind) -> bool {
        self.kinds & bit(kind) != 0
    }
}

const fn bit(kind: EventKind) -> u8 {
    1 << kind as u8
}

/// Intermediate effect of an event on an executor, computed from the subscriptions with matching selectors. The subscriptions can
/// be added in any order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RouteBuilder {
    /// Priority of the best matching trigger subscription so far, and its index in the executor's list of subscriptions.
    best_trigger: Option<(i64, usize)>,
    undecided: bool,
    has_context_match: bool,
}

impl RouteBuilder {
    pub(super) fn add(&mut self, candidate: RouteCandidate, certainty: MatchCertainty) {
        let index = candidate.subscription;
        match (candidate.trigger, certainty) {
            (Some(priority), MatchCertainty::Certain) => {
                let is_better =
                    |(most, first)| priority > most || (priority == most && index < first);
                if self.best_trigger.is_none_or(is_better) {
                    self.best_trigger = Some((priority, index));
                }
            }
            (Some(_), MatchCertainty::Possible) => self.undecided = true,
            (None, MatchCertainty::Certain | MatchCertainty::Possible) => {
                self.has_context_match = true;
            }
        }
    }

    pub(super) const fn route(&self) -> Route {
        match self.best_trigger {
            Some((_, subscription)) => Route::Trigger { subscription },
            None if self.undecided => Route::NeedsContext,
            None if self.has_context_match => Route::Context,
            None => Route::Unmatched,
        }
    }
}

impl Serialize for Subscriptions {
    /// Serializes the list of subscription definitions.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Subscriptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let definition = Value::deserialize(deserializer)?;
        Self::from_json(&definition).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
