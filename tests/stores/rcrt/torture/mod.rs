//! Campaigns against a server on which everything goes wrong by chance, with an oracle outside of it: what is asked is
//! written behind the store's back, an executor notes in a file that only grows when it begins and ends, and answers are
//! counted in the server itself, by the question they name.
//!
//! One seed each. `RCRT_SEEDS=20` runs the campaigns of twenty seeds.

mod frames;
mod killed;
mod oracle;
mod stage;

use std::env;

/// The seeds to run.
pub(super) fn seeds() -> impl Iterator<Item = u64> {
    let seeds = env::var("RCRT_SEEDS").ok();
    let seeds = seeds.map_or(1, |seeds| seeds.parse().unwrap());
    1..=seeds
}
