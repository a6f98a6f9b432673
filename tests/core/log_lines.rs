//! The log statements of the crate, checked in its source: a message is constant, and a value from outside is escaped.

use std::{fs, io, path::Path};

/// Values that are written unescaped (`%value` or `?value`): IDs, times and fixed words. All other values are strings,
/// which subscribers escape, or errors in a `Chain`, which has one line.
const PLAIN: &[&str] = &[
    "after",   // a time
    "anomaly", // strings are escaped
    "answer.id",
    "before.0",
    "class",
    "definition.id",
    "delay",
    "event.breadcrumb_id",
    "found.id",
    "found", // settings of a consumer
    "id",
    "lease.run",
    "look.id",
    "newest", // a time
    "patience",
    "pause",
    "run",
    "self.lease.run",
    "self.lease.run.trigger_id",
    "sleeper.run",
    "started.run",
    "time",
    "took",
    "trigger",
    "trigger.id",
    "wanted", // settings of a consumer
];

#[test]
fn every_log_message_is_constant_and_every_value_from_outside_is_escaped() -> io::Result<()> {
    let mut statements = 0;
    let mut problems = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
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
    }

    assert_eq!(problems, Vec::<String>::new());
    assert!(statements > 100, "{statements}");
    Ok(())
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
