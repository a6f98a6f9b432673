use super::event::{Event, EventKind};
use super::route::{Route, Subscriptions};
use super::selector::{Mismatch, SelectorInput, SelectorMatch};
use super::subscription::{Role, Subscription};
use serde::Serialize;
use std::fmt;

/// Explanation of an event's effect ([`Route`]) on an executor: for each subscription, a match or the first requirement that the
/// event does not meet.
///
/// The `Display` form has one line for each subscription and quotes values of the event's context. Show the explanation only to
/// people with access to this context, and do not log it.
///
/// [`Client::explain`](crate::Client::explain) reports on a breadcrumb in a store and its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The explained effect of the event on the executor.
    ///
    /// The same as the result of [`Subscriptions::route`].
    pub route: Route,
    /// The explanations of the executor's subscriptions, in the order of the definition.
    pub subscriptions: Vec<Explained>,
}

/// Explanation of the reason why one subscription matches or does not match an event.
///
/// The `Display` form is one line, such as `trigger "order": matches schema_name "order.v1"`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explained {
    /// The role of the explained subscription: trigger or context.
    pub role: Role,
    /// The name of the explained subscription: its key. A context subscription without a key is named after its schema.
    pub name: Option<String>,
    /// The selector of the explained subscription as text, for example `schema_name "tool.request.v1" and $.tool eq "adder"`.
    ///
    /// The same as the `Display` form of the selector.
    pub asks: String,
    /// If `true`, the subscription matches the event.
    pub matched: bool,
    /// The first requirement of the subscription that the event does not meet, such as `all_tags: "session:1" is missing`. `None` if the
    /// subscription matches.
    pub reason: Option<String>,
}

impl Subscriptions {
    /// Explains the effect of an event on the executor with these subscriptions. For each subscription, the explanation contains
    /// the match, or the first failed test with the tested value.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{Event, NewBreadcrumb, Route, Subscription, Subscriptions};
    /// # use universal_executor::model::{BreadcrumbId, Timestamp};
    ///
    /// let trigger = Subscription::trigger("order.v1").matching("$.count", "gt", 3);
    /// let subscriptions = Subscriptions::new([trigger])?;
    /// let order = NewBreadcrumb::new("order.v1").context(json!({"count": 2}));
    /// # let order = order.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    ///
    /// let explanation = subscriptions.explain(&Event::created(&order));
    /// assert_eq!(explanation.route, Route::Unmatched);
    /// let reason = explanation.subscriptions[0].reason.as_deref();
    /// assert_eq!(reason, Some("context_match[0] $.count: 2 is not gt 3"));
    /// # Ok::<(), universal_executor::model::DefinitionError>(())
    /// ```
    #[must_use]
    pub fn explain(&self, event: &Event) -> Explanation {
        let input = SelectorInput::of_event(event);
        let explained = self
            .as_slice()
            .iter()
            .enumerate()
            .map(|(index, subscription)| {
                let selector_match = self.selector_match(index, event.effective_kind(), &input);
                Explained::of(subscription, event, &input, selector_match)
            });
        Explanation {
            route: self.route(event),
            subscriptions: explained.collect(),
        }
    }
}

impl Explained {
    fn of(
        subscription: &Subscription,
        event: &Event,
        input: &SelectorInput<'_>,
        selector_match: SelectorMatch<'_>,
    ) -> Self {
        let reason = match selector_match {
            _ if event.kind == EventKind::Ping => Some("a ping matches no subscription".to_owned()),
            SelectorMatch::Holds => None,
            SelectorMatch::Undecided => Some(
                match event.context {
                    None => "context_match: the event has no context, so the breadcrumb decides",
                    Some(_) => {
                        "context_match: the event's context cannot be read, so the breadcrumb decides"
                    }
                }
                .to_owned(),
            ),
            SelectorMatch::Fails(mismatch) => Some(describe_mismatch(mismatch, subscription, event, input)),
        };
        Self {
            role: subscription.role,
            name: subscription.name().map(str::to_owned),
            asks: subscription.selector.to_string(),
            matched: reason.is_none(),
            reason,
        }
    }
}

fn describe_mismatch(
    mismatch: Mismatch<'_>,
    subscription: &Subscription,
    event: &Event,
    input: &SelectorInput<'_>,
) -> String {
    match mismatch {
        Mismatch::Kind => {
            let expected: Vec<&str> = subscription.on.iter().map(|kind| kind.as_str()).collect();
            format!(
                "on: {} is not one of [{}]",
                event.effective_kind().as_str(),
                expected.join(", ")
            )
        }
        Mismatch::Schema { expected } => match input.schema_name {
            Some(found) => format!("schema_name: {found:?} is not {expected:?}"),
            None => format!("schema_name: missing, so it is not {expected:?}"),
        },
        Mismatch::AnyTags { expected: [] } => {
            "any_tags: the list is empty and matches no breadcrumb".to_owned()
        }
        Mismatch::AnyTags { expected } => format!("any_tags: all of {expected:?} are missing"),
        Mismatch::AllTags { missing } => format!("all_tags: {missing:?} is missing"),
        Mismatch::Condition { index } => {
            let condition = subscription.selector.conditions().get(index);
            let reason = condition
                .zip(event.context.as_ref())
                .map(|(condition, context)| {
                    condition.explain(context, subscription.selector.search_limit())
                });
            format!("context_match[{index}] {}", reason.unwrap_or_default())
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, explained) in self.subscriptions.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "subscription {index}, {explained}")?;
            if self.route
                == (Route::Trigger {
                    subscription: index,
                })
            {
                write!(f, " and triggers")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role.as_str())?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        match &self.reason {
            None => write!(f, ": matches {}", self.asks),
            Some(reason) => write!(f, ": {reason}"),
        }
    }
}
