//! What one connection hears, for all who subscribed.

use super::health::SseHealth;
use super::recent::Recent;
use super::size::fitting;
use crate::model::{BreadcrumbId, Event};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{broadcast, watch};

/// What a subscriber is told.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Event(Event),
    /// The connection is gone, and why.
    Broke(Arc<str>),
}

/// How far the first connection has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) is_ready: bool,
    /// How many connections failed, and why the last one did.
    pub(super) failures: u64,
    pub(super) why: Option<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Feed {
    pub(super) said: broadcast::Sender<Said>,
    pub(super) progress: watch::Sender<Progress>,
    health: Mutex<SseHealth>,
    recent: Mutex<Recent>,
}

impl Feed {
    pub(super) fn new(buffer: usize) -> Self {
        Self {
            said: broadcast::Sender::new(buffer),
            progress: watch::Sender::default(),
            health: Mutex::default(),
            recent: Mutex::default(),
        }
    }

    /// What can be told of an event; nothing of one that is too large, which counts as told of, so that it is not looked
    /// for again and again.
    pub(super) fn fit(&self, event: Event) -> Option<Event> {
        let (id, version) = (event.breadcrumb_id, event.version);
        let fits = fitting(event);
        if fits.is_none() && self.note(id, version) {
            self.health().unreadable += 1;
            tracing::debug!(%id, version, "an event has too much in its tags and is not told of");
        }
        fits
    }

    /// Tells of an event that [fits](Self::fit); false if its version was told of before.
    pub(super) fn tell(&self, event: Event) -> bool {
        if !self.note(event.breadcrumb_id, event.version) {
            return false;
        }
        self.health().told += 1;
        // Nobody may be there to hear it.
        self.said.send(Said::Event(event)).ok();
        true
    }

    pub(super) fn note(&self, id: BreadcrumbId, version: u64) -> bool {
        self.recent().note(id, version)
    }

    pub(super) fn knows(&self, id: BreadcrumbId, version: u64) -> bool {
        self.recent().knows(id, version)
    }

    pub(super) fn ready(&self) {
        self.health().is_connected = true;
        self.progress
            .send_modify(|progress| progress.is_ready = true);
    }

    pub(super) fn broke(&self, why: &str) {
        let why: Arc<str> = why.into();
        self.health().is_connected = false;
        self.progress.send_modify(|progress| {
            progress.failures += 1;
            progress.why = Some(Arc::clone(&why));
        });
        self.said.send(Said::Broke(why)).ok();
    }

    pub(super) fn health(&self) -> MutexGuard<'_, SseHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
