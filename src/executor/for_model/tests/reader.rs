//! A parser of rendered text that relies only on the documented format.

use crate::executor::Format;
use serde_json::Value;

/// The parsed text: the sections in their order, the keys of the notes, and the trigger.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    pub(super) sources: Vec<(String, Value)>,
    pub(super) missing: Vec<String>,
    pub(super) trigger: Value,
    /// The marks of all fences, in their order.
    pub(super) marks: Vec<String>,
}

pub(super) fn read(format: Format, text: &str) -> Read {
    // Other characters that some readers treat as a line end must not occur.
    let unruly = |c: char| c != '\n' && (c.is_control() || c == '\u{2028}' || c == '\u{2029}');
    assert!(!text.contains(unruly), "{text:?}");
    assert!(text.ends_with('\n'), "{text:?}");
    let mut lines = text.split_terminator('\n').skip(3);
    let mut read = Read {
        sources: Vec::new(),
        missing: Vec::new(),
        trigger: Value::Null,
        marks: Vec::new(),
    };
    assert_eq!(lines.next(), Some(""));
    while let Some(heading) = lines.next() {
        match format {
            Format::Markdown => markdown(heading, &mut lines, &mut read),
            Format::Xml => xml(heading, &mut lines, &mut read),
        }
    }
    read
}

fn markdown<'a>(heading: &str, lines: &mut impl Iterator<Item = &'a str>, read: &mut Read) {
    let name = heading.strip_prefix("## ").unwrap();
    if name == "missing" {
        for line in lines.take_while(|line| !line.is_empty()) {
            let note = line.strip_prefix("- ").unwrap();
            let key = match note.starts_with('"') {
                true => string_at_the_start(note),
                false => note.split_once(": ").unwrap().0.to_owned(),
            };
            read.missing.push(key);
        }
        return;
    }
    let facts = lines.next().unwrap();
    assert!(facts.starts_with(|c: char| c.is_ascii_digit()), "{facts:?}");
    let open = lines.next().unwrap();
    read.marks
        .push(mark(open.strip_prefix("```json data-").unwrap()));
    let content = json(lines.by_ref().take_while(|line| !line.starts_with("```")));
    match name {
        "trigger" => {
            assert_eq!(lines.next(), None);
            read.trigger = content;
            return;
        }
        quoted if quoted.starts_with('"') => {
            read.sources
                .push((serde_json::from_str(quoted).unwrap(), content));
        }
        plain => read.sources.push((plain.to_owned(), content)),
    }
    assert_eq!(lines.next(), Some(""));
}

/// Returns the JSON string at the start of a line.
fn string_at_the_start(line: &str) -> String {
    let mut values = serde_json::Deserializer::from_str(line).into_iter::<String>();
    values.next().unwrap().unwrap()
}

fn xml<'a>(heading: &str, lines: &mut impl Iterator<Item = &'a str>, read: &mut Read) {
    if heading.starts_with("<missing ") {
        read.missing.push(key_of(heading));
        for line in lines.take_while(|line| !line.is_empty()) {
            assert!(line.ends_with("</missing>"), "{line:?}");
            read.missing.push(key_of(line));
        }
        return;
    }
    let open = lines.next().unwrap();
    let digits = open
        .strip_prefix("<data-")
        .unwrap()
        .strip_suffix('>')
        .unwrap();
    let close = format!("</data-{digits}>");
    read.marks.push(mark(digits));
    let content: Vec<&str> = lines.by_ref().take_while(|line| *line != close).collect();
    assert!(!content.concat().contains(['<', '>', '&']), "{content:?}");
    let content = json(content.into_iter());
    match heading.starts_with("<source ") {
        true => {
            assert_eq!(lines.next(), Some("</source>"));
            assert_eq!(lines.next(), Some(""));
            read.sources.push((key_of(heading), content));
        }
        false => {
            assert!(heading.starts_with("<trigger "), "{heading:?}");
            assert_eq!(lines.next(), Some("</trigger>"));
            assert_eq!(lines.next(), None);
            read.trigger = content;
        }
    }
}

/// Returns the attribute `key` of a tag, with its entities decoded.
fn key_of(tag: &str) -> String {
    let (_, after) = tag.split_once(" key=\"").unwrap();
    let (key, _) = after.split_once('"').unwrap();
    assert!(!key.contains(['<', '>']), "{key:?}");
    let mut pieces = key.split('&');
    let mut text = pieces.next().unwrap().to_owned();
    for piece in pieces {
        let (entity, rest) = piece.split_once(';').unwrap();
        text.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            code => {
                let code = u32::from_str_radix(code.strip_prefix("#x").unwrap(), 16).unwrap();
                char::from_u32(code).unwrap()
            }
        });
        text.push_str(rest);
    }
    text
}

fn mark(digits: &str) -> String {
    assert_eq!(digits.len(), 16, "{digits:?}");
    assert!(
        digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        "{digits:?}"
    );
    digits.to_owned()
}

/// Parses JSON on one line, or a list with one item on each line.
fn json<'a>(lines: impl Iterator<Item = &'a str>) -> Value {
    let lines: Vec<&str> = lines.collect();
    let value: Value = serde_json::from_str(&lines.join("\n")).unwrap();
    let expected = match lines.first() {
        Some(&"[") => value.as_array().unwrap().len() + 2,
        Some(_) | None => 1,
    };
    assert_eq!(lines.len(), expected, "{lines:?}");
    value
}
