//! Events of one event stream connection, sent to all subscribers.

use super::health::SseHealth;
use super::recent::RecentVersions;
use super::size::within_size_limits;
use crate::model::{BreadcrumbId, Event};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{broadcast, watch};

/// Message to a subscriber of the event stream: an event, or the end of the connection.
#[derive(Clone, Debug)]
pub(super) enum FeedItem {
    Event(Event),
    /// The event stream connection ended. The string describes the cause.
    Disconnected(Arc<str>),
}

/// State of the attempts to connect to the event stream.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectProgress {
    pub(super) is_ready: bool,
    /// Total number of failed connections to the event stream. `last_error` has the cause of the last failure.
    pub(super) failures: u64,
    pub(super) last_error: Option<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Feed {
    pub(super) items: broadcast::Sender<FeedItem>,
    pub(super) progress: watch::Sender<ConnectProgress>,
    health: Mutex<SseHealth>,
    recent: Mutex<RecentVersions>,
}

impl Feed {
    pub(super) fn new(buffer: usize) -> Self {
        Self {
            items: broadcast::Sender::new(buffer),
            progress: watch::Sender::default(),
            health: Mutex::default(),
            recent: Mutex::default(),
        }
    }

    /// Removes an event's context if the context exceeds the size limit for events of an event stream. Returns `None` for an
    /// event whose tags and schema name are too large, and records the event's version, so that backfill queries do not find it
    /// again.
    pub(super) fn within_limits(&self, event: Event) -> Option<Event> {
        let (id, version) = (event.breadcrumb_id, event.version);
        let fits = within_size_limits(event);
        if fits.is_none() && self.record(id, version) {
            self.health().unreadable += 1;
            tracing::debug!(%id, version, "skipped an event of the event stream, because its tags or schema name exceed the limits of a breadcrumb");
        }
        fits
    }

    /// Sends an event to the subscribers; the event must be within the [size limits](Self::within_limits). Returns `false` if
    /// this breadcrumb version was sent before.
    pub(super) fn send_event(&self, event: Event) -> bool {
        if !self.record(event.breadcrumb_id, event.version) {
            return false;
        }
        self.health().told += 1;
        // Sending fails if there is no subscriber.
        self.items.send(FeedItem::Event(event)).ok();
        true
    }

    pub(super) fn record(&self, id: BreadcrumbId, version: u64) -> bool {
        self.recent().record(id, version)
    }

    pub(super) fn contains(&self, id: BreadcrumbId, version: u64) -> bool {
        self.recent().contains(id, version)
    }

    pub(super) fn set_connected(&self) {
        self.health().is_connected = true;
        self.progress
            .send_modify(|progress| progress.is_ready = true);
    }

    pub(super) fn set_disconnected(&self, why: &str) {
        let why: Arc<str> = why.into();
        self.health().is_connected = false;
        self.progress.send_modify(|progress| {
            progress.failures += 1;
            progress.last_error = Some(Arc::clone(&why));
        });
        self.items.send(FeedItem::Disconnected(why)).ok();
    }

    pub(super) fn health(&self) -> MutexGuard<'_, SseHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> MutexGuard<'_, RecentVersions> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
