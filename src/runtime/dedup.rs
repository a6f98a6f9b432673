//! Record of recent breadcrumb versions, to recognise duplicates: the versions that events announced, and the versions that
//! sweeps found.

use crate::model::{Breadcrumb, BreadcrumbId, Event};
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The newest versions of breadcrumbs that events announced or sweeps found. A sweep uses them to find breadcrumbs whose events did not
/// arrive. An event whose schema or tags differ from the stored breadcrumb does not count: the event did not reach the executors that the
/// breadcrumb triggers.
#[derive(Debug, Default)]
pub(super) struct Dedup {
    newest: HashMap<BreadcrumbId, KnownVersion, RandomState>,
    order: VecDeque<(BreadcrumbId, KnownVersion)>,
}

/// A version of a breadcrumb that an event announced or a sweep found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct KnownVersion {
    version: u64,
    /// A hash of the schema and the tags of the breadcrumb version.
    metadata_hash: u64,
}

impl KnownVersion {
    fn new(version: u64, schema: Option<&str>, tags: &[String]) -> Self {
        let mut tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        tags.sort_unstable();
        let mut hasher = DefaultHasher::new();
        (schema, tags).hash(&mut hasher);
        let metadata_hash = hasher.finish();
        Self {
            version,
            metadata_hash,
        }
    }
}

impl Dedup {
    /// Maximum number of breadcrumb versions that are remembered to recognise duplicates. The ledger deduplicates the triggers of
    /// older versions.
    const MAX_VERSIONS: usize = 65_536;

    /// Records the breadcrumb version of an event, unless a later version is recorded.
    pub(super) fn record_announced(&mut self, event: &Event) {
        let known = KnownVersion::new(event.version, event.schema_name.as_deref(), &event.tags);
        let newest = self.newest.get(&event.breadcrumb_id);
        if newest.is_none_or(|newest| newest.version <= known.version) {
            self.note(event.breadcrumb_id, known);
        }
    }

    /// Returns `true` if the version of a stored breadcrumb is recorded with the same schema and the same tags.
    pub(super) fn contains(&self, found: &Breadcrumb) -> bool {
        let known = KnownVersion::new(found.version, found.schema_name.as_deref(), &found.tags);
        self.newest.get(&found.id) == Some(&known)
    }

    /// Records a breadcrumb version that a sweep found in the store. Returns `false` if the version was recorded before.
    pub(super) fn record_found(&mut self, found: &Breadcrumb) -> bool {
        let known = KnownVersion::new(found.version, found.schema_name.as_deref(), &found.tags);
        self.note(found.id, known)
    }

    /// Removes the recorded version of a breadcrumb, so that a sweep finds the breadcrumb again.
    pub(super) fn forget(&mut self, id: BreadcrumbId) {
        self.newest.remove(&id);
    }

    /// Removes all recorded versions of breadcrumbs, so that a sweep finds the breadcrumbs again.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn note(&mut self, id: BreadcrumbId, known: KnownVersion) -> bool {
        if self.newest.insert(id, known) == Some(known) {
            return false;
        }
        self.order.push_back((id, known));
        while self.order.len() > Self::MAX_VERSIONS {
            if let Some((id, known)) = self.order.pop_front()
                && self.newest.get(&id) == Some(&known)
            {
                self.newest.remove(&id);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NewBreadcrumb, Timestamp};

    fn breadcrumb(version: u64, tag: &str) -> Breadcrumb {
        let new = NewBreadcrumb::new("note.v1").tag(tag);
        Breadcrumb {
            version,
            ..new.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH)
        }
    }

    #[test]
    fn a_version_is_found_once_and_not_at_all_if_it_was_announced() {
        let mut dedup = Dedup::default();
        dedup.record_announced(&Event::updated(&breadcrumb(2, "a")));
        dedup.record_announced(&Event::updated(&breadcrumb(1, "a")));

        let new = [2, 3, 3].map(|version| dedup.record_found(&breadcrumb(version, "a")));

        assert_eq!(new, [false, true, false]);
    }

    #[test]
    fn a_breadcrumb_announced_with_other_tags_or_version_is_found_once() {
        let mut dedup = Dedup::default();
        dedup.record_announced(&Event::updated(&breadcrumb(1, "a")));
        let other_tag = [(); 2].map(|()| dedup.record_found(&breadcrumb(1, "b")));
        dedup.record_announced(&Event::updated(&breadcrumb(1_000, "b")));
        let other_version = [(); 2].map(|()| dedup.record_found(&breadcrumb(1, "b")));

        assert_eq!((other_tag, other_version), ([true, false], [true, false]));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut dedup = Dedup::default();

        for _ in 0..Dedup::MAX_VERSIONS + 10 {
            dedup.record_found(&Breadcrumb {
                id: BreadcrumbId::unique(),
                ..breadcrumb(1, "a")
            });
        }

        assert_eq!(
            (dedup.newest.len(), dedup.order.len()),
            (Dedup::MAX_VERSIONS, Dedup::MAX_VERSIONS)
        );
    }
}
