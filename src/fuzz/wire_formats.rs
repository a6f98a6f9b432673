//! Formats of messages from servers, model providers and external agent programs, for fuzz tests.

use super::Shape::{self, Any, Either, List, Named, Object, Raw, Word};
use super::agents::{ANSWER, ARGUMENTS, TOOL};
use super::json::{Bytes, bytes};
use super::tape::Tape;
use super::vocabulary::{BREADCRUMB, EVENT, TEXT};

/// The format of a breadcrumb server's answers, for fuzz tests: a list, a single breadcrumb, or the answer to a create call.
pub(crate) const SERVER_ANSWER: Shape = Either(&[
    &List(&BREADCRUMB),
    &BREADCRUMB,
    &Object(&[("id!", &TEXT), ("version", &Raw(&["1"]))]),
    &Named(&["error", "items", "id"], &Any),
]);

const INDEX: Shape = Raw(&[
    "0",
    "1",
    "2",
    "0",
    "63",
    "64",
    "128",
    "4294967295",
    "18446744073709551615",
    "null",
    "-1",
]);
const REASON: Shape = Word(&[
    "stop",
    "tool_calls",
    "length",
    "content_filter",
    "end_turn",
    "",
]);
const CALL: Shape = Object(&[
    ("index!", &INDEX),
    ("id", &Word(&["call_1", "call_2", "", "a"])),
    ("type", &Word(&["function"])),
    (
        "function!",
        &Object(&[
            ("name", &TOOL),
            ("arguments", &Either(&[&PIECE, &ARGUMENTS])),
        ]),
    ),
]);
/// Fragments from which fuzz tests build the streamed JSON arguments of a tool call. Only the fragments of one call together are
/// JSON.
const PIECE: Shape = Word(&[
    "",
    "{",
    "}",
    "{\"text\":",
    "\"a\"",
    "{\"a\":[",
    "]",
    "\\",
    "{\"a\":1}",
]);
const DELTA: Shape = Either(&[
    &Object(&[("content!", &Either(&[&ANSWER, &TEXT]))]),
    &Object(&[("tool_calls!", &List(&CALL))]),
    &Object(&[
        ("content", &Any),
        ("refusal", &TEXT),
        ("tool_calls", &List(&CALL)),
        ("role", &Word(&["assistant"])),
    ]),
]);
const USAGE: Shape = Object(&[("prompt_tokens", &INDEX), ("completion_tokens", &INDEX)]);
/// JSON shape from which fuzz tests generate an OpenAI model answer, as a chunk or as a whole.
pub(crate) const CHUNK: Shape = Either(&[
    &Object(&[("choices!", &List(&Object(&[("delta!", &DELTA)])))]),
    &Object(&[(
        "choices!",
        &List(&Object(&[
            ("delta!", &DELTA),
            ("index", &INDEX),
            ("finish_reason", &REASON),
        ])),
    )]),
    &Object(&[("choices!", &Raw(&["[]"])), ("usage!", &USAGE)]),
    &Object(&[
        (
            "choices!",
            &List(&Object(&[
                ("message!", &DELTA),
                ("finish_reason!", &REASON),
            ])),
        ),
        ("usage", &USAGE),
    ]),
    &Object(&[(
        "error!",
        &Either(&[&Object(&[("message!", &TEXT), ("code", &Any)]), &Any]),
    )]),
]);

/// JSON shape from which fuzz tests generate a tool call that an external agent program sends to this crate.
pub(crate) const SENT_CALL: Shape = Object(&[
    ("id!", &Word(&["1", "call", "é"])),
    ("tool!", &TOOL),
    (
        "arguments!",
        &Either(&[&ARGUMENTS, &Word(&["{}", "{\"a\":1}", "", "[1]", "{"])]),
    ),
    ("extra", &Any),
]);

/// Returns the body of a generated answer of type `text/event-stream`, and the lengths of the body's chunks.
pub(crate) fn event_stream(tape: &mut Tape) -> (Bytes, Vec<usize>) {
    const ENDS: [&str; 4] = ["\n", "\r\n", "\r", ""];
    const FIELDS: [&str; 12] = [
        "data: ",
        "data:",
        "data",
        "event: ",
        "id: ",
        "retry: ",
        ": ",
        "other: ",
        "data : ",
        "\u{FEFF}data: ",
        " data:",
        "id",
    ];
    let mut text = String::new();
    let end = *tape.pick(&ENDS[..3]);
    for _ in 0..tape.below(6) {
        for _ in 0..1 + tape.below(3) {
            text.push_str(tape.word(&FIELDS));
            match tape.below(5) {
                0 => EVENT.write(tape, &mut text),
                1 => CHUNK.write(tape, &mut text),
                2 => text.push_str(tape.word(&[
                    "1500",
                    "99999999999999999999",
                    "-1",
                    "7\0",
                    "[DONE]",
                    "crumb",
                    "1e3",
                ])),
                _ => TEXT.write(tape, &mut text),
            }
            text.push_str(if tape.once_in(8) {
                tape.word(&ENDS)
            } else {
                end
            });
        }
        text.push_str(if tape.once_in(8) {
            tape.word(&ENDS)
        } else {
            end
        });
    }
    let chunks = (0..tape.below(8)).map(|_| tape.below(40)).collect();
    (bytes(tape, &text), chunks)
}
