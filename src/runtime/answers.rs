//! Search of the store for breadcrumbs that answer open `wait_for` calls or wake suspended runs. The search is needed if an event did not
//! reach this worker: the source delivered it to another worker, or the runtime takes no events.

use super::position::Range;
use super::shared::Shared;
use super::store_context::StoreContext;
use super::suspended::wake;
use super::sweep::{self, PageReceiver, SweepDecision};
use crate::error::Chain;
use crate::model::{Breadcrumb, Event, Timestamp};
use crate::store::StoreError;
use std::sync::Arc;

/// The receivers of the breadcrumbs that a search of the store finds: suspended runs, and open `wait_for` calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AnswerRecipients {
    /// Only suspended runs receive the breadcrumbs that the search of the store finds. The search covers a time before the open
    /// `wait_for` calls began.
    Suspended,
    WaitsAndSuspended,
}

/// Passes each breadcrumb committed after a time to the open `wait_for` calls and suspended runs that wait for it, oldest first. Returns
/// the time of the newest breadcrumb.
pub(super) async fn search(
    shared: &Shared,
    store_context: &StoreContext,
    after: Timestamp,
    recipients: AnswerRecipients,
) -> Result<Timestamp, StoreError> {
    let mut matcher = AnswerMatcher {
        shared,
        store_context,
        recipients,
    };
    sweep::read_since(store_context.store(), after, &mut matcher).await
}

/// Searches the store once for the breadcrumbs that suspended runs wait for and that were committed after the time `after`. Returns `false`
/// if the search fails.
pub(super) async fn search_from_oldest(
    shared: &Shared,
    store_context: &StoreContext,
    after: Timestamp,
) -> bool {
    match search(shared, store_context, after, AnswerRecipients::Suspended).await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(code = error.code(), error = %Chain(&error), "cannot search the store for the answers that suspended runs wait for, will retry");
            store_context.wakes.note_unsearched(after);
            false
        }
    }
}

/// Receiver that matches each breadcrumb found in the store with the open `wait_for` calls and the suspended runs.
struct AnswerMatcher<'s> {
    shared: &'s Shared,
    store_context: &'s StoreContext,
    recipients: AnswerRecipients,
}

impl PageReceiver for AnswerMatcher<'_> {
    async fn receive(
        &mut self,
        page: Vec<Arc<Breadcrumb>>,
        _: &[Range],
    ) -> Result<SweepDecision, StoreError> {
        for found in page {
            self.answer(&found).await;
        }
        Ok(SweepDecision::Continue)
    }
}

impl AnswerMatcher<'_> {
    async fn answer(&self, found: &Arc<Breadcrumb>) {
        let Self {
            shared,
            store_context,
            recipients,
        } = self;
        // A version announced to this worker was matched when it was announced: a wait that began later must not receive it.
        if *recipients == AnswerRecipients::WaitsAndSuspended
            && !shared.progress.dedup().contains(found)
        {
            let waits = store_context.waits.matching(&Event::updated(found));
            store_context.waits.answer(&waits, found);
        }
        for candidate in store_context.wakes.concerned(found) {
            wake(store_context, &candidate, found).await;
        }
    }
}
