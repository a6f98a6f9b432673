//! Limits on the runs of one executor: the rate of starts ([`TokenBucket`]), the share of retries ([`RetryBudget`]), and a pause of
//! retries while every input fails ([`Breaker`]).
//!
//! This module reads no clock and does not wait: the time is an argument, and the scheduler acts on the results.

mod breaker;
mod bucket;
mod budget;

pub(super) use breaker::{Breaker, BreakerChange, OpenCircuit, Ticket, Trigger, trigger_of};
pub(super) use bucket::TokenBucket;
pub(super) use budget::RetryBudget;
