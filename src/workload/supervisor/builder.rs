use super::lane::Shared;
use super::settings::Settings;
use super::{Restart, Supervisor};
use crate::services::Services;
use crate::store::BreadcrumbStore;
use crate::workload::executor::{broken, checked};
use crate::workload::{Definition, WorkloadError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Makes a [`Supervisor`].
#[must_use]
pub struct SupervisorBuilder {
    definition: Arc<dyn Definition>,
    services: Services,
    store: Arc<dyn BreadcrumbStore>,
    settings: Settings,
}

impl SupervisorBuilder {
    pub(super) fn new(
        definition: Arc<dyn Definition>,
        services: Services,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Self {
        Self {
            definition,
            services,
            store,
            settings: Settings::default(),
        }
    }

    /// Sets how many turns run at a time, at the least one; 64 by default.
    pub const fn concurrency(mut self, turns: usize) -> Self {
        self.settings.at_once = turns;
        self
    }

    /// Sets how many turns of one session wait, and how many of all, at the least one each, since a turn waits until it is taken
    /// up; 16 and 10,000 by default.
    pub const fn queue(mut self, of_session: usize, of_all: usize) -> Self {
        self.settings.queue = at_least_one(of_session);
        self.settings.queued = at_least_one(of_all);
        self
    }

    /// Sets how many events are kept for subscribers of a session that are slow, at the least one; 1,024 by default. A session that
    /// somebody listens to has the room for them, about 32 bytes each, whether there are events or not.
    pub const fn buffer(mut self, events: usize) -> Self {
        self.settings.buffer = events;
        self
    }

    /// Sets the maximum number of subscribers of all sessions, at least one; 10,000 by default. Each session with a subscriber
    /// uses the memory of its [`buffer`](Self::buffer), by default about 34 KB.
    pub const fn subscribers(mut self, subscribers: usize) -> Self {
        self.settings.subscribers = at_least_one(subscribers);
        self
    }

    /// Sets how often a turn is tried; once by default.
    pub const fn restart(mut self, restart: Restart) -> Self {
        self.settings.restart = restart;
        self
    }

    /// Sets how long [`close`](Supervisor::close) waits for what is running; 30 seconds by default.
    pub const fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain = timeout;
        self
    }

    /// Sets how long a workload has to close, and the store to keep a turn that is stopped meanwhile; 30 seconds by default. A
    /// workload that takes longer is dropped, and is among those [not closed](crate::workload::TurnOutcome::not_closed).
    pub const fn close_timeout(mut self, timeout: Duration) -> Self {
        self.settings.patience = timeout;
        self
    }

    /// The supervisor.
    ///
    /// # Errors
    /// [`WorkloadError`]: what would go wrong with every turn goes wrong here.
    pub fn build(self) -> Result<Supervisor, WorkloadError> {
        let Self {
            definition,
            services,
            store,
            settings,
        } = self;
        checked(&*definition, &services, &store)?;
        let prepared = definition.prepare(&services, &store);
        let prepared = prepared.map_err(|source| broken(&*definition, source))?;
        let definition = prepared.unwrap_or(definition);
        Ok(Supervisor {
            shared: Arc::new(Shared::new(definition, services, store, settings)),
        })
    }
}

const fn at_least_one(number: usize) -> usize {
    match number {
        0 => 1,
        more => more,
    }
}

impl fmt::Debug for SupervisorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorBuilder")
            .field("workload", &self.definition.meta().name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
