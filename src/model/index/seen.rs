use super::paths::Paths;
use super::scan::scan;
use super::slot::Slot;
use crate::model::condition::{Look, search};
use crate::model::json::Json;
use crate::model::path::Path;
use serde_json::Value;
use std::cell::OnceCell;
use std::hash::RandomState;

/// The values of an event's context at the paths of one group of selectors.
///
/// The first access finds the values at all paths of the group, in the parsed value if there is one, otherwise by a scan of the text
/// without parsing it.
pub(super) struct Seen<'e> {
    context: Option<&'e Json>,
    paths: &'e Paths,
    state: &'e RandomState,
    slots: OnceCell<Option<Vec<Slot<'e>>>>,
}

impl<'e> Seen<'e> {
    pub(super) fn new(context: Option<&'e Json>, paths: &'e Paths, state: &'e RandomState) -> Self {
        Self {
            context,
            paths,
            state,
            slots: OnceCell::new(),
        }
    }

    /// Returns the values of the event's context at the used paths, sorted by path number, or `None` if the context is missing or
    /// unreadable.
    pub(super) fn slots(&self) -> Option<&[Slot<'e>]> {
        self.slots.get_or_init(|| self.find()).as_deref()
    }

    /// Returns the value of the event's context at the path with this number.
    pub(super) fn slot(&self, path: usize) -> Option<&Slot<'e>> {
        let slots = self.slots()?;
        let at = slots.binary_search_by_key(&path, Slot::path).ok()?;
        slots.get(at)
    }

    /// Returns the hash of a path and its value. Equal values have equal hashes.
    pub(super) fn hash(&self, slot: &Slot<'_>) -> u64 {
        slot.hash(self.state)
    }

    fn find(&self) -> Option<Vec<Slot<'e>>> {
        let context = self.context?;
        if !self.paths.is_empty()
            && let Some(text) = context.unread()
            && let Some(slots) = scan(text, self.paths)
        {
            return Some(slots);
        }
        let value = context.read()?;
        let mut slots = Vec::new();
        self.paths.walk(Paths::ROOT, value, &mut |path, value| {
            slots.push(Slot::borrowed(path, value));
        });
        slots.sort_by_key(Slot::path);
        Some(slots)
    }
}

impl Look for Seen<'_> {
    fn is_there(&self) -> bool {
        self.slots().is_some()
    }

    fn any(&self, path: &Path, limit: usize, check: &dyn Fn(&Value) -> bool) -> Option<bool> {
        let context = self.context?;
        match path.steps() {
            Some(steps) if context.unread().is_some() => {
                let slot = self.paths.find(steps).and_then(|path| self.slot(path));
                Some(slot.and_then(Slot::value).is_some_and(check))
            }
            Some(_) | None => search(path, context.read()?, limit, check),
        }
    }
}
