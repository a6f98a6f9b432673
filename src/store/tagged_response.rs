//! Detection of finished runs without a ledger, by the tags of the breadcrumbs that the runs created.

use super::{Claim, RunState};
use crate::model::{Breadcrumb, BreadcrumbId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the tag of all breadcrumbs that a run creates when it ends.
pub(crate) fn run_tag(run_key: &str) -> String {
    format!("ux:run:{run_key}")
}

/// Index of a breadcrumb among the breadcrumbs that a run creates at its end, with a response or with a dead letter. The two
/// have separate indexes, because a part of a failed response may exist too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ResponseIndex {
    pub(crate) has_failed: bool,
    pub(crate) number: usize,
}

impl ResponseIndex {
    /// Returns the tag that contains this breadcrumb index and the total number of breadcrumbs that the run creates at its end.
    #[cfg(feature = "rcrt")]
    pub(crate) fn tag(self, of: usize) -> String {
        format!("ux:slot:{self}/{of}")
    }

    /// Reads the index of a breadcrumb among the breadcrumbs that a run created at its end, and their total number, from the
    /// `ux:slot:` tag in `tags`. Returns `None` without such a tag.
    pub(crate) fn of(tags: &[String]) -> Option<(Self, usize)> {
        tags.iter().find_map(|tag| {
            let (index, of) = tag.strip_prefix("ux:slot:")?.split_once('/')?;
            let failed = index.strip_prefix('f');
            let index = Self {
                has_failed: failed.is_some(),
                number: failed.unwrap_or(index).parse().ok()?,
            };
            Some((index, of.parse().ok()?))
        })
    }
}

#[cfg(feature = "rcrt")]
impl std::fmt::Display for ResponseIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.has_failed { "f" } else { "" };
        write!(f, "{mark}{}", self.number)
    }
}

/// Returns the final state of a run and the IDs of its breadcrumbs, or `None` if the run has not ended or breadcrumbs are
/// missing. `found` contains the breadcrumbs with the run's [tag](run_tag). A dead letter takes precedence over a response: the
/// rest of the response may have been written after the run failed.
pub(crate) fn finished_run(found: &[Arc<Breadcrumb>]) -> Option<Claim> {
    let ended = |has_failed, state| {
        let written = complete_response(found, has_failed)?;
        Some(Claim::Done { state, written })
    };
    ended(true, RunState::Failed).or_else(|| ended(false, RunState::Done))
}

/// Returns the IDs of the breadcrumbs that a run created at its end, with a response or a dead letter, or `None` if one of them
/// is missing. If two breadcrumbs have the same index, the older one counts.
fn complete_response(found: &[Arc<Breadcrumb>], has_failed: bool) -> Option<Vec<BreadcrumbId>> {
    let mut entries: BTreeMap<usize, (usize, &Breadcrumb)> = BTreeMap::new();
    for one in found {
        let Some((index, of)) = ResponseIndex::of(&one.tags) else {
            continue;
        };
        if index.has_failed != has_failed {
            continue;
        }
        let number = index.number;
        let age = |one: &Breadcrumb| (one.created_at, one.id);
        let entry = entries.entry(number).or_insert((of, one));
        if age(one) < age(entry.1) {
            *entry = (of, one);
        }
    }
    let (of, _) = entries.values().next()?;
    let is_complete = entries.len() == *of && entries.keys().copied().eq(0..*of);
    is_complete.then(|| entries.values().map(|(_, one)| one.id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NewBreadcrumb, Timestamp};

    fn tagged(id: u128, created: i64, tag: &str) -> Arc<Breadcrumb> {
        let id = BreadcrumbId::from_bytes(id.to_be_bytes());
        let new = NewBreadcrumb::new("answer.v1").tags(["ux:run:k", tag]);
        Arc::new(new.first_version(id, Timestamp::from_micros(created)))
    }

    fn ids(found: &[Arc<Breadcrumb>]) -> Option<Vec<u128>> {
        let Some(Claim::Done { written, .. }) = finished_run(found) else {
            return None;
        };
        let number = |id: &BreadcrumbId| u128::from_be_bytes(*id.as_bytes());
        Some(written.iter().map(number).collect())
    }

    #[test]
    fn a_run_is_over_when_its_whole_response_is_there_and_the_oldest_of_each_index_counts() {
        let (first, second) = (tagged(1, 1, "ux:slot:0/2"), tagged(2, 2, "ux:slot:1/2"));
        let again = tagged(3, 3, "ux:slot:0/2");

        assert_eq!(ids(&[]), None);
        assert_eq!(ids(&[tagged(4, 1, "other")]), None);
        assert_eq!(ids(std::slice::from_ref(&first)), None);
        assert_eq!(ids(&[second.clone(), again.clone()]), Some(vec![3, 2]));
        assert_eq!(ids(&[second, again, first]), Some(vec![1, 2]));
    }

    #[test]
    fn a_dead_letter_takes_precedence_over_any_part_of_a_response() {
        let letter = tagged(9, 9, "ux:slot:f0/1");
        let (first, second) = (tagged(1, 1, "ux:slot:0/2"), tagged(2, 2, "ux:slot:1/2"));

        for response in [vec![], vec![first.clone()], vec![first, second]] {
            let found = [response, vec![letter.clone()]].concat();
            let Some(Claim::Done { state, written }) = finished_run(&found) else {
                panic!("{found:?} is whole")
            };
            assert_eq!((state, written), (RunState::Failed, vec![letter.id]));
        }
    }
}
