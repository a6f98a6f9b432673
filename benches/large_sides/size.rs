//! Sizes of the process and of stores.

use crate::worker_sides::block_on;
use crate::worker_sides::memory::Memory;
use crate::worker_sides::postgres::Postgres;
use crate::worker_sides::sqlite::Sqlite;
use std::fs;
use std::path::PathBuf;
use universal_executor::MemoryStore;

/// A store that knows its size.
pub(crate) trait Size<L> {
    /// Returns the size of a location in bytes. `None` if its data is in the memory of this process.
    fn bytes(&self, location: &L) -> Option<u64>;
}

impl Size<MemoryStore> for Memory {
    fn bytes(&self, _: &MemoryStore) -> Option<u64> {
        None
    }
}

impl Size<PathBuf> for Sqlite {
    fn bytes(&self, location: &PathBuf) -> Option<u64> {
        Some(fs::metadata(location).map_or(0, |file| file.len()))
    }
}

impl Size<String> for Postgres {
    fn bytes(&self, _: &String) -> Option<u64> {
        Some(block_on(self.size()))
    }
}

/// Returns the resident memory of this process in bytes, or `None` if the system does not report it.
pub(crate) fn of_process() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}
