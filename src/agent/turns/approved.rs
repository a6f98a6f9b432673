//! Tool calls that a person approved. The module does no I/O and reads no clock.

use crate::machine::{Answer, CallId, ToolResult};
use crate::model::Json;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A tool call that a person approved.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Approved {
    pub(super) call: CallId,
    /// The digest of the approved tool call; the approval counts only while the call still has this digest.
    pub(super) digest: String,
    /// The approved arguments of the tool call.
    pub(super) arguments: Json,
    /// If `true`, the person changed the arguments that the model wrote for the tool call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_changed: bool,
}

/// Adds a note to the result of each tool call whose arguments a person changed. The note shows the changed arguments to the model.
pub(super) fn add_change_notes(approved: &[Approved], results: &mut [ToolResult]) {
    for result in results {
        if let Some(arguments) = changed_arguments(approved, &result.call_id) {
            let answer = result.answer.clone();
            result.answer = with_change(answer, arguments);
        }
    }
}

/// Returns the result of a tool call for the agent's external program, with a note about the arguments if a person changed them.
pub(super) fn result_for_model(approved: &[Approved], call: &CallId, answer: &Answer) -> Answer {
    match changed_arguments(approved, call) {
        Some(arguments) => with_change(answer.clone(), arguments),
        None => answer.clone(),
    }
}

/// Returns the last approved arguments of a tool call, or `None` if no approval changed the arguments.
fn changed_arguments<'a>(approved: &'a [Approved], call: &CallId) -> Option<&'a Json> {
    let mut of_call = approved.iter().filter(|approved| approved.call == *call);
    let is_changed = of_call.clone().any(|approved| approved.is_changed);
    let last = of_call.next_back().filter(|_| is_changed);
    last.map(|approved| &approved.arguments)
}

fn with_change(answer: Answer, arguments: &Json) -> Answer {
    const NOTE: &str =
        "a person changed the arguments of this call before it was made, to those in \"arguments\"";
    match answer {
        Answer::Success(output) => {
            Answer::success(json!({"note": NOTE, "arguments": arguments, "result": output}))
        }
        Answer::Error { code, message } => {
            let message = format!(
                "{message}; a person changed the arguments of this call before, to {}",
                **arguments
            );
            Answer::error(code, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approved(call: &str, is_changed: bool) -> Approved {
        Approved {
            call: call.into(),
            digest: "d".to_owned(),
            arguments: json!({"amount": 3}).into(),
            is_changed,
        }
    }

    #[test]
    fn a_result_reports_the_arguments_only_if_the_approver_changed_them() {
        let all = [approved("1", true), approved("2", false)];
        let result = |call: &str, answer| ToolResult {
            call_id: call.into(),
            answer,
        };
        let mut results = vec![
            result("1", Answer::success(json!("paid"))),
            result("2", Answer::success(json!("paid"))),
            result("1", Answer::error("failed", "no money")),
        ];

        add_change_notes(&all, &mut results);

        let Answer::Success(output) = &results[0].answer else {
            panic!("{results:?}");
        };
        assert_eq!(output["arguments"], json!({"amount": 3}));
        assert_eq!(output["result"], "paid");
        assert_eq!(results[1].answer, Answer::success(json!("paid")));
        let Answer::Error { code, message } = &results[2].answer else {
            panic!("{results:?}");
        };
        assert_eq!(code, "failed");
        assert!(
            message.starts_with("no money") && message.contains(r#"{"amount":3}"#),
            "{message}"
        );
    }

    #[test]
    fn an_approval_that_an_earlier_version_saved_has_no_changed_arguments() {
        let saved = json!({"call": "1", "digest": "d", "arguments": {"amount": 3}});

        let read: Approved = Json::from(saved.clone()).parse().unwrap();

        assert!(!read.is_changed);
        assert_eq!(json!(read), saved);
    }
}
