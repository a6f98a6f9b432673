//! README.md: its program is `examples/hello.rs`, and prints the output that it shows.

use crate::child::run_alone;

#[path = "../../examples/hello.rs"]
mod hello;

const README: &str = include_str!("../../README.md");
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

/// Prints the output of the program, for the test above.
#[test]
fn prints_the_output() {
    hello::run().unwrap();
}
