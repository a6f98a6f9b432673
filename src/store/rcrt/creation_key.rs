//! Idempotency keys and tags by which a created breadcrumb can be found again.

use crate::model::NewBreadcrumb;
use crate::store::tagged_response::{ResponseIndex, run_tag};
use crate::store::{Lease, RunEnd};
use uuid::Uuid;

/// Idempotency key and tags of one breadcrumb creation, by which the breadcrumb is found if the server's response is lost.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct CreationKey {
    /// Prefix of the idempotency keys of the breadcrumb's creation.
    key: String,
    /// Tags that the created breadcrumb has. Empty if the creation cannot be searched for.
    tags: Vec<String>,
}

impl CreationKey {
    /// Returns the creation key (idempotency key and tags) of a breadcrumb that a run creates at its end. The idempotency key
    /// depends on the index of the breadcrumb, and is equal in every attempt of the run.
    fn of_run(run_key: &str, index: ResponseIndex, of: usize) -> Self {
        Self {
            key: format!("{run_key}:{index}"),
            tags: vec![run_tag(run_key), index.tag(of)],
        }
    }

    /// Returns a unique creation key (idempotency key and tag) for a breadcrumb that a run creates before its end. The key
    /// differs in every attempt.
    fn of_write() -> Self {
        let key = Uuid::new_v4().to_string();
        let tags = vec![format!("ux:write:{key}")];
        Self { key, tags }
    }

    /// Returns a unique creation key (an idempotency key without tags) for a breadcrumb that is created outside of runs. The
    /// breadcrumb is created unchanged.
    fn anonymous() -> Self {
        Self {
            key: Uuid::new_v4().to_string(),
            tags: Vec::new(),
        }
    }

    /// Returns the idempotency key with the number `epoch` of the breadcrumb creation. `epoch` is the number of earlier keys that
    /// the server has already seen, so it starts at 0.
    pub(super) fn key(&self, epoch: u32) -> String {
        format!("{}:{epoch}", self.key)
    }

    /// Returns the tag by which the created breadcrumb can be found, or `None` if the creation has no tags.
    pub(super) fn tag(&self) -> Option<&str> {
        self.tags.first().map(String::as_str)
    }

    /// Returns `true` if `tags` are the tags of a breadcrumb that this creation made. An attempt may have created another number of
    /// breadcrumbs, so that number is ignored.
    pub(super) fn is_on(&self, tags: &[String]) -> bool {
        let index = |tags| ResponseIndex::of(tags).map(|(index, _)| index);
        self.tag()
            .is_some_and(|tag| tags.iter().any(|other| other == tag))
            && index(&self.tags) == index(tags)
    }

    /// Adds the missing tags of this creation to the new breadcrumb.
    pub(super) fn mark(&self, new: &mut NewBreadcrumb) {
        for tag in &self.tags {
            if !new.tags.contains(tag) {
                new.tags.push(tag.clone());
            }
        }
    }
}

/// Returns a function whose calls return the creation keys (idempotency key and tags) of a commit's new breadcrumbs, one per
/// call. `of` is the number of creations.
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
                CreationKey::of_run(key, ResponseIndex { has_failed, number }, of)
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
    fn the_keys_of_a_response_are_the_same_in_every_attempt_and_others_are_not() {
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
    fn a_creation_key_recognises_only_the_breadcrumb_that_it_marked() {
        let [one, other] = first(Some(RunEnd::Done));
        let mut new = NewBreadcrumb::new("note.v1");

        one.mark(&mut new);
        one.mark(&mut new);

        assert_eq!(new.tags.len(), 2);
        assert!(one.is_on(&new.tags) && !other.is_on(&new.tags));
        assert!(!first(None)[0].is_on(&new.tags));
    }
}
