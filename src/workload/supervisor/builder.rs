use super::session_queue::Shared;
use super::settings::Settings;
use super::{Restart, Supervisor};
use crate::services::Services;
use crate::store::BreadcrumbStore;
use crate::workload::executor::{check_definition, definition_error};
use crate::workload::{Definition, WorkloadError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Builder for a [`Supervisor`].
///
/// [`Supervisor::builder`] creates it with the defaults of each method.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use std::time::Duration;
/// use universal_executor::workload::{NativeDefinition, Supervisor, SupervisorError};
/// use universal_executor::{MemoryStore, Services};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let echo = NativeDefinition::new("echo", |_, _| async { Ok(json!("done")) });
/// let store = MemoryStore::default();
/// let supervisor = Supervisor::builder(Arc::new(echo), &Services::new(), &store)
///     .concurrency(8)
///     .queue(1, 1_000)
///     .drain_timeout(Duration::from_secs(5))
///     .build()?;
///
/// let first = supervisor.send("session-1", "hi")?;
/// let second = supervisor.send("session-1", "hi again");
/// assert!(matches!(second, Err(SupervisorError::SessionFull { limit: 1, .. })));
/// assert_eq!(first.outcome().await.final_text().as_deref(), Some("done"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
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

    /// Sets the maximum number of workload turns that the supervisor runs at the same time, at least 1. Defaults to
    /// 64.
    pub const fn concurrency(mut self, turns: usize) -> Self {
        self.settings.concurrency = turns;
        self
    }

    /// Sets the maximum numbers of waiting turns: of one session, and of all sessions. Each is at least 1, because a
    /// turn waits before it starts. Defaults to 16 and 10,000.
    pub const fn queue(mut self, of_session: usize, of_all: usize) -> Self {
        self.settings.max_waiting_per_session = at_least_one(of_session);
        self.settings.max_waiting = at_least_one(of_all);
        self
    }

    /// Sets the number of events that are buffered for slow subscribers of a session, at least 1. Defaults to 1,024. A
    /// session with a subscriber allocates the whole buffer, about 32 bytes per event.
    pub const fn buffer(mut self, events: usize) -> Self {
        self.settings.buffer = events;
        self
    }

    /// Sets the maximum number of subscribers of all sessions, at least 1. Defaults to 10,000. Each session with a
    /// subscriber uses the memory of its [`buffer`](Self::buffer), by default about 34 KB.
    pub const fn subscribers(mut self, subscribers: usize) -> Self {
        self.settings.subscribers = at_least_one(subscribers);
        self
    }

    /// Sets the supervisor's retry policy for failed workload turns. Defaults to a single attempt.
    pub const fn restart(mut self, restart: Restart) -> Self {
        self.settings.restart = restart;
        self
    }

    /// Sets the time for which [`close`](Supervisor::close) waits for running and waiting turns. Defaults to 30 s.
    pub const fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain_timeout = timeout;
        self
    }

    /// Sets the timeout for closing a workload. The same timeout applies to the save of a turn that is stopped during
    /// the save. Defaults to 30 s. A workload that takes longer is dropped, and is listed in
    /// [`not_closed`](crate::workload::TurnOutcome::not_closed).
    pub const fn close_timeout(mut self, timeout: Duration) -> Self {
        self.settings.close_timeout = timeout;
        self
    }

    /// Creates the supervisor of the workload, after a check that the workload can be created.
    ///
    /// # Errors
    /// Returns a [`WorkloadError`] if every turn would fail, for example because the definition names a tool that the
    /// services do not have.
    pub fn build(self) -> Result<Supervisor, WorkloadError> {
        let Self {
            definition,
            services,
            store,
            settings,
        } = self;
        let prepared = definition.prepare(&services, &store);
        let prepared = prepared.map_err(|source| definition_error(&*definition, source))?;
        let definition = if let Some(prepared) = prepared {
            prepared
        } else {
            check_definition(&*definition, &services, &store)?;
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

    /// A definition that looks up its services in `check` and in `prepare`, and counts these lookups together with its
    /// prepared definition.
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
                false => Err("workloads are created from the prepared definition".into()),
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
