#[cfg(feature = "workflows")]
mod announced;
mod waiting;

use super::bound::WriteRestriction;
use super::context_error::ContextError;
use super::handle::RunHandle;
#[cfg(feature = "workflows")]
use super::inner::InnerRun;
use super::resumed::Resumed;
use super::sources::{MissingSource, Source};
use super::turn_events::{Record, TurnEvents};
use crate::hints::Hints;
use crate::model::{Breadcrumb, Json, Timestamp};
use crate::store::BreadcrumbStore;
use crate::store::schema_hints::{self, HintsOfSchemas};
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The input of [`execute`](crate::UniversalExecutor::execute): the trigger and the breadcrumbs that the executor's context
/// subscriptions found.
///
/// The contexts of the breadcrumbs are unchanged, and shared with the store instead of copied. Pass only the result of
/// [`for_model`](Self::for_model) to a model.
///
/// The serialised form is `{"trigger": <breadcrumb>, "<key>": <context, or a list of contexts>, ..}`.
///
/// In a run, the crate creates the context before each attempt. A clone copies pointers, so a
/// spawned task can have one. Create a context with [`for_trigger`](Self::for_trigger) only in
/// tests.
///
/// ```
/// use serde_json::json;
/// use universal_executor::{ExecutionContext, NewBreadcrumb};
///
/// let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "What is this page?"}));
/// let context = ExecutionContext::for_trigger(message)
///     .with("page", json!({"url": "https://github.com"}))
///     .with_many("history", [json!({"message": "Hi"})]);
///
/// assert_eq!(context.require("page")?.text("url"), Some("https://github.com"));
/// assert_eq!(context.many("history").len(), 1);
/// assert!(context.require("catalog").is_err());
/// # Ok::<(), universal_executor::executor::ContextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ExecutionContext {
    trigger: Arc<Breadcrumb>,
    alias: Option<String>,
    sources: Vec<Source>,
    missing: Vec<MissingSource>,
    /// If `true`, a test created the execution context with `for_trigger`, so the `llm_hints` of schemas are not read from a
    /// store.
    for_test: bool,
    /// The `llm_hints` of schemas that `with_schema_hints` set, by schema name.
    hints: HintsOfSchemas,
    /// The run that the execution context belongs to. Outside a run, a detached handle that is created at its first use.
    run: OnceLock<Arc<RunHandle>>,
    /// Schemas that may be written through this execution context, or `None` for all schemas of the executor.
    write_restriction: Option<WriteRestriction>,
}

impl ExecutionContext {
    /// Maximum age of the copies of schema hints (`llm_hints` in schema definitions) that a runtime caches. It is 10 seconds. The
    /// cache expires because the event that announces a change of the hints may be delivered to another worker.
    pub const HINTS_AGE: Duration = schema_hints::MAX_AGE;

    /// Creates an execution context for unit tests of `execute`. The context has no sources, and belongs to no run.
    ///
    /// [`attempt`](Self::attempt) is 1, [`deadline`](Self::deadline) is `None`, and
    /// [`save`](Self::save) fails. Add sources with [`with`](Self::with) and
    /// [`with_many`](Self::with_many).
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{BoxError, ExecutionContext, NewBreadcrumb};
    ///
    /// fn total(context: &ExecutionContext) -> Result<u64, BoxError> {
    ///     let count = context.trigger().context["count"].as_u64().ok_or("no count")?;
    ///     let cents = context.require("price")?["cents"].as_u64().ok_or("no price")?;
    ///     Ok(count * cents)
    /// }
    ///
    /// let order = NewBreadcrumb::new("order.v1").context(json!({"count": 3}));
    /// let context = ExecutionContext::for_trigger(order).with("price", json!({"cents": 250}));
    /// assert_eq!(total(&context)?, 750);
    /// # Ok::<(), BoxError>(())
    /// ```
    #[must_use]
    pub fn for_trigger(trigger: impl Into<Arc<Breadcrumb>>) -> Self {
        Self {
            for_test: true,
            write_restriction: None,
            ..Self::new(trigger.into(), None, Vec::new(), Vec::new())
        }
    }

    pub(super) fn new(
        trigger: Arc<Breadcrumb>,
        alias: Option<String>,
        sources: Vec<Source>,
        missing: Vec<MissingSource>,
    ) -> Self {
        Self {
            trigger,
            alias,
            sources,
            missing,
            for_test: false,
            write_restriction: None,
            hints: HintsOfSchemas::new(),
            run: OnceLock::new(),
        }
    }

    /// Binds the execution context to the run `run`, and sets the alias under which the context returns the trigger.
    pub(super) fn bound_to(mut self, run: Arc<RunHandle>, alias: Option<String>) -> Self {
        self.run = OnceLock::from(run);
        self.alias = alias;
        self
    }

    /// Adds a context source with a single item. The item has no schema and no hints.
    #[must_use]
    pub fn with(self, key: impl Into<String>, context: impl Into<Json>) -> Self {
        let items = vec![self.example(context.into())];
        self.with_source(key.into(), items, true)
    }

    /// Adds a context source that is a list of items. The items have no schemas and no hints.
    ///
    /// In a run, a subscription with a limit above 1 has this form.
    #[must_use]
    pub fn with_many<J: Into<Json>>(
        self,
        key: impl Into<String>,
        contexts: impl IntoIterator<Item = J>,
    ) -> Self {
        let contexts = contexts.into_iter();
        let items = contexts.map(|context| self.example(context.into()));
        let items = items.collect();
        self.with_source(key.into(), items, false)
    }

    /// Adds a context source that is a list of breadcrumbs, each with its schema, tags and `llm_hints`.
    ///
    /// Use it if the executor reads tags, schemas or hints of the items.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{ExecutionContext, NewBreadcrumb};
    ///
    /// let files = [NewBreadcrumb::new("file.v1").tag("name:a.txt")];
    /// let context = ExecutionContext::for_trigger(NewBreadcrumb::new("order.v1"))
    ///     .with_breadcrumbs("files", files);
    /// assert_eq!(context.many("files")[0].tag("name:"), Some("a.txt"));
    /// ```
    #[must_use]
    pub fn with_breadcrumbs<B: Into<Arc<Breadcrumb>>>(
        self,
        key: impl Into<String>,
        items: impl IntoIterator<Item = B>,
    ) -> Self {
        let items = items.into_iter().map(Into::into).collect();
        self.with_source(key.into(), items, false)
    }

    /// Sets the `llm_hints` of a schema, as if they came from the schema's definition. [`for_model`](Self::for_model) applies
    /// them to breadcrumbs of the schema without `llm_hints`. As in a run, invalid hints withhold these breadcrumbs from the
    /// model.
    #[must_use]
    pub fn with_schema_hints(mut self, schema: impl Into<String>, hints: impl Into<Json>) -> Self {
        let hints = Hints::from_json(&hints.into()).map(Some);
        self.hints.insert(schema.into(), hints);
        self
    }

    /// Sets the alias of the trigger: a key under which [`get`](Self::get), [`many`](Self::many) and
    /// [`require`](Self::require) return the trigger.
    ///
    /// In a run, the alias is the key of the matching trigger subscription.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{ExecutionContext, NewBreadcrumb};
    ///
    /// let order = NewBreadcrumb::new("order.v1").context(json!({"count": 3}));
    /// let context = ExecutionContext::for_trigger(order).with_alias("order");
    /// assert_eq!(context.require("order")?["count"], 3);
    /// # Ok::<(), universal_executor::executor::ContextError>(())
    /// ```
    #[must_use]
    pub fn with_alias(mut self, key: impl Into<String>) -> Self {
        self.alias = Some(key.into());
        self
    }

    /// Sets the state that the run saved earlier, for a unit test of a run that resumes. `with` is the breadcrumb that woke the
    /// run, or `None`.
    #[must_use]
    pub fn with_resumed(mut self, state: impl Into<Json>, with: Option<Arc<Breadcrumb>>) -> Self {
        let resumed = Resumed {
            state: state.into(),
            with,
        };
        self.run = OnceLock::from(Arc::new(RunHandle::detached(Some(resumed))));
        self
    }

    pub(super) fn run(&self) -> &RunHandle {
        self.run.get_or_init(|| Arc::new(RunHandle::detached(None)))
    }

    fn example(&self, context: Json) -> Arc<Breadcrumb> {
        Arc::new(Breadcrumb {
            context,
            schema_name: None,
            tags: Vec::new(),
            llm_hints: None,
            ..(*self.trigger).clone()
        })
    }

    fn with_source(mut self, key: String, items: Vec<Arc<Breadcrumb>>, is_one: bool) -> Self {
        self.sources.push(Source {
            key,
            items,
            scores: Vec::new(),
            is_one,
            required: false,
            priority: 0,
        });
        self
    }

    /// Returns the breadcrumb that triggered the executor.
    ///
    /// The breadcrumb has the version that was read from the store at the start of the attempt.
    #[must_use]
    pub fn trigger(&self) -> &Breadcrumb {
        &self.trigger
    }

    /// Returns the JSON context of a breadcrumb by key: the key of a context source with one item, or the trigger's alias.
    ///
    /// Returns `None` if the source is a list, is missing, or found nothing.
    ///
    /// Use it for an optional source, and [`require`](Self::require) for an error with the reason.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{ExecutionContext, NewBreadcrumb};
    ///
    /// let context = ExecutionContext::for_trigger(NewBreadcrumb::new("order.v1"))
    ///     .with("price", json!({"cents": 250}));
    /// let cents = context.get("price").and_then(|price| price["cents"].as_u64());
    /// assert_eq!(cents, Some(250));
    /// assert!(context.get("discount").is_none());
    /// ```
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        if self.alias.as_deref() == Some(key) {
            return Some(&self.trigger.context);
        }
        let source = self.source(key).filter(|source| source.is_one)?;
        source.items.first().map(|item| &item.context)
    }

    /// Returns the breadcrumbs under a key as a slice: the breadcrumbs of the context source with this key, or the trigger for the
    /// trigger's alias. The slice of an unknown or missing source is empty.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{ExecutionContext, NewBreadcrumb};
    ///
    /// let message = NewBreadcrumb::new("user.message.v1");
    /// let context = ExecutionContext::for_trigger(message)
    ///     .with_many("history", [json!({"message": "Hi"}), json!({"message": "Hello"})]);
    /// let texts = context.many("history").iter().filter_map(|item| item.context.text("message"));
    /// assert_eq!(texts.collect::<Vec<_>>(), ["Hi", "Hello"]);
    /// ```
    #[must_use]
    pub fn many(&self, key: &str) -> &[Arc<Breadcrumb>] {
        if self.alias.as_deref() == Some(key) {
            return std::slice::from_ref(&self.trigger);
        }
        self.source(key)
            .map(|source| source.items.as_slice())
            .unwrap_or_default()
    }

    /// Returns the JSON context of a breadcrumb by key, or an error if [`get`](Self::get) returns `None`. The key belongs to a
    /// context source of one item, or is the trigger's alias.
    ///
    /// Return the error from `execute` with `?`. If the source found nothing, the run is retried. A
    /// wrong key fails the run at once.
    ///
    /// # Errors
    /// [`ContextError::UnknownKey`] with the known keys, [`ContextError::IsList`] if the source is a list,
    /// [`ContextError::NotFound`] if the source found nothing, and [`ContextError::Missing`] with the reason if the source is
    /// missing or incomplete.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::executor::ContextError;
    /// use universal_executor::{ExecutionContext, NewBreadcrumb};
    ///
    /// let context = ExecutionContext::for_trigger(NewBreadcrumb::new("order.v1"))
    ///     .with_many("prices", [json!({"cents": 250})]);
    /// assert!(matches!(context.require("prices"), Err(ContextError::IsList { items: 1, .. })));
    /// assert!(matches!(context.require("price"), Err(ContextError::UnknownKey { .. })));
    /// ```
    pub fn require(&self, key: &str) -> Result<&Json, ContextError> {
        if let Some(found) = self.get(key) {
            return Ok(found);
        }
        let key = key.to_owned();
        if let Some(missing) = self.missing.iter().find(|missing| missing.key == key) {
            return Err(ContextError::Missing {
                key,
                source: missing.reason.clone(),
            });
        }
        match self.source(&key) {
            Some(source) if !source.is_one => Err(ContextError::IsList {
                key,
                items: source.items.len(),
            }),
            Some(_) => Err(ContextError::NotFound { key }),
            None => Err(ContextError::UnknownKey {
                key,
                known: self.known_keys(),
            }),
        }
    }

    /// Deserializes the JSON context of a breadcrumb by key: the key of a context source with one item, or the trigger's alias.
    ///
    /// # Errors
    /// The errors of [`require`](Self::require), and [`ContextError::Shape`] if the context does not deserialize to `T`.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{ExecutionContext, NewBreadcrumb};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Price {
    ///     cents: u64,
    /// }
    ///
    /// let context = ExecutionContext::for_trigger(NewBreadcrumb::new("order.v1"))
    ///     .with("price", json!({"cents": 250}));
    /// assert_eq!(context.parse::<Price>("price")?.cents, 250);
    /// # Ok::<(), universal_executor::executor::ContextError>(())
    /// ```
    pub fn parse<T: DeserializeOwned>(&self, key: &str) -> Result<T, ContextError> {
        self.require(key)?
            .parse()
            .map_err(|source| ContextError::Shape {
                key: key.to_owned(),
                source: Arc::new(source),
            })
    }

    /// Returns the context source with a key, or `None` if no source with this key was fetched.
    #[must_use]
    pub fn source(&self, key: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.key == key)
    }

    /// Returns all fetched context sources, in the order of the executor's subscriptions.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Returns the context sources that are missing or incomplete, with the reasons. A source that found nothing is not missing.
    ///
    /// Show the reasons to the user, or log them, if the result may be wrong without the source.
    #[must_use]
    pub fn missing(&self) -> &[MissingSource] {
        &self.missing
    }

    /// Returns a copy of the whole execution context as JSON. Serialising the context writes the same JSON without a copy.
    #[must_use]
    pub fn to_value(&self) -> Value {
        // The conversion cannot fail: every part is JSON or a map with string keys.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the hints of the given schemas, which shape the breadcrumbs that a model receives. A test can set the hints;
    /// otherwise they come from the schema definitions in the store.
    pub(super) async fn hints_of(
        &self,
        mut schemas: Vec<String>,
    ) -> Result<HintsOfSchemas, ContextError> {
        schemas.retain(|schema| !self.hints.contains_key(schema));
        let mut hints = self.hints.clone();
        let is_in_a_run = self.run().terms.is_some();
        if is_in_a_run || !self.for_test {
            hints.extend(self.run().hints_of(schemas).await?);
        } else {
            hints.extend(schemas.into_iter().map(|schema| (schema, Ok(None))));
        }
        Ok(hints)
    }

    /// Returns the `llm_hints` of schemas that [`with_schema_hints`](Self::with_schema_hints) set.
    pub(super) fn test_hints(&self) -> HintsOfSchemas {
        self.hints.clone()
    }

    /// Returns the run's idempotency key, by which an external system can recognize a call that a retry repeats. All attempts of
    /// a run have the same key.
    ///
    /// A redo by an operator changes the key. A context outside of a run derives a key from its
    /// trigger.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{ExecutionContext, NewBreadcrumb};
    ///
    /// let context = ExecutionContext::for_trigger(NewBreadcrumb::new("order.v1"));
    /// let header = ("Idempotency-Key", context.idempotency_key());
    /// assert_eq!(header.1, context.idempotency_key());
    /// ```
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        self.run().key(&self.trigger)
    }

    /// Returns the number of the run's current attempt, from 1.
    ///
    /// Outside of a run, the number is 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.run().attempt
    }

    /// Returns the time at which `execute` times out, by the store's clock, or `None` outside a run.
    ///
    /// The duration until then comes from [`Profile::timeout`](crate::Profile::timeout).
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.run().deadline.get().copied()
    }

    /// Returns the current time by the store's clock, for example to set the end of a [suspension](super::suspend). Outside a
    /// run, returns the time by the machine's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.run().now()
    }

    /// Returns a future that resolves when the run is over: the run timed out, lost its lease or ended, or `process_event` was
    /// dropped.
    ///
    /// Use this future to stop spawned tasks: the crate drops `execute` itself, but not the tasks that it spawned.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::{Response, Subscription, executor};
    ///
    /// let watcher = executor("watcher")
    ///     .on(Subscription::trigger("job.v1"))
    ///     .execute(|cx| async move {
    ///         let cancelled = cx.cancelled();
    ///         tokio::spawn(async move {
    ///             tokio::select! {
    ///                 () = cancelled => {}
    ///                 () = tokio::time::sleep(std::time::Duration::from_secs(60)) => {}
    ///             }
    ///         });
    ///         Ok(Response::none())
    ///     });
    /// # let _ = watcher;
    /// ```
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.run().ended()
    }

    /// Sends a part of the answer to the client that follows this turn of a [chat session](crate::client::Session).
    ///
    /// Returns at once. The run writes the parts to the store a few times per second. Has no effect if the trigger is not a
    /// message of a session with this executor.
    ///
    /// The parts are not the answer: the response of the run is the answer.
    pub fn say(&self, text: impl Into<String>) {
        if let Some(events) = self.turn_events() {
            events.add(Record::Text(text.into()));
        }
    }

    /// Returns the buffer of events for the client of a chat turn, or `None` if the run answers no message of a chat session.
    pub(crate) fn turn_events(&self) -> Option<&Arc<TurnEvents>> {
        self.run().turn_events.as_ref()
    }

    /// Saves a JSON value of the caller as the state from which the run's next attempt resumes. The next attempt reads the state
    /// with [`resumed`](Self::resumed).
    ///
    /// A new state replaces the state that was saved before.
    ///
    /// Save after each expensive step, so that a retry does not repeat the step. Other programs do
    /// not see the state. Each call costs one write to the store.
    ///
    /// # Errors
    /// [`ContextError::Store`] if the store cannot save the state. [`ContextError::Unsupported`] if the store has no run ledger,
    /// if the run has ended, or if too many requests of this run are pending.
    ///
    /// # Cancel safety
    /// If the future is dropped, the state may be saved or not.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Outcome, Response, Subscription,
    ///     UniversalExecutor, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let importer = executor("importer")
    ///     .on(Subscription::trigger("import.v1"))
    ///     .execute(|cx| async move {
    ///         let saved = cx.resumed().and_then(|resumed| resumed.state["page"].as_u64());
    ///         let first = saved.unwrap_or(0);
    ///         for page in first..3 {
    ///             // Import the page here.
    ///             cx.save(json!({"page": page + 1})).await?;
    ///         }
    ///         Ok(Response::none())
    ///     })
    ///     .bind(&store)?;
    ///
    /// let import = store.create(NewBreadcrumb::new("import.v1")).await?;
    /// let outcome = importer.process_event(&Event::created(&import)).await?;
    /// assert!(matches!(outcome, Outcome::Responded { .. }));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn save(&self, state: impl Into<Json>) -> Result<(), ContextError> {
        self.run().save(state.into()).await
    }

    /// Returns the state that the run resumes with: the last saved state, and the breadcrumb that woke a suspended run. Returns
    /// `None` if the run has no saved state.
    #[must_use]
    pub fn resumed(&self) -> Option<&Resumed> {
        self.run().resumed.as_ref()
    }

    /// Returns a store handle whose commits are part of this run.
    ///
    /// The handle stamps each write with its creator, and refuses schemas that the executor may not write. With a run ledger,
    /// commits fail once the lease of the run is lost. Committed writes remain if the run is retried.
    ///
    /// Use it for writes before the end of the run, such as progress. Prefer a
    /// [`Response`](super::Response) for the result, because it is committed once, with the end of
    /// the run.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::sync::Arc;
    /// use universal_executor::{
    ///     BreadcrumbStore, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Response,
    ///     Subscription, UniversalExecutor, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .state(shared)
    ///     .execute(|cx, store: Arc<dyn BreadcrumbStore>| async move {
    ///         let progress = NewBreadcrumb::new("progress.v1").context(json!({"percent": 50}));
    ///         cx.bound_store(store).create(progress).await?;
    ///         Ok(Response::none())
    ///     })
    ///     .bind(&store)?;
    ///
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// clerk.process_event(&Event::created(&order)).await?;
    /// let progress = store.latest("progress.v1").await?.ok_or("no progress")?;
    /// assert_eq!(progress.context["creator"]["id"], "clerk");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn bound_store(&self, store: Arc<dyn BreadcrumbStore>) -> Arc<dyn BreadcrumbStore> {
        super::bound::bind(store, self.run(), self.write_restriction.as_ref())
    }

    /// Returns a copy of this execution context for one part of the run, such as a tool, that may write only the schemas that
    /// `share` allows. The executor must be allowed to write the schemas, too.
    #[cfg(feature = "agents")]
    pub(crate) fn writing_only(&self, restriction: WriteRestriction) -> Self {
        Self {
            write_restriction: Some(restriction),
            ..self.clone()
        }
    }

    /// Returns an execution context without sources for an inner run, which executes within this run.
    #[cfg(feature = "workflows")]
    pub(crate) fn inner(&self, trigger: Arc<Breadcrumb>, inner: InnerRun) -> Self {
        let run = self.run.get_or_init(|| Arc::new(RunHandle::detached(None)));
        let run = RunHandle::within(Arc::clone(run), inner);
        Self {
            for_test: self.for_test,
            hints: self.hints.clone(),
            run: OnceLock::from(Arc::new(run)),
            write_restriction: self.write_restriction.clone(),
            ..Self::new(trigger, None, Vec::new(), Vec::new())
        }
    }

    fn known_keys(&self) -> String {
        let sources = self.sources.iter().map(|source| &*source.key);
        let missing = self.missing.iter().map(|missing| &*missing.key);
        let mut known = vec!["trigger"];
        for key in self
            .alias
            .as_deref()
            .into_iter()
            .chain(sources)
            .chain(missing)
        {
            if !known.contains(&key) {
                known.push(key);
            }
        }
        known.join(", ")
    }
}

impl Serialize for ExecutionContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Contexts<'a>(&'a [Arc<Breadcrumb>]);
        impl Serialize for Contexts<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.iter().map(|item| &item.context))
            }
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("trigger", &*self.trigger)?;
        for source in &self.sources {
            match source.items.first() {
                Some(only) if source.is_one => map.serialize_entry(&source.key, &only.context)?,
                None if source.is_one => {}
                Some(_) | None => map.serialize_entry(&source.key, &Contexts(&source.items))?,
            }
        }
        map.end()
    }
}
