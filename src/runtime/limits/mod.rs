//! Limits on the runs of one executor: the rate of starts ([`Bucket`]), the share of retries ([`Budget`]), and a pause of
//! retries while every input fails ([`Breaker`]).
//!
//! This module reads no clock and does not wait: the time is an argument, and the scheduler acts on the results.

mod breaker;
mod bucket;
mod budget;

pub(super) use breaker::{Breaker, Change, Open, Ticket, Trigger, trigger_of};
pub(super) use bucket::Bucket;
pub(super) use budget::Budget;
