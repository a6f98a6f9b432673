//! Application of executor definitions that could not be applied when their event arrived, and the periodic load of all definitions.

use super::ack_tracker::AckTracker;
use super::definitions::Keeper;
use super::shared::Shared;
use super::timeouts::PAUSE;
use crate::clock::later;
use crate::error::Chain;
use crate::model::BreadcrumbId;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Notice of a changed executor definition. The store did not return the new version when its event arrived. The event delivery stays open
/// until the runtime has loaded the definition.
pub(super) struct Announced {
    pub(super) id: BreadcrumbId,
    pub(super) tracker: AckTracker,
}

/// Applies announced executor definitions until the runtime stops, and loads all definitions at intervals.
pub(super) async fn follow(
    keeper: Arc<Keeper>,
    shared: Arc<Shared>,
    mut inbox: mpsc::Receiver<Announced>,
) {
    let stop = shared.stop.clone();
    let mut waiting: Vec<Announced> = Vec::new();
    let mut reload = later(Instant::now(), shared.settings.reconcile);
    let mut again = Instant::now();
    loop {
        let waits = !waiting.is_empty();
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = sleep_until(again), if waits => {}
            announced = inbox.recv(), if !waits => match announced {
                Some(announced) => waiting.push(announced),
                None => stop.cancelled().await,
            },
            () = sleep_until(reload) => {
                reload = later(Instant::now(), shared.settings.reconcile);
                if let Err(error) = keeper.load(&shared.registry).await {
                    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot load the executor definitions from the store, will retry");
                }
            }
        }
        while let Some(announced) = waiting.pop() {
            match keeper.look_at(&shared.registry, announced.id).await {
                Ok(()) => announced.tracker.settle(),
                Err(error) => {
                    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot load a changed executor definition from the store, will retry");
                    waiting.push(announced);
                    again = later(Instant::now(), PAUSE);
                    break;
                }
            }
        }
    }
}
