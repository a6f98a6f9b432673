//! Since when a breadcrumb answers a `wait_for`: after the newest of its schema that the steps before it wrote or waited for,
//! else after the trigger. So nothing is missed that comes before the step begins, and nothing counts twice.

use super::Assembly;
use super::attempt::Drive;
use crate::model::{Selector, Timestamp};
use crate::store::{Query, StoreError};
use crate::workflow::ast::TaskForm;
use crate::workflow::{Progress, Ready, StepPath, Task};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The newest of each schema.
type Newest = BTreeMap<String, Timestamp>;

/// What a step wrote, or was given by who else did. Shared by who saves and who works.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks(Arc<Mutex<Newest>>);

impl Marks {
    fn all(&self) -> MutexGuard<'_, Newest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn add(&self, schema: &str, at: Timestamp) {
        merge(&mut self.all(), schema.to_owned(), at);
    }
}

impl Serialize for Marks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Marks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Newest::deserialize(deserializer)?;
        Ok(Self(Arc::new(Mutex::new(all))))
    }
}

/// The marks of steps that have ended, each at what it was part of and is under way.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Lines(BTreeMap<StepPath, Newest>);

impl Lines {
    /// Adds what a step leaves that is over.
    pub(super) fn add(&mut self, path: &StepPath, marks: &Marks) {
        let marks = std::mem::take(&mut *marks.all());
        for (schema, at) in marks {
            merge(self.0.entry(path.clone()).or_default(), schema, at);
        }
    }

    /// Hands what has ended on to what it was part of.
    pub(super) fn fold(&mut self, progress: &Progress) {
        let over = |path: &&StepPath| !path.as_str().is_empty() && !progress.is_under_way(path);
        let over: Vec<StepPath> = self.0.keys().filter(over).cloned().collect();
        for path in over {
            let marks = self.0.remove(&path).unwrap_or_default();
            let Some((outer, _)) = progress.around(&path).next() else {
                continue;
            };
            for (schema, at) in marks {
                merge(self.0.entry(outer.clone()).or_default(), schema, at);
            }
        }
    }

    /// The newest that came before in the line of a step: of a schema, or of all. Steps beside it do not count.
    fn newest(&self, progress: &Progress, path: &StepPath, of: Option<&str>) -> Option<Timestamp> {
        let around = progress.around(path).filter(|(_, is_line)| *is_line);
        let line = around.map(|(outer, _)| outer);
        let line = line.chain([path.clone(), StepPath::new("")]);
        let marks = line.filter_map(|path| self.0.get(&path));
        marks
            .filter_map(|newest| match of {
                Some(schema) => newest.get(schema).copied(),
                None => newest.values().max().copied(),
            })
            .max()
    }
}

fn merge(newest: &mut Newest, schema: String, at: Timestamp) {
    let known = newest.entry(schema).or_insert(at);
    *known = at.max(*known);
}

impl Drive<'_> {
    /// Since when a step is answered, if it waits for a breadcrumb.
    pub(super) fn since(&self, ready: &Ready) -> Timestamp {
        let trigger = self.context.trigger().updated_at;
        let Task::WaitFor { event } = &ready.task else {
            return trigger;
        };
        let (progress, of) = (self.run.progress(), event.schema_name());
        let newest = self.lines.newest(progress, &ready.path, of);
        newest.unwrap_or(trigger)
    }

    /// Looks what is there of all that is waited for, where no store says when the trigger was written: the clock of the
    /// machine is not that of the store.
    pub(super) async fn mark_what_is_there(&mut self) -> Result<(), StoreError> {
        // A run has a trigger that its store has dated.
        if self.context.correlation_id().is_some() {
            return Ok(());
        }
        for schema in awaited(self.assembly) {
            let query = Query::new(Selector::schema(&*schema)).limit(1);
            let found = self.assembly.store.search(&query).await?;
            let newest = found.first().map(|newest| newest.updated_at);
            let at = newest.unwrap_or(Timestamp::from_micros(0));
            self.looked.since = self.looked.since.min(at);
            let there = self.lines.0.entry(StepPath::new("")).or_default();
            merge(there, schema, at);
        }
        Ok(())
    }
}

/// The schemas that steps of a workflow wait for.
fn awaited(assembly: &Assembly) -> Vec<String> {
    let tasks = assembly.workflow().tasks();
    let mut schemas: Vec<String> = tasks
        .iter()
        .filter_map(|task| match task {
            TaskForm::WaitFor { event } => event.literal_field("schema_name"),
            TaskForm::Agent { .. }
            | TaskForm::Tool { .. }
            | TaskForm::Model { .. }
            | TaskForm::Ask { .. }
            | TaskForm::Emit { .. } => None,
        })
        .collect();
    schemas.sort_unstable();
    schemas.dedup();
    schemas
}
