//! Checks of a person's answer against the question, without a read from the store.

use super::{AnswerError, Principal, QuestionKind, QuestionView, now};
use crate::model::Breadcrumb;
use crate::request::human;
use crate::tool::People;
use serde_json::Value;

/// Checks a person's answer against the question before the answer is written.
pub(super) fn check(
    question: &QuestionView,
    kind: QuestionKind,
    person: &Principal,
    answer: &Value,
) -> Result<(), AnswerError> {
    let id = question.id.clone();
    if question.kind != kind {
        let expected = match question.kind {
            QuestionKind::Approval => "approve, approve_with and reject",
            QuestionKind::Question => "answer",
        };
        return Err(AnswerError::WrongKind { id, expected });
    }
    check_permitted(question, person, &question.terms.people)?;
    if let (QuestionKind::Approval, Some(arguments)) = (kind, answer.get("arguments")) {
        check_arguments(question, person, arguments)?;
    }
    let value = answer.get("answer");
    let result = value.map_or(Ok(()), |value| question.terms.fits(value));
    result.map_err(|problem| AnswerError::Invalid { id, problem })
}

/// Checks changed arguments of a tool call by the input schema of the tool and by the rules in the question.
fn check_arguments(
    question: &QuestionView,
    person: &Principal,
    arguments: &Value,
) -> Result<(), AnswerError> {
    let (id, terms) = (question.id.clone(), &question.terms);
    if !terms.changeable {
        return Err(AnswerError::NotChangeable { id });
    }
    if arguments.is_null() {
        let problem =
            "the changed arguments are null; use approve for the arguments in the question";
        let problem = problem.to_owned();
        return Err(AnswerError::Invalid { id, problem });
    }
    if let Some(problem) = human::unfit_arguments(arguments) {
        return Err(AnswerError::Invalid { id, problem });
    }
    if terms.is_unchanged(arguments) {
        return Ok(());
    }
    if let Some(needed) = terms.needed_approval(arguments) {
        check_permitted(question, person, &needed.people)?;
    }
    // Without a margin: a late change has no effect, and a question takes a limited number of answers without effect.
    let end = terms.change_deadline(arguments);
    if let Some(at) = end.filter(|end| *end < now()) {
        return Err(AnswerError::Expired { id, at });
    }
    // The run checks the arguments again before the call.
    terms.fits_arguments(arguments).map_err(|problem| {
        let problem = format!("the changed arguments do not fit the schema of the tool: {problem}");
        AnswerError::Invalid { id, problem }
    })
}

/// Checks that a person is in a list of the people who may answer a question.
fn check_permitted(
    question: &QuestionView,
    person: &Principal,
    people: &People,
) -> Result<(), AnswerError> {
    match people.list_without(|list| person.is_in(list)) {
        None => Ok(()),
        Some(list) => Err(AnswerError::NotAllowed {
            id: question.id.clone(),
            person: person.name.clone(),
            allowed: list.to_vec(),
        }),
    }
}

/// Returns the error for an answer that was written but has no effect: the answer was late, or its author may not answer the question. The
/// error names the author that the store recorded. This author can differ from the person.
pub(super) fn refused_answer_error(question: &QuestionView, written: &Breadcrumb) -> AnswerError {
    let (id, terms) = (question.id.clone(), &question.terms);
    let changed = written.context.get("arguments");
    let end = changed.and_then(|changed| terms.change_deadline(changed));
    let end = terms.expires_at.into_iter().chain(end).min();
    match end.filter(|end| written.updated_at > *end) {
        Some(at) => AnswerError::Expired { id, at },
        None => AnswerError::NotAllowed {
            id,
            person: written.created_by.clone().unwrap_or_default(),
            allowed: question.allowed.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb, Timestamp};
    use serde_json::json;

    fn question(more: &Value) -> QuestionView {
        let creator =
            json!({"id": "teller", "trigger_id": BreadcrumbId::NIL, "trigger_version": 1});
        let mut context = json!({
            "kind": "approval", "requestId": "q-1", "digest": "d", "creator": creator,
            "arguments": {"amount": 500}, "of": ["ann", "bob"],
        });
        let fields = context.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let breadcrumb = NewBreadcrumb::new(human::REQUEST).context(context);
        let breadcrumb = breadcrumb.first_version(BreadcrumbId::NIL, Timestamp::from_micros(1));
        QuestionView::of(&breadcrumb).unwrap()
    }

    fn changeable() -> QuestionView {
        let rule = json!({
            "when": [{"path": "$.amount", "op": "gt", "value": 1_000}], "by": ["bob"],
        });
        let schema = json!({"type": "object", "required": ["amount"]});
        question(&json!({"changeable": true, "change_rules": [rule], "arguments_schema": schema}))
    }

    fn checked(question: &QuestionView, name: &str, arguments: &Value) -> Result<(), AnswerError> {
        let answer = json!({"approved": true, "arguments": arguments});
        check(question, QuestionKind::Approval, &name.into(), &answer)
    }

    fn answer(name: &str, arguments: &Value) -> Breadcrumb {
        let context = json!({"request_id": "q-1", "approved": true, "arguments": arguments});
        let answer = NewBreadcrumb::new(human::RESPONSE).created_by(name);
        let answer = answer.context(context);
        answer.first_version(BreadcrumbId::NIL, Timestamp::from_micros(2))
    }

    #[test]
    fn the_json_of_a_question_is_stable() {
        let question = question(&json!({
            "question": "May pay be called?", "tool": "pay", "options": ["approve", "reject"],
            "expires_at": "2026-01-02T03:04:05Z", "also_of": [["role:board"]], "changeable": true,
        }));

        let expected = json!({
            "id": "q-1", "kind": "approval", "question": "May pay be called?", "tool": "pay",
            "description": null, "arguments": {"amount": 500}, "options": ["approve", "reject"],
            "allowed": ["ann", "bob"], "also_allowed": [["role:board"]], "asked_by": "teller",
            "asked_at": "1970-01-01T00:00:00.000001Z", "expires_at": "2026-01-02T03:04:05Z",
            "schema": null, "changeable": true, "arguments_schema": null,
            "breadcrumb": "00000000-0000-0000-0000-000000000000",
        });
        assert_eq!(serde_json::to_value(&question).unwrap(), expected);
        let ann = Principal::new("ann").with_role("finance");
        let expected = json!({"name": "ann", "roles": ["finance"]});
        assert_eq!(serde_json::to_value(&ann).unwrap(), expected);
    }

    #[test]
    fn changed_arguments_need_a_question_that_accepts_them() {
        let earlier = question(&json!({}));

        let error = checked(&earlier, "ann", &json!({"amount": 1})).unwrap_err();

        assert!(
            matches!(error, AnswerError::NotChangeable { .. }),
            "{error:?}"
        );
        checked(&changeable(), "ann", &json!({"amount": 1})).unwrap();
    }

    #[test]
    fn a_person_needs_the_permission_that_the_changed_arguments_require() {
        let question = changeable();

        for (name, amount, may) in [
            ("ann", 1_000, true),
            ("ann", 1_001, false),
            ("bob", 1_001, true),
            ("eve", 1, false),
        ] {
            let arguments = json!({"amount": amount});
            let found = checked(&question, name, &arguments);
            let counts = question.terms.counts(&answer(name, &arguments));

            assert_eq!((found.is_ok(), counts), (may, may), "{name} {amount}");
            if let Err(error) = found {
                let is_expected = matches!(&error, AnswerError::NotAllowed { .. });
                assert!(is_expected, "{error:?}");
            }
        }
    }

    #[cfg(feature = "validate")]
    #[test]
    fn changed_arguments_must_fit_the_schema_of_the_tool() {
        let error = checked(&changeable(), "bob", &json!({"amounts": 1})).unwrap_err();

        let message = error.to_string();
        assert!(matches!(error, AnswerError::Invalid { .. }), "{message}");
        assert!(message.contains("\"amount\""), "{message}");
    }

    #[test]
    fn arguments_that_are_sent_back_unchanged_need_no_rule_for_changes() {
        let rule = json!({"by": ["bob"]});
        let question = question(&json!({"changeable": true, "change_rules": [rule]}));
        let (same, other) = (json!({"amount": 500}), json!({"amount": 501}));

        checked(&question, "ann", &same).unwrap();
        assert!(question.terms.counts(&answer("ann", &same)));
        assert!(!question.terms.counts(&answer("ann", &other)));
        let error = checked(&question, "bob", &Value::Null).unwrap_err();
        assert!(matches!(error, AnswerError::Invalid { .. }), "{error:?}");
    }

    #[test]
    fn arguments_cannot_be_changed_after_the_time_of_the_rules_for_them() {
        let rule = json!({"when": [{"path": "$.amount", "op": "gt", "value": 1_000}], "expires_in_seconds": 60});
        let question = question(&json!({"changeable": true, "change_rules": [rule]}));

        // The question is of 1970.
        let error = checked(&question, "ann", &json!({"amount": 1_001})).unwrap_err();

        assert!(matches!(error, AnswerError::Expired { .. }), "{error:?}");
        checked(&question, "ann", &json!({"amount": 1_000})).unwrap();
    }

    #[test]
    fn an_answer_that_names_another_question_does_not_answer_this_one() {
        let question = question(&json!({}));
        let naming = |named: Value| {
            let context = json!({"request_id": "q-1", "approved": true, "question": named});
            let answer = NewBreadcrumb::new(human::RESPONSE).created_by("ann");
            let answer = answer.context(context);
            answer.first_version(BreadcrumbId::NIL, Timestamp::from_micros(2))
        };

        let counts = |answer: &Breadcrumb| question.terms.counts(answer);
        assert!(counts(&naming(json!(BreadcrumbId::NIL))));
        for other in [json!("other"), Value::Null, json!(7)] {
            assert!(!counts(&naming(other)));
        }
    }

    #[test]
    fn a_person_must_be_in_each_list_of_a_question() {
        let question = question(&json!({"also_of": [["bob", "role:board"]]}));
        let permits = |person: &Principal| question.permits(person);

        assert!(permits(&"bob".into()) && !permits(&"ann".into()));
        assert!(permits(&Principal::new("ann").with_role("board")));
        assert!(!permits(&Principal::new("eve").with_role("board")));
    }
}
