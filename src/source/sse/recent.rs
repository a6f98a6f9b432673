//! Recently delivered breadcrumb versions, to detect duplicate events.

use crate::model::BreadcrumbId;
use std::collections::{HashSet, VecDeque};

/// The breadcrumb versions that the event source delivered most recently. An older version may be delivered again,
/// which is harmless.
#[derive(Debug, Default)]
pub(super) struct RecentVersions {
    known: HashSet<(BreadcrumbId, u64)>,
    order: VecDeque<(BreadcrumbId, u64)>,
}

impl RecentVersions {
    /// Maximum number of delivered breadcrumb versions in memory.
    const MAX_VERSIONS: usize = 65_536;

    pub(super) fn contains(&self, id: BreadcrumbId, version: u64) -> bool {
        self.known.contains(&(id, version))
    }

    /// Records a breadcrumb version as delivered. Returns `false` if the version was recorded before.
    pub(super) fn record(&mut self, id: BreadcrumbId, version: u64) -> bool {
        if !self.known.insert((id, version)) {
            return false;
        }
        self.order.push_back((id, version));
        if self.order.len() > Self::MAX_VERSIONS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_new_once_and_only_so_many_are_remembered() {
        let mut recent = RecentVersions::default();
        let id = |n: usize| BreadcrumbId::from_bytes((n as u128).to_be_bytes());

        let new = [
            recent.record(id(0), 1),
            recent.record(id(0), 1),
            recent.record(id(0), 2),
        ];
        for n in 1..=RecentVersions::MAX_VERSIONS {
            recent.record(id(n), 1);
        }

        assert_eq!(new, [true, false, true]);
        assert_eq!(
            (recent.known.len(), recent.order.len()),
            (RecentVersions::MAX_VERSIONS, RecentVersions::MAX_VERSIONS)
        );
        assert!(!recent.contains(id(0), 1) && recent.contains(id(1), 1));
    }
}
