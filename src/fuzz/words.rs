//! Strings and field names that the crate's formats use, for the inputs of fuzz tests.

/// Strings for the inputs of fuzz tests: names, tags, paths, references, times, IDs, JSON, and empty or non-ASCII text. Some are
/// valid only where a certain format expects them.
pub(super) const WORDS: &[&str] = &[
    "",
    "a",
    "main",
    "search",
    "note.v1",
    "user.message.v1",
    "ux:run:1",
    "session:1",
    "$.a",
    "a.b[0]",
    "${input.a}",
    "{{a}}",
    "2026-11-21T20:33:40.535554Z",
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "{\"a\":1}",
    "line\nline",
    "é",
    "tool.request.v1",
    "executor.failed.v1",
    "```json\n{}\n```",
];

/// Names of object fields for the inputs of fuzz tests.
pub(super) const NAMES: &[&str] = &[
    "a",
    "b",
    "items",
    "name",
    "id",
    "tags",
    "context",
    "message",
    "tool",
    "input",
    "type",
    "schema_name",
    "n",
];
