//! Checks that apply to all kinds of definitions: subscriptions, unknown fields and syntax errors.

use super::related::shadowed_subscriptions;
use crate::model::{
    DefinitionError, DefinitionOptions, DefinitionPath, Finding, Findings, KnownFields, Role,
    Severity, Subscriptions, subscriptions_path,
};
use crate::tool::Checker;
use crate::workflow::WorkflowLoadError;
use serde_json::Value;

/// A definition under check, with the options of the check and the findings so far.
pub(super) struct CheckContext<'v> {
    /// The JSON document under check: a breadcrumb with a definition in its field `context`, or a definition alone.
    pub(super) document: &'v Value,
    /// The definition under check: the field `context` of the JSON document, or the whole document without this field.
    pub(super) value: &'v Value,
    /// The path of the definition in the JSON document under check: `context`, or empty if the document is the definition.
    pub(super) prefix: DefinitionPath,
    pub(super) options: &'v DefinitionOptions,
    pub(super) findings: Findings,
}

/// The known fields of a breadcrumb that contains a definition, as servers and stores write the breadcrumb in JSON.
static ENVELOPE: KnownFields<'static> = KnownFields {
    names: &[
        "checksum",
        "context",
        "created_at",
        "created_by",
        "description",
        "embedding",
        "id",
        "llm_hints",
        "owner_id",
        "read_count",
        "schema_name",
        "semantic_version",
        "sensitivity",
        "size_bytes",
        "tags",
        "title",
        "ttl",
        "ttl_config",
        "ttl_source",
        "ttl_type",
        "updated_at",
        "updated_by",
        "version",
        "visibility",
    ],
    aliases: &[("schema", &["schema_name"]), ("name", &["title"])],
};

impl<'v> CheckContext<'v> {
    pub(super) fn new(document: &'v Value, options: &'v DefinitionOptions) -> Self {
        let (value, prefix) = match document.get("context") {
            Some(context) => (context, DefinitionPath::default().field("context")),
            None => (document, DefinitionPath::default()),
        };
        Self {
            document,
            value,
            prefix,
            options,
            findings: Findings::default(),
        }
    }

    /// Returns the options of the check without strict mode, so that unknown fields do not stop the reading of a definition.
    /// Unknown fields are found separately, so that a check reports all of them.
    pub(super) fn lenient(&self) -> DefinitionOptions {
        let mut options = self.options.clone();
        options.strict = false;
        options
    }

    pub(super) fn severity(&self) -> Severity {
        match self.options.strict {
            true => Severity::Error,
            false => Severity::Warning,
        }
    }

    /// Adds a finding of the check about a value in the definition.
    pub(super) fn push(&mut self, mut finding: Finding) {
        finding.path = finding.path.below(&self.prefix);
        self.findings.push(finding);
    }

    pub(super) fn extend(&mut self, findings: Findings) {
        for finding in findings.into_vec() {
            self.push(finding);
        }
    }

    pub(super) fn text(&self, field: &str) -> Option<&'v str> {
        self.value.get(field).and_then(Value::as_str)
    }

    /// Adds a finding for each unknown field of the object `value`, which is at the path `path` in the definition. Does nothing if
    /// the value is not an object.
    pub(super) fn check_fields(
        &mut self,
        known: &KnownFields<'_>,
        path: &DefinitionPath,
        value: &Value,
    ) {
        let Some(object) = value.as_object() else {
            return;
        };
        let severity = self.severity();
        for field in known.unknown(object) {
            self.push(known.finding(severity, path, field));
        }
    }

    /// Adds a finding for each unknown field of the breadcrumb that contains the definition.
    pub(super) fn check_envelope(&mut self) {
        let Some(object) = self
            .document
            .as_object()
            .filter(|_| !self.prefix.parts().is_empty())
        else {
            return;
        };
        let severity = self.severity();
        for field in ENVELOPE.unknown(object) {
            self.findings
                .push(ENVELOPE.finding(severity, &DefinitionPath::default(), field));
        }
    }

    /// Reads and checks the subscriptions of a definition. Adds a finding for each problem, and for a definition without a trigger.
    pub(super) fn subscriptions(&mut self, kind: &str) -> Option<Subscriptions> {
        let (value, is_strict) = (self.value, self.options.strict);
        let read = match Subscriptions::from_json_with(value, &self.lenient()) {
            Ok(read) => read,
            Err(error) => {
                self.push(definition_finding(value, &error));
                return None;
            }
        };
        for warning in read.warnings() {
            self.push(warning.finding(value, is_strict));
        }
        let list = subscriptions_path(value);
        for (at, problem) in shadowed_subscriptions(read.as_slice()) {
            self.push(Finding::warning(list.item(at), problem));
        }
        let is_trigger = |role: Role| role == Role::Trigger;
        if !read.as_slice().iter().any(|one| is_trigger(one.role)) {
            let message = format!(
                "no trigger, so no event starts this {kind}; set \"role\": \"trigger\" on a subscription"
            );
            self.push(Finding::warning(list, message));
        }
        Some(read)
    }

    /// Checks a JSON Schema in a field of a definition. Without the feature `validate` any object is a schema.
    pub(super) fn check_schema(&mut self, path: &DefinitionPath, schema: Option<&Value>) {
        let Some(schema) = schema.filter(|schema| !schema.is_null()) else {
            return;
        };
        if !schema.is_object() && !schema.is_boolean() {
            let message = "not a JSON Schema, which is an object, true or false";
            self.push(Finding::error(path.clone(), message));
        } else if let Err(reason) = Checker::compile(schema) {
            let message = format!("not a usable JSON Schema: {reason}");
            self.push(Finding::error(path.clone(), message));
        }
    }

    pub(super) fn warn_of_other(&mut self) {
        let schema = self.document.get("schema_name").and_then(Value::as_str);
        let schema = crate::error::excerpt(schema.unwrap_or_default(), 80);
        let message =
            format!("{schema:?} is not the schema of a definition; the file is not checked");
        let path = DefinitionPath::default().field("schema_name");
        self.findings.push(Finding::warning(path, message));
    }

    pub(super) fn refuse_unknown(&mut self) {
        let message = "not a definition; write \"agent_id\" for an agent, \"name\" and \"subscriptions\" for a tool, \"flows\" for a workflow, or a breadcrumb with \"schema_name\" and \"context\"";
        self.findings
            .push(Finding::error(DefinitionPath::default(), message));
    }
}

/// Converts an error in a definition's subscriptions to a finding of the check.
fn definition_finding(value: &Value, error: &DefinitionError) -> Finding {
    Finding::error(error.path(value), error.problem().to_string())
}

/// Converts an error in a workflow definition, or in the syntax of a definition's text, to a finding of the check.
pub(super) fn load_finding(error: &WorkflowLoadError) -> Finding {
    let mut finding = Finding::error(error.path().clone(), error.problem().to_string());
    finding.position = error.position().cloned();
    finding
}
