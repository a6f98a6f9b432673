use super::path_value::PathValue;
use super::paths::Paths;
use super::scan::scan;
use crate::model::condition::{ConditionContext, search};
use crate::model::json::Json;
use crate::model::path::Path;
use serde_json::Value;
use std::cell::OnceCell;
use std::hash::RandomState;

/// The values of an event's context at the JSONPaths in the conditions of one group of selectors.
///
/// The first access finds the values at all paths of the group, in the parsed value if there is one, otherwise by a scan of the text
/// without parsing it.
pub(super) struct EventValues<'e> {
    context: Option<&'e Json>,
    paths: &'e Paths,
    state: &'e RandomState,
    values: OnceCell<Option<Vec<PathValue<'e>>>>,
}

impl<'e> EventValues<'e> {
    pub(super) fn new(context: Option<&'e Json>, paths: &'e Paths, state: &'e RandomState) -> Self {
        Self {
            context,
            paths,
            state,
            values: OnceCell::new(),
        }
    }

    /// Returns the values of an event's context at the JSONPaths of the indexed conditions, sorted by path number, or `None` if
    /// the context is missing or unreadable.
    pub(super) fn values(&self) -> Option<&[PathValue<'e>]> {
        self.values.get_or_init(|| self.find()).as_deref()
    }

    /// Returns the value of an event's context at the JSONPath with this number, or `None` if the context has no value there.
    pub(super) fn value(&self, path: usize) -> Option<&PathValue<'e>> {
        let values = self.values()?;
        let at = values.binary_search_by_key(&path, PathValue::path).ok()?;
        values.get(at)
    }

    /// Returns the hash of a JSONPath and of the value at this path in an event's context, to find selectors that require this
    /// value. Equal values have equal hashes.
    pub(super) fn hash(&self, value: &PathValue<'_>) -> u64 {
        value.hash(self.state)
    }

    fn find(&self) -> Option<Vec<PathValue<'e>>> {
        let context = self.context?;
        if !self.paths.is_empty()
            && let Some(text) = context.unparsed_text()
            && let Some(values) = scan(text, self.paths)
        {
            return Some(values);
        }
        let value = context.read()?;
        let mut values = Vec::new();
        self.paths.walk(Paths::ROOT, value, &mut |path, value| {
            values.push(PathValue::borrowed(path, value));
        });
        values.sort_by_key(PathValue::path);
        Some(values)
    }
}

impl ConditionContext for EventValues<'_> {
    fn is_available(&self) -> bool {
        self.values().is_some()
    }

    fn any(&self, path: &Path, limit: usize, check: &dyn Fn(&Value) -> bool) -> Option<bool> {
        let context = self.context?;
        match path.steps() {
            Some(steps) if context.unparsed_text().is_some() => {
                let value = self.paths.find(steps).and_then(|path| self.value(path));
                Some(value.and_then(PathValue::value).is_some_and(check))
            }
            Some(_) | None => search(path, context.read()?, limit, check),
        }
    }
}
