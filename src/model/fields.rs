//! Known fields of JSON objects in definitions, and suggestions for unknown fields.

use super::definition_path::DefinitionPath;
use super::finding::{Finding, Severity};
use super::nearest::nearest;
use crate::error::excerpt;
use serde_json::{Map, Value};

/// The fields that one object of a definition can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownFields<'k> {
    pub(crate) names: &'k [&'static str],
    /// Field names that are often used by mistake, each with the fields that the author probably means.
    pub(crate) aliases: &'k [(&'k str, &'k [&'static str])],
}

impl KnownFields<'_> {
    /// Returns the unknown fields of an object, sorted by name. A field that is null counts as absent.
    pub(crate) fn unknown<'v>(
        &self,
        object: &'v Map<String, Value>,
    ) -> impl Iterator<Item = &'v str> {
        let unknown =
            |(field, value): &(&String, &Value)| !value.is_null() && !self.contains(field);
        let fields = object.iter().filter(unknown);
        let mut names: Vec<&str> = fields.map(|(field, _)| field.as_str()).collect();
        names.sort_unstable();
        names.into_iter()
    }

    /// Creates the error or warning about an unknown field of the object at the definition path `path`.
    pub(crate) fn finding(
        &self,
        severity: Severity,
        path: &DefinitionPath,
        field: &str,
    ) -> Finding {
        let message = with_hint(severity, field, &self.hint(field));
        Finding::new(severity, path.field(field), message)
    }

    /// Returns the end of an error message about an unknown field. The text lists the suggested fields. Without suggestions, it lists the
    /// known fields, provided that there are at most 8.
    fn hint(&self, unknown: &str) -> String {
        const LISTED: usize = 8;
        let suggestions = self.suggest(unknown);
        match suggestions.is_empty() && self.names.len() <= LISTED {
            true => format!("; known fields: {}", self.names.join(", ")),
            false => did_you_mean_any(&suggestions),
        }
    }

    /// Returns `true` if the object can have a field with this name. Each object can have comments.
    pub(crate) fn contains(&self, field: &str) -> bool {
        self.names.contains(&field) || is_comment(field)
    }

    /// Returns the known fields that the author of an unknown field probably means: by a list of usual mistakes, then by edit distance,
    /// then by common words.
    pub(crate) fn suggest(&self, unknown: &str) -> Vec<&'static str> {
        /// Maximum length in bytes of an unknown field name that gets suggestions. Longer names are data.
        const LONGEST: usize = 64;
        if unknown.len() > LONGEST {
            return Vec::new();
        }
        let unknown = snake_case(unknown);
        if let Some((_, intended)) = self.aliases.iter().find(|(mistake, _)| *mistake == unknown) {
            return intended.to_vec();
        }
        if let Some(nearest_name) = nearest(&unknown, self.names.iter().copied()) {
            return vec![nearest_name];
        }
        let names = self.names.iter().copied();
        let similar = names.filter_map(|name| Some((different_words(&unknown, name)?, name)));
        let most_similar = similar.min_by_key(|(different, _)| *different);
        most_similar.map(|(_, name)| name).into_iter().collect()
    }
}

/// Returns `true` if a field of a definition is a comment, such as `comment`, `$schema` or `x-note`. Comments have no effect in any object.
pub(crate) fn is_comment(field: &str) -> bool {
    matches!(field, "comment" | "metadata" | "$schema")
        || field.ends_with("_comment")
        || field.starts_with("x-")
}

/// Returns the message of an error or a warning about an unknown field of a definition.
pub(crate) fn unknown_field(severity: Severity, field: &str, nearest: &[&str]) -> String {
    with_hint(severity, field, &did_you_mean_any(nearest))
}

fn with_hint(severity: Severity, field: &str, hint: &str) -> String {
    let field = excerpt(field, 64);
    match severity {
        Severity::Error => format!("unknown field {field:?}{hint}"),
        Severity::Warning => format!("unknown field {field:?} has no effect{hint}"),
    }
}

/// Returns the end of a message about an unknown field, for example `; did you mean "a" or "b"?`. Empty without suggestions.
pub(crate) fn did_you_mean_any(suggestions: &[&str]) -> String {
    if suggestions.is_empty() {
        return String::new();
    }
    let quoted = suggestions.iter().map(|name| format!("{name:?}"));
    let quoted: Vec<String> = quoted.collect();
    format!("; did you mean {}?", quoted.join(" or "))
}

/// Converts a field name to snake case. For example, `systemPrompt` and `system-prompt` become `system_prompt`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() && !snake.ends_with('_') {
            snake.push('_');
        }
        match c {
            '-' => snake.push('_'),
            c => snake.extend(c.to_lowercase()),
        }
    }
    snake
}

/// Returns the difference between the word counts of two field names. Returns `None` if the longer name lacks a word of the
/// shorter name.
fn different_words(left: &str, right: &str) -> Option<usize> {
    let words = |name: &str| {
        let words = name.split('_').filter(|word| word.len() > 2);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let (left, right) = (words(left), words(right));
    let (short, long) = match left.len() <= right.len() {
        true => (&left, &right),
        false => (&right, &left),
    };
    let is_part = !short.is_empty() && short.iter().all(|word| long.contains(word));
    is_part.then(|| long.len() - short.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: KnownFields<'static> = KnownFields {
        names: &["agent_id", "model", "system_prompt", "tool_calls", "tools"],
        aliases: &[("tags", &["any_tags", "all_tags"])],
    };

    #[test]
    fn an_unknown_field_is_compared_by_alias_then_by_letters_then_by_words() {
        for (unknown, suggestions) in [
            ("tags", &["any_tags", "all_tags"][..]),
            ("tool", &["tools"]),
            ("sytem_prompt", &["system_prompt"]),
            ("systemPrompt", &["system_prompt"]),
            ("system-prompt", &["system_prompt"]),
            ("prompt", &["system_prompt"]),
            ("model_name", &["model"]),
            ("modelName", &["model"]),
            ("banana", &[]),
            ("", &[]),
        ] {
            assert_eq!(KNOWN.suggest(unknown), suggestions, "{unknown}");
        }
        assert!(KNOWN.suggest(&"tool_".repeat(1_000)).is_empty());
    }

    #[test]
    fn comments_are_known_in_every_object() {
        for field in [
            "comment",
            "llm_config_comment",
            "metadata",
            "$schema",
            "x-team",
            "tools",
        ] {
            assert!(KNOWN.contains(field), "{field}");
        }
        for field in ["comments", "schema", "x_team", "meta"] {
            assert!(!KNOWN.contains(field), "{field}");
        }
    }

    #[test]
    fn a_message_names_each_suggestion() {
        assert_eq!(did_you_mean_any(&[]), "");
        assert_eq!(
            did_you_mean_any(&["a", "b"]),
            "; did you mean \"a\" or \"b\"?"
        );
    }
}
