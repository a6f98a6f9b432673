//! Checks of all suspended runs, and searches of the store for missed answers. A missed answer is a breadcrumb without a received event
//! that answers an open `wait_for` call or wakes a suspended run.

use super::{JobResult, Waker};
use crate::clock::later;
use crate::error::Chain;
use crate::model::Timestamp;
use crate::runtime::answers::{self, AnswerRecipients, search_from_oldest};
use crate::runtime::checkpoint::earlier;
use crate::runtime::saved_position;
use crate::runtime::store_context::Operation;
use crate::runtime::suspended::reconcile;
use crate::runtime::timeouts::RETRY_PAUSE;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// State of the periodic checks of all suspended runs of a store.
#[derive(Default)]
pub(super) struct SuspendedCheck {
    pub(super) began: Option<Instant>,
    /// Earliest time of the next check of all suspended runs. The pause between two checks limits the time that checks take.
    pub(super) not_before: Option<Instant>,
    /// Commit time after which the running search reads the store for breadcrumbs that wake suspended runs. `None` if no such
    /// search is running.
    pub(super) searching: Option<Timestamp>,
}

/// State of the searches for missed breadcrumbs that answer open `wait_for` calls. This runtime misses an answer if the event source
/// delivers the event to another worker, or if the runtime takes no events.
#[derive(Default)]
pub(super) struct AnswerSearch {
    /// Time up to which the store was searched for breadcrumbs that answer open `wait_for` calls.
    pub(super) searched_to: Option<Timestamp>,
    pub(super) is_running: bool,
    /// Time of the next search for breadcrumbs that answer open `wait_for` calls. `None` during a search, and if this runtime receives
    /// every event.
    pub(super) next: Option<Instant>,
}

impl Waker {
    /// Searches the store for breadcrumbs that answer open `wait_for` calls or wake suspended runs, and whose events this runtime did not
    /// receive. Without such calls and runs, the search only notes the time of the newest breadcrumb, where the next search starts.
    pub(super) fn search_for_answers(&mut self) {
        self.search.next = None;
        self.search.is_running = true;
        let (is_shared, is_waiting) = (
            self.shared.source_is_shared,
            self.store_context.has_waiting(),
        );
        // Until the runtime was blocked, all answers arrived as events.
        let searched_to = match is_shared {
            true => self.search.searched_to,
            false => self.search.searched_to.max(
                self.store_context
                    .blocked()
                    .and_then(|blocked| blocked.after),
            ),
        };
        let after = searched_to.filter(|_| is_waiting);
        if after.is_none() && searched_to.is_some() && !is_shared {
            return self.note_searched(None);
        }
        let (is_first, started_at) = (searched_to.is_none(), self.started_at);
        let (shared, store_context) = (Arc::clone(&self.shared), Arc::clone(&self.store_context));
        self.spawn_job(async move {
            let searched = match after {
                Some(after) => {
                    let recipients = AnswerRecipients::WaitsAndSuspended;
                    answers::search(&shared, &store_context, after, recipients).await
                }
                None => saved_position::newest(store_context.store()).await,
            };
            if let Err(error) = &searched {
                tracing::warn!(code = error.code(), error = %Chain(error), "cannot search the store for answers to waits and suspended runs, will retry");
            }
            store_context.note_result(Operation::Read, searched.is_ok());
            JobResult::Searched(match (after, searched) {
                (_, Err(_)) => None,
                (Some(after), Ok(newest)) => Some(newest.max(after)),
                (None, Ok(newest)) if is_first => Some(earlier(newest, started_at.elapsed())),
                // The answer to a wait that was opened during this search may be stored already, so the next search must start earlier.
                (None, Ok(_)) if store_context.has_waiting() => None,
                (None, Ok(newest)) => Some(newest),
            })
        });
    }

    pub(super) fn note_searched(&mut self, newest: Option<Timestamp>) {
        self.search.is_running = false;
        self.search.searched_to = newest.or(self.search.searched_to);
        let is_blocked = self.store_context.blocked().is_some();
        if !self.shared.source_is_shared && !is_blocked {
            return;
        }
        let interval = self.shared.settings.sweep;
        let is_urgent =
            is_blocked || self.store_context.waits.len() > 0 || self.search.searched_to.is_none();
        let pause = match is_urgent {
            true => interval.min(RETRY_PAUSE),
            false => interval,
        };
        self.search.next = Some(later(Instant::now(), pause));
    }

    /// Starts a search for breadcrumbs that answer open `wait_for` calls or wake suspended runs, if the runtime takes no events because of
    /// too many deliveries.
    pub(super) fn search_if_blocked(&mut self) {
        let is_idle = self.search.next.is_none() && !self.search.is_running;
        if is_idle && self.store_context.blocked().is_some() {
            self.search_for_answers();
        }
    }

    /// Starts a check of all suspended runs, unless a check is running or has just ended.
    pub(super) fn check_suspended(&mut self) {
        let now = Instant::now();
        if self.check.began.is_some() {
            return;
        }
        if let Some(time) = self.check.not_before.filter(|time| now < *time) {
            self.reconcile_at = self.reconcile_at.min(time);
            return;
        }
        self.check.began = Some(now);
        let (shared, store_context) = (Arc::clone(&self.shared), Arc::clone(&self.store_context));
        self.spawn_job(async move {
            let listed = reconcile(&shared, &store_context).await;
            JobResult::Reconciled { listed }
        });
    }

    pub(super) fn end_check(&mut self, listed: bool) {
        /// Pause after a check of all suspended runs, as a multiple of the duration of this check.
        const PAUSE_FACTOR: u32 = 10;
        /// Maximum pause after a check of all suspended runs.
        const MAX_PAUSE: Duration = Duration::from_secs(600);
        let took = self.check.began.take().map(|began| began.elapsed());
        let pause = took.filter(|_| listed).unwrap_or_default();
        let pause = pause.saturating_mul(PAUSE_FACTOR).min(MAX_PAUSE);
        self.check.not_before = Some(later(Instant::now(), pause));
    }

    /// Starts one search of the store for all suspended runs that a check did not search for individually, to find the
    /// breadcrumbs that wake them. One check makes only a limited number of individual searches.
    pub(super) fn search_from_oldest(&mut self) {
        if self.check.searching.is_some() {
            return;
        }
        let Some(after) = self.store_context.wakes.take_unsearched() else {
            return;
        };
        self.check.searching = Some(after);
        let (shared, store_context) = (Arc::clone(&self.shared), Arc::clone(&self.store_context));
        self.spawn_job(async move {
            let read = search_from_oldest(&shared, &store_context, after).await;
            JobResult::SearchedFromOldest { read }
        });
    }
}
