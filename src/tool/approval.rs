//! Rules that select the tool calls that need the approval of a person.

#[cfg(feature = "agents")]
mod data;

use crate::model::Condition;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The prefix of a role in a list of people who may approve a tool call.
pub(crate) const ROLE: &str = "role:";

/// Returns a role as an entry in a list of approvers, for example `role:finance` for the role `finance`.
///
/// Use it in [`Approval::by`], so that everyone with the role may answer.
///
/// ```
/// use universal_executor::tool::role;
///
/// assert_eq!(role("finance"), "role:finance");
/// ```
#[must_use]
pub fn role(name: impl AsRef<str>) -> String {
    format!("{ROLE}{}", name.as_ref())
}

type Predicate = dyn Fn(&Value) -> bool + Send + Sync;

/// Rule that selects the tool calls that a person must approve. The rule also sets the approvers, and the time limit of the question to
/// them.
///
/// A tool can have several rules, and an agent definition can add more. A call needs an approval if the condition of at least one
/// rule holds. The approver must then be permitted by every rule whose condition holds, and the question expires after the
/// shortest time limit of these rules.
///
/// A rule fails closed: a condition that cannot be evaluated holds. Examples are unreadable arguments, a path without a value, a
/// value of another type than the compared value, and a condition that panics.
///
/// Add a rule to a tool with the method `needs_approval`, such as
/// [`JsonTool::needs_approval`](super::JsonTool::needs_approval). The rule then applies to every
/// caller. An agent writes a `human.request.v1` and suspends its run until a permitted person
/// answers. A request without an approval is answered with the error `approval_required`.
///
/// ```
/// use serde::Deserialize;
/// use serde_json::json;
/// use std::time::Duration;
/// use universal_executor::model::Condition;
/// use universal_executor::tool::{Approval, Tool, json_tool, role};
///
/// #[derive(Deserialize)]
/// struct Refund {
///     cents: u64,
/// }
///
/// let large = Approval::when(|call: &Refund| call.cents > 10_000)
///     .by(role("finance"))
///     .expires_in(Duration::from_secs(60 * 60));
/// // The same condition as data, which a definition in JSON can have, too.
/// let huge = Approval::when_args(Condition::new("$.cents", "gt", Some(json!(1_000_000)))).by("ann");
///
/// let refund = json_tool("refund", "Refunds an order.", json!({"type": "object"}), |_, _| async { Ok(json!("refunded")) })
///     .needs_approval(large)
///     .needs_approval(huge);
/// assert_eq!(refund.settings().approvals.len(), 2);
/// ```
#[derive(Clone)]
#[must_use = "a rule has no effect until a tool or an agent has it"]
pub struct Approval {
    /// A Rust function that returns `true` for arguments that need an approval. The field is `None` for a rule without such a function.
    predicate: Option<Arc<Predicate>>,
    /// Conditions on the arguments of a tool call, all of which must hold for the approval rule to apply to the call.
    /// `predicate`, if set, must also return `true`. Unlike `predicate`, the conditions can be serialised.
    conditions: Vec<Condition>,
    by: Vec<String>,
    expires_in: Option<Duration>,
}

impl Approval {
    /// Creates an approval rule for all calls of a tool.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::tool::{Approval, Tool, json_tool, role};
    ///
    /// let delete = json_tool("delete", "", json!({}), |_, _| async { Ok(json!(null)) })
    ///     .needs_approval(Approval::always().by("ann").by(role("ops")));
    /// assert_eq!(delete.settings().approvals, [Approval::always().by("ann").by("role:ops")]);
    /// ```
    pub fn always() -> Self {
        Self {
            predicate: None,
            conditions: Vec::new(),
            by: Vec::new(),
            expires_in: None,
        }
    }

    /// Creates an approval rule with a Rust function. The function returns `true` for the arguments of a call that needs an approval.
    ///
    /// Calls whose arguments are not an object or do not deserialize to `T` also need the approval. The function can run several
    /// times for one call.
    pub fn when<T, F>(condition: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(&T) -> bool + Send + Sync + 'static,
    {
        // serde can read a list of values as a struct, but the tool may read the list differently.
        let predicate = move |arguments: &Value| match T::deserialize(arguments) {
            Ok(call) if arguments.is_object() => condition(&call),
            Ok(_) | Err(_) => true,
        };
        Self {
            predicate: Some(Arc::new(predicate)),
            ..Self::always()
        }
    }

    /// Creates an approval rule for the tool calls whose arguments fulfil a condition.
    ///
    /// The condition is evaluated like a condition of a [subscription](crate::Subscription::matching), except that a path without a value
    /// and a value of another type need the approval.
    ///
    /// The operator `exists` evaluates a path without a value if the path has only names and indexes. With wildcards, each element must
    /// have a value that can be compared, and an empty list needs the approval. A path with a filter, a slice, a union or `..` cannot be
    /// evaluated, so all calls need the approval. Use [`when`](Self::when) for such a condition.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::sync::Arc;
    /// use universal_executor::machine::{Answer, MachineCall, ToolOutcome};
    /// use universal_executor::model::Condition;
    /// use universal_executor::tool::{Approval, ToolRegistry, json_tool};
    /// use universal_executor::{BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb};
    ///
    /// let large = Approval::when_args(Condition::new("$.cents", "gt", Some(json!(10_000))));
    /// let pay = json_tool("pay", "Pays.", json!({}), |_, _| async { Ok(json!("paid")) });
    /// let tools = ToolRegistry::default().with(pay.needs_approval(large))?;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let run = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
    /// let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    /// let small = MachineCall::new("c-1", "pay", json!({"cents": 500}));
    /// let outcome = tools.call(small, None, &run, &store).await;
    /// assert_eq!(outcome, Answer::success(json!("paid")).into());
    ///
    /// // A call without the compared value needs the approval, too.
    /// let unknown = MachineCall::new("c-2", "pay", json!({}));
    /// let outcome = tools.call(unknown, None, &run, &store).await;
    /// let ToolOutcome::Answered(Answer::Error { code, .. }) = outcome else {
    ///     panic!("no error");
    /// };
    /// assert_eq!(code, "approval_required");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn when_args(condition: Condition) -> Self {
        Self::always().and_args(condition)
    }

    /// Adds a further condition to the approval rule, which then applies only to the tool calls for which all its conditions
    /// hold.
    ///
    /// Add a second rule to the tool instead if one of several conditions must suffice.
    pub fn and_args(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Adds an approver to the approval rule: a name, or a role as returned by [`role`]. Without approvers, the approvers in
    /// `approval.by` of the agent definition apply. If the definition has no approvers, everyone may approve.
    ///
    /// A second call adds a second approver to this rule: any one of them may answer.
    pub fn by(mut self, person: impl Into<String>) -> Self {
        self.by.push(person.into());
        self
    }

    /// Sets the time limit of the question to the approver. Defaults to the time that the agent or the flow waits for people.
    ///
    /// If several rules apply to a call, the shortest time limit counts. The question has whole
    /// seconds: a fraction is rounded up.
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expires_in = Some(time);
        self
    }

    /// Returns `true` if the approval rule applies to a tool call with these arguments.
    pub(crate) fn applies_to(&self, arguments: &Value) -> bool {
        let predicate = self.predicate.as_ref();
        let holds = predicate.is_none_or(|predicate| {
            // A condition that panics counts as holding.
            catch_unwind(AssertUnwindSafe(|| predicate(arguments))).unwrap_or(true)
        });
        let mut conditions = self.conditions.iter();
        holds && conditions.all(|condition| condition.may_hold(arguments))
    }

    /// Returns `true` if the approval rule applies to all calls, and sets neither approvers nor a time limit.
    #[cfg(any(feature = "workflows", test))]
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::always()
    }

    /// Reads an approval rule from the JSON fields in a question to a person. [`data`](Self::data) writes these fields. An unreadable
    /// condition holds for all arguments.
    pub(crate) fn of_question(written: &Value) -> Self {
        let list = |field: &str| written.get(field).and_then(Value::as_array);
        let conditions = list("when").into_iter().flatten().map(|condition| {
            let text = |field: &str| condition.get(field).and_then(Value::as_str);
            let (path, op) = (text("path"), text("op"));
            let value = condition.get("value").cloned();
            Condition::new(path.unwrap_or_default(), op.unwrap_or_default(), value)
        });
        let people = list("by").into_iter().flatten().filter_map(Value::as_str);
        let seconds = written.get("expires_in_seconds");
        // An unreadable time limit counts as expired.
        let expires_in = seconds.map(|seconds| seconds.as_u64().unwrap_or_default());
        Self {
            predicate: None,
            conditions: conditions.collect(),
            by: people.map(str::to_owned).collect(),
            expires_in: expires_in.map(Duration::from_secs),
        }
    }

    /// Returns the approvers of the approval rule, or the list `others` if the rule names no approvers.
    fn people<'p>(&'p self, others: &'p [String]) -> &'p [String] {
        match self.by.is_empty() {
            true => others,
            false => &self.by,
        }
    }
}

impl PartialEq for Approval {
    /// Returns `true` if two approval rules have the same conditions, approvers and time limit. Conditions in code are equal only if
    /// they have the same address.
    fn eq(&self, other: &Self) -> bool {
        let is_same = match (&self.predicate, &other.predicate) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, Some(_)) | (Some(_), None) => false,
        };
        is_same
            && self.conditions == other.conditions
            && self.by == other.by
            && self.expires_in == other.expires_in
    }
}

impl fmt::Debug for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approval")
            .field("in_code", &self.predicate.is_some())
            .field("conditions", &self.conditions)
            .field("by", &self.by)
            .field("expires_in", &self.expires_in)
            .finish()
    }
}

/// The required approvers and the time limit of a tool call, combined from all approval rules that apply to the call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NeededApproval {
    /// The people who may approve the tool call.
    pub(crate) people: People,
    /// The time limit of the question to the approver, or `None` for the default of the agent or flow.
    pub(crate) expires_in: Option<Duration>,
}

impl NeededApproval {
    /// Returns the required approvers and the time limit of a tool call with these arguments, or `None` if no rule applies. Rules
    /// without approvers use `by`.
    pub(crate) fn by_rules<'r>(
        rules: impl IntoIterator<Item = &'r Approval>,
        by: &[String],
        arguments: &Value,
    ) -> Option<Self> {
        let mut needed: Option<Self> = None;
        for rule in rules {
            if !rule.applies_to(arguments) {
                continue;
            }
            let needed = needed.get_or_insert_default();
            needed.people.restrict_to(rule.people(by));
            let times = needed.expires_in.into_iter().chain(rule.expires_in);
            needed.expires_in = times.min();
        }
        needed
    }
}

/// Lists of the people with the right to answer an approval question. A person must be in each list, by name or by role. Without a list,
/// everyone may answer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(from = "WrittenPeople", into = "WrittenPeople")]
pub(crate) struct People(Vec<Vec<String>>);

/// The serialised form of [`People`]. A single list of names and roles can be written without an outer list.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum WrittenPeople {
    One(Vec<String>),
    Each(Vec<Vec<String>>),
}

impl People {
    /// Adds a list of permitted people, so that a person must be in this list and in all earlier lists. An empty list restricts nothing.
    pub(crate) fn restrict_to(&mut self, list: &[String]) {
        let is_within = |one: &[String], other: &[String]| {
            let mut people = one.iter();
            people.all(|person| other.contains(person))
        };
        if list.is_empty() || self.0.iter().any(|known| is_within(known, list)) {
            return;
        }
        self.0.retain(|known| !is_within(list, known));
        self.0.push(list.to_vec());
    }

    /// Returns the lists of names and roles with the right to answer the question; a permitted person is in every list.
    #[cfg(feature = "agents")]
    pub(crate) fn lists(&self) -> &[Vec<String>] {
        &self.0
    }

    /// Returns the first list of permitted people that a person is not in, or `None` if the person is permitted.
    pub(crate) fn list_without(&self, is_in: impl Fn(&[String]) -> bool) -> Option<&[String]> {
        let mut lists = self.0.iter().map(Vec::as_slice);
        lists.find(|&list| !is_in(list))
    }
}

impl From<&[String]> for People {
    fn from(list: &[String]) -> Self {
        let mut people = Self::default();
        people.restrict_to(list);
        people
    }
}

impl From<WrittenPeople> for People {
    fn from(written: WrittenPeople) -> Self {
        let lists = match written {
            WrittenPeople::One(list) => vec![list],
            WrittenPeople::Each(lists) => lists,
        };
        let mut people = Self::default();
        for list in &lists {
            people.restrict_to(list);
        }
        people
    }
}

impl From<People> for WrittenPeople {
    fn from(people: People) -> Self {
        match <[Vec<String>; 1]>::try_from(people.0) {
            Ok([list]) => Self::One(list),
            Err(lists) if lists.is_empty() => Self::One(Vec::new()),
            Err(lists) => Self::Each(lists),
        }
    }
}

#[cfg(test)]
mod tests;
