//! Validation of the subscriptions of one executor, from a definition or from code.

use super::{
    DefinitionError, DefinitionOptions, DefinitionProblem, SubscriptionWarning, WarningDetail,
};
use crate::model::condition::Condition;
use crate::model::op::Op;
use crate::model::subscription::{Method, Role, Subscription};
use std::collections::HashMap;

/// The key under which every run's assembled context has the trigger breadcrumb.
pub(crate) const TRIGGER_KEY: &str = "trigger";

pub(super) fn validate(
    subscriptions: &[Subscription],
    options: &DefinitionOptions,
) -> Result<Vec<SubscriptionWarning>, DefinitionError> {
    check_count(subscriptions.len(), "", options)?;
    let mut found = ConditionCount::default();
    for subscription in subscriptions {
        let conditions = subscription.selector.conditions();
        let problem = found.add(conditions.iter().map(Condition::op_name), options);
        problem.map_err(|problem| DefinitionError::of_definition("context_match", problem))?;
    }
    let mut warnings = Vec::new();
    for (index, subscription) in subscriptions.iter().enumerate() {
        check_subscription(index, subscription, options)?;
        warnings.extend(
            find_warnings(subscription)
                .into_iter()
                .map(|detail| SubscriptionWarning::of(index, subscription, detail)),
        );
    }
    check_names(subscriptions)?;
    Ok(warnings)
}

/// Checks the number of subscriptions, which is limited because each event is matched with all of them.
pub(super) fn check_count(
    count: usize,
    field: &str,
    options: &DefinitionOptions,
) -> Result<(), DefinitionError> {
    let most = options.max_subscriptions;
    if count > most {
        let what = "subscriptions";
        let problem = DefinitionProblem::TooMany { what, count, most };
        return Err(DefinitionError::of_definition(field, problem));
    }
    Ok(())
}

/// Numbers of conditions and of regular expressions in one definition.
#[derive(Default)]
pub(crate) struct ConditionCount {
    conditions: usize,
    regexes: usize,
}

impl ConditionCount {
    /// Counts conditions, each given by its operator, and checks a definition's limits on conditions and on regular expressions.
    ///
    /// # Errors
    /// Returns the exceeded limit.
    pub(super) fn add<'o>(
        &mut self,
        operators: impl Iterator<Item = &'o str>,
        options: &DefinitionOptions,
    ) -> Result<(), DefinitionProblem> {
        for operator in operators {
            self.conditions += 1;
            self.regexes += usize::from(operator == Op::Matches.as_str());
        }
        for (what, count, most) in [
            ("conditions", self.conditions, options.max_conditions),
            ("regular expressions", self.regexes, options.max_regexes),
        ] {
            if count > most {
                return Err(DefinitionProblem::TooMany { what, count, most });
            }
        }
        Ok(())
    }
}

fn check_subscription(
    index: usize,
    subscription: &Subscription,
    options: &DefinitionOptions,
) -> Result<(), DefinitionError> {
    let error = |field: &str, problem| Err(subscription_error(index, subscription, field, problem));
    for (at, condition) in subscription.selector.conditions().iter().enumerate() {
        if let Some(reason) = condition.error() {
            let field = format!("context_match[{at}].{}", reason.field());
            return error(&field, DefinitionProblem::Condition(reason.clone()));
        }
    }
    let fetch = &subscription.fetch;
    if fetch.limit == 0 || fetch.limit > options.max_limit {
        let field = if fetch.method == Method::Vector {
            "fetch.nn"
        } else {
            "fetch.limit"
        };
        return error(
            field,
            DefinitionProblem::Limit {
                value: fetch.limit,
                most: options.max_limit,
            },
        );
    }
    match subscription.role {
        Role::Trigger if subscription.selector.is_empty() => {
            error("schema_name", DefinitionProblem::EmptyTrigger)
        }
        Role::Context if fetch.method == Method::EventData => {
            error("fetch.method", DefinitionProblem::EventDataOnContext)
        }
        Role::Context if subscription.name().is_none() => error("key", DefinitionProblem::NoName),
        Role::Trigger | Role::Context if subscription.name() == Some(TRIGGER_KEY) => {
            error("key", DefinitionProblem::ReservedKey)
        }
        Role::Trigger | Role::Context => Ok(()),
    }
}

/// Checks that the names of subscriptions are unique. Two triggers may have the same key.
fn check_names(subscriptions: &[Subscription]) -> Result<(), DefinitionError> {
    let mut names: HashMap<&str, (usize, Role)> = HashMap::new();
    for (index, subscription) in subscriptions.iter().enumerate() {
        let Some(name) = subscription.name() else {
            continue;
        };
        match names.get(name) {
            Some((_, Role::Trigger)) if subscription.role == Role::Trigger => {}
            Some((other, _)) => {
                let problem = DefinitionProblem::KeyTaken {
                    name: crate::error::excerpt(name, 64).into_owned(),
                    other: *other,
                };
                return Err(subscription_error(index, subscription, "key", problem));
            }
            None => {
                names.insert(name, (index, subscription.role));
            }
        }
    }
    Ok(())
}

/// Returns the problems of a subscription that do not prevent the load of its definition, such as a field without an effect.
fn find_warnings(subscription: &Subscription) -> Vec<WarningDetail> {
    let mut warnings = Vec::new();
    let fetch = &subscription.fetch;
    match subscription.role {
        Role::Trigger if fetch.method != Method::EventData => warnings.push(WarningDetail::new(
            "fetch",
            format!(
                "fetch method {:?} has no effect on a trigger, which is always the breadcrumb of the event; remove \"fetch\"",
                fetch.method.as_str()
            ),
        )),
        Role::Context if fetch.method == Method::Latest && fetch.limit > 1 => warnings.push(WarningDetail::new(
            "fetch",
            format!(
                "the limit {} has no effect, because \"latest\" fetches one item; use \"recent\" for a list",
                fetch.limit
            ),
        )),
        Role::Trigger | Role::Context => {}
    }
    let any_tags = subscription.selector.any_of_tags();
    if any_tags.is_some_and(<[String]>::is_empty) {
        let message = "any_tags is empty, so the subscription never matches";
        warnings.push(WarningDetail::new("any_tags", message));
    }
    if subscription.on.is_empty() {
        warnings.push(WarningDetail::new(
            "on",
            "on is empty, so the subscription never matches",
        ));
    }
    for (at, condition) in subscription.selector.conditions().iter().enumerate() {
        if let Some(reason) = condition.never_holds() {
            let field = format!("context_match[{at}]");
            let message = format!("{field}: {reason}, so the subscription never matches");
            warnings.push(WarningDetail::new(field, message));
        }
    }
    warnings
}

fn subscription_error(
    index: usize,
    subscription: &Subscription,
    field: &str,
    problem: DefinitionProblem,
) -> DefinitionError {
    DefinitionError {
        subscription: Some(index),
        key: subscription
            .key
            .as_deref()
            .map(|key| crate::error::excerpt(key, 64).into_owned()),
        field: field.to_owned(),
        problem: Box::new(problem),
    }
}
