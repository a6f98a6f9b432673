//! The terms of a question to a person: the data that decides whether an answer is accepted. No I/O.

use super::schema::{QuestionSchema, has_fit_answer};
use super::{Change, decision};
use crate::executor::{is_changed, may_answer};
use crate::model::{Breadcrumb, BreadcrumbId, Json, Timestamp};
use crate::request::Reply;
use crate::tool::{Approval, NeededApproval, People};
use serde_json::Value;
use std::time::Duration;

/// Maximum assumed difference between the store's clock and the clock of another machine. A decision about the time of
/// an answer by another clock than the store's allows for this difference.
pub(crate) const CLOCK_MARGIN: Duration = Duration::from_secs(5 * 60);

/// The terms of a question to a person: the data that decides whether an answer is accepted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuestionTerms {
    /// The ID of the question, which its answer repeats.
    pub(crate) request_id: String,
    /// The ID of the question's breadcrumb.
    pub(crate) breadcrumb: BreadcrumbId,
    /// The digest of the tool call in the question. The digest binds an approval to the call. `None` for any other
    /// question.
    pub(crate) digest: Option<String>,
    /// The people with the right to answer the question.
    pub(crate) people: People,
    /// The JSON Schema that an answer to the question must fit.
    pub(crate) schema: Option<QuestionSchema>,
    /// If `true`, an answer to the question can change the arguments of its tool call.
    pub(crate) changeable: bool,
    /// The arguments of the tool call that the question asks to approve.
    pub(crate) arguments: Option<Json>,
    /// The JSON Schema that changed arguments of the tool call must fit.
    pub(crate) arguments_schema: Option<QuestionSchema>,
    /// The creation time of the question, by the store's clock.
    pub(crate) asked_at: Timestamp,
    /// The expiry time of the question, by the clock of the waiting run or workload turn. Later answers are rejected.
    pub(crate) expires_at: Option<Timestamp>,
    /// The approval rules that decide which people may change the arguments of the tool call in an approval.
    change_rules: Vec<Approval>,
}

impl QuestionTerms {
    /// Reads the terms of a question to a person from the question's breadcrumb. Returns `None` if the breadcrumb is not a
    /// question, was changed since it was written, or is an approval without a digest.
    pub(crate) fn of(question: &Breadcrumb) -> Option<Self> {
        let context = &question.context;
        let text = |field: &str| context.get(field).and_then(Value::as_str);
        let items = |field: &str| {
            let items = context.get(field).and_then(Value::as_array);
            items.into_iter().flatten()
        };
        let is_approval = text("kind")? == "approval";
        let digest = text("digest").filter(|_| is_approval);
        if question.version != 1 || (is_approval && digest.is_none()) {
            return None;
        }
        let mut people = People::default();
        people.restrict_to(&texts(items("of")));
        for list in items("also_of").filter_map(Value::as_array) {
            people.restrict_to(&texts(list));
        }
        let is_changeable = context.get("changeable") == Some(&Value::Bool(true));
        Some(Self {
            request_id: text("requestId")?.to_owned(),
            breadcrumb: question.id,
            digest: digest.map(str::to_owned),
            people,
            schema: QuestionSchema::of(context, "schema"),
            changeable: is_changeable && is_approval,
            arguments: context.get("arguments").cloned().map(Json::from),
            arguments_schema: QuestionSchema::of(context, "arguments_schema"),
            asked_at: question.created_at,
            expires_at: text("expires_at").and_then(|time| time.parse().ok()),
            change_rules: items("change_rules").map(Approval::of_question).collect(),
        })
    }

    /// Returns `true` if a breadcrumb is a valid answer to the question, regardless of the answer's time. The
    /// requesting run decides by the same rule, but knows its rules for changed arguments even if the question omits
    /// them.
    pub(crate) fn counts(&self, answer: &Breadcrumb) -> bool {
        let (context, digest) = (&answer.context, self.digest.as_deref());
        let decision = decision(answer, context, &self.request_id, digest, &self.people);
        let is_allowed = match decision {
            None => false,
            Some(Reply::Approved(Some(arguments))) => {
                let change = self.change(&arguments);
                change.is_same || (self.changeable && change.is_allowed(answer))
            }
            Some(Reply::Approved(None)) => true,
            Some(Reply::Answer(_)) => has_fit_answer(context, self.schema.as_ref()),
        };
        is_allowed && !is_changed(answer) && may_answer(context, self.breadcrumb)
    }

    /// Returns `true` if an answer to the question [counts](Self::counts) and was written before the question expired, by the store's
    /// clock. `margin` is the maximum difference between this clock and the clock of [`expires_at`](Self::expires_at).
    pub(crate) fn counts_in_time(&self, answer: &Breadcrumb, margin: Duration) -> bool {
        let is_in_time = |end: Timestamp| answer.updated_at <= end + margin;
        self.expires_at.is_none_or(is_in_time) && self.counts(answer)
    }

    /// Returns `true` if an answer was written after the question, by the store's clock, and does not refer to another question.
    #[cfg(feature = "agents")]
    pub(crate) fn is_before(&self, answer: &Breadcrumb) -> bool {
        answer.updated_at >= self.asked_at && may_answer(&answer.context, self.breadcrumb)
    }

    /// Checks a person's answer against the JSON Schema in the question.
    ///
    /// # Errors
    /// Returns the reason why the answer does not fit.
    pub(crate) fn fits(&self, answer: &Value) -> Result<(), String> {
        let schema = self.schema.as_ref();
        schema.map_or(Ok(()), |schema| schema.check(answer))
    }

    /// Checks changed arguments of the tool call against the JSON Schema in the question.
    ///
    /// # Errors
    /// Returns the reason why the arguments do not fit.
    pub(crate) fn fits_arguments(&self, arguments: &Value) -> Result<(), String> {
        let schema = self.arguments_schema.as_ref();
        schema.map_or(Ok(()), |schema| schema.check(arguments))
    }

    /// Returns `true` if tool call arguments equal the arguments in the question, so that nothing changes.
    pub(crate) fn is_unchanged(&self, arguments: &Value) -> bool {
        self.arguments.as_deref() == Some(arguments)
    }

    /// Returns the approvers and the time limit for a change to these tool call arguments, or `None` if the question's rules
    /// require no approval. Unchanged arguments require none.
    pub(crate) fn needed_approval(&self, arguments: &Value) -> Option<NeededApproval> {
        match self.is_unchanged(arguments) {
            true => None,
            false => NeededApproval::by_rules(&self.change_rules, &[], arguments),
        }
    }

    /// Returns the deadline for an approval with these changed tool call arguments, by the store's clock. Returns `None` if no rule for
    /// these arguments has a time limit.
    pub(crate) fn change_deadline(&self, arguments: &Value) -> Option<Timestamp> {
        let time = self.needed_approval(arguments)?.expires_in;
        time.map(|time| self.asked_at + time)
    }

    /// Returns the expiry time of the question if the question has expired at `now`, otherwise `None`. The clock of `now` can
    /// differ by `margin` from the clock of the waiting run or turn.
    pub(crate) fn expired(&self, now: Timestamp, margin: Duration) -> Option<Timestamp> {
        self.expires_at.filter(|end| *end + margin < now)
    }

    fn change<'c>(&'c self, arguments: &'c Value) -> Change<'c> {
        Change {
            arguments,
            is_same: self.is_unchanged(arguments),
            rules: &self.change_rules,
            asked_at: Some(self.asked_at),
        }
    }
}

/// Returns the strings in a list of JSON values, without its other values.
pub(crate) fn texts<'v>(items: impl IntoIterator<Item = &'v Value>) -> Vec<String> {
    let texts = items.into_iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NewBreadcrumb;
    use crate::request::human;
    use serde_json::json;

    const ASKED_AT: Timestamp = Timestamp::from_micros(10);

    fn terms(more: &Value) -> Option<QuestionTerms> {
        let mut context = json!({
            "kind": "approval", "requestId": "q-1", "digest": "d", "arguments": {"amount": 500},
            "expires_at": Timestamp::from_micros(20),
        });
        let fields = context.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let question = NewBreadcrumb::new(human::REQUEST).context(context);
        QuestionTerms::of(&question.first_version(BreadcrumbId::NIL, ASKED_AT))
    }

    fn answer_by(by: &str, more: &Value) -> Breadcrumb {
        let mut context = json!({"request_id": "q-1"});
        let fields = context.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let answer = NewBreadcrumb::new(human::RESPONSE)
            .created_by(by)
            .context(context);
        answer.first_version(BreadcrumbId::NIL, ASKED_AT)
    }

    #[test]
    fn an_answer_with_changed_arguments_that_the_rules_forbid_does_not_count() {
        let rule = json!({
            "when": [{"path": "$.amount", "op": "gt", "value": 1_000}], "by": ["bob"],
        });
        let terms = terms(&json!({"changeable": true, "change_rules": [rule]})).unwrap();
        let to = |by: &str, amount: u64| {
            answer_by(
                by,
                &json!({"approved": true, "arguments": {"amount": amount}}),
            )
        };

        assert!(terms.counts(&to("ann", 1_000)) && terms.counts(&to("bob", 1_001)));
        assert!(!terms.counts(&to("ann", 1_001)));
        assert!(terms.counts(&to("ann", 500)));
    }

    #[test]
    fn the_terms_of_a_question_that_was_changed_are_not_read() {
        let question = NewBreadcrumb::new(human::REQUEST);
        let question = question.context(json!({"kind": "question", "requestId": "q-1"}));
        let mut question = question.first_version(BreadcrumbId::NIL, ASKED_AT);

        assert!(QuestionTerms::of(&question).is_some());
        question.version = 2;
        assert_eq!(QuestionTerms::of(&question), None);
        assert_eq!(terms(&json!({"digest": null})), None);
    }

    #[test]
    fn an_answer_counts_until_the_end_of_the_time_and_no_longer() {
        let terms = terms(&json!({})).unwrap();
        let mut answer = answer_by("ann", &json!({"approved": true}));
        let end = Timestamp::from_micros(20);
        let second = Duration::from_secs(1);

        answer.updated_at = end;
        assert!(terms.counts_in_time(&answer, Duration::ZERO));
        answer.updated_at = Timestamp::from_micros(21);
        assert!(terms.counts(&answer) && !terms.counts_in_time(&answer, Duration::ZERO));
        assert!(terms.counts_in_time(&answer, second));
        assert_eq!(terms.expired(end, Duration::ZERO), None);
        assert_eq!(terms.expired(answer.updated_at, Duration::ZERO), Some(end));
        assert_eq!(terms.expired(answer.updated_at, second), None);
    }

    #[test]
    fn a_changed_answer_does_not_count() {
        let terms = terms(&json!({})).unwrap();
        let mut answer = answer_by("ann", &json!({"approved": true}));

        assert!(terms.counts(&answer));
        answer.version = 2;
        assert!(!terms.counts(&answer));
    }

    #[test]
    fn an_answer_to_a_question_without_rules_for_changes_counts_only_with_the_arguments_in_the_question()
     {
        let terms = terms(&json!({})).unwrap();
        let to = |amount: u64| {
            let arguments = json!({"amount": amount});
            answer_by("ann", &json!({"approved": true, "arguments": arguments}))
        };

        assert!(terms.counts(&to(500)));
        assert!(!terms.counts(&to(5)));
    }

    #[test]
    fn a_question_with_a_schema_that_cannot_be_used_can_be_answered() {
        let schema = json!({"type": 7});
        let terms = terms(&json!({"kind": "question", "schema": schema})).unwrap();

        assert_eq!(terms.fits(&json!("Bern")), Ok(()));
        assert!(terms.counts(&answer_by("ann", &json!({"answer": "Bern"}))));
    }
}
