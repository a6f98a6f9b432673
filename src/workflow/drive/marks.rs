//! Which breadcrumbs answer a `wait_for`: of what was written after the trigger all that is what the step waits for, after the
//! newest of it that the steps before it wrote, but for what answered one of those. So nothing is missed that comes before the
//! step begins, and nothing counts twice.

use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::workflow::{Progress, StepPath};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many breadcrumbs of a schema are told apart, the newest; what is older than those is over.
const MOST: usize = 32;

/// A breadcrumb that a step wrote or was given.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Mark {
    /// When it was written as it was then.
    at: Timestamp,
    /// When a step wrote it, if one did: what is older answers nothing, also once others have changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<Timestamp>,
}

impl Mark {
    pub(super) const fn own(at: Timestamp) -> Self {
        let own = Some(at);
        Self { at, own }
    }

    pub(super) const fn given(at: Timestamp) -> Self {
        Self { at, own: None }
    }
}

/// What is known of one schema.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Known {
    /// Only what comes after this counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    marks: BTreeMap<BreadcrumbId, Mark>,
}

impl Known {
    fn add(&mut self, id: BreadcrumbId, mark: Mark) {
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

type Schemas = BTreeMap<String, Known>;

/// What a step wrote, or was given by who else did. Shared by who saves and who works.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks(Arc<Mutex<Schemas>>);

impl Marks {
    fn all(&self) -> MutexGuard<'_, Schemas> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn add(&self, schema: &str, id: BreadcrumbId, mark: Mark) {
        self.all()
            .entry(schema.to_owned())
            .or_default()
            .add(id, mark);
    }
}

impl Serialize for Marks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Marks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Schemas::deserialize(deserializer)?;
        Ok(Self(Arc::new(Mutex::new(all))))
    }
}

/// The marks of steps that have ended, each at what it was part of and is under way.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Lines(BTreeMap<StepPath, Schemas>);

impl Lines {
    /// Adds what a step leaves that is over.
    pub(super) fn add(&mut self, path: &StepPath, marks: &Marks) {
        let marks = std::mem::take(&mut *marks.all());
        for (schema, known) in marks {
            self.merge(path, schema, known);
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
            for (schema, known) in marks {
                self.merge(&outer, schema, known);
            }
        }
    }

    /// Lets only breadcrumbs of a schema count that were written after a time.
    pub(super) fn begin_after(&mut self, at: Timestamp, schema: String) {
        let known = Known {
            since: Some(at),
            ..Known::default()
        };
        self.merge(&StepPath::new(""), schema, known);
    }

    /// Returns the time after which breadcrumbs of a schema, or of any, may answer a step. `None` if the line of the step sets no time.
    pub(super) fn since(
        &self,
        progress: &Progress,
        path: &StepPath,
        of: Option<&str>,
    ) -> Option<Timestamp> {
        self.known(progress, path, of).since
    }

    /// Retains the breadcrumbs that may answer a step: they are newer than all breadcrumbs that the line of the step
    /// wrote, and have not answered an earlier step since their last change.
    pub(super) fn retain_unused(
        &self,
        progress: &Progress,
        path: &StepPath,
        of: Option<&str>,
        found: &mut Vec<Arc<Breadcrumb>>,
    ) {
        let Known { marks, .. } = self.known(progress, path, of);
        let own = found.iter().filter_map(|found| marks.get(&found.id)?.own);
        let own = own.max();
        found.retain(|found| {
            let mark = marks.get(&found.id);
            let is_over = mark.is_some_and(|mark| found.updated_at <= mark.at);
            !is_over && own.is_none_or(|own| found.updated_at > own)
        });
    }

    fn merge(&mut self, path: &StepPath, schema: String, known: Known) {
        let schemas = self.0.entry(path.clone()).or_default();
        schemas.entry(schema).or_default().merge(known);
    }

    /// What came before in the line of a step: of a schema, or of all. Steps beside it do not count.
    fn known(&self, progress: &Progress, path: &StepPath, of: Option<&str>) -> Known {
        let around = progress.around(path).filter(|(_, is_line)| *is_line);
        let line = around.map(|(outer, _)| outer);
        let line = line.chain([path.clone(), StepPath::new("")]);
        let mut known = Known::default();
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
    fn of_a_long_line_the_newest_are_told_apart_and_what_is_older_is_over() {
        let mut known = Known::default();
        for number in 1..=40_u8 {
            let id = format!("00000000-0000-4000-8000-0000000000{number:02}");
            let at = Timestamp::from_micros(i64::from(number));
            known.add(id.parse().unwrap(), Mark::given(at));
        }

        assert_eq!(known.marks.len(), MOST);
        assert_eq!(known.since, Some(Timestamp::from_micros(8)));
    }
}
