//! What keeps one executor from starting too much: how often its runs may start ([`Bucket`]), how many of them may be
//! retries ([`Budget`]), and whether it is worth starting any ([`Breaker`]).
//!
//! Nothing here reads a clock or waits: the moment is an argument, and what to do about an answer is up to the worker.

mod breaker;
mod bucket;
mod budget;

pub(super) use breaker::{Allowed, Breaker, Ticket};
pub(super) use bucket::Bucket;
pub(super) use budget::Budget;
