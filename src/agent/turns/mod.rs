//! The run of an agent: its provider says what it wants, the machine what is to be done about it, and this does it. What
//! comes next is decided in [`progress`].

mod answers;
mod approved;
mod effects;
mod events;
mod progress;
mod route;
mod spent;
#[cfg(test)]
mod tests;
mod waits;

#[cfg(feature = "workflows")]
pub(crate) use progress::session_in;

use super::requests::ToolRequest;
use super::{AgentExecutor, AgentRunError, ProviderEvent, ProviderSession};
use crate::clock::within;
use crate::error::BoxError;
use crate::executor::{ContextError, ExecutionContext, Record};
use crate::machine::{
    Answer, CallId, Deferral, Effect, MachineCall, ResultDelivery, ToolOutcome, ToolResult,
};
use crate::model::Json;
use crate::tool;
use futures::StreamExt as _;
use futures::future::{AbortHandle, BoxFuture};
use futures::stream::FuturesUnordered;
use progress::{Heard, Progress};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;
use tracing::Instrument as _;
use waits::Awaited;

/// None if the call was cancelled.
type Work<'r> = BoxFuture<'r, Option<Done>>;

/// What some work came to.
enum Done {
    /// A call has ended.
    Finished(CallId, ToolOutcome),
    /// A call may be made, with these arguments.
    Admitted { call: MachineCall, again: bool },
    /// The guardrails have checked an output that the model handed in by a call.
    Checked {
        call: MachineCall,
        output: Result<Json, Answer>,
    },
}

/// One attempt at a run.
pub(super) struct Run<'r> {
    agent: &'r AgentExecutor,
    context: &'r ExecutionContext,
    progress: Progress,
    /// The provider's side, once it is needed.
    session: Option<Box<dyn ProviderSession>>,
    running: FuturesUnordered<Work<'r>>,
    /// What begins when something else has ended.
    queue: VecDeque<Work<'r>>,
    /// How to stop it.
    aborts: HashMap<CallId, AbortHandle>,
    /// Results that wait for the others of their turn.
    undelivered: Vec<ToolResult>,
    /// Events for the client of a chat turn. They are sent after the progress is saved, so that no later attempt repeats them.
    unsent: Vec<Record>,
    began: Instant,
    /// How long earlier attempts worked.
    before: Duration,
}

impl<'r> Run<'r> {
    /// Goes on where an earlier attempt was, or begins.
    ///
    /// # Errors
    /// [`AgentRunError::UnreadableState`].
    pub(super) fn of(
        agent: &'r AgentExecutor,
        context: &'r ExecutionContext,
    ) -> Result<Self, AgentRunError> {
        let progress = match context.resumed() {
            Some(resumed) => resumed
                .state
                .parse()
                .map_err(AgentRunError::UnreadableState)?,
            None => Progress::new(
                context.idempotency_key(),
                agent.provider.delivery(),
                &agent.definition,
            ),
        };
        Ok(Self {
            before: progress.spent.time(),
            began: Instant::now(),
            session: None,
            running: FuturesUnordered::new(),
            queue: VecDeque::new(),
            aborts: HashMap::new(),
            undelivered: Vec::new(),
            unsent: Vec::new(),
            agent,
            context,
            progress,
        })
    }

    /// Goes on until there is an answer, and gives it as a response has it.
    ///
    /// # Errors
    /// [`AgentRunError`], [`ModelError`](super::ModelError), what shaping the context and saving the progress give, and
    /// the suspension of a run that waits for others.
    pub(super) async fn finish(mut self) -> Result<Value, BoxError> {
        self.begin_again().await?;
        self.hear_answers().await?;
        loop {
            if let Some(response) = self.progress.response(self.agent.output.as_ref()) {
                self.close().await;
                return Ok(response?);
            }
            if self.running.is_empty() && !self.progress.waits.is_empty() {
                return Err(self.suspend().await?);
            }
            self.go_on().await?;
        }
    }

    /// Does again what an earlier attempt may not have done. What was delivered is in what the provider saved.
    async fn begin_again(&mut self) -> Result<(), BoxError> {
        let mut again = VecDeque::new();
        for effect in self.progress.machine.outstanding() {
            match effect {
                Effect::Execute(call) if !self.is_waited_for(&call.id) => {
                    again.extend(self.admit(call, true));
                }
                Effect::Defer { call_id, action } if !self.is_waited_for(&call_id) => {
                    again.extend(self.defer(call_id, action));
                }
                Effect::Execute(_)
                | Effect::Defer { .. }
                | Effect::Deliver(_)
                | Effect::CancelCall(_)
                | Effect::Remind { .. }
                | Effect::Finish(_)
                | Effect::Report(_) => {}
            }
        }
        self.carry_out(again.into()).await
    }

    fn is_waited_for(&self, call: &CallId) -> bool {
        let mut waits = self.progress.waits.iter();
        waits.any(|wait| wait.call() == Some(call))
    }

    /// Hears the agent, or what its calls come to, whatever is first.
    async fn go_on(&mut self) -> Result<(), BoxError> {
        let hears = self.hears();
        if hears {
            self.touch();
            self.may_go_on()?;
            self.open().await?;
        }
        let limit = self.time_left();
        let turn = self.progress.spent.turns + 1;
        let agent = &*self.agent.definition.agent_id;
        let span = tracing::debug_span!("model_turn", agent, turn);
        let Self {
            session, running, ..
        } = self;
        let next = async {
            let said = async {
                match session {
                    Some(session) if hears => session.next().instrument(span).await,
                    Some(_) | None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(done) = running.next() => Ok(Next::Done(done)),
                said = said => said.map(Next::Said),
            }
        };
        let next = in_time(limit, next).await??;
        self.touch();
        match next {
            Next::Said(said) => self.hear(said).await?,
            Next::Done(done) => self.take_results(done).await?,
        }
        self.save().await
    }

    /// Whether the agent is heard of next. One that is not at work is not started only to be stopped again, since the run
    /// still waits for others, nor before it can be told what its calls came to.
    fn hears(&self) -> bool {
        let is_at_work = self.session.is_some();
        let is_settled = self.progress.waits.is_empty() && self.running.is_empty();
        self.progress.may_hear() && (is_at_work || is_settled)
    }

    /// Reads the tool requests of an answer, if the rules of the definition let answers request tools.
    fn requests_in(&self, text: &str) -> Option<Vec<ToolRequest>> {
        let is_batch = self.progress.machine.policy().delivery == ResultDelivery::Batch;
        let may_request = self.agent.definition.requests_tools && self.agent.output.is_none();
        match is_batch && may_request {
            true => self.progress.requests_in(text),
            false => None,
        }
    }

    async fn hear(&mut self, said: ProviderEvent) -> Result<(), BoxError> {
        let agent = self.agent;
        let (said, objection) = match said {
            ProviderEvent::Finished {
                text,
                cut_off,
                usage,
            } => {
                if let Some(requests) = self.requests_in(&text) {
                    let progress = &mut self.progress;
                    let effects = progress.request(requests, usage, &agent.definition)?;
                    return self.carry_out(effects).await;
                }
                let (text, objection) = agent.examine(text).await?;
                let said = ProviderEvent::Finished {
                    text,
                    cut_off,
                    usage,
                };
                (said, objection)
            }
            said @ (ProviderEvent::Calls { .. } | ProviderEvent::Asks { .. }) => (said, None),
        };
        match self.progress.hear(said, &agent.definition, objection)? {
            Heard::Effects(effects) => self.carry_out(effects).await,
            Heard::Repair(message) => {
                self.note_repair();
                self.open().await?.tell(message).await
            }
            Heard::Ask {
                tool,
                input,
                number,
            } => {
                let id = self.request_id(&["model", &number.to_string()]);
                let by = &agent.definition.agent_id;
                let request = tool::request(&tool, input.into_value(), &id, Some(by));
                let seconds = agent.definition.wait_seconds.model.get();
                let lasts = Duration::from_secs(seconds.into());
                self.wait(id, lasts, Awaited::Model { tool }, |_| request);
                Ok(())
            }
        }
    }

    /// Keeps the progress for another attempt, without the requests that are not written.
    async fn save(&mut self) -> Result<(), BoxError> {
        if let Some(session) = &self.session {
            self.progress.session = Some(session.save()?);
        }
        if self.running.is_empty() && !self.progress.waits.is_empty() {
            // It is suspended next, and saved with that.
            self.send_events();
            return Ok(());
        }
        let state = self.progress.without_requests(Progress::to_json);
        match self.context.save(state?).await {
            // On a store without a ledger nothing is saved, and a retry starts from the beginning.
            Ok(()) | Err(ContextError::Unsupported { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.send_events();
        Ok(())
    }

    /// Whether the agent may be heard once more. A program is, as long as it runs, and has a turn for each start.
    fn may_go_on(&self) -> Result<(), AgentRunError> {
        let (spent, definition) = (&self.progress.spent, &self.agent.definition);
        let is_batch = self.progress.machine.policy().delivery == ResultDelivery::Batch;
        match is_batch || self.session.is_none() {
            true => spent.check(definition),
            false => spent.check_budgets(definition),
        }
    }

    /// The provider's side of the run.
    async fn open(&mut self) -> Result<&mut Box<dyn ProviderSession>, BoxError> {
        if self.session.is_none() {
            let (agent, context) = (self.agent, self.context);
            let mut task = agent.task(context).await?;
            if agent.provider.delivery() == ResultDelivery::Each {
                self.progress.spent.start();
                let made = self.progress.machine.answered();
                let approved = &self.progress.approved;
                task.made = made
                    .map(|(call, answer)| {
                        let told = approved::told(approved, &call.id, answer);
                        (call.clone(), told)
                    })
                    .collect();
            }
            let provider = &agent.provider;
            self.session = Some(match self.progress.session.clone() {
                Some(saved) => provider.resume(task, saved).await?,
                None => provider.start(task).await?,
            });
        }
        let closed = || BoxError::from("the provider gave no session");
        self.session.as_mut().ok_or_else(closed)
    }

    /// Ends the provider's side, as far as it is there.
    async fn close(&mut self) {
        if let Some(mut session) = self.session.take() {
            if let Ok(saved) = session.save() {
                self.progress.session = Some(saved);
            }
            session.cancel().await;
        }
    }

    fn touch(&mut self) {
        let worked = self.before + self.began.elapsed();
        self.progress.spent.set_time(worked);
    }

    /// How long the run may still work, and of how long.
    fn time_left(&self) -> Option<(Duration, u64)> {
        let limit = self.agent.definition.budgets.seconds?;
        let worked = self.before + self.began.elapsed();
        Some((Duration::from_secs(limit).saturating_sub(worked), limit))
    }
}

/// What is first.
enum Next {
    Said(ProviderEvent),
    Done(Option<Done>),
}

/// What a future comes to within the time that the run has.
async fn in_time<T>(
    limit: Option<(Duration, u64)>,
    future: impl Future<Output = T>,
) -> Result<T, AgentRunError> {
    let Some((left, limit)) = limit else {
        return Ok(future.await);
    };
    let budget = "seconds";
    let late = || AgentRunError::BudgetUsedUp { budget, limit };
    within(left, future).await.ok_or_else(late)
}
