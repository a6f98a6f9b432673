//! Size of a measurement: complete, or one tiny round as a test of the bench itself.

use std::env;

pub(crate) fn is_quick() -> bool {
    let has = |flag: &str| env::args().any(|argument| argument == flag);
    let asked = env::var_os("BENCH_QUICK").is_some_and(|value| value == "1");
    asked || has("--quick") || has("--test") || !has("--bench")
}

/// Returns the number of rounds: the environment variable `BENCH_ROUNDS`, or `default` without a number of at least 1 in it.
///
/// `scripts/bench-against` repeats whole programs, so it needs only one round of each.
#[allow(dead_code, reason = "some benches have a fixed number of rounds")]
pub(crate) fn rounds(default: usize) -> usize {
    let wanted = env::var("BENCH_ROUNDS").ok();
    let wanted = wanted.and_then(|rounds| rounds.parse().ok());
    wanted.filter(|rounds| *rounds > 0).unwrap_or(default)
}
