//! Placeholder until the index below schema level is merged.
use super::event::Event;
use super::selector::{Facts, Selector, Verdict};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct SelectorIndex<K>(BTreeMap<K, Selector>);

impl<K> Default for SelectorIndex<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Copy + Ord> SelectorIndex<K> {
    pub(crate) fn insert(&mut self, key: K, selector: &Selector) {
        self.0.insert(key, selector.clone());
    }

    pub(crate) fn remove(&mut self, key: K, _: &Selector) {
        self.0.remove(&key);
    }

    pub(crate) fn matching(&self, event: &Event) -> Vec<K> {
        let facts = Facts::of_event(event);
        let keep = |(_, selector): &(&K, &Selector)| {
            !matches!(selector.examine(&facts), Verdict::Fails(_))
        };
        self.0.iter().filter(keep).map(|(key, _)| *key).collect()
    }
}
