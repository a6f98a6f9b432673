//! Format rules of `llm_hints`: strings with placeholders `{path}`.

use super::MAX_PATHS;
use super::budget::{Budget, Text};
use super::error::{HintsProblem, HintsReason};
use super::extract;
use crate::model::Path;
use serde_json::Value;

/// Compiled `format` rule of `llm_hints`: a sequence in which each piece is literal text or a path.
#[derive(Debug)]
pub(super) struct Format(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    Value(Path),
}

impl Format {
    pub(super) fn parse(text: &str) -> Result<Self, HintsProblem> {
        let wrong = |reason| HintsProblem::Format { reason };
        let (mut pieces, mut plain, mut rest, mut paths) = (Vec::new(), String::new(), text, 0);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = brace.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = brace.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else if let Some(inside) = brace.strip_prefix('{') {
                let end = closing(inside).ok_or(wrong("a \"{\" is not closed"))?;
                let (path, after) = inside.split_at(end);
                if path.trim().is_empty() {
                    return Err(wrong("a \"{}\" has no path"));
                }
                paths += 1;
                HintsProblem::too_many(paths, MAX_PATHS)?;
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
                pieces.push(Piece::Value(Path::parse(path).map_err(HintsProblem::Path)?));
                rest = after.strip_prefix('}').unwrap_or(after);
            } else {
                return Err(wrong("a \"}\" has no matching \"{\""));
            }
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        Ok(Self(pieces))
    }

    pub(super) fn apply(&self, context: &Value, budget: &mut Budget) -> Result<Value, HintsReason> {
        let mut text = Text::new(budget);
        for piece in &self.0 {
            text.budget.step(1)?;
            match piece {
                Piece::Text(plain) => text.push(plain)?,
                Piece::Value(path) if path.is_plain() => {
                    if let Some(value) = extract::one(path, context)? {
                        text.show(value)?;
                    }
                }
                Piece::Value(path) => {
                    let nodes = extract::many(path, context, text.budget)?;
                    text.print(nodes)?;
                }
            }
        }
        text.into_value()
    }
}

/// Returns the position of the `}` at the end of a placeholder's path. Ignores braces inside quotes.
fn closing(text: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '}') => return Some(at),
            (None, _) => {}
        }
    }
    None
}
