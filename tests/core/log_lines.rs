//! The log statements of the crate, checked in its source: a message is constant, and a value from outside is escaped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Values that are written unescaped (`%value` or `?value`): IDs, times and fixed words. All other values are strings,
/// which subscribers escape, or errors in a `Chain`, which has one line.
const PLAIN: &[&str] = &[
    "after",   // a time
    "anomaly", // strings are escaped
    "answer.id",
    "before.0",
    "class",
    "commit_timeout",
    "definition.id",
    "delay",
    "event.breadcrumb_id",
    "found.id",
    "expected.ack_wait",
    "found.ack_wait",
    "id",
    "lease.run",
    "newest", // a time
    "patience",
    "pause",
    "run",
    "self.lease.run",
    "self.lease.run.trigger_id",
    "suspended_run.run",
    "started.run",
    "time",
    "took",
    "trigger",
    "trigger.id",
];

#[test]
fn every_log_message_is_constant_and_every_value_from_outside_is_escaped() -> io::Result<()> {
    let mut statements = 0;
    let mut problems = Vec::new();
    for path in sources()? {
        let text = fs::read_to_string(&path)?;
        for statement in log_statements(&text) {
            statements += 1;
            let found = problems_of(statement);
            problems.extend(
                found
                    .into_iter()
                    .map(|found| format!("{}: {found}: {statement}", path.display())),
            );
        }
    }

    assert_eq!(problems, Vec::<String>::new());
    assert!(statements > 100, "{statements}");
    Ok(())
}

/// The page of the guide that explains the log events.
const PAGE: &str = include_str!("../../docs/operations/log-events.md");

#[test]
fn the_guide_lists_every_log_event_at_info_and_above() -> io::Result<()> {
    let mut logged = BTreeSet::new();
    for path in sources()? {
        let is_test = path.ends_with("tests.rs") || path.iter().any(|part| part == "tests");
        let text = fs::read_to_string(&path)?;
        let code = text.split("#[cfg(test)]\nmod tests {").next();
        let code = code.filter(|_| !is_test).unwrap_or_default();
        for (level, name) in [("INFO", "info"), ("WARN", "warn"), ("ERROR", "error")] {
            let statements = log_statements(code).filter(|statement| is_of(code, statement, name));
            logged.extend(
                statements.filter_map(|statement| Some((level.to_owned(), message(statement)?))),
            );
        }
    }

    let listed: BTreeSet<(String, String)> = PAGE.lines().filter_map(row).collect();

    let missing: Vec<_> = logged.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&logged).collect();
    assert!(missing.is_empty(), "not in the guide: {missing:#?}");
    assert!(unknown.is_empty(), "only in the guide: {unknown:#?}");
    assert!(logged.len() > 50, "{}", logged.len());
    Ok(())
}

/// Returns `true` if a statement, which is a part of `code`, is an argument list of the macro `name!`.
fn is_of(code: &str, statement: &str, name: &str) -> bool {
    let at = statement.as_ptr().addr() - code.as_ptr().addr();
    code[..at].ends_with(&format!("{name}!"))
}

/// Returns the message of a statement: its last string, without quotes for code.
fn message(statement: &str) -> Option<String> {
    let strings = statement.replace("\\\"", "'");
    let last = strings.split('"').skip(1).step_by(2).last()?;
    Some(plain(last))
}

/// Returns a message with single spaces and without quotes for code.
fn plain(message: &str) -> String {
    let text = message.replace('`', "");
    let words = text.split(|character: char| character.is_whitespace() || character == '\\');
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Returns the level and the message in a row of the table.
fn row(line: &str) -> Option<(String, String)> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    let (level, message) = (cells.next()?, cells.next()?);
    let is_level = ["INFO", "WARN", "ERROR"].contains(&level);
    is_level.then(|| (level.to_owned(), plain(message)))
}

/// Returns the source files of the crate.
fn sources() -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    Ok(files)
}

#[test]
fn the_check_finds_interpolated_messages_and_raw_values() {
    for (statement, problems) in [
        (r#"(run = &*run, "a run failed")"#, 0),
        (r#"(%run, error = %Chain(&error), "a run failed")"#, 0),
        (r#"("a run failed: {error}")"#, 1),
        (r#"("a run {}", what)"#, 1),
        (r#"(%error, "a run failed")"#, 1),
        (r#"(why = %why, what = ?what, "a run failed")"#, 2),
        (r#"(error = &*error, "a run failed")"#, 1),
        (r#"(error = failed.code(), "a run failed")"#, 0),
    ] {
        assert_eq!(problems_of(statement).len(), problems, "{statement}");
    }
    let text = r#"tracing::warn!(a, "x (\" ) y"); debug!("b"); println!("c"); tracing::debug_span!("d", e)"#;
    let found: Vec<_> = log_statements(text).collect();
    assert_eq!(found, [r#"(a, "x (\" ) y")"#, r#"("b")"#, r#"("d", e)"#]);
}

/// Returns the arguments of each log or span macro in a source text, in parentheses.
fn log_statements(text: &str) -> impl Iterator<Item = &str> {
    const MACROS: [&str; 7] = [
        "trace!(", "debug!(", "info!(", "warn!(", "error!(", "_span!(", "span!(",
    ];
    text.match_indices("!(").filter_map(|(at, _)| {
        let open = at + 1;
        let is_log = MACROS.iter().any(|name| text[..=open].ends_with(name));
        is_log.then(|| &text[open..open + closing(&text[open..])])
    })
}

/// Returns the length of a group in parentheses.
fn closing(text: &str) -> usize {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if in_string => is_escaped = true,
            '"' => in_string = !in_string,
            '(' if !in_string => depth += 1,
            ')' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

fn problems_of(statement: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, part) in statement.split('"').enumerate() {
        if at % 2 == 1 {
            if part.contains('{') {
                problems.push("an interpolated message".to_owned());
            }
            continue;
        }
        for (at, name) in part.match_indices("error =") {
            let value = part[at + name.len()..].trim_start();
            let value = value.split([',', ')']).next().unwrap_or("");
            // An error without a sign is written with `Display`.
            if !value.starts_with('%') && !value.ends_with(".code(") {
                problems.push(format!("an error that is not in a chain: {value}"));
            }
        }
        for (at, sign) in part.match_indices(['%', '?']) {
            let value = part[at + sign.len()..]
                .split([',', ')'])
                .next()
                .unwrap_or("");
            let is_field = part[..at].trim_end().ends_with(['=', ',', '(']);
            let is_chain = value.starts_with("Chain(") || value.starts_with("crate::error::Chain(");
            if is_field && !is_chain && !PLAIN.contains(&value.trim()) {
                problems.push(format!("a raw value {sign}{value}"));
            }
        }
    }
    problems
}
