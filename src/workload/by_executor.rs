use super::cx::{RunCx, WorkloadMessage};
use super::event::WorkloadEventKind;
use super::stream::EventStream;
use super::telling::{Outer, PARENT};
use super::{Definition, Meta, Workload};
use crate::error::BoxError;
use crate::executor::{
    ContextError, DATA_TAG, ExecutionContext, Outcome, UniversalExecutor, check, words_of,
};
use crate::model::{
    Breadcrumb, BreadcrumbId, Event, Json, NewBreadcrumb, SESSION_TAG, Timestamp, display_text,
};
use crate::request::agents;
use crate::services::Services;
use crate::session_log::digest;
use crate::store::{BreadcrumbStore, BreadcrumbStoreExt as _, RunState, Wake};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How long is waited before a run that somebody else works on is looked at again.
const LOOKS: Duration = Duration::from_secs(5);

/// A run that is due so soon goes on at once, as one that only makes way for another attempt. Clocks may differ a little.
const SOON: Duration = Duration::from_secs(1);

/// How long is waited at least before such a run goes on.
const PAUSE: Duration = Duration::from_millis(1);

/// Version of the breadcrumb that a run writes for the executor.
const FIRST: u64 = 1;

/// Any executor as a workload: each message is written to its store as a breadcrumb that sets it off, and what it writes because of
/// that is what the run comes to.
///
/// Within a [`WorkloadExecutor`](super::WorkloadExecutor) that breadcrumb is written as part of its run, to the store of the
/// workload, which has to be that of the executor too: it is one of the schemas that the run may write, is by the executor of that
/// run, follows from its trigger, and does not set off the same executor again.
///
/// Only the first version of that breadcrumb counts: if another writer changes it before it is answered, the run fails with the
/// code `changed`.
///
/// It is run by [`process_event`](UniversalExecutor::process_event), so that the run is claimed and committed as any other. One that
/// suspends itself is woken by a [`Runtime`](crate::Runtime) on the same store, or whoever else
/// [resumes](crate::RunLedger::resume) it; the turn is suspended meanwhile. One that is due at once, since it makes way for another
/// attempt, goes on within the turn; within a run that has a time that run makes way as well.
///
/// What happens within an executor is not told by the stream of the run. A [`WorkloadExecutor`](super::WorkloadExecutor) is a run of its
/// own, whose events name the outer one as their [parent](super::WorkloadEvent::parent): whoever hears of the outer run is told them
/// live, for as long as that works on it. The tag `parent:` of the breadcrumb names the outer run too. The outer run adds to the
/// session; the inner one has a conversation of its own there.
///
/// The inner run is one of the ledger, and stays there when the outer one is stopped, fails or is
/// [given up](super::Supervisor::give_up): a runtime on the same store may still bring it to its end. Later turns of the session wait
/// for it only if the [profile](crate::Profile) of the executor orders runs by the tag `session:`, whatever they belong to.
pub struct ExecutorDefinition {
    meta: Meta,
    executor: Arc<dyn UniversalExecutor>,
    schema: String,
}

impl ExecutorDefinition {
    /// An executor that is set off by `user.message.v1`, with a text as `message` in its context.
    #[must_use]
    pub fn new(executor: Arc<dyn UniversalExecutor>) -> Self {
        Self {
            meta: Meta::new(executor.id()),
            executor,
            schema: "user.message.v1".to_owned(),
        }
    }

    /// Sets the schema of what sets it off.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets what it is good for.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.meta = self.meta.description(description);
        self
    }
}

impl Definition for ExecutorDefinition {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn check(&self, _: &Services, _: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError> {
        Ok(check(&*self.executor)?)
    }

    fn writes(
        &self,
        _: &Services,
        _: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Option<Vec<String>>, BoxError> {
        Ok(Some(vec![self.schema.clone()]))
    }

    fn instantiate(
        &self,
        _: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Box<dyn Workload>, BoxError> {
        Ok(Box::new(ByExecutor {
            store: Arc::clone(store),
            executor: Arc::clone(&self.executor),
            schema: self.schema.clone(),
        }))
    }
}

impl fmt::Debug for ExecutorDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutorDefinition")
            .field("executor", &self.executor.id())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl WorkloadMessage {
    /// Returns the message as the trigger of an executor: an object as it is, anything else as `message`.
    pub(super) fn breadcrumb(&self, schema: &str) -> NewBreadcrumb {
        let context = match &*self.content {
            Value::Object(_) => self.content.clone(),
            other @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)) => json!({"message": other}).into(),
        };
        let new = NewBreadcrumb::new(schema).context(context);
        match &self.from {
            Some(name) => new.created_by(name.as_str()),
            None => new,
        }
    }
}

struct ByExecutor {
    /// The store of the run.
    store: Arc<dyn BreadcrumbStore>,
    executor: Arc<dyn UniversalExecutor>,
    schema: String,
}

#[async_trait]
impl Workload for ByExecutor {
    fn run(&mut self, cx: RunCx, message: Option<WorkloadMessage>) -> EventStream<'_> {
        let stream = cx.clone();
        stream.stream(async move {
            match self.work(&cx, message.unwrap_or_default()).await {
                Ok(end) => end,
                Err(error) => cx.broken(error),
            }
        })
    }

    async fn close(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl ByExecutor {
    async fn work(
        &self,
        cx: &RunCx,
        message: WorkloadMessage,
    ) -> Result<WorkloadEventKind, BoxError> {
        let trigger = self.trigger(cx, &message).await?;
        let outcome = self.process(cx, &trigger).await?;
        let waits = |until: Timestamp| WorkloadEventKind::Suspended {
            wake: Wake::at(until),
            state: json!({"trigger": trigger.id}).into(),
        };
        let soon = cx.context().now() + LOOKS;
        Ok(match outcome {
            Outcome::Responded { written } => self.end_of(cx, &written).await?,
            Outcome::AlreadyDone { state, written } => match state {
                RunState::Done => self.end_of(cx, &written).await?,
                RunState::Ready
                | RunState::Running
                | RunState::Suspended
                | RunState::Failed
                | RunState::Skipped
                | RunState::Superseded => {
                    WorkloadEventKind::failed("not_done", format!("the run ended as {state}"))
                }
            },
            Outcome::Suspended { until, .. } => waits(until.map_or(soon, |until| until.min(soon))),
            Outcome::InProgress { until } => waits(until.min(soon)),
            Outcome::Paused { .. } => waits(soon),
            Outcome::Failed { class, written } => {
                let told = self.told(cx, &written).await?;
                let message =
                    told.unwrap_or_else(|| format!("the run of the executor failed: {class}"));
                WorkloadEventKind::failed("executor_failed", message)
            }
            Outcome::Gone => {
                let executor = self.executor.id();
                let message = format!(
                    "what sets off {executor} is not in its store, or not any more; that has to be the store of the run around it"
                );
                WorkloadEventKind::failed("gone", message)
            }
            Outcome::Superseded => self.changed(),
            Outcome::Unmatched | Outcome::ContextNoted | Outcome::OwnBreadcrumb => {
                let executor = self.executor.id();
                let message = format!("a {} does not set off {executor}", self.schema);
                WorkloadEventKind::failed("unmatched", message)
            }
        })
    }

    /// Has the executor work until its run ends or waits.
    ///
    /// One that makes way for another attempt has the run around it do so too, if that has a time: its steps would be cut off
    /// when that is up.
    async fn process(&self, cx: &RunCx, trigger: &Breadcrumb) -> Result<Outcome, BoxError> {
        // Only the version that this run wrote counts, even if another writer changed the breadcrumb since.
        let mut event = Event::created(trigger);
        event.version = FIRST;
        loop {
            let outer = Outer {
                run: Some(cx.run().into()),
                sink: cx.outlet.listeners.clone(),
            };
            let outcome = outer.around(self.executor.process_event(&event)).await?;
            let Outcome::Suspended {
                until: Some(until), ..
            } = &outcome
            else {
                return Ok(outcome);
            };
            let rest = until.since(cx.context().now());
            if rest > SOON || cx.context().deadline().is_some() {
                return Ok(outcome);
            }
            // However far apart the clocks are, nothing spins.
            sleep(rest.max(PAUSE)).await;
        }
    }

    /// What sets the executor off: the same breadcrumb in each attempt.
    async fn trigger(
        &self,
        cx: &RunCx,
        message: &WorkloadMessage,
    ) -> Result<Arc<Breadcrumb>, BoxError> {
        let store = self.executor.store();
        let id = cx.context().resumed().and_then(|resumed| {
            let id = resumed.state.text("trigger")?;
            id.parse::<BreadcrumbId>().ok()
        });
        if let Some(id) = id {
            return Ok(store.get(id).await?);
        }
        let turn = format!("turn:{}", digest(&[cx.run()]));
        let written = cx.context().find_own(&*self.store, &self.schema, &turn);
        if let Some(written) = written.await? {
            return Ok(written);
        }
        let mut new = message.breadcrumb(&self.schema).tag(turn);
        let parent = format!("{PARENT}{}", cx.run());
        if parent.len() <= Breadcrumb::MAX_TAG_BYTES {
            new = new.tag(parent);
        }
        if let Some(session) = cx.session_of() {
            new = new.tag(format!("{SESSION_TAG}{}", session.id()));
        }
        let context = cx.context();
        Ok(match context.correlation_id() {
            // It says which run it follows from, so that that is not set off by it, and is one of what that may write.
            Some(_) => {
                let store = context.bound_store(Arc::clone(&self.store));
                store.create(new).await?
            }
            None => {
                // The store counts this write as one from outside.
                if !has_words(context, &message.content).await? {
                    new = new.tag(DATA_TAG);
                }
                store.create(new).await?
            }
        })
    }

    /// What a run comes to that has written this.
    async fn end_of(
        &self,
        cx: &RunCx,
        written: &[BreadcrumbId],
    ) -> Result<WorkloadEventKind, BoxError> {
        let Some(last) = written.last() else {
            let output = Value::Null.into();
            return Ok(WorkloadEventKind::Final { output });
        };
        let store = self.executor.store();
        let written = store.get(*last).await?;
        let creator = written.context.get("creator");
        let answered = creator.and_then(|creator| creator.get("trigger_version")?.as_u64());
        if answered.is_some_and(|version| version != FIRST) {
            return Ok(self.changed());
        }
        // Later turns of the session show the result to models.
        let shown = match cx.context().shown(&written, store).await {
            Ok(shown) => shown,
            Err(withheld @ ContextError::Withheld { .. }) => {
                return Ok(WorkloadEventKind::failed("withheld", withheld.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        let said = agents::said(&shown);
        if written.context.text("status") == Some("error") {
            let message = display_text(&said);
            return Ok(WorkloadEventKind::failed("executor_failed", message));
        }
        Ok(WorkloadEventKind::Final {
            output: said.into(),
        })
    }

    fn changed(&self) -> WorkloadEventKind {
        let executor = self.executor.id();
        let message = format!(
            "the {} for {executor} was changed by another writer before it was answered",
            self.schema
        );
        WorkloadEventKind::failed("changed", message)
    }

    /// What an executor that failed tells whoever asked it.
    async fn told(&self, cx: &RunCx, written: &[BreadcrumbId]) -> Result<Option<String>, BoxError> {
        let Some(first) = written.first() else {
            return Ok(None);
        };
        let store = self.executor.store();
        let written = store.get(*first).await?;
        match cx.context().shown(&written, store).await {
            Ok(shown) => Ok(shown.text("message").map(str::to_owned)),
            Err(ContextError::Withheld { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns `true` if a text is the words of the user that the trigger of a context carries.
///
/// # Errors
/// [`ContextError::Store`] if the store cannot read its records.
async fn has_words(context: &ExecutionContext, text: &Json) -> Result<bool, ContextError> {
    let words = words_of(&context.trigger().context);
    Ok(words.is_some() && words == text.as_str() && context.is_from_user().await?)
}
