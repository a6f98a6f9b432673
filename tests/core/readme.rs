//! README.md: its program is `examples/hello.rs`, which prints the shown output. ARCHITECTURE.md: its reading path is correct.

use crate::child::run_alone;
use std::path::Path;

#[path = "../../examples/hello.rs"]
mod hello;

const README: &str = include_str!("../../README.md");
const ARCHITECTURE: &str = include_str!("../../ARCHITECTURE.md");
const HELLO: &str = include_str!("../../examples/hello.rs");
const MAX_LINES: usize = 150;

/// Returns the first fenced block after a marker.
fn block(marker: &str, fence: &str) -> &'static str {
    let (_, rest) = README.split_once(marker).unwrap();
    let (_, rest) = rest.split_once(fence).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn the_readme_has_at_most_150_lines() {
    assert!(README.lines().count() <= MAX_LINES);
}

#[test]
fn the_program_of_the_readme_is_the_example() {
    let program = block("## A complete program", "```rust\n");

    assert!(HELLO.ends_with(program), "{program}");
}

#[test]
fn the_program_of_the_readme_prints_the_output_that_it_shows() {
    let shown = block("--example hello`):", "```text\n");

    let output = run_alone(concat!(module_path!(), "::prints_the_output")).output();

    let printed = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(printed.contains(shown), "{printed}");
}

/// Prints the program's output, for the test above.
#[test]
fn prints_the_output() {
    hello::run().unwrap();
}

#[test]
fn the_path_from_event_to_commit_has_at_most_15_files_and_all_exist() {
    let (_, rest) = ARCHITECTURE.split_once("## From event to commit").unwrap();
    let (path, _) = rest.split_once("\n## ").unwrap();
    let links = path.split("](").skip(1);
    let files: Vec<&str> = links
        .filter_map(|link| Some(link.split_once(')')?.0))
        .collect();

    assert!((10..=15).contains(&files.len()), "{files:?}");
    for file in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        assert!(path.is_file(), "{file}");
    }
}
