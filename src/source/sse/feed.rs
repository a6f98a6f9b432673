//! Events of one event stream connection, sent to all subscribers.

use super::health::SseHealth;
use super::recent::Recent;
use super::size::fitting;
use crate::model::{BreadcrumbId, Event};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{broadcast, watch};

/// Message to a subscriber of the event stream: an event, or the end of the connection.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Event(Event),
    /// The event stream connection ended. The string describes the cause.
    Broke(Arc<str>),
}

/// State of the attempts to connect to the event stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) is_ready: bool,
    /// Total number of failed connections to the event stream. `why` has the cause of the last failure.
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

    /// Removes an event's context if the context is too large. Returns `None` for an event whose tags and schema name are
    /// too large, and records the event's version, so that backfill queries do not find it again.
    pub(super) fn fit(&self, event: Event) -> Option<Event> {
        let (id, version) = (event.breadcrumb_id, event.version);
        let fits = fitting(event);
        if fits.is_none() && self.note(id, version) {
            self.health().unreadable += 1;
            tracing::debug!(%id, version, "skipped an event whose tags or schema name are too large");
        }
        fits
    }

    /// Sends an event within the [size limits](Self::fit) to the subscribers. Returns `false` if this breadcrumb
    /// version was sent before.
    pub(super) fn tell(&self, event: Event) -> bool {
        if !self.note(event.breadcrumb_id, event.version) {
            return false;
        }
        self.health().told += 1;
        // Sending fails if there is no subscriber.
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
