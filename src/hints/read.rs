//! Validation and compilation of `llm_hints` from JSON.

use super::error::{HintsError, HintsProblem};
use super::filter::Filter;
use super::format::Format;
use super::transform::{Transform, template};
use super::{MAX_HINTS_BYTES, MAX_PATHS, MAX_TRANSFORMS, Mode, Program};
use crate::error::excerpt;
use crate::model::{JsonLimitError, MAX_DEPTH, Path, PatternStep, nearest, pattern, size_within};
use serde_json::{Map, Value};
use std::io;

const FIELDS: &[&str] = &["include", "exclude", "mode", "transform"];
const MODES: &[&str] = &["replace", "merge"];
const TYPES: &[&str] = &["template", "extract", "format", "literal"];
/// Maximum number of bytes of a name or a value in an error message about `llm_hints`.
const EXCERPT_BYTES: usize = 64;

/// Compiles `llm_hints` from JSON. Returns `None` if they change nothing.
pub(super) fn hints(hints: &Value) -> Result<Option<Program>, HintsError> {
    let hints_error = |problem| HintsError::new("llm_hints", problem);
    match size_within(hints, MAX_DEPTH) {
        Ok(_) => {}
        Err(JsonLimitError::TooDeep(_)) => return Err(hints_error(HintsProblem::TooDeep)),
        Err(JsonLimitError::ReservedKey) => return Err(hints_error(HintsProblem::ReservedKey)),
    }
    if serde_json::to_writer(SizeLimitWriter(MAX_HINTS_BYTES), hints).is_err() {
        let limit = MAX_HINTS_BYTES;
        return Err(hints_error(HintsProblem::TooLarge { limit }));
    }
    let fields = match hints {
        Value::Null => return Ok(None),
        Value::Object(fields) => fields,
        other => return Err(hints_error(shape("an object", other))),
    };
    check_known_fields(fields, FIELDS, "")?;
    let include = patterns(fields, "include")?;
    if include.as_ref().is_some_and(Vec::is_empty) {
        return Err(HintsError::new("include", HintsProblem::EmptyInclude));
    }
    let filters = include.is_some();
    let exclude = patterns(fields, "exclude")?.unwrap_or_default();
    let filters = filters || !exclude.is_empty();
    let program = Program {
        filter_field: if include.is_some() {
            "include"
        } else {
            "exclude"
        },
        filter: filters.then(|| Filter::new(include.unwrap_or_default(), exclude)),
        mode: mode(fields)?,
        transforms: transforms(fields)?,
    };
    let does_something = program.filter.is_some() || !program.transforms.is_empty();
    Ok(does_something.then_some(program))
}

/// Rejects an unknown field of the `llm_hints` or of a rule. A field that is null counts as absent.
fn check_known_fields(
    fields: &Map<String, Value>,
    known: &'static [&'static str],
    rule_path: &str,
) -> Result<(), HintsError> {
    let is_unknown =
        |(name, value): &(&String, &Value)| !value.is_null() && !known.contains(&name.as_str());
    match fields.iter().find(is_unknown) {
        None => Ok(()),
        Some((name, _)) => {
            let nearest = nearest(name, known.iter().copied());
            let field = format!("{rule_path}{}", excerpt(name, EXCERPT_BYTES));
            Err(HintsError::new(
                field,
                HintsProblem::UnknownField { nearest, known },
            ))
        }
    }
}

fn patterns(
    fields: &Map<String, Value>,
    field: &str,
) -> Result<Option<Vec<Vec<PatternStep>>>, HintsError> {
    let texts = match fields.get(field) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(texts)) => texts,
        Some(other) => return Err(HintsError::new(field, shape("a list of paths", other))),
    };
    HintsProblem::too_many(texts.len(), MAX_PATHS)
        .map_err(|problem| HintsError::new(field, problem))?;
    let parsed = texts.iter().enumerate().map(|(at, text)| {
        let error = |problem| HintsError::new(format!("{field}[{at}]"), problem);
        let Value::String(text) = text else {
            return Err(error(shape("a path", text)));
        };
        pattern(text).map_err(|reason| {
            let path = excerpt(text, EXCERPT_BYTES).into_owned();
            error(HintsProblem::Pattern { path, reason })
        })
    });
    parsed.collect::<Result<_, _>>().map(Some)
}

fn mode(fields: &Map<String, Value>) -> Result<Mode, HintsError> {
    let error = |problem| Err(HintsError::new("mode", problem));
    match fields.get("mode") {
        None | Some(Value::Null) => Ok(Mode::Replace),
        Some(Value::String(mode)) => match mode.as_str() {
            "replace" => Ok(Mode::Replace),
            "merge" => Ok(Mode::Merge),
            other => error(unknown(other, MODES)),
        },
        Some(other) => error(shape("\"replace\" or \"merge\"", other)),
    }
}

fn transforms(fields: &Map<String, Value>) -> Result<Vec<(String, Transform)>, HintsError> {
    let rules = match fields.get("transform") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(rules)) => rules,
        Some(other) => {
            let problem = shape("an object of rules", other);
            return Err(HintsError::new("transform", problem));
        }
    };
    HintsProblem::too_many(rules.len(), MAX_TRANSFORMS)
        .map_err(|problem| HintsError::new("transform", problem))?;
    let parsed = rules.iter().map(|(name, rule)| {
        let reader = RuleReader {
            rule_path: rule_path(name),
            rule,
        };
        Ok((name.clone(), reader.transform()?))
    });
    parsed.collect()
}

/// Returns the path of a `transform` rule in the `llm_hints`, for errors.
pub(super) fn rule_path(name: &str) -> String {
    format!("transform.{}", excerpt(name, EXCERPT_BYTES))
}

struct RuleReader<'h> {
    rule_path: String,
    rule: &'h Value,
}

impl RuleReader<'_> {
    fn transform(&self) -> Result<Transform, HintsError> {
        let Value::Object(fields) = self.rule else {
            let problem = shape("a rule with a type", self.rule);
            return Err(HintsError::new(self.rule_path.clone(), problem));
        };
        let expected = "\"template\", \"extract\", \"format\" or \"literal\"";
        match self.text(fields, "type", expected)? {
            "template" => {
                self.check_fields(fields, &["type", "template"])?;
                let text = self.text(fields, "template", "a Handlebars template")?;
                template(text).map_err(|problem| self.error("template", problem))
            }
            "extract" => {
                self.check_fields(fields, &["type", "value"])?;
                let path = self.text(fields, "value", "a JSONPath such as \"$.items[*].name\"")?;
                let path = Path::parse(path).map_err(HintsProblem::Path);
                path.map(Transform::Extract)
                    .map_err(|problem| self.error("value", problem))
            }
            "format" => {
                self.check_fields(fields, &["type", "format"])?;
                let text = self.text(fields, "format", "a string such as \"{name}: {content}\"")?;
                let format = Format::parse(text).map(Transform::Format);
                format.map_err(|problem| self.error("format", problem))
            }
            "literal" => {
                self.check_fields(fields, &["type", "literal"])?;
                let expected = "any JSON, including null";
                match fields.get("literal") {
                    Some(literal) => Ok(Transform::Literal(literal.clone())),
                    None => Err(self.error("literal", HintsProblem::Missing { expected })),
                }
            }
            "jq" => Err(self.error("type", HintsProblem::Jq)),
            other => Err(self.error("type", unknown(other, TYPES))),
        }
    }

    fn text<'f>(
        &self,
        fields: &'f Map<String, Value>,
        field: &str,
        expected: &'static str,
    ) -> Result<&'f str, HintsError> {
        match fields.get(field) {
            Some(Value::String(text)) => Ok(text),
            None | Some(Value::Null) => Err(self.error(field, HintsProblem::Missing { expected })),
            Some(other) => Err(self.error(field, shape(expected, other))),
        }
    }

    fn check_fields(
        &self,
        fields: &Map<String, Value>,
        names: &'static [&'static str],
    ) -> Result<(), HintsError> {
        check_known_fields(fields, names, &format!("{}.", self.rule_path))
    }

    fn error(&self, field: &str, problem: HintsProblem) -> HintsError {
        HintsError::new(format!("{}.{field}", self.rule_path), problem)
    }
}

fn unknown(value: &str, known: &'static [&'static str]) -> HintsProblem {
    HintsProblem::Unknown {
        value: excerpt(value, EXCERPT_BYTES).into_owned(),
        nearest: nearest(value, known.iter().copied()),
        known,
    }
}

fn shape(expected: &'static str, found: &Value) -> HintsProblem {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    HintsProblem::Shape { expected, found }
}

/// Writer that only counts the bytes of the `llm_hints` as JSON, and fails if the hints have more bytes than the
/// limit.
struct SizeLimitWriter(usize);

impl io::Write for SizeLimitWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self
            .0
            .checked_sub(bytes.len())
            .ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
