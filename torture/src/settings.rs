//! What a campaign does, and how much of it. Kept in a file for the workers to read.

use crate::BoxError;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// The size of a campaign. Times are in milliseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Settings {
    /// Where all that is random begins.
    pub seed: u64,
    /// How many triggers are written at the least; more if the faults take longer.
    pub triggers: u64,
    /// How many of them are there before any worker is.
    pub backlog: u64,
    /// How many triggers a second.
    pub rate: u64,
    /// Workers that are killed at random moments, stopped, and killed at chosen points.
    pub workers: Workers,
    /// Kills at random moments, and the least and the most time between two.
    pub kills: u64,
    /// Least and most time between two kills.
    pub kill_every: (u64, u64),
    /// How often a worker is stopped past its leases and let go again.
    pub stops: u64,
    /// How often a worker is killed at each of the points.
    pub each_point: u64,
    /// How often another process locks the store, and for how long.
    pub locks: u64,
    /// How long each lock holds.
    pub lock_for: u64,
    /// Triggers that abort whoever executes them.
    pub poison: u64,
    /// Chains of executors that would never end.
    pub loops: u64,
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

impl Settings {
    /// Half a minute: for every change.
    pub fn ci(seed: u64) -> Self {
        Self {
            seed,
            triggers: 2_000,
            backlog: 0,
            rate: 100,
            workers: Workers {
                killed: 2,
                stopped: 1,
                pointed: 1,
            },
            kills: 12,
            kill_every: (700, 1_900),
            stops: 4,
            each_point: 1,
            locks: 1,
            lock_for: 1_200,
            poison: 1,
            loops: 2,
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
            kill_every: (500, 1_900),
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
