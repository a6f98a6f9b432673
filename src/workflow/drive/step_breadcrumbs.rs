//! Rules for the breadcrumbs that can answer a `wait_for` step. A matching breadcrumb counts if it was written after the trigger and
//! after the newest matching breadcrumb of the earlier steps, and has not answered one of these steps. So a breadcrumb that is written
//! before the step begins is not missed, and no breadcrumb counts twice.

use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::workflow::{Progress, StepPath};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of breadcrumbs of one schema that a flow run records as possible answers to its `wait_for` steps. The newest
/// breadcrumbs that steps wrote or received are recorded. Older breadcrumbs no longer answer a step.
const MOST: usize = 32;

/// A breadcrumb that a step wrote or received as an answer.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct StepBreadcrumb {
    /// Update time of the breadcrumb when the step wrote or received it.
    at: Timestamp,
    /// Time when a step of the run wrote the breadcrumb, or `None` if steps only received the breadcrumb. Breadcrumbs up to this
    /// time do not answer later steps, even if the marked breadcrumb was changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<Timestamp>,
}

impl StepBreadcrumb {
    pub(super) const fn written(at: Timestamp) -> Self {
        let own = Some(at);
        Self { at, own }
    }

    pub(super) const fn received(at: Timestamp) -> Self {
        Self { at, own: None }
    }
}

/// Breadcrumbs of one schema that the steps of a run wrote or received. They decide which breadcrumbs can answer later `wait_for` steps.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SchemaBreadcrumbs {
    /// Time after which a breadcrumb of the schema must be updated to end the wait of a `wait_for` step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    marks: BTreeMap<BreadcrumbId, StepBreadcrumb>,
}

impl SchemaBreadcrumbs {
    fn add(&mut self, id: BreadcrumbId, mark: StepBreadcrumb) {
        let known = self.marks.entry(id).or_insert(mark);
        (known.at, known.own) = (known.at.max(mark.at), known.own.max(mark.own));
        while self.marks.len() > MOST
            && let Some((&id, _)) = self.marks.iter().min_by_key(|(_, mark)| mark.at)
            && let Some(oldest) = self.marks.remove(&id)
        {
            self.since = self.since.max(Some(oldest.at));
        }
    }

    fn merge(&mut self, other: Self) {
        self.since = self.since.max(other.since);
        for (id, mark) in other.marks {
            self.add(id, mark);
        }
    }
}

type Schemas = BTreeMap<String, SchemaBreadcrumbs>;

/// Breadcrumbs that a step wrote or received, by schema. Shared between the driver, which saves them, and the running step.
#[derive(Clone, Debug, Default)]
pub(super) struct StepBreadcrumbs(Arc<Mutex<Schemas>>);

impl StepBreadcrumbs {
    fn all(&self) -> MutexGuard<'_, Schemas> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn add(&self, schema: &str, id: BreadcrumbId, mark: StepBreadcrumb) {
        self.all()
            .entry(schema.to_owned())
            .or_default()
            .add(id, mark);
    }
}

impl Serialize for StepBreadcrumbs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for StepBreadcrumbs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Schemas::deserialize(deserializer)?;
        Ok(Self(Arc::new(Mutex::new(all))))
    }
}

/// Breadcrumbs that the ended steps of a flow run wrote or received. Each breadcrumb is listed at the path of the innermost enclosing step
/// that is still in flight.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct EndedBreadcrumbs(BTreeMap<StepPath, Schemas>);

impl EndedBreadcrumbs {
    /// Records the breadcrumbs that an ended step wrote or received.
    pub(super) fn add(&mut self, path: &StepPath, marks: &StepBreadcrumbs) {
        let marks = std::mem::take(&mut *marks.all());
        for (schema, known) in marks {
            self.merge(path, schema, known);
        }
    }

    /// Assigns the recorded breadcrumbs of ended steps to the innermost enclosing step that is in flight. The later steps inside
    /// the enclosing step use these breadcrumbs.
    pub(super) fn fold(&mut self, progress: &Progress) {
        let over = |path: &&StepPath| !path.as_str().is_empty() && !progress.is_in_flight(path);
        let over: Vec<StepPath> = self.0.keys().filter(over).cloned().collect();
        for path in over {
            let marks = self.0.remove(&path).unwrap_or_default();
            let Some((outer, _)) = progress.around(&path).next() else {
                continue;
            };
            for (schema, known) in marks {
                self.merge(&outer, schema, known);
            }
        }
    }

    /// Sets the time after which a breadcrumb of a schema must be updated to end the wait of any `wait_for` step of the run.
    pub(super) fn begin_after(&mut self, at: Timestamp, schema: String) {
        let known = SchemaBreadcrumbs {
            since: Some(at),
            ..SchemaBreadcrumbs::default()
        };
        self.merge(&StepPath::new(""), schema, known);
    }

    /// Returns the lower limit, exclusive, of the update time of a breadcrumb that can end a `wait_for` step's wait. `of` is the
    /// schema of the breadcrumb, or `None` for any schema. Returns `None` if the earlier steps set no limit.
    pub(super) fn since(
        &self,
        progress: &Progress,
        path: &StepPath,
        of: Option<&str>,
    ) -> Option<Timestamp> {
        self.known(progress, path, of).since
    }

    /// Removes the breadcrumbs that cannot answer a `wait_for` step from a list of found breadcrumbs. The remaining breadcrumbs
    /// are newer than all breadcrumbs that earlier steps of the step's sequence wrote, and have not answered an earlier step
    /// since their last change.
    pub(super) fn retain_unused(
        &self,
        progress: &Progress,
        path: &StepPath,
        of: Option<&str>,
        found: &mut Vec<Arc<Breadcrumb>>,
    ) {
        let SchemaBreadcrumbs { marks, .. } = self.known(progress, path, of);
        let own = found.iter().filter_map(|found| marks.get(&found.id)?.own);
        let own = own.max();
        found.retain(|found| {
            let mark = marks.get(&found.id);
            let is_over = mark.is_some_and(|mark| found.updated_at <= mark.at);
            !is_over && own.is_none_or(|own| found.updated_at > own)
        });
    }

    fn merge(&mut self, path: &StepPath, schema: String, known: SchemaBreadcrumbs) {
        let schemas = self.0.entry(path.clone()).or_default();
        schemas.entry(schema).or_default().merge(known);
    }

    /// Returns the breadcrumbs that the steps before this step wrote or received. If `of` is set, returns only breadcrumbs of this schema.
    /// Excludes the breadcrumbs of steps that run side by side with this step.
    fn known(&self, progress: &Progress, path: &StepPath, of: Option<&str>) -> SchemaBreadcrumbs {
        let around = progress.around(path).filter(|(_, is_line)| *is_line);
        let line = around.map(|(outer, _)| outer);
        let line = line.chain([path.clone(), StepPath::new("")]);
        let mut known = SchemaBreadcrumbs::default();
        for schemas in line.filter_map(|path| self.0.get(&path)) {
            let of_schema = schemas
                .iter()
                .filter(|(schema, _)| of.is_none_or(|of| of == *schema));
            for (_, one) in of_schema {
                known.merge(one.clone());
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_marks_are_retained_and_older_breadcrumbs_no_longer_count() {
        let mut known = SchemaBreadcrumbs::default();
        for number in 1..=40_u8 {
            let id = format!("00000000-0000-4000-8000-0000000000{number:02}");
            let at = Timestamp::from_micros(i64::from(number));
            known.add(id.parse().unwrap(), StepBreadcrumb::received(at));
        }

        assert_eq!(known.marks.len(), MOST);
        assert_eq!(known.since, Some(Timestamp::from_micros(8)));
    }
}
