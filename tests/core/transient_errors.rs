//! The documentation of errors names the same errors as the code that decides on retries.

const DOCS: &str = include_str!("../../src/error.rs");
const CODE: &str = include_str!("../../src/executor/error.rs");

/// Returns the names of errors in the code that reads their verdicts, in order.
fn in_code() -> Vec<&'static str> {
    let (_, body) = CODE.split_once("fn own_retry(").unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    let by_method = body.split("of(error, ").skip(1);
    let names = by_method.filter_map(|call| {
        let name = call.trim_start_matches("|_: &");
        let end = name.find(|c: char| !c.is_alphanumeric())?;
        Some(&name[..end])
    });
    names.collect()
}

/// Returns the names of errors in the list of the module documentation, in order.
fn in_docs() -> Vec<&'static str> {
    let list = DOCS
        .lines()
        .skip_while(|line| !line.starts_with("//! - by its"));
    let list = list.take_while(|line| line.trim() != "//!");
    let words = list.flat_map(|line| line.split('`').skip(1).step_by(2));
    words
        .filter(|word| word.ends_with("Error") || *word == "InvalidExecutor")
        .collect()
}

#[test]
fn the_documented_errors_that_decide_on_a_retry_are_those_of_the_code() {
    let (code, docs) = (in_code(), in_docs());

    assert!(code.len() >= 10 && code.contains(&"StoreError"), "{code:?}");
    assert_eq!(docs, code);
}

#[test]
fn the_documented_number_of_inspected_sources_is_that_of_the_code() {
    let (_, rest) = CODE.split_once("fn verdict(error").unwrap();
    let (_, rest) = rest.split_once("const DEPTH: usize = ").unwrap();
    let (depth, _) = rest.split_once(';').unwrap();
    let depth: usize = depth.parse().unwrap();

    // The error itself is one level.
    assert!(DOCS.contains(&format!("up to {} sources", depth - 1)));
}
