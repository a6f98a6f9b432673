//! One attempt at a run of a flow: starts due steps, waits for the first outcome or answer, and reports it to the interpreter.

use super::checkpoint::{PollProgress, Saver, StepCheckpoint};
use super::event::Emitter;
use super::next_check::NextCheck;
use super::outcome::timed_out;
use super::step::{Step, StepResult};
use super::step_breadcrumbs::EndedBreadcrumbs;
use super::yielding::EarlyEnd;
use super::{Assembly, Conversations, Driven, RunOptions};
use crate::classes::verdict;
use crate::clock::within;
use crate::error::{BoxError, Chain, Verdict};
use crate::executor::ExecutionContext;
use crate::model::Timestamp;
use crate::store::Wake;
use crate::workflow::{
    Finish, FlowEvent, FlowEventKind, FlowRun, Next, Ready, StepOutcome, StepPath, StepTask,
};
use futures::future::{AbortHandle, BoxFuture, abortable};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

/// Maximum number of steps of one flow run that run at a time.
const MAX_CONCURRENT_STEPS: usize = 32;

/// Longest delay for which an idle flow run sleeps within its attempt. For a longer delay the run is suspended.
const MAX_IDLE_SLEEP: Duration = Duration::from_secs(5);

/// Path of a step and the result of its work, or `None` if the work was aborted.
type Done = Option<(StepPath, Result<StepResult, BoxError>)>;

/// State of one attempt at a flow run.
pub(super) struct Drive<'d> {
    pub(super) assembly: &'d Assembly,
    pub(super) context: &'d ExecutionContext,
    pub(super) emitter: Arc<Emitter>,
    pub(super) run: FlowRun,
    pub(super) finished: Option<Finish>,
    /// The run's steps in flight, by step path, each with its resolved task. Waiting steps are in flight too.
    pub(super) ready: BTreeMap<StepPath, Arc<Ready>>,
    /// Execution state of each step in flight, which is saved with the state of the flow run, by step path.
    pub(super) checkpoints: BTreeMap<StepPath, StepCheckpoint>,
    /// Steps to start or to continue in this attempt at the flow run.
    pub(super) queue: VecDeque<StepPath>,
    pub(super) running: FuturesUnordered<BoxFuture<'d, Done>>,
    pub(super) aborts: BTreeMap<StepPath, AbortHandle>,
    /// Conditions that wake the suspended agents of steps, by the path of the step.
    pub(super) waiting_agents: BTreeMap<StepPath, Wake>,
    /// Handle with which running steps request that the run's state is saved.
    pub(super) saver: Saver,
    /// Requests of running steps to save the flow run's state, each with a sender that confirms the save to the step.
    pub(super) saves: mpsc::Receiver<oneshot::Sender<()>>,
    /// `true` if the state of the flow run has not changed since its last save.
    pub(super) is_saved: bool,
    /// If `true`, a step other than an agent step has ended since the last save of the run.
    pub(super) has_unsaved_outcome: bool,
    /// Senders that confirm the next save of the flow run's state to the steps that requested it.
    pub(super) save_waiters: Vec<oneshot::Sender<()>>,
    /// Paths of the steps that started after the last save of the run. Each path has the driver state of its step from before the start.
    /// The futures of these steps are not polled before the next save.
    pub(super) unsaved: Vec<(StepPath, StepCheckpoint)>,
    pub(super) stores_progress: bool,
    pub(super) conversations: Option<Arc<dyn Conversations>>,
    /// Text of the user's chat message that the flow run processes, or `None` if the input is not from a user.
    pub(super) user_message: Option<Arc<str>>,
    /// Events of the run that are not stored as breadcrumbs yet.
    pub(super) unstored_events: Vec<FlowEvent>,
    /// Progress of the run's polls for answers and control orders (cancel, pause and resume), from which the next poll continues.
    pub(super) poll_progress: PollProgress,
    /// Breadcrumbs that the ended steps of the run wrote or received, recorded for later `wait_for` steps.
    pub(super) ended_breadcrumbs: EndedBreadcrumbs,
    pub(super) next_check: NextCheck,
    pub(super) early_end: EarlyEnd,
}

impl<'d> Drive<'d> {
    pub(super) fn new(
        assembly: &'d Assembly,
        context: &'d ExecutionContext,
        options: RunOptions,
        run: FlowRun,
    ) -> Self {
        let RunOptions {
            parent,
            events,
            stores_progress,
            conversations,
            user_message,
            ..
        } = options;
        let key = context.idempotency_key();
        let emitter = Arc::new(Emitter::new(key, parent.as_deref(), events));
        let (save_requests, saves) = mpsc::channel(MAX_CONCURRENT_STEPS);
        let poll_progress = PollProgress {
            refused: HashSet::new(),
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
            checkpoints: BTreeMap::new(),
            queue: VecDeque::new(),
            running: FuturesUnordered::new(),
            aborts: BTreeMap::new(),
            waiting_agents: BTreeMap::new(),
            saver: Saver(save_requests),
            saves,
            is_saved: false,
            has_unsaved_outcome: false,
            save_waiters: Vec::new(),
            unsaved: Vec::new(),
            stores_progress,
            conversations,
            user_message,
            unstored_events: Vec::new(),
            poll_progress,
            ended_breadcrumbs: EndedBreadcrumbs::default(),
            next_check: NextCheck::new(),
            early_end: EarlyEnd::new(context),
        }
    }

    /// Restores the steps that were in flight when the run was saved.
    pub(super) fn restore_steps(&mut self) {
        for ready in self.run.outstanding().into_iter().chain(self.run.waiting()) {
            let checkpoint = self.checkpoints.get(&ready.path);
            let checkpoint = checkpoint.filter(|checkpoint| checkpoint.attempt == ready.attempt);
            // A suspended agent has no `wait`. Its step is queued, because the agent itself checks whether it can continue.
            if checkpoint.is_none_or(|checkpoint| checkpoint.wait.is_none()) {
                self.queue.push_back(ready.path.clone());
            }
            if checkpoint.is_none() {
                self.checkpoints
                    .insert(ready.path.clone(), self.new_checkpoint(&ready));
            }
            self.ready.insert(ready.path.clone(), Arc::new(ready));
        }
    }

    /// Runs the flow until it ends or is suspended. If the attempt fails, tries to save the outcomes of its steps.
    pub(super) async fn run(mut self) -> Result<Driven, BoxError> {
        let driven = self.work().await;
        if let Err(error) = &driven
            && verdict(error.as_ref()) != Verdict::Permanent
        {
            self.save_after_failure().await;
        }
        driven
    }

    async fn work(&mut self) -> Result<Driven, BoxError> {
        loop {
            if let Some(finish) = self.finished.take() {
                // The commit of the response can fail, and its retry must not repeat the last step. An agent step needs no save: a
                // retry takes the answer from the agent's saved conversation, and passes it to `conversations` again.
                if self.has_unsaved_outcome
                    && let Err(error) = self.save().await
                {
                    tracing::debug!(error = %Chain(&*error), "cannot save the final state of a flow run; a retry repeats its last step");
                }
                self.store_events().await?;
                return Ok(Driven::Finished(finish));
            }
            if self.run.has_more_steps() {
                self.stride().await?;
                continue;
            }
            self.start_due_steps();
            if !self.running.is_empty() && !self.is_grace_period_over() {
                self.handle_next_event().await?;
                continue;
            }
            if let Some(reason) = self.early_end.reason.take() {
                match self.end(reason).await? {
                    Some(driven) => return Ok(driven),
                    None => continue,
                }
            }
            if Box::pin(self.poll()).await? {
                continue;
            }
            match self.delay() {
                Some(delay) if delay <= MAX_IDLE_SLEEP => {
                    self.save().await?;
                    tokio::time::sleep(delay).await;
                    // A control order that arrived during the delay applies before further steps begin.
                    Box::pin(self.poll()).await?;
                }
                Some(_) | None => {
                    // A step that failed because the state is too large can let other steps begin, or end the run.
                    let (state, false) = self.state().await? else {
                        continue;
                    };
                    self.store_events().await?;
                    return self.suspend(state);
                }
            }
        }
    }

    /// Yields to other async tasks, polls for answers and control orders if a poll is due, then lets more steps of the flow
    /// begin.
    async fn stride(&mut self) -> Result<(), BoxError> {
        tokio::task::yield_now().await;
        if self.next_check.is_due() {
            Box::pin(self.poll_while_running()).await?;
        }
        let next = self.run.start_more_steps();
        self.apply(next);
        Ok(())
    }

    /// Starts the due steps in the queue, unless the attempt is about to end. At most [`MAX_CONCURRENT_STEPS`] steps run at a time. While the run
    /// is paused, only steps that started before the pause can continue.
    fn start_due_steps(&mut self) {
        let now = self.context.now();
        self.early_end.cancel_expired_yield(now);
        let mut later = VecDeque::new();
        while self.running.len() < MAX_CONCURRENT_STEPS
            && let Some(path) = self.queue.pop_front()
        {
            let due = self
                .checkpoints
                .get(&path)
                .and_then(|checkpoint| checkpoint.due);
            let is_due = !self.is_blocked_by_pause(&path) && due.is_none_or(|due| due <= now);
            match is_due && !self.is_ending(now) {
                true => self.start_step(&path, now),
                false => later.push_back(path),
            }
        }
        self.queue.append(&mut later);
    }

    /// Returns `true` if a step has to wait because the run is paused. A step that has begun continues.
    pub(super) fn is_blocked_by_pause(&self, path: &StepPath) -> bool {
        let has_begun = self
            .checkpoints
            .get(path)
            .is_some_and(|checkpoint| checkpoint.begun);
        self.run.progress().is_paused() && !has_begun
    }

    fn start_step(&mut self, path: &StepPath, now: Timestamp) {
        let Some(since) = self.ready.get(path).map(|ready| self.since(ready)) else {
            return;
        };
        let (Some(ready), Some(checkpoint)) =
            (self.ready.get(path), self.checkpoints.get_mut(path))
        else {
            return;
        };
        self.unsaved.push((path.clone(), checkpoint.clone()));
        let again = std::mem::replace(&mut checkpoint.begun, true);
        checkpoint.until = checkpoint
            .until
            .or(ready.timeout.map(|timeout| now + timeout));
        let step = Step {
            assembly: self.assembly,
            context: self.context,
            emitter: Arc::clone(&self.emitter),
            ready: Arc::clone(ready),
            again,
            approved: checkpoint.approved.clone(),
            changed: checkpoint.changed.clone(),
            approvals: checkpoint.approvals,
            since,
            until: checkpoint.until,
            agents: checkpoint.agents.clone(),
            breadcrumbs: checkpoint.marks.clone(),
            saver: self.saver.clone(),
            conversations: self.conversations.clone(),
            user_message: self.user_message.clone(),
        };
        let span = tracing::debug_span!("step", path = path.as_str(), attempt = ready.attempt);
        let remaining = checkpoint.until.map(|until| until.since(now));
        let (assembly, ready, path) = (self.assembly, Arc::clone(ready), path.clone());
        let at = path.clone();
        let work = async move {
            let result = match remaining {
                None => step.work().await,
                Some(remaining) => match within(remaining, step.work()).await {
                    Some(result) => result,
                    None => Ok(StepResult::Ended(timed_out(&ready.task, assembly))),
                },
            };
            (at, result)
        };
        let (work, abort) = abortable(work.instrument(span));
        self.aborts.insert(path, abort);
        self.running.push(work.map(Result::ok).boxed());
        self.is_saved = false;
    }

    /// Saves the state of the run, then handles the first of these events: a save request, a result of a step, a time limit, or the next
    /// poll.
    async fn handle_next_event(&mut self) -> Result<(), BoxError> {
        self.save_or_end().await?;
        // With the maximum number of running steps, a due step has to wait for the end of another step.
        let delay =
            match self.running.len() < MAX_CONCURRENT_STEPS && self.early_end.reason.is_none() {
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
            Some(first) = self.saves.recv() => self.save_for(first).await,
            Some(done) = self.running.next() => self.handle_results(done),
            () = self.early_end.grace_period() => Ok(()),
            () = self.next_check.due() => Box::pin(self.poll_while_running()).await,
            () = due => Box::pin(self.poll_while_running()).await,
        }
    }

    /// Handles the result of a step, and the results of all other steps that have ended by now, so that one save covers them.
    fn handle_results(&mut self, done: Done) -> Result<(), BoxError> {
        self.handle_result(done)?;
        while let Some(Some(done)) = self.running.next().now_or_never() {
            self.handle_result(done)?;
        }
        Ok(())
    }

    fn handle_result(&mut self, done: Done) -> Result<(), BoxError> {
        let Some((path, result)) = done else {
            return Ok(());
        };
        self.aborts.remove(&path);
        if !self.ready.contains_key(&path) {
            return Ok(());
        }
        match result {
            Err(error) => return self.handle_step_error(error),
            Ok(StepResult::Ended(outcome)) => self.report_outcome(&path, outcome),
            Ok(StepResult::Waits(wait)) => {
                let ticket = wait.ticket.clone();
                if let Some(checkpoint) = self.checkpoints.get_mut(&path) {
                    checkpoint.wait = Some(wait);
                }
                self.next_check.soon();
                self.report_suspended(&path, ticket);
            }
            Ok(StepResult::AgentsWait { ticket, wake }) => {
                self.waiting_agents.insert(path.clone(), wake);
                self.next_check.soon();
                self.report_suspended(&path, ticket);
            }
        }
        Ok(())
    }

    fn report_suspended(&mut self, path: &StepPath, ticket: String) {
        self.is_saved = false;
        // An agent can be suspended again with the same ticket.
        if self.ticket(path).as_ref() == Some(&ticket) {
            return;
        }
        let Some(attempt) = self.ready.get(path).map(|ready| ready.attempt) else {
            return;
        };
        let next = self
            .run
            .tell(path, attempt, StepOutcome::Suspended { ticket });
        self.apply(next);
    }

    fn ticket(&self, path: &StepPath) -> Option<String> {
        let mut suspended = self.run.progress().suspended();
        let found = suspended.find(|(other, _)| *other == path);
        found.map(|(_, ticket)| ticket.to_owned())
    }

    /// Reports the outcome of a step to the interpreter.
    pub(super) fn report_outcome(&mut self, path: &StepPath, outcome: StepOutcome) {
        let Some(ready) = self.ready.remove(path) else {
            return;
        };
        let checkpoint = self.remove_checkpoint(path);
        self.early_end.has_progressed = true;
        self.has_unsaved_outcome |= !matches!(ready.task, StepTask::Agent { .. });
        let next = match (outcome, self.ticket(path)) {
            (StepOutcome::Succeeded(result), Some(ticket)) => self.run.resume(&ticket, result),
            (outcome, _) => self.run.tell(path, ready.attempt, outcome),
        };
        let is_retried = |event: &FlowEvent| {
            matches!(event.kind, FlowEventKind::Retried { .. }) && event.path == *path
        };
        if next.events.iter().any(is_retried)
            && let Some(checkpoint) = checkpoint
        {
            self.checkpoints
                .insert(path.clone(), checkpoint.for_another_attempt());
        }
        self.apply(next);
    }

    /// Applies the actions that the interpreter returned: cancels and queues steps, and reports events.
    pub(super) fn apply(&mut self, next: Next) {
        self.is_saved = false;
        for path in next.cancel {
            if let Some(abort) = self.aborts.remove(&path) {
                abort.abort();
            }
            self.ready.remove(&path);
            self.remove_checkpoint(&path);
            self.queue.retain(|queued| *queued != path);
        }
        for event in &next.events {
            // A step that waits for a retry is only in `checkpoints`.
            if matches!(
                event.kind,
                FlowEventKind::Failed(_) | FlowEventKind::Cancelled
            ) {
                self.checkpoints.remove(&event.path);
            }
        }
        for ready in next.ready {
            let path = ready.path.clone();
            self.checkpoints
                .insert(path.clone(), self.new_checkpoint(&ready));
            self.ready.insert(path.clone(), Arc::new(ready));
            self.queue.push_back(path);
        }
        for event in &next.events {
            self.emitter.send_flow_event(event);
        }
        if self.stores_progress {
            self.unstored_events.extend(next.events);
        }
        if let Some(anomaly) = next.anomaly {
            tracing::debug!(
                ?anomaly,
                "the flow interpreter ignored a step report that does not match the state of the flow run"
            );
        }
        self.ended_breadcrumbs.fold(self.run.progress());
        self.finished = self.finished.take().or(next.finished);
    }

    /// Removes the execution state of an ended step. Records the breadcrumbs that the step wrote or received in
    /// `ended_breadcrumbs`, for later `wait_for` steps.
    fn remove_checkpoint(&mut self, path: &StepPath) -> Option<StepCheckpoint> {
        let checkpoint = self.checkpoints.remove(path);
        if let Some(checkpoint) = &checkpoint {
            self.ended_breadcrumbs.add(path, &checkpoint.marks);
        }
        self.waiting_agents.remove(path);
        checkpoint
    }

    fn new_checkpoint(&self, ready: &Ready) -> StepCheckpoint {
        let is_delayed = !ready.after.is_zero();
        let mut checkpoint = StepCheckpoint {
            attempt: ready.attempt,
            due: is_delayed.then(|| self.context.now() + ready.after),
            ..StepCheckpoint::default()
        };
        if let Some(before) = self.checkpoints.get(&ready.path) {
            checkpoint.agents = before.agents.clone();
        }
        checkpoint
    }

    /// Returns the time until the next delayed step is due, or `None` if no step is delayed. Ignores steps that wait because the run is
    /// paused.
    fn delay(&self) -> Option<Duration> {
        let now = self.context.now();
        let due_times = self
            .queue
            .iter()
            .filter(|path| !self.is_blocked_by_pause(path))
            .filter_map(|path| self.checkpoints.get(path)?.due);
        // The delay is at least the resolution of the store's clock, so that the loop does not spin.
        due_times
            .min()
            .map(|due| due.since(now).max(Duration::from_millis(1)))
    }
}
