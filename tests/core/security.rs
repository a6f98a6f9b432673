//! docs/reference/security.md: each claim names an existing test, and each limit names a remedy.
//!
//! A claim is a paragraph that starts with bold text, and a limit is a list item that starts with bold text. `Test:` or `Tests:`
//! introduces the names: a token in code font that ends with `.rs` is a file, and the tokens after it are tests in that file.

use std::fs;
use std::path::Path;

const DOCUMENT: &str = include_str!("../../docs/reference/security.md");
const MARKERS: [&str; 2] = ["Test: ", "Tests: "];
const REMEDY: &str = "*Remedy:* ";
/// Minimum number of claims in the document. Without it, the check would pass for a document with another layout.
const FEWEST: usize = 30;

#[test]
fn every_claim_names_a_test_that_exists() {
    let problems = problems(DOCUMENT, read);

    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_check_finds_the_claims_and_the_limits() {
    let (claims, limits) = parts(DOCUMENT);

    assert!(claims.len() >= FEWEST, "{} claims", claims.len());
    assert!(!limits.is_empty());
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).ok()
}

/// Returns the claims and the limits, each on one line.
fn parts(document: &str) -> (Vec<String>, Vec<String>) {
    let document = document.replace("\n- ", "\n\n- ");
    let blocks = document.split("\n\n").map(|block| block.split_whitespace());
    let blocks = blocks.map(|words| words.collect::<Vec<_>>().join(" "));
    let (limits, others): (Vec<_>, Vec<_>) = blocks.partition(|block| block.starts_with("- **"));
    let claims = others.into_iter().filter(|block| block.starts_with("**"));
    (claims.collect(), limits)
}

/// Returns the text after the marker of the test names.
fn tests_of(part: &str) -> Option<&str> {
    MARKERS
        .iter()
        .find_map(|marker| Some(part.rsplit_once(marker)?.1))
}

/// Returns the tokens in code font.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns one line for each claim without a test, each test that does not exist and each limit without a remedy.
fn problems(document: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let (claims, limits) = parts(document);
    let untested = claims.iter().filter(|claim| {
        let mut names = tokens(tests_of(claim).unwrap_or_default());
        !names.any(|name| !name.ends_with(".rs"))
    });
    let mut problems: Vec<String> = untested
        .map(|claim| format!("a claim names no test: {claim}"))
        .collect();
    let helpless = limits.iter().filter(|limit| !limit.contains(REMEDY));
    problems.extend(helpless.map(|limit| format!("a limit names no remedy: {limit}")));
    for names in claims
        .iter()
        .chain(&limits)
        .filter_map(|part| tests_of(part))
    {
        let mut file = None;
        for token in tokens(names) {
            if token.ends_with(".rs") {
                file = read(token);
                if file.is_none() {
                    problems.push(format!("no such file: {token}"));
                }
            } else if !file.as_deref().is_some_and(|file| has_test(file, token)) {
                problems.push(format!("no such test in the file before it: {token}"));
            }
        }
    }
    problems
}

/// Returns `true` if a source file has a test function with this name that is not ignored.
fn has_test(file: &str, name: &str) -> bool {
    let signature = format!("fn {name}(");
    let mut places = file.match_indices(&signature);
    places.any(|(at, _)| {
        let before = file.get(..at).unwrap_or_default();
        let item = before.rsplit_once("\n\n").map_or(before, |(_, item)| item);
        let is_test = item.contains("#[test]") || item.contains("#[tokio::test");
        is_test && !item.contains("#[ignore")
    })
}

#[test]
fn a_claim_without_a_test_and_a_test_that_does_not_exist_are_found() {
    let file = "#[test]\nfn held() {\n}\n\nfn helper() {}\n\n#[test]\n#[ignore]\nfn ignored() {}\n";
    let read = |path: &str| (path == "a.rs").then(|| file.to_owned());
    let found = |document: &str| problems(document, read);

    assert_eq!(
        found("# T\n\n**It holds.** Text.\nTest: `a.rs` `held`.\n"),
        [""; 0]
    );
    assert_eq!(
        found("- **It has a limit.** *Remedy:* Do it.\n- Other.\n"),
        [""; 0]
    );
    for (document, problem) in [
        ("**It holds.** Text.\n", "a claim names no test"),
        (
            "**It holds.** Text.\nTest: `a.rs`.\n",
            "a claim names no test",
        ),
        (
            "**It holds.**\nTest: `b.rs` `held`.\n",
            "no such file: b.rs",
        ),
        (
            "**It holds.**\nTest: `a.rs` `hel`.\n",
            "no such test in the file before it: hel",
        ),
        ("**It holds.**\nTest: `a.rs` `helper`.\n", "no such test"),
        ("**It holds.**\nTest: `a.rs` `ignored`.\n", "no such test"),
        ("- **It has a limit.** Text.\n", "a limit names no remedy"),
    ] {
        let problems = found(document);
        assert!(
            problems.iter().any(|found| found.contains(problem)),
            "{document}: {problems:?}"
        );
    }
}
