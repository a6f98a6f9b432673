//! Finds the line and column of a path in the JSON text of a definition.

use crate::model::{DefinitionPath, DefinitionPathPart, Position};

/// Returns the line and column of a value in a JSON text. For a missing value, returns the position of the innermost existing value on its
/// path.
pub(super) fn locate(text: &str, location: &DefinitionPath) -> Position {
    let mut at = skip_blanks(text, 0);
    for part in location.parts() {
        match find(text, at, part) {
            Some(found) => at = found,
            None => break,
        }
    }
    let before = text.get(..at).unwrap_or_default();
    let last_line = before.rsplit('\n').next().unwrap_or_default();
    Position {
        file: None,
        line: before.matches('\n').count() + 1,
        column: last_line.chars().count() + 1,
    }
}

/// Returns the byte offset of the field or item `part` in the JSON value at offset `at`. Returns `None` if the JSON value has no such
/// field or item. The offset of a field is the offset of the field's value.
fn find(text: &str, at: usize, part: &DefinitionPathPart) -> Option<usize> {
    let open = match part {
        DefinitionPathPart::Field(_) => b'{',
        DefinitionPathPart::Item(_) => b'[',
    };
    if text.as_bytes().get(at) != Some(&open) {
        return None;
    }
    let mut at = at + 1;
    for number in 0.. {
        at = skip_blanks(text, at);
        if matches!(text.as_bytes().get(at), None | Some(b'}' | b']')) {
            return None;
        }
        let is_it = match part {
            DefinitionPathPart::Item(item) => *item == number,
            DefinitionPathPart::Field(name) => {
                let end = skip_value(text, at);
                let key: Option<String> = serde_json::from_str(text.get(at..end)?).ok();
                at = skip_blanks(text, end);
                at = skip_blanks(text, at + 1); // past the colon
                key.as_ref() == Some(name)
            }
        };
        if is_it {
            return Some(at);
        }
        at = skip_blanks(text, skip_value(text, at));
        if text.as_bytes().get(at) == Some(&b',') {
            at += 1;
        }
    }
    None
}

fn skip_blanks(text: &str, at: usize) -> usize {
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    let blanks = rest.iter().take_while(|byte| byte.is_ascii_whitespace());
    at + blanks.count()
}

/// Returns the byte offset of the end of the JSON value at offset `at` of a text.
fn skip_value(text: &str, at: usize) -> usize {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    for (offset, byte) in rest.iter().enumerate() {
        let here = at + offset;
        if in_string {
            in_string = *byte != b'"' || escaped;
            escaped = *byte == b'\\' && !escaped;
            if !in_string && depth == 0 {
                return here + 1;
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            // The end of the enclosing list or object, or the next item, also ends a number or word.
            b'}' | b']' | b',' if depth == 0 => return here,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return here + 1;
                }
            }
            byte if depth == 0 && byte.is_ascii_whitespace() => return here,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n  \"a\\u0062\": 1, \"x\": \"}\\\"]\",\n  \"list\": [1, [2, \"ü\"],\n    {\"é\": 1, \"deep\": true}]\n}";

    fn found(location: &DefinitionPath) -> (usize, usize) {
        let position = locate(TEXT, location);
        (position.line, position.column)
    }

    #[test]
    fn a_value_is_found_by_line_and_column() {
        let top = DefinitionPath::default();

        for (location, expected) in [
            (top.clone(), (1, 1)),
            (top.field("ab"), (2, 14)),
            (top.field("x"), (2, 22)),
            (top.field("list"), (3, 11)),
            (top.field("list").item(1).item(1), (3, 19)),
            (top.field("list").item(2).field("deep"), (4, 22)),
        ] {
            assert_eq!(found(&location), expected, "{location}");
        }
    }

    #[test]
    fn a_missing_value_is_located_at_its_nearest_existing_parent() {
        let list = DefinitionPath::default().field("list");

        assert_eq!(found(&list.item(9)), (3, 11));
        assert_eq!(found(&list.item(2).field("gone").item(1)), (4, 5));
    }
}
