//! Executors on the memory store: what they are given, what becomes of their runs, and what runs them.

mod agents;
mod closures;
mod context;
mod endings;
mod for_model;
mod process_ledger;
mod runs;
mod runtime;
mod tools_and_agents;
mod unseen;
mod with_ledger;
