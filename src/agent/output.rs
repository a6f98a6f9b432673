//! Structured answers: the JSON Schema of an agent's answer, and the extraction of JSON from model text.

use super::AgentError;
use crate::model::Json;
use crate::tool::Checker;
use serde::de::IgnoredAny;

/// The required form of an agent's answer: its JSON Schema.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) schema: Json,
    checker: Checker,
}

impl Output {
    /// Compiles the schema of an agent's answers.
    ///
    /// # Errors
    /// [`AgentError::BadOutputSchema`] if the schema cannot be used.
    pub(crate) fn new(agent: &str, schema: &Json) -> Result<Self, AgentError> {
        let checker = Checker::compile(schema).map_err(|reason| AgentError::BadOutputSchema {
            agent: agent.to_owned(),
            reason,
        })?;
        Ok(Self {
            schema: schema.clone(),
            checker,
        })
    }

    /// Extracts the JSON value from model text and checks it against the JSON Schema of the agent's answers.
    ///
    /// # Errors
    /// The problem, as text for the model.
    pub(crate) fn read(&self, text: &str) -> Result<Json, String> {
        let found = extract(text)?;
        self.checker.check(&found)?;
        Ok(found)
    }
}

/// Returns the JSON value in a model's text: the whole text, the content of the only fenced block, or the only object or list in prose.
/// Broken JSON is not repaired.
///
/// # Errors
/// The problem, as text for the model, if the text has no complete JSON value or several of them.
pub(super) fn extract(text: &str) -> Result<Json, String> {
    const SEVERAL: &str = "several JSON values found where exactly one is expected";
    if let Ok(whole) = Json::from_text(text.trim()) {
        return Ok(whole);
    }
    let mut fenced = text.split("```").skip(1).step_by(2).filter_map(block);
    match (fenced.next(), fenced.next()) {
        (Some(only), None) => return Ok(only),
        (Some(_), Some(_)) => return Err(SEVERAL.to_owned()),
        (None, _) => {}
    }
    match in_prose(text).as_slice() {
        [only] => Json::from_text(*only).map_err(|error| error.to_string()),
        [] => Err("no complete JSON value found".to_owned()),
        [..] => Err(SEVERAL.to_owned()),
    }
}

/// Replaces escapes, such as `\u0073`, by their characters in a model's text that contains JSON, so that guardrails can check the
/// characters. Escapes of control characters, quotes and backslashes remain. The value stays the same. A text without a JSON
/// value is returned unchanged.
pub(super) fn without_escapes(text: String) -> String {
    if !text.contains("\\u") && !text.contains("\\/") {
        return text;
    }
    let Ok(json) = extract(&text) else {
        return text;
    };
    let decoded = decode_escapes(&text);
    match extract(&decoded) {
        Ok(same) if same == json => decoded,
        // The text around the JSON has escapes that would change its meaning.
        Ok(_) | Err(_) => json.into_value().to_string(),
    }
}

/// Replaces JSON string escapes by their characters. Escapes of control characters, quotes and backslashes remain, because a JSON string
/// must escape these characters.
fn decode_escapes(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        decoded.push_str(before);
        let (character, length) = match escape.get(1..2) {
            Some("u") => unicode_escape(escape),
            Some("/") => (Some('/'), 2),
            Some(_) => (None, 2),
            None => (None, escape.chars().take(2).map(char::len_utf8).sum()),
        };
        let is_plain =
            |character: &char| !character.is_control() && !['"', '\\'].contains(character);
        let (escape, after) = escape.split_at(length);
        match character.filter(is_plain) {
            Some(character) => decoded.push(character),
            None => decoded.push_str(escape),
        }
        rest = after;
    }
    decoded.push_str(rest);
    decoded
}

/// Decodes the JSON escape at the start of a text: one escape such as `\u0073`, or two escapes that form a surrogate pair. Returns the
/// character, if the escape is valid, and the length of the decoded escapes in bytes.
fn unicode_escape(text: &str) -> (Option<char>, usize) {
    let unit = |from: usize| {
        let digits = text
            .get(from..)
            .and_then(|escape| escape.strip_prefix("\\u"))?;
        let digits = digits.get(..4)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    let Some(first) = unit(0) else {
        return (None, 2);
    };
    match char::from_u32(first.into()) {
        Some(character) => (Some(character), 6),
        None => {
            let pair = char::decode_utf16([first, unit(6).unwrap_or_default()]).next();
            match pair {
                Some(Ok(character)) => (Some(character), 12),
                Some(Err(_)) | None => (None, 6),
            }
        }
    }
}

/// Returns the JSON value in a fenced Markdown block of a model's text. The block can start with the name of a language.
fn block(inside: &str) -> Option<Json> {
    let named = inside.split_once('\n');
    let content = match named {
        Some((language, content)) if language.chars().all(char::is_alphanumeric) => content,
        Some(_) | None => inside,
    };
    Json::from_text(content.trim()).ok()
}

/// Returns at most two complete JSON objects or lists from a text: two mean that the text is ambiguous. Values inside other
/// brackets and parts of broken or truncated values do not count.
fn in_prose(text: &str) -> Vec<&str> {
    const TRIES: usize = 64;
    let mut found = Vec::new();
    let (mut after, mut open, mut tries) = (0, 0_usize, 0);
    for (at, bracket) in text.match_indices(['{', '[', '}', ']']) {
        if at < after {
            continue; // The bracket is inside the value found before.
        }
        if matches!(bracket, "}" | "]") {
            open = open.saturating_sub(1);
            continue;
        }
        tries += 1;
        if tries > TRIES || found.len() > 1 {
            break;
        }
        let rest = text.get(at..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) if open == 0 => {
                let end = values.byte_offset();
                found.extend(rest.get(..end));
                after = at + end;
            }
            Some(_) | None => open += 1,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn an_output_is_found_alone_in_a_fence_and_in_prose() {
        for text in [
            r#"{"a": 1}"#,
            "  {\"a\": 1}\n",
            "```json\n{\"a\": 1}\n```",
            "As asked [1]:\n```\n{\"a\": 1}\n```\nAnything else?",
            "Use {name} like this: {\"a\": 1}. That is all.",
        ] {
            assert_eq!(extract(text).unwrap(), json!({"a": 1}), "{text}");
        }
        assert_eq!(extract("```json\n7\n```").unwrap(), json!(7));
    }

    #[test]
    fn ambiguous_malformed_or_truncated_output_is_an_error() {
        for text in [
            "",
            "The answer is 7.",
            r#"{"a": 1} or {"a": 2}"#,
            "```\n1\n```\n```\n2\n```",
            r#"{"items": [{"a": 1}"#,
            r#"{items: [{"a": 1}]}"#,
            r#"{'a': {"b": 1}}"#,
        ] {
            assert!(extract(text).is_err(), "{text}");
        }
    }

    #[test]
    fn escapes_in_json_become_their_characters() {
        for (text, decoded) in [
            (r#"{"key": "\u0073k-1\/2"}"#, r#"{"key": "sk-1/2"}"#),
            (
                r#"As JSON: {"a": "\ud83d\ude00\u00e9"}."#,
                r#"As JSON: {"a": "😀é"}."#,
            ),
            (
                r#"{"a": "\u0022\u005c\u0000\\u0073\n"}"#,
                r#"{"a": "\u0022\u005c\u0000\\u0073\n"}"#,
            ),
            (r"C:\users \u0073", r"C:\users \u0073"),
            (r#"\u007b"b": 1} {"a": "\u0073"}"#, r#"{"a":"s"}"#),
        ] {
            assert_eq!(without_escapes(text.to_owned()), decoded);
        }
    }

    proptest! {
        #![proptest_config(crate::fuzz::config())]

        #[test]
        fn a_text_without_escapes_has_the_same_json(
            before in "[a-z\\\\u0{]{0,8}", value in "(\\\\u00[2-7][0-9a-f]|\\\\[/n\\\\\"]|[a-z`{}\\[\\]]){0,12}", after in "[a-z\\\\u0}`]{0,8}",
        ) {
            let text = format!("{before}{{\"a\": [\"{value}\"]}}{after}");

            let decoded = without_escapes(text.clone());

            prop_assert_eq!(extract(&decoded), extract(&text));
        }

        #[test]
        fn extraction_never_panics(text in "[\\[\\]{}\"`,:a1 \\n]{0,300}") {
            drop(extract(&text));
        }

        #[test]
        fn an_object_in_prose_is_found_whole(before in "[a-z .]{0,20}", value in "[a-z{}\\[\\]\"]{0,20}", after in "[a-z .]{0,20}") {
            let object = json!({"a": [value]});

            let found = extract(&format!("{before}{object}{after}"));

            prop_assert_eq!(found.unwrap(), object);
        }
    }
}
