//! The layers, checked by a scan of the source: permitted imports, access to the clock, use of async, and spawned tasks. `siblings`
//! checks the imports between the modules of one folder.
//!
//! The scanner knows only the necessary parts of Rust. It blanks comments, literals and test code, then inspects
//! the paths that start at the crate root (`crate::…`, or enough `super::`s to reach it).

mod siblings;

use std::{fs, io, path::Path};

/// The top-level modules of `src/`, lowest first, each with the other modules that it may name.
const LAYERS: &[(&str, &[&str])] = &[
    ("backoff", &["clock", "error"]),
    ("bugs", &[]),
    ("child", &["error"]),
    ("clock", &["backoff", "error"]),
    ("error", &["backoff", "clock", "scrub"]),
    ("fuzz", &["error"]),
    ("guide", &[]),
    ("hex", &[]),
    ("scrub", &[]),
    ("secret", &[]),
    ("http", &["backoff", "clock", "error", "secret"]),
    ("model", &["bugs", "error", "hex"]),
    ("hints", &["error", "model"]),
    ("machine", &["error", "model"]),
    (
        "source",
        &[
            "backoff", "bugs", "clock", "error", "http", "model", "secret",
        ],
    ),
    (
        "store",
        &[
            "backoff", "bugs", "clock", "error", "hex", "hints", "http", "model", "scrub",
            "secret", "source",
        ],
    ),
    // The only module that names the error types of all layers, so that a run knows the class of an error from a higher layer.
    (
        "classes",
        &[
            "agent",
            "client",
            "error",
            "executor",
            "hints",
            "mcp",
            "model",
            "runtime",
            "session_log",
            "source",
            "store",
            "testing",
            "tool",
            "workflow",
            "workload",
        ],
    ),
    ("session_log", &["error", "hex", "model", "store"]),
    (
        "client",
        &[
            "clock",
            "error",
            "executor",
            "hex",
            "model",
            "request",
            "session_log",
            "source",
            "store",
            "tool",
        ],
    ),
    (
        "executor",
        &[
            "backoff", "bugs", "classes", "clock", "error", "hex", "hints", "model", "source",
            "store",
        ],
    ),
    (
        "tool",
        &[
            "backoff", "bugs", "classes", "clock", "error", "executor", "hex", "hints", "machine",
            "model", "source", "store",
        ],
    ),
    (
        "request",
        &[
            "error", "executor", "hex", "machine", "model", "store", "tool",
        ],
    ),
    (
        "agent",
        &[
            "backoff", "bugs", "child", "clock", "error", "executor", "hex", "hints", "http",
            "machine", "model", "request", "scrub", "secret", "source", "store", "tool",
        ],
    ),
    (
        "mcp",
        &[
            "backoff", "child", "client", "clock", "error", "hex", "http", "model", "scrub",
            "secret", "executor", "store", "tool",
        ],
    ),
    (
        "services",
        &["agent", "error", "mcp", "model", "store", "tool"],
    ),
    (
        "workflow",
        &[
            "agent", "backoff", "bugs", "classes", "clock", "error", "executor", "hex", "hints",
            "machine", "model", "request", "services", "source", "store", "tool",
        ],
    ),
    (
        "workload",
        &[
            "agent",
            "backoff",
            "bugs",
            "classes",
            "clock",
            "error",
            "executor",
            "hex",
            "hints",
            "machine",
            "model",
            "request",
            "services",
            "session_log",
            "source",
            "store",
            "tool",
            "workflow",
        ],
    ),
    (
        "runtime",
        &[
            "agent", "backoff", "bugs", "clock", "error", "executor", "hex", "hints", "machine",
            "model", "services", "source", "store", "tool", "workload",
        ],
    ),
    (
        "check",
        &[
            "agent", "error", "hints", "model", "runtime", "tool", "workflow", "workload",
        ],
    ),
    (
        "testing",
        &[
            "client", "clock", "error", "executor", "model", "runtime", "source", "store",
        ],
    ),
];

#[test]
fn imports_point_down() -> io::Result<()> {
    let violations: Vec<String> = sources()?.iter().flat_map(forbidden_arrows).collect();
    report("imports that do not point down", &violations);
    Ok(())
}

#[test]
fn the_scan_finds_the_imports_of_the_crate() -> io::Result<()> {
    let files = sources()?;
    let found: usize = files.iter().map(|file| crate_paths(file).len()).sum();
    assert!(found > 1_000, "{found} paths in {} files", files.len());
    Ok(())
}

#[test]
fn every_module_has_a_place_in_the_layers() -> io::Result<()> {
    let unplaced: Vec<String> = sources()?
        .iter()
        .filter(|file| !LAYERS.iter().any(|(module, _)| *module == file.top()))
        .map(|file| {
            format!(
                "{}: module `{}` is not in LAYERS of tests/core/layers.rs",
                file.name,
                file.top()
            )
        })
        .collect();
    report("modules without a place", &unplaced);
    Ok(())
}

#[test]
fn layers_only_name_modules_of_the_table() {
    for (module, below) in LAYERS {
        for name in *below {
            assert!(
                LAYERS.iter().any(|(known, _)| known == name),
                "`{module}` may use `{name}`, which is no module"
            );
        }
    }
}

#[test]
fn only_the_clock_module_reads_wall_time() -> io::Result<()> {
    let words = ["SystemTime", "Timestamp::now", "Zoned::now"];
    let found = mentions_in(&sources()?, &words, |top| top != "clock");
    report("wall time is read in src/clock.rs only", &found);
    Ok(())
}

/// Files that parse text into types other than `serde_json::Value`. Only that type follows the reserved key.
const TYPED: &[&str] = &[
    "src/agent/output.rs",               // IgnoredAny
    "src/agent/providers/cli/wire.rs",   // RawValue and strings
    "src/model/index/scan.rs",           // a string
    "src/model/json.rs",                 // text that was checked
    "src/model/json_check.rs",           // the parser
    "src/source/nats/subscription.rs",   // Event
    "src/source/sse/follow.rs",          // Event
    "src/source/sse/token.rs",           // a string and a number
    "src/store/postgres/log.rs",         // strings
    "src/store/postgres/row.rs",         // Event
    "src/store/rcrt/wire.rs",            // Json, which checks itself
    "src/store/sqlite/column.rs",        // strings
    "src/store/sqlite/row.rs",           // Event
    "src/workflow/definition/locate.rs", // a string
];

#[test]
fn text_becomes_a_value_only_in_the_parser() -> io::Result<()> {
    let words = [
        "serde_json::from_str",
        "serde_json::from_slice",
        "serde_json::from_reader",
        "serde_json::Deserializer",
        "Value::from_str",
        "parse::<Value>",
    ];
    let found = mentions_in(&sources()?, &words, |_| true);
    let (typed, others): (Vec<String>, Vec<String>) = found.into_iter().partition(|place| {
        TYPED
            .iter()
            .any(|file| place.starts_with(&format!("{file}:")))
    });
    report("text from outside is parsed by `model::parse`", &others);
    let unused = TYPED
        .iter()
        .filter(|file| !typed.iter().any(|place| place.starts_with(**file)));
    assert_eq!(unused.collect::<Vec<_>>(), Vec::<&&str>::new());
    Ok(())
}

/// Error types without a class.
const CLASSLESS: &[&str] = &[
    "Broken",     // of the conformance suite
    "CloseError", // each of its failures has a class
    "Deferred",   // ends a turn, no failure
    "Injected",   // of tests
    "Refusal",    // an answer of a tool
    "Suspension", // ends a turn, no failure
];

#[test]
fn every_public_error_type_has_a_class() -> io::Result<()> {
    let files = sources()?;
    let classes = files.iter().find(|file| file.name == "src/classes/mod.rs");
    let classes = &classes.expect("src/classes/mod.rs exists").code;
    let types: Vec<(String, String)> = files.iter().flat_map(error_types).collect();
    let classless: Vec<String> = types
        .iter()
        .filter(|(_, name)| words(classes, name).is_empty() != CLASSLESS.contains(&name.as_str()))
        .map(|(file, name)| format!("{file}: {name}"))
        .collect();

    assert!(types.len() > 40, "{types:?}");
    report(
        "each public error type is in src/classes/mod.rs, or in CLASSLESS of tests/core/layers.rs",
        &classless,
    );
    Ok(())
}

/// Returns the names of a file's public error types.
fn error_types(file: &Source) -> Vec<(String, String)> {
    let code = &file.code;
    let derived = code.split("thiserror::Error").skip(1).filter_map(|rest| {
        let (_, named) = rest.split_once("pub ").filter(|(before, _)| {
            !before.contains(['{', ';']) && !before.contains("enum ") && !before.contains("struct ")
        })?;
        let named = named
            .strip_prefix("enum ")
            .or_else(|| named.strip_prefix("struct "))?;
        first_word(named)
    });
    let written = code.split("Error for ").skip(1).filter_map(first_word);
    let written = written.filter(|name| code.contains(&format!("pub struct {name}")));
    let all = derived.chain(written).map(str::to_owned);
    all.map(|name| (file.name.clone(), name)).collect()
}

fn first_word(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_alphanumeric())?;
    text.get(..end).filter(|word| !word.is_empty())
}

#[test]
fn pure_modules_know_no_async_and_no_io() -> io::Result<()> {
    let words = [
        "async",
        "async_trait",
        "await",
        "tokio",
        "std::fs",
        "std::net",
    ];
    let found = mentions_in(&sources()?, &words, |top| {
        matches!(top, "check" | "hints" | "machine" | "model")
    });
    report("check, model, machine and hints are pure", &found);
    let of_flows = ["definition", "expression", "interpret", "syntax"];
    let is_of_flows = |file: &Source| {
        let part = file.module.get(1);
        file.top() == "workflow" && part.is_some_and(|part| of_flows.contains(&part.as_str()))
    };
    let flows: Vec<Source> = sources()?.into_iter().filter(is_of_flows).collect();
    assert!(!flows.is_empty(), "flows have moved");
    let found = mentions_in(&flows, &words, |_| true);
    report(
        "definitions of flows and their interpreter are pure",
        &found,
    );
    Ok(())
}

#[test]
fn only_drivers_and_backends_spawn() -> io::Result<()> {
    let words = [
        "tokio::spawn",
        "task::spawn",
        "thread::spawn",
        "spawn_blocking",
        "spawn_local",
        "JoinSet",
    ];
    let found = mentions_in(&sources()?, &words, |top| {
        !matches!(
            top,
            "client" | "mcp" | "runtime" | "source" | "store" | "workload"
        )
    });
    report(
        "only client, mcp, runtime, workload and the backends of store and source spawn",
        &found,
    );
    Ok(())
}

/// A source file, without its comments, literals and test code.
pub(crate) struct Source {
    /// The path of the file in failure messages.
    pub(crate) name: String,
    /// The module path below the crate root. It is never empty.
    module: Vec<String>,
    pub(crate) code: String,
}

impl Source {
    /// Creates a source file. `relative` is the path below `src/`, with `/` as the separator.
    pub(crate) fn new(relative: &str, text: &str) -> Self {
        let path = relative.trim_end_matches(".rs").trim_end_matches("/mod");
        Self {
            name: format!("src/{relative}"),
            module: path.split('/').map(str::to_owned).collect(),
            code: blank_tests(&blank_text(text)),
        }
    }

    fn top(&self) -> &str {
        self.module.first().map_or("", String::as_str)
    }

    pub(crate) fn line(&self, at: usize) -> usize {
        1 + self.code[..at].matches('\n').count()
    }
}

/// Returns all files of `src/` except test modules and `lib.rs`, which names all modules because it re-exports from them.
pub(crate) fn sources() -> io::Result<Vec<Source>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let relative = path.strip_prefix(&root).unwrap_or(&path);
            let relative = relative.to_string_lossy().replace('\\', "/");
            let is_test = relative.ends_with("/tests.rs") || relative.ends_with("/tests");
            if is_test || relative == "lib.rs" {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else if relative.ends_with(".rs") {
                found.push(Source::new(&relative, &fs::read_to_string(&path)?));
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Fails the calling test if there are violations, with one line for each.
pub(crate) fn report(rule: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{rule}:\n{}", violations.join("\n"));
}

fn forbidden_arrows(file: &Source) -> Vec<String> {
    let Some((_, allowed)) = LAYERS.iter().find(|(module, _)| *module == file.top()) else {
        return Vec::new(); // a separate test reports modules that are not in the table
    };
    let mut found = Vec::new();
    for (at, target) in crate_paths(file) {
        if target == file.top() || allowed.contains(&target) {
            continue;
        }
        let (name, line, from) = (&file.name, file.line(at), file.top());
        found.push(if LAYERS.iter().any(|(module, _)| *module == target) {
            format!("{name}:{line}: {from} -> {target}; {from} may use {}", allowed.join(", "))
        } else {
            format!("{name}:{line}: crate::{target} is no module; import from the module that defines it")
        });
    }
    found
}

/// Returns the offset of each path from the crate root, with its first name.
fn crate_paths(file: &Source) -> Vec<(usize, &str)> {
    let code = file.code.as_str();
    let mut found = Vec::new();
    for at in words(code, "crate") {
        if let Some(rest) = code[at..].strip_prefix("crate::") {
            found.extend(first_names(rest).into_iter().map(|name| (at, name)));
        }
    }
    for at in words(code, "super") {
        if code[..at].ends_with("super::") {
            continue; // counted with the first `super` of its chain
        }
        let mut rest = &code[at..];
        let mut ups = 0;
        while let Some(next) = rest.strip_prefix("super::") {
            rest = next;
            ups += 1;
        }
        if ups > 0 && ups >= file.module.len() + inline_modules(&code[..at]) {
            found.extend(first_names(rest).into_iter().map(|name| (at, name)));
        }
    }
    found.sort_unstable();
    found
}

/// Returns the next names of a path: one name, or several names of a `{…}` group. Omits macros, because an exported macro is at the
/// crate root regardless of the module that defines it.
fn first_names(rest: &str) -> Vec<&str> {
    let Some(group) = rest.strip_prefix('{') else {
        let name = first_name(rest);
        let is_macro = rest[name.len()..].starts_with('!');
        return if is_macro { Vec::new() } else { vec![name] };
    };
    let mut names = Vec::new();
    let mut depth = 0_usize;
    let mut start = 0;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let item = group[start..at].trim_start();
                names.extend(Some(first_name(item)).filter(|name| !name.is_empty()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

/// Returns the identifier at the start of `rest`, or the `*` of a glob.
fn first_name(rest: &str) -> &str {
    let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
    if rest.starts_with('*') {
        "*"
    } else {
        &rest[..end]
    }
}

/// Returns the number of `mod name { … }` blocks that are open at the end of `before`.
fn inline_modules(before: &str) -> usize {
    let mut blocks = Vec::new();
    for (at, c) in before.char_indices() {
        if c == '{' {
            let head = before[..at].trim_end().trim_end_matches(is_word).trim_end();
            blocks.push(words(head, "mod").last() == Some(&(head.len().wrapping_sub(3))));
        } else if c == '}' {
            blocks.pop();
        }
    }
    blocks.into_iter().filter(|is_module| *is_module).count()
}

/// Returns one line for each place in the modules selected by `applies` that names one of `names`.
fn mentions_in(files: &[Source], names: &[&str], applies: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| applies(file.top())) {
        for name in names {
            let places = words(&file.code, name);
            found.extend(
                places
                    .iter()
                    .map(|at| format!("{}:{}: {name}", file.name, file.line(*at))),
            );
        }
    }
    found
}

/// Returns the offsets of `word` in `code`, without its occurrences within longer names.
pub(crate) fn words(code: &str, word: &str) -> Vec<usize> {
    let alone = |at: &usize| {
        let after = &code[at + word.len()..];
        !code[..*at].ends_with(is_word) && !after.starts_with(is_word)
    };
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(alone)
        .collect()
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Replaces comments and the contents of literals with spaces. All other lines and offsets stay the same.
fn blank_text(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let in_word = code.ends_with(is_word);
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if c == '"' {
            string(rest)
        } else if c == '\'' {
            character(rest)
        } else if !in_word && (rest.starts_with('r') || rest.starts_with("br")) {
            raw_string(rest)
        } else {
            0
        };
        if length == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            let (blanked, after) = rest.split_at(length);
            code.push_str(&spaces(blanked));
            rest = after;
        }
    }
    code
}

/// Returns one space per byte of `text`, with its line ends.
fn spaces(text: &str) -> String {
    text.bytes()
        .map(|b| if b == b'\n' { '\n' } else { ' ' })
        .collect()
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let step = match rest.as_bytes().get(at..at + 2) {
            Some(b"/*") => {
                depth += 1;
                2
            }
            Some(b"*/") => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    rest.len()
}

/// Returns the length of a character literal, or 0 for the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, c))) => {
            let from = at + c.len_utf8(); // after the escaped character, which may be a quote
            rest[from..].find('\'').map_or(0, |end| from + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// Returns the length of a raw string, or 0 at the start of any name.
fn raw_string(rest: &str) -> usize {
    let prefix = if rest.starts_with('b') { 2 } else { 1 };
    let hashes = rest[prefix..].chars().take_while(|c| *c == '#').count();
    let open = prefix + hashes;
    if !rest[open..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let body = &rest[open + 1..];
    body.find(&close)
        .map_or(rest.len(), |end| open + 1 + end + close.len())
}

/// Blanks each item under `#[cfg(test)]`. Expects text without comments and literals.
fn blank_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some((before, item)) = rest.split_once(MARK) {
        let (item, after) = item.split_at(item_end(item));
        kept.push_str(before);
        kept.push_str(&spaces(MARK));
        kept.push_str(&spaces(item));
        rest = after;
    }
    kept + rest
}

/// Returns the end of the item at the start of `code`: its `;`, or the brace that closes its body.
pub(crate) fn item_end(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(c, ';' | '}') {
            return at + 1;
        }
    }
    code.len()
}

mod scanner {
    use super::{Source, blank_tests, blank_text, crate_paths, forbidden_arrows, words};

    fn names(relative: &str, code: &str) -> Vec<String> {
        let file = Source::new(relative, code);
        let found = crate_paths(&file);
        found.into_iter().map(|(_, name)| name.to_owned()).collect()
    }

    #[test]
    fn an_import_from_above_is_reported_with_its_line_and_the_allowed_modules() {
        let file = Source::new(
            "model/event.rs",
            "use serde::Serialize;\nuse crate::store::BreadcrumbStore;\n",
        );

        assert_eq!(
            forbidden_arrows(&file),
            ["src/model/event.rs:2: model -> store; model may use bugs, error, hex"]
        );
    }

    #[test]
    fn imports_from_below_and_from_the_own_module_pass() {
        let code =
            "use crate::{error::BoxError, model::{Event, Json}, store::Query};\nuse super::commit;";

        assert_eq!(
            forbidden_arrows(&Source::new("store/memory/mod.rs", code)),
            [""; 0]
        );
    }

    #[test]
    fn a_re_export_of_the_crate_root_is_not_a_module() {
        for code in [
            "use crate::Breadcrumb;",
            "use crate::{Breadcrumb};",
            "use crate::*;",
            "use super::super::Breadcrumb;",
        ] {
            let found = forbidden_arrows(&Source::new("store/ledger.rs", code));

            assert_eq!(found.len(), 1, "{code}");
            assert!(found[0].contains("is no module"), "{found:?}");
        }
    }

    #[test]
    fn every_name_of_a_group_is_seen_over_several_lines() {
        let code = "pub use crate::{\n    agent::{Agent, model::{A, B}},\n    tool,\n};";

        assert_eq!(names("runtime/mod.rs", code), ["agent", "tool"]);
    }

    #[test]
    fn a_path_in_the_middle_of_an_expression_is_an_arrow() {
        assert_eq!(
            names(
                "model/json.rs",
                "let x: crate::tool::Tool = $crate::agent::new();"
            ),
            ["tool", "agent"]
        );
    }

    #[test]
    fn visibility_macros_and_longer_names_are_not_imports() {
        let code = "pub(crate) fn a() { crate::store_conformance!(x); my_crate::tool(); supercrate::x(); }";

        assert_eq!(names("store/mod.rs", code), [""; 0]);
    }

    #[test]
    fn super_is_an_arrow_once_it_reaches_the_crate_root() {
        assert_eq!(names("model/event.rs", "use super::json;"), [""; 0]);
        assert_eq!(
            names("model/event.rs", "use super::super::store;"),
            ["store"]
        );
        assert_eq!(names("model/mod.rs", "use super::store;"), ["store"]);
        assert_eq!(
            names("clock.rs", "use super::{error, model::Event};"),
            ["error", "model"]
        );
        assert_eq!(
            names("store/memory/rows.rs", "use super::super::query;"),
            [""; 0]
        );
    }

    #[test]
    fn super_counts_from_inside_an_inline_module() {
        assert_eq!(names("clock.rs", "mod wall { use super::Clock; }"), [""; 0]);
        assert_eq!(
            names("clock.rs", "mod wall { use super::super::store; }"),
            ["store"]
        );
        assert_eq!(
            names("clock.rs", "mod wall {} fn f() { super::store::x() }"),
            ["store"]
        );
    }

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        let code = "a // crate::x\n/* /* b */ */ c \"d // \\\" e\" r#\"f \"g\"# '\"' 'h '\\'' i";
        let kept = blank_text(code);

        assert_eq!(kept.len(), code.len());
        assert_eq!(
            kept.split_whitespace().collect::<Vec<_>>(),
            ["a", "c", "'h", "i"]
        );
        assert_eq!(kept.find('\n'), code.find('\n'));
    }

    #[test]
    fn an_item_under_cfg_test_is_blanked_and_the_code_after_it_is_not() {
        let code =
            "#[cfg(test)]\nmod tests;\nuse a;\n#[cfg(test)]\nmod more {\n fn f() { x }\n}\nuse b;";
        let kept = blank_tests(code);

        assert_eq!(kept.len(), code.len());
        assert_eq!(
            kept.split_whitespace().collect::<Vec<_>>(),
            ["use", "a;", "use", "b;"]
        );
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(words("async_trait async fasync async", "async"), [12, 25]);
        assert_eq!(
            words("my::tokio::spawn(tokio::spawned)", "tokio::spawn"),
            [4]
        );
    }
}
