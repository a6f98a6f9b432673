//! The events of a file, with and without a named consumer, in the conformance suite for sources.

use crate::sqlite::{Folder, quick};
use crate::wrappers::wrapped::Around;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use universal_executor::source::conformance::{Abilities, Change, SourceUnderTest};
use universal_executor::store::conformance::announce;
use universal_executor::store::{SqliteLimits, SqliteStore};
use universal_executor::{BoxError, Event, EventSource};

/// Creates files whose events are delivered to any subscriber or to named consumers.
struct Files {
    folder: Folder,
    made: AtomicU64,
    saves_consumers: bool,
}

impl Files {
    fn new(saves_consumers: bool) -> Self {
        Self {
            folder: Folder::new(),
            made: AtomicU64::new(0),
            saves_consumers,
        }
    }

    async fn make(&self, limits: SqliteLimits) -> Opened {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.0.join(format!("{number}.db"));
        let store = quick(&path).limits(limits).open().await.unwrap();
        Opened { store, path }
    }
}

struct Opened {
    store: SqliteStore,
    path: PathBuf,
}

impl SourceUnderTest for Files {
    type Backend = Opened;

    fn abilities(&self) -> Abilities {
        Abilities::default()
            .history(true)
            .redelivers(true)
            .saves_consumers(self.saves_consumers)
    }

    async fn fresh(&self) -> Opened {
        self.make(SqliteLimits::default()).await
    }

    async fn fresh_with_limit(&self, events: usize) -> Option<Opened> {
        let mut limits = SqliteLimits::default();
        limits.events = events;
        Some(self.make(limits).await)
    }

    async fn in_tenant(&self, place: &Opened, tenant: &str) -> Option<Opened> {
        Some(Opened {
            store: place.store.in_tenant(tenant),
            path: place.path.clone(),
        })
    }

    async fn restart(&self, place: Opened) -> Option<Opened> {
        place.store.close().await;
        let store = quick(&place.path).open().await.unwrap();
        Some(Opened { store, ..place })
    }

    fn source(&self, place: &Opened, consumer: &str) -> Box<dyn EventSource> {
        if self.saves_consumers {
            Box::new(place.store.events_of(consumer))
        } else {
            Box::new(place.store.events())
        }
    }

    async fn commit(&self, place: &Opened, changes: Vec<Change>) -> Result<Vec<Event>, BoxError> {
        Ok(announce(&place.store, changes).await?)
    }

    async fn advance_clock(&self, duration: Duration) {
        tokio::time::pause();
        tokio::time::advance(duration).await;
        tokio::time::resume();
    }
}

universal_executor::source_conformance!(events, Files::new(false));
universal_executor::source_conformance!(events_of_a_consumer, Files::new(true));
universal_executor::source_conformance!(without_faults, Around::faultless(Files::new(false)));
universal_executor::source_conformance!(that_stumble, Around::stumbling(Files::new(false)));
universal_executor::source_conformance!(of_one_that_stumbles, Around::stumbling(Files::new(true)));
universal_executor::source_conformance!(observed, Around::watched(Files::new(false)));
universal_executor::source_conformance!(observed_of_one, Around::watched(Files::new(true)));
