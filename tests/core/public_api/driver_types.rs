//! Public signatures contain no driver types, so that a new major version of a driver breaks no user of this crate.

use crate::layers::{Source, is_word, item_end, report, sources, words};
use std::io;

/// Crates whose types stay private.
const DRIVERS: &[&str] = &[
    "async_nats",
    "genai",
    "handlebars",
    "http_body_util",
    "hyper",
    "hyper_util",
    "jiff",
    "jsonpath_rust",
    "jsonschema",
    "model2vec_rs",
    "regex",
    "reqwest",
    "rusqlite",
    "schemars",
    "serde_path_to_error",
    "serde_saphyr",
    "sha2",
    "sqlx",
    "tokio_util",
    "uuid",
];

/// Files with public types of another crate, each behind a feature for these types.
const BEHIND_A_FEATURE: &[(&str, &str)] = &[
    ("src/model/breadcrumb_id.rs", "uuid"),
    ("src/store/claim.rs", "uuid"),
    ("src/tool/typed.rs", "schemars"),
    ("src/workflow/json_schema.rs", "schemars"),
];

#[test]
fn no_public_signature_has_a_type_of_a_driver() -> io::Result<()> {
    let leaks: Vec<Leak> = sources()?.iter().flat_map(leaks).collect();

    let (gated, leaks): (Vec<Leak>, Vec<Leak>) = leaks
        .into_iter()
        .partition(|leak| BEHIND_A_FEATURE.contains(&(&*leak.file, leak.driver)));

    let leaks: Vec<String> = leaks.iter().map(Leak::line).collect();
    report("public signatures with a type of a driver", &leaks);
    for known in BEHIND_A_FEATURE {
        let is_used = |leak: &Leak| (&*leak.file, leak.driver) == *known;
        assert!(gated.iter().any(is_used), "{known:?} has no such type");
    }
    Ok(())
}

#[test]
fn the_scan_finds_the_public_signatures_of_the_crate() -> io::Result<()> {
    let files = sources()?;
    let found: usize = files.iter().map(|file| signatures(&file.code).len()).sum();

    assert!(found > 2_000, "{found} signatures in {} files", files.len());
    Ok(())
}

/// A public signature with a type of a driver.
struct Leak {
    file: String,
    at_line: usize,
    driver: &'static str,
}

impl Leak {
    fn line(&self) -> String {
        format!("{}:{}: {}", self.file, self.at_line, self.driver)
    }
}

fn leaks(file: &Source) -> Vec<Leak> {
    let imported = imported(&file.code);
    let leak = |(at, signature)| {
        Some(Leak {
            driver: driver_in(signature, &imported)?,
            file: file.name.clone(),
            at_line: file.line(at),
        })
    };
    signatures(&file.code)
        .into_iter()
        .filter_map(leak)
        .collect()
}

/// Returns the names that a file imports from drivers, each with its driver.
fn imported(code: &str) -> Vec<(&str, &'static str)> {
    let mut names = Vec::new();
    for at in words(code, "use") {
        let statement = until(&code[at + "use".len()..], &[';']).trim_start();
        let path = statement.trim_start_matches("::");
        let is_of = |driver: &&&str| {
            path.strip_prefix(**driver)
                .is_some_and(|rest| rest.starts_with("::"))
        };
        let Some(driver) = DRIVERS.iter().find(is_of) else {
            continue;
        };
        for word in path[driver.len()..].split(|c: char| !is_word(c)) {
            match word {
                // After `as`, only the next name is bound.
                "as" => {
                    names.pop();
                }
                "" | "_" | "self" => {}
                name => names.push((name, *driver)),
            }
        }
    }
    names
}

/// Returns the driver whose type a signature names.
fn driver_in(signature: &str, imported: &[(&str, &'static str)]) -> Option<&'static str> {
    let by_path = |driver: &&&str| {
        let is_path = |at: &usize| {
            begins_a_path(&signature[..*at]) && signature[at + driver.len()..].starts_with("::")
        };
        words(signature, driver).iter().any(is_path)
    };
    let by_name = |(name, _): &&(&str, &'static str)| {
        let is_named = |at: &usize| {
            let (before, after) = (&signature[..*at], &signature[at + name.len()..]);
            let is_type = name.starts_with(char::is_uppercase) && !begins_a_line(before);
            begins_a_path(before) && (is_type || after.starts_with("::"))
        };
        words(signature, name).iter().any(is_named)
    };
    let driver = DRIVERS.iter().find(by_path).copied();
    driver.or_else(|| Some(imported.iter().find(by_name)?.1))
}

/// Returns `true` if the next name is the first name of its path.
fn begins_a_path(before: &str) -> bool {
    let before = before.strip_suffix("::");
    before.is_none_or(|before| !before.ends_with(is_word))
}

/// Returns `true` if the next name is the first of its line, like the variants of enums.
fn begins_a_line(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default();
    before.contains('\n') && line.trim().is_empty()
}

/// Returns a file's public signatures with their offsets: items, fields, whole enums and traits, conversions to public types,
/// and the error types of parsers.
fn signatures(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for at in words(code, "pub") {
        if let Some(item) = code[at..].strip_prefix("pub ") {
            found.push((at, public_part(item)));
        }
    }
    for at in words(code, "impl") {
        let header = until(&code[at..], &['{', ';']);
        let is_item = code[..at].is_empty() || code[..at].ends_with('\n');
        if is_item && header.contains("From<") && !is_for_a_private_type(code, header) {
            found.push((at, header));
        }
    }
    for name in ["type Err", "type Error"] {
        let types = words(code, name).into_iter();
        found.extend(types.map(|at| (at, until(&code[at..], &[';']))));
    }
    found
}

/// Returns the public part of an item or a field. `item` is the text after its `pub`.
fn public_part(item: &str) -> &str {
    let keyword = item.split(|c: char| !is_word(c)).next().unwrap_or_default();
    match keyword {
        "enum" | "trait" => &item[..item_end(item)],
        "struct" => until(item, &['{', '(', ';']),
        "type" | "use" => until(item, &[';']),
        "const" | "static" if !item.starts_with("const fn ") => until(item, &['=']),
        "async" | "const" | "fn" | "mod" => until(item, &['{', ';']),
        _ => until(item, &[',', ')', '}']),
    }
}

/// Returns the text before the first of `ends` that is not in brackets.
fn until<'c>(text: &'c str, ends: &[char]) -> &'c str {
    let (mut depth, mut before) = (0_usize, ' ');
    for (at, c) in text.char_indices() {
        if depth == 0 && ends.contains(&c) {
            return &text[..at];
        }
        match c {
            '(' | '[' | '<' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = c;
    }
    text
}

/// Returns `true` if the file declares the type of an `impl .. for` without `pub`.
fn is_for_a_private_type(code: &str, header: &str) -> bool {
    let target = header.split_once(" for ").map_or("", |(_, target)| target);
    let name = target
        .split(|c: char| !is_word(c))
        .find(|name| !name.is_empty());
    name.is_some_and(|name| {
        ["enum", "struct"].iter().any(|keyword| {
            words(code, &format!("{keyword} {name}"))
                .iter()
                .any(|at| !code[..*at].ends_with("pub "))
        })
    })
}

mod scanner {
    use super::{Source, leaks};

    fn found(code: &str) -> Vec<String> {
        let file = Source::new("store/file.rs", code);
        leaks(&file).iter().map(super::Leak::line).collect()
    }

    #[test]
    fn each_kind_of_public_signature_is_scanned() {
        for code in [
            "pub fn of(error: sqlx::Error) -> Self {}",
            "impl A {\n    pub async fn get(\n        &self,\n    ) -> Result<(), ::reqwest::Error> {}\n}",
            "pub struct A {\n    pub client: reqwest::Client,\n    name: String,\n}",
            "pub struct A(pub uuid::Uuid);",
            "pub enum E {\n    A {\n        source: rusqlite::Error,\n    },\n}",
            "pub trait T {\n    fn url(&self) -> reqwest::Url;\n}",
            "pub type Id = uuid::Uuid;",
            "pub const NIL: uuid::Uuid = x();",
            "pub use regex::Regex;",
            "pub struct E;\nimpl From<sqlx::Error> for E {\n}",
            "impl From<E> for uuid::Uuid {}",
            "impl FromStr for Id {\n    type Err = uuid::Error;\n}",
        ] {
            assert_eq!(found(code).len(), 1, "{code}");
        }
    }

    #[test]
    fn imported_names_lead_to_their_drivers() {
        for (code, driver) in [
            (
                "use reqwest::{Client, Url};\npub fn a(url: &Url) {}",
                "reqwest",
            ),
            (
                "use sqlx::Error as Failed;\npub fn a() -> Failed {}",
                "sqlx",
            ),
            ("use hyper::body;\npub fn a(b: body::Incoming) {}", "hyper"),
            (
                "use async_nats::jetstream::{self, stream::Stream};\npub fn a(_: &jetstream::Context) {}",
                "async_nats",
            ),
        ] {
            assert_eq!(found(code), [format!("src/store/file.rs:2: {driver}")]);
        }
    }

    #[test]
    fn private_items_may_use_driver_types() {
        for code in [
            "pub(super) fn of(error: sqlx::Error) -> Self {}",
            "pub fn a() -> Result<(), E> { let error: sqlx::Error = b(); }",
            "pub struct A {\n    client: reqwest::Client,\n    pub name: String,\n}",
            "pub struct A(uuid::Uuid);",
            "pub const LIMIT: usize = reqwest::limit();",
            "pub(super) enum Fault {}\nimpl From<sqlx::Error> for Fault {\n}",
            "pub use self::genai::GenaiModel;",
            "use sqlx::{Connection as _, Error as Failed};\npub fn a(_: Connection) -> Error {}",
            "use regex::Regex;\npub enum E {\n    Regex {\n        reason: String,\n    },\n}",
            "/// See [`sqlx::Error`].\npub fn a() {}",
        ] {
            assert_eq!(found(code), [""; 0], "{code}");
        }
    }
}
