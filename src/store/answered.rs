//! How a store without a ledger knows again what a run responded with: by the tags of what it created.

use super::{Claim, DeadLetter, RunState};
use crate::model::Breadcrumb;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tag of all that a run responds with.
pub(crate) fn run_tag(run_key: &str) -> String {
    format!("ux:run:{run_key}")
}

/// The tag of one of them: its place among so many.
#[cfg(feature = "rcrt")]
pub(crate) fn slot_tag(number: usize, of: usize) -> String {
    format!("ux:slot:{number}/{of}")
}

/// The place that a breadcrumb has in the response of a run, and of how many.
pub(crate) fn slot_of(tags: &[String]) -> Option<(usize, usize)> {
    tags.iter().find_map(|tag| {
        let (number, of) = tag.strip_prefix("ux:slot:")?.split_once('/')?;
        Some((number.parse().ok()?, of.parse().ok()?))
    })
}

/// What the breadcrumbs with the tag of a run say of it: that it is over, or nothing if some of its response is missing.
/// Of several in one place the oldest counts.
pub(crate) fn answered(found: &[Arc<Breadcrumb>]) -> Option<Claim> {
    let mut slots: BTreeMap<usize, (usize, &Breadcrumb)> = BTreeMap::new();
    for one in found {
        let Some((number, of)) = slot_of(&one.tags) else {
            continue;
        };
        let age = |one: &Breadcrumb| (one.created_at, one.id);
        let slot = slots.entry(number).or_insert((of, one));
        if age(one) < age(slot.1) {
            *slot = (of, one);
        }
    }
    let (of, _) = slots.values().next()?;
    let is_whole = slots.len() == *of && slots.keys().copied().eq(0..*of);
    let is_letter = |one: &Breadcrumb| one.schema_name.as_deref() == Some(DeadLetter::SCHEMA);
    is_whole.then(|| Claim::Done {
        state: match slots.values().any(|(_, one)| is_letter(one)) {
            true => RunState::Failed,
            false => RunState::Done,
        },
        written: slots.values().map(|(_, one)| one.id).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb, Timestamp};

    fn slot(id: u128, created: i64, tag: &str) -> Arc<Breadcrumb> {
        let id = BreadcrumbId::from(uuid::Uuid::from_u128(id));
        let new = NewBreadcrumb::new("answer.v1").tags(["ux:run:k", tag]);
        Arc::new(new.first_version(id, Timestamp::from_micros(created)))
    }

    fn ids(found: &[Arc<Breadcrumb>]) -> Option<Vec<u128>> {
        let Some(Claim::Done { written, .. }) = answered(found) else {
            return None;
        };
        Some(written.iter().map(|id| id.as_uuid().as_u128()).collect())
    }

    #[test]
    fn a_run_is_over_when_its_whole_response_is_there_and_the_oldest_of_each_place_counts() {
        let (first, second) = (slot(1, 1, "ux:slot:0/2"), slot(2, 2, "ux:slot:1/2"));
        let again = slot(3, 3, "ux:slot:0/2");

        assert_eq!(ids(&[]), None);
        assert_eq!(ids(&[slot(4, 1, "other")]), None);
        assert_eq!(ids(std::slice::from_ref(&first)), None);
        assert_eq!(ids(&[second.clone(), again.clone()]), Some(vec![3, 2]));
        assert_eq!(ids(&[second, again, first]), Some(vec![1, 2]));
    }

    #[test]
    fn a_dead_letter_says_that_the_run_failed() {
        let mut letter = (*slot(1, 1, "ux:slot:0/1")).clone();
        letter.schema_name = Some(DeadLetter::SCHEMA.to_owned());

        let claim = answered(&[Arc::new(letter)]);

        assert!(matches!(
            claim,
            Some(Claim::Done {
                state: RunState::Failed,
                ..
            })
        ));
    }
}
