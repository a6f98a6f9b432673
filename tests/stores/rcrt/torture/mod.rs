//! Campaigns against a server with random faults, checked by an oracle outside the store. Questions are written behind the store's
//! back, executors record their starts and ends in a file that only grows, and answers are counted on the server by their question.
//!
//! Each campaign has one seed. `RCRT_SEEDS=20` runs the campaigns with 20 seeds.

mod frames;
mod harness;
mod killed;
mod oracle;

use std::env;

/// Returns the seeds to run.
pub(super) fn seeds() -> impl Iterator<Item = u64> {
    let seeds = env::var("RCRT_SEEDS").ok();
    let seeds = seeds.map_or(1, |seeds| seeds.parse().unwrap());
    1..=seeds
}
