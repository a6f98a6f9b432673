//! Limits on the runs of one executor: the rate of starts ([`Bucket`]), the share of retries ([`Budget`]), and a pause of
//! retries while every input fails ([`Breaker`]).
//!
//! Nothing here reads a clock or waits: the moment is an argument, and what to do about an answer is up to the worker.

mod breaker;
mod bucket;
mod budget;

pub(super) use breaker::{Breaker, Change, Open, Ticket, Trigger, trigger_of};
pub(super) use bucket::Bucket;
pub(super) use budget::Budget;
