use crate::clock::later;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Running calls of a pool for blocking tool functions: calls whose functions have not returned. Pure: the current time is an
/// argument.
///
/// The pool adds and removes permits as the methods return. The number of free permits is then the number of slots and
/// replacements, less the number of calls.
pub(super) struct Calls {
    pub(super) stuck_after: Duration,
    slots: usize,
    running: BTreeMap<u64, Call>,
    stuck: usize,
    started: u64,
}

struct Call {
    tool: Arc<str>,
    /// The time since which no caller waits for the blocking call, or `None` while a caller waits.
    abandoned_since: Option<Instant>,
    stuck: bool,
}

/// Result of a check of a blocking pool for stuck calls: long-running calls for whose results no caller waits any more.
pub(super) struct StuckCheck {
    /// The names of the tools whose calls have become stuck.
    pub(super) stuck: Vec<Arc<str>>,
    /// The number of replacement slots that the pool adds for the newly stuck calls.
    pub(super) replaced: usize,
    /// The earliest time at which another call of the pool can become stuck.
    pub(super) next: Option<Instant>,
}

/// Report on an ended blocking call, with which the pool updates its permits and logs the end of a stuck call.
pub(super) struct EndedCall {
    /// If `true`, the pool discards the permit of the ended call, and no other call uses this permit. The permit belongs to the
    /// replacement slot of a stuck call, and the pool no longer needs this slot.
    pub(super) surplus: bool,
    /// The name of the called tool, if the ended call was stuck.
    pub(super) was_stuck: Option<Arc<str>>,
}

impl Calls {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            stuck_after: Duration::from_secs(10),
            slots,
            running: BTreeMap::new(),
            stuck: 0,
            started: 0,
        }
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    pub(super) fn stuck(&self) -> usize {
        self.stuck
    }

    /// Records the start of a blocking call in the pool, and returns the number of the call.
    pub(super) fn start(&mut self, tool: &str) -> u64 {
        self.started += 1;
        let call = Call {
            tool: tool.into(),
            abandoned_since: None,
            stuck: false,
        };
        self.running.insert(self.started, call);
        self.started
    }

    /// Records that no caller waits for a blocking call any more. Returns `false` if the function of the call has returned.
    pub(super) fn abandon(&mut self, call: u64, now: Instant) -> bool {
        let Some(call) = self.running.get_mut(&call) else {
            return false;
        };
        call.abandoned_since = Some(now);
        true
    }

    /// Records that the function of a blocking call has returned.
    pub(super) fn end(&mut self, call: u64) -> EndedCall {
        let before = self.replacements();
        let ended = self.running.remove(&call).filter(|call| call.stuck);
        self.stuck -= usize::from(ended.is_some());
        EndedCall {
            surplus: self.replacements() < before,
            was_stuck: ended.map(|call| call.tool),
        }
    }

    /// Checks the pool for blocking calls that have become stuck, and marks them.
    pub(super) fn check_stuck(&mut self, now: Instant) -> StuckCheck {
        let before = self.replacements();
        let mut stuck = Vec::new();
        let mut next: Option<Instant> = None;
        for call in self.running.values_mut().filter(|call| !call.stuck) {
            match call.stuck_at(self.stuck_after) {
                Some(at) if at <= now => {
                    call.stuck = true;
                    stuck.push(Arc::clone(&call.tool));
                }
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        self.stuck += stuck.len();
        StuckCheck {
            replaced: self.replacements() - before,
            stuck,
            next,
        }
    }

    fn replacements(&self) -> usize {
        self.stuck.min(self.slots)
    }
}

impl Call {
    fn stuck_at(&self, after: Duration) -> Option<Instant> {
        Some(later(self.abandoned_since?, after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn there_are_as_many_permits_as_slots_and_replacements_less_the_calls(
            slots in 1_usize..4,
            steps in prop::collection::vec((0_u8..4, any::<prop::sample::Index>(), 0_u64..8), 1..200),
        ) {
            let mut calls = Calls::new(slots);
            let mut now = Instant::now();
            let mut permits = slots;
            let mut running = Vec::new();

            for (what, which, seconds) in steps {
                match what {
                    0 if permits > 0 => {
                        permits -= 1;
                        running.push(calls.start("probe"));
                    }
                    1 if !running.is_empty() => {
                        calls.abandon(running[which.index(running.len())], now);
                    }
                    2 if !running.is_empty() => {
                        let call = running.swap_remove(which.index(running.len()));
                        permits += usize::from(!calls.end(call).surplus);
                        prop_assert!(!calls.abandon(call, now));
                    }
                    _ => {
                        now += Duration::from_secs(seconds);
                        let found = calls.check_stuck(now);
                        permits += found.replaced;
                        prop_assert!(found.next.is_none_or(|at| at > now));
                    }
                }
                prop_assert_eq!(permits + running.len(), slots + calls.stuck().min(slots));
                prop_assert!(running.len() <= 2 * slots);
                prop_assert!(calls.stuck() <= calls.running());
            }
        }
    }
}
