//! Machine-readable output for `scripts/bench-against`.
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::env;

/// Prints the line `figure <name> <value> <unit>` if the environment variable `BENCH_FIGURES` is `1`.
///
/// The printed name has no spaces: lowercase letters, digits, `/`, `.` and `_` are retained, and every other sequence of
/// characters becomes `-`. The unit is one word, such as `ns`, `ms` or `per_s`.
pub(crate) fn figure(name: &str, value: f64, unit: &str) {
    if env::var_os("BENCH_FIGURES").is_some_and(|value| value == "1") {
        println!("figure {} {value} {unit}", one_word(name));
    }
}

fn one_word(name: &str) -> String {
    let is_retained = |c: char| c.is_ascii_alphanumeric() || "/._".contains(c);
    let words = name.split(|c| !is_retained(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-").to_lowercase()
}
