//! Records of the workers of one tenant, for other workers to read.

use crate::model::Timestamp;
use crate::store::{Worker, WorkerRecord};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Workers(HashMap<Arc<str>, Kept>);

#[derive(Debug)]
struct Kept {
    record: WorkerRecord,
    started_at: Timestamp,
    seen_at: Timestamp,
}

impl Workers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn record(&mut self, record: &WorkerRecord, now: Timestamp) {
        let known = self.0.get(&record.id);
        let kept = Kept {
            record: record.clone(),
            started_at: known.map_or(now, |known| known.started_at),
            seen_at: now,
        };
        self.0.insert(Arc::clone(&record.id), kept);
        self.0
            .retain(|_, kept| now.since(kept.seen_at) <= Worker::KEPT);
        while self.0.len() > Worker::MOST {
            let oldest = self.0.iter().min_by_key(|(_, kept)| kept.seen_at);
            let Some(oldest) = oldest.map(|(id, _)| Arc::clone(id)) else {
                return;
            };
            self.0.remove(&oldest);
        }
    }

    /// Returns all workers of the tenant, the most recently stored record first.
    pub(super) fn all(&self, now: Timestamp) -> Vec<Worker> {
        let view =
            |kept: &Kept| Worker::new(kept.record.clone(), kept.started_at, kept.seen_at, now);
        let mut all: Vec<Worker> = self.0.values().map(view).collect();
        all.sort_by(|one, other| {
            (other.seen_at, &other.record.id).cmp(&(one.seen_at, &one.record.id))
        });
        all
    }
}
