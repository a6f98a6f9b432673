//! A search of the store for answers without an event: the source delivered it to another worker, or the runtime takes no events.

use super::position::Range;
use super::shared::Shared;
use super::store_context::StoreContext;
use super::suspended::wake;
use super::sweep::{self, Next, Pages};
use crate::model::{Breadcrumb, Event, Timestamp};
use crate::store::StoreError;
use std::sync::Arc;

/// Gives each breadcrumb committed after a time to the waits and suspended runs that it answers, oldest first. Returns the
/// time of the newest breadcrumb.
pub(super) async fn search(
    shared: &Shared,
    store_context: &StoreContext,
    after: Timestamp,
) -> Result<Timestamp, StoreError> {
    sweep::since(
        store_context.store(),
        after,
        &mut Answers {
            shared,
            store_context,
        },
    )
    .await
}

/// Matches the pages of a search.
struct Answers<'s> {
    shared: &'s Shared,
    store_context: &'s StoreContext,
}

impl Pages for Answers<'_> {
    async fn take(&mut self, page: Vec<Arc<Breadcrumb>>, _: &[Range]) -> Result<Next, StoreError> {
        for found in page {
            answer(self.shared, self.store_context, &found).await;
        }
        Ok(Next::Continue)
    }
}

async fn answer(shared: &Shared, store_context: &StoreContext, found: &Arc<Breadcrumb>) {
    let event = Event::updated(found);
    // A version announced to this worker was matched when it was announced: a later wait must not get it.
    if !shared.progress.dedup().knows(found) {
        store_context
            .waits
            .answer(&store_context.waits.concerned(&event), found);
    }
    for candidate in store_context.wakes.concerned(&event) {
        wake(store_context, &candidate, found).await;
    }
}
