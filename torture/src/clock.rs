//! Clock of all processes of a campaign: the machine's clock plus the offset in a file.

use crate::BoxError;
use crate::backend::Store;
use crate::oracle::{Harm, Oracle, Record};
use crate::settings::Settings;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

const MINUTE: i64 = 60 * 1_000_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Offsets from the machine's clock, in microseconds.
const OFFSETS: [i64; 5] = [-DAY, -HOUR, 0, HOUR, DAY];

/// Interval at which each process reads the offset.
const EVERY: Duration = Duration::from_millis(20);

/// The clock of one process.
pub struct Clock {
    file: PathBuf,
    /// Current offset of the store in this process, in microseconds.
    offset: i64,
}

impl Clock {
    pub fn of(folder: &Path) -> Self {
        Self {
            file: file(folder),
            offset: 0,
        }
    }

    /// Moves the clock of a store by the offset in the file.
    pub fn set(&mut self, store: &Store) {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let offset = text.parse().unwrap_or(self.offset);
        if offset != self.offset {
            store.move_clock(offset - self.offset);
            self.offset = offset;
        }
    }

    /// Applies changes of the file to the clock of a store while this future is polled.
    pub async fn follow(&mut self, store: &Store) {
        loop {
            self.set(store);
            sleep(EVERY).await;
        }
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("clock")
}

/// Sets the offset of all processes.
fn write(folder: &Path, offset: i64) -> Result<(), BoxError> {
    let new = folder.join("clock.new");
    std::fs::write(&new, offset.to_string())?;
    Ok(std::fs::rename(new, file(folder))?)
}

/// Makes the clock jump by an hour or a day, in both directions. At the end the clock is later than ever before, so that all
/// waits expire.
pub async fn jump(folder: &Path, settings: &Settings) -> Result<(), BoxError> {
    if settings.jumps == 0 {
        return Ok(());
    }
    let oracle = Oracle::open(folder)?;
    let mut random = fastrand::Rng::with_seed(settings.seed ^ 6);
    let mut offset = 0;
    for _ in 0..settings.jumps {
        sleep(Duration::from_millis(random.u64(300..2_500))).await;
        let others: Vec<i64> = OFFSETS.into_iter().filter(|one| *one != offset).collect();
        offset = random.choice(others).unwrap_or_default();
        write(folder, offset)?;
        oracle.note(&Record::Harmed(Harm::ClockJumped))?;
    }
    write(folder, 2 * DAY)
}
