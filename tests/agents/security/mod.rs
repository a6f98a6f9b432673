//! Attacks on agents: by a model that obeys every order in its context, and by other writers in the tenant.
//!
//! `docs/reference/security.md` lists the claims that these tests prove. `security` is also the name of the modules with attacks in
//! the other test binaries.

mod bound;
mod flooded;
mod forged;
mod injected;
mod kept;
mod model;
mod nested_json;
mod requested;
mod stamped;
mod world;

use crate::support::log::Log;
use std::collections::HashSet;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::format::FmtSpan;

/// A name, and a function that creates the value.
type Named<T> = (&'static str, fn() -> T);

/// Captures all log lines of this thread.
fn capture() -> (Log, DefaultGuard) {
    Log::capture(tracing::Level::TRACE, FmtSpan::NEW | FmtSpan::CLOSE)
}

/// Minimum number of attacks.
const FEWEST: usize = 200;

#[test]
fn there_are_enough_attacks_and_no_two_are_the_same() {
    let families = [
        ("injected", injected::cases()),
        ("forged", forged::cases()),
        ("requested", requested::cases()),
        ("stamped", stamped::cases()),
        ("kept", kept::cases()),
    ];
    let all: usize = families.iter().map(|(_, cases)| cases.len()).sum();
    let names: HashSet<_> = families.iter().flat_map(|(_, cases)| cases).collect();

    for (family, cases) in &families {
        println!("{family}: {} attacks", cases.len());
    }
    println!("together: {all} attacks");

    assert_eq!(names.len(), all);
    for (family, cases) in &families {
        assert!(!cases.is_empty(), "{family}");
    }
    // Most injections are one attack at many positions, so the number of other attacks has a separate minimum.
    let others = all - injected::cases().len();
    assert!(
        all >= FEWEST && others >= FEWEST,
        "{all} attacks, {others} of them are not injections"
    );
}
