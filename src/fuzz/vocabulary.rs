//! Formats of breadcrumbs, events, subscriptions, `llm_hints` and paths, for fuzz tests.

use super::Shape::{self, Any, Either, Generated, List, Named, Object, Raw, Word};
use super::known::SIZES;
use super::tape::Tape;
use super::words::WORDS;

pub(crate) const TEXT: Shape = Word(WORDS);
pub(super) const FLAG: Shape = Raw(&["true", "false"]);
pub(super) const INTEGER: Shape = Raw(&["1", "2", "0", "3", "10", "1000", "1001", "-1"]);
pub(super) const NUMBER: Shape = Raw(&["1", "0", "0.5", "1e2", "-1"]);

const SCHEMAS: &[&str] = &[
    "note.v1",
    "user.message.v1",
    "page.v1",
    "*",
    "agent.response.v1",
    "tool.request.v1",
    "tool.response.v1",
    "executor.failed.v1",
    "workflow.request.v1",
    "agent.def.v1",
    "session.entry.v1",
    "a",
];
pub(crate) const SCHEMA: Shape = Word(SCHEMAS);
const TAGS: &[&str] = &[
    "a",
    "b",
    "session:1",
    "request:1",
    "workspace:w",
    "ux:run:1",
    "ux:epoch:2",
    "parent:1",
    "step:a",
    "turn:1",
];
pub(crate) const TAG_LIST: Shape = List(&Word(TAGS));

/// JSON shape from which fuzz tests generate the context of a breadcrumb.
pub(crate) const CONTEXT: Shape = Either(&[
    &Named(
        &[
            "a", "b", "message", "creator", "items", "text", "tool", "input",
        ],
        &Any,
    ),
    &Any,
    &Object(&[
        ("a!", &Object(&[("b!", &List(&Any))])),
        ("message", &TEXT),
        ("n", &NUMBER),
    ]),
]);

const PATH_WORDS: &[&str] = &[
    "a",
    "$.a",
    "a.b",
    "a.b[0]",
    "$['a']",
    "$..a",
    "$.*",
    "$.a[*].b",
    "$.a[?(@.b == 1)]",
    "$.a[-1]",
    "$.a[0:2]",
    "$.a[?(@.b =~ '^x')]",
    "$",
    "",
    "$.a[?(length(@.b) > 1)]",
    "items[?(@.n > 1 && @.m < 2)].x",
    "$..*..*..*..*",
    "$.a[?(@.b[?(@.c[?(@.d)])])]",
    "$.a[?((((((@.b))))))]",
    "a.",
    "$.\"a\"",
    "creator",
    "$.a[18446744073709551616]",
];
const PATH: Shape = Either(&[
    &Word(PATH_WORDS),
    &Word(PATH_WORDS),
    &Word(PATH_WORDS),
    &Generated(long_path),
]);

/// Writes a JSONPath whose length in bytes is close to one of several size limits into a fuzz test's input.
fn long_path(tape: &mut Tape, out: &mut String) {
    let (name, size) = *tape.pick(&SIZES[..9]);
    tape.note(name);
    let (part, last) = *tape.pick(&[
        (".a", "b"),
        ("[0]", "x"),
        ("[?(@.a", ")]"),
        ("..a", ""),
        ("((((", ""),
    ]);
    let mut path = "a".to_owned();
    while path.len() + part.len() + last.len() <= size {
        path.push_str(part);
    }
    path.extend(std::iter::repeat_n('b', size - path.len()));
    out.push_str(&format!("\"{path}\""));
}

const OPS: &[&str] = &[
    "eq",
    "ne",
    "contains",
    "exists",
    "gt",
    "gte",
    "lt",
    "lte",
    "in",
    "not_in",
    "matches",
    "starts_with",
    "ends_with",
    "not_exists",
    "==",
    "contains_any",
];
const PATTERNS: &[&str] = &[
    "^a",
    "a|b",
    "(a+)+$",
    "\\w{200}",
    "\\p{L}*",
    "[",
    "(?i)x",
    "(?:a{1000}){1000}",
    ".*.*.*",
    "\\bé\\b",
    "(?-u)\\xff",
];
const OPERAND: Shape = Either(&[&TEXT, &NUMBER, &List(&Any), &Word(PATTERNS), &Any]);
const CONDITION: Shape = Either(&[
    &Object(&[("path!", &PATH), ("op!", &Word(OPS)), ("value!", &OPERAND)]),
    &Object(&[
        ("path!", &PATH),
        ("op!", &Word(&["matches"])),
        ("value!", &Word(PATTERNS)),
    ]),
    &Object(&[
        ("path!", &Word(&["a", "$.a"])),
        ("op!", &Word(&["eq", "ne"])),
        ("value!", &Any),
    ]),
]);
pub(super) const CONDITIONS: Shape = List(&CONDITION);

const FETCH: Shape = Either(&[
    &Object(&[
        (
            "method!",
            &Word(&["latest", "recent", "vector", "event_data"]),
        ),
        ("limit", &INTEGER),
        ("nn", &INTEGER),
        ("order", &Word(&["newest_first", "oldest_first"])),
        ("min_score", &NUMBER),
    ]),
    &Word(&["latest", "recent", "vector", "event_data"]),
]);
const SELECTOR_FIELDS: Shape = Object(&[
    ("schema_name!", &SCHEMA),
    ("any_tags", &TAG_LIST),
    ("all_tags", &TAG_LIST),
    ("context_match", &CONDITIONS),
]);
const TRIGGER: Shape = Object(&[
    ("role!", &Word(&["trigger"])),
    ("schema_name!", &SCHEMA),
    ("any_tags", &TAG_LIST),
    ("context_match", &CONDITIONS),
    (
        "on",
        &List(&Word(&[
            "created",
            "updated",
            "deleted",
            "breadcrumb.created",
        ])),
    ),
    ("key", &TEXT),
    ("comment", &TEXT),
]);
const SOURCE: Shape = Object(&[
    ("role!", &Word(&["context"])),
    ("schema_name!", &SCHEMA),
    (
        "key!",
        &Word(&["page", "history", "a", "b", "c", "trigger", ""]),
    ),
    ("fetch!", &FETCH),
    ("all_tags", &TAG_LIST),
    ("tag", &Word(TAGS)),
    ("context_match", &CONDITIONS),
    ("required", &FLAG),
    (
        "scope",
        &List(&Word(&["session:", "workspace:", "ux:", ""])),
    ),
    ("priority", &INTEGER),
    ("limit", &INTEGER),
    ("nn", &INTEGER),
]);
const SUBSCRIPTION: Shape = Either(&[
    &TRIGGER,
    &SOURCE,
    &SOURCE,
    &Object(&[
        ("role!", &Word(&["trigger", "context"])),
        ("selector!", &SELECTOR_FIELDS),
    ]),
]);
/// JSON shape from which fuzz tests generate a list of subscriptions in a definition, in all its JSON forms.
pub(crate) const SUBSCRIPTIONS: Shape = Either(&[
    &List(&SUBSCRIPTION),
    &List(&SUBSCRIPTION),
    &Object(&[("selectors!", &List(&SUBSCRIPTION))]),
    &Object(&[("subscriptions!", &List(&SUBSCRIPTION))]),
    &Object(&[(
        "context!",
        &Object(&[(
            "subscriptions!",
            &Object(&[("selectors!", &List(&SUBSCRIPTION))]),
        )]),
    )]),
]);

pub(super) const ID: Shape = Word(&[
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "01890a5d-ac96-774b-bcce-b302099a8058",
    "00000000-0000-0000-0000-000000000000",
    "01890a5dac96774bbcceb302099a8057",
    "{01890a5d-ac96-774b-bcce-b302099a8057}",
]);
const TIME: Shape = Word(&[
    "2026-11-21T20:33:40.535554Z",
    "2026-11-21T20:33:40+01:00",
    "9999-12-31T23:59:59.999999999Z",
    "-009999-01-01T00:00:00Z",
    "2016-12-31T23:59:60Z",
    "2026-11-21",
]);
pub(super) const VERSION: Shape = Raw(&["1", "2", "0", "18446744073709551615", "9007199254740993"]);

/// JSON shape from which fuzz tests generate hints for the presentation of a breadcrumb to a model.
pub(crate) const HINTS: Shape = Object(&[
    ("include", &List(&PATH)),
    ("exclude", &List(&PATH)),
    ("mode", &Word(&["replace", "merge"])),
    ("transform", &Named(&["a", "x", "creator"], &RULE)),
]);
const TEMPLATES: &[&str] = &[
    "{{a}}",
    "{{{a}}}",
    "{{#each items}}{{this}}{{/each}}",
    "{{#each a}}{{#each @root}}{{@index}}{{/each}}{{/each}}",
    "{{#if a}}x{{else}}y{{/if}}",
    "{{lookup a b}}",
    "{{a",
    "{{> a}}",
    "{name}: {content}",
    "{{#with a}}{{../b}}{{/with}}",
    "{a}{b}{",
    "{{constructor}}",
    "{{\"a\"}}",
    "{{#*inline \"a\"}}{{> a}}{{/inline}}{{> a}}",
];
const RULE: Shape = Either(&[
    &Object(&[("type!", &Word(&["literal"])), ("literal!", &Any)]),
    &Object(&[
        ("type!", &Word(&["template"])),
        ("template!", &Word(TEMPLATES)),
    ]),
    &Object(&[("type!", &Word(&["extract"])), ("value!", &PATH)]),
    &Object(&[("type!", &Word(&["format"])), ("format!", &Word(TEMPLATES))]),
    &Object(&[("type!", &Word(&["jq"])), ("value!", &TEXT)]),
]);

/// JSON shape from which fuzz tests generate a stored breadcrumb.
pub(crate) const BREADCRUMB: Shape = Object(&[
    ("id!", &ID),
    ("schema_name!", &SCHEMA),
    ("title!", &TEXT),
    ("tags!", &TAG_LIST),
    ("context!", &CONTEXT),
    ("version!", &VERSION),
    ("created_at!", &TIME),
    ("updated_at!", &TIME),
    ("llm_hints", &HINTS),
    ("description", &TEXT),
    ("semantic_version", &TEXT),
    ("visibility", &Word(&["public", "team", "private", "Team"])),
    ("sensitivity", &Word(&["low", "pii", "secret", "LOW"])),
    ("ttl", &TIME),
    ("ttl_type", &Word(&["datetime", "usage", "hybrid"])),
    ("created_by", &TEXT),
    ("updated_by", &TEXT),
    ("owner_id", &TEXT),
]);
/// JSON shape from which fuzz tests generate an event.
pub(crate) const EVENT: Shape = Either(&[
    &Object(&[
        (
            "type!",
            &Word(&[
                "breadcrumb.created",
                "breadcrumb.updated",
                "breadcrumb.deleted",
                "ping",
            ]),
        ),
        ("breadcrumb_id!", &ID),
        ("version!", &VERSION),
        ("schema_name!", &SCHEMA),
        ("tags!", &TAG_LIST),
        ("context!", &CONTEXT),
        ("updated_at!", &TIME),
        ("ts", &TIME),
        ("other", &Any),
    ]),
    &Object(&[("type!", &Word(&["ping"])), ("ts!", &TIME)]),
]);

const TYPES: &[&str] = &[
    "object", "string", "integer", "array", "number", "boolean", "null",
];
const REFERENCES: &[&str] = &[
    "#",
    "#/$defs/a",
    "#/properties/a",
    "#/allOf/0",
    "https://example.com/schema",
    "#a",
    "#/$defs/a/$defs/a",
    "a.json",
];
/// JSON shape from which fuzz tests generate a JSON Schema.
pub(crate) static SCHEMA_OF_JSON: Shape = Either(&[
    &Object(&[("type!", &Word(TYPES))]),
    &Object(&[
        ("type!", &Word(&["object"])),
        ("properties!", &Named(&["a", "b", "text"], &SCHEMA_OF_JSON)),
        ("required", &List(&Word(&["a", "b", "text"]))),
        ("additionalProperties", &Either(&[&FLAG, &SCHEMA_OF_JSON])),
        (
            "patternProperties",
            &Named(&["^a", "(a+)+$"], &SCHEMA_OF_JSON),
        ),
        ("$defs", &Named(&["a", "b"], &SCHEMA_OF_JSON)),
        ("minProperties", &INTEGER),
    ]),
    &Object(&[
        ("type!", &Word(&["array"])),
        ("items!", &SCHEMA_OF_JSON),
        ("uniqueItems", &FLAG),
        ("maxItems", &INTEGER),
    ]),
    &Object(&[
        ("type!", &Word(&["string"])),
        ("pattern", &Word(PATTERNS)),
        ("minLength", &INTEGER),
        ("format", &TEXT),
    ]),
    &Object(&[("$ref!", &Word(REFERENCES))]),
    &Object(&[
        ("anyOf", &List(&SCHEMA_OF_JSON)),
        ("allOf", &List(&SCHEMA_OF_JSON)),
        ("oneOf", &List(&SCHEMA_OF_JSON)),
    ]),
    &Object(&[("enum!", &List(&Any))]),
    &Object(&[
        ("const!", &Any),
        ("multipleOf", &NUMBER),
        ("minimum", &NUMBER),
    ]),
    &Object(&[
        ("if!", &SCHEMA_OF_JSON),
        ("then", &SCHEMA_OF_JSON),
        ("not", &SCHEMA_OF_JSON),
        ("$id", &TEXT),
    ]),
    &FLAG,
]);
