//! The format of workflow definitions, for fuzz tests.

use super::Shape::{self, Any, Either, Generated, List, Named, Object, Raw, Word};
use super::tape::Tape;
use super::vocabulary::{SCHEMA, SCHEMA_OF_JSON, SUBSCRIPTIONS, TAG_LIST, TEXT};

const COUNT: Shape = Either(&[
    &Raw(&["1", "2", "3"]),
    &Raw(&["1", "2", "3", "4", "10"]),
    &Raw(&[
        "100", "101", "256", "257", "10000", "10001", "0", "-1", "1.5",
    ]),
]);
const SECONDS: Shape = Either(&[
    &Raw(&["1", "60"]),
    &Raw(&["1", "0.001", "60", "1e9", "31536000", "0", "-1", "1e20"]),
]);
const NAME: Shape = Either(&[
    &Word(&["a", "b", "answer", "x", "c", "d"]),
    &Word(&["a", "b", "c", "d", "e", "f", "g"]),
    &Word(&["input", "last", "a.b", "", "item"]),
]);
const FLOWS: &[&str] = &["main", "other"];

/// The format of workflow values that can contain references such as `${input.a}`, for fuzz tests.
const EXPRESSION: Shape = Either(&[
    &Word(&[
        "${input}",
        "${input.a}",
        "${input.text} and ${last}",
        "${last}",
        "hi",
        "${input}",
        "${input.b}",
        "${last}",
        "${a}",
        "${item}",
        "${index}",
        "${iteration}",
        "${input.items[0]}",
        "${input..a}",
        "$${a}",
        "${",
        "${}",
        "${a.b",
        "${error.code}",
        "${input.a[?(@.b == 1)]}",
        "${answer}${answer}${answer}${answer}",
    ]),
    &Object(&[
        ("text!", &Word(&["${input}", "${last}", "hi"])),
        ("b", &Any),
    ]),
    &List(&Word(&["${input}", "${a}", "1"])),
    &Any,
]);
const PATHS: Shape = Word(&[
    "input.a",
    "last",
    "a",
    "$.a",
    "input",
    "result",
    "input..b",
    "item.n",
    "last.text",
]);
static TEST: Shape = Either(&[
    &Object(&[
        ("path!", &PATHS),
        (
            "op!",
            &Word(&["eq", "exists", "gt", "contains", "matches", "in"]),
        ),
        ("value!", &EXPRESSION),
    ]),
    &Object(&[("path!", &PATHS), ("op!", &Word(&["not_exists", "exists"]))]),
    &Object(&[("all!", &List(&TEST))]),
    &Object(&[("any!", &List(&TEST))]),
    &Object(&[("not!", &TEST)]),
]);
const RETRY: Shape = Either(&[
    &COUNT,
    &Object(&[
        ("attempts!", &COUNT),
        ("base_seconds", &SECONDS),
        ("cap_seconds", &SECONDS),
    ]),
]);
static ESCALATIONS: Shape = List(&Either(&[
    &Object(&[("when!", &TEST), ("return!", &EXPRESSION)]),
    &Object(&[("when!", &TEST), ("continue!", &EXPRESSION)]),
    &Object(&[("when!", &TEST), ("abort!", &TEXT)]),
    &Object(&[("when!", &TEST), ("steps!", &STEPS)]),
]));
static STEPS: Shape = Either(&[
    &List(&STEP),
    &List(&STEP),
    &List(&STEP),
    &Generated(nested_steps),
]);

/// Writes workflow steps into a fuzz test's input, nested to about the maximum depth that the JSON or YAML reader accepts.
fn nested_steps(tape: &mut Tape, out: &mut String) {
    const TEST: &str = r#"{"path":"input","op":"exists"}"#;
    let (name, times) = *tape.pick(&[
        ("13 nested steps", 13),
        ("14 nested steps", 14),
        ("29 nested steps", 29),
        ("30 nested steps", 30),
    ]);
    tape.note(name);
    let (open, close) = *tape.pick(&[
        (r#"[{"loop":"#, r#","max":1}]"#),
        (r#"[{"try":"#, r#","on_failure":[{"return":1}]}]"#),
        (r#"[{"for_each":[1,2],"steps":"#, "}]"),
        (r#"[{"if":TEST,"then":"#, "}]"),
    ]);
    out.extend(std::iter::repeat_n(&*open.replace("TEST", TEST), times));
    out.push_str(r#"[{"set":{"a":1}}]"#);
    out.extend(std::iter::repeat_n(close, times));
}

const JOIN: Shape = Word(&["all", "fail_fast", "first"]);

static STEP: Shape = Either(&[
    &Object(&[
        ("tool!", &Word(&["echo", "fail", "big"])),
        ("input!", &EXPRESSION),
        ("as", &NAME),
        ("id", &NAME),
    ]),
    &Object(&[
        ("tool!", &Word(&["echo", "fail", "missing"])),
        ("input", &EXPRESSION),
        ("retry", &RETRY),
        ("timeout_seconds", &SECONDS),
        ("escalate", &ESCALATIONS),
    ]),
    &Object(&[("set!", &Named(&["a", "b", "answer"], &EXPRESSION))]),
    &Object(&[(
        "set!",
        &Named(
            &["a"],
            &Raw(&[r#""${a}${a}""#, r#"["${a}","${a}"]"#, r#""${last}${last}""#]),
        ),
    )]),
    &Object(&[("return!", &EXPRESSION)]),
    &Object(&[("fail!", &TEXT), ("code", &TEXT)]),
    &Object(&[
        (
            "parallel!",
            &List(&Either(&[
                &STEP,
                &Object(&[("steps!", &STEPS), ("id", &NAME)]),
            ])),
        ),
        ("join", &JOIN),
    ]),
    &Object(&[
        (
            "for_each!",
            &Either(&[
                &Raw(&["[1,2,3]", "[]", "[{\"n\":1}]", "{\"a\":1}"]),
                &EXPRESSION,
            ]),
        ),
        ("item", &NAME),
        ("at_once", &COUNT),
        ("join", &JOIN),
        ("steps!", &STEPS),
    ]),
    &Object(&[("loop!", &STEPS), ("max!", &COUNT), ("until", &TEST)]),
    &Object(&[("if!", &TEST), ("then!", &STEPS), ("else", &STEPS)]),
    &Object(&[
        ("match!", &EXPRESSION),
        (
            "cases!",
            &List(&Either(&[
                &Object(&[("is!", &Any), ("then!", &STEPS)]),
                &Object(&[
                    ("op!", &Word(&["eq", "gt", "matches"])),
                    ("value!", &Any),
                    ("path", &PATHS),
                    ("then!", &STEPS),
                ]),
            ])),
        ),
        ("else", &STEPS),
    ]),
    &Object(&[("try!", &STEPS), ("on_failure!", &STEPS)]),
    &Object(&[("flow!", &Word(FLOWS)), ("input", &EXPRESSION)]),
    &Object(&[
        ("model!", &Word(&["m"])),
        ("input", &EXPRESSION),
        ("prompt", &Word(&["p"])),
        ("output", &Word(&["s"])),
    ]),
    &Object(&[("agent!", &Word(&["helper"])), ("input", &EXPRESSION)]),
    &Object(&[
        ("ask!", &TEXT),
        ("of", &List(&TEXT)),
        ("output", &Word(&["s"])),
        ("timeout_seconds", &SECONDS),
    ]),
    &Object(&[(
        "emit!",
        &Object(&[
            ("schema_name!", &SCHEMA),
            ("title", &TEXT),
            ("tags", &TAG_LIST),
            ("context", &EXPRESSION),
        ]),
    )]),
    &Object(&[
        (
            "wait_for!",
            &Object(&[("schema_name!", &SCHEMA), ("any_tags", &TAG_LIST)]),
        ),
        ("timeout_seconds", &SECONDS),
    ]),
]);
const NODE: Shape = Object(&[
    ("id!", &Word(&["a", "b", "c", "d"])),
    ("tool!", &Word(&["echo", "fail"])),
    ("input!", &EXPRESSION),
    ("depends_on", &List(&Word(&["a", "b", "c"]))),
    ("retry", &RETRY),
]);
static FLOW: Shape = Either(&[
    &Object(&[
        ("steps!", &STEPS),
        ("input", &Word(&["s"])),
        ("output", &Word(&["s"])),
        ("description", &TEXT),
    ]),
    &Object(&[("steps!", &STEPS)]),
    &Object(&[
        ("steps!", &List(&NODE)),
        ("dag!", &Raw(&["true"])),
        ("at_once", &COUNT),
    ]),
]);

/// The format of a workflow definition for fuzz tests. Its steps use the tools of [`tools`](super::tests::tools) and the model
/// with the name `m`.
pub(super) static WORKFLOW: Shape = Object(&[
    (
        "flows!",
        &Either(&[
            &Object(&[("main!", &FLOW), ("other", &FLOW)]),
            &Object(&[("main!", &FLOW), ("other!", &FLOW)]),
            &Named(FLOWS, &FLOW),
        ]),
    ),
    (
        "tools!",
        &Raw(&[
            r#"{"echo":{},"fail":{},"big":{}}"#,
            r#"{"echo":{"approval":true},"fail":{"tool":"echo"}}"#,
        ]),
    ),
    (
        "models!",
        &Raw(&[r#"{"m":{}}"#, r#"{"m":{"max_tokens":5,"temperature":0.5}}"#]),
    ),
    ("prompts!", &Named(&["p", "q"], &TEXT)),
    ("schemas!", &Object(&[("s!", &SCHEMA_OF_JSON)])),
    (
        "agents!",
        &Object(&[(
            "helper",
            &Object(&[
                ("instruction!", &TEXT),
                ("tools", &Raw(&[r#"["echo"]"#])),
                ("model", &Word(&["m"])),
            ]),
        )]),
    ),
    (
        "policies",
        &Object(&[
            ("retry", &RETRY),
            ("timeout_seconds", &SECONDS),
            ("limits", &Named(&["steps", "items", "value_bytes"], &COUNT)),
            (
                "compaction",
                &Object(&[
                    ("method!", &Word(&["truncate", "summarise"])),
                    ("tokens!", &COUNT),
                ]),
            ),
            ("guardrails", &Any),
        ]),
    ),
    ("name", &TEXT),
    ("description", &TEXT),
]);

/// JSON shape from which fuzz tests generate the breadcrumb that defines a workflow executor.
pub(super) const WORKFLOW_DEFINITION: Shape = Object(&[
    ("workflow_id!", &Word(&["w", "other"])),
    ("definition!", &WORKFLOW),
    ("flow", &Word(FLOWS)),
    ("subscriptions", &SUBSCRIPTIONS),
]);
