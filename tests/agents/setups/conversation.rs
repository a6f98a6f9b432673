//! One conversation: the agent's turns, and the results that must be the same for every kind of agent.

use serde_json::{Value, json};
use universal_executor::agent::{ChatResponse, ModelArguments, ToolCall};
use universal_executor::machine::{self, Answer, CallId, Effect, Exit, MachineAnomaly};

/// A call as the agent writes it: ID, tool, and arguments as text.
type Call = (&'static str, &'static str, &'static str);

/// One turn of the agent.
pub(crate) enum Turn {
    Calls(&'static [Call]),
    Says(&'static str),
}

/// The turns: results of each kind in sequence, two parallel calls, repeated IDs, a call that needs an approval, a call of
/// another agent, and an output that is missing at first.
pub(crate) const ANSWERS_OF_MODEL: [Turn; 11] = [
    Turn::Calls(&[("plain", "upper", r#"{"text":"a"}"#)]),
    Turn::Calls(&[("failing", "fails", "{}")]),
    Turn::Calls(&[("nowhere", "missing", "{}")]),
    Turn::Calls(&[("unreadable", "upper", r#"{"text": "#)]),
    Turn::Calls(&[("nameless", "payer", r#"{"text":"Pay Ann."}"#)]),
    Turn::Calls(&[
        ("left", "upper", r#"{"text":"b"}"#),
        ("right", "upper", r#"{"text":"c"}"#),
    ]),
    Turn::Calls(&[
        ("again", "upper", r#"{"text":"d"}"#),
        ("again", "upper", r#"{"text":"d"}"#),
        ("again", "upper", r#"{"text":"e"}"#),
    ]),
    Turn::Calls(&[("approved", "pay", r#"{"to":"ann"}"#)]),
    Turn::Calls(&[("used", "payer", r#"{"prompt":"Pay Ann."}"#)]),
    Turn::Says("I am done."),
    Turn::Calls(&[("report", "completion-report", r#"{"done":"all"}"#)]),
];

/// The agent's last message.
pub(crate) const LAST: &str = "Here it is.";

/// The effects of the machine, turn by turn.
pub(crate) const EFFECTS: &[&[&str]] = &[
    &[r#"plain: execute upper {"text":"a"}"#, "plain: deliver A"],
    &[
        "failing: execute fails {}",
        "failing: deliver failed: no such city",
    ],
    &[
        "nowhere: execute missing {}",
        r#"nowhere: deliver unknown_tool: there is no tool "missing"; there are fails, pay, upper"#,
    ],
    &[
        "unreadable: deliver invalid_arguments: the arguments cannot be read (the text is not valid JSON: EOF while parsing a value \
         at line 1 column 9); call again with valid JSON",
    ],
    &[
        r#"nameless: execute payer {"text":"Pay Ann."}"#,
        r#"nameless: deliver invalid_input: "prompt" must be a string: the request to the agent"#,
    ],
    &[
        "left: deliver B",
        r#"left: execute upper {"text":"b"}"#,
        "right: deliver C",
        r#"right: execute upper {"text":"c"}"#,
    ],
    &[
        "again: conflict",
        "again: deliver D",
        "again: deliver conflicting_call: another call has the same id; call again with an id of its own",
        r#"again: execute upper {"text":"d"}"#,
    ],
    // A person approves before this turn. That is no effect of the machine.
    &[
        r#"approved: execute pay {"to":"ann"}"#,
        r#"approved: deliver {"to":"ann"}"#,
    ],
    &[
        r#"used: execute payer {"prompt":"Pay Ann."}"#,
        "used: deliver It is paid.",
    ],
    &["remind of completion-report"],
    &[
        r#"report: execute completion-report {"done":"all"}"#,
        "report: deliver handed in",
    ],
    &["finish with output"],
];

/// The result of each call.
pub(crate) const CALL_RESULTS: &[(&str, &str)] = &[
    ("plain", "A"),
    ("failing", "failed: no such city"),
    (
        "nowhere",
        r#"unknown_tool: there is no tool "missing"; there are fails, pay, upper"#,
    ),
    (
        "unreadable",
        "invalid_arguments: the arguments cannot be read (the text is not valid JSON: EOF while parsing a value at line 1 column 9); \
         call again with valid JSON",
    ),
    (
        "nameless",
        r#"invalid_input: "prompt" must be a string: the request to the agent"#,
    ),
    ("left", "B"),
    ("right", "C"),
    ("again", "D"),
    ("again", "D"),
    (
        "again",
        "conflicting_call: another call has the same id; call again with an id of its own",
    ),
    ("approved", r#"{"to":"ann"}"#),
    ("used", "It is paid."),
    ("report", "handed in"),
];

/// Returns the IDs of all calls in their order.
pub(crate) fn calls() -> impl Iterator<Item = &'static str> {
    let calls = ANSWERS_OF_MODEL.iter().flat_map(|turn| match turn {
        Turn::Calls(calls) => *calls,
        Turn::Says(_) => &[],
    });
    calls.map(|(id, _, _)| *id)
}

/// Returns the agent's answer after this number of turns.
pub(crate) fn answer(turns: usize) -> ChatResponse {
    match ANSWERS_OF_MODEL.get(turns) {
        Some(Turn::Calls(calls)) => {
            let calls = calls.iter();
            let calls = calls.map(|(id, tool, arguments)| {
                ToolCall::new(*id, *tool, ModelArguments::from_text(*arguments))
            });
            ChatResponse::calling(calls.collect())
        }
        Some(Turn::Says(text)) => ChatResponse::new(*text),
        None => ChatResponse::new(LAST),
    }
}

/// Returns the agent's answer in the format of chat completions.
pub(crate) fn completion(turns: usize) -> Value {
    let answer = answer(turns);
    let calls = answer.tool_calls().into_iter().map(|call| {
        let function = json!({"name": call.name, "arguments": call.arguments.text()});
        json!({"id": call.id, "type": "function", "function": function})
    });
    let calls: Vec<_> = calls.collect();
    let (message, reason) = match calls.is_empty() {
        true => (
            json!({"role": "assistant", "content": answer.text()}),
            "stop",
        ),
        false => (
            json!({"role": "assistant", "content": null, "tool_calls": calls}),
            "tool_calls",
        ),
    };
    json!({
        "id": "1", "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    })
}

/// Returns the conversation as steps of a program. A program starts from the first step at each start. It waits for the result of a call
/// before the next one, unless a turn has parallel calls.
pub(crate) fn steps(notes: &str) -> Value {
    let mut steps = vec![json!(["read", null])];
    for turn in &ANSWERS_OF_MODEL {
        steps.push(match turn {
            Turn::Says(text) => json!(["unless_told", [["say", text], ["exit", 0]]]),
            Turn::Calls(calls) => {
                let calls = calls.iter();
                let calls: Vec<_> = calls
                    .map(|(id, tool, text)| json!([id, tool, text]))
                    .collect();
                let is_repeated = calls.windows(2).any(|two| two[0][0] == two[1][0]);
                match is_repeated {
                    true => json!(["call", [calls]]),
                    false => json!(["call", calls.iter().map(|call| [call]).collect::<Vec<_>>()]),
                }
            }
        });
    }
    steps.push(json!(["note_heard", notes]));
    steps.push(json!(["say", LAST]));
    steps.into()
}

/// Returns the effects as lines, turn by turn.
///
/// The lines omit the differences between the ways: the number of the answer in call IDs, the grouping of delivered results, repeated
/// deliveries to a program that sends its calls again, and the order of parallel calls.
pub(crate) fn effect_lines(effects: &[Effect]) -> Vec<Vec<String>> {
    let mut lines: Vec<(Option<usize>, String)> = Vec::new();
    for effect in effects {
        let again = !matches!(effect, Effect::Execute(_));
        for (id, what) in parts(effect) {
            let line = match &id {
                Some(id) => format!("{id}: {what}"),
                None => what,
            };
            if !again || lines.iter().all(|(_, known)| *known != line) {
                lines.push((id.as_deref().map(turn_of), line));
            }
        }
    }
    let turns = lines.chunk_by(|(one, _), (next, _)| one == next);
    let turns = turns.map(|turn| {
        let mut lines: Vec<_> = turn.iter().map(|(_, line)| line.clone()).collect();
        if turn[0].0.is_some_and(
            |turn| matches!(&ANSWERS_OF_MODEL[turn], Turn::Calls(calls) if calls.len() > 1),
        ) {
            lines.sort();
        }
        lines
    });
    turns.collect()
}

fn parts(effect: &Effect) -> Vec<(Option<String>, String)> {
    let of = |id: &CallId| {
        let id = id.as_str();
        Some(id.split_once(':').map_or(id, |(_, id)| id).to_owned())
    };
    match effect {
        Effect::Execute(call) => {
            let arguments = match &call.arguments {
                machine::ToolArguments::Json(json) => json.to_string(),
                unreadable @ machine::ToolArguments::Unreadable { .. } => {
                    panic!("the machine executed a call with unreadable arguments: {unreadable:?}")
                }
            };
            vec![(of(&call.id), format!("execute {} {arguments}", call.tool))]
        }
        Effect::Deliver(results) => {
            let results = results.iter();
            let results = results.map(|result| {
                (
                    of(&result.call_id),
                    format!("deliver {}", text(&result.answer)),
                )
            });
            results.collect()
        }
        Effect::Defer { call_id, action } => vec![(of(call_id), format!("defer {action:?}"))],
        Effect::CancelCall(id) => vec![(of(id), "cancel".to_owned())],
        Effect::Remind { missing } => vec![(None, format!("remind of {}", missing.join(", ")))],
        Effect::Finish(Exit::WithOutput { .. }) => vec![(None, "finish with output".to_owned())],
        Effect::Finish(exit) => vec![(None, format!("finish {exit:?}"))],
        Effect::Report(MachineAnomaly::ConflictingCall { call_id }) => {
            vec![(of(call_id), "conflict".to_owned())]
        }
        Effect::Report(anomaly) => vec![(None, format!("{anomaly:?}"))],
    }
}

/// Returns a result as the text that a model receives.
fn text(answer: &Answer) -> String {
    match answer {
        Answer::Success(output) => output
            .as_str()
            .map_or_else(|| output.to_string(), str::to_owned),
        Answer::Error { code, message } => format!("{code}: {message}"),
    }
}

/// Returns the index of a call's turn.
fn turn_of(id: &str) -> usize {
    let has = |turn: &Turn| match turn {
        Turn::Calls(calls) => calls.iter().any(|(known, _, _)| *known == id),
        Turn::Says(_) => false,
    };
    ANSWERS_OF_MODEL.iter().position(has).unwrap()
}
