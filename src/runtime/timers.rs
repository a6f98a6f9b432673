//! Which executor to look after next, and when.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use tokio::time::Instant;

/// Executors to look after at a time; bounded, since the sweep finds what is left out here.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeSet<(Instant, Arc<str>)>,
}

impl Timers {
    const MOST: usize = 10_000;

    pub(super) fn add(&mut self, at: Instant, executor: Arc<str>) {
        if self.due.len() < Self::MOST {
            self.due.insert((at, executor));
        }
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Arc<str>> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.due.first() {
            if *at > now {
                break;
            }
            due.extend(self.due.pop_first().map(|(_, executor)| executor));
        }
        due
    }
}

/// Executors that take turns; each waits at most once.
#[derive(Debug, Default)]
pub(super) struct Turns {
    queue: VecDeque<Arc<str>>,
    waiting: HashSet<Arc<str>>,
}

impl Turns {
    pub(super) fn add(&mut self, executor: Arc<str>) {
        if self.waiting.insert(Arc::clone(&executor)) {
            self.queue.push_back(executor);
        }
    }

    pub(super) fn take(&mut self) -> Option<Arc<str>> {
        let executor = self.queue.pop_front()?;
        self.waiting.remove(&executor);
        Some(executor)
    }
}

impl FromIterator<Arc<str>> for Turns {
    fn from_iter<I: IntoIterator<Item = Arc<str>>>(executors: I) -> Self {
        let mut turns = Self::default();
        executors
            .into_iter()
            .for_each(|executor| turns.add(executor));
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_due_is_taken_once_and_in_order() {
        let start = Instant::now();
        let mut timers = Timers::default();
        for (delay, executor) in [(2, "b"), (1, "a"), (9, "c")] {
            timers.add(start + Duration::from_secs(delay), executor.into());
        }

        let due = timers.take_due(start + Duration::from_secs(2));

        assert_eq!(due.iter().map(|id| &**id).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(timers.first(), Some(start + Duration::from_secs(9)));
    }

    #[test]
    fn executors_take_turns_and_wait_once_each() {
        let mut turns: Turns = ["a", "b", "a"].into_iter().map(Arc::from).collect();

        assert_eq!(turns.take().as_deref(), Some("a"));
        turns.add("a".into());

        assert_eq!(turns.take().as_deref(), Some("b"));
        assert_eq!(turns.take().as_deref(), Some("a"));
        assert_eq!(turns.take(), None);
    }
}
