use super::paths::Paths;
use super::scan::scan;
use crate::model::condition::{Look, search};
use crate::model::json::Json;
use crate::model::json_check;
use crate::model::path::Path;
use serde_json::Value;
use std::cell::OnceCell;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// The context of an event, as the selectors of one group see it.
///
/// Nothing is looked at before it is asked for, and all the paths of the group are then found in one go: in the
/// value, if there is one, else in the text, which is not parsed for that.
pub(super) struct Seen<'e> {
    context: Option<&'e Json>,
    paths: &'e Paths,
    state: &'e RandomState,
    slots: OnceCell<Option<Vec<Slot<'e>>>>,
}

/// What is at a path.
pub(super) struct Slot<'e> {
    path: usize,
    node: Node<'e>,
    hash: OnceCell<u64>,
}

enum Node<'e> {
    Text(&'e str, OnceCell<Option<Value>>),
    Borrowed(&'e Value),
    Owned(Value),
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

    /// What is at the paths in use, by the number of the path; `None` if there is no context that can be read.
    pub(super) fn slots(&self) -> Option<&[Slot<'e>]> {
        self.slots.get_or_init(|| self.find()).as_deref()
    }

    /// What is at the path of a number.
    pub(super) fn slot(&self, path: usize) -> Option<&Slot<'e>> {
        let slots = self.slots()?;
        let at = slots.binary_search_by_key(&path, Slot::path).ok()?;
        slots.get(at)
    }

    /// The hash of what is at a path: of equal values the same.
    pub(super) fn hash(&self, slot: &Slot<'_>) -> u64 {
        *slot
            .hash
            .get_or_init(|| slot.node.hash(self.state, slot.path))
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
            slots.push(Slot::of(path, Node::Borrowed(value)));
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

impl<'e> Slot<'e> {
    pub(super) fn text(path: usize, text: &'e str) -> Self {
        Self::of(path, Node::Text(text, OnceCell::new()))
    }

    pub(super) fn owned(path: usize, value: Value) -> Self {
        Self::of(path, Node::Owned(value))
    }

    pub(super) fn path(&self) -> usize {
        self.path
    }

    fn of(path: usize, node: Node<'e>) -> Self {
        Self {
            path,
            node,
            hash: OnceCell::new(),
        }
    }

    pub(super) fn value(&self) -> Option<&Value> {
        self.node.value()
    }
}

impl Node<'_> {
    fn value(&self) -> Option<&Value> {
        match self {
            Self::Text(text, value) => value.get_or_init(|| json_check::parse(text).ok()).as_ref(),
            Self::Borrowed(value) => Some(value),
            Self::Owned(value) => Some(value),
        }
    }

    fn hash(&self, state: &RandomState, path: usize) -> u64 {
        match self {
            Self::Text(text, _) => match unquoted(text) {
                Some(text) => hash_text(state, path, text),
                None => hash_value(state, path, self.value().unwrap_or(&Value::Null)),
            },
            Self::Borrowed(value) => hash_value(state, path, value),
            Self::Owned(value) => hash_value(state, path, value),
        }
    }
}

/// The content of a string without escapes.
fn unquoted(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains('\\')).then_some(inner)
}

/// The hash of "this value at that path". Equal values, as conditions see them, have the same.
pub(super) fn hash_value(state: &RandomState, path: usize, value: &Value) -> u64 {
    let kind = match value {
        Value::String(text) => return hash_text(state, path, text),
        // Equal numbers round to the same float.
        Value::Number(number) => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            return state.hash_one((path, 1_u8, (float + 0.0).to_bits()));
        }
        Value::Null => 2_u8,
        Value::Bool(false) => 3,
        Value::Bool(true) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    };
    state.hash_one((path, kind))
}

fn hash_text(state: &RandomState, path: usize, text: &str) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write_usize(path);
    text.hash(&mut hasher);
    hasher.finish()
}
