//! What keeps one executor from starting too much: how often its runs may start ([`Bucket`]), how many of them may be
//! retries ([`Budget`]), and whether it is worth starting any ([`Breaker`]).
//!
//! Nothing here reads a clock or waits: the moment is an argument, and what to do about an answer is up to the worker.
#![cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "nothing in the runtime asks for a limit yet; to be removed with the first that does"
    )
)]
#![expect(
    unused_imports,
    reason = "nothing in the runtime asks for a limit yet; to be removed with the first that does"
)]

mod breaker;
mod bucket;
mod budget;

pub(super) use breaker::{Allowed, Breaker, Ticket};
pub(super) use bucket::{BadRate, Bucket, Rate};
pub(super) use budget::Budget;
