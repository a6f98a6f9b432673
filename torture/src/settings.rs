//! Settings of a campaign, saved in a file for the workers.

use crate::BoxError;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Store under test, and the source of its events.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum On {
    /// SQLite with its own events.
    Sqlite,
    /// PostgreSQL with its own events.
    Postgres,
    /// PostgreSQL with events through NATS.
    Nats,
}

/// Settings of a campaign. Times are in milliseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Settings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Store under test.
    pub on: On,
    /// Minimum number of triggers. More are written until all faults have happened.
    pub triggers: u64,
    /// Number of triggers that are written before the first worker starts, in addition to `triggers`.
    pub backlog: u64,
    /// Triggers per second.
    pub rate: u64,
    /// Number of ready runs at which the load pauses.
    pub behind: usize,
    /// Numbers of workers by the faults that are injected into them.
    pub workers: Workers,
    /// Number of kills at random moments.
    pub kills: u64,
    /// Minimum and maximum time between two kills of one worker.
    pub kill_every: (u64, u64),
    /// Number of pauses (SIGSTOP) longer than a lease.
    pub stops: u64,
    /// Number of kills at each point.
    pub each_point: u64,
    /// Number of jumps of the clock, by an hour or a day.
    #[serde(default)]
    pub jumps: u64,
    /// Number of locks of the SQLite file by another process.
    pub locks: u64,
    /// Duration of each lock, or maximum time until a server is available again.
    pub lock_for: u64,
    /// Faults of the servers and of the connections to them.
    pub servers: Harms,
    /// Number of triggers per trigger of another tenant, which no worker must ever see.
    pub canary_every: u64,
    /// If `true`, workers receive no events and must find all work in the store.
    pub deaf: bool,
    /// If `true`, workers sweep the store for triggers without an event.
    pub looks: bool,
    /// If `true`, the NATS source has the events of the store as a fallback.
    pub backed: bool,
    /// Number of triggers that abort the worker that executes them.
    pub poison: u64,
    /// Number of endless chains of executors.
    pub loops: u64,
    /// Number of triggers in 1,000 that request a payment. Half of these payments have a forged approval.
    pub payments: u32,
    /// Time limit of an approval, in seconds.
    pub approval_seconds: u32,
    /// Number of calls in 1,000 with an injected error or delay, before or after the call takes effect.
    pub faults: u32,
    /// Length of a lease.
    pub lease: u64,
    /// Interval at which a worker checks the ledger for due runs (`sweep_every`).
    pub sweep: u64,
    /// Time limit for running work after SIGTERM (`drain_timeout`).
    pub drain: u64,
    /// Time without progress after which the remaining runs count as stuck.
    pub patience: u64,
    /// Name of the planted bug.
    pub bug: Option<String>,
}

/// Number of worker processes of each kind.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Workers {
    /// Workers that are killed at random moments.
    pub killed: usize,
    /// Workers that are paused with SIGSTOP and continued.
    pub stopped: usize,
    /// Workers that are killed at points, and stopped with SIGTERM in between.
    pub pointed: usize,
}

/// Number of faults of the servers and of the connections to them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Harms {
    /// Crashes and restarts of PostgreSQL.
    pub postgres_restarts: u64,
    /// Kills and restarts of NATS.
    pub nats_restarts: u64,
    /// Deletions of the NATS stream.
    pub streams_deleted: u64,
    /// Maximum downtime of a server, in seconds.
    pub down: f64,
    /// Lost answers to commits and claims.
    pub answers_lost: u64,
    /// Cuts of all connections to PostgreSQL.
    pub cuts: u64,
    /// Periods in which all connections to PostgreSQL are slow.
    pub slow: u64,
    /// Minimum and maximum time between two faults of the connections, in milliseconds.
    pub every: (u64, u64),
    /// Minimum and maximum time between two restarts or deletions, in milliseconds.
    pub restart_every: (u64, u64),
}

impl Settings {
    /// Returns a short campaign of about half a minute on SQLite, for every change.
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

    /// Returns a long campaign of more than ten minutes on SQLite, for releases.
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

    /// Returns the campaign [`ci`](Self::ci) on a store, with faults of its servers.
    pub fn ci_on(seed: u64, on: On) -> Self {
        if on == On::Sqlite {
            return Self::ci(seed);
        }
        let through_nats = u64::from(on == On::Nats);
        Self {
            on,
            // Even and odd seeds cover both ways to recover from lost events.
            backed: on == On::Nats && seed.is_multiple_of(2),
            triggers: 500,
            rate: 30,
            behind: 40,
            // With few runs in flight, a worker often holds no lease when it is paused.
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

    /// Returns the campaign [`full`](Self::full) on a store, with 60 restarts of its servers.
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
            // A backlog waits in a stream that may be deleted before a worker receives it.
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

    /// Returns a short campaign in which workers receive no events.
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
            // A sweep would have to find each step of a chain, which takes too long.
            loops: 0,
            servers: Harms::default(),
            deaf: true,
            ..Self::ci_on(seed, on)
        }
    }

    /// Returns a short campaign in which the clock jumps. It has no payments, because approvals could expire.
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

    /// Returns the campaign [`clock_on`](Self::clock_on) with more jumps.
    pub fn full_clock_on(seed: u64, on: On) -> Self {
        Self {
            jumps: 120,
            kills: 60,
            stops: 20,
            ..Self::clock_on(seed, on)
        }
    }

    /// Returns `true` if the event of a version can be lost, so that workers find only the newest version.
    pub fn may_lose_events(&self) -> bool {
        self.deaf || (self.on == On::Nats && !self.backed)
    }

    /// Reads the settings of the campaign in a folder.
    pub fn read(folder: &Path) -> Result<Self, BoxError> {
        let text = std::fs::read_to_string(folder.join("settings.json"))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Writes the settings into the campaign folder.
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
