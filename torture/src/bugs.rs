//! Planted bugs in the crate under test, each with the campaign that must detect it.

use crate::settings::{On, Settings, Workers};

/// A planted bug, and the campaign that must detect it.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// Name of the bug in the crate.
    pub name: &'static str,
    /// Description of the bug.
    pub what: &'static str,
    /// Stores on which a campaign must detect the bug.
    pub on: &'static [On],
    campaign: fn(&mut Settings),
}

const fn bug(name: &'static str, what: &'static str, campaign: fn(&mut Settings)) -> Bug {
    Bug {
        name,
        what,
        on: &[On::Sqlite],
        campaign,
    }
}

impl Bug {
    const fn on(self, on: &'static [On]) -> Self {
        Self { on, ..self }
    }
}

/// All planted bugs. The first [`SOME`] are tested with every change.
pub const BUGS: [Bug; 18] = [
    bug(
        "no-token",
        "a commit does not check the token of the lease",
        |settings| settings.stops = 3,
    )
    .on(&[On::Sqlite, On::Postgres]),
    bug("no-key", "a repeated event creates a second run", |_| {}).on(&[On::Sqlite, On::Postgres]),
    bug(
        "context-first",
        "a context subscription hides a trigger",
        |_| {},
    ),
    bug(
        "ack-first",
        "a delivery is acknowledged before its runs are in the ledger",
        |settings| {
            settings.each_point = 3;
            // A sweep finds events that NATS has lost. The bug also removes the sweep at the start.
            settings.looks = false;
        },
    )
    // Only NATS: a store redelivers all events after the saved position, so a kill loses none of them.
    .on(&[On::Nats]),
    bug(
        "blind-retry",
        "a commit without an answer is repeated without a check of its outcome",
        |settings| settings.faults = 50,
    ),
    bug(
        "late-count",
        "an attempt is counted when it fails, not when it starts",
        |settings| settings.poison = 1,
    ),
    bug(
        "own-clock",
        "a lease expires by the clock of its worker",
        |_| {},
    ),
    bug(
        "drop-at-drain",
        "running work is dropped when a worker receives SIGTERM",
        |settings| settings.each_point = 1,
    ),
    bug(
        "payload-hops",
        "the length of a chain is read from the payload",
        |settings| settings.loops = 2,
    ),
    bug(
        "no-lines",
        "runs with the same ordering key run in parallel",
        |_| {},
    ),
    bug(
        "more-than-once",
        "an at-most-once run is executed again",
        |settings| settings.each_point = 2,
    ),
    bug(
        "unbounded-inbox",
        "the number of unacknowledged deliveries has no bound",
        |settings| {
            settings.backlog = 8_000;
            settings.faults = 0;
        },
    ),
    bug(
        "late-committer",
        "positions of events are assigned before the lock is taken that is held until the commit",
        |settings| {
            settings.triggers = 1_500;
            settings.rate = 200;
        },
    )
    .on(&[On::Postgres]),
    bug(
        "nak-late",
        "a worker terminates a message that it should release",
        |settings| {
            settings.faults = 50;
            settings.looks = false;
        },
    )
    .on(&[On::Nats]),
    bug(
        "skip-unmatched",
        "a worker ends a run that another version of its executor matches",
        |_| {},
    )
    .on(&[On::Sqlite, On::Postgres]),
    bug(
        "hasty-reader",
        "a reader of events continues after the newest event instead of the last one that it read",
        |settings| {
            settings.triggers = 1_500;
            settings.rate = 200;
        },
    )
    .on(&[On::Postgres]),
    bug(
        "payload-approval",
        "an approval is accepted by its payload alone",
        |settings| settings.payments = 200,
    )
    .on(&[On::Sqlite, On::Postgres]),
    bug(
        "no-tenant",
        "a read does not filter by tenant",
        |settings| settings.canary_every = 4,
    )
    .on(&[On::Postgres]),
];

/// Number of bugs that are tested with every change.
pub const SOME: usize = 3;

impl Bug {
    /// Environment variable that turns a bug on.
    pub const VARIABLE: &'static str = "UX_BUG";

    /// Returns the campaign that detects the bug: a short one without faults of servers.
    pub fn campaign(&self, seed: u64, on: On) -> Settings {
        let mut settings = Settings {
            on,
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
