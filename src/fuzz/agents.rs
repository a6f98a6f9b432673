//! Formats from which fuzz tests generate definitions of agents and tools, tool requests, and model answers.

use super::Shape::{self, Any, Either, List, Named, Object, Raw, Word};
use super::vocabulary::{
    CONDITIONS, CONTEXT, FLAG, HINTS, ID, INTEGER, NUMBER, SCHEMA, SCHEMA_OF_JSON, SUBSCRIPTIONS,
    TAG_LIST, TEXT, VERSION,
};

const TOOLS: &[&str] = &[
    "echo", "fail", "echo", "echo", "fail", "search", "Echo", "echo ",
];
const AGENTS: &[&str] = &["helper", "other", "a"];
const AGENT_REFERENCES: Shape = List(&Either(&[
    &Word(AGENTS),
    &Object(&[("agent!", &Word(AGENTS)), ("description!", &TEXT)]),
]));
/// JSON shape from which fuzz tests generate agent definitions.
pub(crate) const AGENT: Shape = Object(&[
    ("agent_id!", &Word(AGENTS)),
    ("system_prompt!", &TEXT),
    ("subscriptions!", &AGENT_SUBSCRIPTIONS),
    ("model", &TEXT),
    ("temperature", &NUMBER),
    ("context_format", &Word(&["markdown", "xml"])),
    (
        "context_budget",
        &Object(&[
            ("tokens", &INTEGER),
            ("bytes", &INTEGER),
            ("items_per_source", &INTEGER),
        ]),
    ),
    ("responds_with", &List(&SCHEMA)),
    (
        "capabilities",
        &Named(
            &[
                "can_create_breadcrumbs",
                "can_update_own",
                "can_delete_own",
                "can_spawn_agents",
            ],
            &FLAG,
        ),
    ),
    (
        "trust",
        &Named(&["private", "untrusted", "outward"], &List(&SCHEMA)),
    ),
    ("tools!", &List(&Word(&["echo", "fail"]))),
    ("max_turns", &INTEGER),
    ("budgets", &Named(&["tokens", "calls", "seconds"], &INTEGER)),
    ("output_schema", &SCHEMA_OF_JSON),
    ("tool_calls", &Word(&["in_process", "breadcrumbs"])),
    ("return_to_user", &List(&Word(TOOLS))),
    ("use", &AGENT_REFERENCES),
    ("handoff", &AGENT_REFERENCES),
    ("delegate", &AGENT_REFERENCES),
    (
        "outputs",
        &List(&Object(&[
            ("name!", &Word(&["report", "b"])),
            ("schema", &SCHEMA_OF_JSON),
            ("required", &FLAG),
        ])),
    ),
    ("reminders", &INTEGER),
    (
        "approval",
        &Object(&[
            ("tools!", &List(&Either(&[&Word(TOOLS), &APPROVAL_RULE]))),
            ("by", &List(&TEXT)),
        ]),
    ),
    (
        "wait_seconds",
        &Named(&["people", "agents", "model"], &NUMBER),
    ),
]);
const APPROVAL_RULE: Shape = Object(&[
    ("tool!", &Word(TOOLS)),
    ("when", &CONDITIONS),
    ("by", &List(&TEXT)),
    ("expires_in_seconds", &INTEGER),
]);
const AGENT_SUBSCRIPTIONS: Shape = Either(&[
    &Raw(&[r#"[{"role":"trigger","schema_name":"user.message.v1"}]"#]),
    &Raw(&[
        r#"[{"role":"trigger","schema_name":"user.message.v1"},{"role":"context","schema_name":"page.v1","key":"page","fetch":"latest"},{"role":"context","schema_name":"note.v1","key":"notes","fetch":{"method":"recent","limit":5}}]"#,
    ]),
    &SUBSCRIPTIONS,
]);

/// JSON shape from which fuzz tests generate tool definitions.
pub(crate) const TOOL_DEFINITION: Shape = Object(&[
    ("name!", &Word(&["echo", "echo", "fail"])),
    ("subscriptions!", &TOOL_SUBSCRIPTIONS),
    ("responds_with", &List(&SCHEMA)),
]);
const TOOL_SUBSCRIPTIONS: Shape = Either(&[
    &Raw(&[
        r#"[{"role":"trigger","schema_name":"tool.request.v1","context_match":[{"path":"$.tool","op":"eq","value":"echo"}]}]"#,
        r#"[{"role":"trigger","schema_name":"user.message.v1"}]"#,
    ]),
    &SUBSCRIPTIONS,
]);
/// JSON shape from which fuzz tests generate the contexts of breadcrumbs that request tool calls.
pub(crate) const TOOL_REQUEST: Shape = Object(&[
    ("tool!", &Word(&["echo", "echo", "fail"])),
    ("input!", &ARGUMENTS),
    (
        "request_id!",
        &Either(&[&Word(&["r-1", "request:1", ""]), &TEXT]),
    ),
    ("requestId", &TEXT),
    ("requested_by", &TEXT),
    ("creator", &Any),
]);

/// JSON shape from which fuzz tests generate the answers of a model: prose, JSON, or an object that creates, updates or deletes a
/// breadcrumb.
pub(crate) const ANSWER: Shape = Either(&[
    &TEXT,
    &Object(&[
        ("action!", &Word(&["create", "update", "delete", "none"])),
        ("breadcrumb!", &DRAFT),
    ]),
    &DRAFT,
    &Any,
    &Word(&[
        "```json\n{\"a\": 1}\n```",
        "Sure: {\"action\": \"none\"}",
        "{\"a\":{\"a\":{\"a\":",
    ]),
]);
const DRAFT: Shape = Object(&[
    ("schema_name!", &SCHEMA),
    ("title!", &TEXT),
    ("tags", &TAG_LIST),
    ("context!", &CONTEXT),
    ("id", &ID),
    ("version", &VERSION),
    ("created_by", &TEXT),
    ("visibility", &TEXT),
    ("llm_hints", &HINTS),
]);

/// JSON shape from which fuzz tests generate the arguments of tool calls.
pub(crate) const ARGUMENTS: Shape = Either(&[
    &Object(&[("text!", &TEXT)]),
    &Object(&[("a", &Any), ("b", &Any), ("text", &Any)]),
    &Any,
]);
/// JSON shape from which fuzz tests generate tool names.
pub(crate) const TOOL: Shape = Word(TOOLS);
