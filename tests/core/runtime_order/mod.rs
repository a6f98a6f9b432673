//! What a runtime keeps when much happens at a time: order, bounds, retries, chaos, loops, faults and the end.

mod bounds;
mod budget;
mod cancelled;
mod causes;
mod chaos;
mod dropped;
mod faults;
mod loops;
mod order;
mod owners;
mod paused;
mod requested;
mod retries;
mod seeds;
mod shutdown;
mod stage;
mod taken_back;
