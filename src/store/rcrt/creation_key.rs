//! The names under which what is created can be found again. Pure.

use crate::model::NewBreadcrumb;
use crate::store::answered::{Place, run_tag};
use crate::store::{Lease, RunEnd};
use uuid::Uuid;

/// How a breadcrumb is found if the answer to its creation is lost.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct CreationKey {
    /// What all keys of it begin with.
    key: String,
    /// The tags it has; none if it cannot be told from others.
    tags: Vec<String>,
}

impl CreationKey {
    /// What a run ends with: a place among what it creates then. The same in every attempt.
    fn of_run(run_key: &str, place: Place, of: usize) -> Self {
        Self {
            key: format!("{run_key}:{place}"),
            tags: vec![run_tag(run_key), place.tag(of)],
        }
    }

    /// What a run writes on its way: another in every attempt.
    fn of_write() -> Self {
        let key = Uuid::new_v4().to_string();
        let tags = vec![format!("ux:write:{key}")];
        Self { key, tags }
    }

    /// What comes from outside every run, and is kept as it is.
    fn anonymous() -> Self {
        Self {
            key: Uuid::new_v4().to_string(),
            tags: Vec::new(),
        }
    }

    /// The idempotency key of the n-th time that it is created.
    pub(super) fn key(&self, epoch: u32) -> String {
        format!("{}:{epoch}", self.key)
    }

    /// The tag by which it is looked for.
    pub(super) fn tag(&self) -> Option<&str> {
        self.tags.first().map(String::as_str)
    }

    /// Whether what has these tags was created in it, be it by an attempt that created more or less beside it.
    pub(super) fn is_on(&self, tags: &[String]) -> bool {
        let place = |tags| Place::of(tags).map(|(place, _)| place);
        self.tag()
            .is_some_and(|tag| tags.iter().any(|other| other == tag))
            && place(&self.tags) == place(tags)
    }

    /// Adds its tags to what is created, if they are not there.
    pub(super) fn mark(&self, new: &mut NewBreadcrumb) {
        for tag in &self.tags {
            if !new.tags.contains(tag) {
                new.tags.push(tag.clone());
            }
        }
    }
}

/// The creation_keys of the creations of a commit.
pub(super) fn creation_keys(
    end: Option<&(Lease, RunEnd)>,
    tenant: &str,
    of: usize,
) -> impl FnMut() -> CreationKey {
    let run = end.and_then(|(lease, end)| match end {
        RunEnd::Done | RunEnd::Skipped(_) | RunEnd::Superseded => Some((lease.key(tenant), false)),
        RunEnd::Failed(_) => Some((lease.key(tenant), true)),
        RunEnd::Suspended { .. } | RunEnd::Continues => None,
    });
    let in_run = end.is_some();
    let mut number = 0;
    move || {
        let creation = match &run {
            Some((key, has_failed)) => {
                let has_failed = *has_failed;
                CreationKey::of_run(key, Place { has_failed, number }, of)
            }
            None if in_run => CreationKey::of_write(),
            None => CreationKey::anonymous(),
        };
        number += 1;
        creation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, Timestamp};
    use crate::store::RunRef;

    fn first(end: Option<RunEnd>) -> [CreationKey; 2] {
        let run = RunRef::new("echo", BreadcrumbId::NIL, 1);
        let lease = Lease::new(run, 1, Timestamp::UNIX_EPOCH);
        let end = end.map(|end| (lease, end));
        let mut creation_keys = creation_keys(end.as_ref(), "t", 2);
        [creation_keys(), creation_keys()]
    }

    #[test]
    fn the_slots_of_a_response_are_the_same_in_every_attempt_and_others_are_not() {
        let (done, again) = (first(Some(RunEnd::Done)), first(Some(RunEnd::Done)));

        assert_eq!(done, again);
        assert_ne!(done[0], done[1]);
        assert_eq!(done[0].tag(), done[1].tag());
        assert_ne!(
            first(Some(RunEnd::Continues)),
            first(Some(RunEnd::Continues))
        );
        assert!(first(None)[0].tags.is_empty());
    }

    #[test]
    fn a_slot_is_on_what_it_marked_and_not_on_another_slot() {
        let [one, other] = first(Some(RunEnd::Done));
        let mut new = NewBreadcrumb::new("note.v1");

        one.mark(&mut new);
        one.mark(&mut new);

        assert_eq!(new.tags.len(), 2);
        assert!(one.is_on(&new.tags) && !other.is_on(&new.tags));
        assert!(!first(None)[0].is_on(&new.tags));
    }
}
