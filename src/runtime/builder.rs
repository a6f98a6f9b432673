#[cfg(feature = "agents")]
use super::definitions::{DefinitionLoader, StoredDefinitions};
use super::graph::Graph;
use super::progress::Progress;
use super::registry::Registry;
use super::running::Running;
use super::settings::{FirstStart, Settings};
use super::{IntoExecutor, Runtime, RuntimeError, worker_records};
#[cfg(feature = "signal")]
use super::{RunReport, signals::signals};
#[cfg(feature = "agents")]
use crate::agent::Agent;
use crate::bugs::planted;
use crate::executor::UniversalExecutor;
#[cfg(feature = "agents")]
use crate::services::Services;
use crate::source::{EventSource, StartAt};
use crate::store::BreadcrumbStore;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Builder of a [`Runtime`], with its executors and settings. Created by [`Runtime::on`] and [`Runtime::builder`].
///
/// Add executors, change settings, and then call one of these methods:
///
/// | method | effect |
/// |---|---|
/// | [`start`](Self::start) | starts the runtime on a tokio task; [`Running`] stops it |
/// | `run_until_signal` (feature `signal`) | runs until Ctrl-C or SIGTERM |
/// | [`build`](Self::build) | returns the [`Runtime`], for your own stop signal |
///
/// The defaults are for a service. A setting replaces its earlier value. [`build`](Self::build)
/// reports the mistakes in executors and settings.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::{
///     MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
/// let store = MemoryStore::default();
/// let running = Runtime::on(&store)
///     .executor(clerk)
///     .concurrency(8)
///     .drain_timeout(Duration::from_secs(10))
///     .worker_name("desk-1")
///     .start()
///     .await?;
/// let report = running.stop().await?;
/// assert_eq!(report.failed, 0);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[must_use = "a builder runs nothing until `start` is called"]
pub struct RuntimeBuilder {
    /// The store of all executors, or `None` if each executor has a separate store.
    store: Option<Arc<dyn BreadcrumbStore>>,
    source: Box<dyn EventSource>,
    /// The executors of the runtime, in the order in which they were added.
    executors: Vec<AddedExecutor>,
    settings: Settings,
    /// The models and tools that agents use by name, set with the method `services`.
    #[cfg(feature = "agents")]
    services: Option<Services>,
    #[cfg(feature = "agents")]
    definitions: Option<StoredDefinitions>,
    name: Option<Arc<str>>,
}

/// An executor or agent that was added to the builder of a runtime.
enum AddedExecutor {
    Executor(Arc<dyn UniversalExecutor>),
    /// An agent that has no store yet. `build` binds the agent, because the services can be set after the agent was added.
    #[cfg(feature = "agents")]
    Agent(Box<Agent>),
    /// An executor that cannot be added to the runtime, with the reason.
    Problem(RuntimeError),
}

impl RuntimeBuilder {
    pub(super) fn new(
        source: Box<dyn EventSource>,
        store: Option<Arc<dyn BreadcrumbStore>>,
    ) -> Self {
        let first_start = store.as_ref().map(|_| FirstStart::default());
        Self {
            store,
            source,
            executors: Vec::new(),
            settings: Settings {
                first_start,
                ..Settings::default()
            },
            #[cfg(feature = "agents")]
            services: None,
            #[cfg(feature = "agents")]
            definitions: None,
            name: None,
        }
    }

    /// Adds an executor to the runtime. An executor made from a closure uses the runtime's store.
    ///
    /// The argument is the result of [`executor(..)`](fn@crate::executor), or any
    /// [`UniversalExecutor`]. A mistake is reported by [`build`](Self::build), not by this call.
    pub fn executor(mut self, executor: impl IntoExecutor) -> Self {
        let added = match executor.into_executor(self.store.as_ref()) {
            Ok(executor) => AddedExecutor::Executor(executor),
            Err(problem) => AddedExecutor::Problem(problem),
        };
        self.executors.push(added);
        self
    }

    /// Adds an agent to the runtime. The agent uses the runtime's store, and the [`services`](Self::services) provide the model that it
    /// names.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{MemoryStore, Runtime, Subscription};
    ///
    /// let helper = Agent::new("helper", ScriptedModel::new(["Hello!"]))
    ///     .on(Subscription::trigger("user.message.v1"));
    /// let runtime = Runtime::on(&MemoryStore::default()).agent(helper).build()?;
    /// assert_eq!(runtime.executors().len(), 1);
    /// # Ok::<(), universal_executor::runtime::RuntimeError>(())
    /// ```
    #[cfg(feature = "agents")]
    pub fn agent(mut self, agent: Agent) -> Self {
        self.executors.push(AddedExecutor::Agent(Box::new(agent)));
        self
    }

    /// Sets the services: the registered models and tools, from which an agent such as `Agent::new("helper", "gpt-5")` gets its
    /// model by name. The services can be set before or after the agents are added. A further call replaces the services.
    ///
    /// Stored definitions use the services of their [`StoredDefinitions`], which can differ from these.
    ///
    /// ```
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{MemoryStore, Runtime, Services, Subscription};
    ///
    /// let store = MemoryStore::default();
    /// let helper = Agent::new("helper", "gpt-5").on(Subscription::trigger("user.message.v1"));
    /// let services = Services::new().model("gpt-5", ScriptedModel::new(["Hello!"]));
    ///
    /// let runtime = Runtime::on(&store).agent(helper).services(&services).build()?;
    ///
    /// assert!(runtime.executors().iter().any(|id| &**id == "helper"));
    /// # Ok::<(), universal_executor::runtime::RuntimeError>(())
    /// ```
    #[cfg(feature = "agents")]
    pub fn services(mut self, services: &Services) -> Self {
        self.services = Some(services.clone());
        self
    }

    /// Replaces the event source of the runtime, for example by a source that receives events over NATS.
    ///
    /// Use this with [`Runtime::on`], for example to receive events over NATS while the store is
    /// PostgreSQL. The last call counts.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{MemoryStore, Runtime};
    ///
    /// let store = MemoryStore::default();
    /// let builder = Runtime::on(&store).events(store.events());
    /// # drop(builder);
    /// ```
    pub fn events(mut self, source: impl EventSource) -> Self {
        self.source = Box::new(source);
        self
    }

    /// Sets the position in the store from which an executor without a saved position reads breadcrumbs. Defaults to
    /// [`FirstStart::LastHour`] in a runtime [on a store](Runtime::on). [`start_at`](Self::start_at) and [`look_back`](Self::look_back)
    /// then have no effect. A later call of `start_at` replaces this setting.
    ///
    /// Use this for an executor that is new on a store with older breadcrumbs. The first saved
    /// position ends the effect of the setting.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::runtime::FirstStart;
    /// use universal_executor::{MemoryStore, Runtime};
    ///
    /// let store = MemoryStore::default();
    /// let builder = Runtime::on(&store).first_start(FirstStart::Oldest);
    /// # drop(builder);
    /// ```
    pub fn first_start(mut self, start: FirstStart) -> Self {
        self.settings.first_start = Some(start);
        self
    }

    /// Adds several executors to the runtime.
    ///
    /// Use this for executors of different types, each bound to the store already.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use universal_executor::{
    ///     MemoryStore, Response, Runtime, Subscription, UniversalExecutor, executor,
    /// };
    ///
    /// let store = MemoryStore::default();
    /// let mut executors: Vec<Arc<dyn UniversalExecutor>> = Vec::new();
    /// for id in ["first", "second"] {
    ///     let built = executor(id)
    ///         .on(Subscription::trigger("order.v1"))
    ///         .execute(|_| async { Ok(Response::none()) });
    ///     executors.push(Arc::new(built.bind(&store)?));
    /// }
    /// let runtime = Runtime::on(&store).executors(executors).build()?;
    /// assert_eq!(runtime.executors().len(), 2);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn executors(
        mut self,
        executors: impl IntoIterator<Item = Arc<dyn UniversalExecutor>>,
    ) -> Self {
        let executors = executors.into_iter().map(AddedExecutor::Executor);
        self.executors.extend(executors);
        self
    }

    /// Adds the executors that are defined in a store, and follows changes of the definitions.
    ///
    /// The runtime loads the definitions at its start, and a later version without a restart. A
    /// further call replaces the earlier one. See [`StoredDefinitions`].
    #[cfg(feature = "agents")]
    pub fn definitions(mut self, definitions: StoredDefinitions) -> Self {
        self.definitions = Some(definitions);
        self
    }

    /// Sets the name of this worker in [`Runtime::workers`] and in logs. Defaults to the program name with the process ID.
    ///
    /// The name is for people, and two workers can have the same name. The default is, for example,
    /// `desk:4711`.
    pub fn worker_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the maximum number of runs that execute at a time, of all executors together. Defaults to 64. With 1, a run starts after
    /// the response of the previous run is committed. With more, a run that is committing its response does not count.
    ///
    /// Must be more than 0. Agents and tools that wait for a network allow a high value. Reduce it
    /// if runs need much memory.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.settings.concurrency = runs;
        self
    }

    /// Sets the maximum number of concurrent runs of each executor whose profile sets no such limit. Defaults to 16. The limit
    /// keeps a slow executor from using the whole [`concurrency`](Self::concurrency). A run that is committing its response does
    /// not count, unless the limit is 1. At most the same number of runs may commit at a time.
    ///
    /// Must be more than 0. [`Profile::max_inflight`](crate::Profile::max_inflight) sets the limit
    /// of one executor. Both limits hold per worker, not for all workers together.
    pub fn max_inflight(mut self, runs: usize) -> Self {
        self.settings.max_inflight = runs;
        self
    }

    /// Sets the maximum number of event deliveries that are received and not yet handled. Redeliveries count too. Defaults to 8,192.
    /// Further events wait in the source.
    ///
    /// Must be more than 0. Each delivery holds an event in memory, so a lower value uses less
    /// memory.
    pub fn max_deliveries(mut self, deliveries: usize) -> Self {
        self.settings.max_deliveries = deliveries;
        self
    }

    /// Sets the position in the event source from which executors without a saved position receive events. Defaults to
    /// [`StartAt::Now`].
    ///
    /// With [`StartAt::Beginning`], the source delivers all events that it has, and an event that was answered is not answered
    /// again. On a source that can lose events, the runtime then also checks the breadcrumbs of the last
    /// [`look_back`](Self::look_back).
    ///
    /// In a store with a run ledger, the runtime saves the position of each executor. After a downtime of any length, it checks
    /// everything committed since this position, for any `start`. A store that lists quickly at any depth is read oldest first
    /// ([`Capabilities::oldest_first`](crate::store::Capabilities::oldest_first)), any other store newest first.
    pub fn start_at(mut self, start: StartAt) -> Self {
        self.settings.start_at = start;
        self.settings.first_start = None;
        self
    }

    /// Sets the maximum age of the triggers that the runtime searches for when an executor without a saved position starts. The setting
    /// applies if the source can lose events without reporting the loss and [`start_at`](Self::start_at) is not [`StartAt::Now`]. Defaults
    /// to one hour. The minimum is one minute. An `INFO` line reports the time before which breadcrumbs are skipped.
    ///
    /// Without a ledger, the position ends with the process. This limit then applies to the first start of each process, and only
    /// this check finds the runs that were in flight when a process died. In a store with
    /// [`run_keys`](crate::store::Capabilities::run_keys), the runtime searches for the response to each trigger that it finds. In
    /// any other store, the trigger is executed again.
    pub fn look_back(mut self, time: Duration) -> Self {
        self.settings.look_back = time;
        self
    }

    /// Sets the interval at which each worker searches the run ledger for runs that became due without an event. Examples are a
    /// run whose worker was lost, so that its lease expired, and a run whose question got no answer in time. Defaults to 5 s.
    ///
    /// Must be more than 0. A shorter interval finds such runs sooner, and costs more reads of the
    /// ledger by each worker. It is also the interval of the readiness checks in the log.
    pub fn sweep_every(mut self, interval: Duration) -> Self {
        self.settings.sweep = interval;
        self
    }

    /// Sets the interval between checks of the store for runs that other workers suspended, and for breadcrumbs whose events did
    /// not arrive. If the source can lose events without reporting the loss, a check reads everything committed since one minute
    /// before the saved position. This is also the longest interval between two saves of the position. Defaults to 60 s.
    ///
    /// Must be more than 0. With the feature `metrics`, the gauges of the
    /// [backlog](Runtime::backlog) are updated at this interval.
    pub fn reconcile_every(mut self, interval: Duration) -> Self {
        self.settings.reconcile = interval;
        self
    }

    /// Sets the maximum time that the running work of the runtime may take to finish at a shutdown. Defaults to 25 s.
    ///
    /// After this time, the remaining runs are dropped and released within 5 s. They use no
    /// attempt. Give the orchestrator a grace period of more than this time plus 5 s. Zero is
    /// allowed: running work is dropped at once.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain = timeout;
        self
    }

    /// Starts the runtime on a tokio task. Returns once every subscription is active: a breadcrumb that is written after that
    /// triggers its executors.
    ///
    /// Hold the returned [`Running`] until the end of the program, because its drop stops the
    /// runtime. With live workers that run other versions of the executors, the start takes up to
    /// 11 s by default.
    ///
    /// # Errors
    /// - The errors of [`build`](Self::build).
    /// - [`RuntimeError::OlderTriggers`] if an executor starts for the first time and the store has older triggers for it.
    /// - [`RuntimeError::Store`] if the store cannot be searched for these triggers.
    /// - [`RuntimeError::Source`] if the runtime cannot subscribe to the source.
    ///
    /// # Cancel safety
    /// Dropping this future stops the runtime.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Response, Runtime, Subscription,
    ///     executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
    /// let store = MemoryStore::default();
    /// let running = Runtime::on(&store).executor(clerk).start().await?;
    /// store.create(NewBreadcrumb::new("order.v1")).await?;
    /// // The program serves its clients here.
    /// running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn start(self) -> Result<Running, RuntimeError> {
        Running::start(self.build()?).await
    }

    /// Runs the runtime until Ctrl-C or SIGTERM, then finishes the running work and returns a report of the handled events
    /// and runs. A second signal stops immediately.
    ///
    /// Requires a tokio runtime with I/O and time enabled, as with `#[tokio::main]`. tokio keeps its signal handlers installed, so
    /// these signals do not end the process afterwards.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start), and [`RuntimeError::Signals`] if the signal handlers cannot be installed.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::{BoxError, MemoryStore, Response, Runtime, Subscription, executor};
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<(), BoxError> {
    ///     let clerk = executor("clerk")
    ///         .on(Subscription::trigger("order.v1"))
    ///         .execute(|_| async { Ok(Response::none()) });
    ///     let store = MemoryStore::default(); // a service uses a durable store
    ///     let report = Runtime::on(&store).executor(clerk).run_until_signal().await?;
    ///     println!("{} events", report.events);
    ///     Ok(())
    /// }
    /// ```
    #[cfg(feature = "signal")]
    pub async fn run_until_signal(self) -> Result<RunReport, RuntimeError> {
        let signals = signals().map_err(|source| RuntimeError::Signals { source })?;
        self.build()?.run_until_signals(signals).await
    }

    /// Builds the runtime: binds the agents, checks the executors and indexes their subscriptions.
    ///
    /// The call reads nothing from the store and starts nothing. Cycles of executors that trigger
    /// each other are logged at `WARN`.
    ///
    /// # Errors
    /// - [`RuntimeError::DuplicateId`] if two executors have the same ID.
    /// - [`RuntimeError::Invalid`] if an executor's settings are invalid, or its store lacks a feature that the executor needs.
    /// - [`RuntimeError::NoStore`] and [`RuntimeError::OtherStore`] if an executor has no store, or another store than the runtime.
    /// - [`RuntimeError::ZeroSetting`] if a setting is zero.
    /// - With the feature `agents`: `Agent` if an agent cannot be created, `NotADefinition` if the schema name of an
    ///   executor-creating function has no part `def`, and `ServedTool` if the services do not have a tool named in
    ///   `StoredDefinitions::tools`.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::runtime::RuntimeError;
    /// use universal_executor::{MemoryStore, Runtime};
    ///
    /// let zero = Runtime::on(&MemoryStore::default()).concurrency(0).build();
    /// assert!(matches!(zero, Err(RuntimeError::ZeroSetting { setting: "concurrency" })));
    /// ```
    pub fn build(mut self) -> Result<Runtime, RuntimeError> {
        let executors = self.bind_all()?;
        self.settings.max_deliveries = match planted("unbounded-inbox") {
            true => 1 << 20,
            false => self.settings.max_deliveries.min(Semaphore::MAX_PERMITS),
        };
        for (setting, is_zero) in [
            ("concurrency", self.settings.concurrency == 0),
            ("max_inflight", self.settings.max_inflight == 0),
            ("max_deliveries", self.settings.max_deliveries == 0),
            ("sweep_every", self.settings.sweep.is_zero()),
            ("reconcile_every", self.settings.reconcile.is_zero()),
        ] {
            if is_zero {
                return Err(RuntimeError::ZeroSetting { setting });
            }
        }
        #[cfg(feature = "agents")]
        let definition_loader = self.definitions.take().map(loader_of).transpose()?;
        #[cfg(not(feature = "agents"))]
        let definition_loader = None;
        let registry = Registry::new();
        for executor in executors {
            check_store(self.store.as_deref(), &*executor)?;
            registry.add(executor)?;
        }
        for cycle in Graph::of(registry.all().iter().map(|member| &*member.executor)).cycles() {
            tracing::warn!(
                cycle = cycle.to_string(),
                "executors may trigger one another in a cycle, which only the hop limit ends; check their triggers"
            );
        }
        Ok(Runtime {
            source: self.source,
            registry: Arc::new(registry),
            settings: self.settings,
            progress: Arc::new(Progress::default()),
            health_state: Arc::default(),
            name: self.name.unwrap_or_else(worker_records::default_name),
            definition_loader,
        })
    }

    /// Returns the executors of the runtime in the order of their addition, or the error of the first executor that cannot be
    /// created.
    fn bind_all(&mut self) -> Result<Vec<Arc<dyn UniversalExecutor>>, RuntimeError> {
        let added = std::mem::take(&mut self.executors);
        let bound = added.into_iter().map(|added| match added {
            AddedExecutor::Executor(executor) => Ok(executor),
            #[cfg(feature = "agents")]
            AddedExecutor::Agent(agent) => self.bind(*agent),
            AddedExecutor::Problem(problem) => Err(problem),
        });
        bound.collect()
    }

    /// Binds an agent to the runtime's store and services.
    #[cfg(feature = "agents")]
    fn bind(&self, agent: Agent) -> Result<Arc<dyn UniversalExecutor>, RuntimeError> {
        let Some(store) = &self.store else {
            return Err(RuntimeError::NoStore {
                id: agent.id().to_owned(),
            });
        };
        let bound = match &self.services {
            Some(services) => agent.bind_with(store, services),
            None => agent.bind(store),
        };
        Ok(Arc::new(bound?))
    }
}

/// Checks that the settings for executors defined in a store are valid. Returns the loader, which adds, replaces and removes the executors
/// of the definitions.
#[cfg(feature = "agents")]
fn loader_of(definitions: StoredDefinitions) -> Result<Arc<DefinitionLoader>, RuntimeError> {
    definitions.check()?;
    Ok(Arc::new(DefinitionLoader::new(definitions)))
}

/// Checks that an executor uses the store of its runtime.
fn check_store(
    store: Option<&dyn BreadcrumbStore>,
    executor: &dyn UniversalExecutor,
) -> Result<(), RuntimeError> {
    let other = executor.store().identity();
    match store.map(BreadcrumbStore::identity) {
        Some(store) if store != other => Err(RuntimeError::OtherStore {
            id: executor.id().to_owned(),
            other: other.to_string(),
            store: store.to_string(),
        }),
        Some(_) | None => Ok(()),
    }
}

impl fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
