//! Records of one tenant's workers, with the names and executors of the workers, for other workers to read.

use crate::model::Timestamp;
use crate::store::{Worker, WorkerRecord};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Workers(HashMap<Arc<str>, RecordedWorker>);

#[derive(Debug)]
struct RecordedWorker {
    record: WorkerRecord,
    started_at: Timestamp,
    seen_at: Timestamp,
}

impl Workers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn record(&mut self, record: &WorkerRecord, now: Timestamp) {
        let previous = self.0.get(&record.id);
        let entry = RecordedWorker {
            record: record.clone(),
            started_at: previous.map_or(now, |previous| previous.started_at),
            seen_at: now,
        };
        self.0.insert(Arc::clone(&record.id), entry);
        self.0
            .retain(|_, entry| now.since(entry.seen_at) <= Worker::KEPT);
        while self.0.len() > Worker::MOST {
            let oldest = self.0.iter().min_by_key(|(_, entry)| entry.seen_at);
            let Some(oldest) = oldest.map(|(id, _)| Arc::clone(id)) else {
                return;
            };
            self.0.remove(&oldest);
        }
    }

    /// Returns all workers of the tenant, first the worker that stored its record most recently.
    pub(super) fn all(&self, now: Timestamp) -> Vec<Worker> {
        let view = |entry: &RecordedWorker| {
            Worker::new(entry.record.clone(), entry.started_at, entry.seen_at, now)
        };
        let mut all: Vec<Worker> = self.0.values().map(view).collect();
        all.sort_by(|one, other| {
            (other.seen_at, &other.record.id).cmp(&(one.seen_at, &one.record.id))
        });
        all
    }
}
