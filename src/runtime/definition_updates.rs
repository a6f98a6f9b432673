//! Background task for executor definitions: applies definitions that the store did not return when their event arrived, and
//! periodically loads all definitions.

use super::ack_tracker::AckTracker;
use super::definitions::DefinitionLoader;
use super::shared::Shared;
use super::timeouts::RETRY_PAUSE;
use crate::clock::later;
use crate::error::Chain;
use crate::model::BreadcrumbId;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// A changed executor definition that an event announced, but whose new version the store did not return. The event delivery
/// stays open until the runtime has loaded the definition.
pub(super) struct ChangedDefinition {
    pub(super) id: BreadcrumbId,
    pub(super) tracker: AckTracker,
}

/// Applies changed executor definitions after their events until the runtime stops, and also loads all definitions at intervals.
pub(super) async fn apply_changes(
    loader: Arc<DefinitionLoader>,
    shared: Arc<Shared>,
    mut inbox: mpsc::Receiver<ChangedDefinition>,
) {
    let stop = shared.stop.clone();
    let mut waiting: Vec<ChangedDefinition> = Vec::new();
    let mut reload = later(Instant::now(), shared.settings.reconcile);
    let mut retry_at = Instant::now();
    loop {
        let has_waiting = !waiting.is_empty();
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = sleep_until(retry_at), if has_waiting => {}
            changed = inbox.recv(), if !has_waiting => match changed {
                Some(changed) => waiting.push(changed),
                None => stop.cancelled().await,
            },
            () = sleep_until(reload) => {
                reload = later(Instant::now(), shared.settings.reconcile);
                if let Err(error) = loader.load(&shared.registry).await {
                    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot load the executor definitions from the store, will retry");
                }
            }
        }
        while let Some(changed) = waiting.pop() {
            match loader.refresh(&shared.registry, changed.id).await {
                Ok(()) => changed.tracker.settle(),
                Err(error) => {
                    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot load a changed executor definition from the store, will retry");
                    waiting.push(changed);
                    retry_at = later(Instant::now(), RETRY_PAUSE);
                    break;
                }
            }
        }
    }
}
