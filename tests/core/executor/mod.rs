//! Executors on the memory store: their contexts, their runs, and the runtime.

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
