//! Statements that each connection has prepared under a name, and how to execute them by a message of its own.
//!
//! What is done for every run and every commit is to be planned once, whatever the parameters are: the driver lets the
//! server decide that, which plans for each time if it takes the plan for a good one. And a message can have more than
//! one statement in it, which is one round trip, but no parameters: so they are written into it here.

use super::column::{self, literal};
use super::{begin, lease, queue};
use crate::store::durable::tenant::Time;
use uuid::Uuid;

/// What each connection is told before it executes one of them: there have to be tables.
pub(super) fn statements() -> String {
    let (begin, lease) = (begin::statements(), lease::statement());
    format!("{begin}; {lease}; {}", queue::statement())
}

/// Begins a message: what follows in its transaction is planned once.
pub(super) const PLANNED_ONCE: &str = "SET LOCAL plan_cache_mode = force_generic_plan";

/// Where the clock is held, and how far it is moved, as `$2` and `$3` of [`clock`](super::tenant::clock).
pub(super) fn time(time: &Time) -> String {
    let held = time.held().map(|held| held.to_string());
    format!("{}, {}", held.as_deref().unwrap_or("NULL"), time.shift())
}

pub(super) fn id(id: Uuid) -> String {
    format!("'{id}'::uuid")
}

/// The name of an executor or a line, as it is kept.
pub(super) fn name(name: &str) -> String {
    literal(&column::name(name))
}

pub(super) fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(name).collect();
    format!("ARRAY[{}]::text[]", names.join(", "))
}

pub(super) fn numbers(numbers: impl Iterator<Item = i64>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    format!("ARRAY[{}]::bigint[]", numbers.join(", "))
}
