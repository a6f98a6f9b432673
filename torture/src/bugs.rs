//! Mistakes made on purpose in the crate under test, each of which a campaign has to find.

use crate::settings::{Settings, Workers};

/// A mistake, and the campaign that shows it.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// The name that the crate knows it by.
    pub name: &'static str,
    /// What is wrong.
    pub what: &'static str,
    campaign: fn(&mut Settings),
}

const fn bug(name: &'static str, what: &'static str, campaign: fn(&mut Settings)) -> Bug {
    Bug {
        name,
        what,
        campaign,
    }
}

/// All of them; those that every change is tried with come first.
pub const BUGS: [Bug; 12] = [
    bug(
        "no-token",
        "a commit does not ask for the token of the lease",
        |settings| settings.stops = 3,
    ),
    bug(
        "no-key",
        "an event that comes again makes a run again",
        |_| {},
    ),
    bug(
        "context-first",
        "a context subscription hides a trigger",
        |_| {},
    ),
    bug(
        "ack-first",
        "a delivery is acknowledged before its runs are in the ledger",
        |settings| settings.each_point = 3,
    ),
    bug(
        "blind-retry",
        "a commit without an answer is made again without looking",
        |settings| settings.faults = 50,
    ),
    bug(
        "late-count",
        "an attempt counts when it fails, not when it begins",
        |settings| settings.poison = 1,
    ),
    bug(
        "own-clock",
        "a lease goes by the clock of its worker",
        |_| {},
    ),
    bug(
        "drop-at-drain",
        "what runs is dropped when a worker is told to end",
        |settings| settings.each_point = 1,
    ),
    bug(
        "payload-hops",
        "the length of a chain is taken from the payload",
        |settings| settings.loops = 2,
    ),
    bug(
        "no-lines",
        "runs of one ordering key go side by side",
        |_| {},
    ),
    bug(
        "more-than-once",
        "what may run at most once is run again",
        |settings| settings.each_point = 2,
    ),
    bug(
        "unbounded-inbox",
        "deliveries are taken in without a bound",
        |settings| {
            settings.backlog = 8_000;
            settings.faults = 0;
        },
    ),
];

/// How many of them every change is tried with.
pub const SOME: usize = 3;

impl Bug {
    /// The environment variable that has it made.
    pub const VARIABLE: &'static str = "UX_BUG";

    /// The campaign that shows it: a short one.
    pub fn campaign(&self, seed: u64) -> Settings {
        let mut settings = Settings {
            triggers: 400,
            workers: Workers {
                killed: 1,
                stopped: 1,
                pointed: 1,
            },
            kills: 0,
            stops: 0,
            each_point: 0,
            locks: 0,
            poison: 0,
            loops: 0,
            patience: 8_000,
            bug: Some(self.name.to_owned()),
            ..Settings::ci(seed)
        };
        (self.campaign)(&mut settings);
        settings
    }
}
