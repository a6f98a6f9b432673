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

    /// Creates the supervisor.
    ///
    /// # Errors
    /// [`WorkloadError`]: a problem that would fail every turn is an error here.
    pub fn build(self) -> Result<Supervisor, WorkloadError> {
        let Self {
            definition,
            services,
            store,
            settings,
        } = self;
        let prepared = definition.prepare(&services, &store);
        let prepared = prepared.map_err(|source| broken(&*definition, source))?;
        let definition = if let Some(prepared) = prepared {
            prepared
        } else {
            checked(&*definition, &services, &store)?;
            definition
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BoxError;
    use crate::model::{Subscription, Subscriptions};
    use crate::store::MemoryStore;
    use crate::workload::{Meta, NativeDefinition, Workload, WorkloadExecutor};
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A definition that looks up its services in `check` and in `prepare`, and counts these lookups. Its prepared definition counts
    /// with it.
    struct Counted {
        inner: NativeDefinition,
        lookups: Arc<AtomicUsize>,
        is_broken: bool,
        is_prepared: bool,
    }

    impl Counted {
        fn new(is_broken: bool) -> Arc<Self> {
            let inner = NativeDefinition::new("greeter", |_, _| async { Ok(json!("Hello!")) });
            Arc::new(Self {
                inner,
                lookups: Arc::default(),
                is_broken,
                is_prepared: false,
            })
        }

        fn look_up(&self) -> Result<(), BoxError> {
            self.lookups.fetch_add(1, Ordering::Relaxed);
            match self.is_broken {
                true => Err("tool \"search\" is not registered".into()),
                false => Ok(()),
            }
        }
    }

    impl Definition for Counted {
        fn meta(&self) -> &Meta {
            self.inner.meta()
        }

        fn check(&self, _: &Services, _: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError> {
            self.look_up()
        }

        fn prepare(
            &self,
            _: &Services,
            _: &Arc<dyn BreadcrumbStore>,
        ) -> Result<Option<Arc<dyn Definition>>, BoxError> {
            self.look_up()?;
            Ok(Some(Arc::new(Self {
                inner: self.inner.clone(),
                lookups: Arc::clone(&self.lookups),
                is_broken: false,
                is_prepared: true,
            })))
        }

        fn instantiate(
            &self,
            services: &Services,
            store: &Arc<dyn BreadcrumbStore>,
        ) -> Result<Box<dyn Workload>, BoxError> {
            match self.is_prepared {
                true => self.inner.instantiate(services, store),
                false => Err("workloads are made from the prepared definition".into()),
            }
        }
    }

    #[tokio::test]
    async fn a_supervisor_looks_up_the_services_of_its_definition_once() {
        let definition = Counted::new(false);
        let shared: Arc<dyn Definition> = definition.clone();
        let supervisor = Supervisor::builder(shared, &Services::new(), &MemoryStore::default());

        let supervisor = supervisor.build().unwrap();
        let turns = ["hi", "hi again"].map(|message| supervisor.send("one", message).unwrap());
        let [first, second] = turns.map(|turn| turn.outcome());

        assert_eq!(first.await.final_text().as_deref(), Some("Hello!"));
        assert_eq!(second.await.final_text().as_deref(), Some("Hello!"));
        assert_eq!(definition.lookups.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_executor_looks_up_the_services_of_its_definition_once() {
        let definition = Counted::new(false);
        let shared: Arc<dyn Definition> = definition.clone();
        let (services, store) = (Services::new(), MemoryStore::default());
        let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();

        let executor = WorkloadExecutor::new("greeter", shared, &services, &store, messages);
        drop(executor.unwrap());

        assert_eq!(definition.lookups.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_supervisor_of_a_definition_that_cannot_be_prepared_is_an_error() {
        let store = MemoryStore::default();
        let supervisor = Supervisor::builder(Counted::new(true), &Services::new(), &store);

        let error = supervisor.build().unwrap_err();

        let WorkloadError::Definition { workload, source } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(workload, "greeter");
        assert_eq!(source.to_string(), "tool \"search\" is not registered");
    }
}
