//! What a campaign does, and how much of it. Kept in a file for the workers to read.

use crate::BoxError;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Which store is tortured, and where its events come from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum On {
    /// SQLite, which offers its events.
    Sqlite,
    /// PostgreSQL, which offers its events.
    Postgres,
    /// PostgreSQL, with events through NATS.
    Nats,
}

/// The size of a campaign. Times are in milliseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Settings {
    /// Where all that is random begins.
    pub seed: u64,
    /// What is tortured.
    pub on: On,
    /// How many triggers are written at the least; more if the faults take longer.
    pub triggers: u64,
    /// How many of them are there before any worker is.
    pub backlog: u64,
    /// How many triggers a second.
    pub rate: u64,
    /// More runs than these wait: no more triggers for a while.
    pub behind: usize,
    /// Workers that are killed at random moments, stopped, and killed at chosen points.
    pub workers: Workers,
    /// Kills at random moments.
    pub kills: u64,
    /// The least and the most time between two kills of one worker.
    pub kill_every: (u64, u64),
    /// How often a worker is stopped past its leases and let go again.
    pub stops: u64,
    /// How often a worker is killed at each of the points.
    pub each_point: u64,
    /// Number of jumps of the clock, by an hour or a day.
    #[serde(default)]
    pub jumps: u64,
    /// How often another process locks the store, and for how long.
    pub locks: u64,
    /// How long each lock holds, or how long a server may take until it is back.
    pub lock_for: u64,
    /// What is done to servers, and on the way to them.
    pub servers: Harms,
    /// After every so many triggers one is written for another tenant, which no worker may ever see.
    pub canary_every: u64,
    /// Nobody is told of anything: what there is to do is found by looking.
    pub deaf: bool,
    /// Whether workers look into the store for what no event told.
    pub looks: bool,
    /// Whether what comes through NATS is backed by the events of the store.
    pub backed: bool,
    /// Triggers that abort whoever executes them.
    pub poison: u64,
    /// Chains of executors that would never end.
    pub loops: u64,
    /// Of so many triggers in 1,000 each asks for a payment. Half of these payments have a forged approval.
    pub payments: u32,
    /// How long a payment waits for the approval, in seconds.
    pub approval_seconds: u32,
    /// Of so many calls of the store in 1,000 the answer is an error, before or after it was done.
    pub faults: u32,
    /// How long a claim holds.
    pub lease: u64,
    /// How often a worker looks for runs of workers that died.
    pub sweep: u64,
    /// How long running work may take to finish when a worker is told to stop.
    pub drain: u64,
    /// How long without any progress until what is left counts as stuck.
    pub patience: u64,
    /// Which mistake is made on purpose.
    pub bug: Option<String>,
}

/// How many worker processes there are of each kind.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Workers {
    /// Those that are killed at random moments.
    pub killed: usize,
    /// Those that are stopped and let go on.
    pub stopped: usize,
    /// Those that are killed at chosen points, and told to stop in between.
    pub pointed: usize,
}

/// How often what is done to servers, and on the way to them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Harms {
    /// PostgreSQL ends as in a crash, and is started again.
    pub postgres_restarts: u64,
    /// NATS is killed, and started again.
    pub nats_restarts: u64,
    /// The stream of NATS is deleted.
    pub streams_deleted: u64,
    /// The most seconds that a server is down.
    pub down: f64,
    /// Of so many commits the answer is lost.
    pub answers_lost: u64,
    /// All connections to PostgreSQL are cut.
    pub cuts: u64,
    /// All connections to PostgreSQL are slow for a while.
    pub slow: u64,
    /// The least and the most milliseconds between two of these, of which restarts come more seldom.
    pub every: (u64, u64),
    /// The least and the most milliseconds between two restarts.
    pub restart_every: (u64, u64),
}

impl Settings {
    /// Half a minute: for every change.
    pub fn ci(seed: u64) -> Self {
        Self {
            seed,
            on: On::Sqlite,
            triggers: 2_000,
            backlog: 0,
            rate: 100,
            behind: 1_500,
            workers: Workers {
                killed: 2,
                stopped: 1,
                pointed: 1,
            },
            kills: 12,
            kill_every: (1_400, 3_800),
            stops: 4,
            each_point: 1,
            jumps: 0,
            locks: 1,
            lock_for: 1_200,
            servers: Harms::default(),
            canary_every: 20,
            deaf: false,
            looks: true,
            backed: false,
            poison: 1,
            loops: 2,
            payments: 20,
            approval_seconds: 4,
            faults: 10,
            lease: 2_000,
            sweep: 500,
            drain: 3_000,
            patience: 12_000,
            bug: None,
        }
    }

    /// Some ten minutes: before a release.
    pub fn full(seed: u64) -> Self {
        Self {
            triggers: 50_000,
            backlog: 20_000,
            rate: 160,
            workers: Workers {
                killed: 3,
                stopped: 2,
                pointed: 1,
            },
            kills: 500,
            kill_every: (1_500, 5_700),
            stops: 200,
            each_point: 5,
            locks: 3,
            lock_for: 10_000,
            poison: 5,
            loops: 20,
            patience: 30_000,
            ..Self::ci(seed)
        }
    }

    /// The same as [`ci`](Self::ci) on servers, which are harmed as well.
    pub fn ci_on(seed: u64, on: On) -> Self {
        if on == On::Sqlite {
            return Self::ci(seed);
        }
        let through_nats = u64::from(on == On::Nats);
        Self {
            on,
            // Both ways are to be used.
            backed: on == On::Nats && seed.is_multiple_of(2),
            triggers: 500,
            rate: 30,
            behind: 40,
            // With few runs in flight a worker often holds no lease when it is stopped.
            stops: 8,
            locks: 0,
            lock_for: 12_000,
            servers: Harms {
                postgres_restarts: 1,
                nats_restarts: through_nats,
                streams_deleted: through_nats,
                down: 3.0,
                answers_lost: 20,
                cuts: 3,
                slow: 2,
                every: (200, 900),
                restart_every: (5_000, 9_000),
            },
            ..Self::ci(seed)
        }
    }

    /// The same as [`full`](Self::full) on servers, with 60 restarts.
    pub fn full_on(seed: u64, on: On) -> Self {
        let full = Self::full(seed);
        if on == On::Sqlite {
            return full;
        }
        let ci = Self::ci_on(seed, on);
        let through_nats = on == On::Nats;
        Self {
            on,
            triggers: 2_000,
            // Waits in a stream that may be deleted before a worker has seen it.
            backlog: if through_nats { 500 } else { 0 },
            backed: through_nats,
            rate: ci.rate,
            behind: ci.behind,
            workers: Workers {
                killed: 3,
                stopped: 1,
                pointed: 1,
            },
            kill_every: (300, 2_000),
            stops: 40,
            each_point: 3,
            patience: 120_000,
            locks: 0,
            lock_for: ci.lock_for,
            servers: Harms {
                postgres_restarts: if through_nats { 30 } else { 60 },
                nats_restarts: if through_nats { 30 } else { 0 },
                streams_deleted: if through_nats { 5 } else { 0 },
                answers_lost: 300,
                cuts: 30,
                slow: 15,
                restart_every: (2_000, 8_000),
                ..ci.servers
            },
            ..full
        }
    }

    /// A short one in which nobody is told of anything.
    pub fn deaf_on(seed: u64, on: On) -> Self {
        Self {
            triggers: 150,
            workers: Workers {
                killed: 1,
                stopped: 1,
                pointed: 1,
            },
            kills: 3,
            stops: 0,
            each_point: 0,
            poison: 0,
            // Each turn of a circle would have to be found.
            loops: 0,
            servers: Harms::default(),
            deaf: true,
            ..Self::ci_on(seed, on)
        }
    }

    /// A short one in which the clock jumps. Nothing is paid, because a payment whose approval came too late is no payment.
    pub fn clock_on(seed: u64, on: On) -> Self {
        let ci = Self::ci_on(seed, on);
        Self {
            jumps: 20,
            payments: 0,
            servers: Harms {
                postgres_restarts: 0,
                nats_restarts: 0,
                streams_deleted: 0,
                ..ci.servers
            },
            ..ci
        }
    }

    /// The same as [`clock_on`](Self::clock_on) with many jumps.
    pub fn full_clock_on(seed: u64, on: On) -> Self {
        Self {
            jumps: 120,
            kills: 60,
            stops: 20,
            ..Self::clock_on(seed, on)
        }
    }

    /// Whether the event of a version may be lost for good, so that only the newest version is found.
    pub fn may_lose_events(&self) -> bool {
        self.deaf || (self.on == On::Nats && !self.backed)
    }

    /// What the campaign in a folder does.
    pub fn read(folder: &Path) -> Result<Self, BoxError> {
        let text = std::fs::read_to_string(folder.join("settings.json"))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Leaves it for the workers.
    pub fn write(&self, folder: &Path) -> Result<(), BoxError> {
        let text = serde_json::to_string_pretty(self)?;
        Ok(std::fs::write(folder.join("settings.json"), text)?)
    }

    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease)
    }

    pub fn sweep(&self) -> Duration {
        Duration::from_millis(self.sweep)
    }

    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain)
    }

    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.patience)
    }
}
