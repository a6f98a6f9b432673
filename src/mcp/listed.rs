//! The definition of a tool as an MCP server lists it: its limits, its digest, and the settings that follow from its annotations.

use crate::hex::hash;
use crate::model::{size_within, sorted_text};
use crate::tool::{Approval, RetrySafety, ToolSettings};
use rmcp::model::{Tool, ToolAnnotations};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum size in bytes of the definition of an MCP tool: its description and its schemas.
const MAX_DEFINITION_BYTES: usize = 64 << 10;

/// Maximum nesting depth of the schemas of an MCP tool. A record in the store contains the schemas, so it nests deeper.
const MAX_SCHEMA_DEPTH: usize = 48;

/// Definition of a tool as an MCP server lists it, without the fields that this crate does not use.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Listed {
    pub(super) description: String,
    pub(super) input_schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<Value>,
    #[serde(default)]
    pub(super) annotations: Annotations,
}

/// Annotations of an MCP tool (MCP 2026-07-28, `ToolAnnotations`). They are claims of the server, which can be wrong.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Annotations {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read_only: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    destructive: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotent: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open_world: Option<bool>,
}

impl Listed {
    /// Returns the definition of a tool from the list of an MCP server.
    ///
    /// # Errors
    /// The reason why the definition is ignored: it exceeds a limit.
    pub(super) fn read(tool: Tool) -> Result<Self, String> {
        let listed = Self {
            description: tool.description.unwrap_or_default().into_owned(),
            input_schema: Value::Object((*tool.input_schema).clone()),
            output_schema: tool
                .output_schema
                .map(|schema| Value::Object((*schema).clone())),
            annotations: tool
                .annotations
                .as_ref()
                .map(Annotations::read)
                .unwrap_or_default(),
        };
        let mut size = listed.description.len();
        for schema in [Some(&listed.input_schema), listed.output_schema.as_ref()] {
            let Some(schema) = schema else { continue };
            let bytes = size_within(schema, MAX_SCHEMA_DEPTH);
            size += bytes.map_err(|problem| format!("a schema {problem}"))?;
        }
        match size <= MAX_DEFINITION_BYTES {
            true => Ok(listed),
            false => Err(format!(
                "its description and schemas have {size} bytes, where at most {MAX_DEFINITION_BYTES} are allowed"
            )),
        }
    }

    /// Returns the digest of everything that a model or this crate learns about the tool. Equal definitions have equal digests.
    /// The order of the fields in their schemas has no effect.
    pub(super) fn digest(&self) -> String {
        let output = self.output_schema.as_ref().map(sorted_text);
        hash(&[
            &self.description,
            &sorted_text(&self.input_schema),
            &output.unwrap_or_default(),
            &sorted_text(&json!(self.annotations)),
        ])
    }

    /// Returns the description for a model: without control characters, and without the invisible characters with which a server
    /// could hide instructions from a person (Unicode tags, and marks of the direction of text).
    pub(super) fn visible_description(&self) -> String {
        let is_visible = |c: &char| {
            !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}')
                && (!c.is_control() || matches!(c, '\n' | '\t'))
        };
        self.description.chars().filter(is_visible).collect()
    }
}

impl Annotations {
    fn read(annotations: &ToolAnnotations) -> Self {
        Self {
            read_only: annotations.read_only_hint,
            destructive: annotations.destructive_hint,
            idempotent: annotations.idempotent_hint,
            open_world: annotations.open_world_hint,
        }
    }

    fn is_read_only(self) -> bool {
        self.read_only == Some(true)
    }

    /// Adds the settings that follow from the annotations to the settings of a tool. By the protocol, a tool without annotations is
    /// neither read-only nor idempotent, can be destructive, and exchanges data with the outside.
    pub(super) fn apply(self, settings: &mut ToolSettings) {
        if self.is_read_only() || self.idempotent == Some(true) {
            settings.retry = RetrySafety::Idempotent;
        }
        let mut tags = Vec::new();
        if !self.is_read_only() && self.destructive != Some(false) {
            tags.push("destructive");
        }
        if self.open_world != Some(false) {
            tags.extend(["egress", "untrusted"]);
        }
        settings
            .permission_tags
            .extend(tags.into_iter().map(str::to_owned));
        // Most servers do not annotate their tools, so only an explicit annotation requires a person.
        if !self.is_read_only() && self.destructive == Some(true) {
            settings.approvals.push(Approval::always());
        }
    }
}

/// Returns the name under which a tool of an MCP server is registered: the names of the server and of the tool with a dot between
/// them, in lower case, with `-` in place of each invalid character. Returns `None` if the name is longer than 64 characters.
pub(super) fn registered_name(server: &str, tool: &str) -> Option<String> {
    let valid = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '_' | '-') => c,
        _ => '-',
    };
    let name: String = format!("{server}.{tool}").chars().map(valid).collect();
    (name.len() <= 64 && !tool.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(tool: Value) -> Result<Listed, String> {
        Listed::read(serde_json::from_value(tool).unwrap())
    }

    fn simple() -> Value {
        json!({"name": "pay", "description": "Pays.", "inputSchema": {"type": "object"}})
    }

    fn settings(annotations: Value) -> ToolSettings {
        let mut tool = simple();
        tool["annotations"] = annotations;
        let mut settings = ToolSettings::default();
        listed(tool).unwrap().annotations.apply(&mut settings);
        settings
    }

    #[test]
    fn each_change_of_a_definition_changes_the_digest() {
        let mut digests = vec![listed(simple()).unwrap().digest()];
        for (field, value) in [
            ("description", json!("Pays now.")),
            (
                "inputSchema",
                json!({"type": "object", "required": ["amount"]}),
            ),
            ("outputSchema", json!({"type": "object"})),
            ("annotations", json!({"readOnlyHint": true})),
            ("annotations", json!({"readOnlyHint": false})),
        ] {
            let mut tool = simple();
            tool[field] = value;
            digests.push(listed(tool).unwrap().digest());
        }

        let count = digests.len();
        digests.sort();
        digests.dedup();

        assert_eq!(digests.len(), count);
    }

    #[test]
    fn the_order_of_the_fields_does_not_change_the_digest() {
        let one =
            r#"{"name": "t", "inputSchema": {"type": "object", "properties": {"a": {}, "b": {}}}}"#;
        let other =
            r#"{"inputSchema": {"properties": {"b": {}, "a": {}}, "type": "object"}, "name": "t"}"#;
        let digest = |text| {
            listed(serde_json::from_str(text).unwrap())
                .unwrap()
                .digest()
        };

        assert_eq!(digest(one), digest(other));
    }

    #[test]
    fn a_digest_is_the_same_in_later_versions_of_this_crate() {
        let digest = listed(simple()).unwrap().digest();

        assert_eq!(
            digest,
            "8d456f4df0fecf065a710ff7c6dcba616e6a974da2aca898bc4a658dcd86eca1"
        );
    }

    #[test]
    fn a_definition_over_a_limit_is_refused_with_the_reason() {
        let mut large = simple();
        large["description"] = json!("x".repeat(MAX_DEFINITION_BYTES));
        let mut deep = json!({});
        for _ in 0..MAX_SCHEMA_DEPTH {
            deep = json!({"a": deep});
        }
        let mut nested = simple();
        nested["inputSchema"] = deep;

        assert!(listed(large).unwrap_err().contains("65536 are allowed"));
        assert!(listed(nested).unwrap_err().contains("nests deeper"));
    }

    #[test]
    fn annotations_become_settings() {
        let tags = |annotations| settings(annotations).permission_tags;

        assert_eq!(tags(json!({})), ["destructive", "egress", "untrusted"]);
        assert_eq!(
            tags(json!({"destructiveHint": false})),
            ["egress", "untrusted"]
        );
        assert_eq!(
            tags(json!({"readOnlyHint": true, "destructiveHint": true})),
            ["egress", "untrusted"]
        );
        assert_eq!(
            tags(json!({"readOnlyHint": true, "openWorldHint": false})),
            Vec::<String>::new()
        );
        assert_eq!(settings(json!({})).retry, RetrySafety::Once);
        assert_eq!(
            settings(json!({"idempotentHint": true})).retry,
            RetrySafety::Idempotent
        );
        assert_eq!(
            settings(json!({"readOnlyHint": true})).retry,
            RetrySafety::Idempotent
        );
        assert_eq!(settings(json!({})).approvals, []);
        assert_eq!(
            settings(json!({"destructiveHint": true})).approvals,
            [Approval::always()]
        );
        assert_eq!(
            settings(json!({"destructiveHint": true, "readOnlyHint": true})).approvals,
            []
        );
    }

    #[test]
    fn hidden_characters_are_not_shown_to_a_model() {
        let mut tool = simple();
        tool["description"] = json!("Adds.\u{e0041}\u{e0042}\u{202e}\u{7} Line\n2");

        assert_eq!(listed(tool).unwrap().visible_description(), "Adds. Line\n2");
    }

    proptest! {
        #[test]
        fn a_registered_name_is_valid_or_none(server in "[a-z]{1,8}", tool in any::<String>()) {
            if let Some(name) = registered_name(&server, &tool) {
                prop_assert!(crate::tool::is_name(&name), "{name}");
                prop_assert_eq!(name.strip_prefix(&*server).and_then(|rest| rest.chars().next()), Some('.'));
            }
        }
    }
}
