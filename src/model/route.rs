use super::breadcrumb::Breadcrumb;
use super::definition::{self, DefinitionError, DefinitionOptions, SubscriptionWarning};
use super::event::{Event, EventKind};
use super::json_sorted::sorted_text;
use super::reserved::is_unrouted_schema;
use super::selector::{Facts, Miss, Passed, Verdict};
use super::subscription::{Role, Subscription};
use crate::bugs::planted;
use crate::hex::hex;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::cmp::Reverse;
use std::sync::Arc;

/// The subscriptions of one executor: validated, compiled and cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    subscriptions: Vec<Subscription>,
    warnings: Vec<SubscriptionWarning>,
    /// The triggers in the order in which they win.
    triggers: Vec<usize>,
    sources: Vec<usize>,
}

/// What an event is to an executor.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Nothing.
    Unmatched,
    /// A change of something it would fetch; it fetches when it is triggered, so this is only a notification.
    Context,
    /// It sets the executor off.
    Trigger {
        /// The index of the subscription that matched: of those that do, the one of highest priority, then the first.
        subscription: usize,
    },
    /// The event has no context, and what a trigger asks of the context decides.
    NeedsContext,
}

impl Subscriptions {
    /// Validates subscriptions.
    ///
    /// # Errors
    /// [`DefinitionError`] for what can never work: a condition that does not compile, two sources of one name, a
    /// source without a name, the reserved key `trigger`, a limit of 0 or over the cap, an empty trigger,
    /// more than 256 subscriptions.
    pub fn new(
        subscriptions: impl IntoIterator<Item = Subscription>,
    ) -> Result<Self, DefinitionError> {
        let subscriptions = Vec::from_iter(subscriptions);
        let warnings = definition::validate(&subscriptions, &DefinitionOptions::default())?;
        Ok(Self::checked(subscriptions, warnings))
    }

    /// Reads a definition: a list of subscriptions, `{"selectors": [..]}`, `{"subscriptions": ..}` or a whole
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
    /// [`DefinitionError`] names the subscription, the field, the value and the nearest valid name. More than 256
    /// subscriptions are refused; [`from_json_with`](Self::from_json_with) takes another cap.
    pub fn from_json(definition: &Value) -> Result<Self, DefinitionError> {
        Self::from_json_with(definition, &DefinitionOptions::default())
    }

    /// Reads a definition with options.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json).
    pub fn from_json_with(
        definition: &Value,
        options: &DefinitionOptions,
    ) -> Result<Self, DefinitionError> {
        let (subscriptions, warnings) = definition::from_json(definition, options)?;
        Ok(Self::checked(subscriptions, warnings))
    }

    /// Reads a definition from text, and so sees a key that an object has twice.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json); also if the text is not JSON or has a duplicate key.
    pub fn parse(text: &str) -> Result<Self, DefinitionError> {
        Self::from_json(&definition::parse_text(text)?)
    }

    /// What is odd in the definition.
    #[must_use]
    pub fn warnings(&self) -> &[SubscriptionWarning] {
        &self.0.warnings
    }

    /// All of them, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Subscription] {
        &self.0.subscriptions
    }

    /// Returns the SHA-256 of the definitions as JSON, in hexadecimal: equal lists of subscriptions have equal hashes.
    #[must_use]
    pub fn hash(&self) -> Arc<str> {
        // Subscriptions are JSON by construction.
        let definitions = serde_json::to_value(self).unwrap_or_default();
        hex(&Sha256::digest(sorted_text(&definitions))).into()
    }

    /// Those in the context role, in order.
    pub fn sources(&self) -> impl Iterator<Item = &Subscription> {
        self.as_slice()
            .iter()
            .filter(|subscription| subscription.role == Role::Context)
    }

    /// What an event is to the executor that has these subscriptions. Pure, and the order of the list only decides
    /// between triggers of equal priority.
    #[must_use]
    pub fn route(&self, event: &Event) -> Route {
        self.route_facts(event.effective_kind(), &Facts::of_event(event))
    }

    /// What a breadcrumb, read from the store because of an event of a kind, is to the executor. Never
    /// [`Route::NeedsContext`]. The kind is taken as it is: pass [`Event::effective_kind`].
    #[must_use]
    pub fn route_breadcrumb(&self, kind: EventKind, breadcrumb: &Breadcrumb) -> Route {
        self.route_facts(kind, &Facts::of(breadcrumb))
    }

    fn route_facts(&self, kind: EventKind, facts: &Facts<'_>) -> Route {
        if kind == EventKind::Ping || is_unrouted_schema(facts.schema_name) {
            return Route::Unmatched;
        }
        let mut tally = Tally::default();
        let ask = |tally: &mut Tally, index: usize| {
            if let Some(subscription) = self.as_slice().get(index)
                && let Some(passed) = self.verdict(index, kind, facts).passed()
            {
                tally.add(Ballot::new(index, subscription), passed);
            }
        };
        if planted("context-first") {
            for index in &self.0.sources {
                ask(&mut tally, *index);
            }
            if tally.route() == Route::Context {
                return Route::Context;
            }
        }
        for index in &self.0.triggers {
            ask(&mut tally, *index);
            if tally.winner.is_some() {
                break;
            }
        }
        for index in &self.0.sources {
            // What a trigger makes of it comes first, and one source says as much as many.
            if tally.route() != Route::Unmatched {
                break;
            }
            ask(&mut tally, *index);
        }
        tally.route()
    }

    pub(super) fn verdict(&self, index: usize, kind: EventKind, facts: &Facts<'_>) -> Verdict<'_> {
        let Some(subscription) = self.0.subscriptions.get(index) else {
            return Verdict::Fails(Miss::Kind);
        };
        if !subscription.on.contains(&kind) {
            return Verdict::Fails(Miss::Kind);
        }
        subscription.selector.examine(facts)
    }

    fn checked(mut subscriptions: Vec<Subscription>, warnings: Vec<SubscriptionWarning>) -> Self {
        let searches = subscriptions.iter().map(|one| one.selector.searches());
        let searches = searches.sum();
        for subscription in &mut subscriptions {
            subscription.selector.among_searches(searches);
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
        Self(Arc::new(Inner {
            subscriptions,
            warnings,
            triggers,
            sources,
        }))
    }
}

/// What a subscription says on a route if its selector is passed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Ballot {
    subscription: usize,
    /// The priority of a trigger; a context has none.
    trigger: Option<i64>,
    /// A bit for each kind of event.
    kinds: u8,
}

impl Ballot {
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

    pub(super) const fn is_for(self, kind: EventKind) -> bool {
        self.kinds & bit(kind) != 0
    }
}

const fn bit(kind: EventKind) -> u8 {
    1 << kind as u8
}

/// What an event is to an executor, from the ballots of the subscriptions whose selector it passed, in any order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// The trigger that wins: its priority and its index.
    winner: Option<(i64, usize)>,
    undecided: bool,
    noted: bool,
}

impl Tally {
    pub(super) fn add(&mut self, ballot: Ballot, passed: Passed) {
        let index = ballot.subscription;
        match (ballot.trigger, passed) {
            (Some(priority), Passed::Surely) => {
                let wins = |(most, first)| priority > most || (priority == most && index < first);
                if self.winner.is_none_or(wins) {
                    self.winner = Some((priority, index));
                }
            }
            (Some(_), Passed::Maybe) => self.undecided = true,
            (None, Passed::Surely | Passed::Maybe) => self.noted = true,
        }
    }

    pub(super) const fn route(&self) -> Route {
        match self.winner {
            Some((_, subscription)) => Route::Trigger { subscription },
            None if self.undecided => Route::NeedsContext,
            None if self.noted => Route::Context,
            None => Route::Unmatched,
        }
    }
}

impl Serialize for Subscriptions {
    /// The list of definitions.
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
