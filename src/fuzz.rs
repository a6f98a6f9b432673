//! Support for fuzz tests: the number of cases, generators for the crate's formats, and limits on each case.
//!
//! There are two kinds of tests. `scripts/fuzz` finds both by their use of this module:
//! - property tests with [`config`], next to the code that they test,
//! - structured tests with [`structured`]. Their inputs are almost valid: a [`Shape`] writes a format and mixes in the
//!   [`known`] bad parts. Each case has a limit on CPU time, memory and stack.

#[cfg_attr(
    not(feature = "workflows"),
    allow(dead_code, reason = "a part is only for tests with workflows")
)]
mod agents;
mod harness;
mod json;
mod known;
mod shape;
mod tape;
mod tests;
mod vocabulary;
#[allow(
    dead_code,
    reason = "most readers of these formats belong to optional features"
)]
mod wire_formats;
mod words;
#[cfg(feature = "workflows")]
mod workflows;

pub(crate) use harness::structured;
pub(crate) use json::{Bytes, any_json, bytes};
pub(crate) use shape::Shape;
pub(crate) use tape::Tape;
pub(crate) use vocabulary::CONTEXT;
#[allow(
    unused_imports,
    reason = "most readers of these formats belong to optional features"
)]
pub(crate) use wire_formats::{CHUNK, SENT_CALL, SERVER_ANSWER, event_stream};

use proptest::test_runner::Config;

/// Default number of generated cases for each fuzz test. The environment variable `FUZZ_CASES` overrides the number.
const CASES: u32 = 500;

/// Returns the `proptest` configuration of a fuzz test. The environment variable `FUZZ_CASES` sets the number of cases.
///
/// `make fuzz` sets the variable to one million.
pub(crate) fn config() -> Config {
    let cases = std::env::var("FUZZ_CASES").ok();
    Config {
        // By default, the number would decrease with the number of cases, and failures would not be shrunk to the end.
        max_shrink_iters: 4_000,
        ..Config::with_cases(cases.map_or(CASES, |cases| cases.parse().unwrap()))
    }
}
