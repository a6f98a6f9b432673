//! Whether a bench is to measure.

use std::env;

pub(crate) fn is_quick() -> bool {
    let has = |flag: &str| env::args().any(|argument| argument == flag);
    let asked = env::var_os("BENCH_QUICK").is_some_and(|value| value == "1");
    asked || has("--quick") || has("--test") || !has("--bench")
}
