//! Breadcrumbs of tool requests and responses, written and read by pure functions without I/O.
//!
//! Fields of requests are written in camel case, and fields of responses in snake case. Both forms are read.

use crate::error::excerpt;
use crate::machine::Answer;
#[cfg(feature = "agents")]
use crate::model::REQUEST_TAG;
use crate::model::{Breadcrumb, Json, NewBreadcrumb, request_tag};
use serde_json::{Value, json};

/// Schema of a request for a tool.
pub(super) const REQUEST: &str = "tool.request.v1";

/// Schema of a response to a tool request.
pub(super) const RESPONSE: &str = "tool.response.v1";

/// Workspace tag of the response to a tool request that has no workspace tag itself.
const WORKSPACE: &str = "workspace:tools";
/// Maximum length in bytes of a request ID or a requester name in a tool request. A longer one is ignored.
const ID_BYTES: usize = 512;
/// Maximum length in bytes of an error code from a tool response. A longer code is shortened.
const CODE_BYTES: usize = 64;
/// Maximum length in bytes of an error message from a tool response. A longer message is shortened.
const MESSAGE_BYTES: usize = 4 << 10;

/// Returns the breadcrumb of a tool request. The request ID is in its context and in its tag `request:<id>`.
pub(crate) fn request(
    tool: &str,
    input: Value,
    request_id: &str,
    requested_by: Option<&str>,
) -> NewBreadcrumb {
    let mut context = json!({"tool": tool, "requestId": request_id});
    if let Value::Object(fields) = &mut context {
        // Inserted separately, because `json!` would copy the value.
        fields.insert("input".to_owned(), input);
        if let Some(name) = requested_by {
            fields.insert("requestedBy".to_owned(), name.into());
        }
    }
    let request = NewBreadcrumb::new(REQUEST)
        .title(format!("Request: {tool}"))
        .tags(["tool:request", WORKSPACE])
        .context(context);
    tagged(request, request_id)
}

/// Returns the output or the error of a tool from the breadcrumb with the tool's response. Returns `None` if the response has
/// another request ID or tool name than the request, or no final status.
///
/// Other implementations may write fewer fields than this crate. A response without a request ID in its context is recognised by its
/// tag. A response without a tool name is accepted. An error may be a string, an object with a `message`, or missing.
///
/// `shown` is the part of the context that a model may see. Output and error are read from `shown`, and everything that decides
/// whether the response counts is read from the whole context. Returns `None` if `shown` lacks the output that the context has.
pub(crate) fn answer_of(
    response: &Breadcrumb,
    shown: &Json,
    request_id: &str,
    tool: &str,
) -> Option<Answer> {
    // JSON that nests too deeply cannot be copied, so it is not accepted as a response.
    if response.context.size() == usize::MAX {
        return None;
    }
    let is_answer = match first_text(response, ["request_id", "requestId"]) {
        Some(id) => id == request_id,
        None => response.tags.contains(&request_tag(request_id)),
    };
    let named = response.context.get("tool").and_then(Value::as_str);
    if !is_answer || named.is_some_and(|named| named != tool) {
        return None;
    }
    match response.context.get("status")?.as_str()? {
        "success" => match (shown.get("output"), response.context.get("output")) {
            (Some(output), _) => Some(Answer::success(output.clone())),
            (None, None) => Some(Answer::success(Value::Null)),
            (None, Some(_)) => None,
        },
        "error" => Some(error_of(shown)),
        _ => None,
    }
}

fn error_of(context: &Value) -> Answer {
    let error = context.get("error").unwrap_or(&Value::Null);
    let text = |value: Option<&Value>| {
        let text = value.and_then(Value::as_str)?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    let code = text(context.get("code")).or_else(|| text(error.get("code")));
    let code = code.unwrap_or_else(|| "failed".to_owned());
    let message = match error {
        Value::Null => text(context.get("message")),
        Value::String(_) => text(Some(error)),
        Value::Object(_) => text(error.get("message")).or_else(|| Some(error.to_string())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => Some(error.to_string()),
    };
    let message = message.unwrap_or_else(|| "the tool failed and does not say why".to_owned());
    Answer::error(excerpt(&code, CODE_BYTES), excerpt(&message, MESSAGE_BYTES))
}

/// Adds a tag with the request ID to the breadcrumb of a tool request, its progress or its response. An ID that is too long for a tag
/// is omitted, so that the breadcrumb can still be written. The ID is also in the context.
pub(super) fn tagged(new: NewBreadcrumb, request_id: &str) -> NewBreadcrumb {
    let tag = request_tag(request_id);
    match tag.len() > Breadcrumb::MAX_TAG_BYTES {
        true => new,
        false => new.tag(tag),
    }
}

/// Returns the request ID in the context of a tool's trigger, else the breadcrumb ID of the trigger.
pub(super) fn request_id(trigger: &Breadcrumb) -> String {
    named_request(trigger).map_or_else(|| trigger.id.to_string(), str::to_owned)
}

/// Returns the request ID in the context of a tool request, or `None` if the ID is missing or longer than 512 bytes. The limit exists
/// because each answer repeats the ID.
pub(crate) fn named_request(request: &Breadcrumb) -> Option<&str> {
    first_text(request, ["requestId", "request_id"]).filter(|id| id.len() <= ID_BYTES)
}

/// Returns the ID of the request that a tool response answers. The ID is in the response's context, or otherwise in a tag.
#[cfg(feature = "agents")]
pub(crate) fn answered_request(response: &Breadcrumb) -> Option<&str> {
    let named = first_text(response, ["request_id", "requestId"]);
    let named = named.or_else(|| response.tag(REQUEST_TAG));
    named.filter(|id| id.len() <= ID_BYTES)
}

/// Returns the requester's name from the trigger of a tool run, or `None` if the name is missing or longer than 512 bytes.
pub(super) fn requested_by(trigger: &Breadcrumb) -> Option<&str> {
    first_text(trigger, ["requestedBy", "requested_by"]).filter(|name| name.len() <= ID_BYTES)
}

/// Returns the workspace tag of a tool request, or the default workspace.
pub(super) fn workspace(trigger: &Breadcrumb) -> &str {
    trigger
        .tags
        .iter()
        .find(|tag| tag.starts_with("workspace:"))
        .map_or(WORKSPACE, String::as_str)
}

fn first_text<'t, const N: usize>(of: &'t Breadcrumb, fields: [&str; N]) -> Option<&'t str> {
    fields
        .into_iter()
        .find_map(|field| of.context.get(field)?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, Timestamp};
    use proptest::prelude::*;

    fn response(context: Value) -> Breadcrumb {
        let new = NewBreadcrumb::new(RESPONSE).context(context);
        new.first_version(BreadcrumbId::default(), Timestamp::from_micros(0))
    }

    fn read(context: Value) -> Option<Answer> {
        answer_in(&response(context))
    }

    fn answer_in(response: &Breadcrumb) -> Option<Answer> {
        answer_of(response, &response.context, "r-1", "probe")
    }

    #[test]
    fn a_request_names_its_tool_input_and_requester() {
        let request = request("probe", json!({"n": 1}), "r-1", Some("greeter"));

        assert_eq!(
            *request.context,
            json!({"tool": "probe", "input": {"n": 1}, "requestId": "r-1", "requestedBy": "greeter"})
        );
        assert_eq!(
            request.tags,
            ["tool:request", "workspace:tools", "request:r-1"]
        );
        assert_eq!(request.schema_name.as_deref(), Some("tool.request.v1"));
    }

    #[test]
    fn an_answer_is_read_without_its_optional_fields() {
        let ok = |output| Some(Answer::success(output));
        let failed = |code: &str, message: &str| Some(Answer::error(code, message));
        let cases = [
            (
                json!({"request_id": "r-1", "tool": "probe", "status": "success", "output": 3}),
                ok(json!(3)),
            ),
            (
                json!({"requestId": "r-1", "status": "success"}),
                ok(Value::Null),
            ),
            (
                json!({"request_id": "r-1", "status": "error", "error": "no", "code": "busy"}),
                failed("busy", "no"),
            ),
            (
                json!({"request_id": "r-1", "status": "error", "error": "no"}),
                failed("failed", "no"),
            ),
            (
                json!({"request_id": "r-1", "status": "error", "error": {"message": "no", "code": "E7"}}),
                failed("E7", "no"),
            ),
            (
                json!({"request_id": "r-1", "status": "error", "error": {"why": 7}}),
                failed("failed", r#"{"why":7}"#),
            ),
            (
                json!({"request_id": "r-1", "status": "error", "code": 7, "error": null}),
                failed("failed", "the tool failed and does not say why"),
            ),
        ];

        for (context, expected) in cases {
            assert_eq!(read(context.clone()), expected, "{context}");
        }
        let mut tagged = response(json!({"status": "success", "output": 1}));
        tagged.tags.push("request:r-1".to_owned());
        assert_eq!(answer_in(&tagged), ok(json!(1)));
    }

    #[test]
    fn the_contents_of_an_answer_come_from_the_shown_part_and_its_status_from_the_whole() {
        let read =
            |whole: Value, shown: Value| answer_of(&response(whole), &shown.into(), "r-1", "probe");
        let success = json!({"request_id": "r-1", "status": "success", "output": {"a": 1, "b": 2}});
        let failure = json!({"request_id": "r-1", "status": "error", "error": "secret"});

        assert_eq!(
            read(success.clone(), json!({"output": {"a": 1}})),
            Some(Answer::success(json!({"a": 1})))
        );
        assert_eq!(read(success, json!({"status": "success"})), None);
        assert_eq!(
            read(failure, Value::Null),
            Some(Answer::error(
                "failed",
                "the tool failed and does not say why"
            ))
        );
    }

    #[test]
    fn a_response_that_does_not_answer_the_request_is_ignored() {
        for context in [
            json!({"request_id": "r-2", "status": "success"}),
            json!({"request_id": "r-1", "tool": "other", "status": "success"}),
            json!({"request_id": "r-1", "output": 1}),
            json!({"request_id": "r-1", "status": "pending"}),
            json!({"request_id": "r-1", "status": {"success": true}}),
            json!({"status": "success"}),
            json!("success"),
        ] {
            assert_eq!(read(context.clone()), None, "{context}");
        }
        let deep = (0..100_000).fold(json!(1), |inside, _| Value::Array(vec![inside]));
        assert_eq!(read(deep), None);
    }

    #[test]
    fn an_error_is_truncated_for_the_model() {
        let long = json!({"request_id": "r-1", "status": "error", "error": "x".repeat(1 << 20), "code": "y".repeat(999)});

        let Some(Answer::Error { code, message }) = read(long) else {
            panic!("no error");
        };

        assert!(code.len() <= 66 && message.len() <= (4 << 10) + 2);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            prop_oneof!["r-1", "probe", "success", "error", ".{0,8}"].prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 6, |inside| {
            let name = prop_oneof![
                "request_id",
                "requestId",
                "tool",
                "status",
                "output",
                "error",
                "code",
                "message",
                ".{0,4}"
            ];
            prop_oneof![
                prop::collection::vec(inside.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(name, inside, 0..8)
                    .prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #![proptest_config(crate::fuzz::config())]

        #[test]
        fn an_arbitrary_response_is_read_only_as_an_answer_to_this_request(
            context in json(),
            addressed in any::<bool>(),
        ) {
            let mut context = context;
            if let (true, Value::Object(fields)) = (addressed, &mut context) {
                fields.insert("request_id".to_owned(), json!("r-1"));
                fields.insert("status".to_owned(), json!("error"));
            }

            match read(context.clone()) {
                Some(Answer::Success(output)) => {
                    prop_assert_eq!(&context["status"], "success");
                    prop_assert_eq!(&*output, &context["output"]);
                }
                Some(Answer::Error { code, message }) => {
                    prop_assert_eq!(&context["status"], "error");
                    prop_assert!(!code.is_empty() && !message.is_empty());
                }
                None => {
                    let ids = [&context["request_id"], &context["requestId"]];
                    let states = ["success", "error"].map(|state| context["status"] == state);
                    let is_mine = ids[0] == "r-1" && (context["tool"] == "probe" || !context["tool"].is_string());
                    prop_assert!(!(is_mine && states.contains(&true)), "{}", context);
                }
            }
        }
    }
}
