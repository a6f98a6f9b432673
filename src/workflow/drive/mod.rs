//! Runs of flows, done: the interpreter says which steps are due, the driver does them and tells.

mod asked;
mod assembly;
mod assembly_error;
mod control;
mod conversations;
mod ended;
mod event;
mod guard;
mod heard;
mod kept;
mod look;
mod model;
mod order;
mod parts;
mod step;
mod waiting;

pub use assembly::Assembly;
pub use assembly_error::AssemblyError;
pub use control::Control;
pub(crate) use conversations::{Answered, Conversations};
pub use event::{EventSink, StepEvent, StepEventKind};
pub use kept::FlowStateError;
pub use order::{Driven, Order};
pub use parts::Parts;

use super::{Finish, FlowEvent, Next, Outcome, Ready, Run, StepPath};
use crate::clock::within;
use crate::error::{BoxError, permanent};
use crate::executor::{ContextError, ExecutionContext};
use crate::model::{Json, NewBreadcrumb, Timestamp};
use crate::store::{BreadcrumbStoreExt as _, Wake};
use ended::timed_out;
use event::Emitter;
use futures::future::{AbortHandle, BoxFuture, abortable};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use kept::{Kept, Looked, Saved, Saver, Saving};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use step::{Step, Worked};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument as _;

/// How many steps are at work at a time.
const MOST_AT_ONCE: usize = 32;

/// How long a run that has nothing else to do stays for a delay; for a longer one it is suspended.
const SHORT: Duration = Duration::from_secs(5);

/// How often a run that is at work looks for answers and orders.
const LOOKS: Duration = Duration::from_secs(1);

impl Assembly {
    /// Runs a flow until it ends, or waits for others; from where it was if the context [goes on](ExecutionContext::resumed)
    /// with something.
    ///
    /// All is done within this future: dropping it stops the run where it is. The run is called by the
    /// [key](ExecutionContext::idempotency_key) of the context, and saved in it after each step, before anything is done that
    /// rests on that; where nothing can be saved it begins anew when it is tried again.
    ///
    /// # Errors
    /// [`FlowStateError`]; what is wrong with the store or the lease. What goes wrong in a step is told to the flow, which decides.
    pub async fn drive(
        &self,
        context: &ExecutionContext,
        order: Order,
    ) -> Result<Driven, BoxError> {
        let key = context.idempotency_key();
        let Order {
            flow,
            input,
            parent,
            events,
            tells,
            conversations,
        } = order;
        let emitter = Arc::new(Emitter::new(key, parent.as_deref(), events));
        let Some(resumed) = context.resumed() else {
            let (run, next) = match Run::begin(Arc::clone(self.workflow()), &flow, key, input) {
                Ok(begun) => begun,
                Err(refused) => return Ok(Driven::Refused(refused)),
            };
            let mut drive = Drive::new(self, context, emitter, run);
            drive.tells = tells;
            drive.conversations = conversations;
            drive.apply(next);
            return drive.run().await;
        };
        let unreadable = |error| permanent(FlowStateError::Unreadable(error));
        let saved: Saved = resumed.state.parse().map_err(unreadable)?;
        let run = match Run::restore(Arc::clone(self.workflow()), saved.progress) {
            Ok(run) => run,
            Err(refused) => return Ok(Driven::Refused(refused)),
        };
        let mut drive = Drive::new(self, context, emitter, run);
        drive.tells = tells;
        drive.conversations = conversations;
        (drive.kept, drive.looked) = (saved.steps, saved.looked);
        drive.take_up();
        Box::pin(drive.look()).await?;
        drive.run().await
    }
}

/// The schema of what tells how far a run is.
pub(super) const PROGRESS: &str = "workflow.progress.v1";

/// How many events are told by one breadcrumb.
const TOLD_AT_ONCE: usize = 100;

/// What a step came to; none if it was stopped.
type Done = Option<(StepPath, Result<Worked, BoxError>)>;

/// One attempt at a run.
struct Drive<'d> {
    assembly: &'d Assembly,
    context: &'d ExecutionContext,
    emitter: Arc<Emitter>,
    run: Run,
    finished: Option<Finish>,
    /// The steps under way, and what is known of each.
    ready: BTreeMap<StepPath, Arc<Ready>>,
    kept: BTreeMap<StepPath, Kept>,
    /// Those that have not begun in this attempt, or go on.
    queue: VecDeque<StepPath>,
    running: FuturesUnordered<BoxFuture<'d, Done>>,
    aborts: BTreeMap<StepPath, AbortHandle>,
    /// What would wake the agents that are suspended, and since when that counts.
    asleep: BTreeMap<StepPath, Wake>,
    saver: Saver,
    saves: mpsc::Receiver<oneshot::Sender<()>>,
    is_saved: bool,
    tells: bool,
    conversations: Option<Arc<dyn Conversations>>,
    /// What is not told yet.
    untold: Vec<FlowEvent>,
    looked: Looked,
    next_look: Instant,
}

impl<'d> Drive<'d> {
    fn new(
        assembly: &'d Assembly,
        context: &'d ExecutionContext,
        emitter: Arc<Emitter>,
        run: Run,
    ) -> Self {
        let (asks, saves) = mpsc::channel(MOST_AT_ONCE);
        let looked = Looked {
            since: context.trigger().updated_at,
            control: None,
        };
        Self {
            assembly,
            context,
            emitter,
            finished: run.progress().finished().cloned(),
            run,
            ready: BTreeMap::new(),
            kept: BTreeMap::new(),
            queue: VecDeque::new(),
            running: FuturesUnordered::new(),
            aborts: BTreeMap::new(),
            asleep: BTreeMap::new(),
            saver: Saver(asks),
            saves,
            is_saved: false,
            tells: false,
            conversations: None,
            untold: Vec::new(),
            looked,
            next_look: Instant::now() + LOOKS,
        }
    }

    /// Takes up what an earlier attempt has left.
    fn take_up(&mut self) {
        for ready in self.run.outstanding().into_iter().chain(self.run.waiting()) {
            let kept = self.kept.get(&ready.path);
            let kept = kept.filter(|kept| kept.attempt == ready.attempt);
            // An agent that waits looks for itself whether it can go on.
            if kept.is_none_or(|kept| kept.wait.is_none()) {
                self.queue.push_back(ready.path.clone());
            }
            if kept.is_none() {
                self.kept.insert(ready.path.clone(), self.unbegun(&ready));
            }
            self.ready.insert(ready.path.clone(), Arc::new(ready));
        }
    }

    async fn run(mut self) -> Result<Driven, BoxError> {
        loop {
            if let Some(finish) = self.finished.take() {
                self.tell_progress().await?;
                return Ok(Driven::Finished(finish));
            }
            self.begin_what_is_due();
            if !self.running.is_empty() {
                self.go_on().await?;
                continue;
            }
            if Box::pin(self.look()).await? {
                continue;
            }
            match self.delay() {
                Some(delay) if delay <= SHORT => {
                    self.save().await?;
                    tokio::time::sleep(delay).await;
                }
                Some(_) | None => {
                    self.tell_progress().await?;
                    return self.suspend();
                }
            }
        }
    }

    /// Begins steps for which there is a place, and which have no delay.
    fn begin_what_is_due(&mut self) {
        let now = self.context.now();
        let mut later = VecDeque::new();
        while self.running.len() < MOST_AT_ONCE
            && let Some(path) = self.queue.pop_front()
        {
            let due = self.kept.get(&path).and_then(|kept| kept.due);
            match due.is_some_and(|due| due > now) {
                true => later.push_back(path),
                false => self.begin(&path, now),
            }
        }
        self.queue.append(&mut later);
    }

    fn begin(&mut self, path: &StepPath, now: Timestamp) {
        let (Some(ready), Some(kept)) = (self.ready.get(path), self.kept.get_mut(path)) else {
            return;
        };
        let again = std::mem::replace(&mut kept.begun, true);
        kept.until = kept.until.or(ready.timeout.map(|timeout| now + timeout));
        let step = Step {
            assembly: self.assembly,
            context: self.context,
            emitter: Arc::clone(&self.emitter),
            ready: Arc::clone(ready),
            again,
            approved: kept.approved.clone(),
            until: kept.until,
            agents: kept.agents.clone(),
            saver: self.saver.clone(),
            conversations: self.conversations.clone(),
        };
        let span = tracing::debug_span!("step", %path, attempt = ready.attempt);
        let left = kept.until.map(|until| until.since(now));
        let (assembly, ready, path) = (self.assembly, Arc::clone(ready), path.clone());
        let at = path.clone();
        let work = async move {
            let worked = match left {
                None => step.work().await,
                Some(left) => match within(left, step.work()).await {
                    Some(worked) => worked,
                    None => Ok(Worked::Told(timed_out(&ready.task, assembly))),
                },
            };
            (at, worked)
        };
        let (work, abort) = abortable(work.instrument(span));
        self.aborts.insert(path, abort);
        self.running.push(work.map(Result::ok).boxed());
        self.is_saved = false;
    }

    /// Keeps what is known, then waits for whatever is first.
    async fn go_on(&mut self) -> Result<(), BoxError> {
        self.save().await?;
        // What is due begins once there is a place for it.
        let delay = match self.running.len() < MOST_AT_ONCE {
            true => self.delay(),
            false => None,
        };
        let due = async {
            match delay {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(asks) = self.saves.recv() => self.save_for(asks).await,
            Some(done) = self.running.next() => self.take(done),
            () = tokio::time::sleep_until(self.next_look) => Box::pin(self.look()).await.map(drop),
            () = due => Ok(()),
        }
    }

    /// Saves the run for all that ask for it.
    async fn save_for(&mut self, first: oneshot::Sender<()>) -> Result<(), BoxError> {
        let mut asks = vec![first];
        while let Ok(more) = self.saves.try_recv() {
            asks.push(more);
        }
        self.is_saved = false;
        self.save().await?;
        for told in asks {
            let is_heard = told.send(()).is_ok();
            tracing::trace!(is_heard, "a run was saved for a step");
        }
        Ok(())
    }

    /// Takes what a step came to, and whatever else has ended by now, so that all is saved at once.
    fn take(&mut self, done: Done) -> Result<(), BoxError> {
        self.take_one(done)?;
        while let Some(Some(done)) = self.running.next().now_or_never() {
            self.take_one(done)?;
        }
        Ok(())
    }

    fn take_one(&mut self, done: Done) -> Result<(), BoxError> {
        let Some((path, worked)) = done else {
            return Ok(());
        };
        self.aborts.remove(&path);
        if !self.ready.contains_key(&path) {
            return Ok(());
        }
        match worked? {
            Worked::Told(outcome) => self.tell(&path, outcome),
            Worked::Waits(wait) => {
                let ticket = wait.ticket.clone();
                if let Some(kept) = self.kept.get_mut(&path) {
                    kept.wait = Some(wait);
                }
                self.suspended(&path, ticket);
            }
            Worked::Asleep { ticket, wake } => {
                self.asleep.insert(path.clone(), wake);
                self.suspended(&path, ticket);
            }
        }
        Ok(())
    }

    fn suspended(&mut self, path: &StepPath, ticket: String) {
        self.is_saved = false;
        // An agent may wait more than once, for one thing after the other.
        if self.ticket(path).as_ref() == Some(&ticket) {
            return;
        }
        let Some(attempt) = self.ready.get(path).map(|ready| ready.attempt) else {
            return;
        };
        let next = self.run.tell(path, attempt, Outcome::Suspended { ticket });
        self.apply(next);
    }

    fn ticket(&self, path: &StepPath) -> Option<String> {
        let mut suspended = self.run.progress().suspended();
        let found = suspended.find(|(other, _)| *other == path);
        found.map(|(_, ticket)| ticket.to_owned())
    }

    /// Tells the flow how a step ended.
    fn tell(&mut self, path: &StepPath, outcome: Outcome) {
        let Some(ready) = self.ready.remove(path) else {
            return;
        };
        self.kept.remove(path);
        self.asleep.remove(path);
        let next = match (outcome, self.ticket(path)) {
            (Outcome::Succeeded(result), Some(ticket)) => self.run.resume(&ticket, result),
            (outcome, _) => self.run.tell(path, ready.attempt, outcome),
        };
        self.apply(next);
    }

    /// Does what the flow wants next.
    fn apply(&mut self, next: Next) {
        self.is_saved = false;
        for path in next.cancel {
            if let Some(abort) = self.aborts.remove(&path) {
                abort.abort();
            }
            self.ready.remove(&path);
            self.kept.remove(&path);
            self.asleep.remove(&path);
            self.queue.retain(|queued| *queued != path);
        }
        for ready in next.ready {
            let path = ready.path.clone();
            self.kept.insert(path.clone(), self.unbegun(&ready));
            self.ready.insert(path.clone(), Arc::new(ready));
            self.queue.push_back(path);
        }
        for event in &next.events {
            self.emitter.tell_flow(event);
        }
        if self.tells {
            self.untold.extend(next.events);
        }
        if let Some(anomaly) = next.anomaly {
            tracing::debug!(?anomaly, "something of a run did not fit");
        }
        self.finished = self.finished.take().or(next.finished);
    }

    fn unbegun(&self, ready: &Ready) -> Kept {
        let is_delayed = !ready.after.is_zero();
        Kept {
            attempt: ready.attempt,
            due: is_delayed.then(|| self.context.now() + ready.after),
            ..Kept::default()
        }
    }

    /// How long it is until a step that waits for its time begins; none if no step does.
    fn delay(&self) -> Option<Duration> {
        let now = self.context.now();
        let dues = self
            .queue
            .iter()
            .filter_map(|path| self.kept.get(path)?.due);
        // No less than the store's clock can tell apart, so that nothing spins.
        dues.min()
            .map(|due| due.since(now).max(Duration::from_millis(1)))
    }

    /// Keeps where the run is, unless that is kept.
    async fn save(&mut self) -> Result<(), BoxError> {
        if self.is_saved {
            return Ok(());
        }
        self.tell_progress().await?;
        match self.context.save(self.state()?).await {
            // Without a ledger nothing is remembered, and nothing is tried again either.
            Ok(()) | Err(ContextError::Unsupported { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.is_saved = true;
        Ok(())
    }

    /// Writes what has happened, if that is wanted.
    async fn tell_progress(&mut self) -> Result<(), BoxError> {
        let untold = std::mem::take(&mut self.untold);
        for events in untold.chunks(TOLD_AT_ONCE) {
            let run = self.context.trigger().id;
            let progress = NewBreadcrumb::new(PROGRESS)
                .title("Workflow Progress")
                .tag(format!("run:{run}"))
                .context(json!({"run": run, "events": events}));
            let store = Arc::clone(&self.assembly.store);
            self.context.bound_store(store).create(progress).await?;
        }
        Ok(())
    }

    fn state(&self) -> Result<Json, BoxError> {
        let saving = Saving {
            progress: self.run.progress(),
            steps: &self.kept,
            looked: &self.looked,
        };
        saving.to_json()
    }

    /// Ends the turn of the run until something comes, or is due.
    fn suspend(self) -> Result<Driven, BoxError> {
        let wake = self.wake();
        // A paused run waits for an order, and may do so for ever.
        if wake.selectors.len() == 1 && wake.until.is_none() && !self.run.progress().is_paused() {
            return Err(permanent("the flow has nothing to do, and has not ended"));
        }
        let state = self.state()?;
        Ok(Driven::Suspended { wake, state })
    }
}
