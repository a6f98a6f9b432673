//! The JSON Schema in a question to a person, for the person's answer or for changed tool call arguments.

use crate::model::Json;
use crate::tool::Checker;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// The JSON Schema in a question to a person, which the answer or the changed tool call arguments must fit. Clones share the
/// compiled schema.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct QuestionSchema {
    schema: Json,
    /// The compiled JSON Schema, which checks answers or changed tool call arguments, or `None` if the schema cannot be compiled.
    /// Set by the first check.
    #[serde(skip)]
    compiled: Arc<OnceLock<Option<Checker>>>,
}

impl QuestionSchema {
    /// Reads the JSON Schema for the person's answer or for changed tool call arguments from a field of a question. Returns
    /// `None` if the question does not have the field.
    pub(crate) fn of(question: &Value, field: &str) -> Option<Self> {
        let schema = question.get(field).cloned()?;
        Some(Self {
            schema: schema.into(),
            compiled: Arc::default(),
        })
    }

    /// Returns the JSON Schema as it is in the question, before compilation.
    pub(crate) const fn json(&self) -> &Json {
        &self.schema
    }

    /// Checks a value, such as a person's answer, against the JSON Schema in a question. Every value fits a schema that
    /// cannot be compiled.
    ///
    /// # Errors
    /// Returns the reason why the value does not fit.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let compile = || Checker::compile(&self.schema).ok();
        let compiled = self.compiled.get_or_init(compile).as_ref();
        compiled.map_or(Ok(()), |checker| checker.check(value))
    }
}

impl PartialEq for QuestionSchema {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

/// Returns `true` if the value in a person's answer fits the JSON Schema that the question has for answers, or if the value
/// cannot be checked. Runs and the writers of answers share this rule.
pub(crate) fn has_fit_answer(answer: &Value, schema: Option<&QuestionSchema>) -> bool {
    match (schema, answer.get("answer")) {
        (Some(schema), Some(value)) => schema.check(value).is_ok(),
        (Some(_) | None, _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(schema: &Value) -> QuestionSchema {
        QuestionSchema::of(&json!({"schema": schema}), "schema").unwrap()
    }

    #[test]
    fn a_schema_is_compiled_once_for_all_clones() {
        let schema = of(&json!({"type": "string"}));
        let clone = schema.clone();

        schema.check(&json!("Bern")).unwrap();

        assert!(clone.compiled.get().is_some());
        assert!(Arc::ptr_eq(&schema.compiled, &clone.compiled));
    }

    #[test]
    fn a_saved_schema_is_the_json_of_the_schema() {
        let schema = of(&json!({"enum": ["Bern", "Basel"]}));

        let saved = serde_json::to_string(&schema).unwrap();
        let read: QuestionSchema = serde_json::from_str(&saved).unwrap();

        assert_eq!(saved, r#"{"enum":["Bern","Basel"]}"#);
        assert_eq!(read, schema);
    }

    #[cfg(feature = "validate")]
    #[test]
    fn an_answer_that_the_schema_excludes_does_not_fit() {
        let cities = of(&json!({"enum": ["Bern", "Basel"]}));
        let unusable = of(&json!({"type": 7}));
        let paris = json!({"answer": "Paris"});

        assert!(has_fit_answer(&json!({"answer": "Bern"}), Some(&cities)));
        assert!(!has_fit_answer(&paris, Some(&cities)));
        assert!(has_fit_answer(&paris, Some(&unusable)) && has_fit_answer(&paris, None));
    }
}
