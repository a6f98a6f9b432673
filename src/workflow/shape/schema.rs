//! The JSON Schema of the language.

use super::{Field, Form, NAME_BYTES, NAMES, Need, Object, RESERVED, VARIABLES, WORKFLOW, Way};
use crate::model::Op;
use serde_json::{Map, Value, json};

/// The fields that are comments in every object.
const COMMENTS: &str = r"^(comment|metadata|\$schema|x-.*|.*_comment)$";

const YEAR_SECONDS: u64 = 366 * 24 * 60 * 60;

/// Returns the JSON Schema of definitions, in the draft 2020-12.
pub(in crate::workflow) fn json_schema() -> schemars::Schema {
    let mut writer = Writer::default();
    writer.refer(&WORKFLOW);
    let Writer { mut defs } = writer;
    let mut schema = Map::new();
    schema.insert(
        "$schema".to_owned(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    schema.insert("title".to_owned(), "Workflow".into());
    if let Some(Value::Object(workflow)) = defs.remove(WORKFLOW.name) {
        schema.extend(workflow);
    }
    schema.insert("$defs".to_owned(), defs.into());
    schema.into()
}

/// Writes the schema of each object once.
#[derive(Default)]
struct Writer {
    defs: Map<String, Value>,
}

impl Writer {
    /// A reference to the schema of an object.
    fn refer(&mut self, object: &Object) -> Value {
        let name = object.name;
        if !self.defs.contains_key(name) {
            // It may refer to itself.
            self.defs.insert(name.to_owned(), Value::Null);
            let schema = self.object(object);
            self.defs.insert(name.to_owned(), schema);
        }
        json!({"$ref": format!("#/$defs/{name}")})
    }

    fn object(&mut self, object: &Object) -> Value {
        let mut ways: Vec<Value> = object.ways.iter().map(|way| self.way(way)).collect();
        let schema = match ways.len() {
            1 => ways.remove(0),
            _ => json!({"anyOf": ways}),
        };
        with(schema, "description", object.about)
    }

    fn way(&mut self, way: &Way) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in way.all() {
            properties.insert(field.name.to_owned(), self.field(field));
            if field.need == Need::Required {
                required.push(field.name);
            }
        }
        json!({
            "type": "object", "properties": properties, "required": required,
            "patternProperties": {COMMENTS: {}}, "additionalProperties": false,
        })
    }

    fn field(&mut self, field: &Field) -> Value {
        let form = self.form(field.form);
        let schema = match (field.need, field.form) {
            (Need::Required, _) | (Need::Optional, Form::Any | Form::Null) => form,
            (Need::Optional, _) => or_null(form),
        };
        with(schema, "description", field.about)
    }

    fn form(&mut self, form: &Form) -> Value {
        match form {
            Form::Any => json!({}),
            Form::Null => json!({"type": "null"}),
            Form::Text => json!({"type": "string"}),
            Form::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Form::Flag => json!({"type": "boolean"}),
            Form::Only(flag) => json!({"const": flag}),
            Form::Number => json!({"type": "number"}),
            Form::Seconds => {
                json!({"type": "number", "exclusiveMinimum": 0, "maximum": YEAR_SECONDS})
            }
            Form::Whole(least, most) => {
                json!({"type": "integer", "minimum": least, "maximum": most})
            }
            Form::Word(words) => json!({"enum": words}),
            Form::Op => json!({"enum": Op::ALL.map(Op::as_str)}),
            Form::Variable => variable(),
            Form::VariableOr(other) => json!({"anyOf": [{"const": other}, variable()]}),
            Form::SchemaName => json!({"type": "string", "not": {"pattern": r"\$\{"}}),
            Form::JsonSchema => json!({"type": ["object", "boolean"]}),
            Form::Context => json!({"type": ["object", "string"]}),
            Form::Object(object) => self.refer(object),
            Form::List(of, least, most) => self.list(of, *least, *most),
            Form::Dependent(of) => {
                let depends = json!({"type": "object", "required": ["depends_on"]});
                with(self.list(of, 1, usize::MAX), "contains", depends)
            }
            Form::Named(of) => {
                let of = self.form(of);
                let pattern = format!("^[A-Za-z0-9_.-]{{1,{NAME_BYTES}}}$");
                json!({
                    "type": "object", "propertyNames": {"pattern": pattern}, "maxProperties": NAMES,
                    "additionalProperties": of,
                })
            }
            Form::Variables => json!({
                "type": "object", "propertyNames": variable(), "minProperties": 1, "maxProperties": VARIABLES,
            }),
            Form::Either(forms) => {
                let forms: Vec<Value> = forms.iter().map(|form| self.form(form)).collect();
                json!({"anyOf": forms})
            }
        }
    }

    fn list(&mut self, of: &Form, least: usize, most: usize) -> Value {
        let mut list = json!({"type": "array", "items": self.form(of)});
        if least > 0 {
            list = with(list, "minItems", least);
        }
        if most < usize::MAX {
            list = with(list, "maxItems", most);
        }
        list
    }
}

/// A schema that says something more.
fn with(mut schema: Value, keyword: &str, value: impl Into<Value>) -> Value {
    if let Value::Object(keywords) = &mut schema {
        keywords.insert(keyword.to_owned(), value.into());
    }
    schema
}

/// The same for a field that may be null, which is as if it were absent.
fn or_null(mut schema: Value) -> Value {
    if let Some(kind) = schema.get_mut("type") {
        match kind {
            Value::Array(kinds) => kinds.push("null".into()),
            kind => *kind = json!([kind, "null"]),
        }
    } else if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.push(Value::Null);
    } else {
        schema = json!({"anyOf": [schema, {"type": "null"}]});
    }
    schema
}

fn variable() -> Value {
    let pattern = format!("^[A-Za-z_][A-Za-z0-9_-]{{0,{}}}$", NAME_BYTES - 1);
    json!({"type": "string", "pattern": pattern, "not": {"enum": RESERVED}})
}
