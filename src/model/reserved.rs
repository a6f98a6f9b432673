//! Schema names and tags that the library uses itself and whose writers it restricts.

/// Schema names of requests, answers, dead letters and sessions, without their versions. Models cannot write them, and a run cannot
/// change the schema of a breadcrumb to one of them.
const SCHEMAS: [&str; 19] = [
    "agent.request",
    "chat.session",
    "chat.turn",
    "executor.failed",
    "human.request",
    "human.response",
    "mcp.tool",
    "session.entry",
    "session.log",
    "tool.catalog",
    "tool.request",
    "tool.response",
    "workflow.control",
    "workflow.kept",
    "workflow.progress",
    "workflow.request",
    "workflow.result",
    "workload.message",
    "workload.result",
];

/// Schema name of the record of a chat session.
pub(crate) const CHAT_SESSION: &str = "chat.session.v1";

/// Schema name of the breadcrumbs in which a run saves the events of a chat turn, such as streamed text, for the client.
pub(crate) const CHAT_TURN: &str = "chat.turn.v1";

/// Prefix of the tag that names the chat session to which a breadcrumb belongs.
pub(crate) const SESSION_TAG: &str = "session:";

/// Prefix of the tag that a run's request to a tool, agent or person shares with the answers.
pub(crate) const REQUEST_TAG: &str = "request:";

/// Schema name of workflow definitions.
#[cfg(feature = "agents")]
pub(crate) const WORKFLOW_DEFINITION: &str = "workflow.def.v1";

/// Schema name of the response of a workload to a chat message. A workload is an agent, a flow or code that answers the messages of a
/// session.
pub(crate) const WORKLOAD_RESULT: &str = "workload.result.v1";

/// Prefix of the tags by which a store without a ledger recognises the writes of a run.
const TAG_PREFIX: &str = "ux:";

/// Returns `true` for a schema name of requests, answers, dead letters or session data, in any version.
pub(crate) fn is_reserved_schema(schema: &str) -> bool {
    SCHEMAS.contains(&unversioned(schema))
}

/// Returns `true` for the schema name of agents' answers, in any version. Agents write their answers, so the name is not reserved.
pub(crate) fn is_answer_schema(schema: &str) -> bool {
    unversioned(schema) == "agent.response"
}

/// Returns `true` for a schema name of definitions, such as agent or schema definitions, in any version. These names are
/// `tool.v1` and each name with the part `def`, such as `agent.def.v1` and `schema.def.v1`. Definitions create executors and
/// control which data a model receives.
#[cfg(feature = "agents")]
pub(crate) fn is_definition_schema(schema: &str) -> bool {
    let name = unversioned(schema);
    name == "tool" || name.split('.').any(|part| part == "def")
}

/// Returns `true` if breadcrumbs with this schema name are records of chat sessions, which no subscription matches.
pub(crate) fn is_unrouted_schema(schema: Option<&str>) -> bool {
    schema.is_some_and(|schema| schema == CHAT_TURN || schema == CHAT_SESSION)
}

/// Returns the tag that a run's request to a tool, agent or person shares with the answers. The tag contains the request ID.
pub(crate) fn request_tag(request_id: &str) -> String {
    format!("{REQUEST_TAG}{request_id}")
}

/// Returns `true` if only the library may write a tag.
pub(crate) fn is_reserved_tag(tag: &str) -> bool {
    tag.starts_with(TAG_PREFIX)
}

/// Returns a schema name without its version, for example `tool.request` for `tool.request.v1`.
fn unversioned(schema: &str) -> &str {
    let is_version = |part: &str| {
        let digits = part.strip_prefix('v');
        digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match schema.rsplit_once('.') {
        Some((name, version)) if is_version(version) => name,
        Some(_) | None => schema,
    }
}
