//! Index of suspended runs that stores a hash instead of each selector, to use less memory. Each selector of a run takes 110 to
//! 220 bytes.
//!
//! Each selector is represented by one comparison, which every matching breadcrumb passes. Only a hash of the comparison is stored. A
//! breadcrumb that passes the comparison may wake the run. The row in the ledger, which has the selector, decides.

use super::interned::Interned;
use super::{SuspendedRun, WakeCandidate};
use crate::model::{BreadcrumbId, Event, Op, Path, Selector, Timestamp};
use crate::store::RunRef;
use foldhash::fast::RandomState as FastState;
use serde_json::Value;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// Maximum number of selectors that the index of suspended runs stores under the same required tag or context string. The limit
/// bounds the number of candidate runs of an event.
const MAX_PER_COMPARISON: usize = 16;

/// Maximum number of parts of a schema's breadcrumbs (the tags, or a context path) that the index of suspended runs compares.
const MAX_PATHS: usize = 32;

/// Number that marks the end of a linked list of entries in the index of suspended runs.
const END: u32 = u32::MAX;

/// Suspended runs, indexed by a string that a breadcrumb must have as a tag or in its context to wake the run. One comparison
/// with such a string represents each selector of a run.
#[derive(Debug, Default)]
pub(super) struct Compact {
    entries: Vec<Option<CompactEntry>>,
    free: Vec<u32>,
    /// Map from the hash of a required tag or context string to the first entry in the index of suspended runs that requires it.
    by_comparison: HashMap<u64, u32, FastState>,
    /// Map from the hash of a suspended run to the first index entry with this run hash.
    by_run: HashMap<u64, u32, FastState>,
    kinds: Interned<ComparisonKind>,
    /// Map from a schema name to the parts of its breadcrumbs that are compared to find suspended runs: the tags, and the strings
    /// at some context paths.
    by_schema: HashMap<Arc<str>, Vec<(u32, Option<Path>)>>,
    executors: Interned<Arc<str>>,
    /// Keyed hasher of the required strings and of the suspended runs. The random key prevents authors of breadcrumbs from choosing strings
    /// with colliding hashes.
    state: RandomState,
}

/// Index entry of one selector of a suspended run.
#[derive(Clone, Copy, Debug)]
struct CompactEntry {
    trigger: BreadcrumbId,
    version: u64,
    /// Time at which the run was suspended.
    since: Timestamp,
    comparison: u64,
    next_with_comparison: u32,
    next_of_run: u32,
    executor: u32,
    kind: u32,
    /// Sequence number of the last check that listed the run as suspended.
    check: u32,
}

/// The part of a schema's breadcrumbs that the index of suspended runs compares: the tags, or the string at a JSONPath of the
/// context.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct ComparisonKind {
    schema: Arc<str>,
    path: Option<Arc<str>>,
}

/// A comparison that represents a selector in the index: a tag or a context string of a breadcrumb must equal the required string `text`.
struct Comparison<'s> {
    kind: ComparisonKind,
    path: Option<&'s Path>,
    text: &'s str,
}

impl Compact {
    /// Adds a run to this index of suspended runs, which does not contain the run yet. Returns `false`, and adds nothing, if no
    /// comparison can represent one of the run's selectors.
    pub(super) fn insert(&mut self, suspended_run: &SuspendedRun, check: u32) -> bool {
        let comparisons: Option<Vec<Comparison<'_>>> = suspended_run
            .selectors
            .iter()
            .map(|one| self.comparison(one))
            .collect();
        let Some(comparisons) = comparisons else {
            return false;
        };
        let run = &suspended_run.run;
        for comparison in comparisons {
            let executor = self.executors.acquire(&run.executor);
            let kind = self.kinds.acquire(&comparison.kind);
            let kinds = self
                .by_schema
                .entry(Arc::clone(&comparison.kind.schema))
                .or_default();
            if !kinds.iter().any(|(known, _)| *known == kind) {
                kinds.push((kind, comparison.path.cloned()));
            }
            let entry = CompactEntry {
                trigger: run.trigger_id,
                version: run.trigger_version,
                since: suspended_run.since,
                comparison: self.hash(kind, comparison.text),
                next_with_comparison: END,
                next_of_run: END,
                executor,
                kind,
                check,
            };
            self.link(entry);
        }
        true
    }

    /// Returns the number of selectors of suspended runs in the index.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns the time at which a run was suspended, or `None` if the run is not in this index of suspended runs.
    pub(super) fn since(&self, run: &RunRef) -> Option<Timestamp> {
        let slot = *self.of_run(run).first()?;
        self.entry(slot).map(|entry| entry.since)
    }

    /// Records that a check of all suspended runs listed a run.
    pub(super) fn confirm(&mut self, run: &RunRef, check: u32) {
        for slot in self.of_run(run) {
            if let Some(Some(entry)) = self.entries.get_mut(index(slot)) {
                entry.check = check;
            }
        }
    }

    /// Removes a run from this index of suspended runs. Returns `true` if the run was stored.
    pub(super) fn remove(&mut self, run: &RunRef) -> bool {
        let slots = self.of_run(run);
        for slot in &slots {
            self.unlink(*slot);
        }
        !slots.is_empty()
    }

    /// Removes the suspended runs that the last check of all suspended runs did not list. One call inspects at most `most` index
    /// entries, from `start` on. Returns the start of the next call, or `None` at the end.
    pub(super) fn retain(&mut self, check: u32, start: usize, most: usize) -> Option<usize> {
        let end = self.entries.len().min(start.saturating_add(most));
        for slot in start..end {
            // All entries of the run, also those of other steps.
            if let Some(Some(entry)) = self.entries.get(slot)
                && entry.check != check
                && let Some(candidate) = self.candidate(entry)
            {
                self.remove(&candidate.run);
            }
        }
        (end < self.entries.len()).then_some(end)
    }

    /// Adds the suspended runs that an event may wake to `found`. Returns `false` if the event may wake other runs too, which depends on
    /// the context that the event does not contain.
    pub(super) fn find(&self, event: &Event, found: &mut Vec<WakeCandidate>) -> bool {
        let kinds = event.schema_name.as_deref();
        let kinds = kinds.and_then(|schema| self.by_schema.get(schema));
        let mut is_all = true;
        for (kind, path) in kinds.into_iter().flatten() {
            match (path, &event.context) {
                (None, _) => {
                    for tag in &event.tags {
                        self.find_comparison(*kind, tag, found);
                    }
                }
                (Some(path), Some(context)) => {
                    if let Ok(Some(Value::String(text))) = path.first(context) {
                        self.find_comparison(*kind, text, found);
                    }
                }
                (Some(_), None) => is_all = false,
            }
        }
        is_all
    }

    /// Returns selectors that match every breadcrumb that may wake a suspended run.
    pub(super) fn selectors(&self) -> impl Iterator<Item = Selector> {
        self.by_schema
            .keys()
            .map(|schema| Selector::schema(&**schema))
    }

    /// Removes from the index all suspended runs that a breadcrumb with this schema may wake by a string in its context.
    pub(super) fn forget_context_comparisons(&mut self, schema: &str) {
        let kinds = self.by_schema.get(schema).into_iter().flatten();
        let kinds: Vec<u32> = kinds
            .filter_map(|(kind, path)| path.as_ref().map(|_| *kind))
            .collect();
        for slot in 0..self.entries.len() {
            if let Some(Some(entry)) = self.entries.get(slot)
                && kinds.contains(&entry.kind)
                && let Some(candidate) = self.candidate(entry)
            {
                self.remove(&candidate.run);
            }
        }
    }

    fn find_comparison(&self, kind: u32, text: &str, found: &mut Vec<WakeCandidate>) {
        let first = self.by_comparison.get(&self.hash(kind, text)).copied();
        for slot in self.list(first, Link::Comparison) {
            let candidate = self.entry(slot).and_then(|entry| self.candidate(entry));
            let is_new = |new: &WakeCandidate| !found.iter().any(|known| known.run == new.run);
            found.extend(candidate.filter(is_new));
        }
    }

    /// Returns a comparison with one tag or context string, which every breadcrumb that the selector matches passes. The
    /// comparison uses the selector's first string condition or tag that few other selectors have.
    fn comparison<'s>(&self, selector: &'s Selector) -> Option<Comparison<'s>> {
        let schema: Arc<str> = selector.schema_name()?.into();
        let kinds = self.by_schema.get(&*schema).map_or(0, Vec::len);
        let conditions = selector.conditions().iter();
        let texts = conditions.filter_map(|condition| match condition.compiled()? {
            (path, Op::Eq, Value::String(text)) if path.is_plain() => Some((Some(path), text)),
            _ => None,
        });
        let tags = selector.all_of_tags().iter().map(|tag| (None, tag));
        let mut comparisons = texts.chain(tags).map(|(path, text)| Comparison {
            kind: ComparisonKind {
                schema: Arc::clone(&schema),
                path: path.map(|path| path.source().into()),
            },
            path,
            text,
        });
        comparisons.find(|comparison| match self.kinds.find(&comparison.kind) {
            Some(kind) => self.count(kind, comparison.text) < MAX_PER_COMPARISON,
            None => kinds < MAX_PATHS,
        })
    }

    fn count(&self, kind: u32, text: &str) -> usize {
        let first = self.by_comparison.get(&self.hash(kind, text)).copied();
        self.list(first, Link::Comparison).count()
    }

    fn hash(&self, kind: u32, text: &str) -> u64 {
        self.state.hash_one((kind, text))
    }

    fn run_hash(&self, executor: u32, trigger: BreadcrumbId, version: u64) -> u64 {
        self.state.hash_one((executor, trigger, version))
    }

    fn candidate(&self, entry: &CompactEntry) -> Option<WakeCandidate> {
        let executor = self.executors.get(entry.executor)?;
        Some(WakeCandidate {
            run: RunRef::new(Arc::clone(executor), entry.trigger, entry.version),
            since: entry.since,
        })
    }

    fn entry(&self, slot: u32) -> Option<&CompactEntry> {
        self.entries.get(index(slot))?.as_ref()
    }

    /// Returns the index entries of a suspended run.
    fn of_run(&self, run: &RunRef) -> Vec<u32> {
        let Some(executor) = self.executors.find(&run.executor) else {
            return Vec::new();
        };
        let hash = self.run_hash(executor, run.trigger_id, run.trigger_version);
        let is_of_run = |slot: &u32| {
            self.entry(*slot).is_some_and(|entry| {
                let name = (entry.executor, entry.trigger, entry.version);
                name == (executor, run.trigger_id, run.trigger_version)
            })
        };
        let first = self.by_run.get(&hash).copied();
        self.list(first, Link::Run).filter(is_of_run).collect()
    }

    /// Returns the entries of a linked list in the index of suspended runs, by their slots.
    fn list(&self, first: Option<u32>, link: Link) -> impl Iterator<Item = u32> {
        std::iter::successors(first, move |slot| {
            let next = self.entry(*slot).map_or(END, |entry| entry.next(link));
            (next != END).then_some(next)
        })
    }

    fn link(&mut self, mut entry: CompactEntry) {
        let hash = self.run_hash(entry.executor, entry.trigger, entry.version);
        // The limit on entries is far below the largest number.
        let new = u32::try_from(self.entries.len()).unwrap_or(END);
        let slot = self.free.pop().unwrap_or(new);
        entry.next_with_comparison = self
            .by_comparison
            .insert(entry.comparison, slot)
            .unwrap_or(END);
        entry.next_of_run = self.by_run.insert(hash, slot).unwrap_or(END);
        match self.entries.get_mut(index(slot)) {
            Some(element) => *element = Some(entry),
            None => self.entries.push(Some(entry)),
        }
    }

    /// Removes the entry of a suspended run's selector from this index and from its two linked lists: by comparison and by run.
    fn unlink(&mut self, slot: u32) {
        let Some(entry) = self.entry(slot).copied() else {
            return;
        };
        let hash = self.run_hash(entry.executor, entry.trigger, entry.version);
        self.unlink_from(
            Link::Comparison,
            entry.comparison,
            slot,
            entry.next_with_comparison,
        );
        self.unlink_from(Link::Run, hash, slot, entry.next_of_run);
        if let Some(element) = self.entries.get_mut(index(slot)) {
            *element = None;
            self.free.push(slot);
        }
        self.executors.release(entry.executor);
        if let Some(kind) = self.kinds.release(entry.kind)
            && let Some(kinds) = self.by_schema.get_mut(&kind.schema)
        {
            kinds.retain(|(known, _)| *known != entry.kind);
            if kinds.is_empty() {
                self.by_schema.remove(&kind.schema);
            }
        }
    }

    /// Removes the index entry of a suspended run's selector from one of its two linked lists: by comparison or by run. `next` is
    /// the following entry of the list.
    fn unlink_from(&mut self, link: Link, hash: u64, slot: u32, next: u32) {
        let firsts = match link {
            Link::Comparison => &mut self.by_comparison,
            Link::Run => &mut self.by_run,
        };
        let first = firsts.get(&hash).copied();
        if first == Some(slot) {
            match next {
                END => drop(firsts.remove(&hash)),
                next => drop(firsts.insert(hash, next)),
            }
            return;
        }
        let is_before = |before: &u32| {
            let before = self.entry(*before);
            before.is_some_and(|before| before.next(link) == slot)
        };
        let before = self.list(first, link).find(is_before);
        let before = before.and_then(|before| self.entries.get_mut(index(before)));
        if let Some(Some(before)) = before {
            *before.next_mut(link) = next;
        }
    }
}

#[cfg(test)]
impl Compact {
    /// Returns `true` if the index of suspended runs is empty, and its internal maps have no data of removed runs.
    pub(super) fn is_bare(&self) -> bool {
        self.len() == 0
            && self.by_comparison.is_empty()
            && self.by_run.is_empty()
            && self.by_schema.is_empty()
            && self.executors.is_empty()
            && self.kinds.is_empty()
    }
}

/// The linked lists of an index entry: the entries with the same comparison, and the entries of the same run.
#[derive(Clone, Copy, Debug)]
enum Link {
    Comparison,
    Run,
}

impl CompactEntry {
    fn next(&self, link: Link) -> u32 {
        match link {
            Link::Comparison => self.next_with_comparison,
            Link::Run => self.next_of_run,
        }
    }

    fn next_mut(&mut self, link: Link) -> &mut u32 {
        match link {
            Link::Comparison => &mut self.next_with_comparison,
            Link::Run => &mut self.next_of_run,
        }
    }
}

fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}
