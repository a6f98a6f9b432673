//! A search of the store for answers that the source delivered to another worker.

use super::home::Home;
use super::lookout::wake;
use super::shared::Shared;
use super::sweep::{self, Found};
use crate::model::{Event, Timestamp};
use crate::store::StoreError;
use tokio::sync::mpsc;

/// Number of breadcrumbs in memory between the reader and the matching.
const AHEAD: usize = 64;

/// Gives each breadcrumb committed after a time to the waits and suspended runs that it answers, oldest first. Returns the
/// time of the newest breadcrumb.
pub(super) async fn search(
    shared: &Shared,
    home: &Home,
    after: Timestamp,
) -> Result<Timestamp, StoreError> {
    let (sender, mut found) = mpsc::channel(AHEAD);
    let read = async move { sweep::sweep(home.store(), after, &sender).await };
    let matched = async {
        while let Some(found) = found.recv().await {
            answer(shared, home, &found).await;
        }
    };
    let (newest, ()) = futures::join!(read, matched);
    newest
}

async fn answer(shared: &Shared, home: &Home, found: &Found) {
    let event = Event::updated(found);
    // A version announced to this worker was matched when it was announced: a later wait must not get it.
    if !shared.progress.seen().knows(found) {
        home.waits.answer(&home.waits.concerned(&event), found);
    }
    let sleepers = home.wakes.concerned(&event);
    for sleeper in sleepers.iter().filter(|sleeper| sleeper.wakes_on(found)) {
        wake(home, sleeper, found.id).await;
    }
}
