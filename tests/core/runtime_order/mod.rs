//! Guarantees of a runtime under load: order, bounds, retries, random faults, loops and shutdown.

mod bounds;
mod budget;
mod cancelled;
mod causes;
mod chaos;
mod dropped;
mod faults;
mod harness;
mod loops;
mod order;
mod owners;
mod paused;
mod redelivery;
mod requested;
mod retries;
mod seeds;
mod shutdown;
