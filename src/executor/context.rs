#[cfg(feature = "workflows")]
mod announced;
mod waiting;

use super::bound::Share;
use super::context_error::ContextError;
use super::handle::RunHandle;
#[cfg(feature = "workflows")]
use super::inner::Inner;
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

/// What `execute` is given: the trigger and everything the executor's context subscriptions found.
///
/// Contexts are raw and shared with the store; nothing is copied. Serialised it is
/// `{"trigger": <breadcrumb>, "<key>": <context, or a list of contexts>, ..}`.
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
    /// Made by hand, so that no store has to be asked for hints.
    by_hand: bool,
    /// Hints of schemas that were given by hand.
    hints: HintsOfSchemas,
    /// Made when it is first asked for, if the context belongs to no run.
    run: OnceLock<Arc<RunHandle>>,
    /// Share of the executor's schemas that may be written through it; all of them if `None`.
    writes: Option<Share>,
}

impl ExecutionContext {
    /// How long the hints of a schema are remembered at the most where events tell of changes: 10 seconds, since an event
    /// may go to another worker.
    pub const HINTS_AGE: Duration = schema_hints::MAX_AGE;

    /// A context without sources that belongs to no run: for unit tests of `execute`.
    #[must_use]
    pub fn for_trigger(trigger: impl Into<Arc<Breadcrumb>>) -> Self {
        Self {
            by_hand: true,
            writes: None,
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
            by_hand: false,
            writes: None,
            hints: HintsOfSchemas::new(),
            run: OnceLock::new(),
        }
    }

    /// The same context as part of a run.
    pub(super) fn bound_to(mut self, run: Arc<RunHandle>, alias: Option<String>) -> Self {
        self.run = OnceLock::from(run);
        self.alias = alias;
        self
    }

    /// Adds a source of one item, which has no schema and no hints.
    #[must_use]
    pub fn with(self, key: impl Into<String>, context: impl Into<Json>) -> Self {
        let items = vec![self.example(context.into())];
        self.with_source(key.into(), items, true)
    }

    /// Adds a source that is a list of items without schemas and hints.
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

    /// Adds a source that is a list of whole breadcrumbs, with their schemas and hints.
    #[must_use]
    pub fn with_breadcrumbs<B: Into<Arc<Breadcrumb>>>(
        self,
        key: impl Into<String>,
        items: impl IntoIterator<Item = B>,
    ) -> Self {
        let items = items.into_iter().map(Into::into).collect();
        self.with_source(key.into(), items, false)
    }

    /// Sets the hints of a schema, which [`for_model`](Self::for_model) applies to breadcrumbs without hints of their
    /// own. Those that cannot be read withhold these breadcrumbs, as in a run.
    #[must_use]
    pub fn with_schema_hints(mut self, schema: impl Into<String>, hints: impl Into<Json>) -> Self {
        let hints = Hints::from_json(&hints.into()).map(Some);
        self.hints.insert(schema.into(), hints);
        self
    }

    /// Sets the alias of the trigger.
    #[must_use]
    pub fn with_alias(mut self, key: impl Into<String>) -> Self {
        self.alias = Some(key.into());
        self
    }

    /// Sets what the run goes on with.
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

    /// The breadcrumb that set the executor off.
    #[must_use]
    pub fn trigger(&self) -> &Breadcrumb {
        &self.trigger
    }

    /// The context of a source of one item, or of the trigger under its alias; none for a list, and if nothing was
    /// found.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        if self.alias.as_deref() == Some(key) {
            return Some(&self.trigger.context);
        }
        let source = self.source(key).filter(|source| source.is_one)?;
        source.items.first().map(|item| &item.context)
    }

    /// Any source as a slice: a list, one item, or empty.
    #[must_use]
    pub fn many(&self, key: &str) -> &[Arc<Breadcrumb>] {
        if self.alias.as_deref() == Some(key) {
            return std::slice::from_ref(&self.trigger);
        }
        self.source(key)
            .map(|source| source.items.as_slice())
            .unwrap_or_default()
    }

    /// The context of a source of one item, or of the trigger under its alias.
    ///
    /// # Errors
    /// [`ContextError`] names the keys there are, that the source is a list, or why it is missing.
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

    /// The context of a source of one item as a type.
    ///
    /// # Errors
    /// See [`require`](Self::require); also if it does not have the shape of `T`.
    pub fn parse<T: DeserializeOwned>(&self, key: &str) -> Result<T, ContextError> {
        self.require(key)?
            .parse()
            .map_err(|source| ContextError::Shape {
                key: key.to_owned(),
                source: Arc::new(source),
            })
    }

    /// What a context subscription found, with its items in full.
    #[must_use]
    pub fn source(&self, key: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.key == key)
    }

    /// All sources, in the order of the subscriptions.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The sources that are not there, or not all of them, and why. A source that found nothing is not missing.
    #[must_use]
    pub fn missing(&self) -> &[MissingSource] {
        &self.missing
    }

    /// A copy of the whole context as JSON. Serialising the context writes the same without a copy.
    #[must_use]
    pub fn to_value(&self) -> Value {
        // Every part is a string-keyed map or JSON already, which cannot fail to become a value.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// What definitions say of schemas.
    pub(super) async fn hints_of(
        &self,
        mut schemas: Vec<String>,
    ) -> Result<HintsOfSchemas, ContextError> {
        schemas.retain(|schema| !self.hints.contains_key(schema));
        let mut hints = self.hints.clone();
        let is_in_a_run = self.run().terms.is_some();
        if is_in_a_run || !self.by_hand {
            hints.extend(self.run().hints_of(schemas).await?);
        } else {
            hints.extend(schemas.into_iter().map(|schema| (schema, Ok(None))));
        }
        Ok(hints)
    }

    /// Returns the hints of schemas that [`with_schema_hints`](Self::with_schema_hints) set.
    pub(super) fn given_hints(&self) -> HintsOfSchemas {
        self.hints.clone()
    }

    /// The key that calls to the outside world should carry: the same for every attempt at this trigger.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        self.run().key(&self.trigger)
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.run().attempt
    }

    /// When `execute` is cancelled, by the store's clock; none outside a run.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.run().deadline.get().copied()
    }

    /// The time by the store's clock, for what a [suspension](super::suspend) waits until; by the machine's outside a run.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.run().now()
    }

    /// Resolves when the run is over: its time is up, its lease is lost, `process_event` was dropped, or it has
    /// simply come to its end.
    ///
    /// A running `execute` is dropped then; this is for work it has spawned, which goes on without it otherwise.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.run().over()
    }

    /// Sends a piece of the answer to the client that follows the turn of a [chat session](crate::client::Session).
    ///
    /// Does not wait: a few times per second the run writes the pieces to the store. Has no effect if the trigger is not a message of
    /// a session with this executor.
    pub fn say(&self, text: impl Into<String>) {
        if let Some(events) = self.turn_events() {
            events.add(Record::Text(text.into()));
        }
    }

    /// Returns the events for the client of a chat turn.
    pub(crate) fn turn_events(&self) -> Option<&Arc<TurnEvents>> {
        self.run().turn_events.as_ref()
    }

    /// Keeps the progress of the run, for the next attempt to go on with.
    ///
    /// # Errors
    /// [`ContextError::Store`] if it cannot be saved, [`ContextError::Unsupported`] on a store without a ledger.
    pub async fn save(&self, state: impl Into<Json>) -> Result<(), ContextError> {
        self.run().save(state.into()).await
    }

    /// What the run goes on with: the state saved last, and the breadcrumb a suspended run was woken with.
    #[must_use]
    pub fn resumed(&self) -> Option<&Resumed> {
        self.run().resumed.as_ref()
    }

    /// A store handle that writes as part of this run: stamped, limited to the schemas the executor may write, and
    /// refused once the run is lost. What it writes stays if the run is tried again.
    #[must_use]
    pub fn bound_store(&self, store: Arc<dyn BreadcrumbStore>) -> Arc<dyn BreadcrumbStore> {
        super::bound::bind(store, self.run(), self.writes.as_ref())
    }

    /// Returns the same context for a part of the run that may write a share of the executor's schemas.
    #[cfg(feature = "agents")]
    pub(crate) fn writing_only(&self, share: Share) -> Self {
        Self {
            writes: Some(share),
            ..self.clone()
        }
    }

    /// The context of a run within this one, without sources.
    #[cfg(feature = "workflows")]
    pub(crate) fn inner(&self, trigger: Arc<Breadcrumb>, inner: Inner) -> Self {
        let run = self.run.get_or_init(|| Arc::new(RunHandle::detached(None)));
        let run = RunHandle::within(Arc::clone(run), inner);
        Self {
            by_hand: self.by_hand,
            hints: self.hints.clone(),
            run: OnceLock::from(Arc::new(run)),
            writes: self.writes.clone(),
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
