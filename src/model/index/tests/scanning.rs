//! Tests that compare the scanner with the parser.

use super::context_text;
use crate::model::Json;
use crate::model::index::paths::Paths;
use crate::model::index::scan::scan;
use crate::model::path::Path;
use proptest::prelude::*;
use serde_json::Value;

const LOOKED_AT: [&str; 7] = ["$", "x", "x.y", "y", "z[0]", "z[-1].y", "['a\"b']"];

fn paths() -> (Paths, Vec<Path>) {
    let mut paths = Paths::default();
    let looked_at: Vec<Path> = LOOKED_AT.map(|path| Path::parse(path).unwrap()).into();
    for path in &looked_at {
        paths.acquire(path.steps().unwrap());
    }
    (paths, looked_at)
}

/// Asserts that the values of the scanner equal those of the parser. Returns `false` if the scanner leaves the text to the parser.
fn agrees(text: &str) -> bool {
    let (paths, looked_at) = paths();
    let Some(values) = scan(text, &paths) else {
        return false;
    };
    let value: Value = Json::from_text(text).unwrap().into_value();
    for path in &looked_at {
        let number = paths.find(path.steps().unwrap()).unwrap();
        let scanned = values.iter().find(|scanned| scanned.path() == number);
        let found = scanned.map(|scanned| scanned.value().unwrap());
        assert_eq!(found, path.first(&value).unwrap(), "{path:?} in {text}");
    }
    true
}

#[test]
fn ordinary_text_is_scanned_and_ambiguous_text_needs_the_parser() {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    for (text, scanned) in [
        (
            r#"{"x":{"y":1.5e-7},"y":"a \" b \\","z":[{"y":1},{"y":[]}]}"#,
            true,
        ),
        (
            r#"{"x":"\ud83d\ude00","n":123456789012345678901234567890}"#,
            true,
        ),
        (r#" { "x" : { } , "z" : [ ] } "#, true),
        (&nested(64), true),
        (&nested(65), false),
        (&nested(100_000), false),
        ("1e400", false),
        (r#""\ud800""#, false),
        (r#""\ud800\u0041""#, false),
        (r#"{"x":1,"x":2}"#, false),
        (&"9".repeat(400), false),
    ] {
        assert_eq!(agrees(text), scanned, "{text:.80}");
    }
}

#[test]
fn a_path_is_forgotten_with_its_last_use() {
    let (mut paths, looked_at) = paths();
    let x = paths.find(Path::parse("x").unwrap().steps().unwrap());
    paths.acquire(Path::parse("x").unwrap().steps().unwrap());

    for path in &looked_at {
        paths.release(path.steps().unwrap());
    }

    assert_eq!(paths.find(Path::parse("x").unwrap().steps().unwrap()), x);
    assert_eq!(
        paths.find(Path::parse("x.y").unwrap().steps().unwrap()),
        None
    );
    paths.release(Path::parse("x").unwrap().steps().unwrap());
    assert!(paths.is_empty());
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn scanning_a_text_finds_the_same_values_as_parsing(text in context_text()) {
        agrees(&text);
    }

    #[test]
    fn no_text_at_all_makes_it_panic_or_loop(text in r#"[\[\]{},:"\\a-f0-9eExyzu+.\- é]{0,24}"#) {
        let (paths, _) = paths();
        match serde_json::from_str::<&serde_json::value::RawValue>(&text) {
            Ok(_) => { agrees(&text); }
            Err(_) => drop(scan(&text, &paths)),
        }
    }
}
