//! A search of the store for answers without an event: the source delivered it to another worker, or the runtime takes no events.

use super::position::Range;
use super::shared::Shared;
use super::store_context::StoreContext;
use super::suspended::wake;
use super::sweep::{self, Next, Pages};
use crate::error::Chain;
use crate::model::{Breadcrumb, Event, Timestamp};
use crate::store::StoreError;
use std::sync::Arc;

/// Receivers of answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum To {
    /// The suspended runs only, because the search begins before the waits.
    Suspended,
    WaitsAndSuspended,
}

/// Gives each breadcrumb committed after a time to the waits and suspended runs that it answers, oldest first. Returns the
/// time of the newest breadcrumb.
pub(super) async fn search(
    shared: &Shared,
    store_context: &StoreContext,
    after: Timestamp,
    to: To,
) -> Result<Timestamp, StoreError> {
    let mut answers = Answers {
        shared,
        store_context,
        to,
    };
    sweep::since(store_context.store(), after, &mut answers).await
}

/// Searches the store once for the answers of many runs that were committed after a time. Returns `false` if it cannot be read.
pub(super) async fn search_from_oldest(
    shared: &Shared,
    store_context: &StoreContext,
    after: Timestamp,
) -> bool {
    match search(shared, store_context, after, To::Suspended).await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(code = error.code(), error = %Chain(&error), "cannot search for the answers that suspended runs wait for, will retry");
            store_context.wakes.note_unsearched(after);
            false
        }
    }
}

/// Matches the pages of a search.
struct Answers<'s> {
    shared: &'s Shared,
    store_context: &'s StoreContext,
    to: To,
}

impl Pages for Answers<'_> {
    async fn take(&mut self, page: Vec<Arc<Breadcrumb>>, _: &[Range]) -> Result<Next, StoreError> {
        for found in page {
            self.answer(&found).await;
        }
        Ok(Next::Continue)
    }
}

impl Answers<'_> {
    async fn answer(&self, found: &Arc<Breadcrumb>) {
        let Self {
            shared,
            store_context,
            to,
        } = self;
        // A version announced to this worker was matched when it was announced: a later wait must not get it.
        if *to == To::WaitsAndSuspended && !shared.progress.dedup().knows(found) {
            let waits = store_context.waits.concerned(&Event::updated(found));
            store_context.waits.answer(&waits, found);
        }
        for candidate in store_context.wakes.concerned(found) {
            wake(store_context, &candidate, found).await;
        }
    }
}
