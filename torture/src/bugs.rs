//! Mistakes made on purpose in the crate under test, each of which a campaign has to find.

use crate::settings::{On, Settings, Workers};

/// A mistake, and the campaign that shows it.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// The name that the crate knows it by.
    pub name: &'static str,
    /// What is wrong.
    pub what: &'static str,
    /// Where a campaign has to find it.
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

/// All of them; those that every change is tried with come first.
pub const BUGS: [Bug; 18] = [
    bug(
        "no-token",
        "a commit does not ask for the token of the lease",
        |settings| settings.stops = 3,
    )
    .on(&[On::Sqlite, On::Postgres]),
    bug(
        "no-key",
        "an event that comes again makes a run again",
        |_| {},
    )
    .on(&[On::Sqlite, On::Postgres]),
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
            // A sweep finds what NATS has lost. The mistake also removes the sweep at the start.
            settings.looks = false;
        },
    )
    // A store delivers again what was committed after the saved position, which a kill leaves behind.
    .on(&[On::Nats]),
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
    bug(
        "late-committer",
        "positions of events are handed out before the lock is taken that is held until the commit",
        |settings| {
            settings.triggers = 1_500;
            settings.rate = 200;
        },
    )
    .on(&[On::Postgres]),
    bug(
        "nak-late",
        "a message is terminated by a worker that gives it up",
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
        "a reader of events continues after the newest one instead of the last one that it read",
        |settings| {
            settings.triggers = 1_500;
            settings.rate = 200;
        },
    )
    .on(&[On::Postgres]),
    bug(
        "payload-approval",
        "an approval counts by its payload alone",
        |settings| settings.payments = 200,
    )
    .on(&[On::Sqlite, On::Postgres]),
    bug("no-tenant", "a read does not ask whose it is", |settings| {
        settings.canary_every = 4
    })
    .on(&[On::Postgres]),
];

/// How many of them every change is tried with.
pub const SOME: usize = 3;

impl Bug {
    /// The environment variable that has it made.
    pub const VARIABLE: &'static str = "UX_BUG";

    /// The campaign that shows it: a short one, in which nothing is done to servers.
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
