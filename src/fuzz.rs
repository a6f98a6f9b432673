//! The number of cases that the fuzz tests of parsers run. `scripts/fuzz` finds these tests by their use of [`config`].

use proptest::test_runner::Config;

/// Cases per test if `FUZZ_CASES` is not set.
const CASES: u32 = 1_000;

/// Returns a configuration with as many cases as the environment variable `FUZZ_CASES` says.
///
/// `make fuzz` sets it to a million.
pub(crate) fn config() -> Config {
    let cases = std::env::var("FUZZ_CASES").ok();
    Config::with_cases(cases.map_or(CASES, |cases| cases.parse().unwrap()))
}
