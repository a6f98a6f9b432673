use super::ToolError;
use crate::error::excerpt;
use crate::model::{
    DefinitionOptions, DefinitionPath, Finding, Findings, KnownFields, Severity, Subscriptions,
    sorted_text,
};
use serde_json::{Map, Value};

/// A tool definition, read from the context of a `tool.v1` breadcrumb. It defines the subscriptions of a registered tool.
///
/// A definition changes the triggers of a tool without a new release of the service. The function,
/// the description and the schemas of the tool stay those in code. Pass a definition to
/// [`ToolExecutor::from_read_definition`](super::ToolExecutor::from_read_definition).
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::tool::ToolDefinition;
///
/// let definition = ToolDefinition::from_json(&json!({
///     "name": "sum",
///     "subscriptions": [{"schema_name": "order.v1", "role": "trigger"}],
///     "responds_with": ["price.v1"],
///     "writes": ["price.v1"],
/// }))?;
///
/// assert_eq!(definition.name, "sum");
/// assert_eq!(definition.responds_with, ["price.v1"]);
/// assert_eq!(definition.warnings().len(), 1); // `writes` has no effect
/// # Ok::<(), universal_executor::tool::ToolError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// The name of the defined tool.
    ///
    /// It must be the name of the tool that the definition is used with, else
    /// [`ToolError::OtherTool`].
    pub name: String,
    /// The subscriptions of the tool: the breadcrumbs that trigger a call, and the breadcrumbs that the call receives as context.
    pub subscriptions: Subscriptions,
    /// The schemas that the tool may write besides its response.
    ///
    /// Defaults to an empty list: the tool then writes only `tool.response.v1` and
    /// `tool.progress.v1`.
    pub responds_with: Vec<String>,
    warnings: Vec<Finding>,
    text: String,
}

static FIELDS: KnownFields<'static> = KnownFields {
    names: &[
        "definition",
        "description",
        "name",
        "responds_with",
        "selectors",
        "subscriptions",
    ],
    aliases: &[
        ("id", &["name"]),
        ("input_schema", &["definition"]),
        ("output_schema", &["definition"]),
        ("tool", &["name"]),
        ("triggers", &["subscriptions"]),
        ("writes", &["responds_with"]),
    ],
};

/// The known fields of the object `definition` in a tool definition. Tool catalogs show these fields to models.
static SCHEMAS: KnownFields<'static> = KnownFields {
    names: &["inputSchema", "outputSchema"],
    aliases: &[
        ("input_schema", &["inputSchema"]),
        ("output_schema", &["outputSchema"]),
        ("parameters", &["inputSchema"]),
    ],
};

impl ToolDefinition {
    /// Reads a tool definition from a `tool.v1` breadcrumb or its context. Unknown fields have no effect, and
    /// [`warnings`](Self::warnings) lists them.
    ///
    /// # Errors
    /// [`ToolError::Field`] if a field is missing or has the wrong type, and [`ToolError::Subscriptions`] if the subscriptions are
    /// invalid.
    pub fn from_json(definition: &Value) -> Result<Self, ToolError> {
        Self::from_json_with(definition, &DefinitionOptions::default())
    }

    /// Reads a tool definition with options, for example in [strict](DefinitionOptions::strict) mode.
    ///
    /// # Errors
    /// The errors of [`from_json`](Self::from_json), and [`ToolError::UnknownField`] for an unknown field in strict mode.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::model::DefinitionOptions;
    /// use universal_executor::tool::{ToolDefinition, ToolError};
    ///
    /// let definition = json!({
    ///     "name": "sum",
    ///     "subscriptions": [{"schema_name": "order.v1", "role": "trigger"}],
    ///     "writes": ["price.v1"],
    /// });
    /// let strict = DefinitionOptions::default().strict();
    ///
    /// let error = ToolDefinition::from_json_with(&definition, &strict);
    /// assert!(matches!(error, Err(ToolError::UnknownField { .. })));
    /// ```
    pub fn from_json_with(
        definition: &Value,
        options: &DefinitionOptions,
    ) -> Result<Self, ToolError> {
        let context = definition.get("context").unwrap_or(definition);
        let findings = Self::check_fields(context, options);
        if let Some(error) = findings.first_error() {
            return Err(ToolError::UnknownField {
                path: error.path.clone(),
                problem: error.message.clone(),
            });
        }
        let name = context.get("name").and_then(Value::as_str);
        let name = name.ok_or(ToolError::Field {
            field: "name",
            expected: "a string",
        })?;
        let subscriptions = Subscriptions::from_json_with(context, options);
        let subscriptions = subscriptions.map_err(|source| ToolError::Subscriptions {
            name: excerpt(name, 64).into_owned(),
            source,
        })?;
        Ok(Self {
            name: name.to_owned(),
            subscriptions,
            responds_with: responds_with(context)?,
            warnings: findings.into_vec(),
            text: sorted_text(context),
        })
    }

    /// Returns the unknown fields of the tool definition, at most 100. [`Subscriptions::warnings`] returns the problems of the
    /// subscriptions.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    /// Checks the field names in the context of a tool definition, and reports each unknown field as a warning, or in strict mode
    /// as an error. The definition itself may be invalid.
    pub(crate) fn check_fields(context: &Value, options: &DefinitionOptions) -> Findings {
        let severity = match options.strict {
            true => Severity::Error,
            false => Severity::Warning,
        };
        let mut findings = Findings::default();
        let mut check =
            |known: &KnownFields<'_>, path: &DefinitionPath, object: &Map<String, Value>| {
                let unknown = known.unknown(object);
                findings.extend(unknown.map(|field| known.finding(severity, path, field)));
            };
        let top = DefinitionPath::default();
        if let Some(fields) = context.as_object() {
            check(&FIELDS, &top, fields);
        }
        if let Some(schemas) = context.get("definition").and_then(Value::as_object) {
            check(&SCHEMAS, &top.field("definition"), schemas);
        }
        findings
    }

    /// Returns the `context` of the `tool.v1` breadcrumb as JSON with sorted keys, for the hash of the tool definition.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn responds_with(context: &Value) -> Result<Vec<String>, ToolError> {
    let type_error = ToolError::Field {
        field: "responds_with",
        expected: "a list of schema names",
    };
    match context.get("responds_with") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => {
            let schemas = list.iter().map(|schema| schema.as_str().map(str::to_owned));
            schemas.collect::<Option<Vec<String>>>().ok_or(type_error)
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            Err(type_error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guide::tests::assert_fields;
    use serde_json::json;

    fn definition() -> Value {
        json!({
            "name": "adder", "toolName": "adder", "comment": "adds",
            "subscriptions": [{"schema_name": "a.v1", "role": "trigger"}],
            "definition": {"inputSchema": {"type": "object"}, "input": {}},
        })
    }

    #[test]
    fn an_unknown_field_of_a_tool_definition_is_a_warning_with_its_path() {
        let read = ToolDefinition::from_json(&json!({"context": definition()})).unwrap();

        let warnings: Vec<String> = read.warnings().iter().map(ToString::to_string).collect();

        assert_eq!(
            warnings,
            [
                "toolName: unknown field \"toolName\" has no effect; did you mean \"name\"?",
                "definition.input: unknown field \"input\" has no effect; known fields: inputSchema, outputSchema",
            ]
        );
        assert_eq!((&*read.name, read.responds_with.len()), ("adder", 0));
    }

    #[test]
    fn an_error_repeats_only_the_start_of_a_long_name() {
        let name = "x".repeat(10_000);

        let error = ToolDefinition::from_json(&json!({"name": name, "subscriptions": 1}));

        let message = error.unwrap_err().to_string();
        assert!(message.len() < 200, "{message}");
    }

    #[test]
    fn an_unknown_field_of_a_tool_definition_is_an_error_in_strict_mode() {
        let strict = DefinitionOptions::default().strict();

        let error = ToolDefinition::from_json_with(&definition(), &strict).unwrap_err();

        let expected =
            "toolName of the tool definition: unknown field \"toolName\"; did you mean \"name\"?";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn the_reference_lists_every_field_of_a_tool() {
        const PAGE: &str = include_str!("../../docs/reference/tools.md");

        assert_fields(PAGE, "Tool", FIELDS.names);
        assert_fields(PAGE, "Schemas", SCHEMAS.names);
    }
}
