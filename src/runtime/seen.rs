//! Which versions were taken in lately.

use crate::model::BreadcrumbId;
use std::collections::{HashMap, VecDeque};

/// The newest versions that were announced, so that a look into the store can tell what nobody told of.
#[derive(Debug, Default)]
pub(super) struct Seen {
    newest: HashMap<BreadcrumbId, u64>,
    order: VecDeque<(BreadcrumbId, u64)>,
}

impl Seen {
    /// How many are remembered. What is older is told apart by the ledger.
    const MOST: usize = 65_536;

    /// Notes a version; false if it, or a later one, was noted before.
    pub(super) fn is_new(&mut self, id: BreadcrumbId, version: u64) -> bool {
        if self
            .newest
            .get(&id)
            .is_some_and(|newest| *newest >= version)
        {
            return false;
        }
        self.newest.insert(id, version);
        self.order.push_back((id, version));
        while self.order.len() > Self::MOST {
            if let Some((id, version)) = self.order.pop_front()
                && self.newest.get(&id) == Some(&version)
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

    #[test]
    fn a_version_is_new_once_and_an_older_one_never_after_it() {
        let mut seen = Seen::default();
        let id = BreadcrumbId::NIL;

        let new: Vec<bool> = [2, 2, 1, 3].map(|version| seen.is_new(id, version)).into();

        assert_eq!(new, [true, false, false, true]);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut seen = Seen::default();

        for _ in 0..Seen::MOST + 10 {
            seen.is_new(uuid::Uuid::now_v7().into(), 1);
        }

        assert_eq!(
            (seen.newest.len(), seen.order.len()),
            (Seen::MOST, Seen::MOST)
        );
    }
}
