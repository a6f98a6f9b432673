//! Saved event positions of the executors of one tenant.

use crate::store::SavedPosition;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Positions {
    saved: HashMap<Arc<str>, PositionEntry>,
    /// Number of event positions that were ever saved for this tenant's executors, including replaced ones; the last serial
    /// number.
    saves: u64,
}

#[derive(Debug)]
struct PositionEntry {
    position: Vec<u8>,
    /// Serial number of the save operation that stored this event position. The position with the lowest number is the oldest.
    save: u64,
}

impl Positions {
    pub(super) fn is_empty(&self) -> bool {
        self.saved.is_empty()
    }

    pub(super) fn save(&mut self, positions: &[(Arc<str>, Vec<u8>)]) {
        for (executor, position) in positions {
            self.saves += 1;
            let saved = PositionEntry {
                position: position.clone(),
                save: self.saves,
            };
            self.saved.insert(Arc::clone(executor), saved);
        }
        while self.saved.len() > SavedPosition::MOST {
            let oldest = self.saved.iter().min_by_key(|(_, saved)| saved.save);
            let Some(oldest) = oldest.map(|(executor, _)| Arc::clone(executor)) else {
                return;
            };
            self.saved.remove(&oldest);
        }
    }

    pub(super) fn of(&self, executors: &[Arc<str>]) -> Vec<Option<Vec<u8>>> {
        let saved = |executor| self.saved.get(executor).map(|saved| saved.position.clone());
        executors.iter().map(saved).collect()
    }
}
